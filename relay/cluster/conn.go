package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// window is how many bytes of one direction may be under way or unread.
	window = 512 << 10
	// piece is the payload of one message: well below any max_payload, and short
	// enough that the messages of other connections get in between.
	piece = 64 << 10
)

// The kinds of messages of a connection: the first byte. A number of 8 bytes
// follows.
const (
	kindData   = 'd' // the offset of the first byte; the bytes
	kindCredit = 'c' // how many bytes were read altogether
	kindEnd    = 'e' // the offset of the end: nothing comes after it
	kindReset  = 'r' // zero
)

var errHole = errors.New("a message was lost")

// conn is one end of a connection between two instances.
type conn struct {
	node     *Node
	peer, id string

	writing sync.Mutex // one Write at a time

	mu       sync.Mutex
	inbox    [][]byte
	received uint64 // offset behind the last byte in inbox
	consumed uint64 // of them, read
	granted  uint64 // of them, told to the peer
	ended    bool   // nothing comes after received
	sent     uint64
	credited uint64 // of them, read by the peer
	closed   bool   // by Close
	unread   bool   // the peer closed: it reads nothing any more
	err      error  // why it ended otherwise

	readable, writable signal
	readBy, writeBy    deadline
}

func newConn(n *Node, peer, id string) *conn {
	c := &conn{node: n, peer: peer, id: id}
	c.readBy.init()
	c.writeBy.init()
	return c
}

func (c *conn) LocalAddr() net.Addr  { return addr(c.node.id) }
func (c *conn) RemoteAddr() net.Addr { return addr(c.peer) }

func (c *conn) SetDeadline(t time.Time) error {
	c.readBy.set(t)
	c.writeBy.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.readBy.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.set(t)
	return nil
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		late := c.readBy.wait()
		if isClosed(late) {
			return 0, os.ErrDeadlineExceeded
		}
		c.mu.Lock()
		if len(c.inbox) > 0 && !c.closed && c.err == nil {
			n := c.take(p)
			credit := c.consumed-c.granted >= window/4 && !c.ended
			if credit {
				c.granted = c.consumed
			}
			total := c.consumed
			c.mu.Unlock()
			if credit {
				c.say(kindCredit, total)
			}
			return n, nil
		}
		err := c.err
		switch {
		case c.closed:
			err = net.ErrClosed
		case err == nil && c.ended:
			err = io.EOF
		}
		more := c.readable.wait()
		c.mu.Unlock()
		if err != nil {
			return 0, err
		}
		select {
		case <-more:
		case <-late:
		}
	}
}

// take copies what fits out of the inbox. Called with the lock held.
func (c *conn) take(p []byte) int {
	n := 0
	for n < len(p) && len(c.inbox) > 0 {
		m := copy(p[n:], c.inbox[0])
		n += m
		if c.inbox[0] = c.inbox[0][m:]; len(c.inbox[0]) == 0 {
			c.inbox[0] = nil
			c.inbox = c.inbox[1:]
		}
	}
	c.consumed += uint64(n)
	return n
}

// Write implements net.Conn. It returns when everything was handed to NATS.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	var scratch []byte
	done := 0
	for done < len(p) {
		late := c.writeBy.wait()
		if isClosed(late) {
			return done, os.ErrDeadlineExceeded
		}
		c.mu.Lock()
		if c.closed || c.unread || c.err != nil {
			err := c.err
			switch {
			case err != nil:
			case c.closed:
				err = net.ErrClosed
			default:
				err = syscall.EPIPE
			}
			c.mu.Unlock()
			return done, err
		}
		room := int(window - (c.sent - c.credited))
		n := min(room, len(p)-done, piece)
		at := c.sent
		c.sent += uint64(n)
		var more <-chan struct{}
		if n == 0 {
			more = c.writable.wait()
		}
		c.mu.Unlock()
		if n == 0 {
			select {
			case <-more:
			case <-late:
			}
			continue
		}
		scratch = append(header(scratch[:0], kindData, at), p[done:done+n]...)
		if err := c.node.send(c.peer, "conn."+c.id, scratch); err != nil {
			c.reset(fmt.Errorf("NATS: %w", err))
			return done, err
		}
		done += n
	}
	return done, nil
}

// Close implements net.Conn. What was written is still delivered.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed || c.err != nil {
		c.closed = true
		c.mu.Unlock()
		return nil
	}
	c.closed, c.inbox = true, nil
	sent := c.sent
	c.mu.Unlock()
	c.readable.all()
	c.writable.all()
	c.say(kindEnd, sent)
	c.forget()
	return nil
}

// forget takes the connection off the node's books.
func (c *conn) forget() {
	c.node.mu.Lock()
	if c.node.conns[c.id] == c {
		delete(c.node.conns, c.id)
	}
	c.node.mu.Unlock()
	c.readBy.set(time.Time{})
	c.writeBy.set(time.Time{})
}

// reset ends the connection with an error, on both ends.
func (c *conn) reset(err error) {
	c.mu.Lock()
	over := c.closed || c.err != nil
	if !over {
		c.err, c.inbox = err, nil
	}
	c.mu.Unlock()
	if over {
		return
	}
	c.say(kindReset, 0)
	c.readable.all()
	c.writable.all()
	c.forget()
}

// receive takes a message of the peer.
func (c *conn) receive(m []byte) {
	if len(m) < 9 {
		return
	}
	n, data := binary.BigEndian.Uint64(m[1:]), m[9:]
	c.mu.Lock()
	if c.closed || c.err != nil {
		c.mu.Unlock()
		return
	}
	hole := false
	wake := &c.readable
	switch m[0] {
	case kindData:
		switch {
		case n != c.received || c.ended, c.received+uint64(len(data))-c.consumed > window:
			hole = true
		case len(data) > 0:
			c.inbox = append(c.inbox, data)
			c.received += uint64(len(data))
		}
	case kindCredit:
		wake = &c.writable
		if n > c.credited && n <= c.sent {
			c.credited = n
		}
	case kindEnd:
		hole = n != c.received
		c.ended, c.unread = !hole, true
		c.writable.all()
	case kindReset:
		if c.unread { // what it wrote before it closed stays to be read
			break
		}
		c.err, c.inbox = ErrGone, nil
		c.writable.all()
	}
	failed := c.err != nil
	c.mu.Unlock()
	if hole {
		c.reset(errHole)
		return
	}
	wake.all()
	if failed {
		c.forget()
	}
}

func (c *conn) say(kind byte, n uint64) {
	_ = c.node.send(c.peer, "conn."+c.id, header(nil, kind, n)) // a lost one shows as a hole, or as the peer's silence
}

func header(b []byte, kind byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, kind), n)
}

// signal wakes everybody who waits.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) all() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// deadline is a channel that is closed when its time has come.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	ch    chan struct{}
}

func (d *deadline) init() { d.ch = make(chan struct{}) }

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ch
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if isClosed(d.ch) {
		d.ch = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	ch := d.ch
	left := time.Until(t)
	if left <= 0 {
		close(ch)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timer == timer { // it wasn't set anew meanwhile
			d.timer = nil
			close(ch)
		}
	})
	d.timer = timer
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
