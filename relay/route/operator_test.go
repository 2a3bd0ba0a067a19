package route

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/relay/access"
	"farhand/relay/limit"
	"farhand/wire"
)

// talk is a bench with one machine, one session and one operator.
func talk(t *testing.T, tim timing, caps ...wire.Capability) (*bench, *robot, *peer, string) {
	t.Helper()
	return talkSmall(t, tim, ample, caps...)
}

func talkSmall(t *testing.T, tim timing, size bounds, caps ...wire.Capability) (*bench, *robot, *peer, string) {
	t.Helper()
	b := startSmall(t, tim, size)
	r := b.robot(caps...).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	r.await("data")
	return b, r, b.operator(opTok), id
}

func TestRequestAndAnswer(t *testing.T) {
	_, _, op, id := talk(t, quick(), wire.Files)
	for i := range 20 {
		op.request(id, fmt.Sprint("q", i), wire.TFileStat, map[string]any{"path": "x", "n": i})
	}
	for i := range 20 {
		env := op.want(wire.TFileStatResponse)
		if env.ID != fmt.Sprint("q", i) || env.SessionID != id || env.PendingCapacity == nil || *env.PendingCapacity != 4 {
			t.Fatalf("answer %d: %+v", i, env)
		}
		if want := fmt.Sprintf(`{"n":%d,"path":"x"}`, i); string(env.Payload) != want {
			t.Fatalf("payload %s, want %s", env.Payload, want)
		}
	}
}

// The device gets exactly type, id, ts and payload: a stock shim refuses more.
func TestFrameToTheDevice(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files)
	got := make(chan []string, 1)
	r.onData = func(p *peer, env wire.Envelope) {
		keys := []string{string(env.Type), fmt.Sprint(env.Version == "", env.SessionID == "", env.TargetMachine == "", env.PendingCapacity == nil, env.TS > 0)}
		got <- append(keys, string(env.Payload))
		echo(p, env)
	}
	op.text(`{"version":"1.1","payload": {"path" : "é\n"} ,"session_id":"` + id + `","target_machine":"lab","id":"7","future":1,"type":"FILE_READ"}`)
	if env := op.want(wire.TFileContents); env.ID != "7" || env.TargetMachine != "lab" {
		t.Errorf("%+v", env)
	}
	if s := fmt.Sprint(recv(t, got)); s != "[FILE_READ true true true true true {\"path\" : \"é\\n\"}]" {
		t.Error(s)
	}
}

func TestRefusals(t *testing.T) {
	b := start(t)
	b.auth.mu.Lock()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Holder: "hold_agent",
		Ceiling: &wire.Ceiling{Capabilities: &[]wire.Capability{wire.Files, wire.Shell, wire.LocalLLM}}}
	b.auth.operators["elsewhere"] = access.Operator{Owner: owner, Holder: "hold_e", Machines: &[]string{"pi-2"}, Ceiling: &wire.Ceiling{}}
	b.auth.mu.Unlock()
	approved := []wire.Capability{wire.Files, wire.Shell, wire.HardwareSerial, wire.HardwareGPIO, wire.LocalLLM}
	b.auth.approve(wire.Ceiling{Capabilities: &approved})
	b.robot(wire.Files, wire.Shell, wire.HardwareSerial, wire.ComputerUse).connect()
	id := b.openSession("agent", map[string]any{"machine": machID, "capabilities": []string{"files", "hardware_serial"}})
	plain := b.openSession("agent", map[string]any{"machine": machID})
	op, other := b.operator("agent"), b.operator("elsewhere")
	for i, c := range []struct {
		name    string
		from    *peer
		m       wire.Message
		code    wire.Code
		ceiling any
	}{
		{"no session", op, wire.Message{Type: wire.TFileStat}, wire.SessionNotFound, nil},
		{"unknown session", op, wire.Message{Type: wire.TFileStat, SessionID: "nope"}, wire.SessionNotFound, nil},
		{"bad session id", op, wire.Message{Type: wire.TFileStat, SessionID: "../x"}, wire.SessionNotFound, nil},
		{"machine instead of session", op, wire.Message{Type: wire.TFileStat, TargetMachine: "lab"}, wire.MachineNotAttached, nil},
		{"another machine", op, wire.Message{Type: wire.TFileStat, SessionID: id, TargetMachine: "mars"}, wire.MachineNotAttached, nil},
		{"machine not covered", other, wire.Message{Type: wire.THardwareListRequest, TargetMachine: machID}, wire.MachineNotAttached, nil},
		{"session ceiling", op, wire.Message{Type: wire.TExecuteCommand, SessionID: id}, wire.CapabilityNotGranted, "session"},
		{"token ceiling", op, wire.Message{Type: wire.THardwareOp, SessionID: plain}, wire.CapabilityNotGranted, "token"},
		{"token ceiling on control", op, wire.Message{Type: wire.THardwareListRequest, TargetMachine: machID}, wire.CapabilityNotGranted, "token"},
		{"approval", op, wire.Message{Type: wire.TScreenshotRequest, SessionID: plain}, wire.CapabilityNotGranted, "approval"},
		{"not offered", op, wire.Message{Type: wire.TLocalLLMCompletion, SessionID: plain}, wire.CapabilityNotGranted, "config"},
		{"neither offered nor approved", op, wire.Message{Type: wire.TStartRecording, SessionID: plain}, wire.CapabilityNotGranted, "config"},
		{"control request", op, wire.Message{Type: wire.TAttachSession, SessionID: id}, wire.FeatureNotSupported, nil},
		{"grants", op, wire.Message{Type: wire.TGrantsUpdate, SessionID: id}, wire.FeatureNotSupported, nil},
		{"unknown type", op, wire.Message{Type: "TELEPORT", SessionID: id}, wire.FeatureNotSupported, nil},
		{"payload", op, wire.Message{Type: wire.TFileStat, SessionID: id, Payload: []int{1}}, wire.InternalError, nil},
	} {
		c.m.ID = fmt.Sprint("r", i)
		c.from.send(c.m)
		e := c.from.wantError(c.m.ID)
		if e.Code != c.code || e.Details["ceiling"] != c.ceiling {
			t.Errorf("%s: %+v", c.name, e)
		}
	}
	op.request(plain, "ok", wire.TFileStat, wire.Empty{})
	op.want(wire.TFileStatResponse)
}

