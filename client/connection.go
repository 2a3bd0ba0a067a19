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
	answer  chan wire.Envelope
	arrived func(*connection, wire.Envelope)
	chunk   func(wire.Envelope)
}

// dial opens the operator WebSocket.
func (c *Client) dial(ctx context.Context) (*connection, error) {
	url := "ws" + strings.TrimPrefix(c.base.String(), "http") + "/ws/operator"
	conn, err := link.Dial(ctx, url, link.DialOptions{
		Options: link.Options{Log: c.log}, Token: c.token, TLS: c.tls, UserAgent: c.agent, Timeout: dialTimeout,
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
			if w.chunk != nil && env.Type == wire.TLocalLLMCompletionChunk {
				w.chunk(env)
			}
			continue
		}
		if w.answer != nil {
			if w.arrived != nil {
				w.arrived(c, env)
			}
			w.answer <- env // room for one, and the id is gone now
		}
	}
}

// terminal says whether a frame ends a request: chunks of a completion and
// reports do not.
func terminal(t wire.Type) bool {
	switch t {
	case wire.TLocalLLMCompletionChunk, wire.TStatus, wire.THello, wire.THelloAck, wire.TSessionRevoked:
		return false
	}
	return true
}

// roundTrip sends a message and waits for the answer with its id.
func (c *connection) roundTrip(ctx context.Context, m wire.Message, limit time.Duration, w waiter) (wire.Envelope, error) {
	answer := make(chan wire.Envelope, 1)
	w.answer = answer
	c.mu.Lock()
	c.waiting[m.ID] = w
	c.mu.Unlock()
	var begun atomic.Bool // it has begun to leave
	c.send(ctx, m, &begun)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case env := <-answer:
		return env, nil
	case <-ctx.Done():
		return c.abandon(m.ID, answer, func() error { return ctx.Err() })
	case <-timer.C:
		return c.abandon(m.ID, answer, func() error { return errNoAnswer })
	case <-c.dead:
		return c.abandon(m.ID, answer, func() error { return &lostError{begun.Load(), c.err} })
	}
}

// abandon gives up waiting, unless the reader has the answer in its hands.
func (c *connection) abandon(id string, answer chan wire.Envelope, why func() error) (wire.Envelope, error) {
	c.mu.Lock()
	_, waits := c.waiting[id]
	delete(c.waiting, id)
	if waits {
		defer c.mu.Unlock()
		return wire.Envelope{}, why()
	}
	c.mu.Unlock()
	return <-answer, nil
}

// send has m sent. Bulk is sent by a goroutine of the connection, so that
// whoever gives up waiting doesn't wait for megabytes to leave first.
func (c *connection) send(ctx context.Context, m wire.Message, begun *atomic.Bool) {
	class := link.Answers
	_, bulk := m.Payload.(wire.Streamer)
	if bulk {
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
