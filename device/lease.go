package device

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"farhand/internal/pulse"
	"farhand/internal/sorted"
	"farhand/stream"
	"farhand/wire"
)

// Defaults of LeaseOptions.
const (
	DefaultIdle   = 300 * time.Second // hardware.lease_idle_seconds
	DefaultLinger = 2 * time.Second
)

// Holder is who has a lease.
type Holder struct {
	Session string // ends with the lease, and the lease with it
	ID      string // who is behind the session, opaque
	Name    string // what to call them towards others; may be empty
}

func (h Holder) label() string {
	for _, s := range []string{h.Name, h.ID, h.Session} {
		if s != "" {
			return s
		}
	}
	return "another session"
}

// LeaseOptions are the times of Leases.
type LeaseOptions struct {
	// Idle ends a held lease without an operation for so long. 0 means DefaultIdle.
	Idle time.Duration
	// Linger is how long a state that asks for it (an open port, see
	// Lease.Linger) is kept after an operation that didn't hold the device, so
	// that the answer to one operation isn't lost before the next reads it.
	// Another session may take the device at any moment of it, as if it were
	// free. 0 means DefaultLinger, below 0 none.
	Linger time.Duration
	// OnHold is told when a lease is kept beyond its operation for the first
	// time, and OnEnd when such a lease is over, just before its device is free.
	// Neither must block or call back.
	OnHold, OnEnd func(LeaseInfo)
	// LastFrame is when the last frame of a session came: what renews a
	// dead-man's time. nil: only Begin does.
	LastFrame func(session string) time.Time
	Log       *slog.Logger
}

// Leases gives each device to one session at a time.
type Leases struct {
	opts LeaseOptions

	mu     sync.Mutex
	closed bool
	byKey  map[Key]*Lease
	grace  map[string]*time.Timer // session -> what ends it unless it comes back
	ending sync.WaitGroup         // leases that are not gone yet
}

// NewLeases makes an empty set. Close it when done.
func NewLeases(o LeaseOptions) *Leases {
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	if o.Linger == 0 {
		o.Linger = DefaultLinger
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Leases{opts: o, byKey: make(map[Key]*Lease), grace: make(map[string]*time.Timer)}
}

// Alive returns nil once the leases' lock was free, which their timers need, too.
// The error says that it wasn't until ctx ended.
func (ls *Leases) Alive(ctx context.Context) error {
	return pulse.Locked(ctx, "the leases' lock", func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
	})
}

// Lease is one session's hold on one device.
type Lease struct {
	set    *Leases
	key    Key
	holder Holder
	ctx    context.Context // ends with the lease; its cause is why
	cancel context.CancelCauseFunc
	turn   chan struct{} // holds one token: whose operation it is
	gone   chan struct{} // closed when the state is closed and the key free

	// Guarded by set.mu.
	held    bool // kept beyond the operation
	keeps   []*keep
	told    bool // OnHold was
	parked  bool // between two operations without hold: only the state lingers
	ended   bool
	uses    int                     // operations running or waiting
	op      string                  // the one that is running
	cut     context.CancelCauseFunc // ends it; nil if there is none
	timer   *time.Timer
	heldBy  string        // the last operation that kept it
	names   []string      // what a grant may call the part
	began   time.Time     // the last operation
	deadman time.Duration // 0: none
	watch   *time.Timer   // for the dead-man

	// Touched only by whoever has the turn, and by the end, which waits for it.
	state  io.Closer
	linger bool
}

// Key is what a lease is of: a device, or a part of one.
type Key struct {
	Device string // canonical id
	Part   string // empty: the whole device
}

// String is the device, and its part after a "#".
func (k Key) String() string {
	if k.Part == "" {
		return k.Device
	}
	return k.Device + "#" + k.Part
}

// Key is what the lease is of.
func (l *Lease) Key() Key { return l.key }

// Holder is who has the lease.
func (l *Lease) Holder() Holder { return l.holder }

// Context ends with the lease; its cause says why. stream.Reason knows it.
func (l *Lease) Context() context.Context { return l.ctx }

// Hold keeps the lease beyond the operation, as if the caller had asked for it.
func (l *Lease) Hold() {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.held, l.heldBy = true, l.op
}

// keep is a stream that keeps a lease, until it is over.
type keep struct{ over <-chan struct{} }

// Keep keeps the lease, whatever else happens, until done is called or it is
// taken away: for as long as a stream of it is open. It isn't idle meanwhile.
// over is closed when the stream has ended (stream.Stream.Done): from then on
// another session may have the device, however long done takes to come.
func (l *Lease) Keep(over <-chan struct{}) (done func()) {
	k := &keep{over}
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.keeps = append(l.keeps, k)
	return func() {
		l.set.mu.Lock()
		defer l.set.mu.Unlock()
		at := slices.Index(l.keeps, k)
		if at < 0 {
			return
		}
		l.keeps = slices.Delete(l.keeps, at, at+1)
		if l.uses == 0 && len(l.keeps) == 0 && !l.ended {
			l.set.restFree(l)
		}
	}
}

