package device

import (
	"context"
	"errors"
	"time"

	"farhand/device/uevent"
)

const (
	// One plug makes a burst of a dozen events within some tens of
	// milliseconds; after quiet of so long the devices are read again, and
	// never later than most after the first.
	quiet = 250 * time.Millisecond
	most  = time.Second

	// udev sets a node's group after the kernel's event, and a slow disk can
	// make that late: so long after a reading there is one more.
	afterthought = 2 * time.Second

	// A driver that doesn't heed the end of its time for probing gets as much again.
	probeOverdue = 2 * probeTimeout
)

// Alive returns nil once Follow's loop has shown that it goes round: it waits for
// changes, or it reads the devices and isn't late. The error says that it didn't
// until ctx ended.
func (r *Registry) Alive(ctx context.Context) error { return r.loops.Alive(ctx) }

// Changed asks for a new reading soon; Follow does it. It never blocks.
func (r *Registry) Changed() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Follow reads the devices and reads them again, debounced, at every change
// that the kernel or Changed reports, until ctx is done, whose error it
// answers. Where the kernel's events can't be had (no netlink in the sandbox),
// what Changed says is still followed, and a name that isn't found is looked
// for anew.
func (r *Registry) Follow(ctx context.Context) error {
	if err := r.read(ctx); err != nil {
		return err
	}
	events, err := uevent.Listen()
	if err != nil {
		r.opts.Log.Warn("the kernel's device events can't be followed; devices are looked for on request", "err", err)
		return r.loop(ctx)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.listen(ctx, events)
	}()
	defer func() {
		events.Close()
		<-done
	}()
	r.count(+1)
	defer r.count(-1)
	return r.loop(ctx)
}

func (r *Registry) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follows += n
}

// listen turns the kernel's events into Changed until the listener is closed.
func (r *Registry) listen(ctx context.Context, events *uevent.Listener) {
	for {
		e, err := events.Next(ctx)
		switch {
		case errors.Is(err, uevent.ErrLost): // too many at once: look at everything
			r.Changed()
		case err != nil:
			if ctx.Err() == nil && !errors.Is(err, uevent.ErrClosed) {
				r.opts.Log.Warn("following the kernel's device events has ended", "err", err)
			}
			return
		case relevant(e.Subsystem):
			r.Changed()
		}
	}
}

// relevant says whether a change in this subsystem can be one of ours.
func relevant(subsystem string) bool {
	switch subsystem {
	case "tty", "usb", "usb-serial", "usbmisc", "gpio", "i2c", "i2c-dev", "spi", "spidev":
		return true
	}
	return false
}

// loop reads again after each burst of kicks, and once more a little later.
func (r *Registry) loop(ctx context.Context) error {
	again := time.NewTimer(afterthought)
	again.Stop()
	defer again.Stop()
	for {
		kicked := false
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case reply := <-r.loops.Asked():
			close(reply)
			continue
		case <-again.C:
		case <-r.kick:
			if err := r.settle(ctx); err != nil {
				return err
			}
			kicked = true
		}
		if err := r.read(ctx); err != nil {
			return err
		}
		if kicked {
			again.Reset(afterthought)
		} else if d := r.calms(time.Now()); d > 0 {
			again.Reset(d) // to say that it is over
		}
	}
}

// read is the loop's Refresh.
func (r *Registry) read(ctx context.Context) error {
	defer r.loops.Busy(probeOverdue)()
	return r.Refresh(ctx)
}

// settle waits until the burst is over.
func (r *Registry) settle(ctx context.Context) error {
	pause, longest := r.pace(time.Now())
	latest := time.NewTimer(longest)
	defer latest.Stop()
	calm := time.NewTimer(pause)
	defer calm.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case reply := <-r.loops.Asked():
			close(reply)
		case <-latest.C:
			return nil
		case <-calm.C:
			return nil
		case <-r.kick:
			calm.Reset(pause)
		}
	}
}
