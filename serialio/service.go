package serialio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Service serves the SERIAL operations.
//
// A port is opened by the first operation of a lease, and from then on keeps
// what it receives, whoever reads. After an operation that doesn't hold its
// device the port stays open for a moment (device.LeaseOptions.Linger), so that
// the answer to a SERIAL_WRITE isn't lost before the SERIAL_READ after it; other
// sessions may take it in that moment. The mode begins anew with each such
// operation, and is kept while the device is held or a SERIAL_WATCH is open.
type Service struct{}

var _ device.Service = Service{}

// Ops are the operations. To read takes bytes away, but sends nothing.
func (Service) Ops() map[string]device.Effect {
	return map[string]device.Effect{
		wire.OpSerialWrite:    device.Mutating,
		wire.OpSerialRead:     device.ReadOnly,
		wire.OpSerialTransact: device.Mutating,
		wire.OpSerialExpect:   device.Mutating,
		wire.OpSerialControl:  device.Mutating,
		wire.OpSerialWatch:    device.ReadOnly,
	}
}

// Do runs one of them.
func (s Service) Do(ctx context.Context, r *device.Request) (any, error) {
	o := operation{ctx: ctx, r: r}
	switch r.Op {
	case wire.OpSerialWrite:
		return run(&o, o.write)
	case wire.OpSerialRead:
		return run(&o, o.read)
	case wire.OpSerialTransact:
		return run(&o, o.transact)
	case wire.OpSerialExpect:
		return run(&o, o.expect)
	case wire.OpSerialControl:
		return run(&o, o.control)
	case wire.OpSerialWatch:
		return run(&o, o.watch)
	}
	return nil, wire.Errorf(wire.FeatureNotSupported, "no operation %q", device.Clean(r.Op)).With("op", device.Clean(r.Op))
}

// operation is one run of one operation.
type operation struct {
	ctx context.Context
	r   *device.Request
	// opened is set if it opened the port.
	opened *wire.SerialOpened
}

// run decodes the arguments, runs fn and says in an error which device and
// operation it was.
func run[A, R any](o *operation, fn func(A) (R, error)) (any, error) {
	var a A
	if len(o.r.Args) > 0 {
		if err := json.Unmarshal(o.r.Args, &a); err != nil {
			return nil, o.tag(device.BadArgs(err, "what is bytes must be base64"))
		}
	}
	r, err := fn(a)
	if err != nil {
		return nil, o.tag(err)
	}
	return r, nil
}

// tag adds the device and the operation to an error's details, and lets go of
// a port that is of no use any more.
func (o *operation) tag(err error) error {
	e := wire.AsError(err)
	if o.ctx.Err() != nil { // the dispatcher puts the cause in its place
		return err
	}
	if s, ok := o.r.Lease.State().(*state); ok && e.Code == wire.DeviceGone {
		s.drop(err)
		o.r.Lease.SetState(nil)
	}
	return e.With("device", o.r.Device.ID).With("op", o.r.Op)
}

// port is the lease's port, opened if need be and set as asked.
func (o *operation) port(w *wire.SerialMode) (*Port, error) {
	s, _ := o.r.Lease.State().(*state)
	if s != nil && s.port != nil {
		switch err := s.port.Failed(); {
		case errors.Is(err, wire.DeviceGone):
			return nil, err
		case err != nil:
			s.drop(err) // opening it anew says who has it
		}
	}
	mode, wait := DefaultMode(), DefaultTimeout
	if s != nil && (o.r.Lease.Held() || s.followed()) {
		mode, wait = s.mode, s.wait
	}
	mode, err := mode.with(w)
	if err != nil {
		return nil, err
	}
	if w != nil && w.TimeoutSeconds != nil {
		if wait, err = timeout("mode.timeout_seconds", new(min(*w.TimeoutSeconds, MaxTimeout.Seconds())), 0); err != nil {
			return nil, err
		}
	}
	if s == nil {
		s = newState(o.r.Lease)
	}
	s.wait = wait
	if s.port == nil {
		p, err := OpenWith(o.ctx, o.r.Device.Node, mode, resetChoice(w))
		if err != nil {
			return nil, err
		}
		s.port, s.mode = p, mode
		o.r.Lease.SetState(s)
		o.r.Lease.Linger()
		o.sayOpened(p)
		return p, nil
	}
	if mode != s.port.Mode() {
		if err := s.port.SetMode(mode); err != nil {
			return nil, err
		}
		s.mode = mode
		if w := rateWarning(s.port); w != "" {
			o.opened = &wire.SerialOpened{Warnings: []string{w}}
		}
	}
	return s.port, nil
}

func (o *operation) sayOpened(p *Port) {
	opened := p.Opened()
	if o.r.Device.VID != "" {
		opened.Warnings = p.Meddling()
	}
	if w := rateWarning(p); w != "" {
		opened.Warnings = append(opened.Warnings, w)
	}
	o.opened = &opened
}

// rateWarning is about a rate that the far end may not understand.
func rateWarning(p *Port) string {
	const most = 2 // percent: half of what two ends together may be apart
	asked := p.Mode().BaudRate
	d := deviation(asked, p.Baud())
	if d >= -most && d <= most {
		return ""
	}
	return fmt.Sprintf("the port runs at %d bit/s instead of %d (%+.1f %%): the far end may not understand it", p.Baud(), asked, d)
}

func resetChoice(w *wire.SerialMode) Reset {
	switch {
	case w == nil || w.ResetOnOpen == nil:
		return ResetLeave
	case *w.ResetOnOpen:
		return ResetPulse
	}
	return ResetAvoid
}

