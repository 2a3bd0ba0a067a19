package device

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
)

// Field case 34: a board that enumerates every second is called flapping, told of
// seldom, and no longer called so half a minute after it has settled, though
// nothing happens then.
func TestFlappingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("usb")
		r := NewRegistry(Options{Families: []Family{{Driver: s, Service: &desk{}}}})
		s.put("steady")
		refresh(t, r)
		sub := r.Subscribe()
		defer sub.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.loop(ctx) }()
		told := make(chan int)
		go func() {
			n := 0
			for {
				changes, _, err := sub.Next(ctx)
				if err != nil {
					told <- n
					return
				}
				n += len(changes)
			}
		}()
		const seconds = 120
		for range seconds {
			s.put("a")
			r.Changed()
			faketime.Advance(time.Second / 2)
			s.take("a")
			r.Changed()
			faketime.Advance(time.Second / 2)
		}
		s.put("a")
		r.Changed()
		faketime.Advance(10 * time.Second)
		if d, err := r.Resolve("usb:a"); err != nil || !strings.HasPrefix(d.Reason, "flapping") {
			t.Errorf("after two minutes of it: %+v, %v", d, err)
		}
		if d, err := r.Resolve("usb:steady"); err != nil || d.Reason != "" || d.Generation != 1 {
			t.Errorf("what was there all the time: %+v, %v", d, err)
		}
		faketime.Advance(flapWindow)
		if d, err := r.Resolve("usb:a"); err != nil || d.Reason != "" || !d.Available {
			t.Errorf("half a minute later: %+v, %v", d, err)
		}
		cancel()
		<-ended
		// Twice a second would be 240 changes.
		if n := <-told; n < 10 || n > 2*seconds/3+20 {
			t.Errorf("%d changes were told", n)
		}
	})
}
