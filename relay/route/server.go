package route

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"farhand/relay/access"
	"farhand/relay/acts"
	"farhand/relay/cluster"
	"farhand/relay/events"
	"farhand/relay/limit"
	"farhand/relay/metrics"
	"farhand/relay/store"
	"farhand/wire"
)

// bounds are in bytes. They are fields, so that tests can do with small frames.
type bounds struct {
	device   int // waiting to be written to a device, beside one frame
	operator int // the same for an operator; above high only answers already asked for arrive
	// Above high nothing new is asked for on behalf of an operator, until it
	// has read down to low.
	high, low int
	lane      int // payloads of one session waiting or unanswered, beside one request
	stream    int // of all pieces of one answer of a local model
	// Frames of streams that wait for an operator, beside one frame: what comes
	// on top is lost, and the operator is told so (stream.go).
	streams int
	credit  int // STREAM_CREDIT frames that wait for a device; what comes on top is lost
}

// ample are bounds that hold a few frames of the largest size (16 MiB) each.
var ample = bounds{device: 32 << 20, operator: 128 << 20, high: 32 << 20, low: 8 << 20, lane: 64 << 20, stream: 64 << 20,
	streams: 8 << 20, credit: 64 << 10}

// Bounds in number.
const (
	maxFamilySockets = 128 // of one device's token family: 8 live sessions need 9
	maxHolderSockets = 128 // of one operator's login or token
)

// Buffers of an idle socket. Frames larger than the read buffer are read past
// it; write buffers are shared and held only while something is written.
const (
	readBuffer  = 1 << 10
	writeBuffer = 4 << 10
)

// timing holds every time that route waits for, so that tests can be quick.
type timing struct {
	hello          time.Duration // for HELLO after the upgrade
	ping           time.Duration // between WebSocket pings
	silence        time.Duration // without a received byte until a socket is given up
	write          time.Duration // for one fragment of a message
	closeGrace     time.Duration // for the other side's close frame
	shutdown       time.Duration // the same when the relay ends: a restart shouldn't take long
	sweep          time.Duration // between looks at all sockets
	queue          time.Duration // a request waits for the device to have room, or for its link
	probe          time.Duration // one request at a time, until the device says how many it takes
	prod           time.Duration // a device without room and without a request of ours is asked again
	data           time.Duration // for the answer on a data socket
	control        time.Duration // for the answer on a control socket
	detach         time.Duration // for the answer to DETACH_SESSION
	verify         time.Duration // for AUDIT_VERIFY_RESPONSE: the device reads its whole log
	settings       time.Duration // for SETTINGS: the device may have to make a host key
	dataSocket     time.Duration // for the data socket after ACTIVATE or RESTORE
	reconnectGrace time.Duration // for a control socket that was just lost
	open           time.Duration // for POST /api/sessions altogether
	commandMargin  time.Duration // on top of a command's own timeout
	streamSilence  time.Duration // between two chunks of a local model's answer
	streamTotal    time.Duration // for all of them
}

// standard are the times of docs/relay-api.md and of the protocol.
var standard = timing{
	hello:          wire.HandshakeTimeout,
	ping:           wire.PingInterval,
	silence:        30 * time.Second,
	write:          30 * time.Second,
	closeGrace:     5 * time.Second,
	shutdown:       2 * time.Second,
	sweep:          time.Second,
	queue:          30 * time.Second,
	probe:          500 * time.Millisecond,
	prod:           10 * time.Second,
	data:           30 * time.Second,
	control:        10 * time.Second,
	detach:         5 * time.Second,
	verify:         60 * time.Second,
	settings:       40 * time.Second,
	dataSocket:     8 * time.Second,
	reconnectGrace: 10 * time.Second,
	open:           45 * time.Second,
	commandMargin:  10 * time.Second,
	streamSilence:  15 * time.Minute,
	streamTotal:    2 * time.Hour,
}

