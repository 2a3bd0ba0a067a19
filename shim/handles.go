package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"farhand/wire"
)

// Hardware is what handles are made of: HARDWARE_OP, and the leases that a
// session keeps by it. Its methods are safe for concurrent use.
type Hardware interface {
	// Do runs one operation for a call as HARDWARE_OP does: under the ceilings,
	// recorded, and with DEVICE_GONE for what was unplugged. It does nothing if ctx
	// has ended already.
	Do(ctx context.Context, c *Call, op wire.HardwareOp) (wire.HardwareResult, error)
	// CanonicalID is the id of the device with this name; the name itself if there
	// is none. It must be quick.
	CanonicalID(name string) string
	// Find is the id of the first device, by id, that the call may see and match
	// chooses. It must be quick.
	Find(c *Call, match func(wire.HardwareDevice) bool) (id string, ok bool)
	// Held is the context of the lease that the session keeps on a device, or on
	// the part of it that has this name; nil if there is none. It ends with the
	// lease, and its cause says why.
	Held(device, part string) context.Context
	// Release ends that lease and waits until it is gone, or for ctx.
	Release(ctx context.Context, device, part string) error
}

const (
	// handlePatience bounds waiting for a device to be given back.
	handlePatience = 2 * time.Second
	// handleWait and handleTick, in seconds, are the longest and the shortest time
	// that a transfer by handle may take. The platform waits 30 s for an answer.
	handleWait = 25
	handleTick = 0.001
	// handleUSBTime is for how many seconds a USB_TRANSFER that says nothing tries.
	handleUSBTime = 5
)

// Handles are the open handles of one session: SERIAL_OPEN and what follows, for
// platforms that don't speak HARDWARE_OP. A handle is a lease under another
// name. Each message becomes the operations that it stands for, and what they
// answer becomes the message's answer; nothing is decided here that HARDWARE_OP
// wouldn't decide the same way.
//
// Handles end with the socket on which they were opened, and their devices are
// given back before the next one is dialled.
type Handles struct {
	hw     Hardware
	forget func()

	mu  sync.Mutex
	all []*handle // also those that are being opened
}

// handle is one of them. What Handles.mu doesn't guard is set before it is told
// to anybody.
type handle struct {
	class        *handleClass
	device, part string
	id           string          // guarded; empty while it is being opened
	lease        context.Context // guarded, as id

	timeout *float64       // serial: of a read, seconds
	iface   wire.USBNumber // usb
	detach  bool           // usb
}

// handleClass is a class of devices as the family divides them.
type handleClass struct {
	prefix string
	stale  wire.Code
	opener wire.Type
}

var (
	serialHandles = &handleClass{"ser_", wire.SerialStale, wire.TSerialOpen}
	usbHandles    = &handleClass{"usb_", wire.USBStale, wire.TUSBOpen}
	gpioHandles   = &handleClass{"gpio_", wire.GPIOStale, wire.TGPIOConfigure}
)

// NewHandles makes the handles of a session: none. Close it with the session's
// services.
func NewHandles(s *Session, hw Hardware) *Handles {
	t := &Handles{hw: hw}
	t.forget = s.OnDetach(t.wipe)
	return t
}

// Close gives back what is open.
func (t *Handles) Close() error {
	t.forget()
	t.wipe()
	return nil
}

// Methods is what the family serves.
func (t *Handles) Methods() Table {
	byHandle := func(f func(context.Context, *Call) (any, error)) Method {
		return Method{Handle: f, Lane: t.laneOfHandle, Quick: true}
	}
	return Table{
		wire.TSerialOpen:  {Handle: Unary(t.serialOpen), Lane: t.laneOf("port")},
		wire.TSerialWrite: byHandle(Unary(t.serialWrite)),
		wire.TSerialRead:  byHandle(Unary(t.serialRead)),
		wire.TSerialClose: byHandle(Unary(t.serialClose)),

		wire.TUSBOpen:     {Handle: Unary(t.usbOpen), Lane: t.laneOfUSB},
		wire.TUSBTransfer: byHandle(Unary(t.usbTransfer)),
		wire.TUSBClose:    byHandle(Unary(t.usbClose)),

		wire.TGPIOConfigure: {Handle: Unary(t.gpioConfigure), Lane: t.laneOf("chip")},
		wire.TGPIOWrite:     byHandle(Unary(t.gpioWrite)),
		wire.TGPIORead:      byHandle(Unary(t.gpioRead)),
		wire.TGPIOClose:     byHandle(Unary(t.gpioClose)),
	}
}

