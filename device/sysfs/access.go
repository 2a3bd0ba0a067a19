package sysfs

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Access says whether this process may open a node for reading and writing,
// without opening it: an empty reason if so.
func Access(node string) (available bool, reason string) {
	err := unix.Access(node, unix.R_OK|unix.W_OK)
	switch {
	case err == nil:
		return true, ""
	case errors.Is(err, fs.ErrNotExist):
		return false, "there is no device node"
	case errors.Is(err, fs.ErrPermission):
		return false, "permission denied: the daemon's user is not in the device's group"
	}
	return false, err.Error()
}
