// Package natsfeed is the events.Feed of a relay of several instances: one stream
// of NATS JetStream, to which every instance publishes and which every instance
// mirrors. So each tells the same events in the same order, a cursor is good at all
// of them, and what an instance has published stays when it dies.
//
// The cursor is the event's number in the stream. Every event is published with
// the number of the one before it of the same owner, and the stream takes it only
// if that is true: so each instance sees exactly where something is missing, be it
// that more happened than is kept or that it was cut off meanwhile.
//
// What can't be published waits, in order, until NATS is back. If too much waits,
// the rest is dropped, and its owners are told of the gap.
package natsfeed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"farhand/relay/events"
	"farhand/relay/store"
)

var _ events.Feed = (*Feed)(nil)

const (
	// maxAll bounds the events of all owners in the stream; they have a few hundred
	// bytes each.
	maxAll = 1 << 18
	// maxWaiting bounds what waits for being published.
	maxWaiting = 1 << 14
	// callTime bounds one question to NATS, pause is until it is asked again, and
	// flushTime is for what waits when the feed is closed.
	callTime  = 5 * time.Second
	pause     = 250 * time.Millisecond
	flushTime = time.Second
	// openTime is for what has just started and doesn't answer yet.
	openTime = 20 * time.Second
	// A mirror asks for more each pullTime and hears a heartbeat in between.
	pullTime  = 10 * time.Second
	heartbeat = time.Second

	// lifeKey is what tells a stream from another of the same name, made later: a
	// cursor is good for one.
	lifeKey = "life"
	// beforeHeader is the number of the owner's event before.
	beforeHeader = "Farhand-Before"
)

// Options say where the events are.
type Options struct {
	// Name is that of the cluster: letters, digits, "-", "_".
	Name string
	// Replicas is how many servers keep the events, 1 to 5.
	Replicas int
	Log      *slog.Logger // nil: nothing is logged
}

// Feed is one instance's. Its methods are safe for concurrent use.
type Feed struct {
	js   jetstream.JetStream
	o    Options
	pre  string // of the subjects
	log  *slog.Logger
	done sync.WaitGroup

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	room   int // maxWaiting, but for tests

	mu     sync.Mutex
	life   string // of the stream that is mirrored
	seen   uint64 // number of the last event that was mirrored
	owners map[string]*ring
	wait   []waiting
	lost   map[string]bool // owners of what was dropped
	closed bool
	work   chan struct{} // has the publisher look; capacity 1
}

// ring has the newest events of an owner.
type ring struct {
	entries   []entry       // the oldest first; of them the last events.Kept count
	published uint64        // number of the newest that was published here
	wake      chan struct{} // closed and replaced with each event
}

// kept are the entries that count.
func (r *ring) kept() []entry { return r.entries[max(0, len(r.entries)-events.Kept):] }

type entry struct {
	number, before uint64
	event          events.Event
}

// waiting is an event that is to be published.
type waiting struct {
	owner string
	event events.Event
}

// Open finds or makes the stream and reads what it has. The connection stays the
// caller's and has to outlive the Feed.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Feed, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	f := &Feed{js: js, o: o, pre: "farhand." + o.Name + ".event.", log: o.Log, room: maxWaiting, owners: make(map[string]*ring), lost: make(map[string]bool), work: make(chan struct{}, 1)}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	var first opening
	first.done = make(chan struct{})
	f.done.Go(func() { f.mirror(&first) })
	f.done.Go(f.publish)
	late := time.NewTimer(openTime)
	defer late.Stop()
	select {
	case <-first.done:
		return f, nil
	case <-late.C:
		err = errors.New("NATS doesn't answer in time")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("events: %w", errors.Join(err, first.failed)) // which nobody writes any more
}

// opening is the first reading of the stream.
type opening struct {
	once   sync.Once
	done   chan struct{} // closed when all was read that there was
	failed error         // why not, the last time
}

func (o *opening) ready() { o.once.Do(func() { close(o.done) }) }

// Close ends the feed. What waits still has a moment.
func (f *Feed) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.look()
	flushed := time.AfterFunc(flushTime, f.cancel) // the publisher does so as soon as nothing waits
	f.done.Wait()
	flushed.Stop()
	return nil
}

// Publish implements events.Feed: the event is told when the stream has it.
func (f *Feed) Publish(owner string, e events.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	e.Cursor = ""
	f.mu.Lock()
	switch {
	case f.closed:
	case len(f.wait) >= f.room:
		f.lost[owner] = true
	default:
		f.wait = append(f.wait, waiting{owner, e})
	}
	f.mu.Unlock()
	f.look()
}

