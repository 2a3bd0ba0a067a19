package route

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"farhand/relay/access"
	"farhand/wire"
)

type machineKey struct{ owner, id string }

// machine is what is known of one machine while the relay runs: its control
// socket, its sessions, what its owner approved.
type machine struct {
	srv  *Server
	key  machineKey
	lane lane

	approval atomic.Pointer[wire.Ceiling] // nil until it was read
	name     atomic.Pointer[string]       // likewise: the owner's name for it
	heard    atomic.Int64                 // when it last was connected, in ms; 0: that isn't known
	up       atomic.Bool                  // its control socket is here

	placing  sync.Mutex   // one change of the machine's place at a time; see places
	arriving atomic.Int32 // sockets in their handshake

	mu       sync.Mutex
	control  *device
	lostAt   time.Time     // when the last control socket was lost
	came     chan struct{} // closed and replaced when a control socket comes
	sessions map[string]*session
	awaiting bool // a goroutine waits for the control socket on behalf of the lane

	pushing bool            // GRANTS_UPDATE is on its way
	pushes  []chan struct{} // who waits for one that is needed once more

	anchor   *wire.Anchor // the newest that is not stored yet
	reported wire.Anchor  // the newest that the device reported
	storing  bool
	stream   string                         // of its devices, while they are watched
	early    []wire.StreamData              // of it, what came before the list that it goes on from was dealt with
	devices  map[string]wire.HardwareDevice // as that told; nil unless they are watched
	hello    *wire.Hello                    // the newest that is not stored yet
	saving   bool
	roots    []root // what the device offers, as of rootsAt on rootsOf
	rootsAt  time.Time
	rootsOf  *device
	creating map[string]chan struct{} // holders with a session in the making
}

// machine finds or makes the state of a machine.
func (s *Server) machine(owner, id string) *machine {
	key := machineKey{owner, id}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[key]
	if m == nil {
		m = &machine{srv: s, key: key, lostAt: s.started, came: make(chan struct{}),
			sessions: make(map[string]*session), creating: make(map[string]chan struct{})}
		m.lane.srv, m.lane.machineID, m.lane.of, m.lane.hungry = s, id, m, m.await
		s.machines[key] = m
	}
	return m
}

// known finds the state of a machine, nil if there is none.
func (s *Server) known(owner, id string) *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machines[machineKey{owner, id}]
}

// refresh reads what the owner approved.
func (m *machine) refresh(ctx context.Context) error {
	_, err := m.read(ctx)
	return err
}

// read is refresh with the last HELLO; nil if there is none.
func (m *machine) read(ctx context.Context) (*wire.Hello, error) {
	rec, err := m.srv.authority.Machine(ctx, m.key.owner, m.key.id)
	if err != nil {
		return nil, err
	}
	m.learn(rec)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hello != nil { // not stored yet
		return m.hello, nil
	}
	return rec.Hello, nil
}

// learn keeps what was read of the machine's record.
func (m *machine) learn(rec access.Machine) {
	m.approval.Store(&rec.Approval)
	m.name.Store(&rec.Name)
	if !rec.LastSeen.IsZero() {
		m.met(rec.LastSeen)
	}
}

// met notes that the machine was there at a time.
func (m *machine) met(at time.Time) {
	ms := at.UnixMilli()
	for old := m.heard.Load(); ms > old && !m.heard.CompareAndSwap(old, ms); old = m.heard.Load() {
	}
}

// approved is what the owner approved; a machine not read yet allows nothing.
func (m *machine) approved() *wire.Ceiling {
	if c := m.approval.Load(); c != nil {
		return c
	}
	return &wire.Ceiling{Capabilities: &[]wire.Capability{}}
}

func (m *machine) online() *device {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.control
}

// take makes d the control socket. Called with the lock held.
func (m *machine) take(d *device) error {
	if m.srv.isClosed() {
		return errClosed
	}
	d.lane = &m.lane
	if old := m.control; old != nil {
		old.revoke(wire.ReasonAnotherShim)
	}
	m.control = d
	m.up.Store(true)
	return nil
}

