package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"farhand/internal/backoff"
	"farhand/link"
	"farhand/wire"
)

// Chunk is a piece of a stream: bytes or records, from Offset on, which counts
// bytes or records from the stream's beginning.
type Chunk struct {
	Offset  int64
	Data    []byte
	Records []json.RawMessage
	// Lost is what came before Offset and that nobody can have any more: the
	// device's memory of a stream is bounded, and its source may lose something.
	Lost *wire.StreamGap
	// End says why the stream is over. Nothing comes after it.
	End *wire.StreamEnd
}

// Decode decodes the records of a chunk. Records that the token's ceiling hides
// (null, in the hotplug stream of a machine) are left out.
func Decode[T any](c Chunk) ([]T, error) {
	out := make([]T, 0, len(c.Records))
	for i, raw := range c.Records {
		if bytes.Equal(raw, []byte("null")) {
			continue
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return out, fmt.Errorf("record %d of the stream: %w", c.Offset+int64(i), err)
		}
		out = append(out, v)
	}
	return out, nil
}

// Stream is a stream of a device, received by this Client. It goes on over a
// lost link, to the relay or from there to the machine: it is attached again
// where it was, as soon as that works and until the device says that it has no
// such stream. What was lost by then is a gap in a chunk, so that nothing is
// ever missing unsaid.
//
// The device sends no more than the credit of the request that opened the
// stream (256 KiB unless it says otherwise) ahead of what Next has returned. A
// consumer that stops reading holds up nobody else.
type Stream struct {
	id   string
	sock *socket
	do   func(ctx context.Context, r request, dst any) error // a request at the stream's place
	at   func() (session, machine string)
	room int // credit that is under way or unread at most

	wake   chan struct{} // the tender has something to do
	stop   context.CancelFunc
	ctx    context.Context // ends with Detach, Close or the Client
	tended chan struct{}   // closed when the tender is done

	mu      sync.Mutex
	conn    *connection // on which it was opened or last attached
	queue   []Chunk
	unread  int   // bytes in queue
	owed    int   // bytes that were read and for which no credit was given yet
	expect  int64 // offset of what comes next
	stale   bool  // something is missing: it must be attached again
	heard   time.Time
	trouble error // why it isn't attached now
	over    bool  // the end is in the queue or was read
	failed  error // what Next returns after the queue
	arrived chan struct{}
}

// Times of a stream.
const (
	// streamTended is how often the device is told that its receiver is still
	// there, well below the 300 s after which it gives a stream up.
	streamTended = 30 * time.Second
	// streamSilent is how long nothing may come until the stream is attached
	// again, which is the only way to know that it is still there.
	streamSilent = 60 * time.Second
	// maxChunks bounds the queue of a stream beside its bytes: chunks that are a
	// gap alone have none.
	maxChunks = 4096
	// maxOffset is the highest offset that JSON carries as a number (2^53).
	maxOffset = 1 << 53
)

// streams are those that a Client receives.
type streams struct {
	tick, silent time.Duration

	mu     sync.Mutex
	byID   map[string]*Stream
	closed bool
	tasks  sync.WaitGroup
}

func newStreams() *streams {
	return &streams{tick: streamTended, silent: streamSilent, byID: make(map[string]*Stream)}
}

// take hands a frame to its stream. It is the reader that calls it, and waits
// for nothing.
func (t *streams) take(env wire.Envelope) {
	var d wire.StreamData
	if wire.Decode(env.Payload, &d) != nil {
		return
	}
	if d.Stream == "" { // the relay lost some
		t.stale(env.SessionID)
		return
	}
	t.mu.Lock()
	st := t.byID[d.Stream]
	t.mu.Unlock()
	if st != nil {
		st.receive(d)
	}
}

// stale has every stream of a session, or those without one, attached again.
func (t *streams) stale(session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range t.byID {
		if at, _ := st.at(); at == session {
			st.miss()
			st.nudge()
		}
	}
}

// add begins to receive a stream. It is the reader that calls it.
func (t *streams) add(st *Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		st.stop()
		st.finish(errClosed)
		close(st.tended)
		return
	}
	if old := t.byID[st.id]; old != nil { // attached once more by this Client
		old.stop()
		old.finish(errTaken)
	}
	t.byID[st.id] = st
	t.tasks.Go(st.tend)
}

func (t *streams) drop(st *Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[st.id] == st {
		delete(t.byID, st.id)
	}
}

func (t *streams) close() {
	t.mu.Lock()
	t.closed = true
	for _, st := range t.byID {
		st.stop()
	}
	t.mu.Unlock()
	t.tasks.Wait()
}

var (
	errDetached = errors.New("stream is detached")
	errTaken    = errors.New("stream was attached anew by the same client")
)

