package serialio

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lead lets a Read that wants much fill the ring itself, instead of waiting for
// the receiving goroutine to do so: with one goroutine from the kernel to the
// caller no second core has to be woken for each buffer, which takes longer than
// the kernel needs to hand one out. The receiving goroutine stands back
// meanwhile, and for leadRest after it, since a Read that wants much is mostly
// followed by another.
type lead struct {
	// f is a descriptor of its own for the same open port, so that both
	// goroutines can wait for bytes.
	f *os.File

	mu      sync.Mutex
	reading bool          // a Read leads
	free    chan struct{} // closed when the receiver may go on; nil: nobody leads
	rest    *time.Timer
}

const (
	// leadFrom is how many bytes a Read has to want to lead.
	leadFrom = 2 * chunk
	// leadRest is how long the port may receive nothing between two Reads. The
	// kernel keeps 64 KiB and more for a terminal meanwhile, 40 ms of the fastest
	// line that there is (16 Mbit/s).
	leadRest = 5 * time.Millisecond
)

// begin makes a Read lead.
func (l *lead) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = true
	if l.free == nil {
		l.free = make(chan struct{})
	}
}

// end lets the receiver go on, at once or after leadRest.
func (l *lead) end(now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = false
	switch {
	case now:
		l.yield()
	case l.rest == nil:
		l.rest = time.AfterFunc(leadRest, l.rested)
	default:
		l.rest.Reset(leadRest)
	}
}

func (l *lead) rested() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.reading {
		l.yield()
	}
}

// yield is called with mu.
func (l *lead) yield() {
	if l.free != nil {
		close(l.free)
		l.free = nil
	}
}

// follow is closed when the receiver may go on; nil if it needn't stand back.
func (l *lead) follow() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free
}

// fill fills the ring until change is closed, patience is over, ctx is done, the
// port is closed or the receiver has to say what is wrong with it.
func (p *Port) fill(ctx context.Context, change <-chan struct{}, patience time.Duration) {
	raw, err := p.lead.f.SyscallConn()
	if err != nil {
		return // closed
	}
	p.lead.begin()
	failed := false
	defer func() { p.lead.end(failed) }()
	defer p.bound(ctx, p.lead.f.SetReadDeadline, patience)()
	_ = raw.Read(func(fd uintptr) bool { // an error is a deadline, that of ctx or Close among them
		for {
			err := p.in.pull(int(fd))
			select {
			case <-change:
				return true
			default:
			}
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failed = true
				return true
			}
		}
	})
}
