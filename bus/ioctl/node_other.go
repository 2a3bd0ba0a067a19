//go:build !linux

package ioctl

import "farhand/wire"

// Open fails: the two device nodes are Linux's.
func Open(path string) (Node, error) {
	return nil, wire.Errorf(wire.FeatureNotSupported, "%s: I2C and SPI need Linux", path)
}
