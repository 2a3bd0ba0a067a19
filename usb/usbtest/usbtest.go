// Package usbtest is the conformance suite of USB devices behind the operations:
// what is sent comes back, every wait ends, drivers get back what was taken from
// them, and failures say what they are. The simulated devices and those of a
// real kernel pass the same cases.
package usbtest

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/stream"
	"farhand/usb"
	"farhand/wire"
)

// Bench is a device under test, plugged in. It has, in this order or another: a
// vendor-specific interface whose bulk endpoints are a loopback of at most
// 128 KiB, a HID interface with an interrupt IN endpoint and reports of 8 bytes
// without number that usbhid has bound, and the two interfaces of a serial port
// that cdc_acm has bound.
type Bench struct {
	Family device.Family
	ID     string
	// Report has the device send an input report.
	Report func(data []byte)
	// SetReport says whether the device takes output reports by a control
	// transfer; if not, the suite asserts that it stalls.
	SetReport bool
	// Unplug takes the device away, and Replug brings it back.
	Unplug, Replug func()
}

const patience = 20 * time.Second

// Run runs the suite; open makes a fresh bench for each case and cleans up after
// itself with t.Cleanup.
func Run(t *testing.T, open func(t testing.TB) Bench) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *desk)
	}{
		{"Describe", testDescribe},
		{"Strings", testStrings},
		{"Loopback", testLoopback},
		{"SizeBelowPacket", testSizeBelowPacket},
		{"ReceiveTimeout", testReceiveTimeout},
		{"SendTimeout", testSendTimeout},
		{"Cancel", testCancel},
		{"Release", testReleaseWhileReceiving},
		{"Control", testControl},
		{"Stall", testStall},
		{"KernelDriver", testKernelDriver},
		{"DriverOfTwoInterfaces", testDriverOfTwo},
		{"DetachNotGranted", testDetachNotGranted},
		{"FailureGivesDriverBack", testFailureGivesBack},
		{"HID", testHID},
		{"Watch", testWatch},
		{"WatchReports", testWatchReports},
		{"Reset", testReset},
		{"Configure", testConfigure},
		{"Lease", testLease},
		{"UnplugWhileReceiving", testUnplugWhileReceiving},
		{"UnplugWhileWatching", testUnplugWhileWatching},
		{"RefusedArguments", testRefusedArguments},
	} {
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			c.run(t, newDesk(t, open(t)))
		})
	}
}

// desk is a bench behind a dispatcher, and where its functions are.
type desk struct {
	Bench
	reg    *device.Registry
	leases *device.Leases
	disp   *device.Dispatcher
	hub    *stream.Hub
	may    func(id, op string, parts []device.Part) error

	loop, hid, comm, data wire.USBInterface
}

func newDesk(t *testing.T, b Bench) *desk {
	t.Helper()
	d := &desk{Bench: b, hub: stream.NewHub(stream.HubOptions{})}
	d.reg = device.NewRegistry(device.Options{Families: []device.Family{b.Family}})
	d.leases = device.NewLeases(device.LeaseOptions{Linger: time.Minute})
	d.disp = device.NewDispatcher(d.reg, d.leases, d.hub)
	t.Cleanup(func() {
		d.leases.Close()
		d.hub.Close()
	})
	if err := d.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, i := range d.describe(t, false).Configurations[0].Interfaces {
		switch {
		case i.Alternate != 0:
		case i.Class == "ff":
			d.loop = i
		case i.Class == "03":
			d.hid = i
		case i.Class == "02":
			d.comm = i
		case i.Class == "0a":
			d.data = i
		}
	}
	d.release(t, "desk")
	return d
}

// try runs an operation in a session.
func (d *desk) try(ctx context.Context, t *testing.T, session, op string, args any, hold bool) (any, error) {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	caller := device.Caller{Session: session, Holder: "h", Name: session, Streams: true, Allow: d.may}
	res, _, err := d.disp.Do(ctx, caller, wire.HardwareOp{Device: d.ID, Op: op, Args: raw, Hold: hold})
	return res.Result, err
}

// do is try for what must succeed.
func do[R any](d *desk, t *testing.T, op string, args any) R {
	t.Helper()
	result, err := d.try(t.Context(), t, "a", op, args, false)
	if err != nil {
		t.Fatalf("%s: %v %v", op, err, wire.AsError(err).Details)
	}
	r, ok := result.(R)
	if !ok {
		t.Fatalf("%s answers a %T", op, result)
	}
	return r
}

