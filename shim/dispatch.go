package shim

import (
	"errors"
	"strings"

	"farhand/grant"
	"farhand/wire"
)

// receive handles one frame that r has read. An error ends the socket.
func (k *socket) receive(frame []byte, r *reader) error {
	e, err := wire.DecodeEnvelope(frame)
	if k.session != nil && e.Type != wire.TGrantsUpdate { // that one is the owner's, not the session's
		k.session.heardNow()
	}
	switch {
	case e.Type == wire.TSessionRevoked: // needs no answer, so no id either
		return revokedBy(e)
	case e.ID == "" || errors.Is(err, wire.ErrNoID):
		k.drop("no usable id", e.Type)
		return nil
	case e.Type == "":
		k.drop("no type", "")
		return nil
	case wire.IsAnswer(e.Type):
		k.drop("not a request", e.Type)
		return nil
	case e.Type == wire.TCancel: // whose id is outstanding, or was
		k.cancelCall(e)
		return nil
	case k.outstanding(e.ID):
		k.drop("id is outstanding", e.Type) // two answers for one id would cost the socket
		return nil
	case err != nil && !answered(e.Type):
		k.drop("malformed", e.Type)
		return nil
	case err != nil:
		return k.refuse(e, wire.Errorf(wire.InternalError, "malformed frame").With("reason", "malformed_frame"))
	}
	if major, _, ok := parseVersion(e.Version); ok && major != 1 {
		k.drop("another protocol version", e.Type, "version", clip(e.Version))
		return nil
	}
	switch e.Type {
	case wire.TPing:
		return k.reply(wire.Message{Type: wire.TPong, ID: e.ID, Version: k.version}, nil)
	case wire.TGrantsUpdate:
		return k.updateGrants(e)
	}
	if m, known := wire.MethodOf(e.Type); known && m.OneWay() {
		k.takeOneWay(e)
		return nil
	}
	return k.request(e, frame, r)
}

// answered says whether messages of this type are answered, if only by ERROR.
func answered(t wire.Type) bool {
	m, known := wire.MethodOf(t)
	return !known || !m.OneWay()
}

// request admits a request or refuses it.
func (k *socket) request(e wire.Envelope, frame []byte, r *reader) error {
	if k.session != nil {
		k.session.touch()
	}
	if k.full() {
		return k.overloaded(e)
	}
	if err := k.permit(e.Type, k.policy.Load()); err != nil {
		return k.refuse(e, err)
	}
	method, ok := k.table[e.Type]
	if !ok {
		return k.refuse(e, notSupported(e.Type))
	}
	c := &Call{ID: e.ID, Type: e.Type, Payload: e.Payload, Data: e.Data, Session: k.session, socket: k, method: method}
	if len(e.Data) > 0 {
		c.frame = frame
	}
	k.start(c, r)
	return nil
}

// permit is the gate: the right socket, a granted capability, no ceiling below it.
func (k *socket) permit(t wire.Type, policy *grant.Policy) error {
	m, known := wire.MethodOf(t)
	switch {
	case !known:
		return notSupported(t)
	case m.Channel&k.kind == 0 && k.kind == wire.Control:
		return notSupported(t)
	case m.Channel&k.kind == 0 || !granted(m.Capability, k.granted):
		e := wire.Errorf(wire.CapabilityNotGranted, "%s needs a capability that was not granted: %s", t, m.Capability).
			With("required_capability", m.Capability).With("capability", m.Capability).
			With("granted_capabilities", k.granted).With("op", string(t))
		// What the configuration leaves out was never offered.
		if m.Capability.Approvable() && m.Capability != wire.HardwareFamily {
			if why, ok := errors.AsType[*wire.Error](policy.Capability(m.Capability)); ok {
				e.With("ceiling", why.Details["ceiling"])
			}
		}
		return e
	}
	if err := permitCapability(m.Capability, k.granted, policy); err != nil {
		return err
	}
	if owned := m.Capability.Owned(); k.session != nil && (owned == wire.Files || owned == wire.Shell) {
		return policy.Root(k.session.Root())
	}
	return nil
}

func granted(need wire.Capability, have wire.Capabilities) bool {
	switch need {
	case "":
		return true
	case wire.HardwareFamily:
		return have.AnyHardware()
	}
	return have.Has(need)
}

// permitCapability asks the ceilings. For hardware it is enough that one family
// is allowed: the handler asks again for the device's own.
func permitCapability(need wire.Capability, have wire.Capabilities, policy *grant.Policy) error {
	need = need.Owned()
	if need != wire.HardwareFamily {
		if !need.Approvable() {
			return nil
		}
		return policy.Capability(need)
	}
	var first error
	for _, c := range have {
		if !c.IsHardware() {
			continue
		}
		err := policy.Capability(c)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func notSupported(t wire.Type) error {
	return wire.Errorf(wire.FeatureNotSupported, "%s is not supported here", clip(string(t))).
		With("op", clip(string(t))).With("feature", clip(string(t)))
}

// clip bounds what a peer's own text adds to an answer.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
