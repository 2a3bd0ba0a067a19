package usbsim_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/stream"
	"farhand/usb"
	"farhand/usb/usbsim"
	"farhand/wire"
)

// rig is a bench behind a dispatcher.
type rig struct {
	*usbsim.Bench
	t    *testing.T
	reg  *device.Registry
	disp *device.Dispatcher
}

func newRig(t *testing.T) *rig {
	leak.Check(t)
	b := bench(t)
	r := &rig{Bench: b, t: t, reg: device.NewRegistry(device.Options{Families: []device.Family{{Driver: b, Service: usb.NewService(b, nil)}}})}
	leases, hub := device.NewLeases(device.LeaseOptions{Linger: time.Minute}), stream.NewHub(stream.HubOptions{})
	r.disp = device.NewDispatcher(r.reg, leases, hub)
	t.Cleanup(func() {
		leases.Close()
		hub.Close()
	})
	if err := r.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) try(name, op string, args any) (any, error) {
	r.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		r.t.Fatal(err)
	}
	res, _, err := r.disp.Do(r.t.Context(), device.Caller{Session: "a", Streams: true}, wire.HardwareOp{Device: r.ID(name), Op: op, Args: raw})
	return res.Result, err
}

func do[R any](r *rig, name, op string, args any) R {
	r.t.Helper()
	result, err := r.try(name, op, args)
	if err != nil {
		r.t.Fatalf("%s: %v %v", op, err, wire.AsError(err).Details)
	}
	return result.(R)
}

// fails asserts an error's code and its details.reason.
func (r *rig) fails(op string, args any, code wire.Code, reason string) map[string]any {
	r.t.Helper()
	_, err := r.try(usbsim.EchoName, op, args)
	e := wire.AsError(err)
	got, _ := e.Details["reason"].(string)
	if err == nil || e.Code != code || got != reason {
		r.t.Fatalf("%s answers %v %v, want %s for %q", op, err, e.Details, code, reason)
	}
	return e.Details
}

func seconds(s float64) *float64 { return &s }
func number(n int) *wire.USBNumber {
	v := wire.USBNumber(n)
	return &v
}

func send(data []byte) wire.USBSend {
	return wire.USBSend{Interface: number(0), Endpoint: usbsim.EchoOut, Data: data}
}

func receive(size int) wire.USBReceive {
	return wire.USBReceive{Interface: number(0), Endpoint: usbsim.EchoIn, Size: size}
}

// echoes asserts that the device works.
func (r *rig) echoes(n int) {
	r.t.Helper()
	data := bytes.Repeat([]byte("0123456789"), (n+9)/10)[:n]
	do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBSend, send(data))
	var got []byte
	for len(got) < n {
		part := do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBReceive, receive(n-len(got)))
		if part.TimedOut {
			r.t.Fatalf("%d of %d bytes came back", len(got), n)
		}
		got = append(got, part.Data...)
	}
	if !bytes.Equal(got, data) {
		r.t.Errorf("of %d bytes others came back", n)
	}
}

// Field case 28: strings are optional: absent, unreadable and denied differ, and
// none of them keeps the device from being used.
func TestStringsMissing(t *testing.T) {
	r := newRig(t)
	r.String(usbsim.EchoName, 1, nil, syscall.EPIPE) // the device names it, and stalls
	for _, ask := range []bool{false, true} {
		d := do[wire.USBDescription](r, usbsim.EchoName, wire.OpUSBDescribe, wire.USBDescribe{Strings: ask})
		if d.Manufacturer.State != wire.USBStringUnreadable || d.Manufacturer.Index != 1 || d.Manufacturer.Value != "" {
			t.Errorf("strings %v: the manufacturer is %+v", ask, d.Manufacturer)
		}
		if d.Product.State != wire.USBStringPresent || d.Product.Value != "Simulated echo" {
			t.Errorf("strings %v: the product is %+v", ask, d.Product)
		}
		if n := d.Configurations[0].Interfaces[0].Name; n.State != wire.USBStringAbsent {
			t.Errorf("strings %v: an interface without name has %+v", ask, n)
		}
	}
	r.echoes(10)
	if _, err := r.try(usbsim.EchoName, wire.OpRelease, nil); err != nil {
		t.Fatal(err)
	}
	r.FailOpen(usbsim.EchoName, syscall.EACCES)
	d := do[wire.USBDescription](r, usbsim.EchoName, wire.OpUSBDescribe, wire.USBDescribe{Strings: true})
	if d.Manufacturer.State != wire.USBStringDenied || d.Product.State != wire.USBStringPresent {
		t.Errorf("without permission the manufacturer is %+v, the product %+v", d.Manufacturer, d.Product)
	}
	details := r.fails(wire.OpUSBSend, send(nil), wire.HardwareOpenFailed, "")
	if details["os_error"] != "EACCES" || details["hint"] == nil {
		t.Errorf("the details are %v", details)
	}
}