func TestOperatorPing(t *testing.T) {
	_, _, op, id := talk(t, quick(), wire.Files)
	op.send(wire.Message{Type: wire.TPing, ID: "p"})
	if env := op.want(wire.TPong); env.ID != "p" || string(env.Payload) != "{}" {
		t.Errorf("%+v", env)
	}
	op.request(id, "p2", wire.TPing, wire.Empty{}) // this one goes all the way
	op.want(wire.TPong)
}

func TestHardwareListOverControl(t *testing.T) {
	b := start(t)
	devices := []wire.HardwareDevice{{Type: "serial", ID: "serial:usb-1"}, {Type: "serial", ID: "serial:usb-2"}, {Type: "gpio", ID: "gpio:x"}}
	b.auth.mu.Lock()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Holder: "hold_agent", Ceiling: &wire.Ceiling{
		Capabilities: &[]wire.Capability{wire.HardwareSerial}, Devices: &[]wire.DeviceGrant{{Pattern: "*usb-[!1]"}}}}
	b.auth.mu.Unlock()
	r := b.robot(wire.HardwareSerial, wire.HardwareGPIO)
	r.onControl = func(p *peer, env wire.Envelope) bool {
		if env.Type != wire.THardwareListRequest {
			return false
		}
		p.send(wire.Message{Type: wire.THardwareListResponse, ID: env.ID, Payload: wire.HardwareListResponse{Devices: devices}})
		return true
	}
	r.connect()
	for token, want := range map[string]int{opTok: 3, "agent": 1} {
		op := b.operator(token)
		op.send(wire.Message{Type: wire.THardwareListRequest, ID: "l", TargetMachine: "lab"})
		env := op.want(wire.THardwareListResponse)
		var l wire.HardwareListResponse
		if err := wire.Decode(env.Payload, &l); err != nil || len(l.Devices) != want || env.TargetMachine != "lab" {
			t.Errorf("%s: %s", token, env.Payload)
		}
	}
	// A single machine needs no name.
	op := b.operator(opTok)
	op.send(wire.Message{Type: wire.THardwareListRequest, ID: "l"})
	op.want(wire.THardwareListResponse)
	r.stop()
	until(t, "offline", func() bool { return !b.srv.Online(owner, machID) })
	op.send(wire.Message{Type: wire.THardwareListRequest, ID: "m", TargetMachine: "lab"})
	if e := op.wantError("m"); e.Code != wire.MachineUnreachable {
		t.Errorf("%v", e)
	}
}

func TestOfflineIsSaidAtOnce(t *testing.T) {
	b, r, op, id := talk(t, quick(), wire.Files, wire.Shell)
	r.stop()
	until(t, "offline", func() bool {
		return !b.srv.Online(owner, machID) && b.srv.sessions[sessionRef{owner, id}].conn() == nil
	})
	op.request(id, "1", wire.TFileStat, wire.Empty{})
	e := op.wantError("1")
	if e.Code != wire.MachineUnreachable || e.Message != "lab is not connected" || e.Details["machine"] != "lab" || e.Details["machine_id"] != machID {
		t.Errorf("%v", e)
	}
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(e.Details["last_seen"])); err != nil || time.Since(at) > time.Hour {
		t.Errorf("last seen %v", e.Details["last_seen"])
	}
	// It is kept, for the time after a restart of the relay.
	until(t, "that it left is kept", func() bool {
		m, err := b.auth.Machine(t.Context(), owner, machID)
		return err == nil && !m.LastSeen.IsZero()
	})
	// The API says so, too, of one that was never there.
	b.auth.mu.Lock()
	b.auth.machines["pi-10"] = access.Machine{ID: "pi-10", Owner: owner, Name: "shed"}
	b.auth.mu.Unlock()
	status, body := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": "pi-10"})
	if text := fmt.Sprint(body); status != 503 || !strings.Contains(text, "shed is not connected") || strings.Contains(text, "last_seen") {
		t.Errorf("%d %v", status, body)
	}
}

