package route

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/relay/limit"
	"farhand/wire"
)

// endless is what a device does that has a request run until it is cancelled. What
// it gets is told.
func endless(got chan<- wire.Envelope) func(*peer, wire.Envelope) {
	return func(p *peer, env wire.Envelope) {
		got <- env
		switch env.Type {
		case wire.TExecuteCommand:
		case wire.TCancel:
			p.send(wire.Message{Type: wire.TError, ID: env.ID, Payload: wire.Errorf(wire.Cancelled, "cancelled")})
		default:
			echo(p, env)
		}
	}
}

// An operator's link that breaks takes along what it had asked for: nobody gets the
// answers, and others would wait for the device until it is done.
func TestAbandonedRequestsEnd(t *testing.T) {
	b, r, op, id := talk(t, quick(), wire.Shell, wire.Files, wire.Cancel)
	got := make(chan wire.Envelope, 64)
	r.onData = endless(got)
	asked := map[string]bool{}
	for i := range assumedWindow {
		op.request(id, fmt.Sprint("runs", i), wire.TExecuteCommand, wire.ExecuteCommand{})
		asked[recv(t, got).ID] = true
	}
	op.request(id, "waits", wire.TExecuteCommand, wire.ExecuteCommand{})
	lane := &b.srv.machine(owner, machID).sessions[id].lane
	until(t, "one waits", func() bool { return lane.outstanding() == assumedWindow+1 })
	_ = op.ws.NetConn().Close()
	for range assumedWindow {
		if env := recv(t, got); env.Type != wire.TCancel || !asked[env.ID] {
			t.Fatalf("the device gets %+v", env)
		}
	}
	until(t, "nothing is left", func() bool { return lane.outstanding() == 0 })
	other := b.operator(opTok)
	other.request(id, "mine", wire.TFileStat, wire.Empty{})
	other.want(wire.TFileStatResponse)
	if env := recv(t, got); env.Type != wire.TFileStat {
		t.Errorf("the device gets %+v", env)
	}
}

// What was cancelled and comes back to the queue, since the device's link was lost,
// isn't sent again.
func TestCancelledIsNotRepeated(t *testing.T) {
	_, r, op, id := talk(t, quick(), wire.Files, wire.Cancel)
	got := make(chan wire.Envelope, 16)
	r.onData = func(_ *peer, env wire.Envelope) { got <- env }
	op.request(id, "read", wire.TFileRead, map[string]any{"path": "x"})
	recv(t, got)
	op.request(id, "read", wire.TCancel, wire.Empty{})
	if env := recv(t, got); env.Type != wire.TCancel {
		t.Fatalf("the device gets %+v", env)
	}
	r.dropData(id)
	if e := op.wantError("read"); e.Code != wire.Cancelled {
		t.Errorf("%+v", e)
	}
	if len(got) != 0 {
		t.Errorf("the device gets %+v", <-got)
	}
}

// Who asks too fast can still take back what it asked, and the device is told once.
func TestCancelIsNotLimited(t *testing.T) {
	b := start(t)
	b.limits = limit.New(limit.Rates{Requests: 0.1}) // one at once
	b.restart()
	r := b.robot(wire.Shell, wire.Cancel)
	got := make(chan wire.Envelope, 1024)
	r.onData = func(_ *peer, env wire.Envelope) { got <- env }
	r.connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	op := b.operator(opTok)
	op.request(id, "runs", wire.TExecuteCommand, wire.ExecuteCommand{})
	asked := recv(t, got)
	op.request(id, "late", wire.TExecuteCommand, wire.ExecuteCommand{})
	if e := op.wantError("late"); e.Code != limit.Code {
		t.Fatalf("%+v", e)
	}
	for range 2 * nuisanceLimit {
		op.request(id, "runs", wire.TCancel, wire.Empty{})
	}
	if env := recv(t, got); env.Type != wire.TCancel || env.ID != asked.ID {
		t.Fatalf("the device gets %+v", env)
	}
	op.send(wire.Message{Type: wire.TPing, ID: "p"})
	op.want(wire.TPong)
	r.mu.Lock()
	data := r.data[id]
	r.mu.Unlock()
	data.send(wire.Message{Type: wire.TCommandResult, ID: asked.ID, Payload: wire.CommandResult{}})
	op.want(wire.TCommandResult)
	if len(got) != 0 {
		t.Errorf("told once more: %+v", <-got)
	}
}

