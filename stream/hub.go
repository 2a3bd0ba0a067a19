package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"farhand/internal/pulse"
	"farhand/internal/sorted"
	"farhand/wire"
)

// Defaults of HubOptions and Options.
const (
	DefaultRing   = 256 << 10
	DefaultMemory = 32 << 20
	DefaultRetain = 15 * time.Minute
	// DefaultRetainShared is for who comes back to a terminal after hours. Of what
	// is kept so long, the oldest goes when others need the memory.
	DefaultRetainShared = 2 * time.Hour
	DefaultIdle         = 300 * time.Second
)

// maxPast bounds the ended streams that can still be fetched: a session that
// opens and ends streams as fast as it can makes many of next to nothing.
const maxPast = 1024

// HubOptions are the bounds of a Hub.
type HubOptions struct {
	// Memory bounds the rings of all streams together, in bytes. 0 means
	// DefaultMemory.
	Memory int
	// Retain is how long an ended stream can still be fetched. 0 means
	// DefaultRetain.
	Retain time.Duration
	// RetainShared is that of a Shared. 0 means DefaultRetainShared.
	RetainShared time.Duration
	// Idle ends a stream whose receiver was not heard of for so long: it neither
	// gave credit nor attached. 0 means DefaultIdle.
	Idle time.Duration
	// OnEnd is told of each stream that has ended. It must not block.
	OnEnd func(Info)
	Log   *slog.Logger
}

// Hub has all streams of a machine. Close it when done.
type Hub struct {
	opts HubOptions

	mu      sync.Mutex
	closed  bool
	streams map[string]*Stream
	past    []*Stream      // those of them that have ended, the oldest first
	reserve int            // bytes that the rings of the others may take
	taken   map[string]int // of them, by who opened them: see Owner.payer
	senders sync.WaitGroup
}

// NewHub makes an empty hub.
func NewHub(o HubOptions) *Hub {
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Retain = cmp.Or(o.Retain, DefaultRetain)
	o.RetainShared = cmp.Or(o.RetainShared, DefaultRetainShared)
	o.Idle = cmp.Or(o.Idle, DefaultIdle)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Hub{opts: o, streams: make(map[string]*Stream), taken: make(map[string]int)}
}

// Alive returns nil once the hub's lock was free, which every stream needs. The
// error says that it wasn't until ctx ended.
func (h *Hub) Alive(ctx context.Context) error {
	return pulse.Locked(ctx, "the streams' lock", func() {
		h.mu.Lock()
		defer h.mu.Unlock()
	})
}

// fair is how many times what stays free one holder's rings may take, so that
// there is always some for others: one alone has at most 7/8 of the memory, and who
// comes after two that take what they can still finds 1/15 of it.
const fair = 7

// Open makes a stream. Nobody receives it until Attach. If all rings together
// would take more memory than they may, the oldest that has ended goes; without
// one it is SHIM_OVERLOADED, as it is if those of one holder would take more than
// their share.
func (h *Hub) Open(o Options) (*Stream, error) {
	o.Ring = cmp.Or(o.Ring, DefaultRing)
	credit, err := validCredit(o.Credit)
	if err != nil {
		return nil, err
	}
	o.Credit = credit
	s := h.newStream(o, plain, newSource(o))
	if err := h.add(s); err != nil {
		return nil, err
	}
	return s, nil
}

func (h *Hub) newStream(o Options, k kind, x *source) *Stream {
	var random [16]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	return &Stream{hub: h, opts: o, id: hex.EncodeToString(random[:]), done: make(chan struct{}), kind: k, source: x, tended: time.Now()}
}

// add takes a new stream in.
func (h *Hub) add(s *Stream) error {
	o := s.opts
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return wire.Errorf(wire.InternalError, "the daemon is stopping")
	}
	if mine := h.taken[o.payer()]; o.Ring > 0 && mine > 0 && !o.again && mine+o.Ring > fair*(h.opts.Memory-h.reserve-o.Ring) {
		return wire.Errorf(wire.ShimOverloaded, "your open streams take as much memory as one login or token may now").
			With("stream_memory_bytes", h.opts.Memory).With("stream_memory_yours", mine).
			With("hint", "close a stream, or raise limits.stream_memory_bytes")
	}
	for h.reserve+h.kept()+o.Ring > h.opts.Memory {
		if len(h.past) == 0 {
			return wire.Errorf(wire.ShimOverloaded, "the streams that are open take all the memory they may").
				With("stream_memory_bytes", h.opts.Memory).With("hint", "close a stream, or raise limits.stream_memory_bytes")
		}
		h.forget(h.past[0])
	}
	h.streams[s.id] = s
	h.take(s, o.Ring)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind != view {
		s.streams = append(s.streams, s)
	}
	s.expiry = time.AfterFunc(h.opts.Idle, func() { h.idle(s) })
	if s.kind == share {
		s.expiry.Stop() // nobody tends it
	}
	return nil
}

// take counts what the ring of a stream that has not ended may take. Called with
// mu.
func (h *Hub) take(s *Stream, n int) {
	h.reserve += n
	who := s.opts.payer()
	if h.taken[who] += n; h.taken[who] == 0 {
		delete(h.taken, who)
	}
}

