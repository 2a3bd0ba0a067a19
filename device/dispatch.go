package device

import (
	"context"
	"errors"
	"fmt"

	"farhand/wire"
)

// Caller is who asks for an operation.
type Caller struct {
	Session string // the lease's holder and end
	Holder  string // who is behind the session, opaque
	Name    string // what others are told when the device is busy; may be empty
	// Allow refuses what the caller may not do: with CAPABILITY_NOT_GRANTED,
	// and before the device is touched. nil allows everything.
	Allow func(id, op string) error
}

// Dispatcher takes a HARDWARE_OP from name to result.
type Dispatcher struct {
	reg    *Registry
	leases *Leases
}

// NewDispatcher makes a dispatcher. The lease on a device that vanishes ends,
// and with it, as DEVICE_GONE, the operation that runs.
func NewDispatcher(r *Registry, l *Leases) *Dispatcher {
	r.OnGone(func(id string) { l.endDevice(id, gone(id)) })
	return &Dispatcher{reg: r, leases: l}
}

func gone(id string) error {
	return wire.Errorf(wire.DeviceGone, "%s was unplugged", id).With("device", id)
}

// CanonicalID is the id of the device with this name, for ordering and records:
// the name itself if it can't be resolved.
func (d *Dispatcher) CanonicalID(name string) string {
	desc, err := d.reg.Resolve(name)
	if err != nil {
		return Clean(name)
	}
	return desc.ID
}

// Effect is what an operation on a device of this name would do to the world:
// Mutating if that can't be known.
func (d *Dispatcher) Effect(name, op string) Effect {
	_, service, err := d.reg.resolve(name)
	if err != nil || service == nil {
		return Mutating
	}
	if e, ok := service.Ops()[op]; ok {
		return e
	}
	return Mutating
}

// Do runs one operation. The trace is filled as far as it came, also on
// failure. A device is the caller's for the operation; with op.Hold, and if it
// succeeds, until RELEASE, the end of the session or idleness.
func (d *Dispatcher) Do(ctx context.Context, c Caller, op wire.HardwareOp) (wire.HardwareResult, Trace, error) {
	trace := Trace{Op: op.Op, Effect: Mutating}
	desc, service, err := d.reg.find(ctx, op.Device)
	if err != nil {
		return wire.HardwareResult{}, trace, err
	}
	trace.Device = desc.ID
	if c.Allow != nil {
		if err := c.Allow(desc.ID, op.Op); err != nil {
			return wire.HardwareResult{}, trace, err
		}
	}
	answer := wire.HardwareResult{Device: desc.ID, Generation: desc.Generation}
	if op.Op == wire.OpRelease {
		had, err := d.leases.Release(ctx, desc.ID, c.Session)
		answer.Result = wire.Released{Released: had}
		return answer, trace, err
	}
	if err := d.serves(desc, service, op.Op, &trace); err != nil {
		return wire.HardwareResult{}, trace, err
	}
	answer.Result, err = d.run(ctx, c, desc, service, op, &trace)
	if err != nil {
		return wire.HardwareResult{}, trace, err
	}
	return answer, trace, nil
}

// serves says whether there is such an operation on this device.
func (d *Dispatcher) serves(desc Descriptor, s Service, op string, trace *Trace) error {
	feature := string(wire.HardwareCapability(desc.Type))
	if s == nil {
		return wire.Errorf(wire.FeatureNotSupported, "%s: %s", desc.ID, NoDriverYet).
			With("op", Clean(op)).With("feature", feature).With("device", desc.ID)
	}
	effect, ok := s.Ops()[op]
	if !ok {
		return wire.Errorf(wire.FeatureNotSupported, "a %s device has no operation %q", desc.Type, Clean(op)).
			With("op", Clean(op)).With("feature", feature).With("device", desc.ID)
	}
	trace.Effect = effect
	if !desc.Available {
		return wire.Errorf(wire.HardwareOpenFailed, "%s is not available: %s", desc.ID, desc.Reason).
			With("device", desc.ID).With("op", op).With("reason", desc.Reason)
	}
	return nil
}

func (d *Dispatcher) run(ctx context.Context, c Caller, desc Descriptor, s Service, op wire.HardwareOp, trace *Trace) (any, error) {
	lease, opCtx, end, err := d.leases.Begin(ctx, desc.ID, op.Op, Holder{Session: c.Session, ID: c.Holder, Name: c.Name})
	if err != nil {
		return nil, err
	}
	result, err := s.Do(opCtx, desc, lease, op.Op, op.Args, trace)
	if err != nil && opCtx.Err() != nil {
		err = context.Cause(opCtx) // why it ended says more than how it noticed
	}
	end(op.Hold && err == nil)
	if errors.Is(err, wire.DeviceGone) {
		d.lookAgain(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", op.Op, desc.ID, err)
	}
	return result, nil
}

// lookAgain is for a device that an operation found gone.
func (d *Dispatcher) lookAgain(ctx context.Context) {
	if d.reg.following() {
		d.reg.Changed()
		return
	}
	// The caller may have given up; what the next one sees must be right anyway.
	// The only error is a context's, and this one has none.
	_ = d.reg.Refresh(context.WithoutCancel(ctx))
}

// Leases is the set that the dispatcher takes its leases from.
func (d *Dispatcher) Leases() *Leases { return d.leases }

// Registry is where the dispatcher finds its devices.
func (d *Dispatcher) Registry() *Registry { return d.reg }
