package shell

import (
	"sync"
	"time"

	"farhand/wire"
)

// window is the length of the sliding window of Config.PerMinute.
const window = time.Minute

// limiter admits commands for the whole machine. What it refuses doesn't count.
type limiter struct {
	perMinute     int
	maxConcurrent int

	mu      sync.Mutex
	started []time.Time // a ring: the starts of the last perMinute commands
	next    int         // where the oldest of them stands
	running int
}

func newLimiter(perMinute, maxConcurrent int) *limiter {
	return &limiter{perMinute: perMinute, maxConcurrent: maxConcurrent, started: make([]time.Time, perMinute)}
}

func (l *limiter) acquire() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running >= l.maxConcurrent {
		return wire.Errorf(wire.ShimOverloaded, "%d commands are running already", l.running).
			With("max_concurrent", l.maxConcurrent)
	}
	if err := l.count(); err != nil {
		return err
	}
	l.running++
	return nil
}

// admit is acquire for what doesn't count among those that run.
func (l *limiter) admit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count()
}

// count counts one that is started now, if there were not too many of late.
// Called with mu.
func (l *limiter) count() error {
	now := time.Now()
	if oldest := l.started[l.next]; !oldest.IsZero() {
		if wait := window - now.Sub(oldest); wait > 0 {
			return wire.Errorf(wire.ShimOverloaded, "%d commands were started within the last minute", l.perMinute).
				With("max_commands_per_minute", l.perMinute).
				With("retry_after_seconds", milliseconds(wait))
		}
	}
	l.started[l.next] = now
	l.next = (l.next + 1) % len(l.started)
	return nil
}

func (l *limiter) release() {
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
}