// Field case 29: a serial number padded with NULs is cut, cleaned, and kept raw.
func TestSerialPadded(t *testing.T) {
	r := newRig(t)
	raw := []byte{'7', 0, '8', 0, '7', 0, 7, 0, 0, 0, 0, 0, 'x', 0}
	r.String(usbsim.EchoName, 3, raw, nil)
	d := do[wire.USBDescription](r, usbsim.EchoName, wire.OpUSBDescribe, wire.USBDescribe{Strings: true})
	if s := d.SerialNumber; s.State != wire.USBStringPresent || s.Value != "787" || s.Raw != hex.EncodeToString(raw) {
		t.Errorf("the serial number is %+v", s)
	}
}

func tmc(tag byte, message byte, body string) []byte {
	b := make([]byte, 12, 12+len(body)+3)
	b[0], b[1], b[2], b[4], b[8] = message, tag, ^tag, byte(len(body)), 1
	if message == 2 {
		b[4], b[5], b[8] = 0, 4, 0 // up to 1 KiB
	}
	for b = append(b, body...); len(b)%4 != 0; {
		b = append(b, 0)
	}
	return b
}

// Field case 31: a read that ran out of time leaves the instrument usable. Field
// case 32: the answer says that a terminator may be missing.
func TestInstrumentWedged(t *testing.T) {
	r := newRig(t)
	write := func(b []byte) {
		t.Helper()
		do[wire.USBTransferred](r, usbsim.ScopeName, wire.OpUSBSend, wire.USBSend{Data: b})
	}
	read := func(seconds float64) wire.USBTransferred {
		t.Helper()
		return do[wire.USBTransferred](r, usbsim.ScopeName, wire.OpUSBReceive, wire.USBReceive{Size: 1024, TimeoutSeconds: &seconds})
	}
	asks := func(tag byte) {
		t.Helper()
		write(tmc(tag, 1, "*IDN?\n"))
		write(tmc(tag+1, 2, ""))
		got := read(10)
		if got.TimedOut || len(got.Data) < 12 || got.Data[1] != tag+1 || !strings.HasPrefix(string(got.Data[12:]), usbsim.ScopeIdentity) {
			t.Errorf("*IDN? answers %q, timed out: %v", got.Data, got.TimedOut)
		}
	}
	asks(1)
	write(tmc(3, 1, "*IDN?")) // without its end
	write(tmc(4, 2, ""))
	got := read(0.05)
	if !got.TimedOut || !strings.Contains(got.Hint, `\n`) || got.Recovery == nil {
		t.Fatalf("a command without its end answers %+v", got)
	}
	if steps := got.Recovery.Steps; !got.Recovery.OK || !slices.Equal(steps, []string{"abort bulk-in", "drain", "check abort", "clear", "check clear", "clear bulk-out halt"}) {
		t.Errorf("the recovery was %+v", *got.Recovery)
	}
	asks(5)
	// Without a request under way there is nothing to abort.
	got = read(0.05)
	if got.Recovery == nil || !got.Recovery.OK || slices.Contains(got.Recovery.Steps, "drain") {
		t.Errorf("the recovery was %+v", got.Recovery)
	}
	asks(7)
}

// Half of an answer that nobody fetched is thrown away.
func TestInstrumentDrained(t *testing.T) {
	r := newRig(t)
	r.Mute(usbsim.ScopeName, 0x81, true)
	do[wire.USBTransferred](r, usbsim.ScopeName, wire.OpUSBSend, wire.USBSend{Data: tmc(1, 1, "CURV?\n")})
	do[wire.USBTransferred](r, usbsim.ScopeName, wire.OpUSBSend, wire.USBSend{Data: tmc(2, 2, "")})
	read := wire.USBReceive{Size: 1024, TimeoutSeconds: seconds(0.05)}
	got := do[wire.USBTransferred](r, usbsim.ScopeName, wire.OpUSBReceive, read)
	if !got.TimedOut || got.Recovery == nil || !got.Recovery.OK {
		t.Errorf("it answers %+v", got)
	}
	r.Mute(usbsim.ScopeName, 0x81, false)
	if got := do[wire.USBTransferred](r, usbsim.ScopeName, wire.OpUSBReceive, read); len(got.Data) != 0 {
		t.Errorf("%d bytes are left", len(got.Data))
	}
}

