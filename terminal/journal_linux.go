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
