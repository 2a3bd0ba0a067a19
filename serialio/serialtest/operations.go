package serialtest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"farhand/device"
	"farhand/internal/testenv"
	"farhand/serialio"
	"farhand/stream"
	"farhand/wire"
)

// desk is a line behind a dispatcher.
type desk struct {
	Line
	reg    *device.Registry
	leases *device.Leases
	hub    *stream.Hub
	disp   *device.Dispatcher
}

// linger is long, so that a slow machine doesn't end it, and never waited for.
const linger = time.Minute

func (l Line) desk(t *testing.T) *desk {
	t.Helper()
	d := &desk{Line: l, reg: device.NewRegistry(device.Options{Families: []device.Family{l.Family}})}
	if err := d.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.leases = device.NewLeases(device.LeaseOptions{Linger: linger})
	d.hub = stream.NewHub(stream.HubOptions{})
	d.disp = device.NewDispatcher(d.reg, d.leases, d.hub)
	t.Cleanup(func() {
		d.leases.Close()
		d.hub.Close()
	})
	return d
}

func (d *desk) try(t *testing.T, session, op string, args any, hold bool) (any, device.Trace, error) {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, trace, err := d.disp.Do(ctx, device.Caller{Session: session, Name: session, Streams: true}, wire.HardwareOp{Device: d.ID, Op: op, Args: raw, Hold: hold})
	return res.Result, trace, err
}

func must[R any](t *testing.T, result any, _ device.Trace, err error) R {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	r, ok := result.(R)
	if !ok {
		t.Fatalf("the result is a %T", result)
	}
	return r
}

func (d *desk) write(t *testing.T, session, data string, m *wire.SerialMode, hold bool) {
	t.Helper()
	r, tr, err := d.try(t, session, wire.OpSerialWrite, wire.SerialWrite{Data: []byte(data), Mode: m}, hold)
	if w := must[wire.SerialWritten](t, r, tr, err); w.BytesWritten != len(data) || tr.BytesOut != len(data) {
		t.Errorf("wrote %d, traced %d of %d bytes", w.BytesWritten, tr.BytesOut, len(data))
	}
}

func (d *desk) far(t *testing.T, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := drained(ctx, d.Far, len(want)); err != nil || string(got) != want {
		t.Errorf("the far end got %q, %v, want %q", got, err, want)
	}
}

// baud asks for nothing but the mode, which every port answers.
func (d *desk) baud(t *testing.T, session string, hold bool) int {
	t.Helper()
	r, tr, err := d.try(t, session, wire.OpSerialControl, wire.SerialControl{Mode: &wire.SerialMode{}}, hold)
	return must[wire.SerialLines](t, r, tr, err).Baudrate
}

func testOperations(t *testing.T, l Line) {
	d := l.desk(t)
	d.write(t, "a", "ping\n", nil, false)
	d.far(t, "ping\n")

	d.send(t, []byte("pong\nmore"))
	r, tr, err := d.try(t, "a", wire.OpSerialRead, wire.SerialRead{Until: []byte("\n"), TimeoutSeconds: seconds(5)}, false)
	data := must[wire.SerialData](t, r, tr, err)
	if string(data.Data) != "pong\n" || data.StopReason != serialio.StopUntil || data.TimedOut || data.BytesReturned != 5 || tr.BytesIn != 5 {
		t.Errorf("read %+v, traced %+v", data, tr)
	}
	r, tr, err = d.try(t, "a", wire.OpSerialRead, wire.SerialRead{Size: 4, TimeoutSeconds: seconds(5)}, false)
	if data := must[wire.SerialData](t, r, tr, err); string(data.Data) != "more" || data.StopReason != serialio.StopSize {
		t.Errorf("then %+v", data)
	}

	answered := make(chan struct{})
	go func() {
		defer close(answered)
		d.far(t, "*IDN?\n")
		<-d.send(t, []byte("ACME\n"))
	}()
	r, tr, err = d.try(t, "a", wire.OpSerialTransact, wire.SerialTransact{Data: []byte("*IDN?\n"), Until: []byte("\n"), Flush: true, TimeoutSeconds: seconds(5)}, false)
	data = must[wire.SerialData](t, r, tr, err)
	<-answered
	if string(data.Data) != "ACME\n" || data.StopReason != serialio.StopUntil || data.BytesWritten != 6 || tr.BytesOut != 6 || tr.BytesIn != 5 {
		t.Errorf("transacted %+v, traced %+v", data, tr)
	}

	r, tr, err = d.try(t, "a", wire.OpSerialRead, wire.SerialRead{TimeoutSeconds: seconds(0.02)}, false)
	if data := must[wire.SerialData](t, r, tr, err); !data.TimedOut || data.StopReason != serialio.StopTimeout || data.Data == nil {
		t.Errorf("nothing to read: %+v", data)
	}

	up := true
	r, tr, err = d.try(t, "a", wire.OpSerialControl, wire.SerialControl{DTR: &up, RTS: &up}, false)
	if l.ModemLines {
		if lines := must[wire.SerialLines](t, r, tr, err); !lines.DTR || !lines.RTS || !lines.ModemLines {
			t.Errorf("the lines are %+v", lines)
		}
	} else {
		lacks(t, "SERIAL_CONTROL with DTR", err)
		_, _, err = d.try(t, "a", wire.OpSerialControl, wire.SerialControl{}, false)
		lacks(t, "SERIAL_CONTROL to read the lines", err)
	}
}

