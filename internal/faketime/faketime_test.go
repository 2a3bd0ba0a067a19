package faketime

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fired atomic.Bool
		time.AfterFunc(time.Hour, func() { fired.Store(true) })
		Advance(59 * time.Minute)
		if fired.Load() {
			t.Error("too early")
		}
		Advance(time.Minute)
		if !fired.Load() {
			t.Error("what was due has not settled")
		}
	})
}

func TestAdvanceNeedsABubble(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a real sleep was possible")
		}
	}()
	Advance(time.Hour)
}
