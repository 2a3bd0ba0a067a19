package terminal

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newJournalFile is a file in memory, which lives as long as somebody holds it.
func newJournalFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("farhand-terminal", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for a terminal: %w", err)
	}
	return os.NewFile(uintptr(fd), "terminal's journal"), nil
}

func mapFile(f *os.File, length int) ([]byte, error) {
	var mapped []byte
	err := control(f, func(fd int) (err error) {
		mapped, err = unix.Mmap(fd, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	})
	return mapped, err
}

func unmap(b []byte) { _ = unix.Munmap(b) } // fails only for what isn't mapped
