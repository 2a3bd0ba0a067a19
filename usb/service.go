package usb

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"time"

	"farhand/device"
	"farhand/wire"
)

// Limits of the operations.
const (
	MaxTransfer    = 1 << 20 // bytes of one USB_SEND or USB_RECEIVE
	MaxControl     = 4096    // bytes of one control transfer: usbfs takes no more than a page
	MaxWatchSize   = 16384   // bytes of one record of USB_WATCH, which has to fit into a frame
	MaxTimeout     = 25 * time.Second
	MinTimeout     = time.Millisecond
	DefaultTimeout = time.Second     // of USB_RECEIVE
	DefaultSend    = 5 * time.Second // of what sends, and of control transfers
	DefaultSize    = 4096            // bytes of USB_RECEIVE
	DefaultReport  = 64              // bytes of a HID report
)

// Service serves the USB_* operations.
//
// A device is opened by the first operation of a lease that needs it. After an
// operation that doesn't hold its device it stays open for a moment
// (device.LeaseOptions.Linger), with the interfaces that were claimed; other
// sessions may take it in that moment.
type Service struct {
	host  Host
	log   *slog.Logger
	storm damper
}

var _ device.Service = (*Service)(nil)

// NewService makes a service of a host's devices. log may be nil.
func NewService(h Host, log *slog.Logger) *Service {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{host: h, log: log}
}

// Ops are the operations. To receive takes bytes away, but sends nothing.
func (*Service) Ops() map[string]device.Effect {
	return map[string]device.Effect{
		wire.OpUSBDescribe:  device.ReadOnly,
		wire.OpUSBReceive:   device.Mutating,
		wire.OpUSBWatch:     device.Mutating,
		wire.OpUSBControl:   device.Mutating,
		wire.OpUSBSend:      device.Mutating,
		wire.OpUSBHID:       device.Mutating,
		wire.OpUSBReset:     device.Mutating,
		wire.OpUSBConfigure: device.Mutating,
	}
}

// Do runs one of them.
func (s *Service) Do(ctx context.Context, r *device.Request) (any, error) {
	o := &operation{Request: r, ctx: ctx, s: s}
	switch r.Op {
	case wire.OpUSBDescribe:
		return run(o, o.describe)
	case wire.OpUSBControl:
		return run(o, o.control)
	case wire.OpUSBSend:
		return run(o, o.send)
	case wire.OpUSBReceive:
		return run(o, o.receive)
	case wire.OpUSBWatch:
		return run(o, o.watch)
	case wire.OpUSBHID:
		return run(o, o.hid)
	case wire.OpUSBReset:
		return run(o, o.reset)
	case wire.OpUSBConfigure:
		return run(o, o.configure)
	}
	op := device.Clean(r.Op)
	return nil, wire.Errorf(wire.FeatureNotSupported, "no operation %q", op).With("op", op)
}

// operation is one run of one operation.
type operation struct {
	*device.Request
	ctx context.Context
	s   *Service

	claimed []int // interfaces that this operation was the first to need
}

// run decodes the arguments, runs fn and says in an error which device and
// operation it was.
func run[A, R any](o *operation, fn func(A) (R, error)) (any, error) {
	var a A
	if len(o.Args) > 0 {
		if err := decode(o.Args, &a); err != nil {
			return nil, o.fail(device.BadArgs(err, `numbers are written as 129 or "0x81", and data is base64`))
		}
	}
	r, err := fn(a)
	if err != nil {
		return nil, o.fail(err)
	}
	return r, nil
}

// decode is json.Unmarshal, but what decodes itself is asked at once: to check
// all of it before would take longer than that.
func decode(args json.RawMessage, a any) error {
	if u, ok := a.(json.Unmarshaler); ok {
		return u.UnmarshalJSON(args)
	}
	return json.Unmarshal(args, a)
}

// fail undoes what the operation alone had claimed, lets go of a device that
// is of no use any more, and says in the error which one it was.
func (o *operation) fail(err error) error {
	x, _ := o.Lease.State().(*session)
	if x != nil {
		x.unclaim(o.claimed)
	}
	if o.ctx.Err() != nil { // the dispatcher puts the cause in its place
		return err
	}
	e := wire.AsError(err)
	if x != nil && e.Code == wire.DeviceGone {
		_ = x.end(e) // it is gone; there is nothing to lose
		o.Lease.SetState(nil)
	}
	return e.With("device", o.Device.ID).With("op", o.Op)
}

