package rescue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// The timers. Field experience: two minutes tell a router that restarts from one
// that is gone; a visitor who types a password needs some minutes; and a known
// network that came back must be found without anybody's help.
const (
	Patience    = 2 * time.Minute  // offline before there is a rescue network
	Nowhere     = 10 * time.Minute // in a Wi-Fi without reaching the relay before another may be entered
	RetryEvery  = 10 * time.Minute // up before known networks are tried again
	VisitHolds  = 5 * time.Minute  // no retry so soon after a visitor did something
	scanLimit   = 30 * time.Second
	raiseLimit  = 45 * time.Second
	lowerLimit  = 15 * time.Second
	JoinLimit   = 50 * time.Second // to join the network that was entered
	retryLimit  = scanLimit + JoinLimit
	joinedEvery = 2 * time.Second
	failedWait  = time.Minute     // before a failure to raise is tried again
	farewell    = 3 * time.Second // for the page's answer to reach the visitor
)

// Config is what a Machine needs.
type Config struct {
	Radio       Radio
	Portal      Portal
	AccessPoint AccessPoint
	// Check, if not nil, says what would keep the rescue network from working,
	// such as a port that another program holds.
	Check func(context.Context) error
	// Known says whether the radio knows a network that it could join; nil: it
	// may. Without one there is nothing to try again: only the list of networks
	// is renewed.
	Known func() bool
	// Join, if not nil, makes the network that a visitor entered known to the
	// radio. It is called when the radio is a station again, so it may restart
	// what drives it: a country is read at its start only.
	Join func(context.Context) error
	// Allowed is whether a rescue network may be offered at all; SetAllowed
	// changes it.
	Allowed bool
	// Changed, if not nil, is called with each new state, from the machine's own
	// goroutine; it must not block, and not call Close.
	Changed func(State)
	Logger  *slog.Logger
}

// Machine raises and lowers the rescue network. Its methods may be called from
// several goroutines and return at once, but for Close.
type Machine struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	allowed bool
	offline time.Time          // since when; zero: there is a network
	told    bool               // that the relay is out of reach, since it was last reached
	visit   time.Time          // when a visitor last did something
	entered bool               // a visitor gave a network, which is to be tried
	abandon context.CancelFunc // ends what is being done, once nobody wants it
	state   State

	changed chan struct{} // capacity 1
	cancel  context.CancelFunc
	done    chan struct{}
}

// New starts a machine that assumes a network until it hears otherwise.
func New(cfg Config) *Machine {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Machine{
		cfg: cfg, log: cfg.Logger, allowed: cfg.Allowed,
		abandon: func() {},
		state:   State{Phase: Idle},
		changed: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	go m.run(ctx)
	return m
}

// Close lowers the rescue network if there is one.
func (m *Machine) Close() error {
	m.cancel()
	<-m.done
	return nil
}

// State is what the machine is doing.
func (m *Machine) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Offline says that the relay has been out of reach since then, and whether
// there is a network all the same: then a rescue network would not help. It may
// be said again and again.
func (m *Machine) Offline(since time.Time, known bool) {
	m.update(func(now time.Time) {
		switch {
		case known:
			m.offline = time.Time{}
		case !m.offline.IsZero():
		case m.told:
			m.offline = now // until now there was a network, if not the relay
		default:
			// The clock may have been wrong at that time, so it counts only
			// within bounds.
			m.offline = now.Add(-min(max(now.Sub(since), 0), Patience))
		}
		m.told = true
	})
}

// Online says that the relay is reached.
func (m *Machine) Online() {
	m.update(func(time.Time) { m.offline, m.told = time.Time{}, false })
}

// SetAllowed says whether a rescue network may be offered.
func (m *Machine) SetAllowed(allowed bool) {
	m.update(func(time.Time) { m.allowed = allowed })
}

// Active says that a visitor did something on the page.
func (m *Machine) Active() {
	m.update(func(now time.Time) { m.visit = now })
}

// Entered says that another network is configured and is to be tried.
func (m *Machine) Entered() {
	m.update(func(now time.Time) { m.entered, m.visit = true, now })
}

func (m *Machine) update(change func(now time.Time)) {
	m.mu.Lock()
	change(time.Now())
	if !m.wanted() {
		m.abandon()
	}
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// wanted says whether there is reason for a rescue network, now or soon. The
// caller holds mu.
func (m *Machine) wanted() bool { return m.allowed && !m.offline.IsZero() }

func (m *Machine) run(ctx context.Context) {
	defer close(m.done)
	// An earlier process may have left its access point behind.
	m.lower(ctx)
	for ctx.Err() == nil {
		wait, wanted := m.patience()
		switch {
		case !wanted:
			m.enter(State{Phase: Idle})
			m.rest(ctx, 0)
		case wait > 0:
			m.enter(State{Phase: Waiting})
			m.rest(ctx, wait)
		default:
			m.episode(ctx)
		}
	}
}

// patience is how long to wait yet.
func (m *Machine) patience() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Patience - time.Since(m.offline), m.wanted()
}

// rest waits for a change, and no longer than d unless that is 0.
func (m *Machine) rest(ctx context.Context, d time.Duration) {
	var after <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-ctx.Done():
	case <-m.changed:
	case <-after:
	}
}

