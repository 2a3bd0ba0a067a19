package route

import (
	"bytes"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"farhand/wire"
)

// Bounds of one lane.
const (
	maxQueued = 64 // requests waiting for the device
	// assumedWindow is how many requests a device takes that doesn't say: the
	// default of max_concurrent in protocol 1.1.
	assumedWindow = wire.DefaultMaxConcurrent
	maxWindow     = 1024 // what HELLO_ACK allows

	// A stream of LOCAL_LLM_COMPLETION_CHUNK that is longer than any sensible
	// answer is cut: the longest context windows of local models hold about a
	// million tokens, a chunk is about one.
	maxChunks = 1 << 20
)

// request is one request on its way to a device.
type request struct {
	method  wire.Method
	payload []byte
	data    []byte        // what is attached
	buf     *frameBuf     // what payload and data lie in, may be nil
	timeout time.Duration // from sending to the answer; for streams from one frame to the next
	total   time.Time     // for streams: the end of all patience, set when sent
	from    *operator     // nil for requests of our own
	asked   requestRef    // the operator's own name of it
	// pinned requests belong to the connection that is there now (browse
	// references do) and fail with it.
	pinned bool
	// urgent requests don't wait for the device to have room.
	urgent bool
	// limits are asked once more when the request is sent, since the approval may
	// have changed while it waited; nil for requests of our own. Takes no locks.
	limits func() ceilings
	// deliver gets the answer, once, without locks; it must not block.
	deliver func(result)
	// chunk gets what comes before the answer; nil if nothing may.
	chunk func(wire.Envelope, *frameBuf)

	sent atomic.Bool // the first byte went out

	// Of the lane, under its lock.
	seq     uint64
	id      string // of the frame sent
	retried bool
	// cancelled says that the device was told that nobody wants the answer: it is
	// told once, and what comes back to the queue isn't sent again.
	cancelled bool
	wait      *time.Timer // while queued
	queued    time.Time   // when wait was started
	limit     *time.Timer // while unanswered
	chunks    int
	bytes     int
}

// result is an answer of the device, or err if there is none.
type result struct {
	env wire.Envelope
	buf *frameBuf
	err *wire.Error
}

// lane carries the requests of one socket of a device in order and survives its
// reconnections: the queue, what is unanswered, and what is known of the
// device's capacity.
type lane struct {
	srv       *Server
	machineID string
	of        *machine // whose lane it is
	// hungry is called without the lock when requests wait and no connection is
	// there. It must see to it that attach or failQueued is called.
	hungry func()

	mu      sync.Mutex
	conn    *device
	queue   []*request
	pending map[string]*request
	bytes   int
	seq     uint64 // of the newest request
	issued  uint64 // frames sent
	// window is max_concurrent as far as it is known. While it isn't (0) one
	// request is sent at a time, since what a full device refuses could be
	// overtaken by what it takes; but not for longer than timing.probe.
	window  int
	told    bool // the device itself said so: STATUS or details of SHIM_OVERLOADED
	probing *time.Timer
	full    bool // the device reported no room: nothing is sent until it has some,
	try     bool // or one request, when it has long been silent about that
	trying  *time.Timer
	shut    *wire.Error
}

// deliveries are what is to be told once the lock is free.
type deliveries []func()

func (d deliveries) run() {
	for _, f := range d {
		f()
	}
}

// submit queues r behind those already there. The answer, a refusal included,
// comes by r.deliver.
func (l *lane) submit(r *request) {
	l.mu.Lock()
	switch {
	case l.shut != nil:
		err := l.shut
		l.mu.Unlock()
		r.finish(result{err: err})
		return
	case r.pinned && l.conn == nil:
		l.mu.Unlock()
		r.finish(result{err: l.of.unreachable()})
		return
	case r.urgent: // never refused for want of room: it takes rights away
	case len(l.queue) >= maxQueued || l.bytes > 0 && l.bytes+r.size() > l.srv.bounds.lane:
		window := l.window
		l.mu.Unlock()
		r.finish(result{err: l.of.overloaded(window)})
		return
	}
	l.seq++
	r.seq = l.seq
	l.bytes += r.size()
	if r.urgent {
		l.queue = append([]*request{r}, l.queue...)
	} else {
		l.queue = append(l.queue, r)
	}
	out := l.pump(nil)
	if r.id == "" {
		l.patience(r)
	}
	hungry := l.conn == nil && len(l.queue) > 0
	l.mu.Unlock()
	out.run()
	if hungry {
		l.hungry()
	}
}