// fails asserts an error's code, and answers its details.
func (d *desk) fails(t *testing.T, code wire.Code, op string, args any) map[string]any {
	t.Helper()
	_, err := d.try(t.Context(), t, "a", op, args, false)
	e := wire.CodeOf(err)
	if e != code {
		t.Errorf("%s %+v answers %v, want %s", op, args, err, code)
	}
	if err == nil {
		return nil
	}
	return wire.AsError(err).Details
}

func (d *desk) describe(t *testing.T, strings bool) wire.USBDescription {
	t.Helper()
	result, err := d.try(t.Context(), t, "desk", wire.OpUSBDescribe, wire.USBDescribe{Strings: strings}, false)
	if err != nil {
		t.Fatal(err)
	}
	return result.(wire.USBDescription)
}

// release gives the device back, and waits until all has been undone.
func (d *desk) release(t *testing.T, session string) {
	t.Helper()
	if _, err := d.try(t.Context(), t, session, wire.OpRelease, nil, false); err != nil {
		t.Fatal(err)
	}
}

// driver is what has an interface now.
func (d *desk) driver(t *testing.T, number int) string {
	t.Helper()
	look, err := d.reg.Resolve(d.ID)
	if err != nil {
		t.Fatal(err)
	}
	// Asked for in a session of its own the device would have to be free.
	h, err := d.host().Open(look)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	driver, err := h.Driver(number)
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

// host is where the bench's devices are.
func (d *desk) host() usb.Host {
	return d.Family.Service.(*usb.Service).Host()
}

func seconds(s float64) *float64   { return &s }
func number(n int) *wire.USBNumber { v := wire.USBNumber(n); return &v }
func in(i wire.USBInterface) int   { return address(i, "in") }
func out(i wire.USBInterface) int  { return address(i, "out") }
func address(i wire.USBInterface, direction string) int {
	for _, e := range i.Endpoints {
		if e.Direction == direction {
			return e.Address
		}
	}
	return 0
}

// pattern is n bytes of which every value occurs and none repeats soon.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// buffer is one of those in which a loopback keeps what it gets: it sends it back
// when the buffer is full, or a packet isn't.
const buffer = 4096

const packet = 512

// send sends data so that all of it comes back.
func (d *desk) send(t *testing.T, data []byte) {
	t.Helper()
	r := do[wire.USBTransferred](d, t, wire.OpUSBSend, wire.USBSend{
		Interface: number(d.loop.Number), Endpoint: wire.USBNumber(out(d.loop)), Data: data,
		ZeroPacket: len(data)%buffer != 0, TimeoutSeconds: seconds(10)})
	if r.BytesTransferred != len(data) || r.TimedOut {
		t.Fatalf("sent %d of %d bytes, timed out: %v", r.BytesTransferred, len(data), r.TimedOut)
	}
}

func (d *desk) receive(t *testing.T, size int, timeout float64) wire.USBTransferred {
	t.Helper()
	r := do[wire.USBTransferred](d, t, wire.OpUSBReceive, wire.USBReceive{
		Interface: number(d.loop.Number), Endpoint: wire.USBNumber(in(d.loop)), Size: size, TimeoutSeconds: seconds(timeout)})
	if r.BytesTransferred != len(r.Data) || r.Data == nil {
		t.Errorf("%d bytes of data, bytes_transferred %d", len(r.Data), r.BytesTransferred)
	}
	return r
}

// echoes asserts that data comes back.
func (d *desk) echoes(t *testing.T, data []byte) {
	t.Helper()
	d.send(t, data)
	var got []byte
	for len(got) < len(data) {
		size := len(data) - len(got)
		if len(data)%packet == 0 && len(data)%buffer != 0 {
			size += packet // room for the empty packet that ends it
		}
		r := d.receive(t, size, 10)
		if r.TimedOut {
			t.Fatalf("%d of %d bytes came back", len(got)+len(r.Data), len(data))
		}
		got = append(got, r.Data...)
	}
	if !bytes.Equal(got, data) {
		t.Errorf("of %d bytes others came back", len(data))
	}
}