func TestDeadlines(t *testing.T) {
	tim := quick()
	tim.data, tim.commandMargin, tim.streamSilence = 150*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
	_, r, op, id := talk(t, tim, wire.Files, wire.Shell, wire.LocalLLM)
	var last atomic.Pointer[wire.Envelope]
	r.onData = func(p *peer, env wire.Envelope) {
		env.Payload = bytes.Clone(env.Payload)
		if old := last.Swap(&env); old != nil {
			echo(p, *old) // late: after its deadline
		}
	}
	for _, c := range []struct {
		t    wire.Type
		body any
		code wire.Code
	}{
		{wire.TFileStat, wire.Empty{}, wire.RequestTimeout},
		{wire.TFileWrite, wire.Empty{}, wire.OpUnconfirmed},
		{wire.TExecuteCommand, map[string]any{"timeout_seconds": 0.1}, wire.OpUnconfirmed},
		{wire.TLocalLLMCompletion, wire.Empty{}, wire.OpUnconfirmed},
	} {
		op.request(id, string(c.t), c.t, c.body)
		if e := op.wantError(string(c.t)); e.Code != c.code || e.Details["op"] != string(c.t) {
			t.Errorf("%s: %+v", c.t, e)
		}
	}
}

// CANCEL reaches the device under the id that the relay gave the request, ends
// what still waits here by itself, and is nothing for what isn't outstanding or is
// somebody else's.
func TestCancel(t *testing.T) {
	b, r, op, id := talk(t, quick(), wire.Shell, wire.Cancel)
	got := make(chan wire.Envelope, 16)
	r.onData = func(_ *peer, env wire.Envelope) { got <- env }
	op.request(id, "runs", wire.TExecuteCommand, wire.ExecuteCommand{}) // never answered
	asked := recv(t, got)
	for i := range assumedWindow - 1 { // and so no room for another
		op.request(id, fmt.Sprint("more", i), wire.TExecuteCommand, wire.ExecuteCommand{})
		recv(t, got)
	}
	op.request(id, "waits", wire.TExecuteCommand, wire.ExecuteCommand{})
	op.request(id, "waits", wire.TCancel, wire.Empty{})
	if e := op.wantError("waits"); e.Code != wire.Cancelled {
		t.Fatalf("%+v", e)
	}
	b.operator(opTok).request(id, "runs", wire.TCancel, wire.Empty{}) // another's
	op.request(id, "nothing", wire.TCancel, wire.Empty{})
	op.request("nowhere", "runs", wire.TCancel, wire.Empty{})
	op.request(id, "runs", wire.TCancel, wire.Empty{})
	if env := recv(t, got); env.Type != wire.TCancel || env.ID != asked.ID {
		t.Fatalf("the device gets %+v", env)
	}
	op.send(wire.Message{Type: wire.TPing, ID: "p"})
	op.want(wire.TPong) // and CANCEL itself was answered by nobody
	select {
	case env := <-got:
		t.Fatalf("the device gets %+v as well", env)
	default:
	}
}

func TestCommandTimeout(t *testing.T) {
	s := &Server{timing: standard}
	for body, want := range map[string]time.Duration{
		`{}`: 40 * time.Second, `{"timeout_seconds":120}`: 130 * time.Second, `{"timeout_seconds":null}`: 40 * time.Second,
		`{"timeout_seconds":0.5}`: 10500 * time.Millisecond, `{"timeout_seconds":1e300}`: 86410 * time.Second,
		`{"timeout_seconds":-1}`: 40 * time.Second, `{"timeout_seconds":"9"}`: 40 * time.Second, `{"timeout_seconds":NaN}`: 40 * time.Second,
	} {
		if got := s.commandTimeout([]byte(body)); got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}

func TestLostLink(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files, wire.Shell)
	arrived := make(chan wire.Type, 16)
	var cut atomic.Bool
	r.onData = func(p *peer, env wire.Envelope) {
		arrived <- env.Type
		if cut.Load() {
			echo(p, env)
		}
	}
	op.request(id, "read", wire.TFileRead, map[string]any{"path": "kept"})
	op.request(id, "run", wire.TExecuteCommand, wire.Empty{})
	op.request(id, "stat", wire.TFileStat, wire.Empty{})
	for range 3 {
		recv(t, arrived)
	}
	cut.Store(true)
	r.dropData(id)
	got := map[string]string{}
	for range 3 {
		env, _, err := op.next()
		if err != nil {
			t.Fatal(err)
		}
		got[env.ID] = string(env.Type)
		if env.ID == "run" {
			var e wire.Error
			_ = wire.Decode(env.Payload, &e)
			got["run"] = string(e.Code)
		}
		if env.ID == "read" && string(env.Payload) != `{"path":"kept"}` {
			t.Errorf("payload of the repeated request: %s", env.Payload)
		}
	}
	if got["read"] != "FILE_CONTENTS" || got["stat"] != "FILE_STAT_RESPONSE" || got["run"] != "OP_UNCONFIRMED" {
		t.Errorf("%v", got)
	}
	if a, b := recv(t, arrived), recv(t, arrived); a != wire.TFileRead || b != wire.TFileStat {
		t.Errorf("repeated in the order %s, %s", a, b)
	}
	// Once only.
	cut.Store(false)
	op.request(id, "again", wire.TFileStat, wire.Empty{})
	recv(t, arrived)
	r.dropData(id)
	recv(t, arrived)
	r.await("data")
	r.await("data")
	r.dropData(id)
	if e := op.wantError("again"); e.Code != wire.RequestTimeout {
		t.Errorf("%v", e)
	}
}

