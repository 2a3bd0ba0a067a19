// Package shimtest is a scripted platform for tests: real sockets on loopback,
// and as strict as the AutoGPT relay. It checks each HELLO and each frame by
// rules of its own and drops the socket, and fails the test, at the first frame
// that the real platform would not take.
package shimtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"farhand/wire"
)

// Base are the capabilities that the AutoGPT platform grants.
var base = wire.Capabilities{
	wire.Shell, wire.Files, wire.ComputerUse, wire.LocalLLM, wire.Recording, wire.DirectoryBrowse,
}

// Platform is the platform side. Set its fields before the first connection;
// they are read by the server's goroutines.
type Platform struct {
	// URL is the control socket.
	URL string
	// Extensions are granted too if offered.
	Extensions wire.Capabilities
	// Limits of HELLO_ACK; zero means 4, 10 MiB and 30 s as the real one has it.
	MaxConcurrent int
	// Upgrade, if not nil, may refuse an upgrade with an HTTP status.
	Upgrade func(r *http.Request) (status int)
	// Ack, if not nil, changes HELLO_ACK before it is sent; a false result
	// means that the socket gets nothing more.
	Ack func(s *Socket, ack map[string]any) bool
	// Patience is how long to wait for what a test expects: 10 s.
	Patience time.Duration
	// Lenient sockets don't fail the test for a frame the real one would not take.
	Lenient bool

	t       testing.TB
	server  *httptest.Server
	arrived chan *Socket
	pipes   *pipes
	hooks   sync.Mutex

	mu      sync.Mutex
	dials   []time.Time
	tokens  []string
	sockets []*Socket
	down    bool
}

// New starts a platform on loopback that ends with the test.
func New(t testing.TB) *Platform {
	return start(t, nil)
}

// NewInMemory starts a platform without sockets, for a bubble of
// testing/synctest: connections are made by Dial.
func NewInMemory(t testing.TB) *Platform {
	return start(t, newPipes())
}

func start(t testing.TB, pipes *pipes) *Platform {
	p := &Platform{t: t, arrived: make(chan *Socket, 1000), Patience: 10 * time.Second, pipes: pipes}
	mux := http.NewServeMux()
	mux.HandleFunc("/ws/local-executor", p.serve)
	mux.HandleFunc("/ws/local-executor/{session}", p.serve)
	p.server = httptest.NewUnstartedServer(mux)
	if pipes != nil {
		p.server.Listener.Close()
		p.server.Listener = pipes
	}
	p.server.Start()
	p.URL = "ws" + strings.TrimPrefix(p.server.URL, "http") + "/ws/local-executor"
	t.Cleanup(p.Close)
	return p
}

// Script runs f while no hook runs, for changing hooks in the middle of a test.
func (p *Platform) Script(f func()) {
	p.hooks.Lock()
	defer p.hooks.Unlock()
	f()
}

// Close drops every socket.
func (p *Platform) Close() {
	p.mu.Lock()
	p.down = true
	sockets := p.sockets
	p.mu.Unlock()
	for _, s := range sockets {
		s.ws.Close()
	}
	p.server.Close()
	for _, s := range sockets {
		<-s.gone
	}
}

// Dials are the times of all upgrade requests so far.
func (p *Platform) Dials() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.dials)
}

// Tokens are the bearer tokens of all upgrade requests so far.
func (p *Platform) Tokens() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tokens)
}

// Next is the next socket that got its HELLO_ACK.
func (p *Platform) Next() *Socket {
	p.t.Helper()
	select {
	case s := <-p.arrived:
		return s
	case <-time.After(p.Patience):
		p.t.Fatal("no socket came")
		return nil
	}
}

// Arrivals is what Next reads from.
func (p *Platform) Arrivals() <-chan *Socket { return p.arrived }

