package route

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"

	"farhand/wire"
)

const (
	// fragment is how much of a message goes out in one WebSocket frame, so
	// that pings and pongs get through in between (DESIGN, the writer).
	fragment = 64 << 10
	// smallFrame is up to where a message is copied into one piece and written
	// by one call rather than streamed.
	smallFrame = 4 << 10
	// maxReason is what a close frame leaves for text (RFC 6455, 5.5).
	maxReason = 123
)

var (
	errTooBig = errors.New("frame larger than allowed")
	errClosed = errors.New("socket closed")
	errBehind = errors.New("too much waiting of what may be lost")
	// errCutShort: closing began in the middle of a long message. A close frame
	// may stand between fragments, a further message may not.
	errCutShort = errors.New("message cut short by closing")
)

// outFrame is one message to be written: head, body, tail in that order. buf is
// what body lies in and is released after the last byte. req, if set, is marked
// as sent before the first one.
type outFrame struct {
	head []byte
	body []byte
	tail []byte
	buf  *frameBuf
	req  *request
	// binary frames have data attached, as body.
	binary bool
	// most, if set, makes the frame one that may be lost: it is refused where
	// more bytes than that of its kind wait already.
	most int
}

func (f *outFrame) size() int { return len(f.head) + len(f.body) + len(f.tail) }

// socket is one WebSocket of a device or an operator. One goroutine reads; a
// writer goroutine exists while there is something to write. Safe for
// concurrent use, but for read.
type socket struct {
	ws   *websocket.Conn
	srv  *Server
	born time.Time
	// expires, if set, is when the token of this socket ends, and the socket
	// with it (4401). Set before the socket is tracked.
	expires time.Time
	// owner and family say whose token a device's socket has, so that it can be
	// revoked from the upgrade on. Set before the socket is tracked.
	owner, family string
	peer          string // in the metrics; empty: not counted there

	lastRead atomic.Int64 // unix nanoseconds of the last received byte
	lastPing int64        // of the sweeper alone

	// drained, if set, is called without locks when the queue fell below
	// bounds.low after it had been above bounds.high.
	drained func()
	// caughtUp, if set, is called without locks when the frames that may be lost
	// became few again after one had been refused.
	caughtUp func()

	inline *inline // nil where it can't be done

	mu        sync.Mutex
	queue     []outFrame
	rest      []byte // what is left of a frame that was written in part
	bytes     int    // of the frames in queue and of the one being written
	loose     int    // of them, those of frames that may be lost
	behind    bool   // one of these was refused
	limit     int    // bytes that the queue may hold beside one frame
	writing   bool
	high      bool
	pong      []byte
	pongDue   bool
	pingDue   bool
	closing   bool
	gently    bool // closing, but what waits is written first
	closeSent bool
	closedAt  time.Time // when closing began
	code      int
	reason    string
	idle      chan struct{} // closed when the writer ends, if somebody waits for that
}

// newSocket takes over ws. limit bounds the bytes waiting to be written.
func (s *Server) newSocket(ws *websocket.Conn, limit int) *socket {
	now := time.Now()
	k := &socket{ws: ws, srv: s, born: now, limit: limit, inline: newInline(ws.NetConn())}
	k.lastRead.Store(now.UnixNano())
	k.lastPing = now.UnixNano()
	ws.SetPingHandler(func(data string) error { k.answerPing(data); return nil })
	ws.SetPongHandler(func(string) error { k.touch(); return nil })
	ws.SetCloseHandler(func(int, string) error { return nil }) // read sees it and closes
	return k
}

// read returns the next message of at most limit bytes. Text and binary are
// treated alike.
func (k *socket) read(limit int) (*frameBuf, error) {
	_, r, err := k.ws.NextReader()
	if err != nil {
		return nil, err
	}
	k.touch()
	pool := &k.srv.buffers
	buf, n := pool.get(0), 0
	for {
		m, err := r.Read(buf.b[n:])
		if m > 0 {
			n += m
			k.touch()
		}
		if n > limit {
			pool.release(buf)
			return nil, errTooBig
		}
		if err == io.EOF {
			if k.peer != "" {
				k.srv.metrics.Received(k.peer, n)
			}
			return pool.fit(buf, n), nil
		}
		if err != nil {
			pool.release(buf)
			return nil, err
		}
		if n == len(buf.b) {
			if buf = pool.grow(buf, n); buf == nil {
				return nil, errTooBig
			}
		}
	}
}

func (k *socket) touch() { k.lastRead.Store(time.Now().UnixNano()) }

