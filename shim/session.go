package shim

import (
	"context"
	"io"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"farhand/grant"
	"farhand/wire"
)

// Session is one live data session: a root, the services on it, and a socket
// that is opened again whenever it is lost. Its methods are safe for concurrent
// use.
type Session struct {
	binding wire.SessionBinding

	shim     *Shim
	parent   context.Context // of all sessions
	endpoint *endpoint
	ctx      context.Context
	cancel   context.CancelCauseFunc
	table    Table
	services io.Closer
	done     chan struct{} // closed when everything of it has ended
	current  atomic.Pointer[socket]
	born     time.Time
	heard    atomic.Int64 // nanoseconds from born to the last frame

	mu       sync.Mutex
	last     *view // of the newest socket
	touched  time.Time
	holds    int
	watchers map[*func(*grant.Policy)]struct{}
	detached map[*func()]struct{} // see OnDetach
}

// view is what a socket leaves behind for the time without one.
type view struct {
	granted wire.Capabilities
	limits  Limits
	policy  *grant.Policy
}

// ID is the session's id.
func (s *Session) ID() string { return s.binding.SessionID }

// Root is the directory that the session is bound to, in canonical form.
func (s *Session) Root() string { return s.binding.AllowedRoot }

// Binding is what ties the session to its root.
func (s *Session) Binding() wire.SessionBinding { return s.binding }

// Granted is what the session's newest socket was granted; nothing before the first.
func (s *Session) Granted() wire.Capabilities { return s.view().granted }

// Limits are the lower of ours and the platform's.
func (s *Session) Limits() Limits { return s.view().limits }

// Policy is the four ceilings as they stand now.
func (s *Session) Policy() *grant.Policy { return s.view().policy }

// Owner and Holder are the opaque ids of the machine's owner and of whoever the
// session works for; empty where the platform doesn't tell.
func (s *Session) Owner() string  { return s.Policy().Set.Owner }
func (s *Session) Holder() string { return s.Policy().Set.Holder }

func (s *Session) view() view {
	if k := s.current.Load(); k != nil {
		return view{k.granted, k.limits, k.policy.Load()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		return *s.last
	}
	return view{nil, s.shim.cfg.Limits, s.shim.cfg.policy(wire.GrantSet{})}
}

// Stopping says whether all sessions end, since the connection does, and not this
// one alone.
func (s *Session) Stopping() bool { return s.parent.Err() != nil }

// Hold keeps the session from being reaped as idle until release is called,
// once or more often: for leases, streams and transfers.
func (s *Session) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds--
		s.touched = time.Now()
	})
}

// OnPolicy has f called with the new policy at each change (GRANTS_UPDATE, or a
// new socket), before the change is acknowledged; f ends what is no longer
// allowed. It is called by one goroutine at a time per socket.
func (s *Session) OnPolicy(f func(*grant.Policy)) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[&f] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, &f)
	}
}

// OnDetach has f called when the session has lost its socket, after its calls
// have ended or were waited for long enough, and before the next is dialled: the
// platform waits as long as f takes.
func (s *Session) OnDetach(f func()) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detached[&f] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.detached, &f)
	}
}

func (s *Session) policyChanged(p *grant.Policy) {
	s.mu.Lock()
	watchers := make([]func(*grant.Policy), 0, len(s.watchers))
	for f := range s.watchers {
		watchers = append(watchers, *f)
	}
	s.mu.Unlock()
	for _, f := range watchers {
		f(p)
	}
}

// LastFrame is when the platform's last frame of any type came in this session,
// or when it began.
func (s *Session) LastFrame() time.Time { return s.born.Add(time.Duration(s.heard.Load())) }

func (s *Session) heardNow() { s.heard.Store(int64(time.Since(s.born))) }

// touch notes a real request.
func (s *Session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = time.Now()
}

// idle is how long no request came and nothing was held; zero while busy.
func (s *Session) idle() time.Duration {
	if k := s.current.Load(); k != nil && k.busy() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds > 0 {
		return 0
	}
	return time.Since(s.touched)
}

// newSession opens the services of a session. Nothing connects before start.
func (s *Shim) newSession(parent context.Context, b wire.SessionBinding) (*Session, error) {
	session := &Session{
		binding: b, shim: s, parent: parent,
		done: make(chan struct{}), born: time.Now(), touched: time.Now(), watchers: make(map[*func(*grant.Policy)]struct{}),
		detached: make(map[*func()]struct{}),
	}
	session.endpoint = s.newEndpoint(s.cfg.ControlURL+"/"+url.PathEscape(b.SessionID), session)
	session.ctx, session.cancel = context.WithCancelCause(parent)
	var err error
	if session.table, session.services, err = s.cfg.Open(session.ctx, session); err != nil {
		session.cancel(nil)
		return nil, err
	}
	return session, nil
}

// abandon closes a session that was never started.
func (s *Session) abandon() {
	s.cancel(errStopping)
	s.closeServices()
}

func (s *Session) closeServices() {
	if s.services == nil {
		return
	}
	if err := s.services.Close(); err != nil {
		s.shim.log.Warn("session's services didn't close well", "session", s.ID(), "err", err)
	}
}

// start runs the session until it is stopped or the platform ends it.
func (s *Session) start() {
	go func() {
		defer close(s.done)
		err := s.endpoint.keep(s.ctx)
		if err != nil {
			s.shim.log.Info("session ended", "session", s.ID(), "err", err)
		}
		s.cancel(errStopping)
		s.closeServices()
		s.shim.forget(s)
	}()
}

// stop ends the session and waits for it, but not longer than wait. False means
// that something of it still runs.
func (s *Session) stop(wait time.Duration, cause error) bool {
	s.cancel(cause)
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	select {
	case <-s.done:
		return true
	case <-deadline.C:
		return false
	}
}

// revive makes sure that the session's socket is up or coming up: the platform
// asks for a session when it sees no socket of it. The session isn't idle: what
// it is wanted for comes next.
func (s *Session) revive() {
	s.touch()
	if k := s.current.Load(); k != nil {
		k.conn.Probe(probeWait)
	}
	s.endpoint.nudge() // also for the wait that follows a failed probe
}

// probeWait is short enough for the socket to be opened again within the 8 s
// that the AutoGPT platform waits for it.
const probeWait = 2 * time.Second

// attach is called when a new socket is ready.
func (s *Session) attach(k *socket) {
	s.current.Store(k)
	s.policyChanged(k.policy.Load())
}

// detach is called when it is gone.
func (s *Session) detach() {
	k := s.current.Swap(nil)
	if k == nil {
		return
	}
	s.mu.Lock()
	s.last = &view{k.granted, k.limits, k.policy.Load()}
	detached := make([]func(), 0, len(s.detached))
	for f := range s.detached {
		detached = append(detached, *f)
	}
	s.mu.Unlock()
	for _, f := range detached {
		f()
	}
}