func TestStall(t *testing.T) {
	r := newRig(t)
	r.Stall(usbsim.EchoName, usbsim.EchoOut)
	if details := r.fails(wire.OpUSBSend, send([]byte("x")), wire.HardwareTransferFailed, "stall"); details["halt_cleared"] != true || details["bytes_partial"] != 0 {
		t.Errorf("the details are %v", details)
	}
	r.Stall(usbsim.EchoName, usbsim.EchoIn)
	r.fails(wire.OpUSBReceive, receive(1), wire.HardwareTransferFailed, "stall")
	r.Stall(usbsim.EchoName, 0)
	r.fails(wire.OpUSBControl, wire.USBControl{RequestType: 0x80, Request: 6, Value: 0x100, Length: 18}, wire.HardwareTransferFailed, "stall")
	r.echoes(100)
}

func TestBusErrors(t *testing.T) {
	r := newRig(t)
	for err, reason := range map[error]string{syscall.EPROTO: "bus", syscall.EILSEQ: "bus", syscall.ETIME: "bus", syscall.EOVERFLOW: "overflow", syscall.ENOMEM: "memory"} {
		r.Fail(usbsim.EchoName, usbsim.EchoIn, err)
		if details := r.fails(wire.OpUSBReceive, receive(1), wire.HardwareTransferFailed, reason); details["hint"] == nil || details["os_error"] == "" {
			t.Errorf("%v: the details are %v", err, details)
		}
	}
	r.echoes(100)
	// A device that is being pulled looks like one with bad contacts at first.
	r.Fail(usbsim.EchoName, usbsim.EchoIn, syscall.ENODEV)
	r.fails(wire.OpUSBReceive, receive(1), wire.DeviceGone, "")
}

func TestShortRead(t *testing.T) {
	r := newRig(t)
	do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBSend, send(make([]byte, 1024)))
	r.Shorten(usbsim.EchoName, usbsim.EchoIn, 512)
	if got := do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBReceive, receive(1024)); got.BytesTransferred != 512 || got.TimedOut {
		t.Errorf("a short transfer answers %d bytes, timed out: %v", got.BytesTransferred, got.TimedOut)
	}
}

func TestControlTimeout(t *testing.T) {
	r := newRig(t)
	r.Mute(usbsim.EchoName, 0, true)
	got := do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBControl, wire.USBControl{RequestType: 0xc0, Request: 1, Length: 8, TimeoutSeconds: seconds(0.02)})
	if !got.TimedOut || got.BytesTransferred != 0 || got.Data == nil {
		t.Errorf("no answer is %+v", got)
	}
	r.Mute(usbsim.EchoName, 0, false)
	do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBControl, wire.USBControl{RequestType: 0x40, Request: 1, Data: []byte("note")})
	got = do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBControl, wire.USBControl{RequestType: 0xc0, Request: 1, Length: 64})
	if string(got.Data) != "note" {
		t.Errorf("it remembers %q", got.Data)
	}
}

// A host controller that wants each transfer in one piece gets small ones.
func TestInPieces(t *testing.T) {
	r := newRig(t)
	r.InPieces(usbsim.EchoName, true)
	r.echoes(100000)
}

func TestUnplugWhileSending(t *testing.T) {
	r := newRig(t)
	r.Mute(usbsim.EchoName, usbsim.EchoOut, true)
	failed := make(chan error)
	go func() {
		_, err := r.try(usbsim.EchoName, wire.OpUSBSend, send(make([]byte, 4096)))
		failed <- err
	}()
	h, err := r.Open(r.descriptor())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for owner := ""; owner != "usbfs"; <-again.C { // the sender has the interface
		if owner, err = h.Driver(0); err != nil {
			t.Fatal(err)
		}
	}
	r.Unplug(usbsim.EchoName)
	if err := <-failed; !errors.Is(err, wire.DeviceGone) {
		t.Errorf("it answers %v", err)
	}
	if _, err := h.Driver(0); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("another user is answered %v", err)
	}
}

