package gpio

import (
	"time"

	"golang.org/x/sys/unix"
)

// exactTimers lets this thread's waits end on time: the kernel is otherwise free
// to add 50 µs (PR_SET_TIMERSLACK in prctl(2)).
func exactTimers() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it they are only less exact
}

// exactWait waits in the kernel, not in the runtime's timers.
func exactWait(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it early, which is only less exact
}
