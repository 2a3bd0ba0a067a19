package shim

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"farhand/grant"
	"farhand/link"
	"farhand/wire"
)

// socket is one live connection after its handshake.
type socket struct {
	shim    *Shim
	conn    *link.Conn
	kind    wire.Channel
	session *Session // nil on control
	table   Table
	version string // negotiated
	granted wire.Capabilities
	limits  Limits
	token   string // with which it was opened
	opened  time.Time
	policy  atomic.Pointer[grant.Policy]

	workers  *workers
	ctx      context.Context // of the calls
	cancel   context.CancelCauseFunc
	handlers sync.WaitGroup

	moving atomic.Bool // closed by us for a newer token

	mu       sync.Mutex
	calls    map[string]*Call // outstanding, by id
	waiting  int              // of those, how many wait for a lane or a slot
	lanes    map[string]*Call // the last call of each lane
	stopping bool             // nothing new is started
}

// newSocket starts nothing yet.
func (s *Shim) newSocket(ctx context.Context, conn *link.Conn, session *Session, a accepted, token string) *socket {
	k := &socket{
		shim: s, conn: conn, kind: wire.Control, session: session, table: s.control, version: a.version,
		granted: a.granted, limits: a.limits, token: token, opened: time.Now(),
		calls: make(map[string]*Call), lanes: make(map[string]*Call), workers: s.crew(),
	}
	if session != nil {
		k.kind, k.table = wire.Data, session.table
	}
	k.policy.Store(s.cfg.policy(a.grants))
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	conn.SetGranted(a.granted)
	return k
}

// serve reads until the socket ends and says why: a *revoked, errHandover, an
// error of link, or nil if ctx ended. By then the socket is closed and the
// handlers have returned, or were waited for long enough.
func (k *socket) serve(ctx context.Context) error {
	var tick sync.WaitGroup
	over := make(chan struct{})
	tick.Go(func() { k.tick(ctx, over) })

	err := k.read()
	close(over)
	r, wasRevoked := errors.AsType[*revoked](err)
	switch {
	case wasRevoked:
		k.conn.Mute()
		k.shim.recordRevoked(k.session, r.Reason, "frame", 0, r.NewShimMachineID)
		k.cancel(errStopping)
		k.conn.Close(wire.CloseSessionRevoked, "session_revoked")
	case ctx.Err() != nil:
		err = nil
	case k.moving.Load():
		err = errHandover
	}
	k.cancel(errStopping)
	tick.Wait()
	k.conn.Close(1000, "")
	if !waitFor(&k.handlers, handlerWait) {
		k.shim.log.Warn("handlers still run after their socket ended", k.attr()...)
	}
	return err
}

// leave closes the socket from our side: calls are cancelled and may still say
// so to the platform.
func (k *socket) leave(cause error) {
	k.mu.Lock()
	k.stopping = true
	k.mu.Unlock()
	k.cancel(errStopping)
	waitFor(&k.handlers, answerWait)
	code, reason := 1000, ""
	if c, ok := errors.AsType[*closing](cause); ok {
		code, reason = c.code, c.reason
	}
	k.conn.Close(code, reason)
}

// begin runs f as a handler unless the socket is about to be closed.
func (k *socket) begin(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopping {
		return false
	}
	k.handlers.Add(1)
	k.workers.run(func() {
		defer k.handlers.Done()
		f()
	})
	return true
}

// closing is the cause of a context's end that names the close code.
type closing struct {
	code   int
	reason string
}

func (c *closing) Error() string { return c.reason }

func (k *socket) read() error {
	for {
		frame, err := k.conn.Read()
		if err != nil {
			return err
		}
		if err := k.receive(frame); err != nil {
			return err
		}
	}
}

// receive handles one frame. An error ends the socket.
func (k *socket) receive(frame []byte) error {
	e, err := wire.DecodeEnvelope(frame)
	switch {
	case e.ID == "" || errors.Is(err, wire.ErrNoID):
		k.drop("no usable id", e.Type)
		return nil
	case e.Type == "":
		k.drop("no type", "")
		return nil
	case wire.IsAnswer(e.Type):
		k.drop("not a request", e.Type)
		return nil
	case k.outstanding(e.ID) && e.Type != wire.TSessionRevoked:
		k.drop("id is outstanding", e.Type) // two answers for one id would cost the socket
		return nil
	case err != nil:
		return k.refuse(e, wire.Errorf(wire.InternalError, "malformed frame").With("reason", "malformed_frame"))
	}
	if major, _, ok := parseVersion(e.Version); ok && major != 1 {
		k.shim.log.Error("dropped a frame of another protocol version", append(k.attr(), "version", e.Version, "type", string(e.Type))...)
		return nil
	}
	switch e.Type {
	case wire.TPing:
		return k.post(wire.Message{Type: wire.TPong, ID: e.ID, Version: k.version}, nil)
	case wire.TSessionRevoked:
		r := &revoked{}
		_ = wire.Decode(e.Payload, &r.SessionRevoked) // the reason is a courtesy
		return r
	case wire.TGrantsUpdate:
		return k.updateGrants(e)
	}
	return k.request(e)
}

