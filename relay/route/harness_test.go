package route

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"

	"farhand/audit"
	"farhand/internal/leak"
	"farhand/internal/natstest"
	"farhand/relay/access"
	"farhand/relay/acts"
	"farhand/relay/cluster"
	"farhand/relay/events/natsfeed"
	"farhand/relay/limit"
	"farhand/relay/store"
	"farhand/wire"
)

const (
	owner   = "own_1"
	holder  = "hold_login"
	devTok  = "device-token"
	opTok   = "operator-token"
	machID  = "pi-1"
	homeDir = "/home/pi"
)

// memAuthority answers from maps.
type memAuthority struct {
	mu        sync.Mutex
	devices   map[string]access.Device
	operators map[string]access.Operator
	machines  map[string]access.Machine // by id
	down      error                     // what every call fails with
	bound     map[string]string
	anchored  chan wire.Anchor
	seen      chan wire.Hello
	slow      chan struct{} // if set, Seen waits until it is closed
}

func newAuthority() *memAuthority {
	return &memAuthority{
		devices: map[string]access.Device{devTok: {Owner: owner, MachineID: machID, Family: "fam_1",
			ClientID: "autogpt-local-executor", Expires: time.Now().Add(time.Hour)}},
		operators: map[string]access.Operator{opTok: {Owner: owner, Name: "ada", Holder: holder, Login: true, Manage: true}},
		machines:  map[string]access.Machine{machID: {ID: machID, Owner: owner, Name: "lab"}},
		bound:     map[string]string{}, anchored: make(chan wire.Anchor, 64), seen: make(chan wire.Hello, 64),
	}
}

func (a *memAuthority) Device(_ context.Context, bearer string) (access.Device, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, ok := a.devices[bearer]
	if a.down != nil {
		return d, a.down
	}
	if !ok {
		return d, access.ErrUnauthorized
	}
	if id := a.bound[d.Family]; id != "" {
		d.MachineID = id
	}
	return d, nil
}

func (a *memAuthority) Operator(_ context.Context, bearer string) (access.Operator, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.operators[bearer]
	if a.down != nil {
		return o, a.down
	}
	if !ok {
		return o, access.ErrUnauthorized
	}
	return o, nil
}

func (a *memAuthority) Bind(_ context.Context, d access.Device, machineID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id := a.bound[d.Family]; id != "" && id != machineID {
		return access.ErrUnauthorized
	}
	a.bound[d.Family] = machineID
	if _, ok := a.machines[machineID]; !ok {
		a.machines[machineID] = access.Machine{ID: machineID, Owner: d.Owner, Name: machineID}
	}
	return nil
}

func (a *memAuthority) Machine(_ context.Context, owner, id string) (access.Machine, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.machines[id]
	if !ok || m.Owner != owner {
		return m, access.ErrNotFound
	}
	return m, nil
}

func (a *memAuthority) Machines(_ context.Context, owner string) ([]access.Machine, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []access.Machine
	for _, m := range a.machines {
		if m.Owner == owner {
			all = append(all, m)
		}
	}
	return all, nil
}

func (a *memAuthority) Seen(_ context.Context, _, id string, h wire.Hello) error {
	a.mu.Lock()
	if m, ok := a.machines[id]; ok {
		m.Hello = &h
		a.machines[id] = m
	}
	a.mu.Unlock()
	if a.slow != nil {
		<-a.slow
	}
	select {
	case a.seen <- h:
	default:
	}
	return nil
}

func (a *memAuthority) Left(_ context.Context, _, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m, ok := a.machines[id]; ok {
		m.LastSeen = time.Now()
		a.machines[id] = m
	}
	return nil
}

func (a *memAuthority) Anchored(_ context.Context, owner, id string, x wire.Anchor) (wire.Anchor, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.machines[id]
	if m.Anchor == nil || m.Anchor.Seq < x.Seq {
		m.Anchor = &x
		a.machines[id] = m
	} else if m.Anchor.Seq == x.Seq && m.Anchor.HMAC != x.HMAC {
		return *m.Anchor, errors.New("another hmac")
	}
	select {
	case a.anchored <- x:
	default:
	}
	return *m.Anchor, nil
}

