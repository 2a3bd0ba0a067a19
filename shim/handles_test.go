package shim_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/stream"
	"farhand/wire"
)

// bench is a shim.Hardware of four devices, with leases, that writes down what
// it is asked.
type bench struct {
	mu       sync.Mutex
	ops      []string // in the order in which they ended
	leases   map[string]*benchLease
	released chan string // if not nil: what Release gave back
	// before, if not nil, runs before each operation; an error is its result.
	before func(ctx context.Context, op wire.HardwareOp) error
}

type benchLease struct {
	ctx context.Context
	end context.CancelCauseFunc
}

const (
	benchPort  = "serial:one"
	benchUSB   = "usb:2341:0043-7"
	benchChip  = "gpio:chip"
	benchOther = "usb:2341:0043-9"
)

var benchNames = map[string]string{"/dev/ttyUSB0": benchPort, "/dev/gpiochip0": benchChip}

func newBench() *bench { return &bench{leases: make(map[string]*benchLease)} }

func (b *bench) CanonicalID(name string) string { return cmp.Or(benchNames[name], name) }

func (b *bench) Find(_ *shim.Call, match func(wire.HardwareDevice) bool) (string, bool) {
	for _, serial := range []string{"7", "9"} {
		d := wire.HardwareDevice{Type: "usb", ID: "usb:2341:0043-" + serial, VID: "2341", PID: "0043", SerialNumber: serial}
		if match(d) {
			return d.ID, true
		}
	}
	return "", false
}

func (b *bench) key(device, part string) string { return device + "#" + part }

func (b *bench) Held(device, part string) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.leases[b.key(device, part)]; l != nil {
		return l.ctx
	}
	return nil
}

func (b *bench) Release(_ context.Context, device, part string) error {
	b.end(b.key(device, part), stream.Cause(wire.HardwareTransferFailed, stream.ReasonReleased, "released"))
	b.mu.Lock()
	released := b.released
	b.mu.Unlock()
	if released != nil {
		released <- b.key(device, part)
	}
	return nil
}

// hold is a lease of this key, as HARDWARE_OP would have it.
func (b *bench) hold(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leases[key] == nil {
		l := &benchLease{}
		l.ctx, l.end = context.WithCancelCause(context.Background())
		b.leases[key] = l
	}
}

func (b *bench) end(key string, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.leases[key]; l != nil {
		l.end(cause)
		delete(b.leases, key)
	}
}

func (b *bench) held() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.leases))
}

// asked is what Do was asked since the last call.
func (b *bench) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ops := b.ops
	b.ops = nil
	return ops
}

func (b *bench) Do(ctx context.Context, _ *shim.Call, op wire.HardwareOp) (wire.HardwareResult, error) {
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	var err error
	if before != nil {
		err = before(ctx, op)
	}
	text := op.Device + " " + op.Op
	if len(op.Args) > 0 {
		text += " " + string(op.Args)
	}
	if op.Hold {
		text += " hold"
	}
	b.mu.Lock()
	b.ops = append(b.ops, text)
	b.mu.Unlock()
	if err != nil {
		return wire.HardwareResult{}, err
	}
	var args struct {
		Line string `json:"line"`
		Data []byte `json:"data"`
	}
	if len(op.Args) > 0 {
		if err := json.Unmarshal(op.Args, &args); err != nil {
			return wire.HardwareResult{}, err
		}
	}
	device := b.CanonicalID(op.Device)
	r := wire.HardwareResult{Device: device, Generation: 1, Result: benchResult(op.Op, args.Data)}
	if op.Hold {
		b.hold(b.key(device, args.Line))
	}
	if op.Op == wire.OpRelease {
		b.end(b.key(device, args.Line), stream.Cause(wire.HardwareTransferFailed, stream.ReasonReleased, "released"))
	}
	return r, nil
}

