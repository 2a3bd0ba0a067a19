package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"

	"farhand/audit"
	"farhand/device"
	"farhand/grant"
	"farhand/shim"
	"farhand/stream"
	"farhand/wire"
)

// caller is on whose behalf a request on a socket comes. The control socket is
// the machine's own, and its streams are its alone.
func caller(c *shim.Call) stream.Owner {
	if c.Session == nil {
		return stream.Owner{}
	}
	by := stream.Owner{Session: c.Session.ID(), Holder: c.Session.Holder(), Owner: c.Session.Owner()}
	if by.Owner != "" && c.Session.Policy().Set.Token == nil {
		by.Holder = by.Owner // the owner's own login, which alone has no ceiling of a token
	}
	return by
}

// streamMethods steer streams, on any socket.
func (d *services) streamMethods() shim.Table {
	return shim.Table{
		wire.TStreamCredit: {Handle: shim.Unary(d.credit)},
		wire.TStreamAttach: {Handle: shim.Unary(d.attach), Quick: true},
		wire.TStreamClose:  {Handle: shim.Unary(d.closeStream), Quick: true},
	}
}

func (d *services) credit(_ context.Context, c *shim.Call, r wire.StreamCredit) (any, error) {
	d.streams.Credit(r, caller(c))
	return nil, nil
}

func (d *services) attach(_ context.Context, c *shim.Call, r wire.StreamAttach) (any, error) {
	answer, flow, err := d.streams.Attach(r, caller(c), c.Outlet())
	if err != nil {
		return nil, err
	}
	c.OnAnswered(flow)
	return answer, nil
}

func (d *services) closeStream(_ context.Context, c *shim.Call, r wire.StreamClose) (any, error) {
	d.streams.CloseStream(r.Stream, caller(c))
	return nil, nil
}

// begin lets the stream of a result, if there is one, flow once that has left,
// and returns its name.
func (d *services) begin(c *shim.Call, result any) string {
	o, ok := result.(interface{ OpenedStream() string })
	if !ok || o.OpenedStream() == "" {
		return ""
	}
	c.OnAnswered(func() { d.streams.Begin(o.OpenedStream(), c.Outlet()) })
	return o.OpenedStream()
}

// streamEnded leaves a record of what went through a stream.
func (d *services) streamEnded(i stream.Info) {
	err := d.audit.Append(audit.Entry{
		SessionID: i.Session, Op: audit.OpStreamEnd, Result: audit.Result{OK: true},
		Details: []audit.Field{
			audit.String("stream", i.ID), audit.String("device", i.Device), audit.String("op", i.Op),
			audit.String("reason", i.Ended), audit.Int("bytes_sent", i.Sent),
		},
	})
	if err != nil {
		d.log.Error("the end of a stream can't be recorded", "stream", i.ID, "error", err)
	}
}

// endForbiddenStreams ends what a changed policy of a session no longer allows.
func (d *services) endForbiddenStreams(session string, p *grant.Policy) {
	d.streams.EndWhere(stream.ReasonGrantRevoked, func(i stream.Info) bool {
		switch {
		case i.Session != session:
			return false
		case i.Device == "":
			return i.Capability != "" && p.Capability(i.Capability) != nil
		}
		return p.Capability(family(i.Device)) != nil || p.Device(i.Device, i.Op) != nil
	})
}

// hotplug follows the registry for the streams of HARDWARE_LIST_REQUEST.
type hotplug struct{ followers sync.WaitGroup }

// Close waits for the followers, whose streams have ended.
func (h *hotplug) Close() error {
	h.followers.Wait()
	return nil
}

// watchHardware opens a stream of what changes after the list that is answered.
func (d *services) watchHardware(c *shim.Call, r wire.HardwareListRequest, sub *device.Subscription, listed []wire.HardwareDevice) (string, error) {
	if !c.Granted().Has(wire.Streams) {
		sub.Close()
		return "", wire.Errorf(wire.CapabilityNotGranted, "watch needs streams, which were not granted here").
			With("capability", string(wire.Streams)).With("required_capability", string(wire.Streams))
	}
	st, err := d.streams.Open(stream.Options{Owner: caller(c), Records: true, Credit: r.Credit, Op: string(c.Type)})
	if err != nil {
		sub.Close()
		return "", err
	}
	w := hardwareWatch{registry: d.registry, st: st, sub: sub, visible: d.visible(c, r.Type), known: make(map[string]wire.HardwareDevice)}
	for _, x := range listed {
		w.known[x.ID] = x
	}
	release := func() {}
	if c.Session != nil {
		release = c.Session.Hold()
	}
	d.hotplug.followers.Go(func() {
		defer release()
		defer sub.Close()
		w.run()
	})
	c.OnAnswered(func() { d.streams.Begin(st.ID(), c.Outlet()) })
	return st.ID(), nil
}

// hardwareWatch copies changes into a stream.
type hardwareWatch struct {
	registry *device.Registry
	st       *stream.Stream
	sub      *device.Subscription
	visible  func(wire.HardwareDevice) bool
	known    map[string]wire.HardwareDevice // what the receiver was told of: a removal can be of it, and an addition not
}

// run copies until the stream ends.
func (w *hardwareWatch) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var ending sync.WaitGroup
	defer ending.Wait()
	defer cancel()
	ending.Go(func() {
		select {
		case <-w.st.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		changes, lost, err := w.sub.Next(ctx)
		if err != nil {
			return
		}
		if lost {
			w.st.Skip(1)
			changes = append(changes, w.missed()...)
		}
		for _, change := range changes {
			if err := w.tell(change); err != nil {
				return
			}
		}
	}
}

// missed is how everything is, for who lost how it came to be so.
func (w *hardwareWatch) missed() []device.Change {
	var changes []device.Change
	present := make(map[string]bool)
	for _, x := range w.registry.List() {
		present[x.ID] = true
		changes = append(changes, device.Change{Device: x})
	}
	for _, id := range slices.Sorted(maps.Keys(w.known)) {
		if !present[id] {
			changes = append(changes, device.Change{Device: w.known[id], Gone: true})
		}
	}
	return changes
}

// tell writes one change, if it is one for the receiver.
func (w *hardwareWatch) tell(c device.Change) error {
	if !w.visible(c.Device) {
		return nil
	}
	e := wire.HardwareEvent{Event: wire.HardwareChanged, Device: c.Device}
	_, known := w.known[c.Device.ID]
	switch {
	case c.Gone && !known:
		return nil
	case c.Gone:
		e.Event = wire.HardwareRemoved
		delete(w.known, c.Device.ID)
	default:
		if !known {
			e.Event = wire.HardwareAdded
		}
		w.known[c.Device.ID] = c.Device
	}
	return w.st.Record(e)
}

// visible decides which devices a caller may see, by the policy of the moment.
func (d *services) visible(c *shim.Call, typ *string) func(wire.HardwareDevice) bool {
	granted := c.Granted()
	return func(x wire.HardwareDevice) bool {
		family, policy := wire.HardwareCapability(x.Type), c.PolicyNow()
		return (typ == nil || x.Type == *typ) && granted.Has(family) && policy.Capability(family) == nil && policy.Device(x.ID, "") == nil
	}
}