// Config says what a Server works with.
type Config struct {
	Authority access.Authority // tokens, approvals, machines
	Store     store.Store      // the sessions
	Log       *slog.Logger     // nil: nothing is logged
	// Cluster is the other instances of this relay, which has the Store with them;
	// nil for one on its own.
	Cluster *cluster.Node
	// Acts takes down what operators ask for; nil: nobody does.
	Acts *acts.Book
	// Limits bound how fast each login and token may ask; nil: nothing is bounded.
	Limits *limit.Limits
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Metrics
	// Events takes what happens to machines, for GET /api/events; nil: one of its own.
	Events events.Feed
	// ClientID is the OAuth client whose tokens are taken on device sockets.
	// Empty: autogpt-local-executor.
	ClientID string
}

// Server carries the live sockets. All methods are safe for concurrent use.
type Server struct {
	authority access.Authority
	store     store.Store
	log       *slog.Logger
	clientID  string
	timing    timing
	bounds    bounds
	started   time.Time
	upgrader  websocket.Upgrader
	buffers   buffers
	limits    *limit.Limits
	acts      *acts.Book
	families  counter
	places    *places         // nil for a relay of one instance
	transport *http.Transport // to other instances
	askers    askers
	holders   counter
	followers counter
	events    events.Feed
	metrics   *metrics.Metrics
	watched   map[string]bool // owners; under mu

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	sockets   map[*socket]struct{}
	machines  map[machineKey]*machine
	sessions  map[sessionRef]*session
	listeners listeners // the operators' sockets
}

// New starts a Server. Close or Shutdown ends it.
func New(cfg Config) *Server { return newServer(cfg, standard, ample) }

func newServer(cfg Config, t timing, b bounds) *Server {
	s := &Server{
		authority: cfg.Authority, store: cfg.Store, log: cfg.Log, clientID: cfg.ClientID, limits: cfg.Limits, acts: cfg.Acts, timing: t, bounds: b, started: time.Now(),
		upgrader: websocket.Upgrader{
			HandshakeTimeout: t.hello, ReadBufferSize: readBuffer, WriteBufferSize: writeBuffer, WriteBufferPool: &sync.Pool{},
			CheckOrigin: sameOrigin,
		},
		families: counter{max: maxFamilySockets}, holders: counter{max: maxHolderSockets},
		followers: counter{max: maxFollowers}, events: cfg.Events, metrics: cfg.Metrics, watched: make(map[string]bool),
		sockets: make(map[*socket]struct{}), machines: make(map[machineKey]*machine),
		sessions: make(map[sessionRef]*session), listeners: listeners{byTag: make(map[string]*operator)},
	}
	if s.events == nil {
		s.events = events.New()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.clientID == "" {
		s.clientID = "autogpt-local-executor"
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if cfg.Cluster != nil {
		s.places = &places{srv: s, node: cfg.Cluster, store: cfg.Store, where: make(map[machineKey]home),
			left: make(map[machineKey]time.Time), gone: make(map[string]time.Time)}
		s.transport = newTransport(cfg.Cluster)
		s.askers.heard = make(map[[2]string]*heard)
	}
	s.spawn(s.sweep)
	return s
}

// forgetExpired lets go of sessions whose token has ended. Their records expire
// by themselves.
func (s *Server) forgetExpired(now time.Time) {
	s.mu.Lock()
	var ended []*session
	for _, ses := range s.sessions {
		if e := ses.rec.Expires; !e.IsZero() && now.After(e) {
			ended = append(ended, ses)
		}
	}
	s.mu.Unlock()
	for _, ses := range ended {
		s.forget(ses, wire.ReasonUserRevoked)
	}
}

// Register mounts the Server's part of docs/relay-api.md.
func (s *Server) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /ws/local-executor", s.serveDevice)
	mux.HandleFunc("GET /ws/local-executor/{session_id}", s.serveDevice)
	mux.HandleFunc("GET /ws/operator", s.serveOperator)
	mux.HandleFunc("GET /api/events", s.getEvents)
	mux.HandleFunc("POST /api/sessions", s.call(s.postSession))
	mux.HandleFunc("GET /api/sessions", s.call(s.getSessions))
	mux.HandleFunc("DELETE /api/sessions/{session_id}", s.call(s.deleteSession))
	mux.HandleFunc("GET /api/machines/{machine}/roots", s.call(s.getRoots))
	mux.HandleFunc("POST /api/machines/{machine}/audit/verify", s.call(s.postVerify))
	mux.HandleFunc("GET /api/machines/{machine}/settings", s.call(s.getSettings))
	mux.HandleFunc("PATCH /api/machines/{machine}/settings", s.call(s.patchSettings))
	if s.acts != nil {
		mux.HandleFunc("GET /api/audit", s.call(s.getAudit))
		mux.HandleFunc("GET /api/audit/verify", s.call(s.getAuditVerify))
	}
}

// Join reads which instance has which machine and goes on hearing of it. To be
// called once, before anything is served, by an instance among several.
func (s *Server) Join(ctx context.Context) error {
	if err := s.places.follow(ctx); err != nil {
		return fmt.Errorf("where machines are: %w", err)
	}
	return nil
}

// RegisterInstance mounts what other instances may call: what everybody may, and
// more. The handler has to be wrapped in FromInstance.
func (s *Server) RegisterInstance(mux *http.ServeMux) {
	s.Register(mux)
	s.registerInstance(mux)
}

// spawn runs f in a goroutine that Shutdown waits for. The caller is such a
// goroutine itself, or came in by enter.
func (s *Server) spawn(f func()) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
}

