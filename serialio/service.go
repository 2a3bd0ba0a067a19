package serialio

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"farhand/device"
	"farhand/serialio/termios"
	"farhand/wire"
)

// Limits of the operations.
const (
	MaxTransfer    = 1 << 20          // bytes of one write, and of one read
	MaxTimeout     = 25 * time.Second // the platform waits 30 s for an answer
	MaxBreak       = 5 * time.Second
	DefaultTimeout = time.Second      // of a read
	DefaultWrite   = 10 * time.Second // of a write: 11 KiB at 9600 baud
	DefaultSize    = 4096             // bytes of a read
	maxUntil       = 1024             // bytes of the pattern that ends a read
)

// Service serves SERIAL_WRITE, SERIAL_READ, SERIAL_TRANSACT and SERIAL_CONTROL.
//
// A port is opened by the first operation of a lease. After an operation that
// doesn't hold its device the port stays open for a moment
// (device.LeaseOptions.Linger), so that the answer to a SERIAL_WRITE isn't lost
// before the SERIAL_READ after it; other sessions may take it in that moment.
// The mode begins anew with each such operation, and is kept while the device
// is held.
type Service struct{}

var _ device.Service = Service{}

// Ops are the four operations. To read takes bytes away, but sends nothing.
func (Service) Ops() map[string]device.Effect {
	return map[string]device.Effect{
		wire.OpSerialWrite:    device.Mutating,
		wire.OpSerialRead:     device.ReadOnly,
		wire.OpSerialTransact: device.Mutating,
		wire.OpSerialControl:  device.Mutating,
	}
}

// Do runs one of them.
func (s Service) Do(ctx context.Context, d device.Descriptor, lease *device.Lease, op string, args json.RawMessage, trace *device.Trace) (any, error) {
	o := operation{ctx: ctx, d: d, lease: lease, op: op, trace: trace}
	switch op {
	case wire.OpSerialWrite:
		return run(&o, args, o.write)
	case wire.OpSerialRead:
		return run(&o, args, o.read)
	case wire.OpSerialTransact:
		return run(&o, args, o.transact)
	case wire.OpSerialControl:
		return run(&o, args, o.control)
	}
	return nil, wire.Errorf(wire.FeatureNotSupported, "no operation %q", device.Clean(op)).With("op", device.Clean(op))
}

// operation is one run of one operation.
type operation struct {
	ctx   context.Context
	d     device.Descriptor
	lease *device.Lease
	op    string
	trace *device.Trace
}

// run decodes the arguments, runs fn and says in an error which device and
// operation it was.
func run[A, R any](o *operation, args json.RawMessage, fn func(A) (R, error)) (any, error) {
	var a A
	if len(args) > 0 {
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, o.tag(wire.Errorf(wire.InvalidArgument, "the arguments of %s can't be read: %s", o.op, badJSON(err)))
		}
	}
	r, err := fn(a)
	if err != nil {
		return nil, o.tag(err)
	}
	return r, nil
}

// badJSON says what is wrong without repeating any of the data.
func badJSON(err error) string {
	switch e := err.(type) {
	case *json.UnmarshalTypeError:
		return "args." + e.Field + " must not be a " + e.Value
	case *json.SyntaxError:
		return "no valid JSON"
	}
	return "data and until must be base64"
}

// tag adds the device and the operation to an error's details, and lets go of
// a port that is of no use any more.
func (o *operation) tag(err error) error {
	e := wire.AsError(err)
	if o.ctx.Err() != nil { // the dispatcher puts the cause in its place
		return err
	}
	if e.Code == wire.DeviceGone {
		o.closePort()
	}
	return e.With("device", o.d.ID).With("op", o.op)
}

func (o *operation) closePort() {
	if p, ok := o.lease.State().(*Port); ok {
		_ = p.Close() // it is gone; there is nothing to lose
		o.lease.SetState(nil)
	}
}

