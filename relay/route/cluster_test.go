package route

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"farhand/internal/leak"
	"farhand/internal/natstest"
	"farhand/relay/access"
	"farhand/relay/cluster"
	"farhand/relay/events"
	"farhand/relay/events/natsfeed"
	"farhand/relay/store"
	"farhand/relay/store/natskv"
	"farhand/wire"
)

// startCluster is n instances on one NATS server, with one authority.
func startCluster(t *testing.T, n int) []*bench { return startClusterWith(t, n, quick()) }

func startClusterWith(t *testing.T, n int, tim timing) []*bench {
	t.Helper()
	leak.Check(t)
	server := natstest.Start(t)
	auth := newAuthority()
	var all []*bench
	for range n {
		b := &bench{t: t, auth: auth, tim: tim, size: ample, log: &bytes.Buffer{}, nats: server}
		t.Cleanup(func() {
			b.stop()
			if t.Failed() {
				t.Log(b.log.String())
			}
		})
		b.restart()
		all = append(all, b)
	}
	for _, b := range all {
		until(t, "everybody knows everybody", func() bool { return len(b.node.Peers()) == n })
	}
	return all
}

// join connects the instance to NATS, before its Server is made.
func (b *bench) join(log *slog.Logger) {
	b.t.Helper()
	var err error
	if b.conn, err = cluster.Connect(b.nats.URL, log); err != nil {
		b.t.Fatal(err)
	}
	if b.db, err = natskv.Open(b.t.Context(), b.conn, natskv.Options{Bucket: "test"}); err != nil {
		b.t.Fatal(err)
	}
	if b.feed, err = natsfeed.Open(b.t.Context(), b.conn, natsfeed.Options{Name: "test", Replicas: 1, Log: log}); err != nil {
		b.t.Fatal(err)
	}
	if b.node, err = cluster.Join(b.conn, cluster.Options{Name: "test", Log: log}); err != nil {
		b.t.Fatal(err)
	}
}

