package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorilla/websocket"

	"farhand/wire"
)

// Class is the queue that a message waits in. Within a class messages leave in
// the order in which they were sent; a higher class goes first, but a lower one
// that was passed over sixteen times in a row gets its turn.
type Class uint8

// The classes, highest first.
const (
	Urgent    Class = iota // handshake, PONG, STATUS, errors that answer at once
	Answers                // the answers to requests
	Streams                // stream data
	Transfers              // bulk: at most 256 KiB a message
	classes
)

// Bounds of one class's queue. A single message is always taken, however large.
const (
	maxQueued      = 1024
	maxQueuedBytes = 2 * wire.MaxFrame
	patience       = 16 // times that a class may be passed over
	smallMessage   = 1 << 10
)

const (
	pingSlot = iota
	pongSlot
)

type item struct {
	message wire.Message
	before  func(*wire.Message)
	bytes   int
}

// queue is a bounded first-in-first-out list.
type queue struct {
	items  []item
	bytes  int
	passed int
}

func (q *queue) fits(n int) bool {
	return len(q.items) == 0 || len(q.items) < maxQueued && q.bytes+n <= maxQueuedBytes
}

func (q *queue) push(it item) {
	q.items = append(q.items, it)
	q.bytes += it.bytes
}

func (q *queue) pop() item {
	it := q.items[0]
	q.items[0] = item{}
	if q.items = q.items[1:]; len(q.items) == 0 {
		q.items = nil // an idle socket holds nothing
	}
	q.bytes -= it.bytes
	q.passed = 0
	return it
}

// Send takes m for sending. It writes at once if the writer is idle, else it
// queues m, and waits for room if the queue of the class is full. Nil means that
// m will be written unless the socket fails first. ErrRefused, ErrClosed or the
// error of ctx mean that it never will.
//
// A message that would be larger than wire.MaxFrame is replaced by ERROR
// FILE_TOO_LARGE with the same id, one that can't be encoded by INTERNAL_ERROR.
func (c *Conn) Send(ctx context.Context, class Class, m wire.Message) error {
	return c.SendStamped(ctx, class, m, nil)
}

// SendStamped is Send with a last look at the message: before is called once,
// by whoever writes it and just before it is encoded, so that numbers in it
// (pending_capacity, STATUS) are those of that moment. It must be quick, must
// not change the type, and isn't called if the message is never written.
func (c *Conn) SendStamped(ctx context.Context, class Class, m wire.Message, before func(*wire.Message)) error {
	if err := c.allowed(m.Type); err != nil {
		return err
	}
	it := item{message: m, before: before}
	c.mu.Lock()
	for {
		if c.stopped != nil {
			defer c.mu.Unlock()
			return c.stopped
		}
		if !c.writing && !c.queued() {
			c.writing = true
			c.mu.Unlock()
			err := c.write(it)
			c.release()
			return err
		}
		if it.bytes == 0 {
			it.bytes = weight(m)
		}
		if c.queues[class].fits(it.bytes) {
			c.queues[class].push(it)
			c.startDrain()
			c.mu.Unlock()
			return nil
		}
		changed := c.awaitChange()
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
	}
}

// Post is SendStamped for a reader: it never writes and never waits. ErrFull
// means that the peer doesn't read what it asked for.
func (c *Conn) Post(class Class, m wire.Message, before func(*wire.Message)) error {
	if err := c.allowed(m.Type); err != nil {
		return err
	}
	it := item{message: m, before: before, bytes: weight(m)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return c.stopped
	}
	if !c.queues[class].fits(it.bytes) {
		return ErrFull
	}
	c.queues[class].push(it)
	c.startDrain()
	return nil
}

// PostWait is Post that waits for room, so that a peer that asks faster than it
// takes the answers is slowed down to what it takes. Meanwhile nobody reads: a
// peer that takes nothing at all is silent, and ends as such (Options.DeadAfter).
// The caller must not be the writer itself (before of SendStamped).
func (c *Conn) PostWait(class Class, m wire.Message, before func(*wire.Message)) error {
	for {
		c.mu.Lock()
		changed := c.awaitChange()
		c.mu.Unlock()
		if err := c.Post(class, m, before); !errors.Is(err, ErrFull) {
			return err
		}
		<-changed // by the writer, or by the end of the socket
	}
}

// allowed enforces what a device may send.
func (c *Conn) allowed(t wire.Type) error {
	granted := c.granted.Load()
	if granted == nil || wire.MayDeviceSend(t, *granted) {
		return nil
	}
	c.opt.Log.Error("refused to send a frame that was not granted", "type", string(t))
	return fmt.Errorf("%w: %s", ErrRefused, t)
}

// weight is what a message counts for in a queue's bound.
func weight(m wire.Message) int {
	switch p := m.Payload.(type) {
	case wire.Streamer:
		return smallMessage + p.JSONSize()
	case *wire.Attached:
		return smallMessage + len(p.Data)
	}
	return smallMessage
}