// Credit is bounded, too, each looking machines up; but not by what else is asked.
func TestCreditIsLimited(t *testing.T) {
	b := start(t)
	b.limits = limit.New(limit.Rates{Requests: 0.5}) // five at once
	b.restart()
	r := b.robot(wire.Streams, wire.HardwareGPIO)
	got := make(chan wire.Envelope, 256)
	r.onData = func(p *peer, env wire.Envelope) {
		got <- env
		echo(p, env)
	}
	r.connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	op := b.operator(opTok)
	for i := range 20 {
		op.request(id, fmt.Sprint(i), wire.THardwareOp, wire.Empty{})
		env, _, err := op.next()
		if err != nil {
			t.Fatal(err)
		}
		if env.Type == wire.TError {
			break
		}
		recv(t, got)
	}
	for i := range 100 {
		op.request(id, fmt.Sprint("c", i), wire.TStreamCredit, wire.StreamCredit{Stream: "s", Bytes: 1})
	}
	for range 5 {
		if env := recv(t, got); env.Type != wire.TStreamCredit {
			t.Fatalf("the device gets %+v", env)
		}
	}
	op.send(wire.Message{Type: wire.TPing, ID: "p"})
	op.want(wire.TPong)
	if n := len(got); n > 50 {
		t.Errorf("%d more came", n)
	}
}

// What a lane hands over it doesn't count any more, what is attached included: else
// it would be full for ever one day.
func TestHandedOverIsForgotten(t *testing.T) {
	s := &Server{timing: quick(), bounds: ample}
	l := &lane{srv: s, hungry: func() {}}
	done := make(chan result, 1)
	l.submit(&request{payload: []byte("{}"), data: make([]byte, 1000), deliver: func(r result) { done <- r }})
	if l.bytes != 1002 {
		t.Fatalf("%d bytes", l.bytes)
	}
	l.handOver()
	if r := recv(t, done); r.err == nil || r.err.Code != wire.MachineUnreachable {
		t.Errorf("%+v", r)
	}
	s.wg.Wait()
	if l.bytes != 0 || l.outstanding() != 0 {
		t.Errorf("%d bytes are left", l.bytes)
	}
}

// CANCEL finds the instance that has the request, also where the router chose the
// machine; it is no act of its own; and an operator's end is heard of there.
func TestClusterCancel(t *testing.T) {
	all := startCluster(t, 2)
	for _, b := range all {
		b.withActs()
		b.restart()
	}
	got := make(chan wire.Envelope, 64)
	for i, name := range []string{"lab", "shed"} {
		r := all[0].robot(wire.Shell, wire.Files, wire.Cancel)
		if i == 1 {
			r = all[1].another(name, wire.Shell, wire.Cancel)
		}
		r.onData = endless(got)
		r.connect()
	}
	for _, b := range all {
		until(t, "both are known", func() bool { return b.srv.Online(owner, machID) && b.srv.Online(owner, "shed-id") })
	}
	id := all[1].openSession(opTok, map[string]any{"machine": "lab", "span": true})
	if status, out := all[1].api("POST", "/api/sessions", opTok, map[string]any{"machine": "shed", "session_id": id}); status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	op := all[1].operator(opTok)
	for i := range 4 { // one after the other at each machine
		ref := fmt.Sprint("q", i)
		op.request(id, ref, wire.TExecuteCommand, wire.ExecuteCommand{})
		asked := recv(t, got)
		for range 3 {
			op.request(id, ref, wire.TCancel, wire.Empty{})
		}
		if env := recv(t, got); env.Type != wire.TCancel || env.ID != asked.ID {
			t.Fatalf("%s: the device gets %+v", ref, env)
		}
		if e := op.wantError(ref); e.Code != wire.Cancelled {
			t.Fatalf("%+v", e)
		}
	}
	intents := 0
	for _, a := range all[1].actsOf(opTok) {
		if strings.HasPrefix(a, "EXECUTE_COMMAND intent") {
			intents++
		}
	}
	if intents != 4 || len(got) != 0 {
		t.Errorf("%d intents of 4, %d frames more", intents, len(got))
	}
	asked := map[string]bool{}
	for i := range 2 {
		op.request(id, fmt.Sprint("last", i), wire.TExecuteCommand, wire.ExecuteCommand{})
		asked[recv(t, got).ID] = true
	}
	_ = op.ws.NetConn().Close()
	for range 2 {
		if env := recv(t, got); env.Type != wire.TCancel || !asked[env.ID] {
			t.Fatalf("the device gets %+v", env)
		}
	}
}

