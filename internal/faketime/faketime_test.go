package faketime

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := false
		time.AfterFunc(time.Hour, func() { fired = true })
		Advance(59 * time.Minute)
		if fired {
			t.Error("too early")
		}
		Advance(time.Minute)
		if !fired {
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
