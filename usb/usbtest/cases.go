package usbtest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"farhand/device"
	"farhand/stream"
	"farhand/wire"
)

func testDescribe(t *testing.T, d *desk) {
	r := d.describe(t, false)
	desc, err := d.reg.Resolve(d.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r.VID != desc.VID || r.PID != desc.PID || r.SpeedMbps < 12 || r.MaxPacket0 < 8 || r.ActiveConfiguration != r.Configurations[0].Value || r.Damaged != "" {
		t.Errorf("the device is %+v", r)
	}
	if r.SerialNumber.State != wire.USBStringPresent || r.SerialNumber.Value != desc.SerialNumber || r.SerialNumber.Raw != "" {
		t.Errorf("the serial number is %+v, want %q", r.SerialNumber, desc.SerialNumber)
	}
	for name, i := range map[string]wire.USBInterface{"loop": d.loop, "hid": d.hid, "comm": d.comm, "data": d.data} {
		if i.Class == "" || len(i.Endpoints) == 0 {
			t.Errorf("the interface for %s is %+v", name, i)
		}
	}
	if d.loop.Driver != "" || d.hid.Driver != "usbhid" || d.comm.Driver != "cdc_acm" || d.data.Driver != "cdc_acm" {
		t.Errorf("the drivers are %q, %q, %q, %q", d.loop.Driver, d.hid.Driver, d.comm.Driver, d.data.Driver)
	}
	if d.hid.HID == nil || d.hid.HID.ReportDescriptor == 0 || d.hid.ClassName != "HID" {
		t.Errorf("the HID interface is %+v", d.hid)
	}
	for _, e := range d.loop.Endpoints {
		if e.Type != "bulk" || e.MaxPacket != 512 || e.Direction == "in" != (e.Address >= 0x80) || !strings.HasPrefix(e.Hex, "0x") {
			t.Errorf("an endpoint of the loopback is %+v", e)
		}
	}
}

func testStrings(t *testing.T, d *desk) {
	for _, s := range []wire.USBString{d.describe(t, true).SerialNumber, d.describe(t, true).Product} {
		raw, err := hex.DecodeString(s.Raw)
		if s.State != wire.USBStringPresent || err != nil || len(raw) != 2*len(s.Value) || raw[0] != s.Value[0] || raw[1] != 0 {
			t.Errorf("a string read from the device is %+v", s)
		}
	}
}

func testLoopback(t *testing.T, d *desk) {
	for _, n := range []int{1, 511, 512, 513, 4095, 4096, 20000, 65536} {
		d.echoes(t, pattern(n))
	}
	// The interface is found by the endpoint, and the endpoint by the interface.
	data := []byte("found")
	do[wire.USBTransferred](d, t, wire.OpUSBSend, wire.USBSend{Interface: number(d.loop.Number), Data: data})
	r := do[wire.USBTransferred](d, t, wire.OpUSBReceive, wire.USBReceive{Endpoint: wire.USBNumber(in(d.loop) & 0xf), TimeoutSeconds: seconds(10)})
	if !bytes.Equal(r.Data, data) {
		t.Errorf("received %q", r.Data)
	}
}

func testSizeBelowPacket(t *testing.T, d *desk) {
	data := pattern(100)
	d.send(t, data)
	if r := d.receive(t, 10, 10); !bytes.Equal(r.Data, data[:10]) || r.InWaiting != 90 {
		t.Errorf("received %d bytes, %d wait", len(r.Data), r.InWaiting)
	}
	if r := d.receive(t, 60, 10); !bytes.Equal(r.Data, data[10:70]) || r.InWaiting != 30 {
		t.Errorf("then %d bytes, %d wait", len(r.Data), r.InWaiting)
	}
	if r := d.receive(t, 1000, 10); !bytes.Equal(r.Data, data[70:]) || r.InWaiting != 0 {
		t.Errorf("then %d bytes, %d wait", len(r.Data), r.InWaiting)
	}
}

func testReceiveTimeout(t *testing.T, d *desk) {
	began := time.Now()
	r := d.receive(t, 4096, 0.05)
	if took := time.Since(began); !r.TimedOut || len(r.Data) != 0 || took < 50*time.Millisecond || took > patience {
		t.Errorf("nothing to receive answers %+v after %v", r, took)
	}
	// The transfer is over: what comes now is not its prey.
	d.echoes(t, pattern(700))
	// Full packets that came before the time was up are told.
	d.send(t, pattern(buffer))
	if r := d.receive(t, 2*buffer, 0.3); !r.TimedOut || !bytes.Equal(r.Data, pattern(buffer)) {
		t.Errorf("an unfinished transfer answers %d bytes, timed out: %v", len(r.Data), r.TimedOut)
	}
}

func testSendTimeout(t *testing.T, d *desk) {
	data := pattern(1 << 20)
	r := do[wire.USBTransferred](d, t, wire.OpUSBSend, wire.USBSend{
		Interface: number(d.loop.Number), Endpoint: wire.USBNumber(out(d.loop)), Data: data, TimeoutSeconds: seconds(1)})
	if !r.TimedOut || r.BytesTransferred == 0 || r.BytesTransferred >= len(data) || r.Hint == "" {
		t.Fatalf("more than the device keeps: %d bytes, timed out: %v", r.BytesTransferred, r.TimedOut)
	}
	var got []byte
	for len(got) < r.BytesTransferred {
		part := d.receive(t, min(4096, r.BytesTransferred-len(got)), 5)
		if part.TimedOut && len(part.Data) == 0 {
			break
		}
		got = append(got, part.Data...)
	}
	if !bytes.Equal(got, data[:r.BytesTransferred]) {
		t.Errorf("the answer says %d bytes; %d came back, or others", r.BytesTransferred, len(got))
	}
	d.echoes(t, pattern(1000))
}

func testCancel(t *testing.T, d *desk) {
	d.send(t, pattern(10)) // so that the device is open and its interface claimed
	d.receive(t, 10, 10)
	why := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := d.try(ctx, t, "a", wire.OpUSBReceive, wire.USBReceive{Endpoint: wire.USBNumber(in(d.loop)), Interface: number(d.loop.Number), TimeoutSeconds: seconds(20)}, false)
		failed <- err
	}()
	cancel(why)
	if err := within(t, failed); !errors.Is(err, why) {
		t.Errorf("a cancelled operation answers %v", err)
	}
	d.echoes(t, pattern(100))
}

