package shell

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// history knows when which command ran. Times are since boot, as /proc gives
// the start of a process.
type history struct {
	mu      sync.Mutex
	running []*interval
	ended   []*interval // those that overlap with a running one
}

// interval is the life of one command's leader.
type interval struct {
	from time.Duration
	to   time.Duration // valid once it has ended
}

// begin is called before the fork, so that no process of the command is older
// than the interval.
func (h *history) begin() *interval {
	i := &interval{from: sinceBoot()}
	h.mu.Lock()
	h.running = append(h.running, i)
	h.mu.Unlock()
	return i
}

func (h *history) end(i *interval) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.to = sinceBoot()
	if n := slices.Index(h.running, i); n >= 0 {
		h.running = slices.Delete(h.running, n, n+1)
		h.ended = append(h.ended, i)
	}
	oldest := i.to
	for _, r := range h.running {
		oldest = min(oldest, r.from)
	}
	h.ended = slices.DeleteFunc(h.ended, func(e *interval) bool { return e.to < oldest })
}

// onlyDuring says whether at that time no other command than i ran, so that
// what was born then can only come from i.
func (h *history) onlyDuring(i *interval, born time.Duration) bool {
	if born < i.from-tick {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.running {
		if r != i && r.from-tick <= born {
			return false
		}
	}
	for _, e := range h.ended {
		if e != i && e.from-tick <= born && born <= e.to+tick {
			return false
		}
	}
	return true
}

// tick is the granularity of start times in /proc: USER_HZ is 100 on every
// architecture that we build for.
const tick = 10 * time.Millisecond

func sinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