func benchResult(op string, data []byte) any {
	switch op {
	case wire.OpSerialControl:
		return wire.SerialLines{}
	case wire.OpSerialWrite:
		return wire.SerialWritten{BytesWritten: len(data)}
	case wire.OpSerialRead:
		return wire.SerialData{Data: []byte("got"), TimedOut: true, InWaiting: 2, StopReason: "timeout"}
	case wire.OpUSBDescribe:
		return wire.USBDescription{ActiveConfiguration: 2, Configurations: []wire.USBConfiguration{
			{Value: 1, Interfaces: []wire.USBInterface{{Number: 5}}},
			{Value: 2, Interfaces: []wire.USBInterface{{Number: 0}, {Number: 1, Driver: "usbhid"}, {Number: 2, Driver: "usbfs"}}},
		}}
	case wire.OpUSBSend:
		return wire.USBTransferred{Data: []byte{}, BytesTransferred: len(data)}
	case wire.OpUSBReceive:
		return wire.USBTransferred{Data: []byte("in"), BytesTransferred: 2, TimedOut: true}
	case wire.OpGPIOConfigure:
		return wire.GPIOConfigured{Lines: []wire.GPIOLineState{{GPIOValue: wire.GPIOValue{Line: 17}}}}
	case wire.OpGPIOSet, wire.OpGPIOGet:
		return wire.GPIOValues{Value: new(1)}
	}
	return wire.Released{Released: true}
}

// withHandles is a session on a platform that grants these, with its hardware.
func withHandles(t *testing.T, granted ...wire.Capability) (*rig, *bench, *shimtest.Socket) {
	t.Helper()
	r, b := newRig(t), newBench()
	hello := r.cfg.Hello
	r.cfg.Hello = func(ctx context.Context, k wire.Channel, root string) (wire.Hello, error) {
		h, err := hello(ctx, k, root)
		h.Capabilities = append(wire.Capabilities{wire.Files}, granted...)
		return h, err
	}
	r.platform.Extensions = granted
	r.cfg.Open = func(_ context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
		h := shim.NewHandles(s, b)
		r.opened <- s
		return h.Methods(), h, nil
	}
	data, _ := r.data(r.start(), "s")
	return r, b, data
}

var allFamilies = []wire.Capability{wire.HardwareSerial, wire.HardwareUSB, wire.HardwareGPIO}

// openHandle opens one of the class and checks its form.
func openHandle(t *testing.T, s *shimtest.Socket, typ wire.Type, payload map[string]any) string {
	t.Helper()
	e := s.Call(typ, payload)
	var v wire.Handle
	if err := json.Unmarshal(e.Payload, &v); err != nil || e.Type == wire.TError {
		t.Fatalf("%s %v: %s %s", typ, payload, e.Type, e.Payload)
	}
	prefix := map[wire.Type]string{wire.TSerialOpen: "ser_", wire.TUSBOpen: "usb_", wire.TGPIOConfigure: "gpio_"}[typ]
	if id, ok := strings.CutPrefix(v.Handle, prefix); !ok || len(id) != 36 {
		t.Fatalf("the handle is %q", v.Handle)
	}
	return v.Handle
}

func openPort(t *testing.T, s *shimtest.Socket) string {
	t.Helper()
	return openHandle(t, s, wire.TSerialOpen, map[string]any{"port": "/dev/ttyUSB0", "timeout_seconds": 2})
}

func openLine(t *testing.T, s *shimtest.Socket) string {
	t.Helper()
	return openHandle(t, s, wire.TGPIOConfigure, map[string]any{"chip": "/dev/gpiochip0", "line": 17, "direction": "out", "initial_value": 1, "pull": "up"})
}

func openUSB(t *testing.T, s *shimtest.Socket) string {
	t.Helper()
	return openHandle(t, s, wire.TUSBOpen, map[string]any{"vid": "2341", "pid": "0043", "interface": 1, "detach_kernel_driver": true})
}