// send queues f. It fails without waiting if the socket is closing or the queue
// is full; f's buffer is then still the caller's.
func (k *socket) send(f outFrame) error {
	k.mu.Lock()
	if k.closing {
		k.mu.Unlock()
		return errClosed
	}
	if f.most > 0 && k.loose > 0 && k.loose+f.size() > f.most {
		k.behind = true
		k.mu.Unlock()
		return errBehind
	}
	if waiting := k.bytes - k.loose; f.most == 0 && waiting > 0 && waiting+f.size() > k.limit {
		k.mu.Unlock()
		return fmt.Errorf("%d bytes waiting to be written: %w", k.bytes, errTooBig)
	}
	if k.peer != "" {
		k.srv.metrics.Sent(k.peer, f.size())
	}
	if !k.writing && f.size() <= smallFrame && k.inline != nil {
		k.writing = true
		k.mu.Unlock()
		k.sendNow(f)
		return nil
	}
	k.bytes += f.size()
	if f.most > 0 {
		k.loose += f.size()
	}
	k.high = k.high || k.bytes > k.srv.bounds.high
	k.queue = append(k.queue, f)
	k.kick()
	k.mu.Unlock()
	return nil
}

// sendNow writes a small frame, as far as that goes without waiting, in place of
// the writer, and leaves what is left to it. Nothing else is being written.
func (k *socket) sendNow(f outFrame) {
	if f.req != nil {
		f.req.sent.Store(true)
	}
	pool := &k.srv.buffers
	scratch := pool.get(0)
	b := appendFrame(scratch.b[:0], f)
	n, err := k.inline.try(b)
	pool.release(f.buf)
	k.mu.Lock()
	if err == nil && n < len(b) {
		k.rest = append(k.rest, b[n:]...)
		k.bytes += len(k.rest)
	}
	switch {
	case err != nil:
		k.mu.Unlock()
		k.fail()
	case len(k.rest) > 0 || len(k.queue) > 0 || k.closing || k.pingDue || k.pongDue:
		k.srv.spawn(k.write)
		k.mu.Unlock()
	default:
		k.idleNow()
		k.mu.Unlock()
	}
	pool.release(scratch)
}

// kind is the kind of WebSocket message that f is.
func (f *outFrame) kind() int {
	if f.binary {
		return websocket.BinaryMessage
	}
	return websocket.TextMessage
}

// appendFrame appends f as one unmasked frame (RFC 6455, 5.2) of less than 64 KiB.
func appendFrame(b []byte, f outFrame) []byte {
	n := f.size()
	b = append(b, 0x80|byte(f.kind()))
	if n < 126 {
		b = append(b, byte(n))
	} else {
		b = append(b, 126, byte(n>>8), byte(n))
	}
	b = append(b, f.head...)
	b = append(b, f.body...)
	return append(b, f.tail...)
}

// busy says whether so much waits to be written that nothing new should be
// asked for on behalf of this socket. drained is called when that is over.
func (k *socket) busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.high
}

// isBehind says whether a frame that may be lost was refused, and caughtUp is
// still to come.
func (k *socket) isBehind() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.behind
}

// kick starts the writer if there is none. Called with the lock held.
func (k *socket) kick() {
	if k.writing {
		return
	}
	k.writing = true
	k.srv.spawn(k.write)
}

// ping has a WebSocket ping sent as soon as the current fragment is out.
func (k *socket) ping() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closing {
		k.pingDue = true
		k.kick()
	}
}

// answerPing has the newest ping answered; older ones needn't be (RFC 6455, 5.5.3).
func (k *socket) answerPing(data string) {
	k.touch()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closing {
		k.pong, k.pongDue = append(k.pong[:0], data...), true
		k.kick()
	}
}

// close sends final, if given, and then a close frame with this code, and drops
// whatever else was waiting. The first call decides. It doesn't wait: the reader
// sees the end, at the latest closeGrace later.
func (k *socket) close(code int, reason string, final ...outFrame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.begin(code, reason) {
		return
	}
	k.drop()
	k.queue = append(k.queue, final...)
	k.kick()
}

// closeGently is close, but what waits is written first, as far as closeGrace goes.
func (k *socket) closeGently(code int, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.begin(code, reason) {
		k.gently = true
		k.kick()
	}
}

// begin marks the socket as closing, or says that it is already. Called with
// the lock held.
func (k *socket) begin(code int, reason string) bool {
	if k.closing {
		return false
	}
	k.closing, k.closedAt, k.code, k.reason = true, time.Now(), code, cut(reason, maxReason)
	return true
}

