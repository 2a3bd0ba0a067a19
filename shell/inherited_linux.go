package shell

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeInherited keeps what this process inherited beyond the three standard
// descriptors (a service manager's sockets, whatever its starter had open) from
// its commands. What Go opens itself is closed on exec anyway.
func closeInherited() {
	// CLOSE_RANGE_CLOEXEC came with Linux 5.11, close_range(2).
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // no /proc: nothing tells which there are
	}
	for _, d := range open {
		if fd, err := strconv.Atoi(d.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