func (p *Platform) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.dials = append(p.dials, time.Now())
	p.tokens = append(p.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	p.mu.Unlock()
	var status int
	p.Script(func() {
		if p.Upgrade != nil {
			status = p.Upgrade(r)
		}
	})
	if status != 0 {
		http.Error(w, `{"detail":"refused"}`, status)
		return
	}
	up := websocket.Upgrader{}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	ws.SetReadLimit(wire.MaxFrame)
	s := &Socket{
		Session: r.PathValue("session"), p: p, ws: ws,
		expected: make(map[string]wire.Type), answers: make(map[string]chan wire.Envelope),
		Status: make(chan wire.Envelope, 1000), Streams: make(chan wire.StreamData, maxFrames),
		streams: make(map[string]string), over: make(map[string]bool), gone: make(chan struct{}),
	}
	p.mu.Lock()
	p.sockets = append(p.sockets, s)
	down := p.down
	p.mu.Unlock()
	if down {
		ws.Close()
	}
	ws.SetPingHandler(s.ping)
	s.run()
}

// Socket is one connection.
type Socket struct {
	Session string // empty: control
	Hello   wire.Hello
	HelloID string
	Granted wire.Capabilities
	Status  chan wire.Envelope // STATUS frames, in order
	// Streams are the STREAM_DATA frames, in order. Without the streams capability
	// each is a fault, and so is one that isn't as it must be.
	Streams chan wire.StreamData

	p     *Platform
	ws    *websocket.Conn
	gone  chan struct{}
	ended error // how the socket ended; read after gone

	writing  sync.Mutex
	ice      atomic.Pointer[chan struct{}]
	mu       sync.Mutex
	n        int
	expected map[string]wire.Type
	answers  map[string]chan wire.Envelope
	streams  map[string]string // request that a stream was opened or attached by -> the stream
	over     map[string]bool   // streams whose end has come, by that request
	revoked  bool
}

func (s *Socket) run() {
	defer close(s.gone)
	defer s.ws.Close()
	s.ws.SetReadDeadline(time.Now().Add(10 * time.Second))
	kind, text, err := s.ws.ReadMessage()
	if err != nil {
		s.ended = err
		return
	}
	s.ws.SetReadDeadline(time.Time{})
	if code, why := s.checkHello(kind, text); code != 0 {
		s.fault("HELLO: " + why)
		s.Close(code, why)
		return
	}
	ack := map[string]any{
		"session_id": nil, "granted_capabilities": s.Granted, "protocol_version": "1.1",
		"max_file_size_bytes": 10485760, "command_timeout_seconds": 30, "max_concurrent": 4,
	}
	if s.Session == "" {
		ack["connection_id"] = "connection-" + s.HelloID
	} else {
		ack["session_id"] = s.Session
	}
	if s.p.MaxConcurrent > 0 {
		ack["max_concurrent"] = s.p.MaxConcurrent
	}
	id := s.HelloID
	good := true
	s.p.Script(func() {
		if s.p.Ack != nil {
			good = s.p.Ack(s, ack)
		}
	})
	if !good {
		s.drain()
		return
	}
	if other, ok := ack["\x00id"]; ok {
		id = other.(string)
		delete(ack, "\x00id")
	}
	s.write(map[string]any{"type": "HELLO_ACK", "id": id, "ts": 1.5, "payload": ack})
	s.p.arrived <- s
	for {
		kind, text, err := s.ws.ReadMessage()
		if err != nil {
			s.ended = err
			return
		}
		if why := s.take(kind, text); why != "" {
			s.fault(why)
			s.ended = fmt.Errorf("dropped: %s", why)
			return
		}
	}
}

func (s *Socket) drain() {
	for {
		if _, _, err := s.ws.ReadMessage(); err != nil {
			s.ended = err
			return
		}
	}
}

func (s *Socket) fault(why string) {
	if !s.p.Lenient {
		s.p.t.Errorf("the platform drops the socket %q: %s", s.Session, why)
	}
}

var (
	machineID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	shimVer   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	protoVer  = regexp.MustCompile(`^\d+\.\d+$`)
)

func badText(s string) bool {
	for _, r := range s {
		if r == '<' || r == '>' || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.C, r) {
			return true
		}
	}
	return false
}