// serveInstances serves what comes from other instances.
func (b *bench) serveInstances() {
	b.t.Helper()
	if err := b.srv.Join(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	mux := http.NewServeMux()
	b.srv.RegisterInstance(mux)
	b.hops = &http.Server{Handler: FromInstance(mux)}
	b.served = make(chan struct{})
	go func(s *http.Server, l *cluster.Node, served chan struct{}) {
		_ = s.Serve(l.Listener())
		close(served)
	}(b.hops, b.node, b.served)
}

// part ends what join and serveInstances began.
func (b *bench) part() {
	_ = b.hops.Close()
	<-b.served
	if err := b.feed.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.node.Close(); err != nil {
		b.t.Error(err)
	}
	if b.conn.IsClosed() {
		return
	}
	closed := make(chan struct{})
	b.conn.SetClosedHandler(func(*nats.Conn) { close(closed) })
	b.conn.Close()
	<-closed
}

// die cuts the instance off as kill -9 does: nobody is told anything.
func (b *bench) die() {
	b.conn.Close()
	for _, k := range b.srv.tracked() {
		k.kill()
	}
}

// settled waits until every instance knows where the machine is.
func settled(t *testing.T, all []*bench, at *bench) {
	t.Helper()
	for _, b := range all {
		until(t, "the machine's place is known", func() bool {
			if b == at {
				return b.srv.known(owner, machID) != nil && b.srv.known(owner, machID).online() != nil
			}
			return b.srv.places.at(machineKey{owner, machID}) == at.node.ID()
		})
	}
}

// A request at any instance reaches the machine, wherever that is connected, and
// however its sockets are spread.
func TestClusterRequest(t *testing.T) {
	all := startCluster(t, 3)
	r := all[0].robot(wire.Files)
	r.dataAt = all[2]
	r.connect()
	settled(t, all, all[0])
	for _, b := range all {
		if !b.srv.Online(owner, machID) {
			t.Fatal("not online everywhere")
		}
		id := b.openSession(opTok, map[string]any{"machine": "lab"})
		op := b.operator(opTok)
		op.request(id, "q1", wire.TFileStat, map[string]any{"path": "x"})
		if env := op.want(wire.TFileStatResponse); env.ID != "q1" || env.SessionID != id {
			t.Fatalf("answer %+v", env)
		}
		if status, out := b.api("GET", "/api/machines/lab/roots", opTok, nil); status != 200 {
			t.Fatalf("roots: %d %v", status, out)
		}
		_, out := b.api("GET", "/api/sessions", opTok, nil)
		list := out["sessions"].([]any)
		if len(list) != 1 || list[0].(map[string]any)["live"] != true {
			t.Fatalf("sessions %v", out)
		}
	}
	// One machine, one session, one data socket.
	if n := len(r.data); n != 1 {
		t.Fatalf("%d data sockets", n)
	}
	id := all[1].openSession(opTok, map[string]any{"machine": "lab"})
	if status, out := all[1].api("DELETE", "/api/sessions/"+id, opTok, nil); status != 200 {
		t.Fatalf("DELETE: %d %v", status, out)
	}
	r.await("detach " + id)
}

// The largest frames cross, both ways.
func TestClusterLargest(t *testing.T) {
	all := startCluster(t, 2)
	r := all[0].robot(wire.Files)
	r.connect()
	settled(t, all, all[0])
	id := all[1].openSession(opTok, map[string]any{"machine": "lab"})
	op := all[1].operator(opTok)
	content := strings.Repeat("x", wire.MaxFrame-400)
	op.request(id, "big", wire.TFileWrite, map[string]any{"path": "x", "content": content})
	env := op.want(wire.TAck)
	var got struct{ Content string }
	if err := json.Unmarshal(env.Payload, &got); err != nil || got.Content != content {
		t.Fatalf("%d bytes came back: %v", len(got.Content), err)
	}
}

// An instance that dies leaves nobody hanging: what was under way has an answer,
// the device comes to another, and the same session works from there.
func TestClusterInstanceDies(t *testing.T) {
	tim := quick()
	tim.reconnectGrace = 10 * time.Second
	all := startClusterWith(t, 3, tim)
	r := all[0].robot(wire.Files, wire.Shell)
	silent := make(chan string, 8)
	r.onData = func(p *peer, env wire.Envelope) {
		if strings.Contains(string(env.Payload), "hang") {
			silent <- env.ID
			return
		}
		echo(p, env)
	}
	r.connect()
	settled(t, all, all[0])
	id := all[1].openSession(opTok, map[string]any{"machine": "lab"})
	op := all[1].operator(opTok)
	op.request(id, "cmd", wire.TExecuteCommand, map[string]any{"argv": []string{"hang"}})
	op.request(id, "stat", wire.TFileStat, map[string]any{"path": "hang"})
	recv(t, silent)
	recv(t, silent)
	all[0].die()
	codes := map[string]wire.Code{}
	for range 2 {
		env := op.want(wire.TError)
		var e wire.Error
		_ = wire.Decode(env.Payload, &e)
		codes[env.ID] = e.Code
	}
	if codes["cmd"] != wire.OpUnconfirmed || codes["stat"] != wire.RequestTimeout {
		t.Fatalf("answers %v", codes)
	}
	// Asked before the device is back: it waits for it.
	op.request(id, "again", wire.TFileStat, map[string]any{"path": "x"})
	r.await("control closed 1006")
	r.b = all[2]
	r.mu.Lock()
	r.data = map[string]*peer{}
	r.mu.Unlock()
	r.connect()
	if env := op.want(wire.TFileStatResponse); env.ID != "again" || env.SessionID != id {
		t.Fatalf("answer %+v", env)
	}
	settled(t, all[1:], all[2])
}

// The machine that comes to another instance while the one before still holds a
// socket of it leaves that at once, and two instances never both have it.
func TestClusterTakeOver(t *testing.T) {
	all := startCluster(t, 2)
	r := all[0].robot(wire.Files)
	r.connect()
	settled(t, all, all[0])
	id := all[0].openSession(opTok, map[string]any{"machine": "lab"})
	r.await("data")
	r.b = all[1]
	old := r.data[id]
	r.connect()
	r.await("control closed 4427")
	r.await("data closed 1012")
	_ = old
	settled(t, all, all[1])
	r.mu.Lock()
	delete(r.data, id)
	r.mu.Unlock()
	op := all[0].operator(opTok)
	op.request(id, "q", wire.TFileStat, map[string]any{"path": "x"})
	op.want(wire.TFileStatResponse)
	e, err := all[0].db.Get(t.Context(), placeKey(machineKey{owner, machID}))
	if err != nil || decodePlace(e).Instance != all[1].node.ID() {
		t.Fatalf("the record says %s, %v", e.Value, err)
	}
}

// Many rival claims: each is won by one.
func TestClusterOneOwner(t *testing.T) {
	all := startCluster(t, 3)
	for range 20 {
		done := make(chan error, len(all))
		for _, b := range all {
			go func() { done <- b.srv.places.claim(t.Context(), b.srv.machine(owner, machID), false) }()
		}
		won := 0
		for range all {
			err := recv(t, done)
			switch {
			case err == nil:
				won++
			case !errors.As(err, new(*errElsewhere)):
				t.Fatal(err)
			}
		}
		if won != 1 {
			t.Fatalf("%d instances have the machine", won)
		}
		e, err := all[0].db.Get(t.Context(), placeKey(machineKey{owner, machID}))
		if err != nil {
			t.Fatal(err)
		}
		if err := all[0].db.Delete(t.Context(), e.Key, e.Revision); err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			until(t, "nobody has it", func() bool {
				b.srv.places.mu.Lock()
				defer b.srv.places.mu.Unlock()
				_, there := b.srv.places.where[machineKey{owner, machID}]
				return !there
			})
		}
	}
}

