package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/relay/access"
	"farhand/wire"
)

// flow is a scripted stream on a device's socket: what it opened, who has it.
type flow struct {
	p    *peer
	from string // id of the request that opened or last attached it
	n    int    // frames sent
	next int64
}

func (f *flow) send(data string) {
	f.n++
	f.p.send(wire.Message{Type: wire.TStreamData, ID: fmt.Sprintf("%s/%d", f.from, f.n),
		Payload: wire.StreamData{Stream: "s", Offset: f.next, Data: []byte(data)}})
	f.next += int64(len(data))
}

// opener answers HARDWARE_OP by opening a stream, STREAM_ATTACH by handing one
// over, and gives what it got.
func opener(r *robot) <-chan *flow {
	flows := make(chan *flow, 16)
	r.onData = func(p *peer, env wire.Envelope) {
		switch env.Type {
		case wire.THardwareOp:
			p.send(wire.Message{Type: wire.THardwareResult, ID: env.ID, Payload: wire.HardwareResult{Result: wire.Opened{Stream: "s"}}})
		case wire.TStreamAttach:
			p.send(wire.Message{Type: wire.TStreamAttached, ID: env.ID, Payload: wire.StreamAttached{Stream: "s"}})
		default:
			echo(p, env)
			return
		}
		flows <- &flow{p: p, from: env.ID}
	}
	return flows
}

