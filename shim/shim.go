package shim

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"farhand/grant"
	"farhand/internal/pulse"
	"farhand/internal/sorted"
	"farhand/wire"
)

// Phase is what the control connection is doing.
type Phase string

// The phases.
const (
	Idle       Phase = "idle"       // Run isn't at work
	Connecting Phase = "connecting" // dialling or shaking hands
	Online     Phase = "online"
	Waiting    Phase = "waiting" // until Status.RetryAt
)

// Status is a snapshot for people and for `farhandd status`.
type Status struct {
	Phase        Phase
	Since        time.Time // of the phase
	ConnectionID string
	Granted      wire.Capabilities // of the control socket, while online
	RetryAt      time.Time         // while waiting
	LastError    string            // of the last connection that failed
	Sessions     []SessionStatus
}

// SessionStatus is one live session.
type SessionStatus struct {
	ID   string
	Root string
	Live bool // its socket is up
}

// Shim is the device side of one platform connection. All methods are safe for
// concurrent use, but only one Run at a time.
type Shim struct {
	cfg     Config
	log     *slog.Logger
	control Table
	browser *browser
	slots   chan struct{}                // the machine-wide bound
	machine atomic.Pointer[grant.Policy] // of the newest control socket; nil before the first

	mu       sync.Mutex
	status   Status
	endpoint *endpoint // control, while Run is at work
	sessions map[string]*Session
	locks    map[string]*sessionLock
	running  context.Context // what sessions live in, while Run is at work
	workers  *workers        // of this Run
}

// New checks the configuration. Nothing runs before Run.
func New(cfg Config) (*Shim, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s := &Shim{
		cfg: cfg, log: cfg.Log, slots: make(chan struct{}, cfg.MachineWide),
		sessions: make(map[string]*Session), locks: make(map[string]*sessionLock),
		status: Status{Phase: Idle, Since: time.Now()},
	}
	s.browser = newBrowser(cfg.Roots, cfg.Forbidden)
	s.control = s.controlTable()
	for t, m := range cfg.Control {
		if _, ours := s.control[t]; ours {
			return nil, errors.New("shim: " + string(t) + " is answered by the shim itself")
		}
		s.control[t] = m
	}
	return s, nil
}

// Run keeps the control socket and the sessions that the platform starts over
// it. It returns nil when ctx ends, else ErrLoginNeeded, ErrRevoked or a
// *Halted; any other trouble is tried again for ever. When it returns every
// socket is closed and every session has ended. It may be called again.
func (s *Shim) Run(ctx context.Context) error {
	sessions, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	control := s.newEndpoint(s.cfg.ControlURL, nil)
	s.mu.Lock()
	s.running, s.endpoint, s.workers = sessions, control, newWorkers()
	s.mu.Unlock()

	var reaper sync.WaitGroup
	reaper.Go(func() { s.reap(sessions) })
	err := control.keep(ctx)

	stop(&closing{1001, "the device is stopping"})
	reaper.Wait()
	s.stopSessions()
	crew := s.crew()
	crew.close()
	if !waitFor(&crew.all, stopWait) {
		s.log.Error("handlers still run after everything was stopped")
	}
	s.browser.reset()
	s.set(func(st *Status) { st.Phase, st.Since, st.ConnectionID, st.Granted = Idle, time.Now(), "", nil })
	return err
}

// crew are the workers of this Run.
func (s *Shim) crew() *workers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers
}

// encourage tells the sockets that wait for the platform to come back that it
// has, since p got through: each on its own would find out up to a minute later.
func (s *Shim) encourage(p *endpoint) {
	s.mu.Lock()
	all := []*endpoint{s.endpoint}
	for _, session := range s.live() {
		all = append(all, session.endpoint)
	}
	s.mu.Unlock()
	for _, other := range all {
		if other != nil && other != p && other.hopeful.Load() {
			other.nudge()
		}
	}
}