// The functions below until write are called with mu held.

func (c *Conn) queued() bool {
	for i := range c.queues {
		if len(c.queues[i].items) > 0 {
			return true
		}
	}
	return false
}

func (c *Conn) dropQueued() {
	for i := range c.queues {
		c.queues[i] = queue{}
	}
	c.control = [2]*[]byte{}
	c.signal()
}

// next takes the message whose turn it is.
func (c *Conn) next() (item, bool) {
	best := -1
	for i := range c.queues {
		q := &c.queues[i]
		if len(q.items) == 0 {
			continue
		}
		if best < 0 || q.passed >= patience {
			best = i
		}
	}
	if best < 0 {
		return item{}, false
	}
	for i := range c.queues {
		if i != best && len(c.queues[i].items) > 0 {
			c.queues[i].passed++
		}
	}
	it := c.queues[best].pop()
	c.signal()
	return it, true
}

// awaitChange is closed at the next signal.
func (c *Conn) awaitChange() <-chan struct{} {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

func (c *Conn) signal() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// startDrain makes somebody write what is queued.
func (c *Conn) startDrain() {
	if c.writing {
		return
	}
	c.writing = true
	c.work.Add(1)
	go c.drain()
}

// release hands the write side on after one write.
func (c *Conn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = false
	if c.queued() || c.control != [2]*[]byte{} {
		c.startDrain()
		return
	}
	c.signal()
}

// drain writes until nothing is queued.
func (c *Conn) drain() {
	defer c.work.Done()
	for {
		c.flushControl()
		c.mu.Lock()
		it, ok := c.next()
		if !ok {
			if c.control == [2]*[]byte{} {
				c.writing = false
				c.signal()
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
			continue
		}
		c.mu.Unlock()
		c.write(it) // a failure has ended the socket and is the reader's to tell
	}
}

// write writes one message. Only the owner of the write side calls it.
func (c *Conn) write(it item) error {
	if c.muted.Load() {
		return ErrClosed
	}
	if r, ok := it.message.Payload.(wire.Releaser); ok {
		defer r.Release()
	}
	if it.before != nil {
		it.before(&it.message)
	}
	frame, err := c.encode(it.message)
	if err != nil {
		return c.failWrite(err)
	}
	kind := websocket.TextMessage
	if frame.Binary {
		kind = websocket.BinaryMessage
	}
	w, err := c.ws.NextWriter(kind)
	if err != nil {
		return c.failWrite(fmt.Errorf("write: %w", err))
	}
	err = frame.WriteFrame(pieces{c, w})
	switch {
	case err == nil:
		err = w.Close()
	case c.muted.Load():
		return ErrClosed // left half written: only a close frame follows
	}
	if err != nil {
		return c.failWrite(fmt.Errorf("write %s: %w", it.message.Type, err))
	}
	return nil
}

// encode encodes m or, where that can't be sent, the error that takes its place.
func (c *Conn) encode(m wire.Message) (wire.Frame, error) {
	frame, err := m.Encode()
	if err != nil {
		c.opt.Log.Error("message can't be encoded", "type", string(m.Type), "err", err)
		m.Payload = wire.Errorf(wire.InternalError, "the answer can't be encoded").With("reason", "unencodable_answer")
	} else if size := frame.Size(); size > wire.MaxFrame {
		m.Payload = wire.Errorf(wire.FileTooLarge, "the answer is larger than one message may be").
			With("op", string(m.Type)).With("attempted_bytes", size).With("max_file_size_bytes", wire.MaxFrame)
	} else {
		return frame, nil
	}
	m.Type = wire.TError
	return m.Encode()
}

// pieces feeds a message to the socket fragment by fragment, with pings and
// pongs between them.
type pieces struct {
	c *Conn
	w io.Writer
}

func (p pieces) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		if p.c.muted.Load() {
			return written, ErrClosed
		}
		n := min(len(b)-written, fragment)
		if n >= bulk {
			p.c.flushControl()
		}
		k, err := p.w.Write(b[written : written+n])
		written += k
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// sendControl leaves a ping or pong for the writer. A later one of its kind
// takes the place of one that still waits (RFC 6455 section 5.5.3).
func (c *Conn) sendControl(slot int, data *[]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return
	}
	c.control[slot] = data
	c.startDrain()
}

// flushControl writes the ping and the pong that wait. Only the owner of the
// write side calls it.
func (c *Conn) flushControl() {
	c.mu.Lock()
	waiting := c.control
	c.control = [2]*[]byte{}
	c.mu.Unlock()
	for slot, kind := range [2]int{pingSlot: websocket.PingMessage, pongSlot: websocket.PongMessage} {
		if data := waiting[slot]; data != nil {
			if err := c.ws.WriteControl(kind, *data, time.Now().Add(writeStall)); err != nil {
				c.failWrite(fmt.Errorf("write: %w", err))
			}
		}
	}
}
