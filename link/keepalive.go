package link

import (
	"time"
)

// tick pings and looks for life. It runs on a timer rather than in a goroutine,
// since a relay has thousands of idle sockets.
func (c *Conn) tick() {
	c.mu.Lock()
	if c.stopped != nil {
		c.mu.Unlock()
		return
	}
	c.work.Add(1)
	defer c.work.Done()
	silent := c.tap.silence()
	if silent >= c.opt.DeadAfter {
		c.mu.Unlock()
		c.fail(ErrSilent)
		return
	}
	now := time.Now()
	due := now.Sub(c.pinged) >= c.opt.PingEvery
	if due {
		c.pinged = now
	}
	c.timer.Reset(max(time.Millisecond, min(c.opt.PingEvery-now.Sub(c.pinged), c.opt.DeadAfter-silent)))
	c.mu.Unlock()
	if due {
		c.sendControl(pingSlot, new([]byte))
	}
}

// Probe asks the peer for a sign of life and ends the socket with ErrSilent
// unless a byte arrives within the given time. It returns at once.
func (c *Conn) Probe(within time.Duration) {
	before := c.tap.reads.Load()
	c.sendControl(pingSlot, new([]byte))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return
	}
	if c.probe != nil {
		c.probe.Stop()
	}
	c.probe = time.AfterFunc(within, func() {
		if c.tap.reads.Load() == before {
			c.fail(ErrSilent)
		}
	})
}
