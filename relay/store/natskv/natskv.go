// Package natskv is the store.Store of a relay of several instances: a bucket
// of NATS JetStream (a stream with the layout of its key-value stores, so that
// `nats kv` reads it), which the NATS servers replicate.
//
// Every read is answered by the stream's leader, never by a replica that may
// lag, so what one instance wrote every other reads. Every write is published
// with the revision that it replaces, and the leader refuses it if that isn't
// the newest any more; the revision is the sequence number in the stream. How
// long a write that returned nil lasts is the servers' business: with
// sync_interval: always and three replicas it survives the crash of any one of
// them, and the loss of power of all.
//
// Expiry stands before the value and is judged by the reader's clock, so the
// hosts' clocks have to agree about as well as for TLS. The servers remove what
// has expired by the message's own time to live.
package natskv

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/sync/errgroup"

	"farhand/relay/store"
)

var _ store.Store = (*Store)(nil)

const (
	// MinPayload is what the servers' max_payload must be at least, in bytes:
	// the largest value with its headers. NATS has 1 MiB unless told otherwise.
	MinPayload = store.MaxValue + 64<<10
	// markerLife is how long a deletion stays in the stream: an instance that
	// was cut off for less still hears of it.
	markerLife = 24 * time.Hour
	// minTTL is the shortest and the unit of the times to live that a server knows.
	minTTL = time.Second
	// readers is how many records List fetches at a time.
	readers = 16
	// attempts bounds how often a write that follows a read is tried again when
	// others change the same key in between.
	attempts = 64
	// manyReplicas is what a cluster of three or more keeps unless told otherwise.
	manyReplicas = 3
	// callTime bounds each call, however long the caller would wait. What isn't
	// answered in tryTime is asked again: while the servers elect a leader,
	// which takes them seconds, nobody answers.
	callTime = 10 * time.Second
	tryTime  = 2 * time.Second
	// pause is between two tries of what was refused at once.
	pause = 100 * time.Millisecond
	// A watch asks for more each pullTime and hears a heartbeat in between; two
	// that are missing, and it goes on by way of another server.
	pullTime  = 10 * time.Second
	heartbeat = time.Second
)

// ErrUnfit marks servers that can't hold the store as they are configured.
var ErrUnfit = errors.New("these NATS servers can't be used")

// Options say where the records lie.
type Options struct {
	// Bucket is the name of the key-value bucket: letters, digits, "_", "-".
	Bucket string
	// Replicas is how many servers keep each record, 1 to 5. Zero: three where
	// the cluster has as many, else one.
	Replicas int
}

// Store is a bucket. All methods are safe for concurrent use.
type Store struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	pre    string // of the subjects

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup // watches
	mu     sync.Mutex     // between Close and a watch that begins
}

// Open finds or makes the bucket. The connection stays the caller's and has to
// outlive the Store. ErrUnfit, wrapped, says what has to be configured
// differently.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Store, error) {
	if max := nc.MaxPayload(); max < MinPayload {
		return nil, fmt.Errorf("store: max_payload is %d bytes, and the longest record needs %d: set max_payload: 1MB in the servers' configuration: %w",
			max, MinPayload, ErrUnfit)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	account, err := try(ctx, func(ctx context.Context) (*jetstream.AccountInfo, error) { return js.AccountInfo(ctx) })
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return nil, fmt.Errorf("store: JetStream is off for this account: add jetstream {store_dir: …, sync_interval: always} to the servers' configuration: %w", ErrUnfit)
	case err != nil:
		return nil, fmt.Errorf("store: asking NATS for JetStream: %w", err)
	case account.API.Level < 1:
		return nil, fmt.Errorf("store: NATS %s can't end single records: it takes version 2.11 or newer: %w", nc.ConnectedServerVersion(), ErrUnfit)
	}
	s := &Store{js: js, pre: "$KV." + o.Bucket + "."}
	if s.stream, err = s.open(ctx, o, nc.ConnectedClusterName() != ""); err != nil {
		return nil, fmt.Errorf("store: bucket %s: %w", o.Bucket, err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// open makes the stream as it has to be, with as many replicas as are wanted
// and can be had, never with fewer than it has.
func (s *Store) open(ctx context.Context, o Options, clustered bool) (jetstream.Stream, error) {
	want := cmp.Or(o.Replicas, manyReplicas)
	old, err := try(ctx, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, "KV_"+o.Bucket) })
	have := 1
	switch {
	case err == nil:
		have = old.CachedInfo().Config.Replicas
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, err
	}
	if o.Replicas == 0 {
		want = max(want, have)
	}
	if !clustered && o.Replicas == 0 {
		want = have
	}
	stream, err := s.make(ctx, o.Bucket, want)
	// Servers that have just started don't know each other yet.
	for began := time.Now(); clustered && tooFewServers(err) && time.Since(began) < tryTime; {
		wait(ctx, pause)
		stream, err = s.make(ctx, o.Bucket, want)
	}
	if tooFewServers(err) && o.Replicas == 0 {
		stream, err = s.make(ctx, o.Bucket, have)
	}
	if tooFewServers(err) {
		return nil, fmt.Errorf("%d replicas need as many servers: %w: %w", want, err, ErrUnfit)
	}
	return stream, err
}

