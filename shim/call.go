package shim

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"farhand/grant"
	"farhand/link"
	"farhand/wire"
)

// takeOneWay takes a message that is never answered, not even if it is refused.
func (k *socket) takeOneWay(e wire.Envelope) {
	method, ok := k.table[e.Type]
	if !ok || k.permit(e.Type, k.policy.Load()) != nil {
		k.drop("not granted here", e.Type)
		return
	}
	c := &Call{ID: e.ID, Type: e.Type, Payload: e.Payload, Session: k.session, socket: k, method: method, ctx: k.ctx}
	if _, err := k.handle(c); err != nil {
		k.drop("can't be read", e.Type)
	}
}

// cancelCall ends the request that has the id, if it still runs: its sender no
// longer wants it. It is answered all the same.
func (k *socket) cancelCall(e wire.Envelope) {
	if k.permit(e.Type, k.policy.Load()) != nil {
		k.drop("not granted here", e.Type)
		return
	}
	k.mu.Lock()
	c := k.calls[e.ID]
	k.mu.Unlock()
	if c != nil {
		c.cancel(wire.Errorf(wire.Cancelled, "%s was cancelled by who asked for it", c.Type).With("op", string(c.Type)))
	}
}

// start admits a call and runs it.
func (k *socket) start(c *Call, r *reader) {
	c.began = time.Now()
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
	work := func() {
		result, err := k.run(c, before)
		if c.frame != nil {
			k.conn.Reuse(c.frame)
			c.frame, c.Data, c.Payload = nil, nil, nil
		}
		k.answer(c, result, err)
		if before != nil { // which goes on if this call gave up waiting
			select {
			case <-before.done:
			case <-k.ctx.Done():
			}
		}
		close(c.done)
		c.cancel(nil)
		k.leaveLane(lane, c)
	}
	if c.method.Quick {
		k.beginHere(r, work)
	} else {
		k.begin(work)
	}
}

// cut is why a call's context has ended: because of what befell it, or because
// the socket, its session or the daemon goes.
func (c *Call) cut() error {
	if cause := context.Cause(c.ctx); wire.CodeOf(cause) != wire.InternalError {
		return cause
	}
	return errStopping
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
		cause := c.cut()
		if wire.CodeOf(cause) != wire.InternalError || errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(c.ctx)) {
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
		if err := c.follow(before); err != nil {
			return err
		}
	}
	if k.kind == wire.Data {
		select {
		case k.shim.slots <- struct{}{}:
			return nil
		default: // Done makes a channel
		}
		select {
		case k.shim.slots <- struct{}{}:
		case <-c.ctx.Done():
			return c.cut()
		}
	}
	return nil
}

// laneWait is how long a call waits for those before it in its lane. What it
// asks for isn't begun when little is left of the time that anybody waits for the
// answer.
const laneWait = wire.PlatformTimeout - 10*time.Second

// follow waits for the end of the call before.
func (c *Call) follow(before *Call) error {
	select {
	case <-before.done:
		return nil
	default: // most don't wait
	}
	late := time.NewTimer(laneWait)
	defer late.Stop()
	select {
	case <-before.done:
		return nil
	case <-late.C:
		return wire.Errorf(wire.HardwareBusy, "not begun: what was asked of it before still goes on after %v", laneWait).
			With("reason", "queue").With("hint", "ask again when that has ended")
	case <-c.ctx.Done():
		return c.cut()
	}
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
	k.shim.cfg.Answered(c.Type, wire.CodeOf(err), time.Since(c.began))
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
		return
	}
	if c.after != nil {
		c.after()
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
	return k.reply(wire.Message{
		Type: wire.TError, ID: e.ID, Version: k.version, PendingCapacity: &zero,
		Payload: wire.Errorf(wire.ShimOverloaded, "%d requests are outstanding already", k.limits.MaxConcurrent).
			With("max_concurrent", k.limits.MaxConcurrent),
	}, nil)
}

// refuse answers a request that was not admitted.
func (k *socket) refuse(e wire.Envelope, err error) error {
	return k.reply(wire.Message{Type: wire.TError, ID: e.ID, Version: k.version, Payload: wire.AsError(err)}, k.stamp)
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
		if k.session == nil && k.granted.Has(wire.MachineFactsCapability) {
			s.Facts = k.shim.cfg.Facts()
		}
		m.PendingCapacity, m.Payload = &capacity, s
	})
}

// post hands a small frame to the writer without waiting, and gives up if a
// thousand wait already.
func (k *socket) post(m wire.Message, before func(*wire.Message)) error {
	return allowRefused(k.conn.Post(link.Urgent, m, before))
}

// reply is post for the reader, which waits for room: a platform that sends
// thousands of requests at once gets its thousands of answers, as fast as it
// reads them.
func (k *socket) reply(m wire.Message, before func(*wire.Message)) error {
	return allowRefused(k.conn.PostWait(link.Urgent, m, before))
}

func allowRefused(err error) error {
	if errors.Is(err, link.ErrRefused) {
		return nil
	}
	return err
}