func TestStrayFramesAreDropped(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files)
	r.onData = func(p *peer, env wire.Envelope) {
		p.text(`not JSON`)
		p.text(`{"type":"FILE_STAT_RESPONSE","id":"","payload":{}}`)
		p.text(`{"type":"FILE_STAT_RESPONSE","id":"never-asked","payload":{}}`)
		p.send(wire.Message{Type: wire.TCommandResult, ID: env.ID})                                     // not what was asked
		p.send(wire.Message{Type: wire.TFileStatResponse, ID: env.ID, Payload: []int{1}})               // not an object
		p.send(wire.Message{Type: wire.TLocalLLMCompletionChunk, ID: env.ID})                           // not for this request
		p.send(wire.Message{Type: "NOVELTY", ID: env.ID})                                               // unknown
		p.send(wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(nil)})                        // again
		p.send(wire.Message{Type: wire.TFileStatResponse, ID: env.ID, Payload: map[string]int{"n": 1}}) // at last
		p.send(wire.Message{Type: wire.TFileStatResponse, ID: env.ID, Payload: map[string]int{"n": 2}}) // twice
		p.send(wire.Message{Type: wire.TError, ID: env.ID, Payload: wire.Errorf(wire.InternalError, "late")})
	}
	for i := range 3 {
		op.request(id, fmt.Sprint(i), wire.TFileStat, wire.Empty{})
		if env := op.want(wire.TFileStatResponse); env.ID != fmt.Sprint(i) || string(env.Payload) != `{"n":1}` {
			t.Errorf("%s %s", env.ID, env.Payload)
		}
	}
}

func TestAbuseIsCutOff(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files)
	r.onData = func(p *peer, env wire.Envelope) {
		for range nuisanceLimit + 1 {
			p.text(`{"type":"FILE_STAT_RESPONSE","id":"never-asked","payload":{}}`)
		}
	}
	op.request(id, "1", wire.TFileStat, wire.Empty{})
	r.await("data closed 1008")
	for range nuisanceLimit + 1 {
		op.text("{}")
	}
	op.wantClose(websocket.ClosePolicyViolation)
}

func TestOversizeIsCutOff(t *testing.T) {
	b, r, op, id := talk(t, quick(), wire.Files)
	big := strings.Repeat("x", wire.MaxFrame)
	r.onData = func(p *peer, env wire.Envelope) {
		p.text(`{"type":"FILE_CONTENTS","id":"` + env.ID + `","payload":{"content":"` + big + `"}}`)
	}
	op.request(id, "1", wire.TFileWrite, wire.Empty{})
	if e := op.wantError("1"); e.Code != wire.OpUnconfirmed {
		t.Errorf("%v", e.Code)
	}
	r.await("data closed 1009")
	op.text(`{"type":"FILE_WRITE","id":"2","session_id":"` + id + `","payload":{"content":"` + big + `"}}`)
	op.wantClose(1009)
	if !b.srv.Online(owner, machID) {
		t.Error("the control socket went too")
	}
}

func TestLargestFramePasses(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files)
	content := strings.Repeat("0123456789abcdef", (wire.MaxFrame-1024)/16)
	body := wire.Raw(`{"content":"` + content + `"}`)
	sum := make(chan int, 1)
	r.onData = func(p *peer, env wire.Envelope) {
		sum <- len(env.Payload)
		echo(p, env)
	}
	for range 2 {
		op.request(id, "w", wire.TFileRead, body)
		if n := recv(t, sum); n != len(content)+len(`{"content":""}`) {
			t.Fatalf("%d bytes arrived", n)
		}
		env := op.want(wire.TFileContents)
		if len(env.Payload) != len(content)+len(`{"content":""}`) || !bytes.Contains(env.Payload, []byte(content)) {
			t.Fatalf("%d bytes came back", len(env.Payload))
		}
	}
}