// What is attached to a frame passes between instances, as a binary message, also
// where the router stamps the frame with the machine that it chose.
func TestClusterAttached(t *testing.T) {
	all := startCluster(t, 2)
	r := all[0].robot(wire.Files, wire.Transfer)
	data := "\xff\x00 no text"
	came := make(chan string, 8)
	r.onData = func(p *peer, env wire.Envelope) {
		if env.Type == wire.TTransferChunk {
			came <- string(env.Data)
			p.send(wire.Message{Type: wire.TAck, ID: env.ID, Payload: wire.Ack{OK: true}})
			return
		}
		p.send(wire.Message{Type: wire.TTransferData, ID: env.ID, Payload: &wire.Attached{Payload: wire.Empty{}, Data: []byte(data)}})
	}
	r.connect()
	settled(t, all, all[0])
	op := all[1].operator(opTok)
	for _, span := range []bool{false, true} {
		id := all[1].openSession(opTok, map[string]any{"machine": "lab", "span": span})
		for _, target := range []string{"", "lab"} {
			op.send(wire.Message{Type: wire.TTransferChunk, ID: "c", SessionID: id, TargetMachine: target,
				Payload: &wire.Attached{Payload: wire.TransferChunk{Transfer: "t"}, Data: []byte(data)}})
			if got := recv(t, came); got != data {
				t.Errorf("span %t, for %q: the device gets %q", span, target, got)
			}
			op.want(wire.TAck)
			op.send(wire.Message{Type: wire.TTransferRead, ID: "r", SessionID: id, TargetMachine: target, Payload: wire.Empty{}})
			_ = op.ws.SetReadDeadline(time.Now().Add(time.Minute))
			kind, b, err := op.ws.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			env, err := wire.DecodeEnvelope(b)
			if err != nil || env.Type != wire.TTransferData || string(env.Data) != data || kind != websocket.BinaryMessage {
				t.Errorf("span %t, for %q: kind %d, %q, %v", span, target, kind, b, err)
			}
		}
	}
}

// What an instance says late isn't said if it is no longer true: where a machine is
// stands in the store, not in what the instance last heard.
func TestStillGone(t *testing.T) {
	all := startCluster(t, 2)
	r := all[1].robot(wire.Files)
	key := machineKey{owner, machID}
	gone := func(b *bench) bool { return b.srv.places.stillGone(key)(t.Context()) }
	if !gone(all[0]) {
		t.Error("a machine that never came isn't gone")
	}
	r.connect()
	settled(t, all, all[1])
	// As after a time without NATS, in which nobody was heard of.
	all[0].srv.places.mu.Lock()
	clear(all[0].srv.places.where)
	all[0].srv.places.mu.Unlock()
	if gone(all[0]) {
		t.Error("a machine that is elsewhere is gone")
	}
	if !gone(all[1]) {
		t.Error("what happens where the machine is isn't told")
	}
	if all[0].srv.places.surelyGone(all[1].node.ID()) {
		t.Error("an instance that is there is surely gone")
	}
	all[1].die()
	until(t, "the instance's end is seen", func() bool { return gone(all[0]) && all[0].srv.places.surelyGone(all[1].node.ID()) })
}
