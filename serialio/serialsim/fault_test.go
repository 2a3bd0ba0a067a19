package serialsim_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/serialio"
	"farhand/serialio/serialsim"
	"farhand/stream"
	"farhand/wire"
)

// rig is a bench behind a dispatcher.
type rig struct {
	*serialsim.Bench
	disp  *device.Dispatcher
	ended chan stream.Info
}

func newRig(t *testing.T) rig {
	leak.Check(t)
	b, err := serialsim.New(serialsim.Standard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: b, Service: serialio.Service{}}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := device.NewLeases(device.LeaseOptions{})
	t.Cleanup(func() { leases.Close() })
	ended := make(chan stream.Info, 10)
	hub := stream.NewHub(stream.HubOptions{OnEnd: func(i stream.Info) { ended <- i }})
	t.Cleanup(func() { hub.Close() })
	return rig{b, device.NewDispatcher(reg, leases, hub), ended}
}

func (r rig) do(t *testing.T, id, op, args string) (any, error) {
	t.Helper()
	res, _, err := r.disp.Do(t.Context(), device.Caller{Session: "s", Streams: true}, wire.HardwareOp{Device: "serial:" + id, Op: op, Args: json.RawMessage(args), Hold: true})
	return res.Result, err
}

func (r rig) identify(t *testing.T) wire.SerialData {
	t.Helper()
	got, err := r.do(t, "sim-scpi", wire.OpSerialTransact, `{"data":"KklETj8K","until":"Cg==","timeout_seconds":0.3,"flush":true}`)
	if err != nil {
		t.Fatal(err)
	}
	return got.(wire.SerialData)
}

func TestFaults(t *testing.T) {
	r := newRig(t)
	set := func(f serialsim.Fault) {
		t.Helper()
		if err := r.Break("sim-scpi", f); err != nil {
			t.Fatal(err)
		}
	}
	answer := serialsim.Identity + "\n"
	if got := r.identify(t); string(got.Data) != answer {
		t.Fatalf("it answers %q", got.Data)
	}
	set(serialsim.Fault{Mute: true})
	if got := r.identify(t); !got.TimedOut || len(got.Data) != 0 {
		t.Errorf("mute, it answers %+v", got)
	}
	set(serialsim.Fault{Garble: true})
	if got := r.identify(t); !got.TimedOut || len(got.Data) != len(answer) || got.Data[0] != answer[0]^0x80 {
		t.Errorf("garbled, it answers %+v", got)
	}
	set(serialsim.Fault{})
	if got := r.identify(t); string(got.Data) != answer {
		t.Errorf("healed, it answers %q", got.Data)
	}
	if err := r.Send("sim-scpi", []byte("!")); err != nil {
		t.Fatal(err)
	}
	if got, err := r.do(t, "sim-scpi", wire.OpSerialRead, `{"size":1}`); err != nil || string(got.(wire.SerialData).Data) != "!" {
		t.Errorf("unasked, it sends %+v, %v", got, err)
	}
}

// TestStall is an instrument that reads no more: a write says how far it came,
// and an unplug ends it.
func TestStall(t *testing.T) {
	r := newRig(t)
	if err := r.Break("sim-echo", serialsim.Fault{Stall: true}); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(wire.SerialWrite{Data: make([]byte, 1<<20), TimeoutSeconds: new(0.2)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.do(t, "sim-echo", wire.OpSerialWrite, string(data))
	if e := wire.AsError(err); e.Code != wire.HardwareTransferFailed || e.Details["reason"] != "timeout" {
		t.Errorf("a write to it answers %v %v", err, e.Details)
	}
	r.Unplug("sim-echo")
	if err := r.Break("sim-echo", serialsim.Fault{}); err == nil {
		t.Error("an instrument that isn't plugged in can be broken")
	}
}

// TestShared is field case 1: somebody else reads, too. The read says so at
// once, a stream ends for this reason, and the next operation opens the port
// anew.
func TestShared(t *testing.T) {
	r := newRig(t)
	r.identify(t)
	if _, err := r.do(t, "sim-scpi", wire.OpSerialWatch, `{}`); err != nil {
		t.Fatal(err)
	}
	if err := r.Share("sim-scpi"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := r.do(t, "sim-scpi", wire.OpSerialRead, `{"timeout_seconds":20}`)
	if e := wire.AsError(err); e.Code != wire.HardwareTransferFailed || e.Details["reason"] != "port_shared" || time.Since(began) > 10*time.Second {
		t.Errorf("a read answers %v %v after %v", err, e.Details, time.Since(began))
	}
	if end := <-r.ended; end.Ended != serialio.ReasonShared {
		t.Errorf("the stream ended by %q", end.Ended)
	}
	if got := r.identify(t); string(got.Data) != serialsim.Identity+"\n" || got.Opened == nil {
		t.Errorf("then it answers %+v", got)
	}
	r.Unplug("sim-scpi")
	if _, err := r.do(t, "sim-scpi", wire.OpSerialRead, `{}`); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("unplugged, it answers %v", err)
	}
}

func TestConsoleDialogue(t *testing.T) {
	r := newRig(t)
	got, err := r.do(t, "sim-console", wire.OpSerialExpect, `{"steps":[
		{"send_text":"\r","expect":"login: "},{"send_text":"root\r","expect":"assword: "},
		{"send_text":"secret\r","expect":[{"text":"incorrect","stop":true},"# "]},
		{"send_text":"uname\r","expect":{"regexp":"Linux \\S+ (\\S+)"}},
		{"send_text":"reboot\r","expect":"login: "}]}`)
	if err != nil {
		t.Fatal(err)
	}
	e := got.(wire.SerialExpected)
	if !e.Complete || string(e.Steps[3].Match.Captures[1]) != "6.12.0" || !strings.Contains(string(e.Steps[4].Data), "Starting kernel") {
		t.Errorf("the dialogue: %+v", e)
	}
}

func TestConsole(t *testing.T) {
	c := &serialsim.Console{}
	for _, s := range []struct{ keys, want string }{
		{"\r\n", "\r\n\r\nboard login: "},
		{"root\n", "root\r\nPassword: "},
		{"wrong\n", "\r\n\r\nLogin incorrect\r\nboard login: "},
		{"root\nsecret\n", "root\r\nPassword: \r\n\r\nWelcome to the simulated board.\r\nroot@board:~# "},
		{"echo a b\r", "echo a b\r\na b\r\nroot@board:~# "},
		{"bogus\x03", "bogus^C\r\nroot@board:~# "},
		{"bogus\n", "bogus\r\nsh: bogus: not found\r\nroot@board:~# "},
		{"\n", "\r\nroot@board:~# "},
		{"exit\n", "exit\r\nlogout\r\nboard login: "},
		{"root\n\x03", "root\r\nPassword: ^C\r\n\r\nboard login: "},
	} {
		if got := c.Type([]byte(s.keys)); got != s.want {
			t.Errorf("%q is answered %q, want %q", s.keys, got, s.want)
		}
	}
	if got := c.Type([]byte(strings.Repeat("x", 10000))); len(got) > 4096 {
		t.Errorf("a line of any length is kept: %d", len(got))
	}
}