// spent says whether nothing keeps the lease but streams that have ended and
// haven't said so yet. It forgets those, and is called with set.mu.
func (l *Lease) spent() bool {
	if l.ended || l.held || l.uses > 0 || len(l.keeps) == 0 {
		return false
	}
	for _, k := range l.keeps {
		select {
		case <-k.over:
		default:
			return false
		}
	}
	l.keeps = nil
	return true
}

// Deadman ends the lease when no frame of its session came for d. It takes the
// place of the grace after a lost link (Leases.ReleaseAfter). 0 ends that.
func (l *Lease) Deadman(d time.Duration) {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	if l.watch != nil {
		l.watch.Stop()
		l.watch = nil
	}
	l.deadman = d
	if d > 0 && !l.ended {
		l.watch = time.AfterFunc(d, func() { l.set.checkDeadman(l) })
	}
}

// checkDeadman ends a lease whose session has fallen silent.
func (ls *Leases) checkDeadman(l *Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.ended || l.deadman == 0 {
		return
	}
	last := l.began
	if ls.opts.LastFrame != nil {
		if t := ls.opts.LastFrame(l.holder.Session); t.After(last) {
			last = t
		}
	}
	if left := l.deadman - time.Since(last); left > 0 {
		l.watch.Reset(left)
		return
	}
	ls.opts.Log.Info("lease ended: its session fell silent", "device", l.key.String(), "session", l.holder.Session, "deadman", l.deadman)
	ls.end(l, stream.Cause(wire.HardwareTransferFailed, stream.ReasonDeadman, "the session was silent for longer than deadman_seconds"))
}

// State is what the service keeps with the lease: nil at first.
func (l *Lease) State() io.Closer { return l.state }

// SetState keeps something with the lease, to be closed with it. It doesn't
// close what was there before.
func (l *Lease) SetState(s io.Closer) { l.state = s }

// Linger lets the state outlive an operation that doesn't hold the device, for
// a moment in which others may take the device all the same.
func (l *Lease) Linger() { l.linger = true }

// Held says whether an earlier operation kept the device, so that what it had
// set still holds.
func (l *Lease) Held() bool {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	return l.held
}

// Begin takes the device with this key for an operation of h, after h's earlier
// operations on it. The function that it returns must be called when the
// operation is over; with true it keeps the device beyond the operation, which
// a later false doesn't undo. The context that it returns ends early, with the
// reason as its cause, if the lease does. If another session has the device
// the error is HARDWARE_BUSY with details.holder.
func (ls *Leases) Begin(ctx context.Context, key Key, op string, h Holder, names ...string) (*Lease, context.Context, func(hold bool), error) {
	l, err := ls.take(ctx, key, h)
	if err != nil {
		return nil, nil, nil, err
	}
	select {
	case <-l.turn:
	default:
		select {
		case <-l.turn:
		case <-ctx.Done():
			ls.leave(l)
			return nil, nil, nil, context.Cause(ctx)
		case <-l.ctx.Done():
			ls.leave(l)
			return nil, nil, nil, context.Cause(l.ctx)
		}
	}
	// An end of ctx that comes before an end of the lease that ctx belongs to is
	// seen here: the operation doesn't begin under the next lease.
	err = context.Cause(ctx)
	opCtx, cancel := context.WithCancelCause(ctx)
	if err == nil {
		err = ls.start(l, op, names, cancel)
	}
	if err != nil {
		cancel(context.Canceled)
		ls.finish(l, false)
		return nil, nil, nil, err
	}
	return l, opCtx, func(hold bool) {
		cancel(context.Canceled)
		ls.finish(l, hold)
	}, nil
}

