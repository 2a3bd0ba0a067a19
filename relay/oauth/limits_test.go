package oauth

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever comes with ever new addresses can't make the tables grow.
func TestTablesBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, p := newBackoff(), newHourly(3), newPolls()
		for i := range maxRemembered + 50 {
			key := fmt.Sprint(i)
			done, _ := b.begin(key)
			done(failed)
			h.take(key)
			p.tooEarly(key)
			pass(time.Millisecond)
		}
		if len(b.keys) > maxRemembered || len(h.keys) > maxRemembered || len(p.keys) > maxRemembered {
			t.Fatalf("%d %d %d", len(b.keys), len(h.keys), len(p.keys))
		}
		last := fmt.Sprint(maxRemembered + 49)
		if b.keys[last] == nil || h.keys[last] == nil || p.keys[last] == nil || b.keys["0"] != nil || h.keys["0"] != nil {
			t.Fatal("the newest were forgotten, or the oldest kept")
		}
	})
}

func TestHourly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHourly(3)
		take := func() time.Duration {
			_, wait := h.take("k")
			return wait
		}
		for range 3 {
			if wait := take(); wait != 0 {
				t.Fatal(wait)
			}
			pass(10 * time.Minute)
		}
		if wait := take(); wait != 30*time.Minute {
			t.Fatal(wait)
		}
		if _, wait := h.take("other"); wait != 0 {
			t.Fatal(wait)
		}
		pass(30 * time.Minute) // the first is an hour old
		undo, wait := h.take("k")
		if wait != 0 {
			t.Fatal(wait)
		}
		undo()
		if wait := take(); wait != 0 {
			t.Fatal("taken back, but counted")
		}
		if wait := take(); wait != 10*time.Minute {
			t.Fatal(wait)
		}
	})
}

// A quiet account is forgiven.
func TestBackoffForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff()
		for range freeFailures {
			done, _ := b.begin("k")
			done(failed)
		}
		if _, wait := b.begin("k"); wait != firstWait {
			t.Fatal(wait)
		}
		pass(forgetAfter + time.Second)
		for range freeFailures {
			done, wait := b.begin("k")
			if wait != 0 {
				t.Fatal(wait)
			}
			done(failed)
		}
		if _, wait := b.begin("k"); wait != firstWait {
			t.Fatal(wait)
		}
	})
}

// Whoever has to wait reads how long in words.
func TestWaitInWords(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		300 * time.Millisecond: "x: try again in a second", 8 * time.Second: "x: try again in 8 seconds",
		59*time.Minute + 52*time.Second: "x: try again in 59 minutes",
	} {
		if got := (&waitError{wait, "x"}).Error(); got != want {
			t.Errorf("%s: %q", wait, got)
		}
	}
}
