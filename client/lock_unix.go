//go:build linux || darwin

package client

import (
	"errors"
	"os"
	"syscall"
)

// renameOpen says that a file can get another name while it is open, so that it is
// locked until it has it.
const renameOpen = true

// lockPart locks a part for this copy, and says false if another has it. The lock
// goes with the file's last descriptor, however the process ends. A file system
// that knows no locks is taken as it is.
func lockPart(f *os.File) bool {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			return !errors.Is(err, syscall.EWOULDBLOCK)
		}
	}
}