// checkHello applies the platform's own rules.
func (s *Socket) checkHello(kind int, text []byte) (int, string) {
	if kind != websocket.TextMessage {
		return 4500, "not a text frame"
	}
	if len(text) > 64<<10 {
		return 4400, "larger than 64 KiB"
	}
	var e struct {
		Type    string          `json:"type"`
		ID      string          `json:"id"`
		Payload json.RawMessage `json:"payload"`
	}
	if json.Unmarshal(text, &e) != nil || e.Type != "HELLO" || e.ID == "" || len(e.Payload) == 0 || e.Payload[0] != '{' {
		return 4400, "not a HELLO"
	}
	s.HelloID = e.ID
	if err := json.Unmarshal(e.Payload, &s.Hello); err != nil {
		return 4400, err.Error()
	}
	var raw map[string]json.RawMessage
	json.Unmarshal(e.Payload, &raw)
	for _, list := range []string{"capabilities", "local_llm_models", "hardware_devices", "computer_use_features", "computer_use_features_coarse", "recording_channels", "recording_routes"} {
		if len(raw[list]) == 0 || raw[list][0] != '[' {
			return 4400, list + " is not a list"
		}
	}
	h := s.Hello
	switch {
	case !machineID.MatchString(h.MachineID):
		return 4400, "machine_id"
	case !slices.Contains([]string{"darwin", "linux", "windows", "wsl2"}, h.Platform):
		return 4400, "platform"
	case h.Arch != "x86_64" && h.Arch != "arm64":
		return 4400, "arch"
	case !shimVer.MatchString(h.ShimVersion) || badText(h.ShimVersion):
		return 4400, "shim_version"
	case utf8.RuneCountInString(h.DisplayName) > 128 || badText(h.DisplayName):
		return 4400, "display_name"
	case !protoVer.MatchString(h.ProtocolVersion):
		return 4400, "protocol_version"
	case !strings.HasPrefix(h.ProtocolVersion, "1."):
		return 4426, "protocol_version"
	case s.Session == "" && h.AllowedRoot != nil:
		return 4400, "allowed_root on control"
	case s.Session == "" && !h.Capabilities.Has(wire.DirectoryBrowse):
		return 4426, "no directory_browse"
	}
	if s.Session != "" {
		if h.AllowedRoot == nil || strings.TrimSpace(*h.AllowedRoot) == "" || utf8.RuneCountInString(*h.AllowedRoot) > 4096 || badText(*h.AllowedRoot) {
			return 4400, "allowed_root"
		}
		if h.Capabilities.Has(wire.DirectoryBrowse) {
			return 4400, "directory_browse on a data socket"
		}
	}
	for _, c := range h.Capabilities {
		if (base.Has(c) || s.p.Extensions.Has(c)) && !s.Granted.Has(c) {
			s.Granted = append(s.Granted, c)
		}
	}
	return 0, ""
}

