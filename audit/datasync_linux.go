package audit

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync puts the content of f on the disk, and of its metadata only what is
// needed to read it: overwriting in place costs no journal commit.
func datasync(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		for {
			if failed = unix.Fdatasync(int(fd)); failed != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if failed != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: failed}
	}
	return nil
}