func streamData(t *testing.T, env wire.Envelope) wire.StreamData {
	t.Helper()
	var d wire.StreamData
	if err := wire.Decode(env.Payload, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// A stream flows to the operator who opened it, whatever else that or another
// one asks for, and after STREAM_ATTACH to whoever attached it.
func TestStreamFindsItsOperator(t *testing.T) {
	b, r, first, id := talk(t, quick(), wire.HardwareGPIO, wire.Streams)
	flows := opener(r)
	second := b.operator(opTok)
	first.request(id, "open", wire.THardwareOp, wire.HardwareOp{Op: "GPIO_WATCH"})
	f := recv(t, flows)
	for i := range 10 {
		f.send(fmt.Sprint(i))
	}
	if env := first.want(wire.THardwareResult); env.ID != "open" {
		t.Fatalf("%+v", env)
	}
	for i := range 10 {
		env := first.want(wire.TStreamData)
		if d := streamData(t, env); env.SessionID != id || env.ID == "" || string(d.Data) != fmt.Sprint(i) {
			t.Fatalf("%d: %+v %s", i, env, env.Payload)
		}
	}
	second.request(id, "take", wire.TStreamAttach, wire.StreamAttach{Stream: "s"})
	f = recv(t, flows)
	f.send("x")
	second.want(wire.TStreamAttached)
	if d := streamData(t, second.want(wire.TStreamData)); string(d.Data) != "x" {
		t.Fatalf("%+v", d)
	}
	first.send(wire.Message{Type: wire.TPing, ID: "p"}) // and the first got nothing more
	first.want(wire.TPong)
}

// STREAM_CREDIT goes to the device under an id of its own, is answered by
// nobody, and takes no room: it passes while as many requests as there may be
// are unanswered.
func TestCreditIsNoRequest(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.HardwareGPIO, wire.Streams)
	got := make(chan wire.Envelope, maxOutstanding+16)
	r.onData = func(_ *peer, env wire.Envelope) {
		env.Payload = bytes.Clone(env.Payload)
		got <- env
	}
	op.request(id, "stuck", wire.THardwareOp, wire.HardwareOp{Op: "GPIO_WATCH"}) // never answered, and the window is 1
	asked := recv(t, got)
	for i := range maxOutstanding + 10 {
		op.request(id, "same", wire.TStreamCredit, wire.StreamCredit{Stream: "s", Bytes: i})
		env := recv(t, got)
		var c wire.StreamCredit
		if err := wire.Decode(env.Payload, &c); err != nil || env.Type != wire.TStreamCredit || c.Bytes != i || env.ID == asked.ID || env.ID == "same" {
			t.Fatalf("%d: %+v %s", i, env, env.Payload)
		}
		asked = env
	}
	op.send(wire.Message{Type: wire.TPing, ID: "p"})
	op.want(wire.TPong) // and nothing before it
}

// A device that isn't read loses STREAM_CREDIT beyond a bound, and nothing else.
func TestCreditIsBounded(t *testing.T) {
	b, r, op, id := talk(t, quick(), wire.HardwareGPIO, wire.Streams)
	stop := make(chan struct{})
	var credits atomic.Int32
	r.onData = func(p *peer, env wire.Envelope) {
		<-stop
		if env.Type == wire.TStreamCredit {
			credits.Add(1)
			return
		}
		echo(p, env)
	}
	op.request(id, "first", wire.THardwareOp, wire.HardwareOp{Op: "X"})
	d := b.srv.sessions[sessionRef{owner, id}].conn()
	body := wire.StreamCredit{Stream: strings.Repeat("s", 900), Bytes: 1}
	most := 0
	for range 20000 { // 20 MB: more than a loopback connection holds
		op.request(id, "c", wire.TStreamCredit, body)
		d.sock.mu.Lock()
		most = max(most, d.sock.loose)
		d.sock.mu.Unlock()
	}
	until(t, "the operator's frames read", func() bool {
		op.send(wire.Message{Type: wire.TPing, ID: "p"})
		env, _, err := op.next()
		return err == nil && env.Type == wire.TPong
	})
	if most == 0 || most > ample.credit+2<<10 {
		t.Errorf("%d bytes of credit waited, the bound is %d", most, ample.credit)
	}
	op.request(id, "last", wire.THardwareOp, wire.HardwareOp{Op: "Y"})
	close(stop)
	for op.want(wire.THardwareResult).ID != "last" {
	}
	if n := credits.Load(); n == 0 || n == 20000 {
		t.Errorf("%d of 20000 came through", n)
	}
}

// What isn't STREAM_CREDIT at all, or leads nowhere, is dropped; a flood of the
// first is abuse.
func TestStrayCredit(t *testing.T) {
	b := start(t)
	op := b.operator(opTok)
	op.request("nope", "1", wire.TStreamCredit, wire.StreamCredit{})
	op.send(wire.Message{Type: wire.TStreamCredit, ID: "2", TargetMachine: "mars", Payload: wire.StreamCredit{}})
	op.send(wire.Message{Type: wire.TStreamCredit, ID: "3", TargetMachine: machID, Payload: wire.StreamCredit{}}) // offline
	op.send(wire.Message{Type: wire.TPing, ID: "p"})
	op.want(wire.TPong)
	for range nuisanceLimit + 1 {
		op.send(wire.Message{Type: wire.TStreamCredit, ID: "4", Payload: wire.StreamCredit{Stream: strings.Repeat("s", maxCredit)}})
	}
	op.wantClose(websocket.ClosePolicyViolation)
}

// A device may send frames of streams only if it was granted them, and only such
// as answer to an operator's request. A receiver that is gone is no offence.
func TestStreamsNeedTheGrant(t *testing.T) {
	large := wire.StreamData{Stream: "s", Data: make([]byte, maxPiece)}
	for _, c := range []struct {
		name string
		caps []wire.Capability
		id   func(request string) string
		fine bool
	}{
		{"too large", []wire.Capability{wire.HardwareGPIO, wire.Streams}, func(id string) string { return id + "/1" }, false},
		{"not granted", []wire.Capability{wire.HardwareGPIO}, func(id string) string { return id + "/1" }, false},
		{"no receiver", []wire.Capability{wire.HardwareGPIO, wire.Streams}, func(string) string { return "x" }, false},
		{"a request of the relay's", []wire.Capability{wire.HardwareGPIO, wire.Streams}, func(id string) string { return id[:13] + "7/1" }, false},
		{"receiver gone", []wire.Capability{wire.HardwareGPIO, wire.Streams}, func(id string) string { return id[:13] + "0123456789ab.7/1" }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, r, op, id := talk(t, quick(), c.caps...)
			r.onData = func(p *peer, env wire.Envelope) {
				piece := wire.StreamData{Stream: "s"}
				if c.name == "too large" {
					piece = large
				}
				for range nuisanceLimit + 1 {
					p.send(wire.Message{Type: wire.TStreamData, ID: c.id(env.ID), Payload: piece})
				}
				echo(p, env)
			}
			op.request(id, "1", wire.THardwareOp, wire.HardwareOp{Op: "X"})
			if c.fine {
				op.want(wire.THardwareResult)
				return
			}
			r.await("data closed 1008")
		})
	}
}

