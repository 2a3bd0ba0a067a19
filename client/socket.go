package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"farhand/wire"
)

// socket is the one WebSocket of a Client, whether it is up or not: it dials
// with the first request and again when the link was lost.
type socket struct {
	dial func(context.Context) (*connection, error)
	log  *slog.Logger

	prefix string // makes ids unique among all operators that share a session
	next   atomic.Uint64
	slots  chan struct{} // one for each request under way

	streams *streams

	ctx    context.Context // ends with close
	cancel context.CancelFunc

	mu      sync.Mutex
	live    *connection
	dialing *dialing
	everUp  bool
	closed  bool
}

// dialing is a dial under way, which every request in need waits for.
type dialing struct {
	done chan struct{}
	conn *connection
	err  error
}

// maxOutstanding is below the relay's own limit of 256 on one operator socket.
const maxOutstanding = 200

// backstop is how much longer than the relay's own deadline a request waits: the
// relay may queue it 30 s for a full device, repeat it once after 30 s without
// an answer, and wait 30 s for a link that was lost.
const backstop = 100 * time.Second

func newSocket(dial func(context.Context) (*connection, error), log *slog.Logger) *socket {
	var random [8]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	ctx, cancel := context.WithCancel(context.Background())
	return &socket{
		dial: dial, log: log, ctx: ctx, cancel: cancel,
		prefix: "op-" + hex.EncodeToString(random[:]) + "-",
		slots:  make(chan struct{}, maxOutstanding), streams: newStreams(),
	}
}

// request is one request before it has an id.
type request struct {
	method  wire.Method
	session string // session_id, or
	machine string // target_machine
	payload any
	timeout time.Duration // the relay's deadline for it
	sending func(n int)   // told of payload bytes as they leave; may be nil
	// arrived is called by the reader with an answer of the right type before it
	// reads on; may be nil. It must not wait.
	arrived func(*connection, []byte)
	// chunk is called by the reader with every frame before the answer; may be
	// nil. It must not wait. The backstop counts for all of them together.
	chunk func([]byte)
}

// do sends r and waits for its answer, whose payload is returned. It repeats r
// once over a new link if the old one was lost and r can't have happened or may
// happen twice.
func (s *socket) do(ctx context.Context, r request) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	for attempt := 0; ; attempt++ {
		payload, err := s.once(ctx, r)
		var lost *lostError
		if !errors.As(err, &lost) {
			return payload, err
		}
		if lost.sent && !r.method.Repeatable {
			return nil, wire.Errorf(wire.OpUnconfirmed,
				"the link to the relay was lost after %s had been sent: it may have happened, check before repeating it", r.method.Request).
				With("op", string(r.method.Request))
		}
		if attempt > 0 {
			return nil, &linkError{RelayUnreachable, "the link to the relay was lost twice", lost.err}
		}
	}
}

// enter waits for a request's slot; leave gives it back.
func (s *socket) enter(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *socket) leave() { <-s.slots }

// newID makes an id that no other operator's request has.
func (s *socket) newID() string { return s.prefix + strconv.FormatUint(s.next.Add(1), 10) }

func (s *socket) once(ctx context.Context, r request) ([]byte, error) {
	p, err := s.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	a, err := p.wait(ctx)
	if err != nil {
		return nil, unanswered(err, r.method)
	}
	return payloadOf(a.Envelope, r.method)
}

// begin sends r once. The answer comes by the pending one's wait.
func (s *socket) begin(ctx context.Context, r request) (*pending, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	m := wire.Message{
		Type: r.method.Request, ID: s.newID(),
		SessionID: r.session, TargetMachine: r.machine, Payload: r.payload,
	}
	if bulk, ok := r.payload.(wire.Streamer); ok {
		if n := bulk.JSONSize(); n > wire.MaxFrame-envelopeRoom {
			return nil, wire.Errorf(wire.FileTooLarge, "%s of %d bytes does not fit one frame", r.method.Request, n).
				With("op", string(r.method.Request)).With("max_file_size_bytes", wire.MaxBinary)
		}
		if r.sending != nil {
			m.Payload = counted{bulk, r.sending}
		}
	}
	var w waiter
	if r.chunk != nil {
		w.chunk = func(env wire.Envelope) { r.chunk(env.Payload) }
	}
	if r.arrived != nil {
		w.arrived = func(c *connection, env wire.Envelope) {
			if env.Type == r.method.Response {
				r.arrived(c, env.Payload)
			}
		}
	}
	return conn.begin(ctx, m, r.timeout+backstop, w), nil
}

