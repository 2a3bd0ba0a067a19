package shim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"farhand/grant"
	"farhand/internal/pulse"
	"farhand/link"
	"farhand/wire"
)

// socket is one live connection after its handshake.
type socket struct {
	shim    *Shim
	conn    *link.Conn
	kind    wire.Channel
	session *Session // nil on control
	table   Table
	version string // negotiated
	granted wire.Capabilities
	limits  Limits
	token   string // with which it was opened
	opened  time.Time
	policy  atomic.Pointer[grant.Policy]

	workers  *workers
	ctx      context.Context // of the calls
	cancel   context.CancelCauseFunc
	handlers sync.WaitGroup

	moving atomic.Bool // closed by us for a newer token
	drops  atomic.Int64

	mu       sync.Mutex
	calls    map[string]*Call // outstanding, by id
	waiting  int              // of those, how many wait for a lane or a slot
	lanes    map[string]*Call // the last call of each lane
	stopping bool             // nothing new is started
}

// newSocket starts nothing yet.
func (s *Shim) newSocket(ctx context.Context, conn *link.Conn, session *Session, a accepted, token string) *socket {
	k := &socket{
		shim: s, conn: conn, kind: wire.Control, session: session, table: s.control, version: a.version,
		granted: a.granted, limits: a.limits, token: token, opened: time.Now(),
		calls: make(map[string]*Call), lanes: make(map[string]*Call), workers: s.crew(),
	}
	if session != nil {
		k.kind, k.table = wire.Data, session.table
	}
	k.setPolicy(s.cfg.policy(a.grants))
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	conn.SetGranted(a.granted)
	return k
}

func (k *socket) setPolicy(p *grant.Policy) {
	k.policy.Store(p)
	if k.session == nil {
		k.shim.machine.Store(p)
	}
}

// serve reads until the socket ends and says why: a *revoked, errHandover, an
// error of link, or nil if ctx ended. By then the socket is closed and the
// handlers have returned, or were waited for long enough.
func (k *socket) serve(ctx context.Context, loop *pulse.Loop) error {
	var tick sync.WaitGroup
	over := make(chan struct{})
	tick.Go(func() { k.tick(ctx, over) })

	err := k.read(loop)
	defer loop.Busy(closeOverdue)()
	close(over)
	r, wasRevoked := errors.AsType[*revoked](err)
	switch {
	case wasRevoked:
		k.conn.Mute()
		k.shim.recordRevoked(k.session, r.Reason, "frame", 0, r.NewShimMachineID)
		k.cancel(errStopping)
		k.conn.Close(wire.CloseSessionRevoked, "session_revoked")
	case ctx.Err() != nil:
		err = nil
	case k.moving.Load():
		err = errHandover
	}
	k.cancel(errStopping)
	tick.Wait()
	k.conn.Close(1000, "")
	if !waitFor(&k.handlers, handlerWait) {
		k.shim.log.Warn("handlers still run after their socket ended", k.attr()...)
	}
	return err
}

// leave closes the socket from our side: calls are cancelled and may still say
// so to the platform.
func (k *socket) leave(cause error) {
	k.mu.Lock()
	k.stopping = true
	k.mu.Unlock()
	k.cancel(errStopping)
	waitFor(&k.handlers, answerWait)
	code, reason := 1000, ""
	if c, ok := errors.AsType[*closing](cause); ok {
		code, reason = c.code, c.reason
	}
	k.conn.Close(code, reason)
}

// begin runs f as a handler unless the socket is about to be closed.
func (k *socket) begin(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopping {
		return false
	}
	k.handlers.Add(1)
	k.workers.run(func() {
		defer k.handlers.Done()
		f()
	})
	return true
}

// beginHere is begin on the goroutine of the reader.
func (k *socket) beginHere(r *reader, f func()) bool {
	k.mu.Lock()
	if k.stopping {
		k.mu.Unlock()
		return false
	}
	k.handlers.Add(1)
	k.mu.Unlock()
	defer k.handlers.Done()
	r.run(f)
	return true
}

// closing is the cause of a context's end that names the close code.
type closing struct {
	code   int
	reason string
}

func (c *closing) Error() string { return c.reason }

// tick sends STATUS, hands over to a newer token when nothing is lost by it, and
// closes the socket when ctx ends.
func (k *socket) tick(ctx context.Context, over <-chan struct{}) {
	status := time.NewTicker(wire.StatusInterval)
	defer status.Stop()
	renew := k.handover()
	defer renew.Stop()
	if k.session == nil && k.granted.Has(wire.MachineFactsCapability) {
		_ = k.status() // whoever looks at a machine that just came shouldn't wait for its first tick
	}
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			k.leave(context.Cause(ctx))
			return
		case <-status.C:
			_ = k.status() // fails only if the socket does, and then read ends too
		case <-renew.C:
			if k.tryHandover(ctx) {
				return
			}
			renew.Reset(handoverRetry)
		}
	}
}

// dropsLogged is how many frames that a socket drops are worth a line: a peer
// must not be able to fill the disk with them.
const dropsLogged = 20

// drop says that a frame is passed over.
func (k *socket) drop(why string, t wire.Type, more ...any) {
	switch n := k.drops.Add(1); {
	case n <= dropsLogged:
		k.shim.log.Warn("dropped a frame", append(append(k.attr(), "why", why, "type", clip(string(t))), more...)...)
	case n == dropsLogged+1:
		k.shim.log.Warn("more dropped frames of this socket go unsaid", k.attr()...)
	}
}

func (k *socket) attr() []any {
	if k.session != nil {
		return []any{"session", k.session.ID()}
	}
	return []any{"session", "control"}
}

// waitFor waits for wg, but not longer than d. False means that something of it
// still runs.
func waitFor(wg *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	select {
	case <-done:
		return true
	case <-deadline.C:
		return false
	}
}