// Revocations and changed approvals reach the sockets wherever they are, and the
// change of an approval returns when it counts there.
func TestClusterRevocation(t *testing.T) {
	all := startCluster(t, 2)
	r := all[0].robot(wire.Files, wire.Grants)
	r.connect()
	settled(t, all, all[0])
	id := all[1].openSession(opTok, map[string]any{"machine": "lab"})
	op := all[1].operator(opTok)

	all[0].auth.approve(wire.Ceiling{Capabilities: &[]wire.Capability{}})
	all[1].srv.ApprovalChanged(t.Context(), owner, machID)
	recv(t, r.grants) // the control socket's and the session's, both acknowledged by now
	recv(t, r.grants)
	op.request(id, "q", wire.TFileStat, map[string]any{"path": "x"})
	if e := op.wantError("q"); e.Code != wire.CapabilityNotGranted || e.Details["ceiling"] != "approval" {
		t.Fatalf("got %v", e)
	}
	// As the store tells it, without the call: the same, once.
	all[0].auth.approve(wire.Ceiling{})
	all[0].srv.Approved(owner, machID, wire.Ceiling{})
	recv(t, r.grants)
	recv(t, r.grants)
	all[0].srv.Approved(owner, machID, wire.Ceiling{})
	op.request(id, "q2", wire.TFileStat, map[string]any{"path": "x"})
	op.want(wire.TFileStatResponse)
	if len(r.grants) != 0 {
		t.Fatal("told twice")
	}

	// The machine is removed at one instance and connected to the other.
	all[1].srv.RevokeMachine(owner, machID)
	all[0].srv.RevokeMachine(owner, machID)
	r.await("control closed 4428")
	until(t, "no session is left", func() bool {
		left, err := all[0].db.List(t.Context(), store.Prefix("o", owner, "session"))
		return err == nil && len(left) == 0
	})
}

// An answer that comes in pieces comes so through two instances: each piece as it is
// sent, and the answer alone ends the request.
func TestClusterPieces(t *testing.T) {
	all := startCluster(t, 2)
	r := all[0].robot(wire.LocalLLM, wire.Privacy)
	const half = 100
	goOn := make(chan struct{})
	r.onData = func(p *peer, env wire.Envelope) {
		m, ok := wire.MethodOf(env.Type)
		if !ok || m.Chunks() == "" {
			echo(p, env)
			return
		}
		send := func(from, to int) {
			for i := from; i < to; i++ {
				p.send(wire.Message{Type: m.Chunks(), ID: env.ID, Payload: map[string]any{"delta": fmt.Sprint(i)}})
			}
		}
		send(0, half)
		<-goOn
		send(half, 2*half)
		p.send(wire.Message{Type: m.Response, ID: env.ID, Payload: map[string]any{"output": "all"}})
		send(2*half, 2*half+1) // of nothing that is asked any more
	}
	r.connect()
	settled(t, all, all[0])
	id := all[1].openSession(opTok, map[string]any{"machine": "lab"})
	op := all[1].operator(opTok)
	for _, typ := range []wire.Type{wire.TLLMTurn, wire.TLocalLLMCompletion, wire.TLLMTurn} {
		m, _ := wire.MethodOf(typ)
		op.request(id, "same", typ, wire.Empty{})
		for i := range 2 * half {
			if i == half { // the first half has come while the request is under way
				goOn <- struct{}{}
			}
			env := op.want(m.Chunks())
			var c wire.LLMTurnChunk
			if err := wire.Decode(env.Payload, &c); err != nil || c.Delta != fmt.Sprint(i) || env.ID != "same" || env.SessionID != id {
				t.Fatalf("piece %d of %s: %+v, %s", i, typ, env, env.Payload)
			}
		}
		if env := op.want(m.Response); env.ID != "same" || !strings.Contains(string(env.Payload), "all") {
			t.Fatalf("the answer to %s: %+v", typ, env)
		}
	}
}