// Hardware frames are a violation on a socket that was granted no hardware, and
// no request for them is passed on.
func TestNoHardwareNoFrames(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files)
	seen := make(chan wire.Type, 16)
	r.onData = func(p *peer, env wire.Envelope) {
		seen <- env.Type
		for _, typ := range []wire.Type{wire.THardwareListResponse, wire.THardwareResult, wire.TStreamData, wire.TStreamAttached} {
			for range nuisanceLimit/4 + 1 {
				p.send(wire.Message{Type: typ, ID: env.ID})
			}
		}
	}
	for _, typ := range []wire.Type{wire.THardwareListRequest, wire.THardwareOp, wire.TStreamAttach, wire.TStreamClose} {
		op.request(id, string(typ), typ, wire.Empty{})
		want := wire.CapabilityNotGranted
		if method, _ := wire.MethodOf(typ); method.Capability == wire.Streams {
			want = wire.FeatureNotSupported // no ceiling names it: the device can't
		}
		if e := op.wantError(string(typ)); e.Code != want {
			t.Errorf("%s: %v", typ, e)
		}
	}
	op.request(id, "c", wire.TStreamCredit, wire.StreamCredit{})
	op.request(id, "f", wire.TFileStat, wire.Empty{})
	if typ := recv(t, seen); typ != wire.TFileStat {
		t.Errorf("the device was sent %s", typ)
	}
	r.await("data closed 1008")
}

// Nobody gets frames of a stream who doesn't hold the session: a device can't
// push them to another of its owner's operators, even if it knows the tag.
func TestStreamsStayInTheSession(t *testing.T) {
	b := start(t)
	b.auth.mu.Lock()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Holder: "hold_agent", Ceiling: &wire.Ceiling{}}
	b.auth.mu.Unlock()
	r := b.robot(wire.HardwareGPIO, wire.Streams)
	flows := opener(r)
	r.connect()
	mine, theirs := b.openSession(opTok, map[string]any{"machine": machID}), b.openSession("agent", map[string]any{"machine": machID})
	r.await("data")
	r.await("data")
	op, agent := b.operator(opTok), b.operator("agent")
	op.request(mine, "1", wire.THardwareOp, wire.HardwareOp{Op: "X"})
	agent.request(theirs, "1", wire.THardwareOp, wire.HardwareOp{Op: "X"})
	a, z := recv(t, flows), recv(t, flows)
	op.want(wire.THardwareResult)
	agent.want(wire.THardwareResult)
	a.from, z.from = z.from, a.from // each on the other's socket
	a.send("x")
	z.send("y")
	for _, f := range []*flow{a, z} { // pushed through: both sockets were read beyond the frames
		f.p.send(wire.Message{Type: wire.TPing, ID: "p"})
	}
	op.request(mine, "2", wire.TStreamClose, wire.StreamClose{})
	op.want(wire.TAck)
	agent.request(theirs, "2", wire.TStreamClose, wire.StreamClose{})
	agent.want(wire.TAck)
}

