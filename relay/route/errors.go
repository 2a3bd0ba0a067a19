package route

import (
	"time"

	"farhand/wire"
)

// unreachable is told of a machine that isn't connected: which one it is, and when it
// last was.
func (m *machine) unreachable() *wire.Error {
	e := m.about(wire.Errorf(wire.MachineUnreachable, "%s is not connected", m.called()))
	if m != nil && !m.up.Load() {
		if at := m.heard.Load(); at != 0 {
			e = e.With("last_seen", time.UnixMilli(at).UTC().Format(time.RFC3339))
		}
	}
	return e
}

// called is how people call the machine.
func (m *machine) called() string {
	if m == nil {
		return "the machine"
	}
	if name := m.name.Load(); name != nil && *name != "" {
		return *name
	}
	return cut(m.key.id, wire.MaxMachineID)
}

// about has an error say which machine it is about; nil stays nil.
func (m *machine) about(e *wire.Error) *wire.Error {
	if m == nil || e == nil {
		return e
	}
	return e.With("machine", m.called()).With("machine_id", m.key.id)
}

// tooMany refuses an operator's request beyond those that may be unanswered.
func tooMany() *wire.Error {
	return wire.Errorf(wire.ShimOverloaded, "more than %d requests of this connection are unanswered", maxOutstanding).
		With("max_concurrent", maxOutstanding)
}

// unsendable refuses what is no request that operators may send.
func unsendable(t wire.Type) *wire.Error {
	name := cut(string(t), 64)
	return wire.Errorf(wire.FeatureNotSupported, "%s can't be sent here", name).With("feature", name).With("op", name)
}

func (m *machine) overloaded(window int) *wire.Error {
	e := m.about(wire.Errorf(wire.ShimOverloaded, "%s had no room for another request for too long", m.called()))
	if window > 0 {
		e = e.With("max_concurrent", window)
	}
	return e.With("queued", maxQueued)
}

// unanswered is what the sender of a request is told that went out and got no
// answer: after is the time waited, zero if the link was lost.
func (m *machine) unanswered(method wire.Method, after time.Duration) *wire.Error {
	how := "the link to " + m.called() + " was lost"
	if after > 0 {
		how = "no answer of " + m.called() + " came in " + after.String()
	}
	e := wire.Errorf(wire.OpUnconfirmed, "%s: %s; it may have happened: look before repeating it", method.Request, how)
	if method.Repeatable {
		e = wire.Errorf(wire.RequestTimeout, "%s: %s; it is safe to repeat", method.Request, how)
	}
	return m.about(e.With("op", method.Request))
}

// notOffered says that the device itself doesn't offer what a method needs: the first of
// the four ceilings. The device answers with the same code on its own. What no
// ceiling names it just can't do.
func (m *machine) notOffered(method wire.Method) *wire.Error {
	c := method.Capability
	if c != wire.HardwareFamily && !c.Approvable() {
		return m.about(wire.Errorf(wire.FeatureNotSupported, "%s doesn't offer %s", m.called(), c).
			With("feature", method.Request).With("op", method.Request))
	}
	return m.about(wire.Errorf(wire.CapabilityNotGranted, "%s doesn't offer %s", m.called(), c).
		With("op", method.Request).With("capability", c).With("required_capability", c).With("ceiling", ceilingConfig))
}