func (f *Feed) look() {
	select {
	case f.work <- struct{}{}:
	default:
	}
}

// publish publishes what waits, one after the other, as long as that takes.
func (f *Feed) publish() {
	for {
		w, more := f.next()
		if !more {
			f.mu.Lock()
			closed := f.closed
			f.mu.Unlock()
			if closed {
				f.cancel()
				return
			}
			select {
			case <-f.work:
			case <-f.ctx.Done():
				return
			}
			continue
		}
		if !f.put(w) {
			return
		}
	}
}

// next is what is to be published next: after all that waited, what was lost.
func (f *Feed) next() (waiting, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wait) > 0 {
		w := f.wait[0]
		f.wait[0] = waiting{}
		if f.wait = f.wait[1:]; len(f.wait) == 0 {
			f.wait = nil // with what it grew to
		}
		return w, true
	}
	for owner := range f.lost {
		delete(f.lost, owner)
		return waiting{owner, events.Event{Time: time.Now().UTC(), Gap: events.NotRecorded}}, true
	}
	return waiting{}, false
}

// put publishes one event until the stream has it; false: until the feed was
// closed.
func (f *Feed) put(w waiting) bool {
	body, err := json.Marshal(w.event)
	if err != nil { // our own struct
		f.log.Error("event not encoded", "type", w.event.Type, "err", err.Error())
		return true
	}
	subject, id := f.pre+store.Token(w.owner), nuid.Next()
	before := f.newest(w.owner)
	for tries := 0; ; tries++ {
		m := nats.NewMsg(subject)
		m.Data = body
		m.Header.Set(beforeHeader, strconv.FormatUint(before, 10))
		ctx, cancel := context.WithTimeout(f.ctx, callTime)
		// Asked after before was read: what another instance tells in between is a
		// conflict, and has it asked again.
		if still := w.event.Still; still != nil && !still(ctx) {
			cancel()
			f.log.Debug("event not published: it is no longer true", "type", string(w.event.Type), "machine", w.event.Machine)
			return true
		}
		// The id makes it one event however often it is tried.
		ack, err := f.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(before), jetstream.WithMsgID(id))
		if conflict(err) {
			before, err = f.newestThere(ctx, subject)
			if err == nil {
				cancel()
				continue
			}
		}
		cancel()
		if err == nil {
			f.mu.Lock()
			f.owner(w.owner).published = ack.Sequence
			f.mu.Unlock()
			return true
		}
		if f.ctx.Err() != nil {
			return false
		}
		if tries == 0 {
			f.log.Warn("event not published, which is tried again", "type", string(w.event.Type), "err", err.Error())
		}
		if !f.rest() {
			return false
		}
	}
}

// rest waits a little; false: the feed was closed meanwhile.
func (f *Feed) rest() bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// conflict says that the owner's newest event is another than was said.
func conflict(err error) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// newest is the number of the owner's newest event that is known here.
func (f *Feed) newest(owner string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.owner(owner)
	if n := len(r.entries); n > 0 {
		return max(r.published, r.entries[n-1].number)
	}
	return r.published
}

// newestThere is what the stream says about that.
func (f *Feed) newestThere(ctx context.Context, subject string) (uint64, error) {
	stream, err := f.js.Stream(ctx, f.stream())
	if err != nil {
		return 0, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Sequence, nil
}

func (f *Feed) stream() string { return "EVENTS_" + f.o.Name }

// open finds the stream, or makes it.
func (f *Feed) open(ctx context.Context) (jetstream.Stream, *jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	stream, err := f.js.Stream(ctx, f.stream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		var life [6]byte
		_, _ = rand.Read(life[:]) // never fails
		stream, err = f.js.CreateStream(ctx, f.layout(hex.EncodeToString(life[:]), f.o.Replicas))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another instance was faster
			stream, err = f.js.Stream(ctx, f.stream())
		}
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	if have := info.Config; have.Replicas < f.o.Replicas {
		if stream, err = f.js.UpdateStream(ctx, f.layout(have.Metadata[lifeKey], f.o.Replicas)); err != nil {
			return nil, nil, err
		}
	}
	return stream, info, nil
}

func (f *Feed) layout(life string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: f.stream(), Description: "events of farhand-relay", Subjects: []string{f.pre + ">"},
		Storage: jetstream.FileStorage, Replicas: max(replicas, 1), Discard: jetstream.DiscardOld,
		MaxMsgsPerSubject: events.Kept, MaxMsgs: maxAll, Metadata: map[string]string{lifeKey: life},
	}
}

