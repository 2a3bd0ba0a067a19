package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"farhand/link"
	"farhand/wire"
)

// connection is one live WebSocket and who waits on it for an answer.
type connection struct {
	link  *link.Conn
	dead  chan struct{} // closed when the link is over
	tasks sync.WaitGroup

	streams *streams

	mu      sync.Mutex
	waiting map[string]waiter
	closing bool  // no new task
	err     error // why it is over
}

// waiter waits for an answer. The reader first calls arrived, if set, before it
// reads on: what belongs to the answer and comes after it then finds its place.
// Frames of a request that come before its answer go to chunk, if set.
type waiter struct {
	answer  chan arrival
	arrived func(*connection, wire.Envelope)
	chunk   func(wire.Envelope)
}

// arrival is an answer and the frame that it lies in.
type arrival struct {
	wire.Envelope
	frame []byte
}

// dial opens the operator WebSocket.
func (c *Client) dial(ctx context.Context) (*connection, error) {
	url := "ws" + strings.TrimPrefix(c.base.String(), "http") + "/ws/operator"
	conn, err := link.Dial(ctx, url, link.DialOptions{
		Options: link.Options{Log: c.log}, Token: c.token, TLS: c.tls, UserAgent: c.agent, Timeout: dialTimeout, NetDial: c.net,
	})
	var refused *link.DialError
	switch {
	case errors.As(err, &refused):
		return nil, c.refusal(refused.Status, []byte(refused.Body))
	case err != nil:
		return nil, c.linkFailure(ctx, err)
	}
	live := &connection{link: conn, dead: make(chan struct{}), streams: c.sock.streams, waiting: make(map[string]waiter)}
	live.tasks.Go(live.read)
	return live, nil
}

// dialTimeout bounds connecting: a person is waiting.
const dialTimeout = 15 * time.Second

func (c *connection) alive() bool {
	select {
	case <-c.dead:
		return false
	default:
		return true
	}
}

// close ends the connection and waits for its goroutines. Idempotent.
func (c *connection) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.link.Close(1000, "")
	c.tasks.Wait()
}

// read hands every answer to its waiter, drops what nobody waits for, and ends
// with the link.
func (c *connection) read() {
	for {
		frame, err := c.link.Read()
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			close(c.dead)
			return
		}
		env, err := wire.DecodeEnvelope(frame)
		if err != nil {
			continue
		}
		if env.Type == wire.TStreamData {
			c.streams.take(env)
			continue
		}
		c.mu.Lock()
		w := c.waiting[env.ID]
		if terminal(env.Type) {
			delete(c.waiting, env.ID)
		}
		c.mu.Unlock()
		if !terminal(env.Type) {
			if w.chunk != nil && env.Type.IsChunk() {
				w.chunk(env)
			}
			continue
		}
		if w.answer != nil {
			if w.arrived != nil {
				w.arrived(c, env)
			}
			w.answer <- arrival{env, frame} // room for one, and the id is gone now
		}
	}
}

// terminal says whether a frame ends a request: chunks of a completion and
// reports do not.
func terminal(t wire.Type) bool {
	if t.IsChunk() {
		return false
	}
	switch t {
	case wire.TStatus, wire.THello, wire.THelloAck, wire.TSessionRevoked:
		return false
	}
	return true
}

// pending is a request that was sent, or has begun to be.
type pending struct {
	conn   *connection
	id     string
	cancel wire.Message // what gives it up
	limit  time.Duration
	answer chan arrival
	begun  *atomic.Bool // it has begun to leave
}

// begin sends a message. Its answer comes by wait, which must be called.
func (c *connection) begin(ctx context.Context, m wire.Message, limit time.Duration, w waiter) *pending {
	p := &pending{conn: c, id: m.ID, limit: limit, answer: make(chan arrival, 1), begun: new(atomic.Bool)}
	p.cancel = wire.Message{Type: wire.TCancel, ID: m.ID, SessionID: m.SessionID, TargetMachine: m.TargetMachine, Payload: wire.Empty{}}
	w.answer = p.answer
	c.mu.Lock()
	c.waiting[m.ID] = w
	c.mu.Unlock()
	c.send(ctx, m, p.begun)
	return p
}

// wait waits for the answer.
func (p *pending) wait(ctx context.Context) (arrival, error) {
	c := p.conn
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	select {
	case a := <-p.answer:
		return a, nil
	case <-ctx.Done():
		a, err := p.abandon(func() error { return ctx.Err() })
		if err != nil && p.cancel.SessionID != "" {
			// It ends on the device, too, as far as it can be interrupted there. What
			// doesn't arrive costs nothing but that.
			_ = c.link.Post(link.Urgent, p.cancel, nil)
		}
		return a, err
	case <-timer.C:
		return p.abandon(func() error { return errNoAnswer })
	case <-p.conn.dead:
		return p.abandon(func() error { return &lostError{p.begun.Load(), p.conn.err} })
	}
}

// abandon gives up waiting, unless the reader has the answer in its hands.
func (p *pending) abandon(why func() error) (arrival, error) {
	c := p.conn
	c.mu.Lock()
	_, waits := c.waiting[p.id]
	delete(c.waiting, p.id)
	if waits {
		defer c.mu.Unlock()
		return arrival{}, why()
	}
	c.mu.Unlock()
	return <-p.answer, nil
}

// send has m sent. Bulk is sent by a goroutine of the connection, so that
// whoever gives up waiting doesn't wait for megabytes to leave first. What is
// attached to a message isn't that much, and leaves in the order of the calls.
func (c *connection) send(ctx context.Context, m wire.Message, begun *atomic.Bool) {
	class := link.Answers
	_, bulk := m.Payload.(wire.Streamer)
	if _, attached := m.Payload.(*wire.Attached); bulk || attached {
		class = link.Transfers
	}
	write := func() {
		// An error is the end of the link, which the reader tells, or of ctx.
		c.link.SendStamped(ctx, class, m, func(*wire.Message) { begun.Store(true) })
	}
	if !bulk {
		write()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing { // else the waiter learns of the end by dead
		c.tasks.Go(write)
	}
}

// counted tells how much of a payload has left.
type counted struct {
	wire.Streamer
	tell func(n int)
}

// WriteJSON implements wire.Streamer.
func (c counted) WriteJSON(w io.Writer) error { return c.Streamer.WriteJSON(teller{w, c.tell}) }

type teller struct {
	w    io.Writer
	tell func(n int)
}

func (t teller) Write(b []byte) (int, error) {
	n, err := t.w.Write(b)
	t.tell(n)
	return n, err
}