func (o *operation) write(a wire.SerialWrite) (wire.SerialWritten, error) {
	timeout, err := timeout("timeout_seconds", a.TimeoutSeconds, DefaultWrite)
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
	_, offset := p.Offsets()
	began := time.Now()
	n, err := o.send(p, a.Data, timeout)
	if err == nil && a.Drain {
		err = p.Drain(o.ctx, max(0, timeout-time.Since(began)))
	}
	return wire.SerialWritten{BytesWritten: n, Offset: offset, Opened: o.opened}, err
}

func (o *operation) send(p *Port, data []byte, timeout time.Duration) (int, error) {
	n, err := p.Write(o.ctx, data, timeout)
	o.r.Trace.BytesOut += n
	return n, err
}

func (o *operation) read(a wire.SerialRead) (wire.SerialData, error) {
	opts, err := readOptions(a.Size, a.Until, a.Expect, a.TimeoutSeconds)
	if err != nil {
		return wire.SerialData{}, err
	}
	p, err := o.portToRead(a.Mode, a.TimeoutSeconds, &opts)
	if err != nil {
		return wire.SerialData{}, err
	}
	return o.readFrom(p, opts)
}

// portToRead is port, for a read that may leave its time to the mode.
func (o *operation) portToRead(w *wire.SerialMode, seconds *float64, opts *ReadOptions) (*Port, error) {
	p, err := o.port(w)
	if err != nil {
		return nil, err
	}
	if s, ok := o.r.Lease.State().(*state); ok && seconds == nil {
		opts.Timeout = s.wait
	}
	return p, nil
}

func (o *operation) readFrom(p *Port, opts ReadOptions) (wire.SerialData, error) {
	r, err := o.receive(p, opts)
	return wire.SerialData{
		Data: r.Data, TimedOut: r.Stop == StopTimeout, InWaiting: r.Waiting,
		StopReason: r.Stop, Match: r.Match.wire(), BytesSeen: r.Seen, BytesReturned: len(r.Data),
		Offset: r.Offset, Lost: r.Lost, Opened: o.opened,
	}, err
}

func (o *operation) receive(p *Port, opts ReadOptions) (ReadResult, error) {
	r, err := p.Read(o.ctx, opts)
	o.r.Trace.BytesIn += len(r.Data)
	return r, err
}

// transact has one time for the whole of it.
func (o *operation) transact(a wire.SerialTransact) (wire.SerialData, error) {
	opts, err := readOptions(a.Size, a.Until, a.Expect, a.TimeoutSeconds)
	if err != nil {
		return wire.SerialData{}, err
	}
	if err := checkSize("data", len(a.Data)); err != nil {
		return wire.SerialData{}, err
	}
	p, err := o.portToRead(a.Mode, a.TimeoutSeconds, &opts)
	if err != nil {
		return wire.SerialData{}, err
	}
	if a.Flush {
		if err := p.FlushInput(o.ctx); err != nil {
			return wire.SerialData{}, err
		}
	}
	began := time.Now()
	n, err := o.send(p, a.Data, opts.Timeout)
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
	lines := o.lines(p)
	bits, err := p.Modem()
	if modeOnly := a.Mode != nil && a.DTR == nil && a.RTS == nil; modeOnly && errors.Is(err, wire.FeatureNotSupported) {
		return lines, nil
	}
	if err != nil {
		return wire.SerialLines{}, err
	}
	has := func(bit int) bool { return bits&bit != 0 }
	lines.ModemLines = true
	lines.DTR, lines.RTS, lines.CTS = has(termios.DTR), has(termios.RTS), has(termios.CTS)
	lines.DSR, lines.DCD, lines.RI = has(termios.DSR), has(termios.DCD), has(termios.RI)
	return lines, nil
}

// lines is what SERIAL_CONTROL says beside the modem lines.
func (o *operation) lines(p *Port) wire.SerialLines {
	_, next := p.Offsets()
	lines := wire.SerialLines{
		Baudrate: p.Baud(), BaudrateDeviation: deviation(p.Mode().BaudRate, p.Baud()),
		LowLatency: p.LowLatency(), Offset: next, Opened: o.opened,
	}
	if r, ok := p.RS485(); ok {
		lines.RS485 = r.wire()
	}
	return lines
}

func readOptions(size int, until []byte, expect wire.SerialPatterns, seconds *float64) (ReadOptions, error) {
	t, err := timeout("timeout_seconds", seconds, DefaultTimeout)
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
	patterns, err := CompilePatterns("expect", expect)
	if err != nil {
		return ReadOptions{}, err
	}
	if patterns.regexps && size > MaxRegexpInput {
		return ReadOptions{}, invalid("size", "may be at most %d with regular expressions, not %d", MaxRegexpInput, size)
	}
	return ReadOptions{Size: size, Until: until, Expect: patterns, Timeout: t}, nil
}

func checkSize(field string, n int) error {
	if n > MaxTransfer {
		return invalid(field, "may have at most %d bytes, not %d", MaxTransfer, n)
	}
	return nil
}

func timeout(field string, seconds *float64, otherwise time.Duration) (time.Duration, error) {
	if seconds == nil {
		return otherwise, nil
	}
	if math.IsNaN(*seconds) || *seconds < 0 || *seconds > MaxTimeout.Seconds() {
		return 0, invalid(field, "must be 0 to %g", MaxTimeout.Seconds())
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}