// Serial ports.

// serialOpen sets the port's mode, which opens it.
func (t *Handles) serialOpen(_ context.Context, c *Call, r wire.SerialOpen) (any, error) {
	h := &handle{class: serialHandles, device: r.Port, timeout: r.TimeoutSeconds}
	if s := r.TimeoutSeconds; s != nil && *s < 0 {
		return nil, invalidField("timeout_seconds", "must not be negative")
	}
	id, err := t.open(c, h, wire.OpSerialControl, wire.SerialControl{Mode: &wire.SerialMode{
		Baudrate: r.Baudrate, Bytesize: r.Bytesize, Parity: r.Parity, Stopbits: r.Stopbits,
		RTSCTS: r.RTSCTS, DSRDTR: r.DSRDTR, XONXOFF: r.XONXOFF,
	}}, nil)
	if err != nil {
		return nil, err
	}
	return wire.SerialOpenResponse{Handle: id}, nil
}

func (t *Handles) serialWrite(ctx context.Context, c *Call, r wire.SerialHandleWrite) (any, error) {
	h, err := t.find(c, serialHandles, r.Handle)
	if err != nil {
		return nil, err
	}
	most := float64(handleWait)
	done, err := use[wire.SerialWritten](ctx, t, c, h, wire.OpSerialWrite, wire.SerialWrite{Data: r.Data, Drain: r.Drain, TimeoutSeconds: &most})
	if err != nil {
		return nil, err
	}
	return wire.Ack{OK: true, BytesWritten: &done.BytesWritten}, nil
}

func (t *Handles) serialRead(ctx context.Context, c *Call, r wire.SerialHandleRead) (any, error) {
	h, err := t.find(c, serialHandles, r.Handle)
	if err != nil {
		return nil, err
	}
	wait := r.TimeoutSeconds
	if wait == nil {
		wait = h.timeout
	}
	if wait == nil || *wait > handleWait {
		wait = new(float64(handleWait))
	}
	data, err := use[wire.SerialData](ctx, t, c, h, wire.OpSerialRead, wire.SerialRead{Size: r.Size, Until: r.Until, TimeoutSeconds: wait})
	if err != nil {
		return nil, err
	}
	return wire.SerialReadResponse{Data: data.Data, TimedOut: data.TimedOut, InWaiting: data.InWaiting}, nil
}

func (t *Handles) serialClose(ctx context.Context, c *Call, r wire.Handle) (any, error) {
	return t.close(ctx, c, serialHandles, r.Handle, nil)
}

// USB devices.

// usbOpen looks at the device and keeps it. The interface is claimed by the
// first transfer.
func (t *Handles) usbOpen(_ context.Context, c *Call, r wire.USBOpen) (any, error) {
	h := &handle{class: usbHandles, device: t.usbDevice(c, r), iface: r.Interface, detach: r.DetachKernelDriver}
	id, err := t.open(c, h, wire.OpUSBDescribe, wire.USBDescribe{}, func(result any) error {
		d, err := resultAs[wire.USBDescription](result)
		if err != nil {
			return err
		}
		return usableInterface(d, h)
	})
	if err != nil {
		return nil, err
	}
	return wire.USBOpenResponse{Handle: id}, nil
}

// usbDevice is the first device that is meant, or what would be its name.
func (t *Handles) usbDevice(c *Call, r wire.USBOpen) string {
	id, ok := t.hw.Find(c, func(d wire.HardwareDevice) bool {
		return d.Type == "usb" && d.VID == string(r.VID) && d.PID == string(r.PID) && (r.SerialNumber == nil || d.SerialNumber == *r.SerialNumber)
	})
	if ok {
		return id
	}
	name := "usb:" + string(r.VID) + ":" + string(r.PID)
	if r.SerialNumber != nil {
		name += "-" + *r.SerialNumber
	}
	return name
}

// usableInterface says whether transfers through the handle have a chance.
func usableInterface(d wire.USBDescription, h *handle) error {
	for _, conf := range d.Configurations {
		if conf.Value != d.ActiveConfiguration {
			continue
		}
		known := false
		for _, i := range conf.Interfaces {
			if i.Number != int(h.iface) {
				continue
			}
			known = true
			if i.Driver != "" && (!h.detach || i.Driver == "usbfs") {
				return wire.Errorf(wire.HardwareBusy, "interface %d of %s is in use by %s", h.iface, h.device, i.Driver).
					With("device", h.device).With("interface", int(h.iface)).With("holder", i.Driver).With("consumer", i.Driver).
					With("hint", "detach_kernel_driver takes it away from a driver of the kernel, if USB_DETACH is granted; another program (usbfs) has to let go first")
			}
		}
		if known {
			return nil
		}
	}
	return invalidField("interface", "%d is none of the device's", h.iface).With("device", h.device).With("hint", "the first is 0")
}