func (s *Store) make(ctx context.Context, bucket string, replicas int) (jetstream.Stream, error) {
	return try(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return s.js.CreateOrUpdateStream(ctx, layout(bucket, replicas))
	})
}

// try calls f until it is answered or ctx ends.
func try[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	for {
		once, cancel := context.WithTimeout(ctx, tryTime)
		v, err := f(once)
		cancel()
		switch {
		case ctx.Err() != nil:
			return v, err
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
			wait(ctx, pause)
		default:
			return v, err
		}
	}
}

// call is try within the time of one call.
func call[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return try(ctx, f)
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// layout is that of a key-value bucket (NATS ADR-8), but for reads, which have
// to go to the leader.
func layout(bucket string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                   "KV_" + bucket,
		Description:            "state of farhand-relay",
		Subjects:               []string{"$KV." + bucket + ".>"},
		Storage:                jetstream.FileStorage,
		Replicas:               replicas,
		MaxMsgsPerSubject:      1,
		MaxMsgs:                -1,
		MaxBytes:               -1,
		MaxConsumers:           -1,
		MaxMsgSize:             -1,
		Discard:                jetstream.DiscardNew,
		DenyDelete:             true,
		AllowRollup:            true,
		AllowDirect:            false,
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: markerLife,
	}
}

// tooFewServers says whether the servers refused because of the number of
// replicas: no cluster (10074), no suitable peers (10005).
func tooFewServers(err error) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (e.ErrorCode == 10074 || e.ErrorCode == 10005)
}

// Replicas is how many servers keep each record.
func (s *Store) Replicas() int { return s.stream.CachedInfo().Config.Replicas }

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := s.usable(ctx, store.CheckKey(key)); err != nil {
		return store.Entry{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	e, _, err := s.last(ctx, key)
	if err != nil {
		return store.Entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	return e, nil
}

// last reads the newest message of a key. ErrNotFound if that is no entry; at
// then is its sequence number all the same, zero if there is no message.
func (s *Store) last(ctx context.Context, key string) (e store.Entry, at uint64, err error) {
	m, err := try(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.stream.GetLastMsgForSubject(ctx, s.pre+key)
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return e, 0, store.ErrNotFound
	case err != nil:
		return e, 0, s.failure(err)
	}
	e, ok := decode(key, m.Header, m.Data, m.Sequence)
	if !ok {
		return e, m.Sequence, store.ErrNotFound
	}
	return e, m.Sequence, nil
}

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, key string, value []byte, expires time.Time) (uint64, error) {
	if err := s.usable(ctx, errors.Join(store.CheckKey(key), store.CheckValue(key, value))); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	over := uint64(0)
	for range attempts {
		revision, err := s.publish(ctx, entryOf(s.pre+key, value, expires), over)
		if !errors.Is(err, store.ErrConflict) {
			return revision, wrap(key, err)
		}
		// Something is there: an entry, or what is left of one.
		_, at, err := s.last(ctx, key)
		if err == nil {
			return 0, fmt.Errorf("%s: %w", key, store.ErrExists)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return 0, wrap(key, err)
		}
		over = at
	}
	return 0, fmt.Errorf("%s: others changed it %d times meanwhile", key, attempts)
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, key string, value []byte, expires time.Time, last uint64) (uint64, error) {
	if err := s.usable(ctx, errors.Join(store.CheckKey(key), store.CheckValue(key, value))); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	e, _, err := s.last(ctx, key) // one whose time is past isn't there
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && e.Revision != last:
		return 0, fmt.Errorf("%s: %w", key, store.ErrConflict)
	case err != nil:
		return 0, wrap(key, err)
	}
	revision, err := s.publish(ctx, entryOf(s.pre+key, value, expires), last)
	return revision, wrap(key, err)
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, last uint64) error {
	if err := s.usable(ctx, store.CheckKey(key)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for range attempts {
		e, at, err := s.last(ctx, key)
		switch {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return wrap(key, err)
		case last != 0 && (err != nil || e.Revision != last):
			return fmt.Errorf("%s: %w", key, store.ErrConflict)
		case err != nil: // nothing there, or what will go by itself
			return nil
		}
		m := nats.NewMsg(s.pre + key)
		m.Header.Set("KV-Operation", "DEL")
		m.Header.Set(jetstream.MsgTTLHeader, markerLife.String())
		_, err = s.publish(ctx, m, at)
		if !errors.Is(err, store.ErrConflict) || last != 0 {
			return wrap(key, err)
		}
	}
	return fmt.Errorf("%s: others changed it %d times meanwhile", key, attempts)
}

// publish writes m if the newest message of its subject is the one with the
// sequence number over; zero: if there is none. Otherwise ErrConflict. The id
// makes it one write however often it is tried: a try whose answer was lost
// shows as a duplicate, not as a conflict with ourselves.
func (s *Store) publish(ctx context.Context, m *nats.Msg, over uint64) (uint64, error) {
	id := jetstream.WithMsgID(nuid.Next())
	ack, err := try(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
		return s.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(over), id)
	})
	if err == nil {
		return ack.Sequence, nil
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); ok &&
		(e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, store.ErrConflict
	}
	return 0, s.failure(err)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	if err := s.usable(ctx, store.CheckPrefix(prefix)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	info, err := try(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return s.stream.Info(ctx, jetstream.WithSubjectFilter(s.pre+prefix+">"))
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, s.failure(err))
	}
	var mu sync.Mutex
	list := make([]store.Entry, 0, len(info.State.Subjects))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for subject := range info.State.Subjects {
		key := strings.TrimPrefix(subject, s.pre)
		group.Go(func() error {
			e, _, err := s.last(ctx, key)
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			list = append(list, e)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	slices.SortFunc(list, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan store.Event, error) {
	if err := s.usable(ctx, store.CheckPrefix(prefix)); err != nil {
		return nil, err
	}
	info, err := call(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return s.stream.Info(ctx) })
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, s.failure(err))
	}
	w := &watch{stream: s.stream, subject: s.pre + prefix + ">", next: info.State.LastSeq + 1}
	messages, err := call(ctx, w.consume)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, s.failure(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		messages.Stop()
		return nil, store.ErrClosed
	}
	ctx, stop := context.WithCancel(ctx)
	context.AfterFunc(s.ctx, stop)
	out := make(chan store.Event)
	s.done.Go(func() {
		defer close(out)
		defer stop()
		for {
			s.deliver(ctx, w, messages, out)
			messages.Stop()
			for messages = nil; messages == nil; {
				if ctx.Err() != nil {
					return
				}
				if messages, err = call(ctx, w.consume); err != nil {
					wait(ctx, pause)
				}
			}
		}
	})
	return out, nil
}

