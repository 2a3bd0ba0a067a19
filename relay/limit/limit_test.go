package limit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Rates{Calls: 1, Requests: 100})
		for range 10 {
			if err := l.Call("a"); err != nil {
				t.Fatal(err)
			}
		}
		err := l.Call("a")
		if err == nil || err.Code != Code {
			t.Fatalf("the eleventh call at once: %v", err)
		}
		wait := err.Details["retry_after_seconds"].(float64)
		if wait <= 0 || wait > 1 {
			t.Fatalf("wait %g s", wait)
		}
		// What one has used is nobody else's loss, nor that of its requests.
		if l.Call("b") != nil || l.Request("a") != nil {
			t.Fatal("somebody else has to wait")
		}
		<-time.After(time.Duration(wait * float64(time.Second)))
		if err := l.Call("a"); err != nil {
			t.Fatalf("after waiting as told: %v", err)
		}
	})
}

func TestUnbounded(t *testing.T) {
	var none *Limits
	for _, l := range []*Limits{none, New(Rates{})} {
		for range 100000 {
			if l.Call("a") != nil || l.Request("a") != nil {
				t.Fatal("refused without a bound")
			}
		}
	}
}

// The table stays bounded, and who is short of its share isn't let off by it.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Rates{Calls: 1, Requests: 1})
		for range 10 {
			_ = l.Call("busy")
		}
		for i := range 2 * maxHolders {
			l.of(fmt.Sprint(i))
		}
		if len(l.holders) > maxHolders {
			t.Fatalf("%d are remembered", len(l.holders))
		}
		if l.Call("busy") == nil {
			t.Fatal("the busy one was forgotten")
		}
	})
}
