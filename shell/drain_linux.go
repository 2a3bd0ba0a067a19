package shell

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newPipe is a pipe whose read end doesn't block. Neither end is known to the
// runtime's poller: most commands are over before that would be of use.
func newPipe() (r int, w *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return -1, nil, os.NewSyscallError("fcntl", err)
	}
	return p[0], os.NewFile(uintptr(p[1]), "pipe"), nil
}

func closeFD(fd int) { unix.Close(fd) }

// readFD reads what is in the pipe without waiting: 0 if there is nothing, and
// then ended says whether there never will be.
func readFD(fd int, buf []byte) (n int, ended bool) {
	for {
		n, err := unix.Read(fd, buf)
		if err != unix.EINTR {
			return max(n, 0), err == nil && n == 0
		}
	}
}

// readNow does the same for a pipe that the poller knows.
func readNow(pipe *os.File, buf []byte) (n int, ended bool) {
	if pipe.SetReadDeadline(time.Time{}) != nil {
		return 0, false
	}
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Read(func(fd uintptr) bool {
		n, ended = readFD(int(fd), buf)
		return true // done, also with nothing
	})
	return n, ended && err == nil
}