// An operator that doesn't read loses frames of streams, is told so once it
// reads again, and holds up neither the device nor anybody else.
func TestSlowStreamReader(t *testing.T) {
	small := ample
	small.streams = 256 << 10
	tim := quick()
	tim.silence, tim.write = time.Hour, time.Hour // who doesn't read answers no ping either
	b, r, slow, id := talkSmall(t, tim, small, wire.HardwareGPIO, wire.Streams)
	flows := opener(r)
	fast := b.operator(opTok)
	slow.request(id, "1", wire.THardwareOp, wire.HardwareOp{Op: "X"})
	f := recv(t, flows)
	fast.request(id, "1", wire.THardwareOp, wire.HardwareOp{Op: "X"})
	g := recv(t, flows)
	fast.want(wire.THardwareResult)
	piece := strings.Repeat("x", 32<<10)
	var sock *socket
	const pieces = 1000 // 44 MB encoded: more than a loopback connection holds
	for i := range pieces {
		f.send(piece)
		g.send(fmt.Sprint(i))
		if d := streamData(t, fast.want(wire.TStreamData)); string(d.Data) != fmt.Sprint(i) {
			t.Fatalf("%d: %s", i, d.Data)
		}
		if sock == nil {
			for _, op := range b.srv.listeners.all(func(op *operator) bool { return op.tag == f.from[13:25] }) {
				sock = op.sock
			}
		}
		sock.mu.Lock()
		loose, behind := sock.loose, sock.behind
		sock.mu.Unlock()
		if loose > small.streams+64<<10 {
			t.Fatalf("%d bytes of streams wait", loose)
		}
		if behind && i > 10 {
			break
		}
		if i == pieces-1 {
			t.Fatal("the connection took everything")
		}
	}
	slow.want(wire.THardwareResult)
	for at := int64(0); ; {
		env := slow.want(wire.TStreamData)
		d := streamData(t, env)
		if d.Stream == "" {
			if env.SessionID != id {
				t.Errorf("%+v", env)
			}
			break // told that something was lost
		}
		if d.Offset < at {
			t.Fatalf("offset %d after %d", d.Offset, at)
		}
		at = d.Offset + int64(len(d.Data))
	}
	slow.request(id, "2", wire.TStreamAttach, wire.StreamAttach{Stream: "s"})
	f = recv(t, flows)
	f.send("again")
	for slow.want(wire.TStreamAttached).ID != "2" {
	}
	if d := streamData(t, slow.want(wire.TStreamData)); string(d.Data) != "again" {
		t.Fatalf("%+v", d)
	}
}

// When the device's connection was replaced, the operators with streams on it
// are told to look; a stream that goes on by itself still finds its operator.
func TestStreamAfterTheDeviceReconnected(t *testing.T) {
	b, r, op, id := talk(t, quick(), wire.HardwareGPIO, wire.Streams)
	flows := opener(r)
	idle := b.operator(opTok)
	op.request(id, "1", wire.THardwareOp, wire.HardwareOp{Op: "X"})
	f := recv(t, flows)
	op.want(wire.THardwareResult) // and nothing came on the stream yet
	r.dropData(id)
	r.await("data closed 1006")
	op.request(id, "2", wire.TFileStat, wire.Empty{}) // not offered, but it needs a connection to say so
	op.wantError("2")
	op.request(id, "3", wire.TPing, wire.Empty{})
	r.await("data")
	if env := op.want(wire.TStreamData); env.SessionID != id || string(env.Payload) != "{}" {
		t.Fatalf("%+v %s", env, env.Payload)
	}
	op.want(wire.TPong)
	r.mu.Lock()
	f.p = r.data[id]
	r.mu.Unlock()
	f.send("y")
	if d := streamData(t, op.want(wire.TStreamData)); string(d.Data) != "y" {
		t.Fatalf("%+v", d)
	}
	idle.send(wire.Message{Type: wire.TPing, ID: "p"}) // who has no stream isn't bothered
	idle.want(wire.TPong)
}