// announce tells those who wait for the control socket.
func (m *machine) announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.came)
	m.came = make(chan struct{})
}

// drop gives up the control socket, if it still is d, and says whether it was.
func (m *machine) drop(d *device) bool {
	m.mu.Lock()
	mine := m.control == d
	if mine {
		m.control, m.lostAt = nil, time.Now()
		m.met(m.lostAt)
		m.up.Store(false)
	}
	m.mu.Unlock()
	m.srv.places.released(m)
	return mine
}

// connected waits for the control socket: not at all if it is there, and no
// longer than until reconnectGrace after it was lost.
func (m *machine) connected(ctx context.Context) (*device, *wire.Error) {
	for {
		m.mu.Lock()
		d, came := m.control, m.came
		lost := m.lostAt
		m.mu.Unlock()
		if d != nil {
			return d, nil
		}
		if at := m.srv.places.lostAt(m.key); at.After(lost) {
			lost = at
		}
		left := time.Until(lost.Add(m.srv.timing.reconnectGrace))
		if left <= 0 || m.srv.places.at(m.key) != "" {
			return nil, m.unreachable()
		}
		t := time.NewTimer(left)
		select {
		case <-came:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, m.unreachable()
		}
		t.Stop()
	}
}

// await waits on behalf of the lane: either a control socket takes it, or what
// is queued fails.
func (m *machine) await() {
	m.mu.Lock()
	if m.awaiting {
		m.mu.Unlock()
		return
	}
	m.awaiting = true
	m.mu.Unlock()
	m.srv.spawn(func() {
		_, err := m.connected(m.srv.ctx)
		m.mu.Lock()
		m.awaiting = false
		m.mu.Unlock()
		if err != nil {
			m.lane.failQueued(err)
		}
	})
}

// call asks the device something on its control socket and returns the payload
// of the answer. It fails at once if the machine is offline.
func (m *machine) call(ctx context.Context, t wire.Type, payload any, timeout time.Duration) ([]byte, error) {
	return m.lane.call(ctx, t, payload, timeout, false)
}

// call sends a request of the relay's own and waits for its answer.
func (l *lane) call(ctx context.Context, t wire.Type, payload any, timeout time.Duration, urgent bool) ([]byte, error) {
	method, _ := wire.MethodOf(t)
	body := encode(wire.Message{Payload: payload})
	answer := make(chan result, 1)
	l.submit(&request{method: method, payload: payloadOf(body.head), timeout: timeout, pinned: true, urgent: urgent,
		deliver: func(r result) { answer <- r }})
	select {
	case r := <-answer:
		if r.err != nil {
			return nil, r.err
		}
		defer l.srv.buffers.release(r.buf)
		if r.env.Type == wire.TError {
			e := &wire.Error{}
			if err := wire.Decode(r.env.Payload, e); err != nil || e.Code == "" {
				return nil, wire.Errorf(wire.InternalError, "%s: the device's error can't be read", t)
			}
			return nil, e
		}
		return append([]byte(nil), r.env.Payload...), nil
	case <-ctx.Done():
		return nil, l.of.unanswered(method, 0)
	}
}

// payloadOf cuts the payload out of a frame that was just encoded.
func payloadOf(frame []byte) []byte {
	env, _ := wire.DecodeEnvelope(frame)
	if env.Payload == nil {
		return []byte("{}")
	}
	return env.Payload
}

// remember has m.hello stored, the newest one if several come at once. It stays
// there until then, since whoever sees the machine online asks what it offers.
func (m *machine) remember() {
	m.mu.Lock()
	start := !m.saving
	m.saving = true
	m.mu.Unlock()
	if !start {
		return
	}
	m.srv.spawn(func() {
		for {
			m.mu.Lock()
			h := m.hello
			if h == nil {
				m.saving = false
				m.mu.Unlock()
				return
			}
			m.mu.Unlock()
			if err := m.srv.authority.Seen(m.srv.ctx, m.key.owner, m.key.id, *h); err != nil {
				m.srv.log.Error("HELLO not stored", "machine", m.key.id, "error", err)
			}
			m.mu.Lock()
			if m.hello == h {
				m.hello = nil
			}
			m.mu.Unlock()
		}
	})
}

