package route

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"farhand/relay/cluster"
	"farhand/relay/metrics"
	"farhand/wire"
)

// What comes to this instance for a machine of another is passed on as it is: a
// device's data socket and a call of the JSON API by a proxy, a frame of an
// operator over a socket that this instance opens there on the operator's behalf
// and with its token. So everything that decides (tokens, ceilings, sessions,
// queues) is asked where the machine is, and only there. Passed on is once: who
// comes from an instance is a guest, and what guests want that isn't here is
// refused.

const (
	// hopTime is for reaching another instance and its answer to a question that
	// no device is asked for.
	hopTime = 5 * time.Second
	// freshFor is how long what another instance said of its machines counts:
	// one list asks for each machine.
	freshFor = time.Second
	// maxTold bounds what another instance says of an owner's machines: HELLOs of
	// 64 KiB of those that have just come.
	maxTold = 16 << 20
)

type guestKey struct{}

// FromInstance marks requests as coming from another instance.
func FromInstance(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), guestKey{}, true)))
	})
}

func isGuest(ctx context.Context) bool { return ctx.Value(guestKey{}) != nil }

// elsewhere is the instance that a machine is at, if that is another one and r
// doesn't come from one.
func (s *Server) elsewhere(ctx context.Context, key machineKey) string {
	if s.places == nil || isGuest(ctx) {
		return ""
	}
	return s.places.at(key)
}

// newTransport carries HTTP to other instances, whose ids are the hosts.
func newTransport(node *cluster.Node) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			id, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return node.Dial(ctx, id)
		},
		IdleConnTimeout:     30 * time.Second,
		MaxIdleConnsPerHost: 16,
		DisableCompression:  true,
	}
}

// Transport carries HTTP to other instances, whose ids are the hosts. There are
// some only where the Config has a Cluster.
func (s *Server) Transport() http.RoundTripper { return s.transport }

