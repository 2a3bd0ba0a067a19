package daemon

import (
	"runtime"
	"testing"
	"time"
)

// What the owner was told that it is let go goes, also if it comes in the moment in
// which the time is over.
func TestReleaseAtTheLastMoment(t *testing.T) {
	r := newReleases(50 * time.Microsecond)
	for range 300 {
		held := make(chan error, 1)
		go func() { held <- r.hold(t.Context(), Answer{Text: "x"}) }()
		decided := false
		for err := error(nil); ; {
			if all := r.list(); len(all) > 0 && !decided {
				decided = r.decide(all[0].ID, true)
			}
			select {
			case err = <-held:
			default:
				runtime.Gosched()
				continue
			}
			if decided != (err == nil) {
				t.Fatalf("decided %v, and then: %v", decided, err)
			}
			break
		}
	}
}