// take checks a frame as the relay does; the reason is empty if it is good.
func (s *Socket) take(kind int, text []byte) string {
	var e struct {
		Type            string          `json:"type"`
		ID              string          `json:"id"`
		PendingCapacity *int            `json:"pending_capacity"`
		Payload         json.RawMessage `json:"payload"`
	}
	var attached []byte
	if kind == websocket.BinaryMessage && s.Granted.Has(wire.Transfer) {
		head, tail, ok := bytes.Cut(text, []byte{0})
		if !ok {
			return "a binary frame with nothing attached"
		}
		kind, text, attached = websocket.TextMessage, head, tail
	}
	if kind != websocket.TextMessage || !utf8.Valid(text) {
		return "not a text frame of UTF-8"
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Sprintf("not JSON: %v: %.200s", err, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want, outstanding := s.expected[e.ID]
	t := wire.Type(e.Type)
	switch {
	case s.revoked:
		return "a frame after SESSION_REVOKED: " + e.Type
	case e.ID == "":
		return e.Type + " without id"
	case len(e.Payload) == 0 || e.Payload[0] != '{':
		return e.Type + " without an object payload"
	}
	if attached != nil && t != wire.TTransferData {
		return e.Type + " with something attached"
	}
	env := wire.Envelope{Type: t, ID: e.ID, PendingCapacity: e.PendingCapacity, Payload: e.Payload, Data: attached}
	if t == wire.TStatus {
		if e.PendingCapacity == nil {
			return "STATUS without pending_capacity"
		}
		s.Status <- env
		return ""
	}
	if t == wire.TStreamData && s.Granted.Has(wire.Streams) {
		return s.takeStream(e.ID, e.Payload)
	}
	switch {
	case !outstanding:
		return fmt.Sprintf("%s for id %q, which is not outstanding", t, e.ID)
	case t == wire.TLocalLLMCompletionChunk && want == wire.TLocalLLMCompletionResponse,
		t == wire.TLLMTurnChunk && want == wire.TLLMTurnResponse:
		s.answers[e.ID] <- env
		return ""
	case t != want && t != wire.TError:
		return fmt.Sprintf("%s where %s was expected", t, want)
	case t != wire.TPong && e.PendingCapacity == nil:
		return fmt.Sprintf("%s without pending_capacity", t)
	}
	delete(s.expected, e.ID)
	s.answers[e.ID] <- env
	return ""
}

// maxFrames is how many STREAM_DATA frames a test may leave unread.
const maxFrames = 1 << 14

// takeStream checks a STREAM_DATA frame: it belongs to one stream, by the id of a
// request that has been answered, it isn't too large, and nothing follows the
// end.
func (s *Socket) takeStream(id string, payload json.RawMessage) string {
	var d wire.StreamData
	if err := json.Unmarshal(payload, &d); err != nil {
		return fmt.Sprintf("STREAM_DATA: %v: %.200s", err, payload)
	}
	request, number, ok := strings.Cut(id, "/")
	_, waits := s.expected[request]
	size := len(d.Data)
	for _, r := range d.Records {
		size += len(r)
	}
	switch known := s.streams[request]; {
	case !ok || number == "" || s.answers[request] == nil:
		return fmt.Sprintf("STREAM_DATA with the id %q, which is no request's", id)
	case waits:
		return fmt.Sprintf("STREAM_DATA before the answer to %q", request)
	case len(d.Stream) != 32 || known != "" && known != d.Stream:
		return fmt.Sprintf("STREAM_DATA %q of the stream %q under the id of %q", id, d.Stream, known)
	case s.over[request]:
		return fmt.Sprintf("STREAM_DATA after the end of %q", d.Stream)
	case size > wire.StreamDataMax:
		return fmt.Sprintf("STREAM_DATA with %d bytes", size)
	case size == 0 && d.End == nil && d.Lost == nil:
		return "STREAM_DATA with nothing in it"
	case d.Lost != nil && (d.Lost.From >= d.Lost.To || d.Lost.To != d.Offset):
		return fmt.Sprintf("STREAM_DATA at %d after the gap %+v", d.Offset, *d.Lost)
	}
	s.streams[request], s.over[request] = d.Stream, d.End != nil
	select {
	case s.Streams <- d:
		return ""
	default:
		return "more STREAM_DATA than the test reads"
	}
}

func (s *Socket) write(frame any) {
	b, err := json.Marshal(frame)
	if err != nil {
		s.p.t.Errorf("script: %v", err)
		return
	}
	s.Raw(b)
}

// Raw sends bytes as they are, as a text message.
func (s *Socket) Raw(b []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.ws.SetWriteDeadline(time.Now().Add(s.p.Patience))
	_ = s.ws.WriteMessage(websocket.TextMessage, b) // a lost socket shows at the reader
}

// Binary sends bytes as a binary message.
func (s *Socket) Binary(b []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.ws.WriteMessage(websocket.BinaryMessage, b)
}

// Expect makes an id outstanding whose terminal answer has to be of a type.
func (s *Socket) Expect(id string, answer wire.Type) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected[id] = answer
	s.answers[id] = make(chan wire.Envelope, 1000)
}

// Request sends a request and returns its id.
func (s *Socket) Request(t wire.Type, payload any) string { return s.RequestWith(t, payload, nil) }

// RequestWith is Request with bytes attached, if there are any.
func (s *Socket) RequestWith(t wire.Type, payload any, attached []byte) string {
	m, ok := wire.MethodOf(t)
	answer := m.Response
	if !ok {
		answer = wire.TError
	}
	s.mu.Lock()
	s.n++
	id := fmt.Sprintf("request-%d", s.n)
	s.mu.Unlock()
	s.Expect(id, answer)
	if payload == nil {
		payload = struct{}{}
	}
	frame := map[string]any{"type": t, "id": id, "ts": 1.5, "payload": payload}
	if len(attached) == 0 {
		s.write(frame)
		return id
	}
	b, err := json.Marshal(frame)
	if err != nil {
		s.p.t.Errorf("script: %v", err)
		return id
	}
	s.Binary(append(append(b, 0), attached...))
	return id
}

// Cancel sends CANCEL for a request.
func (s *Socket) Cancel(id string) {
	s.write(map[string]any{"type": wire.TCancel, "id": id, "ts": 1.5, "payload": struct{}{}})
}

// Wait is the next frame for an id: the answer, or a chunk.
func (s *Socket) Wait(id string) wire.Envelope {
	s.p.t.Helper()
	s.mu.Lock()
	answer := s.answers[id]
	s.mu.Unlock()
	select {
	case e := <-answer:
		return e
	case <-s.gone:
		select {
		case e := <-answer:
			return e
		default:
		}
		s.p.t.Fatalf("socket %q ended before the answer to %s: %v", s.Session, id, s.ended)
	case <-time.After(s.p.Patience):
		s.p.t.Fatalf("no answer to %s on socket %q", id, s.Session)
	}
	return wire.Envelope{}
}

// Call is Request and Wait.
func (s *Socket) Call(t wire.Type, payload any) wire.Envelope {
	s.p.t.Helper()
	return s.Wait(s.Request(t, payload))
}

// Silent checks that nothing came for an id by the time that a later PING was
// answered.
func (s *Socket) Silent(id string) {
	s.p.t.Helper()
	s.Call(wire.TPing, nil)
	s.mu.Lock()
	answer := s.answers[id]
	s.mu.Unlock()
	select {
	case e := <-answer:
		s.p.t.Errorf("an answer to %s: %s %s", id, e.Type, e.Payload)
	default:
	}
}

// Revoke sends SESSION_REVOKED; nothing may come after it.
func (s *Socket) Revoke(reason string) {
	s.mu.Lock()
	s.revoked = true
	s.mu.Unlock()
	s.write(map[string]any{"type": "SESSION_REVOKED", "id": "revoked", "ts": 1.5, "payload": map[string]any{"reason": reason}})
}

// Close closes with a code. The device's answer is awaited by Ended.
func (s *Socket) Close(code int, reason string) {
	_ = s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(s.p.Patience))
}