// patience starts the time that r may stay in the queue. Called with the lock held.
func (l *lane) patience(r *request) {
	if r.wait == nil {
		r.queued = time.Now()
		r.wait = time.AfterFunc(l.srv.timing.queue, func() { l.giveUp(r) })
	}
}

// giveUp fails a request that stayed in the queue for too long.
func (l *lane) giveUp(r *request) {
	l.mu.Lock()
	at := -1
	for i, q := range l.queue {
		if q == r {
			at = i
		}
	}
	if at < 0 {
		l.mu.Unlock()
		return
	}
	if l.conn != nil && r.from != nil && !r.from.gone() && r.from.heldUp.Load() > r.queued.UnixNano() {
		r.wait = nil // it was the operator itself who kept it waiting
		l.patience(r)
		l.mu.Unlock()
		return
	}
	l.queue = append(l.queue[:at:at], l.queue[at+1:]...)
	err := l.of.overloaded(l.window)
	if l.conn == nil {
		err = l.of.unreachable()
	}
	f := l.done(r, result{err: err})
	l.mu.Unlock()
	f()
}

// done takes r off the books and returns what tells its sender. Called with the
// lock held, after r left queue and pending.
func (l *lane) done(r *request, res result) func() {
	l.bytes -= r.size()
	r.stop()
	return func() { r.finish(res) }
}

// size is what r counts for in the bound of a lane.
func (r *request) size() int { return len(r.payload) + len(r.data) }

// body is a payload that is passed on with what is attached to it.
func body(payload, data []byte) any {
	if len(data) == 0 {
		return wire.Raw(payload)
	}
	return &wire.Attached{Payload: wire.Raw(payload), Data: data}
}

func (r *request) stop() {
	if r.wait != nil {
		r.wait.Stop()
		r.wait = nil
	}
	if r.limit != nil {
		r.limit.Stop()
		r.limit = nil
	}
}

// finish tells the sender and gives the payload's memory back. Called once.
func (r *request) finish(res result) {
	r.deliver(res)
	if r.from != nil {
		r.from.srv.buffers.release(r.buf)
	}
}

// room says whether the device takes another request. Called with the lock held.
func (l *lane) room() bool {
	if l.full {
		return l.try && len(l.pending) == 0
	}
	return len(l.pending) < max(l.window, 1)
}

// prod sees to it that a device which reported no room, has nothing of ours to
// answer and forgets to say that it has room again is asked now and then. Called
// with the lock held.
func (l *lane) prod() {
	if !l.full || len(l.pending) > 0 || len(l.queue) == 0 || l.conn == nil || l.trying != nil {
		return
	}
	l.trying = time.AfterFunc(l.srv.timing.prod, func() {
		l.mu.Lock()
		l.trying, l.try = nil, true
		out := l.pump(nil)
		l.mu.Unlock()
		out.run()
	})
}

// learn takes over the capacity that an answer reports. Called with the lock
// held, after the answered request left pending.
func (l *lane) learn(capacity *int) {
	switch {
	case capacity == nil && l.window == 0:
		l.window = assumedWindow
	case capacity == nil:
	default:
		l.full = *capacity == 0
		if *capacity > 0 && !l.told && (l.window == 0 || len(l.pending) == 0 && *capacity > l.window) {
			// Nothing else is there, so that what is left is all it takes.
			l.window = min(*capacity+len(l.pending), maxWindow)
		}
	}
}

// assume ends the time of one request at a time.
func (l *lane) assume() {
	l.mu.Lock()
	if l.window == 0 {
		l.window = assumedWindow
	}
	out := l.pump(nil)
	l.mu.Unlock()
	out.run()
}