func TestThrottle(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files)
	const window = 2
	var mu sync.Mutex
	var held []wire.Envelope
	most := 0
	full := make(chan struct{}, 64)
	r.mu.Lock()
	data := r.data[id]
	r.mu.Unlock()
	data.send(wire.Message{Type: wire.TStatus, ID: "s", Payload: wire.Status{MaxConcurrent: window}})
	op.request(id, "first", wire.TFileStat, wire.Empty{}) // STATUS was read before its answer
	op.want(wire.TFileStatResponse)
	r.onData = func(p *peer, env wire.Envelope) {
		env.Payload = bytes.Clone(env.Payload)
		mu.Lock()
		defer mu.Unlock()
		held = append(held, env)
		most = max(most, len(held))
		if len(held) == window {
			full <- struct{}{}
		}
	}
	const all = 20
	for i := range all {
		op.request(id, fmt.Sprint(i), wire.TFileStat, map[string]int{"n": i})
	}
	for i := 0; i < all; i++ {
		if i%window == 0 {
			recv(t, full)
			mu.Lock()
			batch := held
			held = nil
			mu.Unlock()
			for _, env := range batch {
				capacity := 1
				data.send(wire.Message{Type: wire.TFileStatResponse, ID: env.ID, PendingCapacity: &capacity, Payload: wire.Raw(env.Payload)})
			}
		}
		if env := op.want(wire.TFileStatResponse); string(env.Payload) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Fatalf("%d: %s", i, env.Payload)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most > window {
		t.Errorf("%d at once, the device takes %d", most, window)
	}
}

// A device with less room than it said before refuses; what it refused is sent
// again when there is room, and nobody sees it. Where it says how much room it
// has, the order stays.
func TestOverloadIsHidden(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprint("told=", told), func(t *testing.T) { overwhelm(t, told) })
	}
}

func overwhelm(t *testing.T, told bool) {
	tim := quick()
	tim.prod = 50 * time.Millisecond // this device may say that it is full after it said that it isn't
	_, r, op, id := talk(t, tim, wire.Files)
	if told {
		r.mu.Lock()
		r.data[id].send(wire.Message{Type: wire.TStatus, ID: "s", Payload: wire.Status{MaxConcurrent: 1}})
		r.mu.Unlock()
		until(t, "told", func() bool { return r.b.srv.sessions[sessionRef{owner, id}].lane.known() == 1 })
	}
	var inFlight atomic.Int32
	var order []string
	work := make(chan func(), 64)
	r.onData = func(p *peer, env wire.Envelope) {
		zero, one := 0, 1
		if inFlight.Load() == 1 {
			p.send(wire.Message{Type: wire.TError, ID: env.ID, PendingCapacity: &zero,
				Payload: wire.Errorf(wire.ShimOverloaded, "full").With("max_concurrent", 1)})
			return
		}
		inFlight.Store(1)
		order = append(order, string(env.Payload))
		env.Payload = bytes.Clone(env.Payload)
		work <- func() {
			inFlight.Store(0)
			p.send(wire.Message{Type: wire.TAck, ID: env.ID, PendingCapacity: &one, Payload: wire.Raw(env.Payload)})
		}
	}
	for i := range 8 {
		op.request(id, fmt.Sprint(i), wire.TFileWrite, map[string]int{"n": i})
	}
	answered := map[string]bool{}
	for range 8 {
		recv(t, work)()
		answered[op.want(wire.TAck).ID] = true
	}
	if len(answered) != 8 || len(order) != 8 {
		t.Errorf("answered %v", answered)
	}
	if told && fmt.Sprint(order) != `[{"n":0} {"n":1} {"n":2} {"n":3} {"n":4} {"n":5} {"n":6} {"n":7}]` {
		t.Errorf("the device ran %v", order)
	}
}

func TestFullForTooLong(t *testing.T) {
	tim := quick()
	tim.queue = 100 * time.Millisecond
	_, r, op, id := talk(t, tim, wire.Files)
	zero := 0
	r.mu.Lock()
	data := r.data[id]
	r.mu.Unlock()
	data.send(wire.Message{Type: wire.TStatus, ID: "s", PendingCapacity: &zero, Payload: wire.Status{InFlight: 3, MaxConcurrent: 3}})
	until(t, "full", func() bool {
		l := &r.b.srv.sessions[sessionRef{owner, id}].lane
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.full
	})
	op.request(id, "1", wire.TFileStat, wire.Empty{})
	if e := op.wantError("1"); e.Code != wire.ShimOverloaded || e.Details["max_concurrent"] != 3.0 {
		t.Errorf("%+v", e)
	}
	op.request(id, "2", wire.TFileStat, wire.Empty{})
	three := 3
	data.send(wire.Message{Type: wire.TStatus, ID: "s", PendingCapacity: &three, Payload: wire.Status{MaxConcurrent: 3}})
	if env := op.want(wire.TFileStatResponse); env.ID != "2" {
		t.Errorf("%+v", env)
	}
}

func TestQueueIsBounded(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files)
	r.onData = func(*peer, wire.Envelope) {} // answers nothing
	n := maxQueued + assumedWindow
	for i := range n + 1 {
		op.request(id, fmt.Sprint(i), wire.TFileStat, wire.Empty{})
	}
	if e := op.wantError(fmt.Sprint(n)); e.Code != wire.ShimOverloaded {
		t.Errorf("%+v", e)
	}
}

