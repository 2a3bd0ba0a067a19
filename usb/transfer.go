package usb

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"farhand/usb/usbfs"
	"farhand/wire"
)

// piece is how much is transferred at once where the kernel has to have it in
// one piece of memory: what libusb, too, considers safe.
const piece = 16 << 10

// transfer moves data to or from an endpoint. It ends with the data, with a
// packet that isn't full, or with ctx.
func (x *session) transfer(ctx context.Context, e usbfs.Endpoint, data []byte, zero bool) (int, error) {
	limit := len(data)
	if !x.h.LongTransfers() && e.MaxPacket > 0 {
		limit = max(e.MaxPacket, piece-piece%e.MaxPacket)
	}
	sum := 0
	for {
		part := data[sum:min(len(data), sum+limit)]
		last := sum+len(part) == len(data)
		n, err := x.one(ctx, e.Kind, e.Address, part, zero && last)
		sum += n
		if err != nil || last || n < len(part) {
			return sum, err
		}
	}
}

// one is one transfer as the kernel does it.
func (x *session) one(ctx context.Context, kind usbfs.Kind, endpoint byte, data []byte, zero bool) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	t, err := x.h.Submit(kind, endpoint, data, zero)
	if err != nil {
		return 0, err
	}
	return t.Wait(ctx)
}

// outcome sorts what became of a transfer of n bytes: done, out of time, or
// failed. A stall is cleared, so that the next transfer has a chance.
func (x *session) outcome(e usbfs.Endpoint, n int, err error) (timedOut bool, _ error) {
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, errTimeout):
		return true, nil
	case errors.Is(err, syscall.EPIPE):
		stalled := wire.AsError(failed(x.h, err, n))
		if stalled.Code == wire.HardwareTransferFailed {
			stalled.With("halt_cleared", x.h.ClearHalt(e.Address) == nil)
		}
		return false, stalled
	}
	return false, failed(x.h, err, n)
}

func (o *operation) send(a wire.USBSend) (wire.USBTransferred, error) {
	none := wire.USBTransferred{}
	if len(a.Data) > MaxTransfer {
		return none, invalid("data", "may have at most %d bytes, not %d", MaxTransfer, len(a.Data))
	}
	ctx, cancel, err := o.deadline(a.TimeoutSeconds, DefaultSend)
	if err != nil {
		return none, err
	}
	defer cancel()
	x, err := o.session()
	if err != nil {
		return none, err
	}
	f, err := o.endpoint(x, wanted{iface: a.Interface, alternate: a.Alternate, address: a.Endpoint}, a.DetachKernelDriver)
	if err != nil {
		return none, err
	}
	tag, instrument := x.note(f, a.Data)
	n, err := x.transfer(ctx, f.Endpoint, a.Data, a.ZeroPacket)
	o.Trace.BytesOut += n
	timedOut, err := x.outcome(f.Endpoint, n, err)
	if err != nil {
		return none, err
	}
	done := wire.USBTransferred{Data: []byte{}, BytesTransferred: n, TimedOut: timedOut}
	if timedOut {
		done.Hint = "the device takes no more: it may be busy, or waits to be read from"
		if instrument {
			done.Recovery = o.abort(x, f, tag)
		}
	}
	return done, nil
}

func (o *operation) receive(a wire.USBReceive) (wire.USBTransferred, error) {
	none := wire.USBTransferred{}
	if a.Size == 0 {
		a.Size = DefaultSize
	}
	if a.Size < 0 || a.Size > MaxTransfer {
		return none, invalid("size", "must be 1 to %d, not %d", MaxTransfer, a.Size)
	}
	ctx, cancel, err := o.deadline(a.TimeoutSeconds, DefaultTimeout)
	if err != nil {
		return none, err
	}
	defer cancel()
	x, err := o.session()
	if err != nil {
		return none, err
	}
	f, err := o.endpoint(x, wanted{iface: a.Interface, alternate: a.Alternate, address: a.Endpoint, in: true}, a.DetachKernelDriver)
	if err != nil {
		return none, err
	}
	if x.watched(f.Address) {
		return none, wire.Errorf(wire.HardwareBusy, "endpoint %#02x is being watched", f.Address).
			With("holder", "USB_WATCH").With("hint", "close the stream first, or read what it brings")
	}
	if rest := x.rest[f.Address]; len(rest) > 0 {
		return o.received(x, f, rest, a.Size, false), nil
	}
	// Devices send whole packets, whatever is asked for.
	size := a.Size
	if p := f.MaxPacket; p > 0 {
		size = (size + p - 1) / p * p
	}
	data := make([]byte, size)
	n, err := x.transfer(ctx, f.Endpoint, data, false)
	timedOut, err := x.outcome(f.Endpoint, n, err)
	if err != nil {
		o.Trace.BytesIn += n
		return none, err
	}
	done := o.received(x, f, data[:n], a.Size, timedOut)
	if timedOut && isInstrument(f.Interface) && f.Kind == usbfs.Bulk {
		done.Recovery = o.abort(x, f, x.tags[int(f.Number)])
		done.Hint = "the instrument didn't answer: does the command end as it expects (most want \\n, and EOM set in the header), and does it ask for something?"
	}
	return done, nil
}

