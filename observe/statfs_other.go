//go:build !linux

package observe

import "farhand/wire"

func statfs(string, *wire.TopDisk) error {
	return wire.Errorf(wire.FeatureNotSupported, "the disk's size is read on Linux only")
}