func TestOutstandingIsBounded(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	r.tree[homeDir] = []string{"0", "1", "2", "3", "4"}
	op := b.operator(opTok)
	r.onData = func(*peer, wire.Envelope) {}
	sent := 0
	for i := range 5 {
		id := b.openSession(opTok, map[string]any{"machine": machID, "root": fmt.Sprint(homeDir, "/", i)})
		for range 60 {
			if sent++; sent <= maxOutstanding+1 {
				op.request(id, fmt.Sprint(sent), wire.TFileStat, wire.Empty{})
			}
		}
	}
	if e := op.wantError(fmt.Sprint(maxOutstanding + 1)); e.Code != wire.ShimOverloaded || e.Details["max_concurrent"] != 256.0 {
		t.Errorf("%+v", e)
	}
}

func TestIdsAreTheOperatorsOwn(t *testing.T) {
	b, r, one, id := talk(t, quick(), wire.Files)
	two := b.operator(opTok)
	hold := make(chan struct{})
	var once sync.Once
	r.onData = func(p *peer, env wire.Envelope) {
		once.Do(func() { <-hold })
		echo(p, env)
	}
	one.request(id, "same", wire.TFileStat, map[string]int{"n": 1})
	one.request(id, "same", wire.TFileStat, map[string]int{"n": 2}) // outstanding: dropped
	two.request(id, "same", wire.TFileStat, map[string]int{"n": 3}) // another socket: its own
	two.request(id, "other", wire.TFileStat, map[string]int{"n": 4})
	for _, p := range []*peer{one, two} { // what was sent before this has been read
		p.send(wire.Message{Type: wire.TPing, ID: "p"})
		p.want(wire.TPong)
	}
	close(hold)
	if env := one.want(wire.TFileStatResponse); string(env.Payload) != `{"n":1}` {
		t.Errorf("%s", env.Payload)
	}
	if env := two.want(wire.TFileStatResponse); string(env.Payload) != `{"n":3}` {
		t.Errorf("%s", env.Payload)
	}
	two.want(wire.TFileStatResponse)
	one.request(id, "same", wire.TFileStat, map[string]int{"n": 5}) // free again
	if env := one.want(wire.TFileStatResponse); string(env.Payload) != `{"n":5}` {
		t.Errorf("%s", env.Payload)
	}
}

func TestLocalModel(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.LocalLLM)
	r.onData = func(p *peer, env wire.Envelope) {
		for i := range 100 {
			p.send(wire.Message{Type: wire.TLocalLLMCompletionChunk, ID: env.ID, Payload: wire.LocalLLMChunk{Delta: fmt.Sprint(i)}})
		}
		p.send(wire.Message{Type: wire.TLocalLLMCompletionResponse, ID: env.ID, Payload: wire.Empty{}})
		p.send(wire.Message{Type: wire.TLocalLLMCompletionChunk, ID: env.ID, Payload: wire.LocalLLMChunk{Delta: "late"}})
	}
	for range 2 {
		op.request(id, "m", wire.TLocalLLMCompletion, wire.Empty{})
		for i := range 100 {
			env := op.want(wire.TLocalLLMCompletionChunk)
			var c wire.LocalLLMChunk
			if _ = wire.Decode(env.Payload, &c); c.Delta != fmt.Sprint(i) || env.ID != "m" || env.SessionID != id {
				t.Fatalf("%d: %s", i, env.Payload)
			}
		}
		op.want(wire.TLocalLLMCompletionResponse)
	}
}

func TestEndlessModelIsCut(t *testing.T) {
	small := ample
	small.stream = 1 << 20
	_, r, op, id := talkSmall(t, quick(), small, wire.LocalLLM)
	piece := strings.Repeat("x", 128<<10)
	r.onData = func(p *peer, env wire.Envelope) {
		for range 9 {
			p.send(wire.Message{Type: wire.TLocalLLMCompletionChunk, ID: env.ID, Payload: wire.LocalLLMChunk{Delta: piece}})
		}
	}
	op.request(id, "m", wire.TLocalLLMCompletion, wire.Empty{})
	for {
		env, _, err := op.next()
		if err != nil {
			t.Fatal(err)
		}
		if env.Type == wire.TError {
			var e wire.Error
			if _ = wire.Decode(env.Payload, &e); e.Code != wire.LocalLLMFailed || e.Details["reason"] != "stream_too_long" {
				t.Errorf("%+v", e)
			}
			return
		}
	}
}

// An operator that reads nothing holds up neither the device nor another
// operator of the same session, and gets nothing new asked for.
func TestSlowOperator(t *testing.T) {
	small := ample
	small.high, small.low = 2<<20, 1<<20
	b, r, fast, id := talkSmall(t, quick(), small, wire.Files)
	body := wire.Raw(`{"content":"` + strings.Repeat("x", 1<<20) + `"}`)
	const all, most = 48, 24 // the buffers of a loopback connection hold several MiB too
	var served atomic.Int32
	r.onData = func(p *peer, env wire.Envelope) {
		if env.Type == wire.TFileRead {
			served.Add(1)
			p.send(wire.Message{Type: wire.TFileContents, ID: env.ID, Payload: body})
			return
		}
		echo(p, env)
	}
	slow := b.operator(opTok)
	for i := range all {
		slow.request(id, fmt.Sprint(i), wire.TFileRead, wire.Empty{})
	}
	until(t, "something served", func() bool { return served.Load() >= 3 })
	for i := range 50 {
		fast.request(id, fmt.Sprint(i), wire.TFileStat, wire.Empty{})
		fast.want(wire.TFileStatResponse)
	}
	if n := served.Load(); n > most {
		t.Errorf("%d answers of 1 MiB asked for, for an operator that reads none", n)
	}
	// Once it reads, it gets everything.
	for i := range all {
		if env := slow.want(wire.TFileContents); env.ID != fmt.Sprint(i) {
			t.Fatalf("%d: %s", i, env.ID)
		}
	}
}

