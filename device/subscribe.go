package device

import (
	"context"
	"sync"

	"farhand/wire"
)

// maxPending bounds what a subscriber that doesn't listen is owed.
const maxPending = 256

// Change is what happened to one device.
type Change struct {
	Device wire.HardwareDevice
	Gone   bool // it vanished; else it appeared, or its availability changed
}

// Subscription is one subscriber's view of the changes. Of several changes to
// one device that were not fetched yet only the last vanishing and what came
// after it are kept.
type Subscription struct {
	r     *Registry
	ready chan struct{} // holds one token if there is something
	done  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	pending []Change
	lost    bool
}

// Subscribe starts a subscription with nothing pending. Close it when done.
func (r *Registry) Subscribe() *Subscription {
	s := &Subscription{r: r, ready: make(chan struct{}, 1), done: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs[s] = struct{}{}
	return s
}

// Next waits for changes. lost says that there were more than could be kept:
// what is present has then to be read from List. After Close, or when ctx is
// done, it fails.
func (s *Subscription) Next(ctx context.Context) (changes []Change, lost bool, err error) {
	for {
		select {
		case <-s.done:
			return nil, false, context.Canceled
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		case <-s.ready:
		}
		s.mu.Lock()
		changes, lost = s.pending, s.lost
		s.pending, s.lost = nil, false
		s.mu.Unlock()
		if len(changes) > 0 || lost {
			return changes, lost, nil
		}
	}
}

// Close ends the subscription. It may be repeated.
func (s *Subscription) Close() {
	s.once.Do(func() {
		close(s.done)
		s.r.mu.Lock()
		defer s.r.mu.Unlock()
		delete(s.r.subs, s)
	})
}

func (s *Subscription) add(changes []Change) {
	if len(changes) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		s.pending = append(coalesce(s.pending, c), c)
	}
	if len(s.pending) > maxPending {
		s.pending, s.lost = nil, true
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// coalesce drops what c makes out of date: of the same device everything if c
// is a vanishing, else all but the last vanishing.
func coalesce(pending []Change, c Change) []Change {
	kept := pending[:0]
	for _, p := range pending {
		if p.Device.ID != c.Device.ID || p.Gone && !c.Gone {
			kept = append(kept, p)
		}
	}
	return kept
}
