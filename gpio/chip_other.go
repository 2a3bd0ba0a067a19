//go:build !linux

package gpio

import (
	"os"

	"farhand/wire"
)

// Open fails: the character device is Linux's own.
func Open(string) (Chip, error) {
	return nil, wire.Errorf(wire.FeatureNotSupported, "GPIO needs Linux").With("feature", "gpio")
}

// Adopt fails, and closes the file.
func Adopt(f *os.File) (Request, error) {
	_ = f.Close() // it is of no use here
	return nil, wire.Errorf(wire.FeatureNotSupported, "GPIO needs Linux").With("feature", "gpio")
}