// hint tells how many requests the device takes on another of its sockets.
func (l *lane) hint(window int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.window == 0 {
		l.window = window
	}
}

func (l *lane) known() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.window
}

// pump sends what may be sent. Called with the lock held; the result is run
// without it.
func (l *lane) pump(out deliveries) deliveries {
	if l.conn == nil || len(l.queue) == 0 {
		return out
	}
	// Requests of an operator that doesn't read stay; so do its later ones.
	var stuck map[*operator]bool
	kept := l.queue[:0:0]
	for i, r := range l.queue {
		if !r.urgent && !l.room() {
			kept = append(kept, l.queue[i:]...)
			break
		}
		if r.from != nil && (stuck[r.from] || r.from.busy(l)) {
			if stuck == nil {
				stuck = make(map[*operator]bool)
			}
			stuck[r.from] = true
			kept = append(kept, r)
			continue
		}
		if r.from != nil && r.from.gone() {
			out = append(out, l.done(r, result{err: l.of.unreachable()}))
			continue
		}
		if r.cancelled {
			out = append(out, l.done(r, result{err: unsent(r)}))
			continue
		}
		if refused := l.refused(r); refused != nil {
			out = append(out, l.done(r, result{err: refused}))
			continue
		}
		if !l.issue(r) {
			kept = append(kept, l.queue[i:]...)
			break
		}
	}
	l.queue = kept
	l.prod()
	return out
}

// cancel ends a request of an operator: one that waits is refused, one that the
// device has is cancelled there, if the device knows how.
func (l *lane) cancel(from *operator, asked requestRef) {
	l.mu.Lock()
	for i, r := range l.queue {
		if r.from == from && r.asked == asked {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			f := l.done(r, result{err: unsent(r)})
			l.mu.Unlock()
			f()
			return
		}
	}
	defer l.mu.Unlock()
	for id, r := range l.pending {
		if r.from != from || r.asked != asked || r.cancelled {
			continue
		}
		r.cancelled = true
		if l.conn != nil && has(l.conn.granted, wire.Cancel) {
			f := encode(wire.Message{Type: wire.TCancel, ID: id, Payload: wire.Empty{}})
			f.most = l.srv.bounds.credit
			_ = l.conn.sock.send(f) // a device that takes no more is cut off by who finds out
		}
		return
	}
}

func unsent(r *request) *wire.Error {
	return wire.Errorf(wire.Cancelled, "%s was cancelled before it was sent", r.method.Request)
}

