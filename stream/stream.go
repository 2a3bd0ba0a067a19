package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"farhand/wire"
)

// Owner is whose a stream is.
type Owner struct {
	Session string // the data session that opened it; empty on the control socket
	Holder  string // who is behind the session; opaque
	Owner   string // the machine's owner; opaque
}

// May says whether by, who comes with another request, may have the stream: in
// the same session, as the same holder, or as the machine's owner.
func (o Owner) May(by Owner) bool {
	switch {
	case by.Session == o.Session:
		return true
	case by.Holder == "":
		return false
	default:
		return by.Holder == o.Holder || by.Holder == by.Owner
	}
}

// payer is whose share of the memory a stream takes: a holder's, or where nothing is
// known of who is behind a session, the session's.
func (o Owner) payer() string {
	if o.Holder != "" {
		return "holder " + o.Holder
	}
	return "session " + o.Session
}

// Options describe a stream.
type Options struct {
	Owner
	// Records says that the stream is of JSON records, and offsets count them.
	// Otherwise it is of bytes.
	Records bool
	Credit  int    // bytes that may be sent at first; 0 is wire.StreamCreditDefault
	Ring    int    // bytes that are kept; 0 is DefaultRing
	Device  string // canonical id of what it is of; may be empty
	Op      string // the operation that opened it
	// Capability is the one without which the stream ends, where no device stands
	// for it; may be empty.
	Capability wire.Capability

	from  int64 // where the receiver of a view begins
	again bool  // it was there before this process: see Hub.ShareAgain
}

// Info describes a stream that exists.
type Info struct {
	ID string
	Owner
	Device, Op string
	Capability wire.Capability
	Next       int64 // offset of what comes next: so much was written
	Sent       int64 // bytes of encoded data that were sent, repetitions too
	Ended      string
}

var errEnded = errors.New("stream has ended")

// source is what is written and who is told of it: one stream, or all the
// streams that carry the same.
type source struct {
	mu      sync.Mutex
	ring    ring
	mute    bool          // what is written is lost
	streams []*Stream     // those that have not ended
	room    chan struct{} // a receiver had more, or is one no longer
}

func newSource(o Options) *source {
	return &source{ring: ring{records: o.Records, size: o.Ring}, room: make(chan struct{}, 1)}
}

// Stream is one stream. It is written by its source.
type Stream struct {
	hub  *Hub
	opts Options
	id   string
	done chan struct{}
	kind kind

	*source // its mu guards what follows
	end     *wire.StreamEnd
	cur     *attachment // who receives it; nil: nobody
	sent    int64
	had     int64     // bytes of all that was written whose receiver gave credit for them: see Room
	gained  time.Time // when had last changed
	stalled bool      // it held up others: see Shared.Room
	tended  time.Time // when a receiver was last heard of
	expiry  *time.Timer
}

// kind tells streams that share a source from those that don't.
type kind uint8

const (
	plain kind = iota
	share      // of a Shared: it has the ring, and nobody receives it
	view       // it has a part in the ring of a Shared
)

// ID is the stream's name: 128 random bits in hex.
func (s *Stream) ID() string { return s.id }

// Done is closed when the stream has ended, by its source, its receiver or the
// daemon: the source has nothing to write any more.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Next is the offset that the next byte or record will have.
func (s *Stream) Next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.next()
}

// Write adds bytes. It never waits: the ring forgets the oldest instead. It
// fails only after the end.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return 0, errEnded
	}
	if s.mute {
		s.ring.skip(int64(len(p)))
	} else {
		s.ring.write(p)
	}
	s.wake()
	return len(p), nil
}

// Record adds one record, which is encoded as JSON. It never waits. A record
// that is larger than wire.StreamDataMax is lost, as a gap, and an error.
func (s *Stream) Record(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("stream record: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return errEnded
	}
	if len(b) > wire.StreamDataMax {
		s.ring.skip(1)
		s.wake()
		return fmt.Errorf("stream record of %d bytes, more than %d", len(b), wire.StreamDataMax)
	}
	s.ring.record(b)
	s.wake()
	return nil
}

// Room waits until n bytes more, or a record of n bytes, push nothing out of the
// ring that the receiver may still ask for: what it gave no credit for yet. So a
// source that can wait loses nothing, not even over a lost link. It fails with
// the end of the stream or of ctx. One goroutine may call it.
func (s *Stream) Room(ctx context.Context, n int) error {
	for {
		if s.Fits(n) {
			return nil
		}
		select {
		case <-s.room:
		case <-s.done:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Fits says whether Room would wait for nothing.
func (s *Stream) Fits(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owed := s.ring.total - s.had
	return owed == 0 || owed+int64(n) <= int64(s.opts.Ring)
}

// receiverHad notes how much of what was written the receiver has. Called with
// mu.
func (s *Stream) receiverHad(total int64) {
	if had := min(total, s.ring.total); had != s.had {
		s.had, s.gained, s.stalled = had, time.Now(), false
	}
	s.gain()
}

// Skip says that the source lost n bytes or records before it could write them.
func (s *Stream) Skip(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil || n <= 0 {
		return
	}
	s.ring.skip(n)
	s.wake()
}

// End ends the stream. What it holds can be fetched for a while longer. Only the
// first call counts.
func (s *Stream) End(reason string, exitCode *int) {
	s.mu.Lock()
	if s.end != nil {
		s.mu.Unlock()
		return
	}
	s.end = &wire.StreamEnd{Reason: reason, ExitCode: exitCode}
	close(s.done)
	s.streams = slices.DeleteFunc(s.streams, func(x *Stream) bool { return x == s })
	s.tell()
	s.gain()
	s.mu.Unlock()
	s.hub.ended(s)
}

// wake tells the senders that there is something new. Called with mu.
func (x *source) wake() {
	for _, s := range x.streams {
		s.tell()
	}
}

// tell wakes the sender of one stream. Called with mu.
func (s *Stream) tell() {
	if s.cur != nil {
		select {
		case s.cur.news <- struct{}{}:
		default:
		}
	}
}

// gain tells who waits for room that there may be some. Called with mu.
func (x *source) gain() {
	select {
	case x.room <- struct{}{}:
	default:
	}
}

// Info describes the stream as it is now.
func (s *Stream) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := Info{ID: s.id, Owner: s.opts.Owner, Device: s.opts.Device, Op: s.opts.Op, Capability: s.opts.Capability, Next: s.ring.next(), Sent: s.sent}
	if s.end != nil {
		i.Ended = s.end.Reason
	}
	return i
}