// The hotplug stream comes on the control socket, where the device knows nothing
// of tokens: the relay leaves out what a token doesn't reach.
func TestHotplugOverControl(t *testing.T) {
	b := start(t)
	b.auth.mu.Lock()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Holder: "hold_agent", Ceiling: &wire.Ceiling{
		Capabilities: &[]wire.Capability{wire.HardwareSerial}, Devices: &[]wire.DeviceGrant{{Pattern: "*usb-[!1]"}}}}
	b.auth.mu.Unlock()
	r := b.robot(wire.HardwareSerial, wire.HardwareGPIO, wire.Streams)
	r.onControl = func(p *peer, env wire.Envelope) bool {
		m, _ := wire.MethodOf(env.Type)
		switch env.Type {
		case wire.THardwareListRequest:
			p.send(wire.Message{Type: m.Response, ID: env.ID, Payload: wire.HardwareListResponse{Devices: []wire.HardwareDevice{}, Stream: "h"}})
			records := []json.RawMessage{}
			for _, id := range []string{"serial:usb-1", "serial:usb-2", "gpio:x"} {
				family, _, _ := strings.Cut(id, ":")
				rec, _ := json.Marshal(wire.HardwareEvent{Event: wire.HardwareAdded, Device: wire.HardwareDevice{Type: family, ID: id}})
				records = append(records, rec)
			}
			p.send(wire.Message{Type: wire.TStreamData, ID: env.ID + "/1", Payload: wire.StreamData{Stream: "h", Records: records}})
			p.send(wire.Message{Type: wire.TStreamData, ID: env.ID + "/2", Payload: wire.Raw(`{"stream":7}`)}) // nothing that can be read
		case wire.TStreamCredit:
			r.note("credit")
		case wire.TStreamAttach, wire.TStreamClose:
			echo(p, env)
		default:
			return false
		}
		return true
	}
	r.connect()
	for token, want := range map[string]string{opTok: "serial:usb-1 serial:usb-2 gpio:x", "agent": "null serial:usb-2 null"} {
		op := b.operator(token)
		op.send(wire.Message{Type: wire.THardwareListRequest, ID: "l", TargetMachine: "lab", Payload: wire.HardwareListRequest{Watch: true}})
		var l wire.HardwareListResponse
		if err := wire.Decode(op.want(wire.THardwareListResponse).Payload, &l); err != nil || l.Stream != "h" {
			t.Errorf("%s: %+v %v", token, l, err)
		}
		env := op.want(wire.TStreamData)
		var got []string
		for _, rec := range streamData(t, env).Records {
			var e wire.HardwareEvent
			if string(rec) == "null" {
				e.Device.ID = "null"
			} else if err := json.Unmarshal(rec, &e); err != nil {
				t.Error(err)
			}
			got = append(got, e.Device.ID)
		}
		if strings.Join(got, " ") != want || env.TargetMachine != machID || env.SessionID != "" {
			t.Errorf("%s: %v in %+v", token, got, env)
		}
		second := op.want(wire.TStreamData)
		if (string(second.Payload) == "{}") != (token == "agent") {
			t.Errorf("%s: %s", token, second.Payload)
		}
		op.send(wire.Message{Type: wire.TStreamCredit, ID: "c", TargetMachine: "lab", Payload: wire.StreamCredit{Stream: "h"}})
		r.await("credit")
		op.send(wire.Message{Type: wire.TStreamAttach, ID: "a", TargetMachine: "lab", Payload: wire.StreamAttach{Stream: "h"}})
		op.want(wire.TStreamAttached)
		op.send(wire.Message{Type: wire.TStreamClose, ID: "x", TargetMachine: "lab", Payload: wire.StreamClose{Stream: "h"}})
		op.want(wire.TAck)
	}
}

// The relay sends nothing of its own on a data socket while nobody asks for
// anything: every frame there renews the dead-man's leases of the session. Its
// keepalive is WebSocket pings.
func TestQuietDataSocket(t *testing.T) {
	tim := quick()
	tim.ping = time.Millisecond
	b := startWith(t, tim)
	r := b.robot(wire.HardwareGPIO, wire.Streams, wire.Grants)
	r.noData = true
	r.connect()
	var open struct {
		status int
		id     string
	}
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		status, out := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID})
		open.status = status
		open.id, _ = out["session_id"].(string)
	}()
	var id string
	until(t, "activated", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for id = range r.bound {
		}
		return slices.Contains(r.seen, wire.TActivateSession)
	})
	p, status := b.dial("/ws/local-executor/"+id, devTok)
	if p == nil {
		t.Fatalf("data refused: %d", status)
	}
	root := homeDir
	p.send(wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(&root, r.caps...)})
	p.want(wire.THelloAck)
	<-opened
	if open.status != 200 {
		t.Fatalf("POST /api/sessions: %d", open.status)
	}
	pings, enough := 0, errors.New("enough")
	pong := p.ws.PingHandler()
	p.ws.SetPingHandler(func(data string) error {
		if pings++; pings == 20 {
			return enough
		}
		return pong(data)
	})
	if env, raw, err := p.next(); !errors.Is(err, enough) {
		t.Fatalf("%+v %s %v", env, raw, err)
	}
}