func (t *Handles) usbTransfer(ctx context.Context, c *Call, r wire.USBTransfer) (any, error) {
	h, err := t.find(c, usbHandles, r.Handle)
	if err != nil {
		return nil, err
	}
	wait := float64(handleUSBTime)
	if r.TimeoutSeconds != nil {
		wait = min(max(*r.TimeoutSeconds, handleTick), handleWait)
	}
	if r.Endpoint == 0 { // which HARDWARE_OP takes for the only one there is
		return nil, invalidField("endpoint", "must be 1 to 15, or 0x81 to 0x8f: control transfers are for HARDWARE_OP")
	}
	var op string
	var args any
	switch r.Direction {
	case wire.USBOut:
		op, args = wire.OpUSBSend, wire.USBSend{Interface: &h.iface, Endpoint: r.Endpoint, Data: r.Data, TimeoutSeconds: &wait, DetachKernelDriver: h.detach}
	case wire.USBIn:
		op, args = wire.OpUSBReceive, wire.USBReceive{Interface: &h.iface, Endpoint: r.Endpoint, Size: r.Size, TimeoutSeconds: &wait, DetachKernelDriver: h.detach}
	default:
		return nil, invalidField("direction", "must be in or out")
	}
	done, err := use[wire.USBTransferred](ctx, t, c, h, op, args)
	if err != nil {
		return nil, err
	}
	return wire.USBTransferResponse{Data: done.Data, BytesTransferred: done.BytesTransferred, TimedOut: done.TimedOut}, nil
}

func (t *Handles) usbClose(ctx context.Context, c *Call, r wire.Handle) (any, error) {
	return t.close(ctx, c, usbHandles, r.Handle, nil)
}

// GPIO lines.

// gpioLine is how operations name the line of a handle.
type gpioLine struct {
	Line string `json:"line"`
}

