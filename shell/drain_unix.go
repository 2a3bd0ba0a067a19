//go:build unix

package shell

import (
	"os"
	"syscall"
	"time"
)

// readNow reads what is in the pipe without waiting: 0 if there is nothing.
func readNow(pipe *os.File, buf []byte) int {
	if pipe.SetReadDeadline(time.Time{}) != nil {
		return 0
	}
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	var got int
	err = raw.Read(func(fd uintptr) bool {
		got, _ = syscall.Read(int(fd), buf)
		return true // done, also with EAGAIN
	})
	if err != nil {
		return 0
	}
	return max(got, 0)
}