// TestHandlesAreOperations: what each message becomes, and what becomes of the
// result.
func TestHandlesAreOperations(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	handles := map[string]string{
		"S": openPort(t, s), "U": openUSB(t, s), "G": openLine(t, s),
	}
	want := []string{
		`/dev/ttyUSB0 SERIAL_CONTROL {"mode":{}} hold`,
		benchUSB + ` USB_DESCRIBE {} hold`,
		`/dev/gpiochip0 GPIO_CONFIGURE {"line":"17","direction":"out","initial_value":1,"active_low":false} hold`,
	}
	if got := b.asked(); !slices.Equal(got, want) {
		t.Errorf("opening is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, x := range []struct {
		typ     wire.Type
		payload string
		op      string
		answer  string
	}{
		{wire.TSerialWrite, `{"handle":"S","data":"AAEC","drain":true}`, benchPort + ` SERIAL_WRITE {"data":"AAEC","drain":true,"timeout_seconds":25}`, `{"ok":true,"bytes_written":3}`},
		{wire.TSerialWrite, `{"handle":"S","data":""}`, benchPort + ` SERIAL_WRITE {"data":"","timeout_seconds":25}`, `{"ok":true,"bytes_written":0}`},
		{wire.TSerialRead, `{"handle":"S","size":9,"until":"Cg=="}`, benchPort + ` SERIAL_READ {"size":9,"timeout_seconds":2,"until":"Cg=="}`, `{"data":"Z290","timed_out":true,"in_waiting":2}`},
		{wire.TSerialRead, `{"handle":"S","size":9,"timeout_seconds":0.5,"until":null}`, benchPort + ` SERIAL_READ {"size":9,"timeout_seconds":0.5}`, `{"data":"Z290","timed_out":true,"in_waiting":2}`},
		{wire.TSerialRead, `{"handle":"S","size":9,"timeout_seconds":3600}`, benchPort + ` SERIAL_READ {"size":9,"timeout_seconds":25}`, `{"data":"Z290","timed_out":true,"in_waiting":2}`},
		{wire.TUSBTransfer, `{"handle":"U","endpoint":1,"direction":"out","data":"AAEC"}`, benchUSB + ` USB_SEND {"interface":1,"endpoint":1,"data":"AAEC","timeout_seconds":5,"detach_kernel_driver":true}`, `{"data":"","bytes_transferred":3,"timed_out":false}`},
		{wire.TUSBTransfer, `{"handle":"U","endpoint":"0x81","direction":"in","data":"AAEC","size":64,"timeout_seconds":0}`, benchUSB + ` USB_RECEIVE {"interface":1,"endpoint":129,"size":64,"timeout_seconds":0.001,"detach_kernel_driver":true}`, `{"data":"aW4=","bytes_transferred":2,"timed_out":true}`},
		{wire.TGPIOWrite, `{"handle":"G","value":0}`, benchChip + ` GPIO_SET {"line":"17","value":0}`, `{"ok":true}`},
		{wire.TGPIOWrite, `{"handle":"G","value":true}`, benchChip + ` GPIO_SET {"line":"17","value":1}`, `{"ok":true}`},
		{wire.TGPIORead, `{"handle":"G"}`, benchChip + ` GPIO_GET {"line":"17"}`, `{"value":1}`},
		{wire.TSerialClose, `{"handle":"S"}`, benchPort + ` RELEASE`, `{"ok":true}`},
		{wire.TUSBClose, `{"handle":"U"}`, benchUSB + ` RELEASE`, `{"ok":true}`},
		{wire.TGPIOClose, `{"handle":"G"}`, benchChip + ` RELEASE {"line":"17"}`, `{"ok":true}`},
	} {
		payload := x.payload
		for short, id := range handles {
			payload = strings.Replace(payload, `"`+short+`"`, `"`+id+`"`, 1)
		}
		e := s.Call(x.typ, json.RawMessage(payload))
		if got := b.asked(); string(e.Payload) != x.answer || !slices.Equal(got, []string{x.op}) {
			t.Errorf("%s %s\n     is %q\n   want %q\nanswer %s %s\n   want %s", x.typ, x.payload, got, x.op, e.Type, e.Payload, x.answer)
		}
	}
	if held := b.held(); len(held) != 0 {
		t.Errorf("%v is still held", held)
	}
}

// TestHandleDefaults: everything that SERIAL_OPEN and GPIO_CONFIGURE say arrives,
// and what they leave out is left to the service.
func TestHandleDefaults(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	openHandle(t, s, wire.TSerialOpen, map[string]any{"port": benchPort, "baudrate": 9600, "bytesize": 7, "parity": "even", "stopbits": 1.5, "rtscts": true, "dsrdtr": false, "xonxoff": true, "unknown": 1})
	openHandle(t, s, wire.TUSBOpen, map[string]any{"vid": 0x2341, "pid": "0x43", "serial_number": "9"})
	openHandle(t, s, wire.TGPIOConfigure, map[string]any{"chip": benchChip, "line": 17, "initial_value": 1, "pull": "up", "active_low": true})
	want := []string{
		benchPort + ` SERIAL_CONTROL {"mode":{"baudrate":9600,"bytesize":7,"parity":"even","stopbits":1.5,"rtscts":true,"dsrdtr":false,"xonxoff":true}} hold`,
		benchOther + ` USB_DESCRIBE {} hold`,
		benchChip + ` GPIO_CONFIGURE {"line":"17","pull":"up","active_low":true} hold`,
	}
	if got := b.asked(); !slices.Equal(got, want) {
		t.Errorf("opening is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestHandlesRefuse: what can't be meant never reaches the device, and what can't
// be used isn't kept.
func TestHandlesRefuse(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	u, g := openUSB(t, s), openLine(t, s)
	b.asked()
	for _, x := range []struct {
		typ     wire.Type
		payload map[string]any
		code    wire.Code
	}{
		{wire.TSerialOpen, map[string]any{"port": benchPort, "timeout_seconds": -1}, wire.InvalidArgument},
		{wire.TSerialOpen, map[string]any{"port": 7}, wire.InternalError},
		{wire.TSerialRead, map[string]any{"handle": nil}, wire.SerialStale},
		{wire.TUSBOpen, map[string]any{"vid": "xyzw", "pid": "0043"}, wire.InternalError},
		{wire.TUSBTransfer, map[string]any{"handle": u, "endpoint": 1, "direction": "sideways"}, wire.InvalidArgument},
		{wire.TUSBTransfer, map[string]any{"handle": u, "endpoint": 0, "direction": "in"}, wire.InvalidArgument},
		{wire.TGPIOConfigure, map[string]any{"chip": benchChip, "line": -1}, wire.InvalidArgument},
		{wire.TGPIOConfigure, map[string]any{"chip": benchChip, "line": "x"}, wire.InternalError},
		{wire.TGPIOWrite, map[string]any{"handle": g}, wire.InvalidArgument},
		{wire.TGPIOWrite, map[string]any{"handle": g, "value": 2}, wire.InternalError},
	} {
		wantError(t, s.Call(x.typ, x.payload), x.code)
	}
	if got := b.asked(); len(got) != 0 {
		t.Errorf("the hardware was asked %q", got)
	}
	// The second one is there: what its interface is in use by says the description.
	other := func(iface int, detach bool) wire.Envelope {
		return s.Call(wire.TUSBOpen, map[string]any{"vid": "2341", "pid": "0043", "serial_number": "9", "interface": iface, "detach_kernel_driver": detach})
	}
	if d := wantError(t, other(1, false), wire.HardwareBusy); d["consumer"] != "usbhid" || d["hint"] == nil {
		t.Errorf("details %v", d)
	}
	wantError(t, other(2, true), wire.HardwareBusy)
	wantError(t, other(5, false), wire.InvalidArgument) // of another configuration
	if held := b.held(); !slices.Equal(held, []string{"gpio:chip#17", benchUSB + "#"}) {
		t.Errorf("held is %v", held)
	}
	// An operation that fails may have kept its device all the same.
	b.before = func(_ context.Context, op wire.HardwareOp) error {
		b.hold(op.Device + "#")
		return wire.Errorf(wire.HardwareOpenFailed, "broken").With("os_error", "EIO")
	}
	if d := wantError(t, s.Call(wire.TSerialOpen, map[string]any{"port": benchPort}), wire.HardwareOpenFailed); d["os_error"] != "EIO" {
		t.Errorf("details %v", d)
	}
	if held := b.held(); slices.Contains(held, benchPort+"#") {
		t.Errorf("held is %v", held)
	}
}

// TestHandlesStale: a handle that is unknown, of another class, closed, or whose
// lease has ended.
func TestHandlesStale(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	wantStale := func(e wire.Envelope, code wire.Code, reason any) {
		t.Helper()
		d := wantError(t, e, code)
		if d["reason"] != reason || d["handle"] == nil || d["op"] == nil || !strings.Contains(fmt.Sprint(d["hint"]), "makes a new one") {
			t.Errorf("details %v, want the reason %v", d, reason)
		}
	}
	port, line := openPort(t, s), openLine(t, s)
	read := func(handle string) wire.Envelope { return s.Call(wire.TSerialRead, map[string]any{"handle": handle}) }
	wantStale(read("ser_nothing"), wire.SerialStale, nil)
	wantStale(read(strings.Repeat("x", 1000)), wire.SerialStale, nil)
	wantStale(read(line), wire.SerialStale, nil)
	wantStale(s.Call(wire.TGPIORead, map[string]any{"handle": port}), wire.GPIOStale, nil)
	wantStale(s.Call(wire.TUSBTransfer, map[string]any{"handle": port, "direction": "in"}), wire.USBStale, nil)
	s.Call(wire.TSerialClose, map[string]any{"handle": port})
	wantStale(s.Call(wire.TSerialClose, map[string]any{"handle": port}), wire.SerialStale, nil)

	for reason, cause := range map[string]error{
		"idle":          stream.Cause(wire.HardwareTransferFailed, stream.ReasonIdle, "not used for too long"),
		"grant_revoked": stream.Cause(wire.HardwareNotGranted, stream.ReasonGrantRevoked, "no longer granted"),
		"device_gone":   wire.Errorf(wire.DeviceGone, "unplugged"),
	} {
		port = openPort(t, s)
		b.end(benchPort+"#", cause)
		b.asked()
		wantStale(read(port), wire.SerialStale, reason)
		wantStale(read(port), wire.SerialStale, nil)
		if got := b.asked(); len(got) != 0 {
			t.Errorf("with a stale handle the hardware was asked %q", got)
		}
	}
	// That another lease is there by now doesn't bring a handle back.
	port = openPort(t, s)
	b.end(benchPort+"#", nil)
	b.hold(benchPort + "#")
	wantStale(read(port), wire.SerialStale, nil)
	if held := b.held(); !slices.Contains(held, benchPort+"#") {
		t.Error("the other lease is gone")
	}
}

// TestHandleOfWhatIsGone: DEVICE_GONE is for the operation that finds out.
func TestHandleOfWhatIsGone(t *testing.T) {
	for _, found := range []error{
		wire.Errorf(wire.DeviceGone, "unplugged"),
		fmt.Errorf("wrapped: %w", wire.DeviceGone),
		wire.Errorf(wire.HardwareNotFound, "no such device"), // the list knew first
	} {
		_, b, s := withHandles(t, allFamilies...)
		port := openPort(t, s)
		b.mu.Lock()
		b.before = func(context.Context, wire.HardwareOp) error { return found }
		b.mu.Unlock()
		wantError(t, s.Call(wire.TSerialWrite, map[string]any{"handle": port, "data": "AA=="}), wire.DeviceGone)
		wantError(t, s.Call(wire.TSerialWrite, map[string]any{"handle": port, "data": "AA=="}), wire.SerialStale)
		if held := b.held(); len(held) != 0 {
			t.Errorf("%v is still held", held)
		}
	}
	// Another failure leaves it open.
	_, b, s := withHandles(t, allFamilies...)
	line := openLine(t, s)
	b.mu.Lock()
	b.before = func(context.Context, wire.HardwareOp) error {
		return wire.Errorf(wire.HardwareTransferFailed, "broken")
	}
	b.mu.Unlock()
	wantError(t, s.Call(wire.TGPIORead, map[string]any{"handle": line}), wire.HardwareTransferFailed)
	wantError(t, s.Call(wire.TGPIOClose, map[string]any{"handle": line}), wire.HardwareTransferFailed)
	b.mu.Lock()
	b.before = nil
	b.mu.Unlock()
	decodeTo[wire.GPIOReadResponse](t, s.Call(wire.TGPIORead, map[string]any{"handle": line}), wire.TGPIOReadResponse)
}

// TestHandleEndsUnderWay: what runs when its lease ends ends with the cause, and
// what begins too late doesn't run under the next lease.
func TestHandleEndsUnderWay(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	port := openPort(t, s)
	begun := make(chan struct{})
	b.mu.Lock()
	b.before = func(ctx context.Context, _ wire.HardwareOp) error {
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	b.mu.Unlock()
	id := s.Request(wire.TSerialRead, map[string]any{"handle": port})
	<-begun
	b.end(benchPort+"#", stream.Cause(wire.HardwareNotGranted, stream.ReasonGrantRevoked, "no longer granted"))
	if d := wantError(t, s.Wait(id), wire.HardwareNotGranted); d["reason"] != "grant_revoked" {
		t.Errorf("details %v", d)
	}
	wantError(t, s.Call(wire.TSerialRead, map[string]any{"handle": port}), wire.SerialStale)
}

// TestHandlesBusy: one handle for one thing, and none for what HARDWARE_OP keeps.
func TestHandlesBusy(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	port := openPort(t, s)
	openLine(t, s)
	for _, again := range []wire.Envelope{
		s.Call(wire.TSerialOpen, map[string]any{"port": benchPort}), // by another name
		s.Call(wire.TGPIOConfigure, map[string]any{"chip": benchChip, "line": 17}),
	} {
		if d := wantError(t, again, wire.HardwareBusy); d["holder"] != "this session" || d["hint"] == nil {
			t.Errorf("details %v", d)
		}
	}
	decodeTo[wire.Ack](t, s.Call(wire.TSerialClose, map[string]any{"handle": port}), wire.TAck)
	b.hold(benchPort + "#")
	if d := wantError(t, s.Call(wire.TSerialOpen, map[string]any{"port": benchPort}), wire.HardwareBusy); !strings.Contains(fmt.Sprint(d["hint"]), "RELEASE") {
		t.Errorf("details %v", d)
	}
	if held := b.held(); !slices.Contains(held, benchPort+"#") {
		t.Error("what HARDWARE_OP kept is gone")
	}
	b.end(benchPort+"#", nil)
	openPort(t, s)
}

// TestHandlesAreBounded: one more than the most is refused; what has ended makes
// room.
func TestHandlesAreBounded(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	open := func(n int) wire.Envelope {
		return s.Call(wire.TSerialOpen, map[string]any{"port": fmt.Sprintf("serial:%d", n)})
	}
	for n := range wire.MaxHandles {
		decodeTo[wire.SerialOpenResponse](t, open(n), wire.TSerialOpenResponse)
	}
	d := wantError(t, open(wire.MaxHandles), wire.HardwareOpenFailed)
	if d["reason"] != "too_many_handles" || d["max_handles"] != float64(wire.MaxHandles) {
		t.Errorf("details %v", d)
	}
	b.end("serial:5#", nil)
	decodeTo[wire.SerialOpenResponse](t, open(wire.MaxHandles), wire.TSerialOpenResponse)
	wantError(t, open(5), wire.HardwareOpenFailed)
}

// TestHandlesEndWithTheirSocket: they are given back before the next one is
// dialled, where they mean nothing.
func TestHandlesEndWithTheirSocket(t *testing.T) {
	r, b, s := withHandles(t, allFamilies...)
	held := make(chan []string, 10)
	r.platform.Script(func() {
		r.platform.Upgrade = func(*http.Request) int {
			held <- b.held()
			return 0
		}
	})
	port, line := openPort(t, s), openLine(t, s)
	openHandle(t, s, wire.TSerialOpen, map[string]any{"port": "serial:kept by HARDWARE_OP"})
	b.end("serial:kept by HARDWARE_OP#", nil) // and not seen to be stale
	b.hold("serial:kept by HARDWARE_OP#")
	s.Drop()
	r.shim.Wake() // without the wait between two attempts
	s = r.platform.Next()
	if got := <-held; !slices.Equal(got, []string{"serial:kept by HARDWARE_OP#"}) {
		t.Errorf("when it dials again, %v is held", got)
	}
	if s.Session != "s" {
		t.Fatalf("a socket of %q", s.Session)
	}
	wantError(t, s.Call(wire.TSerialRead, map[string]any{"handle": port}), wire.SerialStale)
	wantError(t, s.Call(wire.TGPIOClose, map[string]any{"handle": line}), wire.GPIOStale)
	openPort(t, s)
	openLine(t, s)
	// And with the session.
	r.stop()
	if got := b.held(); !slices.Equal(got, []string{"serial:kept by HARDWARE_OP#"}) {
		t.Errorf("after the end %v is held", got)
	}
}

// TestHandleNobodyIsTold: the socket is lost while its device is being opened,
// which goes on longer than anybody waits.
func TestHandleNobodyIsTold(t *testing.T) {
	r, b, s := withHandles(t, allFamilies...)
	begun, goOn := make(chan struct{}), make(chan struct{})
	b.mu.Lock()
	b.released = make(chan string, 10)
	b.before = func(context.Context, wire.HardwareOp) error {
		close(begun)
		<-goOn
		return nil
	}
	b.mu.Unlock()
	s.Request(wire.TSerialOpen, map[string]any{"port": benchPort})
	<-begun
	s.Drop()
	r.shim.Wake() // without the wait between two attempts
	s = r.platform.Next()
	wantError(t, s.Call(wire.TSerialOpen, map[string]any{"port": benchPort}), wire.HardwareBusy)
	b.mu.Lock()
	b.before = nil
	b.mu.Unlock()
	close(goOn)
	if got := <-b.released; got != benchPort+"#" {
		t.Errorf("%s is given back", got)
	}
	if got := b.held(); len(got) != 0 {
		t.Errorf("%v is held", got)
	}
}

// TestHandleCallIsCancelled: what a call waits for ends with the call, not only
// with the lease.
func TestHandleCallIsCancelled(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	port := openPort(t, s)
	lease := b.Held(benchPort, "")
	begun, ended := make(chan struct{}), make(chan error, 1)
	b.mu.Lock()
	b.before = func(ctx context.Context, _ wire.HardwareOp) error {
		close(begun)
		<-ctx.Done()
		ended <- lease.Err()
		return context.Cause(ctx)
	}
	b.mu.Unlock()
	s.Request(wire.TSerialRead, map[string]any{"handle": port})
	<-begun
	s.Drop()
	if err := <-ended; err != nil {
		t.Error("it waits for the end of the lease")
	}
}

// TestHandlesKeepTheOrder: on one device the order of the wire, by whatever
// message; other devices don't wait.
func TestHandlesKeepTheOrder(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	port, line := openPort(t, s), openLine(t, s)
	b.asked()
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	b.mu.Lock()
	b.before = func(_ context.Context, op wire.HardwareOp) error {
		if op.Op == wire.OpSerialRead {
			begun <- struct{}{}
			<-goOn
		}
		return nil
	}
	b.mu.Unlock()
	read := s.Request(wire.TSerialRead, map[string]any{"handle": port, "size": 1})
	<-begun
	write := s.Request(wire.TSerialWrite, map[string]any{"handle": port, "data": "AA=="})
	end := s.Request(wire.TSerialClose, map[string]any{"handle": port})
	decodeTo[wire.GPIOReadResponse](t, s.Call(wire.TGPIORead, map[string]any{"handle": line}), wire.TGPIOReadResponse)
	close(goOn)
	for _, id := range []string{read, write, end} {
		if e := s.Wait(id); e.Type == wire.TError {
			t.Errorf("%s %s", e.Type, e.Payload)
		}
	}
	var order []string
	for _, op := range b.asked() {
		order = append(order, strings.Fields(op)[1])
	}
	if got := strings.Join(order, " "); got != "GPIO_GET SERIAL_READ SERIAL_WRITE RELEASE" {
		t.Errorf("the order is %s", got)
	}
}

// TestHandlesNeedTheirCapability: a platform that didn't grant a class of devices
// gets the same refusal as ever, and its device isn't asked.
func TestHandlesNeedTheirCapability(t *testing.T) {
	for _, granted := range [][]wire.Capability{nil, {wire.HardwareI2C}, {wire.HardwareUSB}} {
		_, b, s := withHandles(t, granted...)
		for _, m := range wire.Methods() {
			if _, ours := (&shim.Handles{}).Methods()[m.Request]; !ours || slices.Contains(granted, m.Capability) {
				continue
			}
			d := wantError(t, s.Call(m.Request, map[string]any{"port": benchPort, "chip": benchChip, "vid": "2341", "pid": "0043"}), wire.CapabilityNotGranted)
			if d["required_capability"] != string(m.Capability) {
				t.Errorf("%s: details %v", m.Request, d)
			}
		}
		if got := b.asked(); len(got) != 0 {
			t.Errorf("the hardware was asked %q", got)
		}
	}
}

// TestHandleOfAPanic: what panicked while it was being opened isn't open.
func TestHandleOfAPanic(t *testing.T) {
	_, b, s := withHandles(t, allFamilies...)
	b.mu.Lock()
	b.before = func(context.Context, wire.HardwareOp) error { panic("a bug") }
	b.mu.Unlock()
	wantError(t, s.Call(wire.TSerialOpen, map[string]any{"port": benchPort}), wire.InternalError)
	b.mu.Lock()
	b.before = nil
	b.mu.Unlock()
	openPort(t, s)
}