func (t *Handles) gpioConfigure(_ context.Context, c *Call, r wire.GPIOHandleConfigure) (any, error) {
	if r.Line < 0 {
		return nil, invalidField("line", "must not be negative")
	}
	h := &handle{class: gpioHandles, device: r.Chip, part: strconv.Itoa(r.Line)}
	args := wire.GPIOConfigure{
		GPIOSelect: wire.GPIOSelect{Line: wire.GPIOLine(h.part)},
		Direction:  r.Direction, InitialValue: r.InitialValue, Pull: r.Pull, ActiveLow: r.ActiveLow,
	}
	if args.ActiveLow == nil { // or it would be what an earlier session has left
		args.ActiveLow = new(false)
	}
	if r.Direction == "out" {
		args.Pull = ""
	} else {
		args.InitialValue = nil
	}
	id, err := t.open(c, h, wire.OpGPIOConfigure, args, func(result any) error {
		set, err := resultAs[wire.GPIOConfigured](result)
		if err == nil && len(set.Lines) == 1 {
			t.rename(h, h.device, strconv.Itoa(set.Lines[0].Line))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return wire.Ack{OK: true, Handle: id}, nil
}

func (t *Handles) gpioWrite(ctx context.Context, c *Call, r wire.GPIOHandleWrite) (any, error) {
	h, err := t.find(c, gpioHandles, r.Handle)
	if err != nil {
		return nil, err
	}
	if r.Value == nil {
		return nil, invalidField("value", "must be 0 or 1")
	}
	_, err = use[wire.GPIOValues](ctx, t, c, h, wire.OpGPIOSet, wire.GPIOSet{GPIOSelect: wire.GPIOSelect{Line: wire.GPIOLine(h.part)}, Value: r.Value})
	return nil, err
}

func (t *Handles) gpioRead(ctx context.Context, c *Call, r wire.Handle) (any, error) {
	h, err := t.find(c, gpioHandles, r.Handle)
	if err != nil {
		return nil, err
	}
	v, err := use[wire.GPIOValues](ctx, t, c, h, wire.OpGPIOGet, gpioLine{h.part})
	if err != nil {
		return nil, err
	}
	if v.Value == nil {
		return nil, wire.Errorf(wire.InternalError, "line %s of %s was read and has no level", h.part, h.device)
	}
	return wire.GPIOReadResponse{Value: *v.Value}, nil
}

func (t *Handles) gpioClose(ctx context.Context, c *Call, r wire.Handle) (any, error) {
	return t.close(ctx, c, gpioHandles, r.Handle, func(h *handle) any { return gpioLine{h.part} })
}

// What they have in common.

// open makes a handle of an operation that keeps its device. check looks at the
// operation's result, once h has the device's id; if it refuses, the device is
// given back.
func (t *Handles) open(c *Call, h *handle, op string, args any, check func(result any) error) (string, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", op, err)
	}
	name := h.device
	h.device = t.hw.CanonicalID(name)
	if err := t.reserve(h); err != nil {
		return "", err
	}
	opened := false
	defer func() { // also if it panics
		if !opened {
			t.giveBack(h) // an operation that failed may have kept it all the same
			t.drop(h)
		}
	}()
	r, err := t.hw.Do(c.ctx, c, wire.HardwareOp{Device: name, Op: op, Args: raw, Hold: true})
	if err != nil {
		return "", err
	}
	t.rename(h, r.Device, h.part)
	if check != nil {
		if err := check(r.Result); err != nil {
			return "", err
		}
	}
	if err := t.register(c, h); err != nil {
		return "", err
	}
	opened = true
	return h.id, nil
}

// reserve makes room for a handle, and refuses a second one of the same thing.
func (t *Handles) reserve(h *handle) error {
	held := t.hw.Held(h.device, h.part)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(o *handle) bool { return o.lease != nil && o.lease.Err() != nil })
	open := slices.ContainsFunc(t.all, func(o *handle) bool { return o.device == h.device && o.part == h.part })
	switch {
	case open:
		return h.busy("close its handle first")
	case held != nil && held.Err() == nil:
		return h.busy("HARDWARE_OP has taken it: RELEASE gives it back")
	case len(t.all) >= wire.MaxHandles:
		return wire.Errorf(wire.HardwareOpenFailed, "this session has %d handles open, which is all that it may have", len(t.all)).
			With("reason", "too_many_handles").With("max_handles", wire.MaxHandles).With("hint", "close some of them")
	}
	t.all = append(t.all, h)
	return nil
}

func (h *handle) busy(hint string) error {
	e := wire.Errorf(wire.HardwareBusy, "%s is open in this session already", h.name()).
		With("device", h.device).With("holder", "this session").With("hint", hint)
	if h.part != "" {
		e.With("part", h.part)
	}
	return e
}

func (h *handle) name() string {
	if h.part == "" {
		return h.device
	}
	return "line " + h.part + " of " + h.device
}

// rename is for what the operation that opened it calls by another name: a device
// that was plugged in meanwhile, a line.
func (t *Handles) rename(h *handle, device, part string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.device, h.part = device, part
}

// register gives a handle its id, unless nobody is left to be told.
func (t *Handles) register(c *Call, h *handle) error {
	lease := t.hw.Held(h.device, h.part)
	if lease == nil || lease.Err() != nil {
		return wire.Errorf(wire.HardwareOpenFailed, "%s was taken away as soon as it was open", h.name()).
			With("device", h.device).With("reason", "taken_away").With("hint", "try again")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.ctx.Err() != nil { // wipe has been here, or comes without finding it
		return context.Cause(c.ctx)
	}
	h.id, h.lease = h.class.prefix+uuid.NewString(), lease
	return nil
}

// find is the handle with this id, if it is good for anything.
func (t *Handles) find(c *Call, class *handleClass, id string) (*handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.index(id)
	if i < 0 || t.all[i].class != class {
		return nil, stale(c, class, id, "there is no such handle; it was closed, or belongs to an earlier connection")
	}
	h := t.all[i]
	if h.lease.Err() == nil {
		return h, nil
	}
	t.all = slices.Delete(t.all, i, i+1)
	e := stale(c, class, id, "the handle is no longer valid").With("device", h.device)
	cause := context.Cause(h.lease)
	if reason, ok := wire.AsError(cause).Details["reason"].(string); ok {
		e.Message += ": " + cause.Error()
		return nil, e.With("reason", reason)
	}
	if errors.Is(cause, wire.DeviceGone) {
		e.Message += ": the device was unplugged"
		return nil, e.With("reason", "device_gone")
	}
	return nil, e
}

// index is where in t.all a handle is, or -1. It is called with mu.
func (t *Handles) index(id string) int {
	return slices.IndexFunc(t.all, func(h *handle) bool { return h.id != "" && h.id == id })
}

func stale(c *Call, class *handleClass, id, why string) *wire.Error {
	return wire.Errorf(class.stale, "%s", why).
		With("handle", clip(id)).With("op", string(c.Type)).With("hint", string(class.opener)+" makes a new one")
}

// use runs an operation under the lease of a handle, and never under another: it
// doesn't begin if the lease has ended. The handle ends with a device that is
// found gone.
func use[R any](ctx context.Context, t *Handles, c *Call, h *handle, op string, args any) (R, error) {
	var none R
	raw, err := json.Marshal(args)
	if err != nil {
		return none, fmt.Errorf("encode %s: %w", op, err)
	}
	under, cancel := context.WithCancelCause(h.lease)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	r, err := t.hw.Do(under, c, wire.HardwareOp{Device: h.device, Op: op, Args: raw})
	if errors.Is(err, wire.HardwareNotFound) { // the list knew before the lease did
		err = wire.Errorf(wire.DeviceGone, "%s was unplugged", h.device).With("device", h.device).With("op", op)
	}
	if errors.Is(err, wire.DeviceGone) {
		t.giveBack(h)
		t.drop(h)
	}
	if err != nil {
		return none, err
	}
	return resultAs[R](r.Result)
}

// resultAs is the result of an operation as its family types it.
func resultAs[R any](result any) (R, error) {
	v, ok := result.(R)
	if !ok {
		return v, wire.Errorf(wire.InternalError, "an operation's result is a %T instead of a %T", result, v)
	}
	return v, nil
}

// close gives back what a handle stands for. args are those of RELEASE.
func (t *Handles) close(ctx context.Context, c *Call, class *handleClass, id string, args func(*handle) any) (any, error) {
	h, err := t.find(c, class, id)
	if err != nil {
		return nil, err
	}
	release := wire.HardwareOp{Device: h.device, Op: wire.OpRelease}
	if args != nil {
		if release.Args, err = json.Marshal(args(h)); err != nil {
			return nil, fmt.Errorf("encode %s: %w", wire.OpRelease, err)
		}
	}
	if _, err = t.hw.Do(ctx, c, release); err != nil && h.lease.Err() == nil {
		return nil, err // it is still open, and can be closed again
	}
	t.drop(h)
	return nil, nil
}

// drop forgets a handle.
func (t *Handles) drop(h *handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(o *handle) bool { return o == h })
}

// giveBack ends the lease of a handle, if it has one.
func (t *Handles) giveBack(h *handle) {
	ctx, cancel := context.WithTimeout(context.Background(), handlePatience)
	defer cancel()
	t.release(ctx, h)
}

func (t *Handles) release(ctx context.Context, h *handle) {
	if lease := t.hw.Held(h.device, h.part); lease == nil || h.lease != nil && h.lease.Err() != nil {
		return // it is gone, or what is held is another's
	}
	_ = t.hw.Release(ctx, h.device, h.part) // that it takes longer; its end has begun
}

// wipe gives back what is open, all of it. What is being opened sees to itself.
func (t *Handles) wipe() {
	t.mu.Lock()
	var open []*handle
	t.all = slices.DeleteFunc(t.all, func(h *handle) bool {
		if h.id != "" {
			open = append(open, h)
		}
		return h.id != ""
	})
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), handlePatience)
	defer cancel()
	for _, h := range open {
		t.release(ctx, h)
	}
}

// Order: a device's operations run in the order of the wire, by whatever name.

// laneOf is the lane of the device that a field names.
func (t *Handles) laneOf(field string) func(*Call) string {
	return func(c *Call) string {
		name, ok := stringField(c.Payload, field)
		if !ok {
			return ""
		}
		return t.hw.CanonicalID(name)
	}
}

func (t *Handles) laneOfUSB(c *Call) string {
	var r wire.USBOpen
	if wire.Decode(c.Payload, &r) != nil {
		return ""
	}
	return t.hw.CanonicalID(t.usbDevice(c, r))
}

func (t *Handles) laneOfHandle(c *Call) string {
	id, ok := stringField(c.Payload, "handle")
	if !ok {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.index(id); i >= 0 {
		return t.all[i].device
	}
	return ""
}

// stringField is the value of one key, without decoding the others: what lies
// beside a handle may be a megabyte.
func stringField(payload []byte, key string) (value string, ok bool) {
	err := wire.Fields(payload, func(k string, raw []byte) error {
		if k != key {
			return nil
		}
		s, err := wire.Unquote(raw)
		value, ok = string(s), err == nil
		return err
	})
	return value, ok && err == nil
}

func invalidField(field, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", field, fmt.Sprintf(format, args...)).With("field", field)
}