// device is the connection that is there, or nil.
func (l *lane) device() *device {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// refused says why r may not be sent on the connection that is there.
func (l *lane) refused(r *request) *wire.Error {
	if !has(l.conn.offered, r.method.Capability) {
		return l.of.notOffered(r.method)
	}
	if r.limits != nil {
		if err := r.limits().check(r.method.Capability); err != nil {
			return err
		}
	}
	if !has(l.conn.granted, r.method.Capability) {
		return l.of.notOffered(r.method)
	}
	return nil
}

// issue hands r to the socket. Called with the lock held.
func (l *lane) issue(r *request) bool {
	l.issued++
	id := l.conn.newID(r.from, l.issued)
	f := encode(wire.Message{Type: r.method.Request, ID: id, Payload: body(r.payload, r.data)})
	f.buf, f.req = r.buf.retain(), r
	r.sent.Store(false)
	if err := l.conn.sock.send(f); err != nil {
		l.srv.buffers.release(f.buf)
		return false
	}
	if r.wait != nil {
		r.wait.Stop()
		r.wait = nil
	}
	r.id, l.try = id, false
	if r.chunk != nil {
		r.total = time.Now().Add(l.srv.timing.streamTotal)
	}
	r.limit = time.AfterFunc(r.timeout, func() { l.expire(r, id) })
	if l.pending == nil {
		l.pending = make(map[string]*request)
	}
	l.pending[id] = r
	if l.window == 0 && l.probing == nil {
		l.probing = time.AfterFunc(l.srv.timing.probe, l.assume)
	}
	return true
}

// expire ends a request whose answer didn't come in time.
func (l *lane) expire(r *request, id string) {
	l.mu.Lock()
	if l.pending[id] != r {
		l.mu.Unlock()
		return
	}
	delete(l.pending, id)
	out := l.pump(deliveries{l.done(r, result{err: l.of.unanswered(r.method, r.timeout)})})
	l.mu.Unlock()
	out.run()
}

// attach makes d the lane's connection. What was unanswered on an older one is
// settled as if it had been lost.
func (l *lane) attach(d *device) {
	l.mu.Lock()
	var out deliveries
	if l.conn != nil {
		out = l.lose()
	}
	l.conn, l.full = d, false // how full it was on another connection says nothing
	if l.shut != nil {
		l.conn = nil
	}
	out = l.pump(out)
	l.mu.Unlock()
	out.run()
}

// detach ends d's time as the lane's connection, if it still is.
func (l *lane) detach(d *device) {
	l.mu.Lock()
	if l.conn != d {
		l.mu.Unlock()
		return
	}
	out := l.lose()
	hungry := len(l.queue) > 0
	l.mu.Unlock()
	out.run()
	if hungry {
		l.hungry()
	}
}

// lose settles what was unanswered when the connection was lost: what never went
// out and what may be repeated goes back to the head of the queue, in order.
// Called with the lock held.
func (l *lane) lose() deliveries {
	l.conn = nil
	l.quiet()
	lost := make([]*request, 0, len(l.pending))
	for _, r := range l.pending {
		lost = append(lost, r)
	}
	l.pending = nil
	sort.Slice(lost, func(i, j int) bool { return lost[i].seq < lost[j].seq })
	var out deliveries
	var again []*request
	for _, r := range lost {
		r.stop()
		sent := r.sent.Load()
		switch {
		case !sent && !r.pinned, r.method.Repeatable && !r.retried && !r.pinned:
			r.retried = r.retried || sent
			r.id = ""
			again = append(again, r)
			l.patience(r)
		case !sent:
			out = append(out, l.done(r, result{err: l.of.unreachable()}))
		default:
			out = append(out, l.done(r, result{err: l.of.unanswered(r.method, 0)}))
		}
	}
	kept := l.queue[:0:0]
	for _, r := range l.queue {
		if r.pinned {
			out = append(out, l.done(r, result{err: l.of.unreachable()}))
			continue
		}
		kept = append(kept, r)
	}
	l.queue = append(again, kept...)
	return out
}

// quiet stops the timers of the lane itself. Called with the lock held.
func (l *lane) quiet() {
	for _, t := range []**time.Timer{&l.probing, &l.trying} {
		if *t != nil {
			(*t).Stop()
			*t = nil
		}
	}
	l.try = false
}

// failQueued fails everything that waits, if there is still no connection.
func (l *lane) failQueued(err *wire.Error) {
	l.mu.Lock()
	if l.conn != nil {
		l.mu.Unlock()
		return
	}
	out := l.drain(err)
	l.mu.Unlock()
	out.run()
}

func (l *lane) drain(err *wire.Error) deliveries {
	var out deliveries
	for _, r := range l.queue {
		out = append(out, l.done(r, result{err: err}))
	}
	l.queue = nil
	return out
}

// close fails everything, also what comes later, with err.
func (l *lane) close(err *wire.Error) {
	l.mu.Lock()
	var out deliveries
	if l.shut == nil {
		l.shut = err
	}
	for id, r := range l.pending {
		delete(l.pending, id)
		cause := err
		if r.sent.Load() && !r.method.Repeatable {
			cause = l.of.unanswered(r.method, 0)
		}
		out = append(out, l.done(r, result{err: cause}))
	}
	out = append(out, l.drain(err)...)
	l.conn = nil
	l.quiet()
	l.mu.Unlock()
	out.run()
}

// starving says whether requests wait without a connection.
func (l *lane) starving() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn == nil && len(l.queue) > 0
}

// outstanding counts the requests waiting and unanswered.
func (l *lane) outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) + len(l.pending)
}

