package usb

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"farhand/stream"
	"farhand/usb/usbfs"
	"farhand/wire"
)

// watchDepth is how many transfers of a watched endpoint are under way at a
// time: what the device may send before one of them is seen to.
const watchDepth = 8

// maxWatches bounds the watches of one device: there are no more than fifteen
// endpoints in one direction.
const maxWatches = 15

// watch is an endpoint whose data goes into a stream.
type watch struct {
	h      Handle
	e      usbfs.Endpoint
	st     *stream.Stream
	ctx    context.Context
	cancel context.CancelCauseFunc
	size   int
	queue  []under // in the order in which they end
	done   chan struct{}
}

// under is a transfer that is under way.
type under struct {
	Transfer
	data []byte
}

func (o *operation) watch(a wire.USBWatch) (wire.USBWatching, error) {
	none := wire.USBWatching{}
	if a.Size < 0 || a.Size > MaxWatchSize {
		return none, invalid("size", "must be 0 to %d, not %d", MaxWatchSize, a.Size)
	}
	x, err := o.session()
	if err != nil {
		return none, err
	}
	f, err := o.endpoint(x, wanted{iface: a.Interface, alternate: a.Alternate, address: a.Endpoint, in: true}, a.DetachKernelDriver)
	if err != nil {
		return none, err
	}
	switch n := x.watching(); {
	case x.watched(f.Address):
		return none, wire.Errorf(wire.HardwareBusy, "endpoint %#02x is being watched", f.Address).
			With("holder", wire.OpUSBWatch).With("hint", "attach to that stream, or close it first")
	case n >= maxWatches:
		return none, wire.Errorf(wire.HardwareBusy, "%d endpoints of the device are being watched", n).With("holder", wire.OpUSBWatch)
	}
	w := &watch{h: x.h, e: f.Endpoint, size: watchSize(a.Size, f.Endpoint), done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(o.Lease.Context())
	for range watchDepth {
		if err := w.submit(make([]byte, w.size)); err != nil {
			w.drop()
			_, err := x.outcome(w.e, 0, err)
			return none, err
		}
	}
	if w.st, err = o.OpenStream(stream.Options{Records: true, Credit: a.Credit}); err != nil {
		w.drop()
		return none, err
	}
	delete(x.rest, f.Address)
	x.add(w)
	release := o.Lease.Keep(w.st.Done())
	go func() {
		defer close(w.done)
		w.run()
		x.remove(w)
		release()
	}()
	return wire.USBWatching{Opened: wire.Opened{Stream: w.st.ID()}, Interface: int(f.Number), Endpoint: int(f.Address)}, nil
}

// watchSize is how much one transfer is for: whole packets.
func watchSize(asked int, e usbfs.Endpoint) int {
	p := max(1, e.MaxPacket)
	if asked == 0 {
		asked = p
		if e.Kind == usbfs.Bulk {
			asked = max(p, 4096)
		}
	}
	return max(p, min((asked+p-1)/p*p, MaxWatchSize/p*p))
}

func (w *watch) submit(data []byte) error {
	t, err := w.h.Submit(w.e.Kind, w.e.Address, data, false)
	if err != nil {
		return err
	}
	w.queue = append(w.queue, under{t, data})
	return nil
}

// drop ends what is under way: the last first, so that none of them takes what
// was meant for one before.
func (w *watch) drop() {
	w.cancel(nil)
	for _, t := range slices.Backward(w.queue) {
		t.Cancel()
	}
	for _, t := range w.queue {
		_, _ = t.Wait(context.Background()) // cancelled: it ends
	}
	w.queue = nil
}

// run fills the stream until it, the lease or the device ends.
func (w *watch) run() {
	var closing sync.WaitGroup
	closing.Go(func() {
		select {
		case <-w.st.Done():
			w.cancel(nil)
		case <-w.ctx.Done():
		}
	})
	err := w.pump()
	w.drop()
	closing.Wait()
	w.st.End(why(err), nil)
}

// pump moves data until that fails.
func (w *watch) pump() error {
	for {
		t := w.queue[0]
		n, err := t.Wait(w.ctx)
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		if n > 0 {
			// It fails only when the stream has ended: then ctx is done, too.
			_ = w.st.Record(wire.USBPacket{Endpoint: int(w.e.Address), Data: t.data[:n], Time: unix(time.Now())})
		}
		w.queue = w.queue[1:]
		if err == nil {
			err = w.submit(t.data)
		}
		if err != nil {
			return failed(w.h, err, n)
		}
	}
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// why is the reason for a stream's end.
func why(err error) string {
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.HardwareTransferFailed {
		if reason, _ := e.Details["reason"].(string); reason != "" {
			return reason // stall, overflow, bus, reset, or the lease's
		}
	}
	return stream.Reason(err)
}

func (x *session) add(w *watch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watches[w.e.Address] = w
}

func (x *session) remove(w *watch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.watches[w.e.Address] == w {
		delete(x.watches, w.e.Address)
	}
}

func (x *session) watched(endpoint byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.watches[endpoint] != nil
}

func (x *session) watching() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.watches)
}

// stop ends every watch for this cause, and waits for it.
func (x *session) stop(cause error) {
	x.mu.Lock()
	var all []*watch
	for _, w := range x.watches {
		all = append(all, w)
	}
	x.mu.Unlock()
	for _, w := range all {
		w.cancel(cause)
	}
	for _, w := range all {
		<-w.done
	}
}