// newStream makes a stream that isn't received yet.
func newStream(sock *socket, id string, credit int) *Stream {
	if credit <= 0 {
		credit = wire.StreamCreditDefault
	}
	ctx, cancel := context.WithCancel(sock.ctx)
	return &Stream{
		id: id, sock: sock, room: min(credit, wire.MaxStreamCredit), ctx: ctx, stop: cancel, heard: time.Now(),
		wake: make(chan struct{}, 1), tended: make(chan struct{}), arrived: make(chan struct{}, 1),
	}
}

// ID is the stream's name on the device.
func (st *Stream) ID() string { return st.id }

// Trouble says why the stream isn't attached now, and nil if it is, as far as is
// known. It is tried again, so this is for showing to people.
func (st *Stream) Trouble() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.trouble
}

// Next waits for the next chunk. After the one with End it is io.EOF. A stream
// that the device no longer has, or no longer allows, is an error, and so is one
// that was detached or closed on this side. Only one goroutine may call it.
func (st *Stream) Next(ctx context.Context) (Chunk, error) {
	for {
		st.mu.Lock()
		if len(st.queue) > 0 {
			c := st.queue[0]
			st.queue[0] = Chunk{}
			if st.queue = st.queue[1:]; len(st.queue) == 0 {
				st.queue = nil
			}
			n := weight(c.Data, c.Records)
			st.unread -= n
			st.owed += n
			due := st.owed >= max(st.room/4, 1) && !st.over
			st.mu.Unlock()
			if due {
				st.nudge()
			}
			return c, nil
		}
		over, failed := st.over, st.failed
		st.mu.Unlock()
		switch {
		case over:
			return Chunk{}, io.EOF
		case failed != nil:
			return Chunk{}, failed
		}
		select {
		case <-st.arrived:
		case <-ctx.Done():
			return Chunk{}, ctx.Err()
		}
	}
}

// Close ends the stream on the device, which gives up what it kept for it, and
// here. Next then returns what came before, and an error. Idempotent.
func (st *Stream) Close(ctx context.Context) error {
	st.mu.Lock()
	gone := st.over || st.failed != nil
	st.mu.Unlock()
	st.Detach()
	if gone {
		return nil
	}
	err := st.do(ctx, request{method: method(wire.TStreamClose), payload: wire.StreamClose{Stream: st.id}}, nil)
	if errors.Is(err, wire.StreamNotFound) {
		return nil
	}
	return err
}

// Detach stops receiving the stream and leaves it to itself. Whoever knows its
// id can attach it again, within 300 s. Idempotent.
func (st *Stream) Detach() {
	st.stop()
	<-st.tended
}

// weight is what data costs of the credit.
func weight(data []byte, records []json.RawMessage) int {
	n := len(data)
	for _, r := range records {
		n += len(r)
	}
	return n
}

// nudge wakes the tender.
func (st *Stream) nudge() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// signal wakes Next.
func (st *Stream) signal() {
	select {
	case st.arrived <- struct{}{}:
	default:
	}
}

// finish is the end without one in the stream. What was received is still read.
func (st *Stream) finish(err error) {
	st.mu.Lock()
	if st.failed == nil {
		st.failed = err
	}
	st.mu.Unlock()
	st.signal()
}

// receive takes a frame. What was there before is cut away, and after something
// missing nothing is taken until the stream was attached again.
func (st *Stream) receive(d wire.StreamData) {
	st.mu.Lock()
	taken := st.accept(d)
	over := st.over
	st.mu.Unlock()
	if !taken || over {
		st.nudge()
	}
	st.signal()
}

// accept says false if something is missing before the frame. Called with mu.
func (st *Stream) accept(d wire.StreamData) bool {
	if st.over || st.failed != nil {
		return true
	}
	st.heard = time.Now()
	if d.Offset < 0 || d.Offset > maxOffset {
		return true // no device counts so far
	}
	if d.Offset > st.expect && (d.Lost == nil || d.Lost.From > st.expect || d.Lost.To < d.Offset) {
		st.stale = true
		return false
	}
	c := Chunk{Offset: d.Offset, Data: d.Data, Records: d.Records, End: d.End}
	if d.Offset > st.expect {
		c.Lost = &wire.StreamGap{From: st.expect, To: d.Offset}
	} else if seen := st.expect - d.Offset; seen > 0 {
		c.Offset = st.expect
		c.Data, c.Records = c.Data[min(seen, int64(len(c.Data))):], c.Records[min(seen, int64(len(c.Records))):]
	}
	n := weight(c.Data, c.Records)
	if n == 0 && c.Lost == nil && c.End == nil {
		return true
	}
	if st.unread > 2*st.room+wire.StreamDataMax || len(st.queue) >= maxChunks { // more than there was credit for
		st.stale = true
		return false
	}
	st.expect = c.Offset + int64(len(c.Data)) + int64(len(c.Records))
	st.over = c.End != nil
	st.unread += n
	if !st.join(c) {
		st.queue = append(st.queue, c)
	}
	return true
}

