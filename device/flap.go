package device

import (
	"fmt"
	"time"
)

const (
	// A device that came back flapCount times within flapWindow is called
	// flapping (an erased board enumerates about every second).
	flapCount  = 5
	flapWindow = 30 * time.Second

	// While a device flaps its changes are told in fewer readings, so that
	// subscribers get one of its comings and goings in three seconds.
	flapQuiet = time.Second
	flapMost  = 3 * time.Second
)

// appears notes that the device has come back.
func (m *memory) appears(now time.Time) {
	m.appeared = append(m.appeared, now)
	if len(m.appeared) > flapCount {
		m.appeared = m.appeared[1:]
	}
}

// flaps says for how long the device will still be called flapping if it stays;
// 0: it isn't.
func (m *memory) flaps(now time.Time) time.Duration {
	if len(m.appeared) < flapCount {
		return 0
	}
	return max(0, flapWindow-now.Sub(m.appeared[0]))
}

func flapping() string {
	return fmt.Sprintf("flapping: it came back %d times within %d seconds", flapCount, int(flapWindow.Seconds()))
}

// calms is how long it takes until the next of the devices that are present is
// no longer to be called flapping; 0: none is.
func (r *Registry) calms(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var soonest time.Duration
	for id := range r.present {
		if d := r.memory[id].flaps(now); d > 0 && (soonest == 0 || d < soonest) {
			soonest = d
		}
	}
	return soonest
}

// pace is how long the kernel's events are gathered: until none came for calm,
// and never longer than latest. What flaps may be gone at the moment.
func (r *Registry) pace(now time.Time) (calm, latest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.memory {
		if m.flaps(now) > 0 {
			return flapQuiet, flapMost
		}
	}
	return quiet, most
}
