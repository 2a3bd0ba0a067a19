package shell

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// history knows when which command ran. Times are since boot, as /proc gives
// the start of a process.
type history struct {
	pidMax  int // pids are given out in order and begin anew after it
	mu      sync.Mutex
	running []*interval
	ended   []*interval // those that overlap with a running one, and the last
}

// newHistory makes an empty one. kernel.pid_max may be changed at any time, but
// it is only looked at for processes that are born within moments.
func newHistory() *history {
	const largest = 4 << 20 // PID_MAX_LIMIT
	text, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil || n <= 0 {
		n = largest
	}
	return &history{pidMax: n}
}

// interval is the life of one command's leader.
type interval struct {
	from   time.Duration
	to     time.Duration // valid once it has ended
	leader int           // its pid, 0 until the fork is over
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

// forked says which process leads the command.
func (h *history) forked(i *interval, leader int) {
	h.mu.Lock()
	i.leader = leader
	h.mu.Unlock()
}

// forget takes back a command that didn't start.
func (h *history) forget(i *interval) {
	h.mu.Lock()
	h.running = slices.DeleteFunc(h.running, func(r *interval) bool { return r == i })
	h.mu.Unlock()
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

// onlyDuring says whether p can come from no other command than i, since none
// but i ran when it was born.
//
// A start in /proc is rounded down to a tick, so of what seems to be born
// shortly before a command it isn't known whether it was. There the pids tell:
// they are given out in the order of birth.
func (h *history) onlyDuring(i *interval, p proc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.within(p, i) {
		return false
	}
	for _, r := range h.running {
		if r != i && h.within(p, r) {
			return false
		}
	}
	for _, e := range h.ended {
		if p.born > e.to || !h.within(p, e) {
			continue
		}
		// If i began after e had ended, p is one of both by the tick alone,
		// and within has asked its pid whether it is older than i.
		if e.to > i.from || i.leader == 0 {
			return false
		}
	}
	return true
}

// within says whether p may have been born after i began. Called with mu held.
func (h *history) within(p proc, i *interval) bool {
	switch {
	case p.born >= i.from:
		return true
	case p.born < i.from-tick:
		return false
	}
	return i.leader == 0 || !h.older(p.pid, i.leader)
}

// older says whether pid a was given out before pid b, if both were within half
// a round of pids.
func (h *history) older(a, b int) bool {
	ahead := b - a
	if ahead < 0 {
		ahead += h.pidMax
	}
	return 0 < ahead && ahead < h.pidMax/2
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