// validCredit is the credit that a request asks for.
func validCredit(n int) (int, error) {
	if n < 0 || n > wire.MaxStreamCredit {
		return 0, wire.Errorf(wire.InvalidArgument, "credit must be 0 to %d bytes, not %d", wire.MaxStreamCredit, n).With("field", "credit")
	}
	return cmp.Or(n, wire.StreamCreditDefault), nil
}

// kept is what the ended streams still take. Called with mu.
func (h *Hub) kept() int {
	n := 0
	for _, s := range h.past {
		if s.kind == view {
			continue
		}
		s.mu.Lock()
		n += s.ring.held
		s.mu.Unlock()
	}
	return n
}

// forget drops an ended stream. Called with mu.
func (h *Hub) forget(s *Stream) {
	delete(h.streams, s.id)
	h.past = slices.DeleteFunc(h.past, func(x *Stream) bool { return x == s })
	s.mu.Lock()
	s.expiry.Stop()
	s.detach()
	if s.kind == share {
		s.ring.clear() // whoever has the Shared still doesn't keep it
	}
	s.mu.Unlock()
	if s.kind == share {
		for _, x := range slices.Clone(h.past) {
			if x.source == s.source {
				h.forget(x)
			}
		}
	}
}

// ended is told by a stream that its end has come.
func (h *Hub) ended(s *Stream) {
	h.mu.Lock()
	switch {
	case h.streams[s.id] != s:
	case s.kind == view && !s.sourceEnded():
		h.forget(s) // what it carries goes on, and can be had by another
	case h.closed:
		h.forget(s) // Close, which waits for its receiver, may have looked already
	default:
		h.take(s, -s.opts.Ring)
		h.past = append(h.past, s)
		if len(h.past) > maxPast {
			h.forget(h.past[0])
		}
		s.mu.Lock()
		s.expiry.Stop()
		retain := h.opts.Retain
		if s.kind == share {
			retain = h.opts.RetainShared
		}
		s.expiry = time.AfterFunc(retain, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.forget(s)
		})
		s.mu.Unlock()
	}
	h.mu.Unlock()
	if h.opts.OnEnd != nil && s.kind != share {
		h.opts.OnEnd(s.Info())
	}
}