// revoke ends the socket with SESSION_REVOKED and the close code that goes with
// the reason.
func (k *socket) revoke(reason string) {
	code := wire.CloseSessionRevoked
	if reason == wire.ReasonAnotherShim {
		code = wire.CloseSessionTakenOver
	}
	k.close(code, reason, encode(wire.Message{Type: wire.TSessionRevoked, ID: uuid.NewString(),
		Payload: wire.SessionRevoked{Reason: reason}}))
}

// drop forgets what waits to be written. Called with the lock held.
func (k *socket) drop() {
	for i := range k.queue {
		k.srv.buffers.release(k.queue[i].buf)
	}
	k.queue, k.bytes, k.loose, k.behind = nil, 0, 0, false
}

// hasty says whether the message being written is to be cut short.
func (k *socket) hasty() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closing && !k.gently
}

func (k *socket) isClosing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closing
}

// kill cuts the connection without waiting. The reader sees an error and ends.
func (k *socket) kill() {
	conn := k.ws.NetConn()
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn() // closing TLS itself would first send an alert
	}
	_ = conn.Close()
}

// write is the writer: it runs until nothing is left to write.
func (k *socket) write() {
	var scratch []byte
	for {
		k.mu.Lock()
		if rest := k.rest; rest != nil {
			k.rest = nil
			k.mu.Unlock()
			if !k.writeRest(rest) {
				k.fail()
				return
			}
			continue
		}
		if k.pingDue || k.pongDue {
			k.mu.Unlock()
			if !k.controls() {
				k.fail()
				return
			}
			continue
		}
		if len(k.queue) == 0 {
			if k.closing && !k.closeSent {
				k.closeSent = true
				k.mu.Unlock()
				k.sendClose()
				continue
			}
			// A deadline that passes later would fail the next write at once.
			_ = k.ws.NetConn().SetWriteDeadline(time.Time{})
			k.idleNow()
			k.mu.Unlock()
			return
		}
		f := k.queue[0]
		k.queue[0] = outFrame{}
		k.queue = k.queue[1:]
		k.mu.Unlock()

		if f.req != nil {
			f.req.sent.Store(true)
		}
		var err error
		scratch, err = k.writeFrame(f, scratch)
		k.srv.buffers.release(f.buf)
		k.mu.Lock()
		k.bytes = max(0, k.bytes-f.size())
		drained := k.high && k.bytes <= k.srv.bounds.low
		if drained {
			k.high = false
		}
		if f.most > 0 {
			k.loose = max(0, k.loose-f.size())
		}
		caughtUp := k.behind && k.loose <= k.srv.bounds.streams/2
		if caughtUp {
			k.behind = false
		}
		k.mu.Unlock()
		if errors.Is(err, errCutShort) {
			k.mu.Lock()
			k.drop()
			k.mu.Unlock()
			continue
		}
		if err != nil {
			k.fail()
			return
		}
		if drained && k.drained != nil {
			k.drained()
		}
		if caughtUp && k.caughtUp != nil {
			k.caughtUp()
		}
	}
}

// writeRest finishes a frame that was written in part.
func (k *socket) writeRest(b []byte) bool {
	conn := k.ws.NetConn()
	_ = conn.SetWriteDeadline(time.Now().Add(k.srv.timing.write))
	_, err := conn.Write(b)
	k.mu.Lock()
	k.bytes = max(0, k.bytes-len(b))
	k.mu.Unlock()
	return err == nil
}

// fail ends the writer for good after an error.
func (k *socket) fail() {
	k.mu.Lock()
	k.closing = true
	if k.closedAt.IsZero() {
		k.closedAt = time.Now()
	}
	k.drop()
	k.closeSent, k.high = true, false
	k.idleNow()
	k.mu.Unlock()
	k.kill()
}

func (k *socket) deadline() { _ = k.ws.SetWriteDeadline(time.Now().Add(k.srv.timing.write)) }

// writeFrame writes one message: a small one by one system call, a large one in
// fragments without copying it.
func (k *socket) writeFrame(f outFrame, scratch []byte) ([]byte, error) {
	k.deadline()
	if f.size() <= smallFrame {
		scratch = append(append(append(scratch[:0], f.head...), f.body...), f.tail...)
		return scratch, k.ws.WriteMessage(f.kind(), scratch)
	}
	w, err := k.ws.NextWriter(f.kind())
	if err != nil {
		return scratch, err
	}
	if _, err := w.Write(f.head); err != nil {
		return scratch, err
	}
	for body := f.body; len(body) > 0; {
		n := min(len(body), fragment)
		k.deadline()
		if _, err := w.Write(body[:n]); err != nil {
			return scratch, err
		}
		body = body[n:]
		if k.hasty() {
			return scratch, errCutShort
		}
		if !k.controls() {
			return scratch, errClosed
		}
	}
	if _, err := w.Write(f.tail); err != nil {
		return scratch, err
	}
	return scratch, w.Close()
}