// join appends a chunk to the last one that waits, so that many small frames
// don't become as many chunks. Called with mu.
func (st *Stream) join(c Chunk) bool {
	if len(st.queue) == 0 || c.Lost != nil {
		return false
	}
	last := &st.queue[len(st.queue)-1]
	if weight(last.Data, last.Records)+weight(c.Data, c.Records) > wire.StreamDataMax {
		return false
	}
	last.Data, last.Records, last.End = append(last.Data, c.Data...), append(last.Records, c.Records...), c.End
	return true
}

// tend gives credit, tells the device now and then that it is received, and has
// the stream attached again when it must be. It ends with the stream.
func (st *Stream) tend() {
	defer close(st.tended)
	defer st.stop()
	defer st.sock.streams.drop(st)
	tick := time.NewTicker(st.sock.streams.tick)
	defer tick.Stop()
	var again attempts
	for {
		st.mu.Lock()
		conn, done := st.conn, st.over || st.failed != nil
		st.mu.Unlock()
		if done {
			return
		}
		due := false
		select {
		case <-st.wake:
		case <-tick.C:
			due = true
		case <-conn.dead:
			st.miss()
		case <-st.ctx.Done():
			err := errDetached
			if st.sock.ctx.Err() != nil {
				err = errClosed
			}
			st.finish(err)
			return
		}
		st.mu.Lock()
		expect := st.expect
		stale := !st.over && (st.stale || due && time.Since(st.heard) >= st.sock.streams.silent)
		st.mu.Unlock()
		if !stale {
			st.credit(conn, due)
			continue
		}
		if !again.wait(st.ctx, expect) {
			continue
		}
		if err := st.attach(); err != nil && st.ctx.Err() == nil {
			if !passing(err) {
				st.finish(err)
				return
			}
			st.mu.Lock()
			st.stale, st.trouble = true, err
			st.mu.Unlock()
			st.nudge()
		}
	}
}

// miss says that something may be missing.
func (st *Stream) miss() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.stale = true
}

// attempts space out the attempts to attach a stream that come to nothing.
type attempts struct {
	pause  backoff.Backoff
	expect int64 // where the stream stood at the last one
	last   time.Time
}

// wait waits before the next attempt, unless there was progress since the last
// or it is long ago. It says false if ctx ended.
func (a *attempts) wait(ctx context.Context, expect int64) bool {
	if expect > a.expect || time.Since(a.last) > calm {
		a.pause = backoff.Backoff{Base: 200 * time.Millisecond, Max: 15 * time.Second, Jitter: 200 * time.Millisecond}
	} else {
		t := time.NewTimer(a.pause.Next())
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return false
		}
	}
	a.expect, a.last = expect, time.Now()
	return true
}

// calm is how long an attempt must be over to count no more: longer than the
// longest pause.
const calm = 20 * time.Second

// passing says whether what keeps a stream from being attached may be over soon.
func passing(err error) bool {
	switch wire.CodeOf(err) {
	case wire.MachineUnreachable, wire.RequestTimeout, wire.ShimOverloaded, wire.OpUnconfirmed, RelayUnreachable, relayUnavailable:
		return true
	}
	return false
}

// credit gives the device as much as was read since, if that is worth a frame or
// one is due anyway. A frame that is lost shows by the silence after it.
func (st *Stream) credit(conn *connection, due bool) {
	st.mu.Lock()
	n := st.owed
	if st.over || n < max(st.room/4, 1) && !due {
		st.mu.Unlock()
		return
	}
	st.owed = 0
	st.mu.Unlock()
	session, machine := st.at()
	_ = conn.link.Send(st.ctx, link.Answers, wire.Message{Type: wire.TStreamCredit, ID: st.sock.newID(),
		SessionID: session, TargetMachine: machine, Payload: wire.StreamCredit{Stream: st.id, Bytes: n}})
}

// attach attaches the stream where it stands.
func (st *Stream) attach() error {
	st.mu.Lock()
	from := st.expect
	// What is still unread was sent on earlier credit and comes back when it is read.
	in := wire.StreamAttach{Stream: st.id, From: &from, Credit: max(st.room-st.unread, 1)}
	st.owed, st.stale = 0, false
	st.mu.Unlock()
	return st.do(st.ctx, request{
		method: method(wire.TStreamAttach), payload: in,
		arrived: func(conn *connection, _ []byte) { st.attached(conn) },
	}, nil)
}

// attached is called by the reader before any frame of the new attachment. What
// was missing before doesn't matter any more.
func (st *Stream) attached(conn *connection) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.conn, st.heard, st.stale, st.trouble = conn, time.Now(), false, nil
}