// A stream's frames find the operator's instance, and its credit the device; when
// the machine moves, the operator is told to attach again, also where the machine was.
func TestClusterStream(t *testing.T) {
	t.Run("from another", func(t *testing.T) { clusterStream(t, 1) })
	t.Run("from the machine's", func(t *testing.T) { clusterStream(t, 0) })
}

func clusterStream(t *testing.T, from int) {
	all := startCluster(t, 3)
	r := all[0].robot(wire.Streams, wire.HardwareGPIO)
	credits := make(chan string, 8)
	r.onData = func(p *peer, env wire.Envelope) {
		if env.Type == wire.TStreamCredit {
			credits <- string(env.Payload)
			return
		}
		echo(p, env)
		p.send(wire.Message{Type: wire.TStreamData, ID: env.ID + "/1", Payload: map[string]any{"stream": "s1", "offset": 0, "data": "eA=="}})
	}
	r.connect()
	settled(t, all, all[0])
	id := all[from].openSession(opTok, map[string]any{"machine": "lab"})
	op := all[from].operator(opTok)
	op.request(id, "w", wire.THardwareOp, map[string]any{"device": "gpio:x", "op": "GPIO_WATCH"})
	op.want(wire.THardwareResult)
	if env := op.want(wire.TStreamData); env.SessionID != id {
		t.Fatalf("frame of a stream %+v", env)
	}
	op.request(id, "c", wire.TStreamCredit, map[string]any{"stream": "s1", "bytes": 100})
	recv(t, credits)
	r.b = all[2]
	r.connect()
	for {
		env, raw, err := op.next()
		if err != nil {
			t.Fatal(err)
		}
		if env.Type == wire.TStreamData && string(env.Payload) == "{}" && env.SessionID == id {
			break
		}
		t.Logf("%s", raw)
	}
}

// Tokens keep their bounds at every instance: another owner's token sees nothing.
func TestClusterOwners(t *testing.T) {
	all := startCluster(t, 2)
	all[0].auth.operators["other"] = access.Operator{Owner: "own_2", Name: "eve", Holder: "h2", Login: true, Manage: true}
	all[0].robot(wire.Files).connect()
	settled(t, all, all[0])
	id := all[0].openSession(opTok, map[string]any{"machine": "lab"})
	if status, code := all[1].apiCode("POST", "/api/sessions", "other", map[string]any{"machine": machID}); code != wire.MachineNotAttached {
		t.Fatalf("another owner's machine: %d %s", status, code)
	}
	op := all[1].operator("other")
	op.request(id, "q", wire.TFileStat, map[string]any{"path": "x"})
	if e := op.wantError("q"); e.Code != wire.SessionNotFound {
		t.Fatalf("another owner's session: %v", e)
	}
}

// What an instance couldn't give up while it was cut off from NATS it gives up
// when it is back: a machine that went away meanwhile isn't online.
func TestClusterCutOff(t *testing.T) {
	all := startCluster(t, 2)
	all[0].robot(wire.Files).connect()
	settled(t, all, all[0])
	f := &following{t: t}
	defer f.end()
	f.at(all[1])
	f.want(events.MachineOnline)
	all[0].nats.Kill()
	until(t, "the machine's socket is closed", func() bool { return all[0].srv.known(owner, machID).online() == nil })
	// Nobody is let in meanwhile who is still known: another instance may serve them.
	for _, b := range all {
		until(t, "the instance knows that it is cut off", b.srv.cutOff)
		for path, token := range map[string]string{"/ws/operator": opTok, "/ws/local-executor": devTok} {
			if _, status := b.dial(path, token); status != http.StatusServiceUnavailable {
				t.Errorf("%s of an instance that is cut off: %d", path, status)
			}
		}
		if status, code := b.apiCode("GET", "/api/events", opTok, nil); status != http.StatusServiceUnavailable || code != codeUnavailable {
			t.Errorf("events of an instance that is cut off: %d %s", status, code)
		}
	}
	until(t, "its events end, so that their reader goes to where they are heard of", func() bool {
		select {
		case _, goesOn := <-f.lines:
			return !goesOn
		default:
			return false
		}
	})
	all[0].nats.Restart()
	all[0].nats.Ready()
	until(t, "nobody has the machine", func() bool {
		_, err := all[1].db.Get(t.Context(), placeKey(machineKey{owner, machID}))
		return errors.Is(err, store.ErrNotFound) && !all[1].srv.Online(owner, machID)
	})
}