// received makes an answer of what came, and keeps what is more than was asked
// for.
func (o *operation) received(x *session, f found, data []byte, size int, timedOut bool) wire.USBTransferred {
	keep := data[min(len(data), size):]
	data = data[:len(data)-len(keep)]
	if len(keep) > 0 {
		x.rest[f.Address] = keep
	} else {
		delete(x.rest, f.Address)
	}
	o.Trace.BytesIn += len(data)
	return wire.USBTransferred{Data: data, BytesTransferred: len(data), TimedOut: timedOut, InWaiting: len(keep)}
}

// setup is the eight bytes that a control transfer begins with (USB 2.0, 9.3).
type setup struct {
	requestType, request byte
	value, index         uint16
}

// controlTransfer is one transfer on endpoint 0. data is what is sent, or room
// for what comes.
func (x *session) controlTransfer(ctx context.Context, s setup, data []byte) (int, error) {
	b := make([]byte, 8+len(data))
	b[0], b[1] = s.requestType, s.request
	binary.LittleEndian.PutUint16(b[2:], s.value)
	binary.LittleEndian.PutUint16(b[4:], s.index)
	binary.LittleEndian.PutUint16(b[6:], uint16(len(data)))
	in := s.requestType&usbfs.DirIn != 0
	if !in {
		copy(b[8:], data)
	}
	n, err := x.one(ctx, usbfs.Control, 0, b, false)
	if in {
		n = copy(data, b[8:8+min(n, len(data))])
	}
	return n, err
}

// Standard requests that the kernel has to know of (USB 2.0, table 9-4), and
// what selects them: the type of a request is in bits 5 and 6, its recipient in
// the lowest five.
const (
	typeMask      = 0x60
	typeStandard  = 0x00
	typeVendor    = 0x40
	recipientMask = 0x1f
	toInterface   = 0x01
	toEndpoint    = 0x02

	reqClearFeature     = 1
	reqSetFeature       = 3
	reqSetAddress       = 5
	reqGetDescriptor    = 6
	reqSetConfiguration = 9
	reqSetInterface     = 11

	featureEndpointHalt = 0
	featureTestMode     = 2
)

func (o *operation) control(a wire.USBControl) (wire.USBTransferred, error) {
	none := wire.USBTransferred{}
	for _, f := range []struct {
		name  string
		value wire.USBNumber
		most  wire.USBNumber
	}{{"request_type", a.RequestType, 0xff}, {"request", a.Request, 0xff}, {"value", a.Value, 0xffff}, {"index", a.Index, 0xffff},
		{"length", wire.USBNumber(a.Length), MaxControl}} {
		if f.value < 0 || f.value > f.most {
			return none, invalid(f.name, "must be 0 to %d, not %d", f.most, f.value)
		}
	}
	in := a.RequestType&usbfs.DirIn != 0
	switch {
	case len(a.Data) > MaxControl:
		return none, invalid("data", "may have at most %d bytes, not %d", MaxControl, len(a.Data))
	case in && len(a.Data) > 0:
		return none, invalid("data", "can't be sent by a request_type with 0x80 set, which reads")
	case !in && a.Length > 0 && a.Length != len(a.Data):
		return none, invalid("length", "is for what is read; this request_type sends")
	}
	s := setup{requestType: byte(a.RequestType), request: byte(a.Request), value: uint16(a.Value), index: uint16(a.Index)}
	if err := refused(s); err != nil {
		return none, err
	}
	ctx, cancel, err := o.deadline(a.TimeoutSeconds, DefaultSend)
	if err != nil {
		return none, err
	}
	defer cancel()
	x, err := o.session()
	if err != nil {
		return none, err
	}
	iface, err := o.recipient(x, s, a.DetachKernelDriver)
	if err != nil {
		return none, err
	}
	done := wire.USBTransferred{Data: []byte{}}
	switch {
	case s.requestType == toInterface && s.request == reqSetInterface:
		return done, x.set(iface, int(s.value))
	case s.requestType == toEndpoint && s.request == reqClearFeature && s.value == featureEndpointHalt:
		if err := x.h.ClearHalt(byte(s.index)); err != nil {
			return none, failed(x.h, err, 0)
		}
		return done, nil
	}
	return o.exchange(ctx, x, s, a.Data, a.Length)
}

// exchange runs a control transfer and makes an answer of it.
func (o *operation) exchange(ctx context.Context, x *session, s setup, out []byte, length int) (wire.USBTransferred, error) {
	in := s.requestType&usbfs.DirIn != 0
	data := out
	if in {
		data = make([]byte, length)
	}
	n, err := x.controlTransfer(ctx, s, data)
	done := wire.USBTransferred{Data: []byte{}, BytesTransferred: n}
	if in {
		o.Trace.BytesIn += n
		done.Data = data[:n]
	} else {
		o.Trace.BytesOut += n
	}
	switch {
	case errors.Is(err, errTimeout):
		done.TimedOut = true
		return done, nil
	case err != nil: // a stall of endpoint 0 ends with the next request
		return wire.USBTransferred{}, failed(x.h, err, n)
	}
	return done, nil
}