// Wake ends a wait between two attempts to connect, for example when the network
// came back.
func (s *Shim) Wake() {
	s.mu.Lock()
	endpoint := s.endpoint
	sessions := s.live()
	s.mu.Unlock()
	if endpoint != nil {
		endpoint.nudge()
	}
	for _, session := range sessions {
		session.endpoint.nudge()
	}
}

// Alive returns nil once every loop that keeps a connection has shown that it goes
// round: it waits, it serves, or it is at work on the connection and isn't late.
// While Run isn't at work nothing is to be shown. The error says which loop didn't
// until ctx ended.
func (s *Shim) Alive(ctx context.Context) error {
	var loops []*pulse.Loop
	err := pulse.Locked(ctx, "the connection's lock", func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.endpoint != nil {
			loops = append(loops, s.endpoint.loop)
		}
		for _, session := range s.live() {
			loops = append(loops, session.endpoint.loop)
		}
	})
	if err != nil {
		return err
	}
	for _, loop := range loops {
		if err := loop.Alive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Status is a snapshot.
func (s *Shim) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot()
}

// Load is how many requests of sessions are worked on, and how many wait for their
// turn.
func (s *Shim) Load() (running, waiting int) {
	s.mu.Lock()
	sessions := s.live()
	s.mu.Unlock()
	for _, session := range sessions {
		if k := session.current.Load(); k != nil {
			k.mu.Lock()
			waiting += k.waiting
			k.mu.Unlock()
		}
	}
	return len(s.slots), waiting
}

// snapshot is called with mu held.
func (s *Shim) snapshot() Status {
	st := s.status
	st.Granted = slices.Clone(st.Granted)
	for _, session := range s.live() {
		st.Sessions = append(st.Sessions, SessionStatus{session.ID(), session.Root(), session.current.Load() != nil})
	}
	sorted.By(st.Sessions, func(a, b SessionStatus) int { return strings.Compare(a.ID, b.ID) })
	return st
}

// live is called with mu held.
func (s *Shim) live() []*Session {
	all := make([]*Session, 0, len(s.sessions))
	for _, session := range s.sessions {
		all = append(all, session)
	}
	return all
}

// set changes the status and tells OnState.
func (s *Shim) set(change func(*Status)) {
	s.mu.Lock()
	change(&s.status)
	st := s.snapshot()
	s.mu.Unlock()
	s.cfg.OnState(st)
}

// The five below are what an endpoint tells about itself.

func (s *Shim) connecting(p *endpoint) {
	if p.session == nil {
		s.set(func(st *Status) { st.Phase, st.Since, st.RetryAt = Connecting, time.Now(), time.Time{} })
	}
}

func (s *Shim) connected(p *endpoint, k *socket, a accepted) {
	s.encourage(p)
	if p.session != nil {
		p.session.attach(k)
		s.log.Info("session connected", "session", p.session.ID())
		s.set(func(*Status) {})
		return
	}
	s.log.Info("connected", "connection", a.connectionID, "granted", a.granted)
	s.set(func(st *Status) {
		st.Phase, st.Since, st.ConnectionID, st.Granted, st.LastError = Online, time.Now(), a.connectionID, a.granted, ""
	})
}

func (s *Shim) disconnected(p *endpoint, err error) {
	if p.session != nil {
		p.session.detach()
	} else {
		s.browser.reset() // references never outlive the control socket
	}
	s.log.Info("disconnected", "session", p.sessionID(), "err", err)
	s.set(func(st *Status) {
		if p.session == nil {
			st.Phase, st.Since, st.ConnectionID, st.Granted = Connecting, time.Now(), "", nil
		}
	})
}

func (s *Shim) failed(p *endpoint, err error) {
	if err == nil || errors.Is(err, errHandover) {
		return
	}
	s.log.Warn("connection failed", "session", p.sessionID(), "err", err)
	if p.session == nil {
		s.set(func(st *Status) { st.LastError = err.Error() })
	}
}

func (s *Shim) waiting(p *endpoint, wait time.Duration) {
	if p.session == nil {
		s.set(func(st *Status) { st.Phase, st.Since, st.RetryAt = Waiting, time.Now(), time.Now().Add(wait) })
	}
}