// anchored has the head of the device's audit log stored, the newest if several
// come at once.
func (m *machine) anchored(a wire.Anchor) {
	m.mu.Lock()
	if a == m.reported { // an idle device reports the same every 30 s
		m.mu.Unlock()
		return
	}
	m.anchor, m.reported = &a, a
	start := !m.storing
	m.storing = true
	m.mu.Unlock()
	if !start {
		return
	}
	m.srv.spawn(func() {
		for {
			m.mu.Lock()
			a := m.anchor
			m.anchor = nil
			if a == nil {
				m.storing = false
				m.mu.Unlock()
				return
			}
			m.mu.Unlock()
			if _, err := m.srv.authority.Anchored(m.srv.ctx, m.key.owner, m.key.id, *a); err != nil {
				m.srv.log.Warn("audit head not taken", "machine", m.key.id, "seq", a.Seq, "error", err)
				m.mu.Lock()
				m.reported = wire.Anchor{} // the next report tries again
				m.mu.Unlock()
			}
		}
	})
}

// sockets are the machine's sockets, control first.
func (m *machine) sockets() []*device {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*device
	if m.control != nil {
		all = append(all, m.control)
	}
	for _, ses := range m.sessions {
		if d := ses.conn(); d != nil {
			all = append(all, d)
		}
	}
	return all
}

// pushGrants tells the machine's sockets what is allowed now. One push is on its
// way at a time; what changes meanwhile is told by another. The channel is closed
// when the one that begins after this call is over.
func (m *machine) pushGrants() <-chan struct{} {
	done := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pushes = append(m.pushes, done)
	if !m.pushing {
		m.pushing = true
		m.srv.spawn(m.push)
	}
	return done
}

// push runs until nobody waits for a push that hasn't begun.
func (m *machine) push() {
	for {
		m.mu.Lock()
		waiting := m.pushes
		m.pushes = nil
		if len(waiting) == 0 {
			m.pushing = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		if err := m.refresh(m.srv.ctx); err != nil {
			m.srv.log.Error("approval not read", "machine", m.key.id, "error", err)
			for _, d := range m.sockets() {
				d.sock.close(wire.CloseServiceRestart, "approval changed")
			}
		} else {
			var wg sync.WaitGroup
			for _, d := range m.sockets() {
				wg.Go(func() { d.tellGrants() })
			}
			wg.Wait()
		}
		for _, done := range waiting {
			close(done)
		}
	}
}

// tellGrants sends GRANTS_UPDATE and closes the socket if it isn't acknowledged,
// so that the device doesn't go on with what was allowed before. A device that
// can't take grants makes a new handshake.
func (d *device) tellGrants() {
	if !d.granted.Has(wire.Grants) {
		d.sock.close(wire.CloseServiceRestart, "approval changed")
		return
	}
	set := wire.GrantSet{Owner: d.token.Owner, Approval: d.machine.approved()}
	if ses := d.session; ses != nil {
		set.Holder, set.Token, set.Session = ses.rec.Holder, ses.rec.Token, ses.rec.Session
	}
	s := d.sock.srv
	answer, err := d.lane.call(s.ctx, wire.TGrantsUpdate, wire.GrantsUpdate{Grants: set}, s.timing.control, true)
	if err == nil {
		var ack wire.Ack
		if err = wire.Decode(answer, &ack); err == nil && !ack.OK {
			err = wire.Errorf(wire.InternalError, "the device refused the grants")
		}
	}
	if err != nil {
		s.log.Warn("grants not acknowledged", append(d.describe(), "error", err)...)
		d.sock.close(wire.CloseServiceRestart, "grants not acknowledged")
	}
}

var _ access.Sockets = (*Server)(nil)
