package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"farhand/wire"
)

// connection is one live WebSocket: a goroutine that reads and hands answers to
// whoever waits for their id, and one that writes.
type connection struct {
	ws    *websocket.Conn
	queue chan wire.Frame // unbuffered: what was taken has begun to leave
	dead  chan struct{}   // closed when the link is over
	tasks sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]chan wire.Envelope
	err     error // why it is over
}

const (
	// pingEvery and silence: the relay pings every 20 s and counts every byte as
	// life; a link that is silent for two of its pings and some is gone.
	pingEvery = 20 * time.Second
	silence   = 50 * time.Second
	// writeStall bounds the time in which one socket buffer must leave.
	writeStall = 30 * time.Second
	// socketBuffer is the size of one fragment; pings go between fragments.
	socketBuffer = 64 << 10
	// readLimit leaves room for what the relay adds to a device's envelope.
	readLimit = wire.MaxFrame + 64<<10
)

// dial opens the operator WebSocket.
func (c *Client) dial(ctx context.Context) (*connection, error) {
	dialer := websocket.Dialer{
		Proxy:            http.ProxyFromEnvironment,
		TLSClientConfig:  c.tls,
		HandshakeTimeout: 15 * time.Second,
		ReadBufferSize:   32 << 10,
		WriteBufferSize:  socketBuffer,
	}
	header := http.Header{}
	c.sign(header)
	url := "ws" + strings.TrimPrefix(c.base.String(), "http") + "/ws/operator"
	ws, resp, err := dialer.DialContext(ctx, url, header)
	if err != nil {
		if resp != nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
			if resp.StatusCode != http.StatusSwitchingProtocols {
				return nil, c.refusal(resp.StatusCode, body)
			}
		}
		return nil, c.linkFailure(ctx, err)
	}
	return start(ws), nil
}

func start(ws *websocket.Conn) *connection {
	c := &connection{
		ws: ws, queue: make(chan wire.Frame), dead: make(chan struct{}),
		waiting: make(map[string]chan wire.Envelope),
	}
	ws.SetReadLimit(readLimit)
	ws.SetPingHandler(func(data string) error {
		c.heard()
		err := ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeStall))
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err
	})
	ws.SetPongHandler(func(string) error { c.heard(); return nil })
	c.tasks.Go(func() { c.fail(c.read()) })
	c.tasks.Go(func() { c.fail(c.write()) })
	return c
}

func (c *connection) heard() { c.ws.SetReadDeadline(time.Now().Add(silence)) }

func (c *connection) alive() bool {
	select {
	case <-c.dead:
		return false
	default:
		return true
	}
}

// fail ends the connection with its first cause.
func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.dead)
		c.ws.Close()
	}
}

// close ends the connection and waits for its goroutines. Idempotent.
func (c *connection) close() {
	c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	c.fail(errClosed)
	c.tasks.Wait()
}

// roundTrip sends a frame and waits for the answer with its id.
func (c *connection) roundTrip(ctx context.Context, id string, frame wire.Frame, limit time.Duration) (wire.Envelope, error) {
	answer := make(chan wire.Envelope, 1)
	c.mu.Lock()
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()

	select {
	case c.queue <- frame:
	case <-c.dead:
		return wire.Envelope{}, &lostError{false, c.cause()}
	case <-ctx.Done():
		return wire.Envelope{}, ctx.Err()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case env := <-answer:
		return env, nil
	case <-ctx.Done():
		return wire.Envelope{}, ctx.Err()
	case <-timer.C:
		return wire.Envelope{}, errNoAnswer
	case <-c.dead:
	}
	select {
	case env := <-answer: // it came just before the end
		return env, nil
	default:
		return wire.Envelope{}, &lostError{true, c.cause()}
	}
}

func (c *connection) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// read hands every answer to its waiter and drops what nobody waits for.
func (c *connection) read() error {
	for {
		c.heard()
		frame, err := c.message()
		if err != nil {
			return err
		}
		env, err := wire.DecodeEnvelope(frame)
		if err != nil || !terminal(env.Type) {
			continue
		}
		c.mu.Lock()
		answer := c.waiting[env.ID]
		delete(c.waiting, env.ID)
		c.mu.Unlock()
		if answer != nil {
			answer <- env // room for one, and the id is gone now
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

// message reads one message. Every piece that arrives counts as life, so a big
// frame on a slow link isn't taken for silence.
func (c *connection) message() ([]byte, error) {
	_, r, err := c.ws.NextReader()
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 2048)
	for {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, 4*cap(b)), b...)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
		c.heard()
	}
}

// write sends frames one after another and pings in between.
func (c *connection) write() error {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case frame := <-c.queue:
			if err := c.send(frame); err != nil {
				return err
			}
		case <-ticker.C:
			if err := c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeStall)); err != nil {
				return err
			}
		case <-c.dead:
			return errClosed
		}
	}
}

func (c *connection) send(frame wire.Frame) error {
	w, err := c.ws.NextWriter(websocket.TextMessage)
	if err != nil {
		return err
	}
	patient := &patientWriter{conn: c, w: w}
	c.ws.SetWriteDeadline(time.Now().Add(writeStall))
	if err := frame.WriteFrame(patient); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return w.Close()
}

// patientWriter gives each piece its own time and lets our pings through during
// a long frame.
type patientWriter struct {
	conn   *connection
	w      io.Writer
	pinged time.Time
}

func (p *patientWriter) Write(b []byte) (int, error) {
	now := time.Now()
	p.conn.ws.SetWriteDeadline(now.Add(writeStall))
	if p.pinged.IsZero() {
		p.pinged = now
	}
	if now.Sub(p.pinged) > pingEvery {
		p.pinged = now
		if err := p.conn.ws.WriteControl(websocket.PingMessage, nil, now.Add(writeStall)); err != nil {
			return 0, err
		}
	}
	return p.w.Write(b)
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