// resume sends what may be sent now; somebody who held it up no longer does.
func (l *lane) resume() {
	l.mu.Lock()
	out := l.pump(nil)
	l.mu.Unlock()
	out.run()
}

// status takes over what STATUS says about the device's capacity.
func (l *lane) status(d *device, st wire.Status, capacity *int) {
	l.mu.Lock()
	if l.conn != d {
		l.mu.Unlock()
		return
	}
	if st.MaxConcurrent > 0 {
		l.window, l.told = min(st.MaxConcurrent, maxWindow), true
	}
	if capacity != nil {
		l.full = *capacity == 0
	} else {
		l.full = st.MaxConcurrent > 0 && st.InFlight >= st.MaxConcurrent
	}
	out := l.pump(nil)
	l.mu.Unlock()
	out.run()
}

// answer settles the request that the frame belongs to and takes over buf. It
// says false, and takes nothing, if there is none or the frame doesn't fit.
func (l *lane) answer(d *device, env wire.Envelope, buf *frameBuf) bool {
	l.mu.Lock()
	r := l.pending[env.ID]
	if l.conn != d || r == nil {
		l.mu.Unlock()
		return false
	}
	if chunk := r.method.Chunks(); chunk != "" && env.Type == chunk && r.chunk != nil {
		return l.stream(r, env, buf)
	}
	if env.Type != r.method.Response && env.Type != wire.TError {
		l.mu.Unlock()
		return false
	}
	delete(l.pending, r.id)
	l.learn(env.PendingCapacity)
	var out deliveries
	if window, refused := overload(env); refused && (!r.pinned || r.urgent) {
		l.again(r, window)
		out = l.pump(nil)
		l.mu.Unlock()
		l.srv.buffers.release(buf)
		out.run()
		return true
	}
	tell := l.done(r, result{env: env, buf: buf})
	out = l.pump(nil)
	l.mu.Unlock()
	tell()
	out.run()
	return true
}

// overload says whether the device refused a request because it was full, and
// how many it takes. Then the request had no effect. Refusals for other reasons
// (a rate limit has no max_concurrent) are answers like any other.
func overload(env wire.Envelope) (window int, yes bool) {
	if env.Type != wire.TError || env.PendingCapacity == nil || *env.PendingCapacity != 0 ||
		len(env.Payload) > smallFrame || !bytes.Contains(env.Payload, []byte(wire.ShimOverloaded)) {
		return 0, false
	}
	var e wire.Error
	if wire.Decode(env.Payload, &e) != nil || e.Code != wire.ShimOverloaded {
		return 0, false
	}
	n, ok := e.Details["max_concurrent"].(float64)
	if !ok || n < 1 {
		return 0, false
	}
	return int(min(n, maxWindow)), true
}

// again puts a request that the device had no room for back into the queue, at
// its place. Called with the lock held.
func (l *lane) again(r *request, window int) {
	if r.limit != nil {
		r.limit.Stop()
		r.limit = nil
	}
	l.window, l.told, r.id = window, true, ""
	l.patience(r)
	at := sort.Search(len(l.queue), func(i int) bool { return l.queue[i].seq > r.seq })
	if r.urgent {
		at, r.urgent = 0, false
	}
	l.queue = append(l.queue[:at:at], append([]*request{r}, l.queue[at:]...)...)
}

// stream passes on a frame that comes before the answer. Called with the lock
// held, which it gives back.
func (l *lane) stream(r *request, env wire.Envelope, buf *frameBuf) bool {
	r.chunks++
	r.bytes += len(env.Payload)
	if r.chunks > maxChunks || r.bytes > l.srv.bounds.stream || time.Now().After(r.total) {
		delete(l.pending, r.id)
		err := wire.Errorf(wire.LocalLLMFailed, "the answer of the model was cut after %d pieces", r.chunks-1).
			With("reason", "stream_too_long")
		out := l.pump(deliveries{l.done(r, result{err: err})})
		l.mu.Unlock()
		l.srv.buffers.release(buf)
		out.run()
		return true
	}
	r.limit.Reset(r.timeout)
	l.mu.Unlock()
	r.chunk(env, buf)
	return true
}