// request admits a request or refuses it.
func (k *socket) request(e wire.Envelope) error {
	if k.session != nil {
		k.session.touch()
	}
	if k.full() {
		return k.overloaded(e)
	}
	if err := k.permit(e.Type, k.policy.Load()); err != nil {
		return k.refuse(e, err)
	}
	method, ok := k.table[e.Type]
	if !ok {
		return k.refuse(e, notSupported(e.Type))
	}
	k.start(&Call{ID: e.ID, Type: e.Type, Payload: e.Payload, Session: k.session, socket: k, method: method})
	return nil
}

// permit is the gate: the right socket, a granted capability, no ceiling below it.
func (k *socket) permit(t wire.Type, policy *grant.Policy) error {
	m, known := wire.MethodOf(t)
	switch {
	case !known:
		return notSupported(t)
	case m.Channel&k.kind == 0 && k.kind == wire.Control:
		return notSupported(t)
	case m.Channel&k.kind == 0 || !granted(m.Capability, k.granted):
		return wire.Errorf(wire.CapabilityNotGranted, "%s needs a capability that was not granted: %s", t, m.Capability).
			With("required_capability", m.Capability).With("capability", m.Capability).
			With("granted_capabilities", k.granted).With("op", string(t))
	}
	if err := permitCapability(m.Capability, k.granted, policy); err != nil {
		return err
	}
	if k.session != nil && (m.Capability == wire.Files || m.Capability == wire.Shell) {
		return policy.Root(k.session.Root())
	}
	return nil
}

func granted(need wire.Capability, have wire.Capabilities) bool {
	switch need {
	case "":
		return true
	case wire.HardwareFamily:
		return have.AnyHardware()
	}
	return have.Has(need)
}

// permitCapability asks the ceilings. For hardware it is enough that one family
// is allowed: the handler asks again for the device's own.
func permitCapability(need wire.Capability, have wire.Capabilities, policy *grant.Policy) error {
	if need != wire.HardwareFamily {
		if !need.Approvable() {
			return nil
		}
		return policy.Capability(need)
	}
	var first error
	for _, c := range have {
		if !c.IsHardware() {
			continue
		}
		err := policy.Capability(c)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func notSupported(t wire.Type) error {
	return wire.Errorf(wire.FeatureNotSupported, "%s is not supported here", clip(string(t))).
		With("op", clip(string(t))).With("feature", clip(string(t)))
}

// clip bounds what a peer's own text adds to an answer.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// start admits a call and runs it.
func (k *socket) start(c *Call) {
	c.ctx, c.cancel = context.WithCancelCause(k.ctx)
	c.done = make(chan struct{})
	c.recheck = func(p *grant.Policy) error { return k.permit(c.Type, p) }
	lane := ""
	if c.method.Lane != nil {
		lane = c.method.Lane(c)
	}
	k.mu.Lock()
	k.calls[c.ID] = c
	k.waiting++
	var before *Call
	if lane != "" {
		before = k.lanes[lane]
		k.lanes[lane] = c
	}
	k.mu.Unlock()
	k.begin(func() {
		result, err := k.run(c, before)
		k.answer(c, result, err)
		close(c.done)
		c.cancel(nil)
		k.leaveLane(lane, c)
	})
}

func (k *socket) leaveLane(lane string, c *Call) {
	if lane == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lanes[lane] == c {
		delete(k.lanes, lane)
	}
}

// run waits for the call's turn and calls its handler.
func (k *socket) run(c *Call, before *Call) (any, error) {
	turn := k.turn(c, before)
	k.mu.Lock()
	k.waiting--
	k.mu.Unlock()
	if turn != nil {
		return nil, turn
	}
	if k.kind == wire.Data {
		defer func() { <-k.shim.slots }()
	}
	result, err := k.handle(c)
	if err != nil && c.ctx.Err() != nil {
		// Why it was cancelled says more than that it was.
		if cause := context.Cause(c.ctx); wire.CodeOf(cause) != wire.InternalError {
			err = cause
		}
	}
	return result, err
}

// turn waits for the call before in its lane and, on data sockets, for one of
// the machine's slots, in this order: a slot held by a call that waits would be
// lost to those it waits for.
func (k *socket) turn(c *Call, before *Call) error {
	if before != nil {
		select {
		case <-before.done:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	if k.kind == wire.Data {
		select {
		case k.shim.slots <- struct{}{}:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	return nil
}

// handle calls the handler; a panic of it is the call's failure alone.
func (k *socket) handle(c *Call) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			k.shim.log.Error("handler panicked", append(k.attr(), "type", string(c.Type), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))...)
			err = wire.Errorf(wire.InternalError, "%s failed inside the daemon", c.Type).With("reason", "panic")
		}
	}()
	return c.method.Handle(c.ctx, c)
}

// answer sends the one terminal frame of a call. Its slot is free from the
// moment that the frame is being written.
func (k *socket) answer(c *Call, result any, err error) {
	k.mu.Lock()
	c.ended = true
	k.mu.Unlock()
	m := wire.Message{ID: c.ID, Version: k.version}
	if err == nil {
		method, _ := wire.MethodOf(c.Type)
		m.Type, m.Payload = method.Response, result
		if result == nil && m.Type == wire.TAck {
			m.Payload = wire.Ack{OK: true}
		}
	} else {
		m.Type, m.Payload = wire.TError, wire.AsError(err)
	}
	release := func(m *wire.Message) { k.release(c, m) }
	// The answer of a cancelled call is still owed.
	err = k.conn.SendStamped(k.ctx, c.class(), m, release)
	if errors.Is(err, link.ErrRefused) {
		m.Type, m.Payload = wire.TError, wire.Errorf(wire.InternalError, "the answer isn't allowed on this socket").With("reason", "answer_refused")
		err = k.conn.SendStamped(k.ctx, c.class(), m, release)
	}
	if err != nil {
		k.shim.log.Debug("answer not sent", append(k.attr(), "type", string(c.Type), "err", err)...)
	}
}

// release frees the call's slot and stamps the answer that is being written. If
// the socket was full, STATUS follows at once.
func (k *socket) release(c *Call, m *wire.Message) {
	k.mu.Lock()
	full := len(k.calls) >= k.limits.MaxConcurrent
	delete(k.calls, c.ID)
	capacity := k.capacity()
	k.mu.Unlock()
	m.PendingCapacity = &capacity
	if k.session != nil {
		k.session.touch()
	}
	if full {
		_ = k.status() // fails only if the socket does
	}
}

func (k *socket) outstanding(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.calls[id]
	return ok
}

// busy says whether requests are outstanding.
func (k *socket) busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.calls) > 0
}

