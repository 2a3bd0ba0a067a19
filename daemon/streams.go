package daemon

import (
	"context"
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
	if d.streams == nil {
		return nil
	}
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

// begin lets the stream of a result flow once that has left.
func (d *services) begin(c *shim.Call, result any) {
	if o, ok := result.(interface{ OpenedStream() string }); ok && o.OpenedStream() != "" {
		c.OnAnswered(func() { d.streams.Begin(o.OpenedStream(), c.Outlet()) })
	}
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
		if i.Session != session || i.Device == "" {
			return false
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

// watchHardware opens a stream of what changes after the answer.
func (d *services) watchHardware(c *shim.Call, r wire.HardwareListRequest, sub *device.Subscription) (string, error) {
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
	visible := d.visible(c, r.Type)
	release := func() {}
	if c.Session != nil {
		release = c.Session.Hold()
	}
	d.hotplug.followers.Go(func() {
		defer release()
		defer sub.Close()
		d.follow(st, sub, visible)
	})
	c.OnAnswered(func() { d.streams.Begin(st.ID(), c.Outlet()) })
	return st.ID(), nil
}

// follow copies changes into a stream until it ends.
func (d *services) follow(st *stream.Stream, sub *device.Subscription, visible func(wire.HardwareDevice) bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	known := make(map[string]bool) // what a removal can be of, and an addition not
	for _, x := range d.registry.List() {
		known[x.ID] = true
	}
	stop := make(chan struct{})
	defer close(stop)
	d.hotplug.followers.Go(func() {
		select {
		case <-st.Done():
			cancel()
		case <-stop:
		}
	})
	for {
		changes, lost, err := sub.Next(ctx)
		if err != nil {
			return
		}
		if lost {
			st.Skip(1)
			for _, x := range d.registry.List() {
				changes = append(changes, device.Change{Device: x})
			}
		}
		for _, change := range changes {
			if !visible(change.Device) {
				continue
			}
			e := wire.HardwareEvent{Event: wire.HardwareChanged, Device: change.Device}
			switch id := change.Device.ID; {
			case change.Gone:
				e.Event = wire.HardwareRemoved
				delete(known, id)
			case !known[id]:
				e.Event = wire.HardwareAdded
				known[id] = true
			}
			if err := st.Record(e); err != nil {
				return
			}
		}
	}
}

// visible decides which devices a caller may see, by the policy of the moment.
func (d *services) visible(c *shim.Call, typ *string) func(wire.HardwareDevice) bool {
	granted := c.Granted()
	return func(x wire.HardwareDevice) bool {
		family, policy := wire.HardwareCapability(x.Type), c.PolicyNow()
		return (typ == nil || x.Type == *typ) && granted.Has(family) && policy.Capability(family) == nil && policy.Device(x.ID, "") == nil
	}
}