// A device that doesn't read bounds what waits for it and holds up nobody else.
func TestSlowDevice(t *testing.T) {
	small := ample
	small.lane = 5 << 20
	b := startSmall(t, quick(), small)
	r := b.robot(wire.Files).connect()
	stuck := b.openSession(opTok, map[string]any{"machine": machID})
	free := b.openSession(opTok, map[string]any{"machine": machID, "root": homeDir + "/a"})
	r.await("data")
	r.await("data")
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	r.mu.Lock()
	mute := r.data[stuck]
	r.mu.Unlock()
	r.onData = func(p *peer, env wire.Envelope) {
		if p == mute {
			<-release
		}
		echo(p, env)
	}
	op := b.operator(opTok)
	body := wire.Raw(`{"content":"` + strings.Repeat("x", 1<<20-20) + `"}`)
	refused := 0
	for i := range 8 {
		op.request(stuck, fmt.Sprint("w", i), wire.TFileWrite, body)
	}
	for i := range 20 {
		op.request(free, fmt.Sprint(i), wire.TFileStat, wire.Empty{})
	}
	for i := 0; i < 20; {
		env, _, err := op.next()
		if err != nil {
			t.Fatal(err)
		}
		if env.Type == wire.TError {
			refused++
			continue
		}
		i++
	}
	if refused != 3 { // 5 MiB hold five of 1 MiB
		t.Errorf("%d refused", refused)
	}
}

func TestSilentSocketIsGivenUp(t *testing.T) {
	tim := quick()
	tim.ping, tim.silence = 50*time.Millisecond, 700*time.Millisecond
	b := startWith(t, tim)
	hello := wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(nil, wire.DirectoryBrowse)}
	p, _ := b.dial("/ws/local-executor", devTok)
	p.send(hello)
	p.want(wire.THelloAck) // reads no more, so answers no ping
	until(t, "given up", func() bool { return !b.srv.Online(owner, machID) })

	// One that only answers pings stays, for longer than the silence allowed.
	q, _ := b.dial("/ws/local-executor", devTok)
	q.send(hello)
	q.want(wire.THelloAck)
	pings := make(chan struct{}, 64)
	q.ws.SetPingHandler(func(data string) error {
		pings <- struct{}{}
		return q.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(time.Second))
	})
	done := make(chan error, 1)
	go func() { _, _, err := q.ws.ReadMessage(); done <- err }()
	for range 20 { // 20 pings take a second
		select {
		case <-pings:
		case err := <-done:
			t.Fatal(err)
		}
	}
	if !b.srv.Online(owner, machID) {
		t.Error("a socket that answers pings was given up")
	}
	_ = q.ws.Close()
	recv(t, done)
}

// A long frame that arrives in pieces is life, though no pong comes meanwhile.
func TestSlowFrameIsLife(t *testing.T) {
	tim := quick()
	tim.ping, tim.silence = 50*time.Millisecond, 700*time.Millisecond
	b := startWith(t, tim)
	p, _ := b.dial("/ws/local-executor", devTok)
	p.send(wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(nil, wire.DirectoryBrowse, wire.AuditAnchor)})
	p.want(wire.THelloAck)
	body := `{"type":"STATUS","id":"s","payload":{"max_concurrent":1,"audit_anchor":{"seq":1,"hmac":"` + strings.Repeat("a", 2000) + `"}}}`
	frame := []byte{0x81, 0xfe, byte(len(body) >> 8), byte(len(body)), 0, 0, 0, 0}
	conn := p.ws.NetConn()
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(body) > 0 {
		<-tick.C
		n := min(len(body), 100)
		if _, err := conn.Write([]byte(body[:n])); err != nil {
			t.Fatal(err)
		}
		body = body[n:]
	}
	if a := recv(t, b.auth.anchored); a.Seq != 1 {
		t.Errorf("%+v", a)
	}
}