// take finds the lease that h may use, or makes one.
func (ls *Leases) take(ctx context.Context, key Key, h Holder) (*Lease, error) {
	for {
		ls.mu.Lock()
		if ls.closed {
			ls.mu.Unlock()
			return nil, wire.Errorf(wire.InternalError, "%s: the daemon is stopping", key)
		}
		l := ls.byKey[key]
		switch {
		case l == nil:
			l = ls.newLease(key, h)
			l.uses = 1
			ls.mu.Unlock()
			return l, nil
		case !l.ended && l.holder.Session == h.Session:
			l.uses++
			l.parked = false // from now on, not only from its turn on: nobody may take it over
			l.stopTimer()
			ls.mu.Unlock()
			return l, nil
		case l.parked:
			ls.end(l, context.Canceled)
		case l.spent():
			ls.restFree(l)
			ls.mu.Unlock()
			continue
		case !l.ended:
			busy := wire.Errorf(wire.HardwareBusy, "%s is in use by %s", key, l.holder.label()).
				With("device", key.Device).With("holder", l.holder.label()).
				With("hint", "wait until it is given back (RELEASE), at the latest when its holder is idle or gone")
			if key.Part != "" {
				busy.With("part", key.Part)
			}
			ls.mu.Unlock()
			return nil, busy
		}
		ls.mu.Unlock()
		select { // it is on its way out
		case <-l.gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (ls *Leases) newLease(key Key, h Holder) *Lease {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &Lease{set: ls, key: key, holder: h, ctx: ctx, cancel: cancel,
		turn: make(chan struct{}, 1), gone: make(chan struct{})}
	l.turn <- struct{}{}
	ls.byKey[key] = l
	ls.ending.Add(1)
	return l
}

// start is called with the turn.
func (ls *Leases) start(l *Lease, op string, names []string, cancel context.CancelCauseFunc) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.ended {
		return context.Cause(l.ctx)
	}
	l.op, l.cut, l.parked, l.began, l.names = op, cancel, false, time.Now(), names
	return nil
}

// finish is the end of an operation; it is called with the turn and gives it on.
func (ls *Leases) finish(l *Lease, hold bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if hold || len(l.keeps) > 0 {
		l.heldBy = l.op
	}
	l.op, l.cut = "", nil
	l.held = l.held || hold
	l.uses--
	if (l.held || len(l.keeps) > 0) && !l.told && !l.ended {
		l.told = true
		if ls.opts.OnHold != nil {
			ls.opts.OnHold(l.info())
		}
	}
	if l.uses == 0 && !l.ended {
		ls.rest(l)
	}
	l.turn <- struct{}{}
}

// leave is the end of a use that never got its turn.
func (ls *Leases) leave(l *Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.uses--
	if l.uses == 0 && !l.ended {
		ls.restFree(l)
	}
}

// restFree is rest without the turn, which nobody has or wants: nobody uses the
// lease. It is called with ls.mu.
func (ls *Leases) restFree(l *Lease) {
	<-l.turn
	ls.rest(l)
	l.turn <- struct{}{}
}

// rest decides what becomes of a lease that nobody uses at the moment. It is
// called with ls.mu and the turn.
func (ls *Leases) rest(l *Lease) {
	switch {
	case len(l.keeps) > 0:
	case l.held:
		l.timer = time.AfterFunc(ls.opts.Idle, func() { ls.expire(l, "idle") })
	case l.state != nil && l.linger && ls.opts.Linger > 0:
		l.parked = true
		l.timer = time.AfterFunc(ls.opts.Linger, func() { ls.expire(l, "not held") })
	case l.state == nil && !l.told:
		// There is nothing to close and nobody to tell, so nothing to wait for.
		l.ended = true
		if l.watch != nil {
			l.watch.Stop()
		}
		l.cancel(context.Canceled)
		delete(ls.byKey, l.key)
		close(l.gone)
		ls.ending.Done()
	default:
		ls.end(l, context.Canceled)
	}
}

func (ls *Leases) expire(l *Lease, why string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.uses > 0 || len(l.keeps) > 0 || l.ended { // an operation was quicker
		return
	}
	ls.opts.Log.Debug("lease ended", "device", l.key.String(), "session", l.holder.Session, "reason", why)
	ls.end(l, stream.Cause(wire.HardwareTransferFailed, stream.ReasonIdle, "the device was not used for too long"))
}

func (l *Lease) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// end begins the end: what runs is cancelled with the cause, and once it is
// over the state is closed and the key is free. It is called with ls.mu held.
func (ls *Leases) end(l *Lease, cause error) {
	if l.ended {
		return
	}
	l.ended = true
	l.stopTimer()
	if l.watch != nil {
		l.watch.Stop()
	}
	l.cancel(cause)
	if l.cut != nil {
		l.cut(cause)
	}
	go func() {
		defer ls.ending.Done()
		<-l.turn // an operation returns at once when its context ends
		l.closeState()
		ls.mu.Lock()
		info := l.info()
		ls.mu.Unlock()
		if info.told && ls.opts.OnEnd != nil {
			ls.opts.OnEnd(info) // before the next may have it
		}
		ls.mu.Lock()
		delete(ls.byKey, l.key)
		ls.mu.Unlock()
		close(l.gone)
	}()
}

func (l *Lease) closeState() {
	if l.state == nil {
		return
	}
	if err := l.state.Close(); err != nil {
		l.set.opts.Log.Warn("closing a device failed", "device", l.key.String(), "err", err)
	}
	l.state = nil
}

// Release gives a device back, all its parts or those that are named, and waits
// until it is free. It answers whether this session had any of it; that it
// didn't is no error, so Release can be repeated.
func (ls *Leases) Release(ctx context.Context, id, session string, parts ...string) (bool, error) {
	released := stream.Cause(wire.HardwareTransferFailed, stream.ReasonReleased, "the device was released during the operation")
	n, err := ls.EndWhere(ctx, released, func(i LeaseInfo) bool {
		return i.Device == id && i.Holder.Session == session && (len(parts) == 0 || slices.Contains(parts, i.Part))
	})
	return n > 0, err
}

// ReleaseAll ends every lease of a session and waits until its devices are free.
func (ls *Leases) ReleaseAll(ctx context.Context, session string) error {
	ls.Keep(session)
	over := stream.Cause(wire.HardwareTransferFailed, stream.ReasonSessionEnded, "the session has ended")
	_, err := ls.EndWhere(ctx, over, func(i LeaseInfo) bool { return i.Holder.Session == session })
	return err
}

// ReleaseAfter ends every lease of a session unless Keep is called for it
// within d: what a lost link starts. Calling it again changes nothing. Leases
// with a dead-man's time go by that.
func (ls *Leases) ReleaseAfter(session string, d time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return
	}
	if ls.grace[session] != nil { // counted from when it was lost
		return
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if ls.grace[session] != t { // called off meanwhile
			return
		}
		delete(ls.grace, session)
		for _, l := range ls.byKey {
			if l.holder.Session == session && l.deadman == 0 {
				ls.end(l, stream.Cause(wire.HardwareTransferFailed, stream.ReasonSessionEnded, "the session's link stayed lost"))
			}
		}
	})
	ls.grace[session] = t
}

