package client

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// renameOpen says that a file can't get another name while it is open.
const renameOpen = false

// lockPart locks a part for this copy, and says false if another has it. The lock
// is on one byte behind all that a file can have, since a lock of Windows' keeps
// others from the bytes.
func lockPart(f *os.File) bool {
	at := windows.Overlapped{OffsetHigh: math.MaxInt32}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	return !errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}