// watch is where a Watch stands. It goes through consumers that one server each
// keeps in its memory: when that is gone, another goes on from the same number.
// Each has a new name, since one that was given to a server that is gone stays
// there.
type watch struct {
	stream  jetstream.Stream
	subject string
	next    uint64 // sequence number from which on nothing was told yet
}

func (w *watch) consume(ctx context.Context) (jetstream.MessagesContext, error) {
	consumer, err := w.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Name:              nuid.Next(),
		FilterSubject:     w.subject,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       w.next,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: 2 * pullTime,
	})
	if err != nil {
		return nil, err
	}
	return consumer.Messages(jetstream.PullExpiry(pullTime), jetstream.PullHeartbeat(heartbeat))
}

// deliver tells what a consumer delivers, until that ends or misses something.
func (s *Store) deliver(ctx context.Context, w *watch, messages jetstream.MessagesContext, out chan<- store.Event) {
	for n := uint64(1); ; n++ {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return
		}
		meta, err := m.Metadata()
		if err != nil || meta.Sequence.Consumer != n {
			return
		}
		key := strings.TrimPrefix(m.Subject(), s.pre)
		e, ok := decode(key, m.Headers(), m.Data(), meta.Sequence.Stream)
		if !ok {
			e = store.Entry{Key: key}
		}
		select {
		case out <- store.Event{Entry: e, Deleted: !ok}:
			w.next = meta.Sequence.Stream + 1
		case <-ctx.Done():
			return
		}
	}
}

// Close implements store.Store. The connection to NATS stays open.
func (s *Store) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.done.Wait()
	return nil
}

func (s *Store) usable(ctx context.Context, invalid error) error {
	switch {
	case s.ctx.Err() != nil:
		return store.ErrClosed
	case invalid != nil:
		return invalid
	}
	return ctx.Err()
}

// failure says what failed that is no rule of the store.
func (s *Store) failure(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("%w: %w", store.ErrClosed, err)
	}
	return fmt.Errorf("NATS: %w", err)
}

func wrap(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// entryOf makes the message of an entry: when it expires (8 bytes, Unix
// nanoseconds, zero for never), then the value.
func entryOf(subject string, value []byte, expires time.Time) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = make([]byte, 8, 8+len(value))
	if !expires.IsZero() {
		binary.BigEndian.PutUint64(m.Data, uint64(expires.UnixNano()))
		// Never earlier than by the readers' clocks.
		ttl := max(time.Until(expires), 0).Truncate(minTTL) + 2*minTTL
		m.Header.Set(jetstream.MsgTTLHeader, ttl.String())
	}
	m.Data = append(m.Data, value...)
	return m
}

// decode copies an entry out of a message; false if it is a deletion, expired
// or nothing of ours.
func decode(key string, h nats.Header, data []byte, sequence uint64) (store.Entry, bool) {
	if h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != "" || len(data) < 8 {
		return store.Entry{}, false
	}
	e := store.Entry{Key: key, Revision: sequence, Value: slices.Clone(data[8:])}
	if at := int64(binary.BigEndian.Uint64(data)); at != 0 {
		e.Expires = time.Unix(0, at)
		if !time.Now().Before(e.Expires) {
			return store.Entry{}, false
		}
	}
	return e, true
}
