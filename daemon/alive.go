package daemon

import (
	"context"
	"time"

	"farhand/internal/pulse"
	"farhand/systemd"
)

const (
	// stepTime is what each step of the start gets (TimeoutStartSec= of the unit
	// is for the first). The longest looks through an audit log of 64 MiB on a
	// slow card, or waits for heaters to go off.
	stepTime = time.Minute
	// diskOverdue is when a few writes to the state directory have taken too
	// long to be a slow card's.
	diskOverdue = 30 * time.Second
)

// parts are what the watchdog asks before it is fed. Between them they have every
// loop and every lock that the daemon can't do without.
func (d *daemon) parts() []systemd.Part {
	parts := []systemd.Part{
		{Name: "state", Alive: func(ctx context.Context) error {
			return pulse.Locked(ctx, "the daemon's state", func() { d.status() }) // takes every lock of the daemon
		}},
		{Name: "connection", Alive: d.loop.Alive},
		{Name: "sockets", Alive: d.shim.Alive},
		{Name: "audit", Alive: d.audit.Alive},
		{Name: "streams", Alive: d.streams.Alive},
	}
	if d.registry != nil {
		parts = append(parts,
			systemd.Part{Name: "devices", Alive: d.registry.Alive},
			systemd.Part{Name: "leases", Alive: d.leases.Alive},
		)
	}
	return parts
}

// during runs f, which waits for the network within bounds of its own, and answers
// for the connection's loop meanwhile.
func (d *daemon) during(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return
		case reply := <-d.loop.Asked():
			close(reply)
		}
	}
}

// tellManager tells the service manager the state. The first that the connection's
// loop comes to is the end of the start, whichever it is: the network is no
// condition.
func (d *daemon) tellManager(s State, detail string) {
	line := string(s)
	if detail != "" {
		line += ": " + detail
	}
	if s == StateStarting || s == StateStopping {
		d.notify.Status(line)
		return
	}
	first := false
	d.once.Do(func() { first = true })
	if !first {
		d.notify.Status(line)
		return
	}
	d.notify.Ready(line)
	close(d.ready)
}