// following reads GET /api/events of an instance, and goes on at others.
type following struct {
	t      *testing.T
	cursor string
	lines  chan string
	stop   func()
}

// at begins to read at an instance, after the last event that was read.
func (f *following) at(b *bench) {
	f.t.Helper()
	f.end()
	ctx, cancel := context.WithCancel(f.t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", b.http.URL+"/api/events?follow=true&after="+f.cursor, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+opTok)
	res, err := b.http.Client().Do(r)
	if err != nil || res.StatusCode != 200 {
		f.t.Fatalf("%v, %v", res, err)
	}
	lines, done := make(chan string, 64), make(chan struct{})
	f.lines = lines
	go func() {
		defer close(done)
		defer res.Body.Close()
		defer close(lines)
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	f.stop = func() {
		cancel()
		<-done
	}
}

func (f *following) end() {
	if f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

// want reads until an event of this type; gaps are an error.
func (f *following) want(typ events.Type) events.Event {
	f.t.Helper()
	for {
		line := recv(f.t, f.lines)
		var e events.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Gap != "" {
			f.t.Fatalf("%s: %v", line, err)
		}
		if e.Cursor != "" {
			f.cursor = e.Cursor
		}
		if e.Type == typ {
			return e
		}
		if e.Type != "" {
			f.t.Fatalf("want %s, got %s", typ, line)
		}
	}
}

// Whoever follows the events at one instance hears of machines at all of them, and
// goes on at another where it was.
func TestClusterEvents(t *testing.T) {
	tim := quick()
	all := startClusterWith(t, 3, tim)
	f := &following{t: t}
	defer f.end()
	f.at(all[0])
	list := func(p *peer, env wire.Envelope) bool {
		if env.Type != wire.THardwareListRequest {
			return false
		}
		p.send(wire.Message{Type: wire.THardwareListResponse, ID: env.ID, Payload: wire.HardwareListResponse{Devices: []wire.HardwareDevice{}, Stream: "h"}})
		rec, _ := json.Marshal(wire.HardwareEvent{Event: wire.HardwareAdded, Device: wire.HardwareDevice{Type: "serial", ID: "serial:x"}})
		p.send(wire.Message{Type: wire.TStreamData, ID: env.ID + "/1", Payload: wire.StreamData{Stream: "h", Records: []json.RawMessage{rec}}})
		return true
	}
	r := all[1].robot(wire.HardwareSerial, wire.Streams)
	r.onControl = list
	r.connect()
	if e := f.want(events.MachineOnline); e.Machine != machID || e.Name != "lab" {
		t.Errorf("%+v", e)
	}
	// Its devices are watched, since somebody follows elsewhere.
	if e := f.want(events.DeviceAdded); e.Device == nil || e.Device.ID != "serial:x" {
		t.Errorf("%+v", e)
	}
	f.at(all[2])
	_ = r.control.ws.Close()
	f.want(events.MachineOffline)
	r.b = all[0]
	r.connect()
	f.want(events.MachineOnline)
	f.want(events.DeviceAdded)

	// The instance that has it dies: nobody there says so any more, the others do.
	settled(t, all[1:], all[0])
	all[0].die()
	f.want(events.MachineOffline)
	f.at(all[1])
	r.await("control closed 1006")
	r.b = all[2]
	r.connect()
	f.want(events.MachineOnline)
}

// A machine that moves while its old connection isn't known to be lost is online
// at the end.
func TestClusterMovedIsOnline(t *testing.T) {
	all := startCluster(t, 2)
	f := &following{t: t}
	defer f.end()
	f.at(all[0])
	r := all[0].robot(wire.Files)
	r.connect()
	f.want(events.MachineOnline)
	settled(t, all, all[0])
	r.b = all[1]
	r.connect()
	f.want(events.MachineOnline)
	r.await("control closed 4427")
	settled(t, all, all[1])
	all[0].srv.events.Publish(owner, events.Event{Type: events.GrantsChanged, Machine: machID}) // after which nothing is under way
	f.want(events.GrantsChanged)
}