func within(t *testing.T, failed chan error) error {
	t.Helper()
	select {
	case err := <-failed:
		return err
	case <-time.After(patience):
		t.Fatal("it goes on and on")
		return nil
	}
}

func testReleaseWhileReceiving(t *testing.T, d *desk) {
	d.echoes(t, pattern(10))
	failed := d.receiving(t)
	if err := d.leases.ReleaseAll(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := within(t, failed); !errors.Is(err, wire.HardwareTransferFailed) {
		t.Errorf("a receive whose lease ended answers %v", err)
	}
	d.echoes(t, pattern(10))
}

// receiving begins to wait for data in session a, and returns when it does.
func (d *desk) receiving(t *testing.T) chan error {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		_, err := d.try(t.Context(), t, "a", wire.OpUSBReceive, wire.USBReceive{Endpoint: wire.USBNumber(in(d.loop)), Interface: number(d.loop.Number), TimeoutSeconds: seconds(20)}, false)
		failed <- err
	}()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-again.C {
		for _, l := range d.leases.List() {
			if l.Op == wire.OpUSBReceive {
				return failed
			}
		}
	}
	t.Fatal("the operation doesn't begin")
	return nil
}

const getDescriptor = 6

func testControl(t *testing.T, d *desk) {
	r := do[wire.USBTransferred](d, t, wire.OpUSBControl, wire.USBControl{RequestType: 0x80, Request: getDescriptor, Value: 0x0100, Length: 64})
	desc, err := d.reg.Resolve(d.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Data) != 18 || r.BytesTransferred != 18 || hex.EncodeToString([]byte{r.Data[9], r.Data[8]}) != desc.VID {
		t.Errorf("the device descriptor is %x", r.Data)
	}
	// A request to an endpoint claims its interface: its status is not halted.
	r = do[wire.USBTransferred](d, t, wire.OpUSBControl, wire.USBControl{RequestType: 0x82, Request: 0, Index: wire.USBNumber(in(d.loop)), Length: 2})
	if !bytes.Equal(r.Data, []byte{0, 0}) {
		t.Errorf("the endpoint's status is %x", r.Data)
	}
	// Field case 30: no configuration is ever set on the side.
	for _, request := range []wire.USBNumber{5, 9} {
		if details := d.fails(t, wire.FeatureNotSupported, wire.OpUSBControl, wire.USBControl{RequestType: 0, Request: request, Value: 1}); details["device"] != d.ID {
			t.Errorf("the details are %v", details)
		}
	}
	// The interface is the kernel's.
	details := d.fails(t, wire.HardwareBusy, wire.OpUSBControl, wire.USBControl{RequestType: 0x81, Request: 0, Index: wire.USBNumber(d.comm.Number), Length: 2})
	if details["consumer"] != "cdc_acm" {
		t.Errorf("the details are %v", details)
	}
}