// Drop ends the connection without a word.
func (s *Socket) Drop() { s.ws.NetConn().Close() }

// Ended waits for the end of the socket: the code and reason of the device's
// close frame, or 1006.
func (s *Socket) Ended() (int, string) {
	s.p.t.Helper()
	select {
	case <-s.gone:
	case <-time.After(s.p.Patience):
		s.p.t.Fatalf("socket %q is still open", s.Session)
	}
	if e, ok := s.ended.(*websocket.CloseError); ok {
		return e.Code, e.Text
	}
	return 1006, fmt.Sprint(s.ended)
}

// Gone is closed when the socket has ended.
func (s *Socket) Gone() <-chan struct{} { return s.gone }

// Freeze makes the platform deaf on this socket from the next ping on: it reads
// nothing and answers nothing, until the function returned is called.
func (s *Socket) Freeze() (thaw func()) {
	ice := make(chan struct{})
	s.ice.Store(&ice)
	return func() { close(ice) }
}

// ping answers a ping unless the socket is frozen.
func (s *Socket) ping(data string) error {
	if ice := s.ice.Load(); ice != nil {
		<-*ice
		return nil
	}
	_ = s.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(s.p.Patience))
	return nil
}

// Outstanding says whether an id waits for its terminal answer.
func (s *Socket) Outstanding(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.expected[id]
	return ok
}