// Small frames to a reader that is late fill the connection in the middle of a
// frame; nothing is lost, torn or reordered.
func TestManySmallFrames(t *testing.T) {
	b, r, op, id := talk(t, quick(), wire.LocalLLM)
	const n = 60000
	r.onData = func(p *peer, env wire.Envelope) {
		for i := range n {
			p.send(wire.Message{Type: wire.TLocalLLMCompletionChunk, ID: env.ID, Payload: wire.LocalLLMChunk{Delta: fmt.Sprint(i, strings.Repeat("·", i%97))}})
		}
		p.send(wire.Message{Type: wire.TLocalLLMCompletionResponse, ID: env.ID, Payload: wire.Empty{}})
	}
	op.request(id, "m", wire.TLocalLLMCompletion, wire.Empty{})
	var sock *socket
	until(t, "listed", func() bool {
		for _, o := range b.srv.listeners.all(func(*operator) bool { return true }) {
			sock = o.sock
		}
		return sock != nil
	})
	until(t, "the connection full", func() bool {
		sock.mu.Lock()
		defer sock.mu.Unlock()
		return sock.bytes > 1<<20
	})
	for i := range n {
		env := op.want(wire.TLocalLLMCompletionChunk)
		var c wire.LocalLLMChunk
		if err := wire.Decode(env.Payload, &c); err != nil || c.Delta != fmt.Sprint(i, strings.Repeat("·", i%97)) {
			t.Fatalf("%d: %s", i, env.Payload)
		}
	}
	op.want(wire.TLocalLLMCompletionResponse)
}

// Over TLS everything goes through the writer, since a record can't be written
// in part.
func TestOverTLS(t *testing.T) {
	b := start(t)
	b.tls = true
	b.restart()
	r := b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	op := b.operator(opTok)
	body := wire.Raw(`{"content":"` + strings.Repeat("x", 3<<20) + `"}`)
	for i := range 100 {
		if i%25 == 0 {
			op.request(id, fmt.Sprint("big", i), wire.TFileWrite, body)
		}
		op.request(id, fmt.Sprint(i), wire.TFileStat, map[string]int{"n": i})
		if i%25 == 0 {
			if env := op.want(wire.TAck); len(env.Payload) != len(body) {
				t.Fatalf("%d bytes came back", len(env.Payload))
			}
		}
		if env := op.want(wire.TFileStatResponse); string(env.Payload) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Fatalf("%d: %s", i, env.Payload)
		}
	}
	b.srv.RevokeFamily(owner, "fam_1")
	r.await("control closed 4428")
	r.await("data closed 4428")
}

// A socket whose other side doesn't read or answer holds up neither its closing
// nor the relay's.
func TestShutdownWithDeadPeers(t *testing.T) {
	tim := quick()
	tim.shutdown = 200 * time.Millisecond
	b := startWith(t, tim)
	p, _ := b.dial("/ws/local-executor", devTok)
	p.send(wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(nil, wire.DirectoryBrowse)})
	p.want(wire.THelloAck)
	b.operator(opTok)
	done := make(chan error, 1)
	go func() { done <- b.srv.Shutdown(t.Context()) }()
	if err := recv(t, done); err != nil {
		t.Error(err)
	}
}

// Sessions end with the token that they belong to.
func TestSessionsEndWithTheirToken(t *testing.T) {
	tim := quick()
	tim.sweep = time.Millisecond
	b := startWith(t, tim)
	b.auth.mu.Lock()
	b.auth.operators["brief"] = access.Operator{Owner: owner, Holder: "hold_b", Ceiling: &wire.Ceiling{}, Expires: time.Now().Add(time.Second)}
	b.auth.mu.Unlock()
	r := b.robot(wire.Files).connect()
	b.openSession("brief", map[string]any{"machine": machID})
	r.await("data closed 4428")
	if _, out := b.api("GET", "/api/sessions", opTok, nil); len(out["sessions"].([]any)) != 0 {
		t.Errorf("%v", out)
	}
}

// One login that asks too fast is told when to go on; what it asked before and
// who else asks isn't touched.
func TestRateLimits(t *testing.T) {
	b := start(t)
	b.limits = limit.New(limit.Rates{Calls: 1, Requests: 1}) // ten at once
	b.auth.operators["agent"] = access.Operator{Owner: owner, Name: "ada", Holder: "hold_agent"}
	b.restart()
	b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": "lab"})
	op := b.operator(opTok)
	for i := range 12 {
		op.request(id, fmt.Sprint("q", i), wire.TFileStat, map[string]any{"path": "x"})
	}
	answered, refused := 0, 0
	for range 12 {
		env, raw, err := op.next()
		if err != nil {
			t.Fatal(err)
		}
		var e wire.Error
		switch {
		case env.Type == wire.TFileStatResponse:
			answered++
		case env.Type == wire.TError && wire.Decode(env.Payload, &e) == nil && e.Code == limit.Code && e.Details["retry_after_seconds"].(float64) > 0:
			refused++
		default:
			t.Fatalf("got %s", raw)
		}
	}
	if answered < 10 || refused < 1 { // a slow machine earns one more meanwhile
		t.Fatalf("%d answered, %d refused", answered, refused)
	}
	for range 20 {
		status, code := b.apiCode("GET", "/api/sessions", opTok, nil)
		if status == 429 && code == limit.Code {
			if status, code := b.apiCode("GET", "/api/sessions", "agent", nil); status != 200 {
				t.Fatalf("another token: %d %s", status, code)
			}
			return
		}
	}
	t.Fatal("calls aren't bounded")
}