func seconds(s float64) *float64 { return &s }

func testModeAndLease(t *testing.T, l Line) {
	d := l.desk(t)
	rate := 31250
	slow := &wire.SerialMode{Baudrate: &rate}
	d.write(t, "a", "x", slow, false)
	d.far(t, "x")
	if b := d.baud(t, "a", false); b != 115200 {
		t.Errorf("without hold the next operation has %d baud", b)
	}
	d.write(t, "a", "x", slow, true)
	d.far(t, "x")
	if b := d.baud(t, "a", false); !near(b, rate) {
		t.Errorf("with hold the next operation has %d baud", b)
	}
	if _, _, err := d.try(t, "a", wire.OpRelease, nil, false); err != nil {
		t.Fatal(err)
	}
	if b := d.baud(t, "a", false); b != 115200 {
		t.Errorf("after RELEASE the port has %d baud", b)
	}

	// A read without a time of its own waits as long as the lease's mode says.
	d.write(t, "a", "x", &wire.SerialMode{TimeoutSeconds: seconds(0)}, true)
	d.far(t, "x")
	began := time.Now()
	for _, op := range []string{wire.OpSerialRead, wire.OpSerialTransact} {
		r, tr, err := d.try(t, "a", op, map[string]any{}, false)
		if got := must[wire.SerialData](t, r, tr, err); !got.TimedOut {
			t.Errorf("%s of nothing gives %+v", op, got)
		}
	}
	if waited := time.Since(began); waited >= serialio.DefaultTimeout {
		t.Errorf("reads without a time of their own took %v", waited)
	}
}

func near(got, want int) bool { return got > want*95/100 && got < want*105/100 }

// testNothingLost is about two operations without hold, one that makes the far
// end answer and one that reads the answer.
func testNothingLost(t *testing.T, l Line) {
	d := l.desk(t)
	d.write(t, "a", "?", nil, false)
	d.far(t, "?")
	<-d.send(t, []byte("answer|and more"))
	r, tr, err := d.try(t, "a", wire.OpSerialRead, wire.SerialRead{Until: []byte("|"), TimeoutSeconds: seconds(5)}, false)
	if data := must[wire.SerialData](t, r, tr, err); string(data.Data) != "answer|" {
		t.Errorf("read %q", data.Data)
	}
	r, tr, err = d.try(t, "a", wire.OpSerialRead, wire.SerialRead{Size: 8, TimeoutSeconds: seconds(5)}, false)
	if data := must[wire.SerialData](t, r, tr, err); string(data.Data) != "and more" {
		t.Errorf("then %q", data.Data)
	}
	if held := d.leases.List(); len(held) != 0 {
		t.Errorf("without hold the session still has %+v", held)
	}
}

// testTakenOver is about another session that comes in such a moment: it has
// the port at once, and nothing of what the first one left half read.
func testTakenOver(t *testing.T, l Line) {
	d := l.desk(t)
	<-d.send(t, []byte("for a|secret"))
	r, tr, err := d.try(t, "a", wire.OpSerialRead, wire.SerialRead{Until: []byte("|"), Size: 12, TimeoutSeconds: seconds(5)}, false)
	data := must[wire.SerialData](t, r, tr, err)
	r, tr, err = d.try(t, "b", wire.OpSerialRead, wire.SerialRead{TimeoutSeconds: seconds(0.05)}, false)
	if other := must[wire.SerialData](t, r, tr, err); data.BytesSeen == 12 && len(other.Data) > 0 {
		t.Errorf("the other session got %q", other.Data)
	}
}