func (k *socket) full() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.calls) >= k.limits.MaxConcurrent
}

// capacity is how many requests more the socket takes. Called with mu held.
func (k *socket) capacity() int { return max(0, k.limits.MaxConcurrent-len(k.calls)) }

// overloaded refuses a request because the socket is full.
func (k *socket) overloaded(e wire.Envelope) error {
	zero := 0
	return k.post(wire.Message{
		Type: wire.TError, ID: e.ID, Version: k.version, PendingCapacity: &zero,
		Payload: wire.Errorf(wire.ShimOverloaded, "%d requests are outstanding already", k.limits.MaxConcurrent).
			With("max_concurrent", k.limits.MaxConcurrent),
	}, nil)
}

// refuse answers a request that was not admitted.
func (k *socket) refuse(e wire.Envelope, err error) error {
	return k.post(wire.Message{Type: wire.TError, ID: e.ID, Version: k.version, Payload: wire.AsError(err)}, k.stamp)
}

// stamp puts the capacity of the moment into a message.
func (k *socket) stamp(m *wire.Message) {
	k.mu.Lock()
	capacity := k.capacity()
	k.mu.Unlock()
	m.PendingCapacity = &capacity
}

// status queues a STATUS with the numbers of the moment at which it is written.
func (k *socket) status() error {
	return k.post(wire.Message{Type: wire.TStatus, ID: uuid.NewString(), Version: k.version}, func(m *wire.Message) {
		k.mu.Lock()
		capacity := k.capacity()
		s := wire.Status{InFlight: len(k.calls), MaxConcurrent: k.limits.MaxConcurrent, QueueDepth: k.waiting}
		k.mu.Unlock()
		s.AuditLogBytes = k.shim.cfg.Audit.Size()
		s.UptimeSeconds = time.Since(k.opened).Seconds()
		if k.granted.Has(wire.AuditAnchor) {
			if head := k.shim.cfg.Audit.Head(); head.Seq > 0 {
				s.AuditAnchor = &head
			}
		}
		m.PendingCapacity, m.Payload = &capacity, s
	})
}

// post hands a small frame to the writer without waiting. A peer that lets a
// thousand of them pile up is cut off.
func (k *socket) post(m wire.Message, before func(*wire.Message)) error {
	err := k.conn.Post(link.Urgent, m, before)
	if errors.Is(err, link.ErrRefused) {
		return nil
	}
	return err
}

// tick sends STATUS, hands over to a newer token when nothing is lost by it, and
// closes the socket when ctx ends.
func (k *socket) tick(ctx context.Context, over <-chan struct{}) {
	status := time.NewTicker(wire.StatusInterval)
	defer status.Stop()
	renew := k.handover()
	defer renew.Stop()
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			k.leave(context.Cause(ctx))
			return
		case <-status.C:
			_ = k.status() // fails only if the socket does, and then read ends too
		case <-renew.C:
			if k.tryHandover(ctx) {
				return
			}
			renew.Reset(handoverRetry)
		}
	}
}

func (k *socket) drop(why string, t wire.Type) {
	k.shim.log.Warn("dropped a frame", append(k.attr(), "why", why, "type", clip(string(t)))...)
}

func (k *socket) attr() []any {
	if k.session != nil {
		return []any{"session", k.session.ID()}
	}
	return []any{"session", "control"}
}

// waitFor waits for wg, but not longer than d. False means that something of it
// still runs.
func waitFor(wg *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	select {
	case <-done:
		return true
	case <-deadline.C:
		return false
	}
}