// passOn proxies a request to another instance; a socket too, until it ends or
// this instance does.
func (s *Server) passOn(w http.ResponseWriter, r *http.Request, instance string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	proxy := httputil.ReverseProxy{
		Transport: s.transport,
		Rewrite:   func(pr *httputil.ProxyRequest) { pr.SetURL(&url.URL{Scheme: "http", Host: instance}) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			s.log.Warn("not passed on", "instance", instance, "path", r.URL.Path, "error", err)
			switch {
			case r.Header.Get("Upgrade") != "":
				deny(w, http.StatusServiceUnavailable, "try again later")
			case errors.Is(err, cluster.ErrGone):
				s.replyError(w, wire.Errorf(wire.MachineUnreachable, "the machine is not connected: the relay's instance that had it is gone"))
			case r.Method == http.MethodPatch:
				s.replyError(w, wire.Errorf(wire.OpUnconfirmed, "the relay's instance that has the machine didn't answer; it may have happened: look before repeating it"))
			default:
				s.replyError(w, wire.Errorf(wire.RequestTimeout, "the relay's instance that has the machine didn't answer; it is safe to repeat"))
			}
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// buffered keeps a request's body for being read twice.
func buffered(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// registerInstance mounts what instances ask each other.
func (s *Server) registerInstance(mux *http.ServeMux) {
	if s.acts != nil {
		s.registerActs(mux)
	}
	mux.HandleFunc("GET /cluster/machines", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, s.told(r.URL.Query().Get("owner")))
	})
	mux.HandleFunc("POST /cluster/watch", func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer s.leave()
		if owner := r.URL.Query().Get("owner"); owner != "" {
			s.watchHere(owner)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /cluster/approval", func(w http.ResponseWriter, r *http.Request) {
		s.approvalChangedHere(r.Context(), r.URL.Query().Get("owner"), r.URL.Query().Get("machine"))
		w.WriteHeader(http.StatusNoContent)
	})
}

// told is what only this instance knows of a machine.
type told struct {
	Hello *wire.Hello        `json:"hello,omitempty"`
	Facts *wire.MachineFacts `json:"facts,omitempty"`
	// Live are the sessions with a socket here, with the time of the last use in
	// Unix seconds.
	Live map[string]int64 `json:"live,omitempty"`
}

// told says what is known here of the machines of an owner.
func (s *Server) told(owner string) map[string]told {
	s.mu.Lock()
	var machines []*machine
	for key, m := range s.machines {
		if key.owner == owner {
			machines = append(machines, m)
		}
	}
	s.mu.Unlock()
	all := make(map[string]told)
	for _, m := range machines {
		if len(m.sockets()) == 0 {
			continue
		}
		t := told{Hello: s.Hello(owner, m.key.id), Facts: s.Facts(owner, m.key.id), Live: make(map[string]int64)}
		m.mu.Lock()
		for id, ses := range m.sessions {
			if ses.conn() != nil {
				t.Live[id] = ses.used.Load()
			}
		}
		m.mu.Unlock()
		all[m.key.id] = t
	}
	return all
}

// askers remember for a moment what other instances said.
type askers struct {
	mu    sync.Mutex
	heard map[[2]string]*heard // by instance and owner
}

type heard struct {
	mu       sync.Mutex
	at       time.Time
	machines map[string]told
}

// ask is what another instance knows of an owner's machines; nothing if it
// doesn't say.
func (s *Server) ask(instance, owner string) map[string]told {
	key := [2]string{instance, owner}
	s.askers.mu.Lock()
	h := s.askers.heard[key]
	if h == nil {
		for old, h := range s.askers.heard { // of those that nobody asks for any more
			if h.mu.TryLock() {
				if time.Since(h.at) > freshFor {
					delete(s.askers.heard, old)
				}
				h.mu.Unlock()
			}
		}
		h = &heard{}
		s.askers.heard[key] = h
	}
	s.askers.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) < freshFor {
		return h.machines
	}
	h.machines = nil
	ctx, cancel := context.WithTimeout(s.ctx, hopTime)
	defer cancel()
	body, err := s.hop(ctx, http.MethodGet, instance, "/cluster/machines?"+url.Values{"owner": {owner}}.Encode())
	if err == nil {
		err = json.Unmarshal(body, &h.machines)
	}
	if err != nil {
		s.log.Warn("another instance doesn't tell of its machines", "instance", instance, "error", err)
	}
	h.at = time.Now()
	return h.machines
}

// hop asks another instance something.
func (s *Server) hop(ctx context.Context, method, instance, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+instance+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := s.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return nil, fmt.Errorf("instance %s answered %s", instance, res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxTold))
}

// upstream is a socket to another instance on behalf of an operator.
type upstream struct {
	op       *operator
	instance string
	sock     *socket

	mu      sync.Mutex
	ended   bool
	pending map[requestRef]unsettled
}

// unsettled is what is kept of a request that was passed on.
type unsettled struct {
	method    wire.Method
	target    string
	cancelled bool
}

// destination is the machine that a frame is for, and the instance that has it
// if that is another one. chosen is the machine's id where the router chose it:
// that is done once, here.
func (op *operator) destination(env wire.Envelope) (key machineKey, instance, chosen string) {
	s := op.srv
	if s.places == nil || op.guest {
		return key, "", ""
	}
	switch {
	case env.SessionID != "":
		if !isSessionID(env.SessionID) {
			return key, "", ""
		}
		ses, err := s.session(s.ctx, op.who.Owner, env.SessionID)
		if err != nil {
			return key, "", "" // and is told so
		}
		if ses.rec.Span && ses.rec.Holder == op.who.Holder {
			method, ok := wire.MethodOf(env.Type)
			if !ok {
				return key, "", ""
			}
			var refused *wire.Error
			if ses, refused = op.pick(env, method, ses); refused != nil {
				return key, "", "" // likewise
			}
			chosen = ses.rec.Machine
		}
		key = ses.machine.key
	case env.TargetMachine != "":
		rec, err := s.resolve(s.ctx, op.who, env.TargetMachine)
		if err != nil {
			return key, "", ""
		}
		key = machineKey{op.who.Owner, rec.ID}
		s.machine(key.owner, key.id) // so that its moves are told
	default:
		return key, "", ""
	}
	return key, s.places.at(key), chosen
}

