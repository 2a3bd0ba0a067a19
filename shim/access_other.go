//go:build !linux

package shim

import "farhand/wire"

func access(string) error { return wire.FeatureNotSupported }