// enter lets a caller from outside in, unless the Server is shutting down.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	return true
}

func (s *Server) leave() { s.wg.Done() }

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// track puts a socket under the sweeper and under Shutdown. It says false if the
// Server is shutting down, or cut off from the other instances; the socket is
// tracked all the same.
func (s *Server) track(k *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sockets[k] = struct{}{}
	return !s.closed && !s.cutOff()
}

func (s *Server) untrack(k *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, k)
}

func (s *Server) tracked() []*socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*socket, 0, len(s.sockets))
	for k := range s.sockets {
		all = append(all, k)
	}
	return all
}

// sweep looks after all sockets. One goroutine and one ticker for all of them
// cost less than timers of their own for thousands of idle sockets.
func (s *Server) sweep() {
	t := time.NewTicker(s.timing.sweep)
	defer t.Stop()
	for n := 1; ; n++ {
		select {
		case now := <-t.C:
			for _, k := range s.tracked() {
				k.sweep(now)
			}
			if n%watchSigns == 0 {
				s.tellWatched()
			}
			if n%60 == 0 {
				s.forgetExpired(now)
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// Run blocks until ctx ends and then shuts down within ten seconds.
func (s *Server) Run(ctx context.Context) error {
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.Shutdown(bounded)
}

// Shutdown closes every socket with 1012, which tells devices and operators to
// come back, and waits until all is quiet. Requests without an answer get
// MACHINE_UNREACHABLE or OP_UNCONFIRMED first. Sockets whose other side doesn't
// answer are cut after two seconds, or when ctx ends; then its error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	lanes := make([]*lane, 0, len(s.machines)+len(s.sessions))
	for _, m := range s.machines {
		lanes = append(lanes, &m.lane)
	}
	for _, ses := range s.sessions {
		lanes = append(lanes, &ses.lane)
	}
	s.mu.Unlock()
	s.cancel()
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	for _, l := range lanes {
		l.close(l.of.unreachable())
	}
	for _, k := range s.tracked() {
		k.closeGently(wire.CloseServiceRestart, "restarting")
	}
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	patience := time.NewTimer(s.timing.shutdown)
	defer patience.Stop()
	select {
	case <-done:
		return nil
	case <-patience.C:
	case <-ctx.Done():
	}
	for _, k := range s.tracked() {
		k.kill()
	}
	<-done
	return ctx.Err()
}

// Close is Shutdown without patience.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.Shutdown(ctx)
}

// Live counts the machines that are online, the sessions with a socket, and the
// operators' sockets.
func (s *Server) Live() (machines, sessions, operators int) {
	s.mu.Lock()
	allMachines, allSessions := make([]*machine, 0, len(s.machines)), make([]*session, 0, len(s.sessions))
	for _, m := range s.machines {
		allMachines = append(allMachines, m)
	}
	for _, ses := range s.sessions {
		allSessions = append(allSessions, ses)
	}
	s.mu.Unlock()
	for _, m := range allMachines {
		if m.online() != nil {
			machines++
		}
	}
	for _, ses := range allSessions {
		if ses.conn() != nil {
			sessions++
		}
	}
	return machines, sessions, len(s.listeners.all(func(op *operator) bool { return !op.guest }))
}

// Online implements access.Sockets.
func (s *Server) Online(owner, machineID string) bool {
	m := s.known(owner, machineID)
	return m != nil && m.online() != nil || s.places.online(machineKey{owner, machineID})
}

// toldOf is what the instance that has a machine says of it, if it is another.
func (s *Server) toldOf(owner, machineID string) told {
	instance := s.places.at(machineKey{owner, machineID})
	if instance == "" {
		return told{}
	}
	return s.ask(instance, owner)[machineID]
}

// Hello implements access.Sockets.
func (s *Server) Hello(owner, machineID string) *wire.Hello {
	m := s.known(owner, machineID)
	if m == nil || m.online() == nil {
		return s.toldOf(owner, machineID).Hello
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hello
}

// Facts implements access.Sockets.
func (s *Server) Facts(owner, machineID string) *wire.MachineFacts {
	if m := s.known(owner, machineID); m != nil {
		if d := m.online(); d != nil {
			return d.facts.Load()
		}
	}
	return s.toldOf(owner, machineID).Facts
}

// RevokeFamily implements access.Sockets.
func (s *Server) RevokeFamily(owner, family string) {
	s.log.Info("token family revoked", "owner", owner, "family", family)
	for _, k := range s.tracked() {
		if k.owner == owner && k.family == family {
			k.revoke(wire.ReasonUserRevoked)
		}
	}
}

// RevokeMachine implements access.Sockets.
func (s *Server) RevokeMachine(owner, machineID string) {
	if !s.enter() {
		return
	}
	defer s.leave()
	s.log.Info("machine revoked", "owner", owner, "machine", machineID)
	if m := s.known(owner, machineID); m != nil {
		for _, d := range m.sockets() {
			d.revoke(wire.ReasonUserRevoked)
		}
	}
	s.spawn(func() {
		records, err := s.listRecords(s.ctx, owner)
		if err != nil {
			s.log.Error("sessions to forget not listed", "owner", owner, "error", err)
			return
		}
		for _, r := range records {
			if r.Machine != machineID {
				continue
			}
			if err := s.endJoined(s.ctx, s.adopt(r)); err != nil {
				s.log.Error("session not ended on other machines", "session", r.ID, "error", err)
			}
			if err := s.deleteRecord(s.ctx, owner, r.key()); err != nil {
				s.log.Error("session not forgotten", "session", r.ID, "error", err)
			}
			s.forget(s.adopt(r), wire.ReasonUserRevoked)
		}
		s.dropMachine(owner, machineID)
	})
}

// dropMachine forgets a machine that is gone for good.
func (s *Server) dropMachine(owner, machineID string) {
	m := s.known(owner, machineID)
	if m == nil || m.online() != nil {
		return
	}
	m.lane.close(m.unreachable())
	key := machineKey{owner, machineID}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machines[key] == m {
		delete(s.machines, key)
	}
}

// ApprovalChanged implements access.Sockets.
func (s *Server) ApprovalChanged(ctx context.Context, owner, machineID string) {
	if !s.enter() {
		return
	}
	defer s.leave()
	s.approvalChangedHere(ctx, owner, machineID)
	instance := s.places.at(machineKey{owner, machineID})
	if instance == "" {
		return
	}
	_, err := s.hop(ctx, http.MethodPost, instance, "/cluster/approval?"+url.Values{"owner": {owner}, "machine": {machineID}}.Encode())
	if err != nil { // it hears of it by the store, too
		s.log.Warn("change of an approval not passed on", "machine", machineID, "instance", instance, "error", err)
	}
}

func (s *Server) approvalChangedHere(ctx context.Context, owner, machineID string) {
	m := s.known(owner, machineID)
	if m == nil {
		return
	}
	select {
	case <-m.pushGrants():
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// Approved implements access.Sockets.
func (s *Server) Approved(owner, machineID string, c wire.Ceiling) {
	m := s.known(owner, machineID)
	if m == nil || !s.enter() {
		return
	}
	defer s.leave()
	if was := m.approval.Load(); was == nil || !same(was, &c) {
		m.pushGrants()
	}
}