// passOn sends a frame to the instance that has its machine, and takes the frame
// over unless it says false. stamped says that env names another machine than the
// frame does.
func (op *operator) passOn(instance string, key machineKey, env wire.Envelope, frame *frameBuf, stamped bool) bool {
	s := op.srv
	credit := env.Type == wire.TStreamCredit
	if credit && (env.Payload[0] != '{' || len(env.Payload) > maxCredit) {
		return false
	}
	if !credit && !op.expect(env) {
		return false
	}
	method, ok := wire.MethodOf(env.Type)
	var refused *wire.Error
	switch {
	case !ok:
		refused = unsendable(env.Type)
	case !credit && op.outstanding() > maxOutstanding:
		refused = tooMany()
	case !credit:
		refused = op.intend(env, method, key.id)
	}
	if refused != nil {
		op.settle(env, nil, result{err: refused})
		s.buffers.release(frame)
		return true
	}
	if opensStream(env.Type) {
		op.mayStream()
	}
	if env.SessionID != "" {
		op.flows(env.SessionID, credit)
	}
	u, err := op.upstream(instance)
	if err == nil {
		err = u.send(env, method, frame, stamped)
	}
	if err == nil {
		return true
	}
	s.buffers.release(frame)
	if credit {
		return true
	}
	s.log.Warn("frame not passed on", "instance", instance, "machine", key.id, "error", err)
	m := s.machine(key.owner, key.id)
	refused = m.unreachable()
	if errors.Is(err, errTooBig) {
		refused = m.overloaded(0)
	}
	op.settle(env, nil, result{err: refused})
	return true
}

// flows notes that a session is used here, and whether a stream of it is.
func (op *operator) flows(session string, stream bool) {
	op.srv.mu.Lock()
	ses := op.srv.sessions[sessionRef{op.who.Owner, session}]
	op.srv.mu.Unlock()
	if ses == nil {
		return
	}
	now := time.Now().Unix()
	ses.used.Store(now)
	if stream {
		ses.flowed.Store(now)
	}
}

// upstream finds or opens the socket to another instance.
func (op *operator) upstream(instance string) (*upstream, error) {
	op.dialing.Lock()
	defer op.dialing.Unlock()
	op.mu.Lock()
	u := op.upstreams[instance]
	op.mu.Unlock()
	if u != nil {
		return u, nil
	}
	s := op.srv
	ctx, cancel := context.WithTimeout(s.ctx, hopTime)
	defer cancel()
	dialer := websocket.Dialer{
		NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.places.node.Dial(ctx, instance) },
		ReadBufferSize: readBuffer, WriteBufferSize: writeBuffer, WriteBufferPool: s.upgrader.WriteBufferPool,
	}
	ws, res, err := dialer.DialContext(ctx, "ws://"+instance+"/ws/operator", http.Header{"Authorization": {"Bearer " + op.token}})
	if err != nil {
		if res != nil {
			err = fmt.Errorf("%w: %s", err, res.Status)
		}
		return nil, err
	}
	u = &upstream{op: op, instance: instance, sock: s.newSocket(ws, s.bounds.lane), pending: make(map[requestRef]unsettled)}
	u.sock.peer = metrics.Instance
	tracked := s.track(u.sock)
	op.mu.Lock()
	if op.upstreams == nil {
		op.upstreams = make(map[string]*upstream)
	}
	op.upstreams[instance] = u
	left := op.left // whoever sets it closes those that are there
	op.mu.Unlock()
	if !tracked || left {
		u.sock.close(wire.CloseServiceRestart, "restarting")
	}
	s.spawn(u.run)
	return u, nil
}

// send queues a frame. It is the caller's again if there is an error.
func (u *upstream) send(env wire.Envelope, method wire.Method, frame *frameBuf, stamped bool) error {
	f := outFrame{body: frame.b, binary: len(env.Data) > 0}
	if stamped {
		f = encode(wire.Message{Type: env.Type, ID: env.ID, SessionID: env.SessionID, TargetMachine: env.TargetMachine, Payload: body(env.Payload, env.Data)})
	}
	f.buf = frame
	if env.Type == wire.TStreamCredit {
		f.most = u.op.srv.bounds.credit
		return u.sock.send(f)
	}
	ref := requestRef{env.SessionID, env.ID}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return errClosed
	}
	if err := u.sock.send(f); err != nil {
		return err
	}
	u.pending[ref] = unsettled{method: method, target: env.TargetMachine}
	return nil
}