// session is the lease's device, opened if need be.
func (o *operation) session() (*session, error) {
	if x, ok := o.Lease.State().(*session); ok {
		return x, nil
	}
	if err := o.s.storm.wait(o.ctx, o.Device.ID); err != nil {
		return nil, err
	}
	x, err := open(o.s, o.Device)
	if err != nil {
		return nil, err
	}
	o.Lease.SetState(x)
	o.Lease.Linger()
	return x, nil
}

// mayDetach says whether the caller may have kernel drivers detached.
func (o *operation) mayDetach() error {
	if o.Caller.Allow == nil {
		return nil
	}
	return o.Caller.Allow(o.Device.ID, wire.OpUSBDetach, nil)
}

// need claims an interface for the rest of the lease.
func (o *operation) need(x *session, iface int, detach bool) error {
	if detach {
		o.Trace.Effect = device.Mutating // also of what only reads
	}
	fresh, err := x.claim(iface, detach, o.mayDetach)
	if fresh {
		o.claimed = append(o.claimed, iface)
	}
	return err
}

// deadline makes a context that ends after timeout_seconds with errTimeout as
// its cause.
func (o *operation) deadline(seconds *float64, otherwise time.Duration) (context.Context, context.CancelFunc, error) {
	d := otherwise
	if seconds != nil {
		if math.IsNaN(*seconds) || *seconds < MinTimeout.Seconds() || *seconds > MaxTimeout.Seconds() {
			return nil, nil, invalid("timeout_seconds", "must be %g to %g", MinTimeout.Seconds(), MaxTimeout.Seconds())
		}
		d = time.Duration(*seconds * float64(time.Second))
	}
	ctx, cancel := context.WithTimeoutCause(o.ctx, d, errTimeout)
	return ctx, cancel, nil
}

var errTimeout = errors.New("the transfer ran out of time")

func (o *operation) reset(wire.USBReset) (wire.USBResetDone, error) {
	x, err := o.session()
	if err != nil {
		return wire.USBResetDone{}, err
	}
	x.stop(errReset)
	x.unclaimAll()
	if err := x.h.Reset(); err != nil {
		return wire.USBResetDone{}, failed(x.h, err, 0)
	}
	return wire.USBResetDone{Reset: true}, x.refresh()
}

func (o *operation) configure(a wire.USBConfigure) (wire.USBConfigured, error) {
	none := wire.USBConfigured{}
	if a.Configuration < 1 || a.Configuration > 255 {
		return none, invalid("configuration", "must be 1 to 255, not %d", a.Configuration)
	}
	x, err := o.session()
	if err != nil {
		return none, err
	}
	if !x.hasConfiguration(int(a.Configuration)) {
		return none, invalid("configuration", "%d isn't one of the device's", a.Configuration).With("hint", "USB_DESCRIBE lists them")
	}
	x.stop(errReset)
	if a.DetachKernelDriver {
		// Detached and released again: the kernel wants them all free.
		for _, n := range x.interfaces() {
			if err := o.need(x, n, true); err != nil {
				return none, err
			}
		}
	}
	x.dropAll(a.DetachKernelDriver)
	if err := x.h.SetConfiguration(int(a.Configuration)); err != nil {
		x.restore()
		e := wire.AsError(failed(x.h, err, 0))
		if e.Code == wire.HardwareBusy {
			e.With("hint", "drivers of the kernel have interfaces of it: detach_kernel_driver takes them away")
		}
		return none, e
	}
	if err := x.refresh(); err != nil {
		return none, err
	}
	x.attachAll()
	return wire.USBConfigured{Configuration: int(a.Configuration)}, nil
}

var errReset = wire.Errorf(wire.HardwareTransferFailed, "the device was reset or configured anew").With("reason", "reset")

// Host is where the devices are.
func (s *Service) Host() Host { return s.host }