func testStall(t *testing.T, d *desk) {
	details := d.fails(t, wire.HardwareTransferFailed, wire.OpUSBControl, wire.USBControl{RequestType: 0xc0, Request: 0xf7, Length: 4})
	if details["os_error"] != "EPIPE" || details["reason"] != "stall" || details["hint"] == nil {
		t.Errorf("a request that the device doesn't know has the details %v", details)
	}
	d.echoes(t, pattern(10))
	// Halted by the host and cleared again, through the kernel.
	loop := wire.USBNumber(in(d.loop))
	do[wire.USBTransferred](d, t, wire.OpUSBControl, wire.USBControl{RequestType: 0x02, Request: 1, Index: loop})
	d.echoes(t, pattern(10))
}

// Field case 30: a kernel driver is detached only when that is asked for, and
// attached again.
func testKernelDriver(t *testing.T, d *desk) {
	read := wire.USBReceive{Interface: number(d.hid.Number), Endpoint: wire.USBNumber(in(d.hid)), Size: 8, TimeoutSeconds: seconds(10)}
	details := d.fails(t, wire.HardwareBusy, wire.OpUSBReceive, read)
	if details["holder"] != "usbhid" || details["consumer"] != "usbhid" || details["hint"] == nil {
		t.Errorf("an interface that a driver has: %v", details)
	}
	if got := d.driver(t, d.hid.Number); got != "usbhid" {
		t.Errorf("after being refused the driver is %q", got)
	}
	read.DetachKernelDriver = true
	report := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	w := d.watch(t, wire.USBWatch{Interface: number(d.hid.Number), DetachKernelDriver: true})
	if got := d.driver(t, d.hid.Number); got != "usbfs" {
		t.Errorf("while it is used the driver is %q", got)
	}
	d.Report(report)
	if u := w.next(); !bytes.Equal(u.Data, report) {
		t.Errorf("the report is %x", u.Data)
	}
	d.release(t, "a")
	if got := d.driver(t, d.hid.Number); got != "usbhid" {
		t.Errorf("after the release the driver is %q", got)
	}
	w.ends(stream.ReasonReleased)
}

// A driver that has two interfaces loses both and has to get both back.
func testDriverOfTwo(t *testing.T, d *desk) {
	read := wire.USBReceive{Interface: number(d.data.Number), Size: 64, TimeoutSeconds: seconds(0.05), DetachKernelDriver: true}
	if r := do[wire.USBTransferred](d, t, wire.OpUSBReceive, read); !r.TimedOut {
		t.Errorf("the serial port sends %x", r.Data)
	}
	if got := d.driver(t, d.data.Number); got != "usbfs" {
		t.Errorf("while it is used the driver is %q", got)
	}
	d.release(t, "a")
	for _, n := range []int{d.comm.Number, d.data.Number} {
		if got := d.driver(t, n); got != "cdc_acm" {
			t.Errorf("after the release interface %d has the driver %q", n, got)
		}
	}
}

