//go:build !linux

package termios

import (
	"errors"
	"os"
)

// OpenPTY fails: only Linux has terminals of this kind.
func OpenPTY() (*os.File, string, error) { return nil, "", errors.ErrUnsupported }

// Raw fails.
func Raw(int) error { return errors.ErrUnsupported }