// The device's own PING is answered, an operator's with a session goes to it.
func TestPings(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.HardwareGPIO)
	got := make(chan wire.Type, 4)
	r.onData = func(p *peer, env wire.Envelope) {
		got <- env.Type
		switch env.Type {
		case wire.TPing:
			p.send(wire.Message{Type: wire.TPing, ID: "mine"})
			echo(p, env)
		case wire.TPong:
			if env.ID != "mine" {
				r.note("a strange PONG")
			}
		}
	}
	op.request(id, "1", wire.TPing, wire.Empty{})
	if env := op.want(wire.TPong); env.ID != "1" || env.SessionID != id {
		t.Errorf("%+v", env)
	}
	if a, b := recv(t, got), recv(t, got); a != wire.TPing || b != wire.TPong {
		t.Errorf("%s, %s", a, b)
	}
}

// A session with a stream isn't the idle one that makes room for another.
func TestStreamingSessionIsNotIdle(t *testing.T) {
	ses := &session{}
	now := time.Now()
	if ses.streaming(now) {
		t.Error("a session without a stream is said to have one")
	}
	ses.flowed.Store(now.Unix() - 60)
	if !ses.streaming(now) || ses.streaming(now.Add(time.Minute)) {
		t.Error("the time is wrong")
	}
}

// An approval that was changed counts when ApprovalChanged returns: each socket
// has acknowledged it.
func TestApprovalCountsAtOnce(t *testing.T) {
	b, r, _, _ := talk(t, quick(), wire.HardwareGPIO, wire.Streams, wire.Grants)
	release, asked := make(chan struct{}), make(chan struct{}, 1)
	r.onData = func(p *peer, env wire.Envelope) { echo(p, env) }
	r.onControl = func(p *peer, env wire.Envelope) bool {
		if env.Type != wire.TGrantsUpdate {
			return false
		}
		asked <- struct{}{}
		<-release
		return false
	}
	done := make(chan struct{})
	lines := []string{"GPIO17"}
	b.auth.approve(wire.Ceiling{Devices: &[]wire.DeviceGrant{{Pattern: "gpio:*", Lines: &lines}}})
	go func() {
		defer close(done)
		b.srv.ApprovalChanged(t.Context(), owner, machID)
	}()
	recv(t, asked)
	g := recv(t, r.grants) // of the data socket
	select {
	case <-done:
		t.Fatal("it returned before the control socket had acknowledged")
	default:
	}
	close(release)
	recv(t, done)
	if g.Approval == nil || g.Approval.Devices == nil || fmt.Sprint(*(*g.Approval.Devices)[0].Lines) != "[GPIO17]" {
		t.Errorf("%+v", g)
	}
}

func FuzzReceiver(f *testing.F) {
	f.Add("a1b2c3d4e5f6-0123456789ab.17/3")
	f.Add("a1b2c3d4e5f6-17/3")
	f.Add("-./")
	f.Fuzz(func(t *testing.T, id string) {
		if tag, ok := receiver(id); ok && (len(tag) != 2*tagSize || !strings.Contains(id, tag)) {
			t.Errorf("%q: %q", id, tag)
		}
		d := device{prefix: idPrefix()}
		op := &operator{tag: "0123456789ab"}
		if tag, ok := receiver(d.newID(op, 7) + "/" + id); !ok || tag != op.tag {
			t.Errorf("%q: %q", id, tag)
		}
		if tag, ok := receiver(d.newID(nil, 7) + "/1"); ok {
			t.Errorf("a request of our own has the receiver %q", tag)
		}
	})
}
