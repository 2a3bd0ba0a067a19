package usb

import (
	"context"
	"sync"
	"time"
)

// A device may be opened openBurst times in a row and from then on once in
// openPause. A session that uses a device again and again keeps it open between
// its operations, so only a storm of sessions, or of RELEASE, comes so far; each
// opening may detach and attach drivers, which programs elsewhere notice.
const (
	openBurst = 20
	openPause = 250 * time.Millisecond

	// maxDamped is how many devices are remembered; a quiet one needs no memory.
	maxDamped = 256
)

// damper slows down those who open a device in a storm.
type damper struct {
	mu   sync.Mutex
	next map[string]time.Time // when the device's allowance would be full again
}

// wait waits for the turn to open a device.
func (d *damper) wait(ctx context.Context, id string) error {
	pause := d.take(id, time.Now())
	if pause <= 0 {
		return nil
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take takes one turn and says how long to wait for it.
func (d *damper) take(id string, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == nil {
		d.next = make(map[string]time.Time)
	}
	if len(d.next) >= maxDamped {
		for other, full := range d.next {
			if !full.After(now) {
				delete(d.next, other)
			}
		}
	}
	full := d.next[id]
	if full.Before(now) {
		full = now
	}
	full = full.Add(openPause)
	d.next[id] = full
	return full.Sub(now) - openBurst*openPause
}