// Keep calls off ReleaseAfter: the session is back.
func (ls *Leases) Keep(session string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if t := ls.grace[session]; t != nil {
		t.Stop()
		delete(ls.grace, session)
	}
}

// LeaseInfo describes a lease.
type LeaseInfo struct {
	Key
	Holder Holder
	Held   bool     // beyond the operation
	Parked bool     // not in use, only not closed yet
	Op     string   // the operation that runs, else the last that kept the device
	Names  []string // all names of the part; none for a whole device

	told bool
}

// EndWhere ends every lease that which chooses, with cause as what a running
// operation fails with, and waits until they are gone. It answers how many
// were in somebody's hand; the parked ones are ended but not counted.
// which is called with a lock held and must not call back.
func (ls *Leases) EndWhere(ctx context.Context, cause error, which func(LeaseInfo) bool) (int, error) {
	ls.mu.Lock()
	n := 0
	var wait []*Lease
	for _, l := range ls.byKey {
		if l.ended || !which(l.info()) {
			continue
		}
		if !l.parked {
			n++
		}
		ls.end(l, cause)
		wait = append(wait, l)
	}
	ls.mu.Unlock()
	for _, l := range wait {
		select {
		case <-l.gone:
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
	}
	return n, nil
}

// endDevice ends the leases on a device and its parts without waiting.
func (ls *Leases) endDevice(id string, cause error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, l := range ls.byKey {
		if key.Device == id {
			ls.end(l, cause)
		}
	}
}

func (l *Lease) info() LeaseInfo {
	op := cmp.Or(l.op, l.heldBy)
	return LeaseInfo{Key: l.key, Holder: l.holder, Held: l.held || len(l.keeps) > 0, Parked: l.parked, Op: op, Names: l.names, told: l.told}
}

// List is every lease that is in somebody's hand, by device.
func (ls *Leases) List() []LeaseInfo {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var all []LeaseInfo
	for _, l := range ls.byKey {
		if !l.ended && !l.parked {
			all = append(all, l.info())
		}
	}
	sorted.By(all, func(a, b LeaseInfo) int {
		return cmp.Or(strings.Compare(a.Device, b.Device), strings.Compare(a.Part, b.Part))
	})
	return all
}

// Held says how many devices a session holds or is using: such a session is
// not idle.
func (ls *Leases) Held(session string) int {
	n := 0
	for _, i := range ls.List() {
		if i.Holder.Session == session {
			n++
		}
	}
	return n
}

// KeptBy is the context of the lease that a session keeps on this key beyond its
// operations; nil if there is none. It ends with the lease, with the reason as its
// cause.
func (ls *Leases) KeptBy(session string, key Key) context.Context {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byKey[key]
	if l == nil || l.ended || l.holder.Session != session || !l.held && len(l.keeps) == 0 {
		return nil
	}
	return l.ctx
}

// Close ends every lease and waits until all are gone.
func (ls *Leases) Close() error {
	ls.mu.Lock()
	ls.closed = true
	for s, t := range ls.grace {
		t.Stop()
		delete(ls.grace, s)
	}
	for _, l := range ls.byKey {
		ls.end(l, stream.Cause(wire.InternalError, stream.ReasonStopping, "the daemon is stopping"))
	}
	ls.mu.Unlock()
	ls.ending.Wait()
	return nil
}