func (r *rig) descriptor() device.Descriptor {
	d, err := r.reg.Resolve(r.ID(usbsim.EchoName))
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func TestAnotherProgram(t *testing.T) {
	r := newRig(t)
	h, err := r.Open(r.descriptor())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Claim(0); err != nil {
		t.Fatal(err)
	}
	a := send([]byte("x"))
	a.DetachKernelDriver = true // isn't for programs
	if details := r.fails(wire.OpUSBSend, a, wire.HardwareBusy, ""); details["holder"] != "another program" {
		t.Errorf("the details are %v", details)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	r.echoes(10)
}

// Alternate settings are set when they are asked for.
func TestAlternate(t *testing.T) {
	r := newRig(t)
	a := wire.USBReceive{Interface: number(0), Endpoint: usbsim.SourceIn, Size: 8192}
	if details := r.fails(wire.OpUSBReceive, a, wire.InvalidArgument, ""); details["field"] != "alternate" || details["candidates"] == nil {
		t.Errorf("the details are %v", details)
	}
	a.Alternate = number(1)
	if got := do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBReceive, a); got.BytesTransferred != 8192 {
		t.Errorf("the source gives %d bytes", got.BytesTransferred)
	}
	b := send([]byte("x"))
	b.Alternate = number(0)
	do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBSend, b)
	if got := do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBReceive, receive(1)); string(got.Data) != "x" {
		t.Errorf("back in the first setting it answers %q", got.Data)
	}
	// The same by a control transfer, which the kernel has to know of.
	do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBControl, wire.USBControl{RequestType: 0x01, Request: 11, Value: 1})
	a.Alternate = nil
	do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBReceive, a)
}

// Field case 34: a device that comes and goes is said to be flapping.
func TestFlapping(t *testing.T) {
	r := newRig(t)
	for range 5 {
		r.Unplug(usbsim.EchoName)
		if err := errors.Join(r.reg.Refresh(t.Context()), r.Replug(usbsim.EchoName), r.reg.Refresh(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	d := r.descriptor()
	if !strings.HasPrefix(d.Reason, "flapping") || d.Generation != 6 {
		t.Errorf("after five returns it is %+v", d.HardwareDevice)
	}
}

// broken is a host whose devices' descriptors are cut short.
type broken struct{ *usbsim.Bench }

func (b broken) Look(d device.Descriptor) (usb.Look, error) {
	l, err := b.Bench.Look(d)
	l.Descriptors = l.Descriptors[:min(len(l.Descriptors), 18+9+9+3)]
	return l, err
}

// What is whole of damaged descriptors is told, and no more can be used.
func TestDamagedDescriptors(t *testing.T) {
	b := broken{bench(t)}
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: b, Service: usb.NewService(b, nil)}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := device.NewLeases(device.LeaseOptions{})
	defer leases.Close()
	disp := device.NewDispatcher(reg, leases, nil)
	do := func(op string) (any, error) {
		res, _, err := disp.Do(t.Context(), device.Caller{Session: "a"}, wire.HardwareOp{Device: b.ID(usbsim.EchoName), Op: op})
		return res.Result, err
	}
	result, err := do(wire.OpUSBDescribe)
	if err != nil {
		t.Fatal(err)
	}
	d := result.(wire.USBDescription)
	if d.Damaged == "" || len(d.Configurations) != 1 || len(d.Configurations[0].Interfaces) != 1 {
		t.Errorf("it is described as %+v", d)
	}
	if _, err := do(wire.OpUSBSend); !errors.Is(err, wire.InvalidArgument) {
		t.Errorf("sending answers %v", err)
	}
}

// A watch that falls behind loses records, counted, never the device.
func TestWatchOfASource(t *testing.T) {
	r := newRig(t)
	w := do[wire.USBWatching](r, usbsim.EchoName, wire.OpUSBWatch, wire.USBWatch{Interface: number(0), Endpoint: usbsim.SourceIn, Alternate: number(1), Size: 16384})
	if w.Stream == "" || w.Endpoint != usbsim.SourceIn {
		t.Errorf("the answer is %+v", w)
	}
	// Nobody receives; the device can be used, described and given back.
	do[wire.USBTransferred](r, usbsim.EchoName, wire.OpUSBControl, wire.USBControl{RequestType: 0x80, Request: 6, Value: 0x100, Length: 18})
	do[wire.USBResetDone](r, usbsim.EchoName, wire.OpUSBReset, nil)
	r.echoes(10)
}

// The list and the description say the same of a device's class.
func TestClassIsTheDescriptors(t *testing.T) {
	b := usbsim.New(usbsim.Standard(), nil)
	t.Cleanup(func() { b.Close() })
	all, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		want := map[string]string{b.ID(usbsim.EchoName): "ef", b.ID(usbsim.ScopeName): "fe"}[d.ID]
		if d.DeviceClass != want {
			t.Errorf("%s has class %q, want %q", d.ID, d.DeviceClass, want)
		}
	}
}