// port is the lease's port, opened if need be and set as asked.
func (o *operation) port(w *wire.SerialMode) (*Port, error) {
	p, open := o.lease.State().(*Port)
	mode := DefaultMode()
	if open && o.lease.Held() {
		mode = p.Mode()
	}
	mode, err := mode.with(w)
	if err != nil {
		return nil, err
	}
	if !open {
		if p, err = Open(o.d.Node, mode); err != nil {
			return nil, err
		}
		o.lease.SetState(p)
		o.lease.Linger()
		return p, nil
	}
	if mode != p.Mode() {
		if err := p.SetMode(mode); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (o *operation) write(a wire.SerialWrite) (wire.SerialWritten, error) {
	timeout, err := timeout(a.TimeoutSeconds, DefaultWrite)
	if err != nil {
		return wire.SerialWritten{}, err
	}
	if err := checkSize("data", len(a.Data)); err != nil {
		return wire.SerialWritten{}, err
	}
	p, err := o.port(a.Mode)
	if err != nil {
		return wire.SerialWritten{}, err
	}
	began := time.Now()
	n, err := p.Write(o.ctx, a.Data, timeout)
	o.trace.BytesOut += n
	if err == nil && a.Drain {
		err = p.Drain(o.ctx, max(0, timeout-time.Since(began)))
	}
	return wire.SerialWritten{BytesWritten: n}, err
}

func (o *operation) read(a wire.SerialRead) (wire.SerialData, error) {
	opts, err := readOptions(a.Size, a.Until, a.TimeoutSeconds)
	if err != nil {
		return wire.SerialData{}, err
	}
	p, err := o.port(a.Mode)
	if err != nil {
		return wire.SerialData{}, err
	}
	return o.readFrom(p, opts)
}

func (o *operation) readFrom(p *Port, opts ReadOptions) (wire.SerialData, error) {
	r, err := p.Read(o.ctx, opts)
	o.trace.BytesIn += len(r.Data)
	return wire.SerialData{
		Data: r.Data, TimedOut: r.Stop == StopTimeout, InWaiting: r.Waiting,
		StopReason: r.Stop, BytesSeen: r.Seen, BytesReturned: len(r.Data),
	}, err
}

// transact has one time for the whole of it.
func (o *operation) transact(a wire.SerialTransact) (wire.SerialData, error) {
	opts, err := readOptions(a.Size, a.Until, a.TimeoutSeconds)
	if err != nil {
		return wire.SerialData{}, err
	}
	if err := checkSize("data", len(a.Data)); err != nil {
		return wire.SerialData{}, err
	}
	p, err := o.port(a.Mode)
	if err != nil {
		return wire.SerialData{}, err
	}
	if a.Flush {
		if err := p.FlushInput(o.ctx); err != nil {
			return wire.SerialData{}, err
		}
	}
	began := time.Now()
	n, err := p.Write(o.ctx, a.Data, opts.Timeout)
	o.trace.BytesOut += n
	if err != nil {
		return wire.SerialData{}, err
	}
	opts.Timeout = max(0, opts.Timeout-time.Since(began))
	data, err := o.readFrom(p, opts)
	data.BytesWritten = n
	return data, err
}

func (o *operation) control(a wire.SerialControl) (wire.SerialLines, error) {
	var pause time.Duration
	if s := a.BreakSeconds; s != nil {
		if math.IsNaN(*s) || *s <= 0 || *s > MaxBreak.Seconds() {
			return wire.SerialLines{}, invalid("break_seconds", "must be above 0 and at most %g", MaxBreak.Seconds())
		}
		pause = time.Duration(*s * float64(time.Second))
	}
	p, err := o.port(a.Mode)
	if err != nil {
		return wire.SerialLines{}, err
	}
	for _, line := range []struct {
		bit  int
		want *bool
	}{{termios.DTR, a.DTR}, {termios.RTS, a.RTS}} {
		if line.want == nil {
			continue
		}
		if err := p.SetModem(line.bit, *line.want); err != nil {
			return wire.SerialLines{}, err
		}
	}
	if pause > 0 {
		if err := p.Break(o.ctx, pause); err != nil {
			return wire.SerialLines{}, err
		}
	}
	bits, err := p.Modem()
	if modeOnly := a.Mode != nil && a.DTR == nil && a.RTS == nil; modeOnly && errors.Is(err, wire.FeatureNotSupported) {
		return wire.SerialLines{Baudrate: p.Baud()}, nil
	}
	if err != nil {
		return wire.SerialLines{}, err
	}
	has := func(bit int) bool { return bits&bit != 0 }
	return wire.SerialLines{
		ModemLines: true, DTR: has(termios.DTR), RTS: has(termios.RTS), CTS: has(termios.CTS),
		DSR: has(termios.DSR), DCD: has(termios.DCD), RI: has(termios.RI),
		Baudrate: p.Baud(),
	}, nil
}

func readOptions(size int, until []byte, seconds *float64) (ReadOptions, error) {
	t, err := timeout(seconds, DefaultTimeout)
	if err != nil {
		return ReadOptions{}, err
	}
	if size == 0 {
		size = DefaultSize
	}
	if size < 0 {
		return ReadOptions{}, invalid("size", "must not be negative")
	}
	if err := checkSize("size", size); err != nil {
		return ReadOptions{}, err
	}
	if len(until) > maxUntil {
		return ReadOptions{}, invalid("until", "may have at most %d bytes, not %d", maxUntil, len(until))
	}
	return ReadOptions{Size: size, Until: until, Timeout: t}, nil
}

func checkSize(field string, n int) error {
	if n > MaxTransfer {
		return invalid(field, "may have at most %d bytes, not %d", MaxTransfer, n)
	}
	return nil
}

func timeout(seconds *float64, otherwise time.Duration) (time.Duration, error) {
	if seconds == nil {
		return otherwise, nil
	}
	if math.IsNaN(*seconds) || *seconds < 0 || *seconds > MaxTimeout.Seconds() {
		return 0, invalid("timeout_seconds", "must be 0 to %g", MaxTimeout.Seconds())
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}