func (a *memAuthority) approve(c wire.Ceiling) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.machines[machID]
	m.Approval = c
	a.machines[machID] = m
}

// bench is a relay on loopback with a store on disk.
type bench struct {
	t      testing.TB
	auth   *memAuthority
	db     store.Store
	path   string
	srv    *Server
	http   *httptest.Server
	log    *bytes.Buffer
	tim    timing
	size   bounds
	tls    bool // from the next restart on
	acts   *acts.Book
	limits *limit.Limits
	nats   *natstest.Server // of a cluster's instance, which has no path
	node   *cluster.Node
	conn   *nats.Conn
	feed   *natsfeed.Feed // of its events
	hops   *http.Server   // for the other instances
	served chan struct{}
}

// quick are times for tests: what should not happen takes as long as in life.
func quick() timing {
	t := standard
	t.closeGrace = 500 * time.Millisecond
	t.sweep = 10 * time.Millisecond
	t.reconnectGrace = 0
	return t
}

func start(t testing.TB) *bench { return startWith(t, quick()) }

func startWith(t testing.TB, tim timing) *bench { return startSmall(t, tim, ample) }

// startSmall is a relay with other bounds than in life.
func startSmall(t testing.TB, tim timing, size bounds) *bench {
	t.Helper()
	leak.Check(t)
	b := &bench{t: t, auth: newAuthority(), path: filepath.Join(t.TempDir(), "relay.db"), tim: tim, size: size, log: &bytes.Buffer{}}
	t.Cleanup(func() {
		b.stop()
		if t.Failed() {
			t.Log(b.log.String())
		}
	})
	b.restart()
	return b
}

