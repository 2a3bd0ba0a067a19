package shim

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// access says whether we may read, write and enter a directory.
func access(path string) error {
	if err := unix.Access(path, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("access %s: %w", path, err)
	}
	return nil
}
