package device

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/internal/leak"
	"farhand/internal/testenv"
)

// TestLoop is what follows a burst: one reading soon after it, one more later.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("serial")
		r := NewRegistry(Options{Families: []Family{{Driver: s}}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.loop(ctx) }()
		probes := func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.probes }

		for range 5 { // a burst
			r.Changed()
			faketime.Advance(quiet / 5)
		}
		if n := probes(); n != 0 {
			t.Errorf("%d readings in the middle of a burst", n)
		}
		faketime.Advance(quiet)
		if n := probes(); n != 1 {
			t.Errorf("%d readings after a burst", n)
		}
		faketime.Advance(afterthought)
		if n := probes(); n != 2 {
			t.Errorf("%d readings with the afterthought", n)
		}
		faketime.Advance(time.Hour)
		if n := probes(); n != 2 {
			t.Errorf("%d readings with nothing going on", n)
		}
		for range 40 { // a flood can't put the reading off for ever, nor make it many
			r.Changed()
			faketime.Advance(quiet / 5)
		}
		if n := probes(); n < 3 || n > 4 {
			t.Errorf("%d readings after a flood of two seconds", n)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestFollow has the kernel itself report a change.
func TestFollow(t *testing.T) {
	leak.Check(t)
	s := newShelf("serial")
	r := NewRegistry(Options{Families: []Family{{Driver: s}}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Follow(ctx) }()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !r.following() {
		select {
		case <-again.C:
		case <-ctx.Done():
			testenv.Need(t, "uevents", false, "the kernel's device events can't be followed here")
		}
	}
	sub := r.Subscribe()
	defer sub.Close()
	s.put("a")
	err := os.WriteFile("/sys/class/tty/tty0/uevent", []byte("change"), 0o200)
	testenv.Need(t, "uevents", err == nil, "only root may have the kernel send an event")
	if changes, _, err := sub.Next(ctx); err != nil || len(changes) != 1 || changes[0].Device.ID != "serial:a" {
		t.Errorf("%+v, %v", changes, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if r.following() {
		t.Error("it still counts as followed")
	}
}

func TestSubscription(t *testing.T) {
	s := newShelf("serial")
	r := NewRegistry(Options{Families: []Family{{Driver: s, Service: &desk{}}}})
	s.put("old")
	refresh(t, r)
	sub := r.Subscribe()
	defer sub.Close()
	next := func() (got []string) {
		t.Helper()
		changes, lost, err := sub.Next(t.Context())
		if err != nil || lost {
			t.Fatalf("lost %v, %v", lost, err)
		}
		for _, c := range changes {
			if c.Gone {
				got = append(got, "-"+c.Device.ID)
			} else {
				got = append(got, "+"+c.Device.ID)
			}
		}
		return got
	}
	is := func(got []string, want ...string) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("changes %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("changes %v, want %v", got, want)
			}
		}
	}
	s.put("a")
	refresh(t, r)
	is(next(), "+serial:a")
	for range 3 { // not fetched: only the last of it counts
		s.put("a")
		refresh(t, r)
	}
	is(next(), "-serial:a", "+serial:a")
	s.put("a")
	refresh(t, r)
	s.take("a")
	refresh(t, r)
	is(next(), "-serial:a")

	for i := range maxPending + 1 {
		s.put("n" + time.Duration(i).String())
	}
	refresh(t, r)
	if changes, lost, err := sub.Next(t.Context()); !lost || len(changes) != 0 || err != nil {
		t.Errorf("a flood: %d changes, lost %v, %v", len(changes), lost, err)
	}
	sub.Close()
	sub.Close()
	if _, _, err := sub.Next(t.Context()); err == nil {
		t.Error("Next after Close answers something")
	}
	s.put("z")
	refresh(t, r)
	if n := len(r.subs); n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}