func testDetachNotGranted(t *testing.T, d *desk) {
	d.may = func(id, op string, _ []device.Part) error {
		if op == wire.OpUSBDetach {
			return wire.Errorf(wire.HardwareNotGranted, "%s is not granted on %s", op, id).With("ceiling", "token")
		}
		return nil
	}
	details := d.fails(t, wire.HardwareNotGranted, wire.OpUSBReceive, wire.USBReceive{Interface: number(d.hid.Number), DetachKernelDriver: true})
	if details["ceiling"] != "token" {
		t.Errorf("the details are %v", details)
	}
	if got := d.driver(t, d.hid.Number); got != "usbhid" {
		t.Errorf("the driver is %q", got)
	}
	d.echoes(t, pattern(10)) // what is granted works
}

func testFailureGivesBack(t *testing.T, d *desk) {
	// The setting doesn't exist, which shows after the driver was detached.
	d.fails(t, wire.HardwareTransferFailed, wire.OpUSBControl, wire.USBControl{
		RequestType: 0x81, Request: getDescriptor, Value: 0x7f00, Index: wire.USBNumber(d.hid.Number), Length: 8, DetachKernelDriver: true})
	if got := d.driver(t, d.hid.Number); got != "usbhid" {
		t.Errorf("after the failure the driver is %q", got)
	}
}

func testHID(t *testing.T, d *desk) {
	report := []byte{8, 7, 6, 5, 4, 3, 2, 1}
	r := do[wire.USBTransferred](d, t, wire.OpUSBHID, wire.USBHID{Action: "get", Report: wire.USBReportInput, Size: 8, DetachKernelDriver: true})
	if len(r.Data) != 8 {
		t.Errorf("the input report is %x", r.Data)
	}
	set := wire.USBHID{Action: "set", Data: report, DetachKernelDriver: true}
	if !d.SetReport {
		if details := d.fails(t, wire.HardwareTransferFailed, wire.OpUSBHID, set); details["reason"] != "stall" {
			t.Errorf("setting a report that the device doesn't take: %v", details)
		}
		return
	}
	if r := do[wire.USBTransferred](d, t, wire.OpUSBHID, set); r.BytesTransferred != 8 {
		t.Errorf("set %d bytes", r.BytesTransferred)
	}
	set.Report = wire.USBReportFeature
	do[wire.USBTransferred](d, t, wire.OpUSBHID, set)
	r = do[wire.USBTransferred](d, t, wire.OpUSBHID, wire.USBHID{Action: "get", Report: wire.USBReportFeature})
	if !bytes.Equal(r.Data, report) {
		t.Errorf("the feature report is %x", r.Data)
	}
}

func testWatch(t *testing.T, d *desk) {
	w := d.watch(t, wire.USBWatch{Interface: number(d.loop.Number), Endpoint: wire.USBNumber(in(d.loop))})
	before := float64(time.Now().Add(-patience).Unix())
	for n := range 40 {
		data := pattern(100 + n)
		d.send(t, data) // operations go on beside it
		if u := w.next(); !bytes.Equal(u.Data, data) || u.Endpoint != in(d.loop) || u.Time < before {
			t.Fatalf("record %d has %d bytes, endpoint %#x, time %v", n, len(u.Data), u.Endpoint, u.Time)
		}
	}
	details := d.fails(t, wire.HardwareBusy, wire.OpUSBReceive, wire.USBReceive{Interface: number(d.loop.Number)})
	if details["hint"] == nil {
		t.Errorf("receiving from what is watched: %v", details)
	}
	d.fails(t, wire.HardwareBusy, wire.OpUSBWatch, wire.USBWatch{Interface: number(d.loop.Number)})
	_, err := d.try(t.Context(), t, "b", wire.OpUSBDescribe, nil, false)
	if !errors.Is(err, wire.HardwareBusy) {
		t.Errorf("another session is answered %v", err)
	}
	d.release(t, "a")
	w.ends(stream.ReasonReleased)
	d.echoes(t, pattern(10))
}