// cancel passes CANCEL on if the request that it is of was, and then takes the
// frame over.
func (u *upstream) cancel(ref requestRef, env wire.Envelope, frame *frameBuf) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	r, here := u.pending[ref]
	if !here {
		return false
	}
	f := outFrame{body: frame.b, buf: frame, most: u.op.srv.bounds.credit}
	if r.cancelled || u.sock.send(f) != nil {
		u.op.srv.buffers.release(frame)
		return true
	}
	r.cancelled = true
	u.pending[ref] = r
	return true
}

// run reads what the other instance answers, until the socket or the operator
// ends, and then settles what is unanswered.
func (u *upstream) run() {
	s, op := u.op.srv, u.op
	err := u.readLoop()
	s.untrack(u.sock)
	op.mu.Lock()
	if op.upstreams[u.instance] == u {
		delete(op.upstreams, u.instance)
	}
	op.mu.Unlock()
	u.mu.Lock()
	u.ended = true
	lost := u.pending
	u.pending = nil
	u.mu.Unlock()
	u.sock.finish(err)
	s.log.Info("socket to another instance ended", "instance", u.instance, "holder", op.who.Holder, "why", closeText(err), "unanswered", len(lost))
	for ref, r := range lost {
		op.settle(wire.Envelope{ID: ref.id, SessionID: ref.session, TargetMachine: r.target}, nil, result{err: s.known(op.who.Owner, r.target).unanswered(r.method, 0)})
	}
}

func (u *upstream) readLoop() error {
	s, op := u.op.srv, u.op
	for {
		frame, err := u.sock.read(maxAnswer)
		if err != nil {
			return err
		}
		if u.sock.isClosing() {
			s.buffers.release(frame)
			continue
		}
		op.await() // who doesn't read isn't read for
		env, err := wire.DecodeEnvelope(frame.b)
		if err != nil {
			s.buffers.release(frame)
			continue
		}
		f := outFrame{body: frame.b, buf: frame, binary: len(env.Data) > 0}
		switch {
		case env.Type == wire.TStreamData:
			op.mayStream()
			if env.SessionID != "" {
				op.flows(env.SessionID, true)
			}
		case !wire.IsAnswer(env.Type):
			s.buffers.release(frame) // SESSION_REVOKED: this instance hears of that itself
			continue
		case !env.Type.IsChunk():
			ref := requestRef{env.SessionID, env.ID}
			u.mu.Lock()
			delete(u.pending, ref)
			u.mu.Unlock()
			a, waited := op.answered(ref)
			if !waited {
				s.buffers.release(frame)
				continue
			}
			code := codeOf(env) // read before the frame is given away
			op.send(f)
			op.ended(ref, a, code)
			continue
		}
		op.send(f)
	}
}

// await returns once what waits for the operator is little enough for more.
func (op *operator) await() {
	for op.sock.busy() && !op.gone() {
		op.mu.Lock()
		if op.room == nil {
			op.room = make(chan struct{})
		}
		room := op.room
		op.mu.Unlock()
		if !op.sock.busy() {
			return
		}
		select {
		case <-room:
		case <-op.srv.ctx.Done():
			return
		}
	}
}

// dispatchAgain handles a request anew that waited for a machine which another
// instance has now.
func (op *operator) dispatchAgain(r *request) {
	env, err := wire.DecodeEnvelope(r.buf.b)
	if err != nil {
		op.srv.buffers.release(r.buf)
		return
	}
	if _, waited := op.answered(requestRef{env.SessionID, env.ID}); !waited {
		op.srv.buffers.release(r.buf)
		return
	}
	if !op.dispatch(r.buf) {
		op.srv.buffers.release(r.buf)
	}
}
