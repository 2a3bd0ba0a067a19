package route

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"farhand/internal/fnmatch"
	"farhand/relay/access"
	"farhand/relay/metrics"
	"farhand/wire"
)

// maxOutstanding is how many requests one operator's socket may have unanswered.
// The AutoGPT platform has the same bound for a device's.
const maxOutstanding = 256

// operator is one socket of an operator.
type operator struct {
	srv  *Server
	sock *socket
	who  access.Operator
	odd  nuisance // of the reader alone

	heldUp atomic.Int64 // unix nanoseconds: when a request last had to wait because the answers aren't read

	mu      sync.Mutex
	waiting map[requestRef]asked
	left    bool               // the socket has ended: nothing is asked for any more
	blocked map[*lane]struct{} // lanes that hold requests back because this socket isn't read
	missed  map[scope]struct{} // where frames of streams were lost since it last caught up

	guest bool   // another instance's, on behalf of an operator there
	token string // what it signed in with, for other instances

	dialing   sync.Mutex           // one socket to another instance is opened at a time
	upstreams map[string]*upstream // by instance; under mu
	room      chan struct{}        // closed when the answers are read again, if somebody waits; under mu

	tag      string      // in the ids of its requests to devices, so that frames of streams find it; see listeners
	streamed atomic.Bool // it may have streams
}

// requestRef names a request of an operator.
type requestRef struct{ session, id string }

// serveOperator is GET /ws/operator.
func (s *Server) serveOperator(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		deny(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	defer s.leave()
	if s.cutOff() {
		deny(w, http.StatusServiceUnavailable, "cut off from NATS")
		return
	}
	if !sameOrigin(r) {
		deny(w, http.StatusForbidden, "foreign origin")
		return
	}
	who, ok := s.operatorOf(w, r)
	if !ok {
		return
	}
	token, _ := bearer(r)
	if !s.holders.enter(who.Holder) {
		deny(w, http.StatusTooManyRequests, "too many sockets of one login or token")
		return
	}
	ws, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.holders.leave(who.Holder)
		s.log.Debug("upgrade failed", "error", err)
		return
	}
	guest := isGuest(r.Context())
	s.spawn(func() {
		defer s.holders.leave(who.Holder)
		s.runOperator(ws, token, who, guest)
	})
}

// runOperator is the reader of an operator's socket.
func (s *Server) runOperator(ws *websocket.Conn, token string, who access.Operator, guest bool) {
	k := s.newSocket(ws, s.bounds.operator)
	k.expires, k.peer = who.Expires, metrics.Operator
	if guest {
		k.peer = metrics.Instance
	}
	op := &operator{srv: s, sock: k, who: who, token: token, guest: guest, waiting: make(map[requestRef]asked), blocked: make(map[*lane]struct{})}
	k.drained, k.caughtUp = op.drained, op.caughtUp
	if !s.track(k) {
		k.close(wire.CloseServiceRestart, "restarting")
	}
	defer s.untrack(k)
	s.listeners.join(op)
	// A revocation that came before the socket was listed didn't see it.
	if _, err := s.authority.Operator(s.ctx, token); errors.Is(err, access.ErrUnauthorized) {
		k.revoke(wire.ReasonUserRevoked)
	}
	s.log.Info("operator connected", "owner", who.Owner, "holder", who.Holder)
	err := op.readLoop()
	s.listeners.part(op)
	s.log.Info("operator disconnected", "owner", who.Owner, "holder", who.Holder, "why", closeText(err),
		"after", time.Since(k.born).Round(time.Millisecond))
	op.leave()
	k.finish(err)
	op.drained() // lets go of what was held back for it
}

func (op *operator) readLoop() error {
	for {
		frame, err := op.sock.read(wire.MaxFrame)
		if err != nil {
			return err
		}
		if op.gone() {
			op.srv.buffers.release(frame)
			continue
		}
		if !op.dispatch(frame) {
			op.srv.buffers.release(frame)
			if op.odd.another(time.Now()) {
				op.sock.close(websocket.ClosePolicyViolation, "too many frames that are no requests")
			}
		}
	}
}

