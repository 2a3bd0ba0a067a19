package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"farhand/stream"
	"farhand/wire"
)

// Caller is who asks for an operation.
type Caller struct {
	Session string // the lease's holder and end
	Holder  string // who is behind the session, opaque
	Owner   string // the machine's owner, opaque
	Name    string // what others are told when the device is busy; may be empty
	Streams bool   // streams were granted
	// Allow refuses what the caller may not do: with HARDWARE_NOT_GRANTED or
	// CAPABILITY_NOT_GRANTED, and before the device is touched. It is asked for
	// the whole device at first and then with the parts that the operation
	// needs, if it has any. nil allows everything.
	Allow func(id, op string, parts []Part) error
}

func (c Caller) allow(id, op string, parts []Part) error {
	if c.Allow == nil {
		return nil
	}
	return c.Allow(id, op, parts)
}

// Dispatcher takes a HARDWARE_OP from name to result.
type Dispatcher struct {
	reg     *Registry
	leases  *Leases
	streams *stream.Hub // nil: operations that open streams fail
}

// NewDispatcher makes a dispatcher; streams may be nil. The lease on a device
// that vanishes ends, and with it, as DEVICE_GONE, the operation that runs.
func NewDispatcher(r *Registry, l *Leases, streams *stream.Hub) *Dispatcher {
	r.OnGone(func(id string) { l.endDevice(id, gone(id)) })
	return &Dispatcher{reg: r, leases: l, streams: streams}
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
	if op.Device == "" || op.Op == "" {
		return wire.HardwareResult{}, trace, wire.Errorf(wire.InvalidArgument, "a device and an operation on it must be named").
			With("hint", `{"device":"gpio:pinctrl-bcm2711","op":"GPIO_GET","args":{"line":17}}; HARDWARE_LIST_REQUEST lists the devices`)
	}
	op.Args = wire.CanonicalArgs(op.Op, op.Args)
	desc, service, err := d.reg.find(ctx, op.Device)
	if err != nil {
		return wire.HardwareResult{}, trace, err
	}
	trace.Device = desc.ID
	if err := c.allow(desc.ID, op.Op, nil); err != nil {
		return wire.HardwareResult{}, trace, err
	}
	var parts []Part
	parted, _ := service.(Parted)
	if parted != nil {
		if parts, err = parted.Parts(ctx, desc, op.Op, op.Args); err != nil {
			return wire.HardwareResult{}, trace, tag(err, desc.ID, op.Op)
		}
		trace.Parts = keys(parts)
		if err := c.allow(desc.ID, op.Op, parts); len(parts) > 0 && err != nil {
			return wire.HardwareResult{}, trace, err
		}
	}
	answer := wire.HardwareResult{Device: desc.ID, Generation: desc.Generation}
	if op.Op == wire.OpRelease {
		had, err := d.leases.Release(ctx, desc.ID, c.Session, trace.Parts...)
		answer.Result = wire.Released{Released: had}
		return answer, trace, err
	}
	if err := d.serves(desc, service, op.Op, &trace); err != nil {
		return wire.HardwareResult{}, trace, err
	}
	r := &Request{Device: desc, Op: op.Op, Args: op.Args, Hold: op.Hold, Caller: c, Trace: &trace, streams: d.streams}
	whole := []Part{{}}
	if parted != nil {
		whole = parts
	}
	answer.Result, err = d.run(ctx, r, service, whole, parted != nil)
	if err != nil {
		return wire.HardwareResult{}, trace, err
	}
	return answer, trace, nil
}

func keys(parts []Part) []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.Key)
	}
	return all
}

// tag adds the device and the operation to an error's details.
func tag(err error, id, op string) error {
	return wire.AsError(err).With("device", id).With("op", Clean(op))
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

// run takes the leases, in one order for everybody so that no two operations
// wait for each other, and runs the operation under them.
func (d *Dispatcher) run(ctx context.Context, r *Request, s Service, parts []Part, parted bool) (any, error) {
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(parts[a].Key, parts[b].Key) })
	leases := make([]*Lease, len(parts))
	var ends []func(bool)
	end := func(hold bool) {
		for _, f := range slices.Backward(ends) {
			f(hold)
		}
		ends = nil
	}
	defer end(false) // also of a service that panics
	holder := Holder{Session: r.Caller.Session, ID: r.Caller.Holder, Name: r.Caller.Name}
	opCtx := ctx
	for n, i := range order {
		if n > 0 && parts[i].Key == parts[order[n-1]].Key { // named twice
			leases[i] = leases[order[n-1]]
			continue
		}
		lease, next, done, err := d.leases.Begin(opCtx, Key{r.Device.ID, parts[i].Key}, r.Op, holder, parts[i].names()...)
		if err != nil {
			return nil, err
		}
		leases[i], opCtx, ends = lease, next, append(ends, done)
	}
	// Getting here may have taken as long as somebody else's operation, and what has
	// the node of a device that was unplugged meanwhile may be another. From now on
	// the leases end with it.
	if !d.reg.still(r.Device) {
		return nil, gone(r.Device.ID)
	}
	if parted {
		r.Parts = leases
	} else {
		r.Lease = leases[0]
	}
	result, err := s.Do(opCtx, r)
	if err != nil && opCtx.Err() != nil {
		err = context.Cause(opCtx) // why it ended says more than how it noticed
	}
	end(r.Hold && err == nil)
	if errors.Is(err, wire.DeviceGone) {
		d.lookAgain(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Op, r.Device.ID, sayPartial(err, r.Trace))
	}
	return result, nil
}

// sayPartial has every failed transfer say how many bytes it moved before it
// failed, those that were cut short from outside too. Errors are shared where
// several operations end for one cause, so that what is added goes to a copy.
func sayPartial(err error, t *Trace) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != wire.HardwareTransferFailed {
		return err
	}
	if _, said := e.Details["bytes_partial"]; said {
		return err
	}
	n := t.BytesOut
	if n == 0 {
		n = t.BytesIn
	}
	own := *e
	own.Details = maps.Clone(e.Details)
	return partial{err, own.With("bytes_partial", n)}
}

// partial is an error with another *wire.Error in front of its chain.
type partial struct {
	error
	own *wire.Error
}

func (p partial) Unwrap() []error { return []error{p.own, p.error} }

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