// idle ends a stream that nobody tends.
func (h *Hub) idle(s *Stream) {
	s.mu.Lock()
	if s.end != nil {
		s.mu.Unlock()
		return
	}
	if left := h.opts.Idle - time.Since(s.tended); left > 0 {
		s.expiry.Reset(left)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.End(ReasonIdle, nil)
}

// find is the stream with this id if by may have it.
func (h *Hub) find(id string, by Owner) (*Stream, error) {
	h.mu.Lock()
	s := h.streams[id]
	h.mu.Unlock()
	if s == nil || s.kind == share || !s.opts.May(by) {
		return nil, wire.Errorf(wire.StreamNotFound, "no such stream, or it is somebody else's").With("stream", clip(id))
	}
	return s, nil
}

func clip(id string) string { return id[:min(len(id), 64)] }

// Outlet is where frames go: one request's socket.
type Outlet interface {
	// Request is the id of the request that the frames belong to.
	Request() string
	// Send sends one frame, and waits for the writer. It fails for good.
	Send(ctx context.Context, id string, d wire.StreamData) error
	// Context ends with the socket.
	Context() context.Context
}

// Begin attaches the receiver whose request has opened the stream, once the
// answer to it has left.
func (h *Hub) Begin(id string, out Outlet) {
	h.mu.Lock()
	s := h.streams[id]
	h.mu.Unlock()
	if s != nil {
		h.attach(s, out, s.opts.from, s.opts.Credit)
	}
}

// Attach answers STREAM_ATTACH. The receiver that was attached before gets no
// more. The function that it returns lets the frames flow: it is to be called
// when the answer has left.
func (h *Hub) Attach(r wire.StreamAttach, by Owner, out Outlet) (wire.StreamAttached, func(), error) {
	s, err := h.find(r.Stream, by)
	if err != nil {
		return wire.StreamAttached{}, nil, err
	}
	credit, err := validCredit(r.Credit)
	if err != nil {
		return wire.StreamAttached{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := wire.StreamAttached{Stream: s.id, Oldest: s.ring.oldest(), Next: s.ring.next()}
	from := a.Oldest
	if r.From != nil {
		if *r.From < 0 || *r.From > a.Next {
			return wire.StreamAttached{}, nil, wire.Errorf(wire.InvalidArgument, "from must be 0 to %d, not %d", a.Next, *r.From).
				With("field", "from").With("oldest", a.Oldest).With("next", a.Next)
		}
		from = *r.From
	}
	s.detach()
	s.tended = time.Now()
	return a, func() { h.attach(s, out, from, credit) }, nil
}

// Credit takes STREAM_CREDIT. What it says of a stream that isn't there, or
// isn't by's, is dropped.
func (h *Hub) Credit(r wire.StreamCredit, by Owner) {
	s, err := h.find(r.Stream, by)
	if err != nil || r.Bytes < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tended = time.Now()
	if s.cur != nil {
		n := min(r.Bytes, wire.MaxStreamCredit)
		s.cur.credit = min(s.cur.credit+n, wire.MaxStreamCredit)
		s.receiverHad(s.had + int64(n))
		s.tell()
	}
}

// CloseStream answers STREAM_CLOSE: the stream ends and is forgotten.
func (h *Hub) CloseStream(id string, by Owner) {
	s, err := h.find(id, by)
	if err != nil {
		return // ended and forgotten already
	}
	s.mu.Lock()
	s.detach() // its receiver wants nothing more
	s.mu.Unlock()
	s.End(ReasonClosed, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[id] == s {
		h.forget(s)
	}
}

// EndWhere ends the streams that which chooses, and answers how many. which
// must not call back.
func (h *Hub) EndWhere(reason string, which func(Info) bool) int {
	n := 0
	for _, s := range h.all() {
		if i := s.Info(); i.Ended == "" && s.kind != share && which(i) {
			s.End(reason, nil)
			n++
		}
	}
	return n
}

// Drain waits until what has ended has also been sent as far as credit reaches
// it, but not longer than ctx.
func (h *Hub) Drain(ctx context.Context) {
	h.mu.Lock()
	past := slices.Clone(h.past)
	h.mu.Unlock()
	for _, s := range past {
		s.mu.Lock()
		a := s.cur
		s.mu.Unlock()
		if a == nil {
			continue
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return
		}
	}
}

// List describes all streams that have not ended, by id.
func (h *Hub) List() []Info {
	var all []Info
	for _, s := range h.all() {
		if i := s.Info(); i.Ended == "" && s.kind != share {
			all = append(all, i)
		}
	}
	sorted.By(all, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (h *Hub) all() []*Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Stream, 0, len(h.streams))
	for _, s := range h.streams {
		all = append(all, s)
	}
	return all
}

// Close ends all streams and waits for all that sends.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, s := range h.all() {
		s.End(ReasonStopping, nil)
	}
	h.mu.Lock()
	for len(h.past) > 0 {
		h.forget(h.past[0])
	}
	h.mu.Unlock()
	h.senders.Wait()
	return nil
}

// attachment is one receiver for as long as it receives.
type attachment struct {
	out    Outlet
	next   int64
	credit int // guarded by the stream's mu
	news   chan struct{}
	done   chan struct{} // closed when it sends no more
	cancel context.CancelFunc
}

func (h *Hub) attach(s *Stream, out Outlet, from int64, credit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.streams[s.id] != s {
		return
	}
	ctx, cancel := context.WithCancel(out.Context())
	a := &attachment{out: out, next: from, credit: credit, news: make(chan struct{}, 1), done: make(chan struct{}), cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detach()
	s.cur, s.tended = a, time.Now()
	s.receiverHad(s.ring.before(from))
	h.senders.Go(func() {
		defer close(a.done)
		defer cancel()
		if err := h.send(ctx, s, a); err != nil && !errors.Is(err, context.Canceled) {
			h.opts.Log.Debug("stream not received any more", "stream", s.id, "err", err)
		}
	})
}

// detach ends whoever receives. Called with mu.
func (s *Stream) detach() {
	if s.cur != nil {
		s.cur.cancel()
		s.cur = nil
	}
}

// send sends until the receiver is gone, another comes or the end was sent.
func (h *Hub) send(ctx context.Context, s *Stream, a *attachment) error {
	for n := 1; ; n++ {
		d, err := s.take(ctx, a)
		if err != nil {
			return err
		}
		if err := a.out.Send(ctx, a.out.Request()+"/"+strconv.Itoa(n), d); err != nil {
			return err
		}
		if d.End != nil {
			return nil
		}
	}
}

// take waits for the next frame.
func (s *Stream) take(ctx context.Context, a *attachment) (wire.StreamData, error) {
	for {
		s.mu.Lock()
		if s.cur != a {
			s.mu.Unlock()
			return wire.StreamData{}, context.Canceled
		}
		d, ok := s.frame(a)
		s.mu.Unlock()
		if ok {
			return d, nil
		}
		select {
		case <-a.news:
		case <-ctx.Done():
			return wire.StreamData{}, ctx.Err()
		}
	}
}

// frame is the next frame as far as credit reaches. Called with mu.
func (s *Stream) frame(a *attachment) (wire.StreamData, bool) {
	d := wire.StreamData{Stream: s.id, Offset: a.next}
	most := min(a.credit, wire.StreamDataMax)
	var c chunk
	some := false
	if most > 0 {
		c, some = s.ring.read(a.next, most)
	}
	if some {
		d.Offset, d.Data, d.Records, d.Lost = c.offset, c.data, c.records, c.lost
		a.next = c.next
		a.credit -= c.size
		s.sent += int64(c.size)
	}
	if s.end != nil && a.next == s.ring.next() {
		d.End = s.end
		return d, true
	}
	return d, some
}