// busy says whether the operator reads too slowly for anything new to be asked
// for; l then is resumed when that is over.
func (op *operator) busy(l *lane) bool {
	if !op.sock.busy() {
		return false
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	op.blocked[l] = struct{}{}
	if op.sock.busy() {
		op.heldUp.Store(time.Now().UnixNano())
		return true
	}
	delete(op.blocked, l)
	return false
}

func (op *operator) drained() {
	op.mu.Lock()
	lanes := make([]*lane, 0, len(op.blocked))
	for l := range op.blocked {
		lanes = append(lanes, l)
	}
	clear(op.blocked)
	if op.room != nil {
		close(op.room)
		op.room = nil
	}
	op.mu.Unlock()
	for _, l := range lanes {
		l.resume()
	}
}

func (op *operator) gone() bool { return op.sock.isClosing() }

// dispatch handles one frame. It says false if it is no request at all; the
// frame is then still the caller's.
func (op *operator) dispatch(frame *frameBuf) bool {
	env, err := wire.DecodeEnvelope(frame.b)
	if err != nil || wire.IsAnswer(env.Type) {
		return false
	}
	if env.Type == wire.TPing && env.SessionID == "" {
		op.say(env, wire.Message{Type: wire.TPong})
		op.srv.buffers.release(frame)
		return true
	}
	if env.Type == wire.TCancel { // never refused: it saves more than it costs
		return op.cancel(env, frame)
	}
	if !op.guest { // a guest was counted where it came from
		who := op.who.Holder
		if env.Type == wire.TStreamCredit || env.Type == wire.TPing {
			who += "/streams" // a rate of their own: what is asked for doesn't stop what goes on
		}
		refused := op.srv.limits.Request(who)
		switch {
		case refused == nil:
		case env.Type == wire.TStreamCredit: // which nobody answers
			op.srv.buffers.release(frame)
			return true
		case !op.expect(env):
			return false
		default:
			op.settle(env, nil, result{err: refused})
			op.srv.buffers.release(frame)
			return true
		}
	}
	if env.Type == wire.TMachineListRequest {
		if !op.expect(env) {
			return false
		}
		op.listMachines(env)
		op.srv.buffers.release(frame)
		return true
	}
	key, instance, chosen := op.destination(env)
	if chosen != "" {
		env.TargetMachine = chosen
	}
	if instance != "" {
		return op.passOn(instance, key, env, frame, chosen != "")
	}
	if env.Type == wire.TStreamCredit {
		return op.credit(env, frame)
	}
	if !op.expect(env) {
		return false // the id is outstanding: two answers to one id would be worse than none
	}
	r, l, refused := op.route(env, frame)
	if refused == nil {
		refused = op.intend(env, r.method, l.machineID)
	}
	if refused != nil {
		op.settle(env, nil, result{err: refused})
		op.srv.buffers.release(frame)
		return true
	}
	op.mu.Lock()
	ref := requestRef{env.SessionID, env.ID}
	a := op.waiting[ref]
	a.lane = l
	op.waiting[ref] = a
	op.mu.Unlock()
	l.submit(r)
	return true
}

// cancel ends a request of this operator, here if it still waits, otherwise on
// the device. It is answered in any case, by CANCELLED if it came in time. It goes
// where the request went, whatever else it says: the router may have chosen that.
func (op *operator) cancel(env wire.Envelope, frame *frameBuf) bool {
	if env.Payload[0] != '{' || len(env.Payload) > maxCredit {
		return false
	}
	ref := requestRef{env.SessionID, env.ID}
	op.mu.Lock()
	l := op.waiting[ref].lane
	upstreams := slices.Collect(maps.Values(op.upstreams))
	op.mu.Unlock()
	if l != nil { // else it is elsewhere, or its answer has crossed this
		l.cancel(op, ref)
		op.srv.buffers.release(frame)
		return true
	}
	for _, u := range upstreams {
		if u.cancel(ref, env, frame) {
			return true
		}
	}
	op.srv.buffers.release(frame)
	return true
}

// leave is for when the socket has ended: nobody gets the answers that are still
// to come, so what they are of is cancelled, here and at other instances. What
// goes on by itself (terminals, streams, transfers that can go on) does.
func (op *operator) leave() {
	op.mu.Lock()
	op.left = true
	upstreams := slices.Collect(maps.Values(op.upstreams))
	asked := maps.Clone(op.waiting)
	op.mu.Unlock()
	for _, u := range upstreams {
		u.sock.close(websocket.CloseNormalClosure, "")
	}
	for ref, a := range asked {
		if a.lane != nil {
			a.lane.cancel(op, ref)
		}
	}
}

// expect notes that env waits for its answer.
func (op *operator) expect(env wire.Envelope) bool {
	ref := requestRef{env.SessionID, env.ID}
	op.mu.Lock()
	defer op.mu.Unlock()
	if _, twice := op.waiting[ref]; twice || op.left {
		return false
	}
	op.waiting[ref] = ask(env)
	return true
}

// answered notes that a request has its answer; false if it had none to come.
func (op *operator) answered(ref requestRef) (a asked, waited bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	a, waited = op.waiting[ref]
	delete(op.waiting, ref)
	return a, waited
}

func (op *operator) outstanding() int {
	op.mu.Lock()
	defer op.mu.Unlock()
	return len(op.waiting)
}

// route finds where a request goes and whether it may.
func (op *operator) route(env wire.Envelope, frame *frameBuf) (*request, *lane, *wire.Error) {
	if op.outstanding() > maxOutstanding {
		return nil, nil, tooMany()
	}
	method, ok := wire.MethodOf(env.Type)
	if !ok || method.Channel&wire.Data == 0 || method.Capability == wire.Grants {
		return nil, nil, unsendable(env.Type)
	}
	if env.Payload[0] != '{' {
		return nil, nil, wire.Errorf(wire.InternalError, "the payload of %s must be an object", env.Type).With("reason", "invalid_payload")
	}
	r := &request{method: method, payload: env.Payload, data: env.Data, buf: frame, from: op, asked: requestRef{env.SessionID, env.ID}, timeout: op.srv.timing.data}
	r.deliver = func(res result) { op.settle(env, nil, res) }
	var l *lane
	var m *machine
	var refused *wire.Error
	if env.SessionID == "" {
		if m, refused = op.machineFor(env, method); refused == nil {
			l = &m.lane
			r.limits = func() ceilings { return ceilings{approval: m.approved(), token: op.who.Ceiling} }
			r.deliver = func(res result) { op.settle(env, op.who.Ceiling, res) }
			r.timeout = op.srv.timing.control
		}
	} else {
		var ses *session
		if ses, refused = op.sessionFor(env, method); refused == nil {
			if ses.rec.Span || ses.rec.Joined {
				env.TargetMachine = ses.rec.Machine // the answer says who it is from
			}
			l, m, r.limits = &ses.lane, ses.machine, ses.ceilings
			ses.used.Store(time.Now().Unix())
		}
	}
	if refused == nil {
		// The first ceiling that refuses is told, and the device's own is the first.
		if d := cmp.Or(l.device(), m.online()); d != nil && !has(d.offered, method.Capability) {
			refused = m.notOffered(method)
		} else {
			refused = m.about(r.limits().check(method.Capability))
		}
	}
	if refused != nil {
		return nil, nil, refused
	}
	if opensStream(env.Type) {
		op.mayStream()
	}
	switch env.Type {
	case wire.TExecuteCommand:
		r.timeout = op.srv.commandTimeout(env.Payload)
	case wire.TLLMEmbed, wire.TLLMUninstall:
		r.timeout = op.srv.timing.streamSilence
	case wire.TLocalLLMCompletion, wire.TLLMTurn:
		r.timeout = op.srv.timing.streamSilence
		r.chunk = func(chunk wire.Envelope, buf *frameBuf) { op.forward(env, chunk, buf) }
	}
	return r, l, nil
}

// sessionFor finds the session that a request names. It must be the operator's
// own: a session belongs to one login or token.
func (op *operator) sessionFor(env wire.Envelope, method wire.Method) (*session, *wire.Error) {
	if !isSessionID(env.SessionID) {
		return nil, noSession(env.SessionID)
	}
	ses, err := op.srv.session(op.srv.ctx, op.who.Owner, env.SessionID)
	switch {
	case errors.Is(err, errNoSession):
		return nil, noSession(env.SessionID)
	case err != nil:
		op.srv.log.Error("session not looked up", "error", err)
		return nil, wire.Errorf(wire.InternalError, "try again later")
	case ses.rec.Holder != op.who.Holder:
		return nil, noSession(env.SessionID)
	}
	if ses.rec.Span {
		var refused *wire.Error
		if ses, refused = op.pick(env, method, ses); refused != nil {
			return nil, refused
		}
	} else if !op.who.MayUse(ses.rec.Machine) {
		return nil, noSession(env.SessionID)
	}
	if t := env.TargetMachine; !ses.rec.Span && !ses.rec.Joined && t != "" && t != ses.rec.Machine {
		m, err := op.srv.resolve(op.srv.ctx, op.who, t)
		if err != nil {
			return nil, wire.AsError(err)
		}
		if m.ID != ses.rec.Machine {
			return nil, wire.Errorf(wire.MachineNotAttached, "the session is on another machine").With("machine", m.Name)
		}
	}
	if ses.machine.approval.Load() == nil { // not yet since the relay started
		if err := ses.machine.refresh(op.srv.ctx); err != nil {
			op.srv.log.Error("machine not read", "machine", ses.rec.Machine, "error", err)
			return nil, ses.machine.unreachable()
		}
	}
	return ses, nil
}

// machineFor finds the machine of a request without a session.
func (op *operator) machineFor(env wire.Envelope, method wire.Method) (*machine, *wire.Error) {
	if method.Channel&wire.Control == 0 || env.Type == wire.TPing {
		if env.TargetMachine == "" {
			return nil, noSession("")
		}
		return nil, wire.Errorf(wire.MachineNotAttached, "%s needs a session on the machine", env.Type).
			With("machine", cut(env.TargetMachine, 128))
	}
	rec, err := op.srv.resolve(op.srv.ctx, op.who, env.TargetMachine)
	if err != nil {
		return nil, wire.AsError(err)
	}
	m := op.srv.machine(op.who.Owner, rec.ID)
	m.learn(rec)
	return m, nil
}

// settle gives a request its answer. With a ceiling, an answer that lists
// devices is cut to what the ceiling allows, since the control socket knows
// nothing of tokens.
func (op *operator) settle(req wire.Envelope, ceiling *wire.Ceiling, res result) {
	ref := requestRef{req.SessionID, req.ID}
	a, waits := op.answered(ref)
	if waits {
		code := codeOf(res.env)
		if res.err != nil {
			code = res.err.Code
		}
		defer op.ended(ref, a, code) // the answer doesn't wait for it
	}
	switch {
	case !waits:
		op.srv.buffers.release(res.buf)
	case res.err != nil:
		op.say(req, wire.Message{Type: wire.TError, Payload: res.err})
	case ceiling != nil && res.env.Type == wire.THardwareListResponse:
		listed, err := listAllowed(res.env.Payload, ceiling)
		op.srv.buffers.release(res.buf)
		if err != nil {
			op.say(req, wire.Message{Type: wire.TError, Payload: badAnswer(res.env.Type)})
			return
		}
		op.say(req, wire.Message{Type: res.env.Type, PendingCapacity: res.env.PendingCapacity, Payload: listed})
	default:
		op.forward(req, res.env, res.buf)
	}
}

// listAllowed leaves the devices that a ceiling allows.
func listAllowed(payload []byte, c *wire.Ceiling) (wire.HardwareListResponse, error) {
	var all wire.HardwareListResponse
	if err := wire.Decode(payload, &all); err != nil {
		return all, err
	}
	kept := []wire.HardwareDevice{}
	for _, d := range all.Devices {
		if visibleTo(c, d) {
			kept = append(kept, d)
		}
	}
	all.Devices = kept
	return all, nil
}

// visibleTo says whether a ceiling lets a device be seen.
func visibleTo(c *wire.Ceiling, d wire.HardwareDevice) bool {
	return (c.Capabilities == nil || has(*c.Capabilities, wire.HardwareCapability(d.Type))) &&
		(c.Devices == nil || matches(*c.Devices, d.ID))
}

func matches(grants []wire.DeviceGrant, id string) bool {
	for _, g := range grants {
		if fnmatch.Match(g.Pattern, id) {
			return true
		}
	}
	return false
}

// forward passes a frame of the device on under the operator's own id.
func (op *operator) forward(req, env wire.Envelope, buf *frameBuf) {
	f := encode(wire.Message{Type: env.Type, ID: req.ID, SessionID: req.SessionID, TargetMachine: req.TargetMachine,
		PendingCapacity: env.PendingCapacity, Payload: body(env.Payload, env.Data)})
	f.buf = buf
	op.send(f)
}

// say sends a small message of ours that answers req.
func (op *operator) say(req wire.Envelope, m wire.Message) {
	m.ID, m.SessionID, m.TargetMachine = req.ID, req.SessionID, req.TargetMachine
	op.send(encode(m))
}

func (op *operator) send(f outFrame) {
	err := op.sock.send(f)
	if err == nil {
		return
	}
	op.srv.buffers.release(f.buf)
	if errors.Is(err, errTooBig) {
		op.srv.log.Warn("operator cut off: it doesn't read its answers", "holder", op.who.Holder, "error", err)
		op.sock.close(websocket.CloseTryAgainLater, "answers are not being read")
	}
}

// commandTimeout is how long an EXECUTE_COMMAND may take: what it asks for, 30 s
// if nothing, and then some, so that the device's own timed_out can arrive. This
// is the one field of a body that the relay looks at.
func (s *Server) commandTimeout(payload []byte) time.Duration {
	asked := wire.DefaultCommandTimeout
	_ = wire.Fields(payload, func(key string, raw []byte) error {
		if key == "timeout_seconds" {
			if sec, err := strconv.ParseFloat(string(raw), 64); err == nil && sec > 0 {
				asked = time.Duration(min(sec, ackCommandTimeout) * float64(time.Second))
			}
		}
		return nil
	})
	return asked + s.timing.commandMargin
}

// RevokeHolder implements access.Sockets.
func (s *Server) RevokeHolder(owner, holder string) {
	if !s.enter() {
		return
	}
	s.log.Info("operator revoked", "owner", owner, "holder", holder)
	for _, op := range s.listeners.all(func(op *operator) bool { return op.who.Owner == owner && op.who.Holder == holder }) {
		op.sock.revoke(wire.ReasonUserRevoked)
	}
	s.spawn(func() {
		s.endAll(s.ctx, owner, func(r record) bool { return r.Holder == holder })
	})
	s.leave()
}

// endAll ends the sessions of an owner that match.
func (s *Server) endAll(ctx context.Context, owner string, match func(record) bool) {
	records, err := s.listRecords(ctx, owner)
	if err != nil {
		s.log.Error("sessions to end not listed", "owner", owner, "error", err)
		return
	}
	var wg sync.WaitGroup
	for _, r := range records {
		if match(r) {
			wg.Go(func() {
				if err := s.end(ctx, s.adopt(r)); err != nil {
					s.log.Error("session not ended", "session", r.ID, "error", err)
				}
			})
		}
	}
	wg.Wait()
}