// enter makes s the state.
func (m *Machine) enter(s State) {
	m.mu.Lock()
	same := s == m.state
	m.state = s
	m.mu.Unlock()
	if same {
		return
	}
	m.log.Info("rescue network", "phase", s.Phase, "problem", s.Problem, "note", s.Note)
	if m.cfg.Changed != nil {
		m.cfg.Changed(s)
	}
}

// episode is from the decision to have a rescue network until there is a network
// again, or no reason for one any more.
func (m *Machine) episode(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.abandon, m.entered = cancel, false
	if !m.wanted() {
		cancel()
	}
	m.mu.Unlock()

	note := ""
	for ctx.Err() == nil {
		m.enter(State{Phase: Raising, Note: note})
		err := m.up(ctx, note)
		m.down()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			phase := Failed
			if errors.Is(err, ErrNoRadio) {
				phase = Absent
			}
			m.enter(State{Phase: phase, Problem: err.Error(), Note: note})
			m.pause(ctx, failedWait)
			continue
		}
		phase, limit := Retrying, retryLimit
		switch {
		case m.takeEntered():
			phase, limit = Trying, JoinLimit
			note = ""
		case m.cfg.Known != nil && !m.cfg.Known():
			continue
		}
		m.enter(State{Phase: phase, Note: note})
		if phase == Trying {
			m.join(ctx)
		}
		if m.joined(ctx, limit) {
			// A network works. Whether the relay is reached through it is for
			// the daemon to say: it has as long as at first.
			m.mu.Lock()
			if !m.offline.IsZero() {
				m.offline = time.Now()
			}
			m.mu.Unlock()
			return
		}
		if phase == Trying {
			note = fmt.Sprintf("The network that was entered could not be joined within %d seconds. Its password may be wrong, or it is too far away.", JoinLimit/time.Second)
		}
	}
}

// up is the rescue network's life: it ends with an error if it can't be raised,
// and without one when it is time to be a station again.
func (m *Machine) up(ctx context.Context, note string) error {
	if m.cfg.Check != nil {
		if err := m.cfg.Check(ctx); err != nil {
			return err
		}
	}
	networks, err := m.scan(ctx)
	if err != nil {
		// Its name can be typed as well.
		m.log.Warn("no list of networks for the page", "error", err)
	}
	raise, cancel := context.WithTimeout(ctx, raiseLimit)
	defer cancel()
	if err := m.cfg.Radio.Raise(raise, m.cfg.AccessPoint); err != nil {
		return err
	}
	if err := m.cfg.Portal.Open(ctx, Visit{Networks: networks, Note: note}); err != nil {
		return err
	}
	m.enter(State{Phase: Up, Note: note})
	m.hold(ctx)
	return nil
}

func (m *Machine) scan(ctx context.Context) ([]Network, error) {
	ctx, cancel := context.WithTimeout(ctx, scanLimit)
	defer cancel()
	return m.cfg.Radio.Scan(ctx)
}

// hold waits until a visitor has entered a network, or it is time to look for a
// known one and no visitor is at it.
func (m *Machine) hold(ctx context.Context) {
	until := time.Now().Add(RetryEvery)
	for {
		m.mu.Lock()
		entered, visit := m.entered, m.visit
		m.mu.Unlock()
		if entered {
			m.pause(ctx, farewell)
			return
		}
		end := until
		if held := visit.Add(VisitHolds); held.After(end) {
			end = held
		}
		wait := time.Until(end)
		if wait <= 0 || ctx.Err() != nil {
			return
		}
		m.rest(ctx, wait)
	}
}

func (m *Machine) takeEntered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	entered := m.entered
	m.entered = false
	return entered
}

// pause waits whatever changes, but not for ctx's end.
func (m *Machine) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// down ends the page and the access point, also when everything else has ended.
func (m *Machine) down() {
	if err := m.cfg.Portal.Close(); err != nil {
		m.log.Warn("the rescue network's page", "error", err)
	}
	m.lower(context.Background())
}

func (m *Machine) lower(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lowerLimit)
	defer cancel()
	if err := m.cfg.Radio.Lower(ctx); err != nil && !errors.Is(err, ErrNoRadio) {
		m.log.Warn("the radio doesn't look for networks again", "error", err)
	}
}

func (m *Machine) join(ctx context.Context) {
	if m.cfg.Join == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lowerLimit)
	defer cancel()
	if err := m.cfg.Join(ctx); err != nil {
		m.log.Warn("the radio isn't told of the network that was entered", "error", err)
	}
}

// joined waits for the station to be in a network.
func (m *Machine) joined(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(joinedEvery)
	defer tick.Stop()
	for {
		if yes, err := m.cfg.Radio.Joined(ctx); err == nil && yes {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// ErrNoRadio is a Radio's on a machine without one.
var ErrNoRadio = errors.New("this machine has no Wi-Fi radio")