// mirror follows the stream, however often that has to be begun anew.
func (f *Feed) mirror(first *opening) {
	for {
		err := f.follow(first)
		if f.ctx.Err() != nil {
			return
		}
		first.failed = err
		f.log.Debug("events are not followed, which is tried again", "err", err.Error())
		if !f.rest() {
			return
		}
	}
}

// follow mirrors the stream until something is in the way.
func (f *Feed) follow(first *opening) error {
	stream, info, err := f.open(f.ctx)
	if err != nil {
		return err
	}
	from := f.begin(info)
	ctx, cancel := context.WithTimeout(f.ctx, callTime)
	defer cancel()
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Name: nuid.Next(), FilterSubject: f.pre + ">", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 2 * pullTime,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullExpiry(pullTime), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return err
	}
	defer messages.Stop()
	there := info.State.LastSeq
	if info.State.Msgs == 0 {
		there = 0
	}
	for n := uint64(1); ; n++ {
		if f.upTo(there) {
			first.ready()
		}
		m, err := messages.Next(jetstream.NextContext(f.ctx))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil || meta.Sequence.Consumer != n {
			return errors.New("a message is missing")
		}
		f.take(m, meta.Sequence.Stream)
	}
}

// begin says from which number on the stream is to be read: where the mirror
// stands, or all of it if it is another than before.
func (f *Feed) begin(info *jetstream.StreamInfo) (from uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if life := info.Config.Metadata[lifeKey]; life != f.life || info.State.LastSeq < f.seen {
		if f.life != "" {
			f.log.Warn("the events that NATS kept are gone")
		}
		f.life, f.seen = life, 0
		for _, r := range f.owners {
			r.entries, r.published = nil, 0
			r.tell()
		}
	}
	return f.seen + 1
}

// upTo says whether all numbers up to n were read.
func (f *Feed) upTo(n uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen >= n
}

// take takes one event in.
func (f *Feed) take(m jetstream.Msg, number uint64) {
	owner := store.Split(strings.TrimPrefix(m.Subject(), f.pre))[0]
	before, err := strconv.ParseUint(m.Headers().Get(beforeHeader), 10, 64)
	e := entry{number: number, before: before}
	if err == nil {
		err = json.Unmarshal(m.Data(), &e.event)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = number
	if err != nil {
		f.log.Error("what is no event is among the events", "number", number, "err", err.Error())
		return
	}
	e.event.Cursor = f.cursor(number)
	r := f.owner(owner)
	if len(r.entries) >= 2*events.Kept { // moved seldom, since it is all of them
		r.entries = slices.Clone(r.kept())
	}
	r.entries = append(r.entries, e)
	r.tell()
}

// owner is the ring of an owner. Called with mu.
func (f *Feed) owner(id string) *ring {
	r := f.owners[id]
	if r == nil {
		r = &ring{wake: make(chan struct{})}
		f.owners[id] = r
	}
	return r
}

func (r *ring) tell() {
	close(r.wake)
	r.wake = make(chan struct{})
}

func (f *Feed) cursor(n uint64) string { return f.life + "." + strconv.FormatUint(n, 10) }

// Since implements events.Feed. A cursor that another instance gave out may be
// ahead of what this one has seen: then there is nothing yet.
func (f *Feed) Since(owner, cursor string) (list []events.Event, next string, gap events.Gap, wake <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.owner(owner)
	at, known := uint64(0), false
	if cursor != "" {
		life, n, ok := events.ParseCursor(cursor)
		switch {
		case !ok:
			return nil, "", "", nil, events.NoCursor()
		case life != f.life:
			gap = events.Restarted
		default:
			at, known = uint64(n), true
		}
	}
	for _, e := range r.kept() {
		if e.number <= at {
			continue
		}
		if known && e.before > at {
			if len(list) == 0 {
				gap = events.TooOld
			} else { // in the middle: this instance was cut off, and more happened than is kept
				list = append(list, events.Event{Time: e.event.Time, Gap: events.TooOld})
			}
		}
		list = append(list, e.event)
		at, known = e.number, true
	}
	return list, f.cursor(at), gap, r.wake, nil
}
