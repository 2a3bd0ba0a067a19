package route

import (
	"time"

	"farhand/wire"
)

func unreachable() *wire.Error {
	return wire.Errorf(wire.MachineUnreachable, "the machine is not connected")
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

func overloaded(window int) *wire.Error {
	e := wire.Errorf(wire.ShimOverloaded, "the machine had no room for another request for too long")
	if window > 0 {
		e = e.With("max_concurrent", window)
	}
	return e.With("queued", maxQueued)
}

// unanswered is what the sender of a request is told that went out and got no
// answer: after is the time waited, zero if the link was lost.
func unanswered(m wire.Method, after time.Duration) *wire.Error {
	how := "the link was lost"
	if after > 0 {
		how = "no answer came in " + after.String()
	}
	if m.Repeatable {
		return wire.Errorf(wire.RequestTimeout, "%s: %s; it is safe to repeat", m.Request, how).With("op", m.Request)
	}
	return wire.Errorf(wire.OpUnconfirmed, "%s: %s; it may have happened: look before repeating it", m.Request, how).
		With("op", m.Request)
}

// notOffered says that the device itself doesn't offer what m needs: the first of
// the four ceilings. The device answers with the same code on its own. What no
// ceiling names it just can't do.
func notOffered(m wire.Method) *wire.Error {
	if m.Capability != wire.HardwareFamily && !m.Capability.Approvable() {
		return wire.Errorf(wire.FeatureNotSupported, "the machine doesn't offer %s", m.Capability).
			With("feature", m.Request).With("op", m.Request)
	}
	return wire.Errorf(wire.CapabilityNotGranted, "the machine doesn't offer %s", m.Capability).
		With("op", m.Request).With("capability", m.Capability).With("required_capability", m.Capability).With("ceiling", ceilingConfig)
}