// unanswered says what it means that no answer came.
func unanswered(err error, m wire.Method) error {
	if !errors.Is(err, errNoAnswer) {
		return err
	}
	code := wire.OpUnconfirmed
	if m.Repeatable {
		code = wire.RequestTimeout
	}
	return wire.Errorf(code, "%s got no answer from the relay", m.Request).With("op", string(m.Request))
}

// envelopeRoom is more than any envelope around a payload takes: its two longest
// strings have 256 bytes, escaped at worst six times as long.
const envelopeRoom = 4 << 10

// payloadOf checks that the answer is one to this method.
func payloadOf(env wire.Envelope, m wire.Method) ([]byte, error) {
	switch env.Type {
	case wire.TError:
		e := new(wire.Error)
		if err := wire.Decode(env.Payload, e); err != nil || e.Code == "" {
			return nil, wire.Errorf(wire.InternalError, "%s failed, and its error can't be read", m.Request)
		}
		return nil, e
	case wire.TAck:
		var ack wire.Ack
		if err := wire.Decode(env.Payload, &ack); err != nil || (m.Response == wire.TAck && !ack.OK) {
			return nil, wire.Errorf(wire.InternalError, "%s was not done", m.Request)
		}
	}
	if env.Type != m.Response {
		return nil, wire.Errorf(wire.InternalError, "%s was answered with %.64q", m.Request, env.Type)
	}
	return env.Payload, nil
}

// connect returns the live connection, dialling if there is none. Requests that
// come together share one dial; a request that gives up leaves it to the others.
func (s *socket) connect(ctx context.Context) (*connection, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	if s.live != nil && s.live.alive() {
		defer s.mu.Unlock()
		return s.live, nil
	}
	d := s.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		s.dialing = d
		go s.run(d, s.live, s.everUp)
	}
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run makes one connection for all that wait on d. Its end is awaited through
// d.done by close.
func (s *socket) run(d *dialing, old *connection, again bool) {
	if old != nil {
		old.close()
	}
	conn, err := s.redial(again)
	s.mu.Lock()
	if err == nil && s.closed {
		err = errClosed
	}
	if err == nil {
		s.live, s.everUp = conn, true
	}
	s.dialing = nil
	s.mu.Unlock()
	if err != nil && conn != nil {
		conn.close()
	}
	d.conn, d.err = conn, err
	close(d.done)
}

// redialDelays are the pauses between attempts after a lost link, long enough
// for a relay that restarts (about 10 s in all). The first dial of a Client has
// one attempt: a wrong address should be told at once.
var redialDelays = [...]time.Duration{100 * time.Millisecond, 400 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second}

func (s *socket) redial(again bool) (*connection, error) {
	for attempt := 0; ; attempt++ {
		conn, err := s.dial(s.ctx)
		if err == nil || !again || attempt == len(redialDelays) || !relayAway(err) {
			return conn, err
		}
		s.log.Debug("relay link: dialling again", "attempt", attempt+1, "error", err)
		select {
		case <-time.After(redialDelays[attempt]):
		case <-s.ctx.Done():
			return nil, errClosed
		}
	}
}

// close ends the connection or the dial under way and waits for its goroutines.
func (s *socket) close() {
	s.mu.Lock()
	s.closed = true
	live, d := s.live, s.dialing
	s.mu.Unlock()
	s.cancel()
	s.streams.close()
	if d != nil {
		<-d.done
	}
	if live != nil {
		live.close()
	}
}

var (
	errClosed   = errors.New("client is closed")
	errNoAnswer = errors.New("no answer")
)

// lostError says that the link ended before the answer came.
type lostError struct {
	sent bool // the request had begun to leave
	err  error
}

func (e *lostError) Error() string { return fmt.Sprintf("link to the relay lost: %v", e.err) }
func (e *lostError) Unwrap() error { return e.err }