func testWatchReports(t *testing.T, d *desk) {
	w := d.watch(t, wire.USBWatch{Interface: number(d.hid.Number), DetachKernelDriver: true})
	for n := range byte(20) {
		report := []byte{n, 1, 2, 3, 4, 5, 6, n}
		d.Report(report)
		if u := w.next(); !bytes.Equal(u.Data, report) {
			t.Fatalf("report %d is %x", n, u.Data)
		}
	}
}

func testReset(t *testing.T, d *desk) {
	w := d.watch(t, wire.USBWatch{Interface: number(d.hid.Number), DetachKernelDriver: true})
	d.echoes(t, pattern(10))
	if r := do[wire.USBResetDone](d, t, wire.OpUSBReset, nil); !r.Reset {
		t.Errorf("the answer is %+v", r)
	}
	w.ends("reset")
	d.echoes(t, pattern(5000))
	d.release(t, "a")
	for _, i := range []wire.USBInterface{d.hid, d.comm, d.data} {
		if got := d.driver(t, i.Number); got != i.Driver {
			t.Errorf("interface %d has the driver %q, want %q", i.Number, got, i.Driver)
		}
	}
}

// Field case 30: setting a configuration is refused while drivers have
// interfaces.
func testConfigure(t *testing.T, d *desk) {
	value := d.describe(t, false).ActiveConfiguration
	d.release(t, "desk")
	set := wire.USBConfigure{Configuration: wire.USBNumber(value)}
	if details := d.fails(t, wire.HardwareBusy, wire.OpUSBConfigure, set); details["hint"] == nil {
		t.Errorf("the details are %v", details)
	}
	set.Configuration = 77
	d.fails(t, wire.InvalidArgument, wire.OpUSBConfigure, set)
	set.Configuration, set.DetachKernelDriver = wire.USBNumber(value), true
	if r := do[wire.USBConfigured](d, t, wire.OpUSBConfigure, set); r.Configuration != value {
		t.Errorf("the answer is %+v", r)
	}
	d.echoes(t, pattern(10))
	d.release(t, "a")
	for _, i := range []wire.USBInterface{d.hid, d.comm, d.data} {
		if got := d.driver(t, i.Number); got != i.Driver {
			t.Errorf("interface %d has the driver %q, want %q", i.Number, got, i.Driver)
		}
	}
}

func testLease(t *testing.T, d *desk) {
	send := wire.USBSend{Interface: number(d.loop.Number), Data: []byte("x")}
	if _, err := d.try(t.Context(), t, "a", wire.OpUSBSend, send, true); err != nil {
		t.Fatal(err)
	}
	if _, err := d.try(t.Context(), t, "b", wire.OpUSBSend, send, false); wire.CodeOf(err) != wire.HardwareBusy || wire.AsError(err).Details["holder"] != "a" {
		t.Errorf("another session is answered %v", err)
	}
	if r := d.receive(t, 1, 10); string(r.Data) != "x" {
		t.Errorf("received %q", r.Data)
	}
	d.release(t, "a")
	if _, err := d.try(t.Context(), t, "b", wire.OpUSBSend, send, false); err != nil {
		t.Errorf("after the release it is answered %v", err)
	}
}

func testUnplugWhileReceiving(t *testing.T, d *desk) {
	d.echoes(t, pattern(10))
	failed := d.receiving(t)
	d.Unplug()
	if err := within(t, failed); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("the operation answers %v", err)
	}
	if err := d.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := d.try(t.Context(), t, "a", wire.OpUSBDescribe, nil, false)
	if !errors.Is(err, wire.HardwareNotFound) {
		t.Errorf("the next one answers %v", err)
	}
	d.Replug()
	if err := d.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.echoes(t, pattern(10))
	if desc, err := d.reg.Resolve(d.ID); err != nil || desc.Generation != 2 {
		t.Errorf("it is back as %+v, %v", desc, err)
	}
}

