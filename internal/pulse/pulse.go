// Package pulse tells a loop that goes round from one that hangs, without timers
// in the loop: while it waits for something to happen it answers when it is asked,
// and before work that may take a while it says how long that may be.
//
//	for {
//		select {
//		case reply := <-loop.Asked():
//			close(reply)
//		case x := <-work:
//			done := loop.Busy(10 * time.Second)
//			do(x)
//			done()
//		}
//	}
package pulse

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Loop is one loop. Make it with New. Asked and Busy are for the loop alone, the
// rest is safe for concurrent use.
type Loop struct {
	name  string
	asked chan chan struct{}

	mu    sync.Mutex
	due   time.Time // when the work at hand is to be over; zero: not busy
	ended bool
}

// New is for a loop that hasn't begun yet: until then it isn't alive.
func New(name string) *Loop { return &Loop{name: name, asked: make(chan chan struct{})} }

// Asked gives what the loop has to close.
func (l *Loop) Asked() <-chan chan struct{} { return l.asked }

// Busy says that the loop is at work and back within d; done says that it is back.
// Work within work counts until the outermost is done, with the later bound.
func (l *Loop) Busy(d time.Duration) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	outer := l.due
	if due := time.Now().Add(d); due.After(outer) {
		l.due = due
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.due = outer
	}
}

// End says that the loop is over as it should be: it is asked no more.
func (l *Loop) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// look is how often a loop that doesn't answer is looked at: it may have become
// busy meanwhile.
const look = 50 * time.Millisecond

// Alive returns nil once the loop has answered, or is busy and not late, or has
// ended. The error says which loop didn't until ctx ended.
func (l *Loop) Alive(ctx context.Context) error {
	reply := make(chan struct{})
	asked := l.asked
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		if l.fine() {
			return nil
		}
		select {
		case asked <- reply:
			asked = nil // once is enough
		case <-reply:
			return nil
		case <-again.C:
		case <-ctx.Done():
			return l.late()
		}
	}
}

func (l *Loop) fine() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended || !l.due.IsZero() && time.Now().Before(l.due)
}

func (l *Loop) late() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.due.IsZero() {
		return fmt.Errorf("%s is late by %s", l.name, time.Since(l.due).Round(time.Millisecond))
	}
	return fmt.Errorf("%s doesn't answer", l.name)
}

// Locked is Alive for what is no loop but a lock: free takes and releases it. It
// leaves a goroutine behind for as long as that hangs.
func Locked(ctx context.Context, name string, free func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		free()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s is locked", name)
	}
}