// restart brings up a new relay on the same store.
func (b *bench) restart() {
	b.t.Helper()
	b.stop()
	log := slog.New(slog.NewTextHandler(&lockedWriter{w: b.log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if b.nats != nil {
		b.join(log)
	} else {
		db, err := store.OpenBolt(b.path)
		if err != nil {
			b.t.Fatal(err)
		}
		b.db = db
	}
	cfg := Config{Authority: b.auth, Store: b.db, Cluster: b.node, Limits: b.limits, Acts: b.acts, Log: log}
	if b.feed != nil {
		cfg.Events = b.feed
	}
	b.srv = newServer(cfg, b.tim, b.size)
	mux := http.NewServeMux()
	b.srv.Register(mux)
	if b.nats != nil {
		b.serveInstances()
	}
	if b.tls {
		b.http = httptest.NewTLSServer(mux)
	} else {
		b.http = httptest.NewServer(mux)
	}
}

// withActs has the next Server record what operators ask for.
func (b *bench) withActs() {
	b.acts = acts.Open(filepath.Join(b.t.TempDir(), "acts"), bytes.Repeat([]byte{7}, audit.KeySize), slog.New(slog.DiscardHandler))
}

func (b *bench) stop() {
	if b.srv == nil {
		return
	}
	if err := b.srv.Close(); err != nil {
		b.t.Logf("close: %v", err)
	}
	b.http.Client().CloseIdleConnections()
	b.http.Close()
	if b.nats != nil {
		b.part()
	}
	if err := b.db.Close(); err != nil {
		b.t.Errorf("close the store: %v", err)
	}
	if b.acts != nil && b.t.Context().Err() != nil { // the end
		if err := b.acts.Close(); err != nil {
			b.t.Errorf("close the acts: %v", err)
		}
	}
	b.srv = nil
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (b *bench) ws(path string) string { return "ws" + strings.TrimPrefix(b.http.URL, "http") + path }

// api calls the JSON API and returns status and body.
func (b *bench) api(method, path, token string, in any) (int, map[string]any) {
	b.t.Helper()
	var body io.Reader
	if in != nil {
		j, _ := json.Marshal(in)
		body = bytes.NewReader(j)
	}
	r, _ := http.NewRequest(method, b.http.URL+path, body)
	r.Header.Set("Authorization", "Bearer "+token)
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := b.http.Client().Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	out := map[string]any{}
	_ = json.NewDecoder(res.Body).Decode(&out)
	return res.StatusCode, out
}

func (b *bench) apiCode(method, path, token string, in any) (int, wire.Code) {
	b.t.Helper()
	status, out := b.api(method, path, token, in)
	e, _ := out["error"].(map[string]any)
	code, _ := e["code"].(string)
	return status, wire.Code(code)
}

// openSession opens a session and returns its id.
func (b *bench) openSession(token string, in map[string]any) string {
	b.t.Helper()
	status, out := b.api("POST", "/api/sessions", token, in)
	if status != 200 {
		b.t.Fatalf("POST /api/sessions: %d %v", status, out)
	}
	return out["session_id"].(string)
}

// peer is one WebSocket as its client sees it.
type peer struct {
	t  testing.TB
	ws *websocket.Conn
	mu sync.Mutex // writes
}

func (b *bench) dial(path, token string) (*peer, int) {
	b.t.Helper()
	h := http.Header{}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return b.dialWith(path, h)
}

func (b *bench) dialWith(path string, h http.Header) (*peer, int) {
	b.t.Helper()
	dialer := *websocket.DefaultDialer
	if b.tls {
		dialer.TLSClientConfig = b.http.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		dialer.TLSClientConfig.NextProtos = nil
	}
	ws, res, err := dialer.Dial(b.ws(path), h)
	if err != nil {
		if res == nil {
			b.t.Fatalf("dial %s: %v", path, err)
		}
		return nil, res.StatusCode
	}
	p := &peer{t: b.t, ws: ws}
	b.t.Cleanup(func() { _ = ws.Close() })
	return p, res.StatusCode
}

func (p *peer) send(m wire.Message) {
	f, err := m.Encode()
	if err != nil {
		p.t.Error(err)
		return
	}
	var buf bytes.Buffer
	_ = f.WriteFrame(&buf)
	p.text(buf.String())
}

func (p *peer) text(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.ws.WriteMessage(websocket.TextMessage, []byte(s))
}

// next is the next frame, or the error that ended the socket.
func (p *peer) next() (wire.Envelope, []byte, error) {
	_ = p.ws.SetReadDeadline(time.Now().Add(time.Minute))
	_, b, err := p.ws.ReadMessage()
	if err != nil {
		return wire.Envelope{}, nil, err
	}
	env, err := wire.DecodeEnvelope(b)
	return env, b, err
}

func (p *peer) want(t wire.Type) wire.Envelope {
	p.t.Helper()
	env, raw, err := p.next()
	// A request can overtake the news that the device has connected, and is then
	// told to attach streams that it doesn't have yet.
	for err == nil && env.Type == wire.TStreamData && t != wire.TStreamData && string(env.Payload) == "{}" {
		env, raw, err = p.next()
	}
	if err != nil {
		p.t.Fatalf("want %s, got %v", t, err)
	}
	if env.Type != t {
		p.t.Fatalf("want %s, got %s", t, raw)
	}
	return env
}

// wantError is the code of the ERROR that must come next.
func (p *peer) wantError(id string) wire.Error {
	p.t.Helper()
	env := p.want(wire.TError)
	if env.ID != id {
		p.t.Fatalf("ERROR for %q, want %q", env.ID, id)
	}
	var e wire.Error
	if err := wire.Decode(env.Payload, &e); err != nil {
		p.t.Fatal(err)
	}
	return e
}

// wantClose reads to the end and returns code and reason.
func (p *peer) wantClose(code int) string {
	p.t.Helper()
	for {
		_, _, err := p.next()
		if err == nil {
			continue
		}
		ce, ok := errors.AsType[*websocket.CloseError](err)
		if !ok || ce.Code != code {
			p.t.Fatalf("want close %d, got %v", code, err)
		}
		return ce.Text
	}
}

func helloFor(root *string, caps ...wire.Capability) wire.Hello {
	return wire.Hello{ShimVersion: "0.1.0", ProtocolVersion: "1.1", MachineID: machID, DisplayName: "Lab Pi", Platform: "linux",
		Arch: "arm64", AllowedRoot: root, Capabilities: caps, LocalLLMModels: []string{}, HardwareDevices: []wire.HardwareDevice{},
		ComputerUse: []string{}, ComputerUseCoarse: []string{}, RecordingChannels: []string{}, RecordingRoutes: []string{}}
}

// robot is a scripted device: it answers the control requests over a made-up
// tree and opens data sockets as it is told to.
type robot struct {
	b       *bench
	id      string // of the machine; its token is devTok, or the id for another machine than machID
	control *peer
	caps    wire.Capabilities
	tree    map[string][]string // directory -> children
	roots   []string

	// onData answers a request on a data socket; nil echoes.
	onData func(p *peer, env wire.Envelope)
	// onControl answers what isn't a session's affair; it says whether it did.
	onControl func(p *peer, env wire.Envelope) bool
	// noData keeps data sockets from being opened.
	noData bool
	// dataAt is where data sockets are opened, if not where the control socket is.
	dataAt *bench

	mu     sync.Mutex
	data   map[string]*peer // by session
	bound  map[string]wire.SessionBinding
	refs   map[string]string
	seen   []wire.Type
	wg     sync.WaitGroup
	events chan string
	noted  map[string]int // of the goroutine that calls await
	grants chan wire.GrantSet
}

func (b *bench) robot(caps ...wire.Capability) *robot {
	r := &robot{b: b, id: machID, caps: caps, roots: []string{homeDir}, tree: map[string][]string{
		homeDir: {"a", "b"}, homeDir + "/a": {"deep"}},
		data: map[string]*peer{}, bound: map[string]wire.SessionBinding{}, refs: map[string]string{},
		events: make(chan string, 256), noted: map[string]int{}, grants: make(chan wire.GrantSet, 16)}
	b.t.Cleanup(r.stop)
	return r
}

// another is a robot of another machine of the owner, with its id for a token.
func (b *bench) another(name string, caps ...wire.Capability) *robot {
	id := name + "-id"
	b.auth.mu.Lock()
	b.auth.devices[id] = access.Device{Owner: owner, MachineID: id, Family: "fam_" + id, ClientID: "autogpt-local-executor", Expires: time.Now().Add(time.Hour)}
	b.auth.machines[id] = access.Machine{ID: id, Owner: owner, Name: name}
	b.auth.mu.Unlock()
	r := b.robot(caps...)
	r.id = id
	return r
}

func (r *robot) token() string {
	if r.id == machID {
		return devTok
	}
	return r.id
}

func (r *robot) hello(root *string, caps ...wire.Capability) wire.Hello {
	h := helloFor(root, caps...)
	h.MachineID = r.id
	return h
}

func (r *robot) stop() {
	r.mu.Lock()
	if r.control != nil {
		_ = r.control.ws.Close()
	}
	for _, p := range r.data {
		_ = p.ws.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// connect opens the control socket and serves it.
func (r *robot) connect() *robot {
	r.b.t.Helper()
	p, status := r.b.dial("/ws/local-executor", r.token())
	if p == nil {
		r.b.t.Fatalf("control refused: %d", status)
	}
	p.send(wire.Message{Type: wire.THello, ID: "h1", Payload: r.hello(nil, append(wire.Capabilities{wire.DirectoryBrowse}, r.caps...)...)})
	p.want(wire.THelloAck)
	r.mu.Lock()
	r.control = p
	r.mu.Unlock()
	r.serve(p, r.controlFrame, "control")
	p.send(settling)
	r.await("control settled")
	return r
}

// settling is what a robot asks on each new socket. The answer comes from the
// relay's reader of that socket, which is after all that the relay does about a
// socket that has come: telling operators to look at their streams, above all. A
// test that didn't wait for it would hear of that sooner or later, by the load.
var settling = wire.Message{Type: wire.TPing, ID: "settling", Payload: wire.Empty{}}

// settled notes the answer to settling, and says whether a frame was it.
func (r *robot) settled(env wire.Envelope, what string) bool {
	if env.Type != wire.TPong || env.ID != settling.ID {
		return false
	}
	r.note(what)
	return true
}

func (r *robot) serve(p *peer, f func(*peer, wire.Envelope), name string) {
	r.wg.Go(func() {
		for {
			_ = p.ws.SetReadDeadline(time.Time{})
			_, b, err := p.ws.ReadMessage()
			if err != nil {
				code := 1006
				if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
					code = ce.Code
				}
				_ = p.ws.Close()
				r.note(fmt.Sprintf("%s closed %d", name, code))
				return
			}
			env, err := wire.DecodeEnvelope(b)
			if err != nil {
				r.note("bad frame")
				continue
			}
			f(p, env)
		}
	})
}

func (r *robot) note(s string) {
	select {
	case r.events <- s:
	default:
	}
}

// await waits for an event; the order of several doesn't matter.
func (r *robot) await(want string) {
	r.b.t.Helper()
	deadline := time.After(time.Minute)
	for r.noted[want] == 0 {
		select {
		case e := <-r.events:
			r.noted[e]++
		case <-deadline:
			r.b.t.Fatalf("event %q didn't come, but %v", want, r.noted)
		}
	}
	r.noted[want]--
}

func (r *robot) ref(path string) string {
	ref := "ref" + strings.ReplaceAll(path, "/", "_")
	r.refs[ref] = path
	return ref
}

func (r *robot) controlFrame(p *peer, env wire.Envelope) {
	if r.settled(env, "control settled") || r.onControl != nil && r.onControl(p, env) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, env.Type)
	answer := func(t wire.Type, payload any) { p.send(wire.Message{Type: t, ID: env.ID, Payload: payload}) }
	fail := func(code wire.Code) { answer(wire.TError, wire.Errorf(code, "scripted")) }
	switch env.Type {
	case wire.TDirectoryListRequest:
		var q wire.DirectoryListRequest
		_ = wire.Decode(env.Payload, &q)
		l := wire.DirectoryListResponse{BrowseID: "browse-1", Entries: []wire.DirectoryEntry{}, ExpiresAt: 1e10}
		if q.DirectoryRef == nil {
			for _, p := range r.roots {
				l.Entries = append(l.Entries, wire.DirectoryEntry{DirectoryRef: r.ref(p), Name: filepath.Base(p), Path: p})
			}
			answer(wire.TDirectoryListResponse, l)
			return
		}
		dir, ok := r.refs[*q.DirectoryRef]
		if !ok {
			fail(wire.DirectoryReferenceInvalid)
			return
		}
		// One entry a page, so that paging is always exercised.
		at := 0
		if q.Cursor != nil {
			_, _ = fmt.Sscanf(*q.Cursor, "c%d", &at)
		}
		children := r.tree[dir]
		if at < len(children) {
			c := dir + "/" + children[at]
			l.Entries = append(l.Entries, wire.DirectoryEntry{DirectoryRef: r.ref(c), Name: children[at], Path: c})
		}
		if at+1 < len(children) {
			next := fmt.Sprintf("c%d", at+1)
			l.NextCursor = &next
		}
		answer(wire.TDirectoryListResponse, l)
	case wire.TAttachSession:
		var q wire.AttachSession
		_ = wire.Decode(env.Payload, &q)
		bind := wire.SessionBinding{SessionID: q.SessionID, AllowedRoot: r.refs[q.DirectoryRef],
			Fingerprint: strings.Repeat("0f", 32), Revision: 1, RootGrant: "v1.grant." + q.SessionID}
		r.bound[q.SessionID] = bind
		answer(wire.TSessionAttached, bind)
	case wire.TActivateSession:
		var q wire.ActivateSession
		_ = wire.Decode(env.Payload, &q)
		bind, ok := r.bound[q.SessionID]
		if !ok {
			fail(wire.SessionNotAttached)
			return
		}
		bind.RootGrant = ""
		answer(wire.TSessionActivated, bind)
		r.openData(q.SessionID)
	case wire.TRestoreSession:
		var q wire.RestoreSession
		_ = wire.Decode(env.Payload, &q)
		bind, ok := r.bound[q.SessionID]
		if !ok || bind.RootGrant != q.RootGrant {
			fail(wire.RootGrantInvalid)
			return
		}
		r.note("restore")
		answer(wire.TSessionRestored, bind)
		if r.data[q.SessionID] == nil {
			r.openData(q.SessionID)
		}
	case wire.TDetachSession:
		var q wire.DetachSession
		_ = wire.Decode(env.Payload, &q)
		if d := r.data[q.SessionID]; d != nil {
			_ = d.ws.Close()
			delete(r.data, q.SessionID)
		}
		delete(r.bound, q.SessionID)
		r.note("detach " + q.SessionID)
		answer(wire.TAck, wire.Ack{OK: true})
	case wire.TGrantsUpdate:
		r.takeGrants(p, env)
	default:
		fail(wire.FeatureNotSupported)
	}
}

func (r *robot) takeGrants(p *peer, env wire.Envelope) {
	var g wire.GrantsUpdate
	_ = wire.Decode(env.Payload, &g)
	p.send(wire.Message{Type: wire.TAck, ID: env.ID, Payload: wire.Ack{OK: true}})
	r.grants <- g.Grants
}

// openData opens the data socket of a session. Called with the lock held.
func (r *robot) openData(id string) {
	if r.noData {
		return
	}
	root := r.bound[id].AllowedRoot
	r.wg.Go(func() {
		at := r.b
		if r.dataAt != nil {
			at = r.dataAt
		}
		p, status := at.dial("/ws/local-executor/"+id, r.token())
		if p == nil {
			r.note(fmt.Sprintf("data refused %d", status))
			return
		}
		p.send(wire.Message{Type: wire.THello, ID: "hd", Payload: r.hello(&root, r.caps...)})
		if env, _, err := p.next(); err != nil || env.Type != wire.THelloAck {
			r.note("data without HELLO_ACK")
			_ = p.ws.Close()
			return
		}
		r.mu.Lock()
		r.data[id] = p
		r.mu.Unlock()
		r.serve(p, r.dataFrame, "data")
		p.send(settling)
	})
}

func (r *robot) dataFrame(p *peer, env wire.Envelope) {
	if r.settled(env, "data") {
		return
	}
	if env.Type == wire.TGrantsUpdate {
		r.takeGrants(p, env)
		return
	}
	if r.onData != nil {
		r.onData(p, env)
		return
	}
	echo(p, env)
}

// echo answers a request with its own payload.
func echo(p *peer, env wire.Envelope) {
	m, ok := wire.MethodOf(env.Type)
	if !ok {
		return
	}
	capacity := 4
	p.send(wire.Message{Type: m.Response, ID: env.ID, PendingCapacity: &capacity, Payload: wire.Raw(env.Payload)})
}

func (r *robot) dropData(id string) {
	r.mu.Lock()
	p := r.data[id]
	delete(r.data, id)
	r.mu.Unlock()
	if p != nil {
		_ = p.ws.Close()
	}
}

// operator opens an operator's socket.
func (b *bench) operator(token string) *peer {
	b.t.Helper()
	p, status := b.dial("/ws/operator", token)
	if p == nil {
		b.t.Fatalf("operator refused: %d", status)
	}
	return p
}

func (p *peer) request(session, id string, t wire.Type, payload any) {
	p.send(wire.Message{Type: t, ID: id, SessionID: session, Payload: payload})
}

// until polls a condition that nothing announces.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not in time", what)
		}
	}
}

// recv is the next value of ch, which must come in time.
func recv[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came in time")
		panic("unreachable")
	}
}
