package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"farhand/wire"
)

// Conn is one WebSocket. All methods are safe for concurrent use; Read serves
// one caller at a time.
type Conn struct {
	ws      *websocket.Conn
	tap     *tap
	opt     Options
	granted atomic.Pointer[wire.Capabilities] // nil: not a device's socket

	readMu  sync.Mutex
	small   [1 << 10]byte // most messages fit; guarded by readMu
	spares  spares
	closing atomic.Bool // Close has begun: what arrives is thrown away

	mu      sync.Mutex
	queues  [classes]queue
	control [2]*[]byte    // a ping and a pong that wait for the writer
	writing bool          // somebody owns the write side
	stopped error         // why nothing more is taken, nil while open
	cause   error         // why the socket ended, as Read tells it
	broken  error         // what a write failed with
	changed chan struct{} // closed when room or idleness may have come
	timer   *time.Timer
	probe   *time.Timer
	pinged  time.Time

	muted  atomic.Bool    // what is queued or half written stays unsent
	work   sync.WaitGroup // drain goroutines and timer callbacks
	closed chan struct{}  // closed when Close is over
}

func newConn(ws *websocket.Conn, under *tap, o Options) *Conn {
	c := &Conn{ws: ws, tap: under, opt: o, closed: make(chan struct{})}
	ws.SetReadLimit(wire.MaxFrame)
	ws.SetPingHandler(func(data string) error {
		pong := []byte(data)
		c.sendControl(pongSlot, &pong)
		return nil
	})
	c.mu.Lock() // the timer may fire before it is stored
	defer c.mu.Unlock()
	c.pinged = time.Now()
	c.timer = time.AfterFunc(min(o.PingEvery, o.DeadAfter), c.tick)
	return c
}

// SetGranted is what a device's socket may use from now on.
func (c *Conn) SetGranted(granted wire.Capabilities) {
	own := append(wire.Capabilities(nil), granted...)
	c.granted.Store(&own)
}

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.ws.RemoteAddr() }

// SetReadDeadline bounds a Read (handshakes). A Read that ran into it leaves
// the Conn fit for Close alone.
func (c *Conn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return c.stopped // the deadline is that of the end
	}
	return c.ws.SetReadDeadline(at)
}

// Read returns the next message, text or binary alike, in memory of its own, which
// Reuse takes back. It fails with a *CloseError if the peer closed the socket, with
// ErrSilent, ErrTooBig or ErrClosed, or with the error of the network.
func (c *Conn) Read() ([]byte, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for {
		_, r, err := c.ws.NextReader()
		if err != nil {
			return nil, c.readFailed(err)
		}
		message, err := c.readAll(r)
		if err != nil {
			return nil, c.readFailed(err)
		}
		if !c.closing.Load() {
			return message, nil
		}
	}
}

// readAll collects a message in chunks, since its length isn't known before its
// end, and then puts them together in memory of just that length.
func (c *Conn) readAll(r io.Reader) ([]byte, error) {
	var full [][]byte
	chunk, n, total := c.small[:], 0, 0
	for {
		k, err := r.Read(chunk[n:])
		n += k
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if n < len(chunk) {
			continue
		}
		if total == 0 {
			if spare := c.spares.take(); spare != nil {
				n, err = fill(r, spare, copy(spare, chunk))
				if err == nil {
					return spare[:n], nil
				}
				if err != errFilled {
					return nil, err
				}
				chunk = spare
			}
		}
		full, total = append(full, chunk), total+n
		chunk, n = make([]byte, min(max(2*total, firstChunk), largestChunk)), 0
	}
	message := make([]byte, 0, spareSize(total+n))
	for _, f := range full {
		message = append(message, f...)
	}
	return append(message, chunk[:n]...), nil
}

const (
	firstChunk   = 8 << 10
	largestChunk = 1 << 20
)

