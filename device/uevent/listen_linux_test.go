package uevent

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/internal/testenv"
)

// poke has the kernel send a made-up event for a terminal that every machine has.
func poke() error { return os.WriteFile("/sys/class/tty/tty0/uevent", []byte("change"), 0o200) }

func listen(t *testing.T) *Listener {
	t.Helper()
	l, err := Listen()
	testenv.Need(t, "uevents", err == nil, "the kernel's device events can't be followed here")
	t.Cleanup(func() { l.Close() })
	return l
}

func TestListen(t *testing.T) {
	leak.Check(t)
	l := listen(t)
	testenv.Need(t, "uevents", poke() == nil, "only root may have the kernel send an event")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		e, err := l.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.DevName == "tty0" {
			if e.Action != "change" || e.Subsystem != "tty" || e.DevPath != "/devices/virtual/tty/tty0" {
				t.Errorf("the event is %+v", e)
			}
			return
		}
	}
}

func TestNextEnds(t *testing.T) {
	leak.Check(t)
	l := listen(t)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	next := func(ctx context.Context) {
		for {
			if _, err := l.Next(ctx); err != nil {
				ended <- err
				return
			}
		}
	}
	go next(ctx)
	cancel(why)
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("a cancelled Next answers %v", err)
	}
	go next(t.Context()) // the listener goes on
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("Next answers %v at Close", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
