package device

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
)

// heedless is a driver that hangs whatever its context says.
type heedless struct {
	mu   sync.Mutex
	hang chan struct{} // nil: it doesn't
}

func (*heedless) Type() string { return "heedless" }

func (h *heedless) Probe(context.Context) ([]Descriptor, error) {
	h.mu.Lock()
	hang := h.hang
	h.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return nil, nil
}

// Field case 58: a loop that hangs is noticed, and one that only waits or takes its
// time is not taken for it.
func TestLoopIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alive := func(f func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return f(ctx)
		}
		h := &heedless{}
		r := NewRegistry(Options{Families: []Family{{Driver: h}}})
		if alive(r.Alive) == nil {
			t.Error("nobody follows, and that is alive")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.loop(ctx) }()
		if err := alive(r.Alive); err != nil {
			t.Error(err)
		}
		r.Changed()
		faketime.Advance(quiet / 2)
		if err := alive(r.Alive); err != nil {
			t.Errorf("in a burst: %v", err)
		}
		faketime.Advance(time.Minute)
		h.mu.Lock()
		h.hang = make(chan struct{})
		h.mu.Unlock()
		r.Changed()
		faketime.Advance(probeTimeout)
		if err := alive(r.Alive); err != nil {
			t.Errorf("while a driver takes its time: %v", err)
		}
		faketime.Advance(probeOverdue)
		if err := alive(r.Alive); err == nil || !strings.Contains(err.Error(), "follows devices is late") {
			t.Errorf("while a driver hangs: %v", err)
		}
		close(h.hang)
		if err := alive(r.Alive); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		cancel()
		<-ended
		if alive(r.Alive) == nil {
			t.Error("following has ended, and that is alive")
		}
	})
}

func TestLeasesAreAlive(t *testing.T) {
	ls := NewLeases(LeaseOptions{})
	defer ls.Close()
	if err := ls.Alive(t.Context()); err != nil {
		t.Error(err)
	}
	ls.mu.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := ls.Alive(ctx); err == nil {
		t.Error("alive with its lock held")
	}
	ls.mu.Unlock()
}