// readFailed ends the socket and says why.
func (c *Conn) readFailed(err error) error {
	var closed *websocket.CloseError
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	switch {
	case errors.As(err, &closed) && (broken == nil || closed.Code != websocket.CloseAbnormalClosure):
		err = &CloseError{Code: closed.Code, Reason: closed.Text}
	case broken != nil:
		err = broken
	case errors.Is(err, websocket.ErrReadLimit):
		err = ErrTooBig
	case errors.Is(err, net.ErrClosed):
		err = ErrClosed
	default:
		err = fmt.Errorf("read: %w", err)
	}
	return c.fail(err)
}

// fail ends the socket at once and returns the first cause of its end.
func (c *Conn) fail(err error) error {
	c.muted.Store(true)
	c.mu.Lock()
	if c.cause == nil {
		c.cause = err
	}
	err = c.cause
	c.stop(ErrClosed)
	c.dropQueued()
	c.mu.Unlock()
	c.tap.Close()
	return err
}

// failWrite ends the sending side. Why the socket ended is for the reader to
// find out: when the peer has closed it, writes fail before its close frame has
// been read, and the code in there is what counts. The reader gets lingerWait
// for that.
func (c *Conn) failWrite(err error) error {
	c.muted.Store(true)
	c.mu.Lock()
	if c.broken == nil {
		c.broken = err
		c.ws.SetReadDeadline(time.Now().Add(lingerWait))
	}
	c.stop(ErrClosed)
	c.dropQueued()
	c.mu.Unlock()
	return err
}

// stop makes Send and Post refuse from now on. Called with mu held.
func (c *Conn) stop(err error) {
	if c.stopped == nil {
		c.stopped = err
	}
	c.timer.Stop()
	if c.probe != nil {
		c.probe.Stop()
	}
	c.signal()
}

// Mute throws away what is queued and lets nothing more out but the close
// frame: after SESSION_REVOKED nothing may follow.
func (c *Conn) Mute() {
	c.muted.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop(ErrClosed)
	c.dropQueued()
}

// Abort ends the socket at once without a close frame; Read fails with err.
func (c *Conn) Abort(err error) { c.fail(err) }

// Close sends what is queued, then a close frame with code and reason (cut to
// 123 bytes), waits for the peer's, and frees everything, all within 2.5 s. It
// may be called by any goroutine and any number of times; the first one counts
// and the others wait for it. It returns nothing, since there is nothing that
// the caller could do.
func (c *Conn) Close(code int, reason string) {
	if c.closing.Swap(true) {
		<-c.closed
		return
	}
	defer close(c.closed)
	c.mu.Lock()
	failed := c.cause != nil || c.broken != nil
	c.stop(ErrClosed)
	c.mu.Unlock()
	if !failed {
		c.flush(flushWait)
		c.muted.Store(true)
		frame := websocket.FormatCloseMessage(code, cut(reason))
		if err := c.ws.WriteControl(websocket.CloseMessage, frame, time.Now().Add(closeWait)); err == nil {
			c.linger()
		}
	}
	c.fail(ErrClosed)
	c.awaitReader()
	c.work.Wait()
}

// awaitReader returns when whoever was reading has seen the end.
func (c *Conn) awaitReader() {
	c.readMu.Lock()
	defer c.readMu.Unlock()
}

// flush waits until nothing is queued and nobody writes.
func (c *Conn) flush(wait time.Duration) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.cause == nil && c.broken == nil && (c.writing || c.queued()) {
		changed := c.awaitChange()
		c.mu.Unlock()
		select {
		case <-changed:
			c.mu.Lock()
		case <-deadline.C:
			c.mu.Lock()
			return
		}
	}
}

// linger reads on until the peer's close frame or its end: closing at once with
// unread data would reset the connection and lose our own close frame. A reader
// that is at work does it for us.
func (c *Conn) linger() {
	c.ws.SetReadDeadline(time.Now().Add(lingerWait))
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for {
		_, r, err := c.ws.NextReader()
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return
		}
	}
}

// cut shortens a reason to what a close frame takes, at a character's edge.
func cut(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	reason = reason[:maxReason]
	for len(reason) > 0 {
		if r, size := utf8.DecodeLastRuneInString(reason); r != utf8.RuneError || size != 1 {
			break
		}
		reason = reason[:len(reason)-1]
	}
	return reason
}
