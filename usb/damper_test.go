package usb

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
)

// Field case 33: a storm of openings is slowed down, one device at a time, and
// forgotten when it is over.
func TestDamper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d damper
		open := func(n int, id string) time.Duration {
			began := time.Now()
			for range n {
				if err := d.wait(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(began)
		}
		if took := open(openBurst, "a"); took != 0 {
			t.Errorf("the first %d openings took %v", openBurst, took)
		}
		if took := open(8, "a"); took != 8*openPause {
			t.Errorf("eight more took %v", took)
		}
		if took := open(1, "b"); took != 0 {
			t.Errorf("another device took %v", took)
		}
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := d.wait(ctx, "a"); !errors.Is(err, why) {
			t.Errorf("a cancelled wait answers %v", err)
		}
		faketime.Advance(openBurst * openPause * 2)
		if took := open(openBurst, "a"); took != 0 {
			t.Errorf("after a pause they took %v", took)
		}
		for i := range 3 * maxDamped {
			open(1, fmt.Sprint(i))
			faketime.Advance(openPause)
		}
		if n := len(d.next); n > maxDamped {
			t.Errorf("%d devices are remembered", n)
		}
	})
}