// controls sends what pings and pongs are due. It says whether that worked.
func (k *socket) controls() bool {
	k.mu.Lock()
	ping, pong, data := k.pingDue, k.pongDue, k.pong
	k.pingDue, k.pongDue, k.pong = false, false, nil
	k.mu.Unlock()
	until := time.Now().Add(k.srv.timing.write)
	if pong && k.ws.WriteControl(websocket.PongMessage, data, until) != nil {
		return false
	}
	return !ping || k.ws.WriteControl(websocket.PingMessage, nil, until) == nil
}

// sendClose sends the close frame. The other side's answer, or the sweeper after
// closeGrace, ends the reader: cutting the connection at once could destroy the
// close frame before it is read.
func (k *socket) sendClose() {
	msg := websocket.FormatCloseMessage(k.code, k.reason)
	_ = k.ws.WriteControl(websocket.CloseMessage, msg, time.Now().Add(k.srv.timing.write))
}

// finish is called by the reader when it is done: it answers the other side's
// close frame, if that is what ended it, and cuts the connection.
func (k *socket) finish(err error) {
	code, reason := websocket.CloseNormalClosure, ""
	switch ce, ok := errors.AsType[*websocket.CloseError](err); {
	case ok && sendable(ce.Code):
		code = ce.Code
	case errors.Is(err, errTooBig):
		code, reason = websocket.CloseMessageTooBig, "frame too big"
	}
	k.close(code, reason)
	if errors.Is(err, errTooBig) {
		k.discard()
	}
	k.flush()
	k.kill()
}

// flush waits until the writer is done, at most closeGrace.
func (k *socket) flush() {
	k.mu.Lock()
	if !k.writing {
		k.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	k.idle = idle
	k.mu.Unlock()
	deadline := time.NewTimer(k.srv.timing.closeGrace)
	defer deadline.Stop()
	select {
	case <-deadline.C:
	case <-idle:
	}
}

// idleNow marks the end of the writer. Called with the lock held.
func (k *socket) idleNow() {
	k.writing, k.queue, k.pong = false, nil, nil
	if k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// discard reads on without keeping anything until the other side ends or
// closeGrace is over, so that what it still sends doesn't reset the connection
// before it has read our close frame.
func (k *socket) discard() {
	conn := k.ws.NetConn()
	_ = conn.SetReadDeadline(time.Now().Add(k.srv.timing.closeGrace))
	_, _ = io.Copy(io.Discard, conn)
}

// sendable says whether a received close code may be sent back (RFC 6455, 7.4).
func sendable(code int) bool {
	switch code {
	case websocket.CloseNoStatusReceived, websocket.CloseAbnormalClosure, websocket.CloseTLSHandshake:
		return false
	}
	return code >= 1000 && code < 5000
}

// sweep looks after one socket: pings it, gives up on it after the silence that
// is allowed, and cuts it when its closing takes too long.
func (k *socket) sweep(now time.Time) {
	t := k.srv.timing
	k.mu.Lock()
	overdue := k.closing && now.Sub(k.closedAt) > t.closeGrace
	closing := k.closing
	k.mu.Unlock()
	if overdue {
		k.kill()
		return
	}
	if closing {
		return
	}
	if !k.expires.IsZero() && now.After(k.expires) {
		no := refuse(wire.CloseAuthExpired, "TOKEN_EXPIRED", "connect with a new one")
		k.close(no.code, no.reason)
		return
	}
	silent := now.UnixNano() - k.lastRead.Load()
	if silent > int64(t.silence) {
		k.kill()
		return
	}
	if now.UnixNano()-k.lastPing >= int64(t.ping) {
		k.lastPing = now.UnixNano()
		k.ping()
	}
}

// cut shortens s to at most n bytes without breaking a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// closeText describes an error of read for the log.
func closeText(err error) string {
	if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
		return fmt.Sprintf("closed by peer with %d", ce.Code)
	}
	if errors.Is(err, net.ErrClosed) {
		return "closed"
	}
	return err.Error()
}

// encode makes a frame of a small message of ours.
func encode(m wire.Message) outFrame {
	f, err := m.Encode()
	if err != nil { // only our own structs get here, and they all encode
		panic(err)
	}
	out := outFrame{head: f.Head, tail: f.Tail, binary: f.Binary}
	if f.Body != nil {
		out.body = f.Body.(wire.Raw)
	}
	return out
}