// refused says which requests are not for callers.
func refused(s setup) error {
	if s.requestType&(typeMask|usbfs.DirIn) != typeStandard {
		return nil
	}
	switch {
	case s.request == reqSetAddress:
		return wire.Errorf(wire.FeatureNotSupported, "a device's address is the kernel's to set")
	case s.request == reqSetConfiguration:
		return wire.Errorf(wire.FeatureNotSupported, "SET_CONFIGURATION has an operation of its own").With("hint", wire.OpUSBConfigure)
	case s.request == reqSetFeature && s.value == featureTestMode && s.requestType&recipientMask == 0:
		return wire.Errorf(wire.FeatureNotSupported, "a device in test mode has to be unplugged")
	}
	return nil
}

// recipient claims the interface that a request is for, as the kernel wants it
// for all but the maker's own requests. It answers which that is.
func (o *operation) recipient(x *session, s setup, detach bool) (int, error) {
	if s.requestType&typeMask == typeVendor {
		return 0, nil
	}
	iface := -1
	switch s.requestType & recipientMask {
	case toInterface:
		iface = int(s.index & 0xff)
	case toEndpoint:
		if s.index&0x7f == 0 {
			return 0, nil // endpoint 0 belongs to nobody
		}
		for _, f := range x.conf.Interfaces {
			for _, e := range f.Endpoints {
				if e.Address == byte(s.index) {
					iface = int(f.Number)
				}
			}
		}
	default:
		return 0, nil
	}
	if x.setting(iface, 0) == nil {
		return 0, invalid("index", "%#x names no interface or endpoint of the device", s.index).With("hint", "USB_DESCRIBE lists them")
	}
	return iface, o.need(x, iface, detach)
}

// HID's requests (HID 1.11, 7.2); report types are numbered in 7.2.1.
const (
	classHID     = 0x03
	reqGetReport = 0x01
	reqSetReport = 0x09
	classIn      = 0xa1 // from the interface, of its class
	classOut     = 0x21
)

func (o *operation) hid(a wire.USBHID) (wire.USBTransferred, error) {
	none := wire.USBTransferred{}
	if a.Action != "get" && a.Action != "set" {
		return none, invalid("action", "must be get or set")
	}
	if a.Report == "" {
		a.Report = map[string]string{"get": wire.USBReportInput, "set": wire.USBReportOutput}[a.Action]
	}
	kind, ok := map[string]uint16{wire.USBReportInput: 1, wire.USBReportOutput: 2, wire.USBReportFeature: 3}[a.Report]
	switch {
	case !ok:
		return none, invalid("report", "must be input, output or feature")
	case a.ID < 0 || a.ID > 255:
		return none, invalid("id", "must be 0 to 255, not %d", a.ID)
	case len(a.Data) > MaxControl:
		return none, invalid("data", "may have at most %d bytes, not %d", MaxControl, len(a.Data))
	case a.Action == "get" && len(a.Data) > 0:
		return none, invalid("data", "is for set")
	case a.Action == "set" && len(a.Data) == 0:
		return none, invalid("data", "must have the report")
	case a.Size < 0 || a.Size > MaxControl:
		return none, invalid("size", "must be 0 to %d, not %d", MaxControl, a.Size)
	}
	if a.Size == 0 {
		a.Size = DefaultReport
	}
	ctx, cancel, err := o.deadline(a.TimeoutSeconds, DefaultSend)
	if err != nil {
		return none, err
	}
	defer cancel()
	x, err := o.session()
	if err != nil {
		return none, err
	}
	iface, err := x.hidInterface(a.Interface)
	if err != nil {
		return none, err
	}
	if err := o.need(x, iface, a.DetachKernelDriver); err != nil {
		return none, err
	}
	s := setup{requestType: classIn, request: reqGetReport, value: kind<<8 | uint16(a.ID), index: uint16(iface)}
	if a.Action == "set" {
		s.requestType, s.request = classOut, reqSetReport
	}
	return o.exchange(ctx, x, s, a.Data, a.Size)
}

// hidInterface is the one that is named, or the only one of its class.
func (x *session) hidInterface(named *wire.USBNumber) (int, error) {
	var all []int
	for _, n := range x.interfaces() {
		f := x.setting(n, x.alternate[n])
		if f != nil && f.Class == classHID && (named == nil || int(*named) == n) {
			all = append(all, n)
		}
	}
	switch len(all) {
	case 1:
		return all[0], nil
	case 0:
		return 0, invalid("interface", "names no HID interface of the device").With("hint", "USB_DESCRIBE lists the interfaces")
	}
	return 0, invalid("interface", "must say which of the HID interfaces is meant").With("candidates", all)
}

// pause waits, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
