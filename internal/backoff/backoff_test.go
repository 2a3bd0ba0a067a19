package backoff

import (
	"testing"
	"time"
)

func TestDoublesToTheBound(t *testing.T) {
	b := Backoff{Base: time.Second, Max: time.Minute}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}
	for round := range 2 {
		for i, w := range want {
			if got := b.Next(); got != w*time.Second {
				t.Errorf("round %d: wait %d is %v, want %v", round, i, got, w*time.Second)
			}
		}
		b.Reset()
	}
}

// TestNeverOverflows: after days of outage the wait is still the bound.
func TestNeverOverflows(t *testing.T) {
	b := Default()
	for range 100_000 {
		b.Next()
	}
	if got := b.Next(); got < DefaultMax || got >= DefaultMax+DefaultJitter {
		t.Errorf("wait %v", got)
	}
}

func TestJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 200 {
		b := Default()
		w := b.Next()
		if w < DefaultBase || w >= DefaultBase+DefaultJitter {
			t.Fatalf("wait %v", w)
		}
		seen[w] = true
	}
	if len(seen) < 100 {
		t.Errorf("only %d different waits in 200", len(seen))
	}
}

func TestBaseAboveMax(t *testing.T) {
	b := Backoff{Base: time.Hour, Max: time.Minute}
	if got := b.Next(); got != time.Minute {
		t.Errorf("wait %v", got)
	}
}