func testUnplugDuringOperation(t *testing.T, l Line) {
	testenv.Need(t, "unplug", l.Unplug != nil, "this line can't be unplugged")
	d := l.desk(t)
	d.write(t, "a", "x", nil, true)
	d.far(t, "x")
	failed := make(chan error)
	go func() {
		_, _, err := d.try(t, "a", wire.OpSerialRead, wire.SerialRead{TimeoutSeconds: seconds(9)}, false)
		failed <- err
	}()
	d.running(t)
	l.Unplug()
	err := within(t, failed)
	if e := wire.AsError(err); e.Code != wire.DeviceGone || e.Details["device"] != l.ID {
		t.Errorf("the operation answers %v %v", err, e.Details)
	}
	if _, _, err := d.try(t, "a", wire.OpSerialWrite, wire.SerialWrite{Data: []byte("x")}, false); !errors.Is(err, wire.HardwareNotFound) {
		t.Errorf("an operation after it answers %v", err)
	}
	if held := d.leases.List(); len(held) != 0 {
		t.Errorf("the session still has %+v", held)
	}
	l.Replug()
	r, tr, err := d.try(t, "b", wire.OpSerialControl, wire.SerialControl{Mode: &wire.SerialMode{}}, false)
	must[wire.SerialLines](t, r, tr, err)
	if desc, err := d.reg.Resolve(l.ID); err != nil || desc.Generation != 2 {
		t.Errorf("after the replug: generation %d, %v", desc.Generation, err)
	}
}

// running waits until an operation has its turn.
func (d *desk) running(t *testing.T) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-again.C {
		if held := d.leases.List(); len(held) == 1 && held[0].Op != "" {
			return
		}
	}
	t.Fatal("no operation began")
}

func testRefusedArguments(t *testing.T, l Line) {
	d := l.desk(t)
	for _, c := range []struct {
		op, args string
		code     wire.Code
	}{
		{wire.OpSerialWrite, `{"data":"!"}`, wire.InvalidArgument},
		{wire.OpSerialWrite, `{"data":"eA==","timeout_seconds":26}`, wire.InvalidArgument},
		{wire.OpSerialWrite, `{"data":"eA==","timeout_seconds":-1}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"size":1048577}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"size":-1}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"size":99999999999999999999}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"baudrate":0}}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"baudrate":999999999}}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"bytesize":9}}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"parity":"weird"}}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"stopbits":1.2}}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"stopbits":1.5}}`, wire.FeatureNotSupported},
		{wire.OpSerialRead, `{"mode":{"dsrdtr":true}}`, wire.FeatureNotSupported},
		{wire.OpSerialRead, `{"expect":"x","size":-1}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"expect":{"regexp":"x"},"size":65537}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"expect":{"regexp":"("}}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"rs485":{"rts_on_send":true,"rts_after_send":true}}}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"rs485":{"delay_after_send_ms":101}}}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"rs485":{},"rtscts":true}}`, wire.InvalidArgument},
		{wire.OpSerialExpect, `{}`, wire.InvalidArgument},
		{wire.OpSerialExpect, `{"send":"eA==","steps":[{"expect":"a"}]}`, wire.InvalidArgument},
		{wire.OpSerialRead, `{"mode":{"timeout_seconds":-1}}`, wire.InvalidArgument},
		{wire.OpSerialExpect, `{"steps":[{}]}`, wire.InvalidArgument},
		{wire.OpSerialExpect, `{"steps":[{"send":"eA==","send_text":"x"}]}`, wire.InvalidArgument},
		{wire.OpSerialExpect, `{"steps":[{"expect":["a",7]}]}`, wire.InvalidArgument},
		{wire.OpSerialExpect, `{"steps":[{"expect":"a","size":65537}]}`, wire.InvalidArgument},
		{wire.OpSerialExpect, `{"steps":[{"expect":"a","timeout_seconds":26}]}`, wire.InvalidArgument},
		{wire.OpSerialExpect, `{"timeout_seconds":26,"steps":[{"expect":"a"}]}`, wire.InvalidArgument},
		{wire.OpSerialWatch, `{"from":-1}`, wire.InvalidArgument},
		{wire.OpSerialControl, `{"break_seconds":60}`, wire.InvalidArgument},
		{wire.OpSerialControl, `{"break_seconds":0}`, wire.InvalidArgument},
	} {
		_, _, err := d.disp.Do(t.Context(), device.Caller{Session: "a"}, wire.HardwareOp{Device: l.ID, Op: c.op, Args: json.RawMessage(c.args), Hold: true})
		e := wire.AsError(err)
		if e.Code != c.code || e.Details["device"] != l.ID || e.Details["op"] != c.op {
			t.Errorf("%s %s answers %v %v, want %s", c.op, c.args, err, e.Details, c.code)
		}
		if held := d.leases.List(); len(held) != 0 {
			t.Errorf("after it the session has %+v", held)
		}
	}
}
