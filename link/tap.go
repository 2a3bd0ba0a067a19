package link

import (
	"errors"
	"math"
	"net"
	"sync/atomic"
	"time"
)

// tap is the network connection under the WebSocket. It notes when bytes moved,
// so that a large frame that arrives slowly counts as life, and bounds each
// write by its own progress rather than by the length of the message.
type tap struct {
	net.Conn
	start time.Time
	heard atomic.Int64 // nanoseconds from start to the last byte read
	reads atomic.Int64 // how often bytes were read
	moved atomic.Int64 // the same for the last bulk write that the kernel took
	fixed atomic.Bool  // the write deadline was set by hand
	until atomic.Int64 // nanoseconds from start to the write deadline, if it was set by Write
	room  atomic.Int64 // bytes that may be read before the upgrade is over; then unlimited
}

// maxUpgrade is how many bytes a server may spend on TLS and on the answer to
// the upgrade; header fields have no bound of their own in net/http's parser
// for answers.
const maxUpgrade = 1 << 20

var errLongUpgrade = errors.New("the answer to the upgrade is too long")

// bulk is the size from which a write counts as life: smaller ones fit the
// kernel's buffer even if nobody is there.
const bulk = 16 << 10

func newTap(c net.Conn) *tap {
	t := &tap{Conn: c, start: time.Now()}
	t.room.Store(math.MaxInt64)
	return t
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if t.room.Load() != math.MaxInt64 && t.room.Add(-int64(n)) < 0 {
		return 0, errLongUpgrade
	}
	if n > 0 {
		t.heard.Store(int64(time.Since(t.start)))
		t.reads.Add(1)
	}
	return n, err
}

func (t *tap) Write(p []byte) (int, error) {
	if t.fixed.Load() {
		return t.Conn.Write(p)
	}
	written := 0
	for {
		n := min(len(p)-written, fragment+64)
		t.extend()
		k, err := t.Conn.Write(p[written : written+n])
		written += k
		if k >= bulk {
			t.moved.Store(int64(time.Since(t.start)))
		}
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// extend gives a write writeStall, or down to half of it: setting the deadline
// anew each time costs more than a small write's own share of work.
func (t *tap) extend() {
	now := time.Since(t.start)
	if time.Duration(t.until.Load())-now < writeStall/2 {
		t.until.Store(int64(now + writeStall))
		t.Conn.SetWriteDeadline(t.start.Add(now + writeStall))
	}
}

// SetWriteDeadline with the zero time goes back to a deadline per write.
func (t *tap) SetWriteDeadline(at time.Time) error {
	t.fixed.Store(!at.IsZero())
	t.until.Store(0)
	if at.IsZero() {
		return nil
	}
	return t.Conn.SetWriteDeadline(at)
}

// SetDeadline must not leave a fixed write deadline behind.
func (t *tap) SetDeadline(at time.Time) error {
	t.fixed.Store(!at.IsZero())
	t.until.Store(0)
	return t.Conn.SetDeadline(at)
}

// silence is how long ago the connection last showed life.
func (t *tap) silence() time.Duration {
	last := max(t.heard.Load(), t.moved.Load())
	return time.Since(t.start) - time.Duration(last)
}