func testUnplugWhileWatching(t *testing.T, d *desk) {
	w := d.watch(t, wire.USBWatch{Interface: number(d.loop.Number)})
	d.Unplug()
	w.ends(stream.ReasonGone)
	if err := d.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := d.leases.List(); len(all) != 0 {
		t.Errorf("leases are left: %+v", all)
	}
}

func testRefusedArguments(t *testing.T, d *desk) {
	loop := number(d.loop.Number)
	for _, c := range []struct {
		op    string
		args  any
		field string
	}{
		{wire.OpUSBSend, wire.USBSend{Interface: loop, Data: make([]byte, 1<<20+1)}, "data"},
		{wire.OpUSBSend, wire.USBSend{Interface: loop, Endpoint: wire.USBNumber(in(d.loop))}, "endpoint"},
		{wire.OpUSBSend, wire.USBSend{Interface: loop, Endpoint: 0x1ff}, "endpoint"},
		{wire.OpUSBSend, wire.USBSend{Interface: loop, TimeoutSeconds: seconds(0)}, "timeout_seconds"},
		{wire.OpUSBSend, wire.USBSend{Interface: loop, TimeoutSeconds: seconds(26)}, "timeout_seconds"},
		{wire.OpUSBSend, wire.USBSend{Interface: number(99)}, "endpoint"},
		{wire.OpUSBSend, wire.USBSend{Interface: number(-1)}, "endpoint"},
		{wire.OpUSBSend, wire.USBSend{}, "endpoint"}, // could be several
		{wire.OpUSBReceive, wire.USBReceive{Interface: loop, Size: -1}, "size"},
		{wire.OpUSBReceive, wire.USBReceive{Interface: loop, Size: 1<<20 + 1}, "size"},
		{wire.OpUSBReceive, wire.USBReceive{Interface: loop, Endpoint: 0x70}, "endpoint"},
		{wire.OpUSBWatch, wire.USBWatch{Interface: loop, Size: 1 << 20}, "size"},
		{wire.OpUSBWatch, wire.USBWatch{Interface: loop, Credit: -1}, "credit"},
		{wire.OpUSBControl, wire.USBControl{RequestType: 256}, "request_type"},
		{wire.OpUSBControl, wire.USBControl{Request: -1}, "request"},
		{wire.OpUSBControl, wire.USBControl{Value: 1 << 16}, "value"},
		{wire.OpUSBControl, wire.USBControl{Index: 1 << 16}, "index"},
		{wire.OpUSBControl, wire.USBControl{RequestType: 0x80, Length: 4097}, "length"},
		{wire.OpUSBControl, wire.USBControl{RequestType: 0x80, Data: []byte{1}}, "data"},
		{wire.OpUSBControl, wire.USBControl{RequestType: 0x40, Length: 3}, "length"},
		{wire.OpUSBControl, wire.USBControl{RequestType: 0x40, Data: make([]byte, 4097)}, "data"},
		{wire.OpUSBControl, wire.USBControl{RequestType: 0x81, Index: 99, Length: 2}, "index"},
		{wire.OpUSBHID, wire.USBHID{Action: "read"}, "action"},
		{wire.OpUSBHID, wire.USBHID{Action: "get", Report: "all"}, "report"},
		{wire.OpUSBHID, wire.USBHID{Action: "get", ID: 256}, "id"},
		{wire.OpUSBHID, wire.USBHID{Action: "get", Size: 4097}, "size"},
		{wire.OpUSBHID, wire.USBHID{Action: "get", Data: []byte{1}}, "data"},
		{wire.OpUSBHID, wire.USBHID{Action: "set"}, "data"},
		{wire.OpUSBHID, wire.USBHID{Action: "get", Interface: loop}, "interface"},
		{wire.OpUSBConfigure, wire.USBConfigure{}, "configuration"},
	} {
		details := d.fails(t, wire.InvalidArgument, c.op, c.args)
		if details["field"] != c.field {
			t.Errorf("%s %+v: the details are %v, want the field %s", c.op, c.args, details, c.field)
		}
	}
	d.echoes(t, pattern(10))
}
