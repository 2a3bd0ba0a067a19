package route

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"farhand/relay/cluster"
	"farhand/relay/store"
	"farhand/wire"
)

// Of the instances of one relay, one has a machine: the one whose name stands in
// the machine's record, which is changed by compare-and-swap alone. All of the
// machine's sockets are handled there, whichever instance they came to, and so is
// every request for it; what is known of it while it is connected is known
// there and nowhere else.
//
// A control socket makes the instance where it arrives the machine's, whoever had
// it before: the one before learns of it by watching the records and lets go. A
// data socket is passed on to where the machine is. The record says who has the
// machine as long as that instance is there; it isn't renewed, since thousands of
// machines would then be thousands of writes every few seconds, for what the
// instances' own signs of life say once for all of them (package cluster).
// Records of instances that are gone are as if they weren't there, and are
// removed after a while.

const (
	placeTime  = 10 * time.Second // for writing a record
	forgetGone = time.Minute      // until the records of an instance that is gone are removed
)

// home is where a machine is.
type home struct {
	Instance string `json:"instance"`
	Online   bool   `json:"online"` // its control socket is there
	revision uint64
}

// places is what this instance knows of where machines are. Nil in a relay of
// one instance, where all of them are here.
type places struct {
	srv   *Server
	node  *cluster.Node
	store store.Store

	mu     sync.Mutex
	where  map[machineKey]home
	left   map[machineKey]time.Time // when one that is nowhere was lost; for reconnectGrace
	gone   map[string]time.Time     // instances that have ended
	synced bool                     // the records were read
}

// errElsewhere is what a call for a machine of another instance ends with: it is
// passed on to that.
type errElsewhere struct{ instance string }

func (e *errElsewhere) Error() string { return "the machine is at instance " + e.instance }

func placeKey(k machineKey) string { return store.Key("live", k.owner, k.id) }

// follow reads where everybody is, for which it has until ctx ends, and goes on
// hearing of it as long as the Server lives.
func (p *places) follow(ctx context.Context) error {
	events, err := p.store.Watch(p.srv.ctx, store.Prefix("live"))
	if err != nil {
		return err
	}
	sessions, err := p.store.Watch(p.srv.ctx, store.Prefix("o"))
	if err != nil {
		return err
	}
	entries, err := p.store.List(ctx, store.Prefix("live"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		p.changed(store.Event{Entry: e})
	}
	p.mu.Lock()
	p.synced = true
	p.mu.Unlock()
	p.node.OnChange(p.instanceChanged)
	p.srv.spawn(func() {
		for ev := range events {
			p.changed(ev)
		}
	})
	p.srv.spawn(func() {
		for ev := range sessions {
			p.srv.recordChanged(ev)
		}
	})
	p.srv.spawn(p.tidy)
	return nil
}

// at says which other instance has a machine: "" if this one has it, or nobody
// that is there.
func (p *places) at(key machineKey) string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	instance := p.where[key].Instance
	p.mu.Unlock()
	if instance == "" || instance == p.node.ID() || !p.node.Alive(instance) {
		return ""
	}
	return instance
}

// online says whether the machine's control socket is at another instance.
func (p *places) online(key machineKey) bool {
	if p == nil || p.at(key) == "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.where[key].Online
}

// lostAt is when another instance lost a machine that nobody has since.
func (p *places) lostAt(key machineKey) time.Time {
	if p == nil {
		return time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left[key]
}

// claim makes the machine this instance's: always for its control socket, for
// another one only if no other instance that is there has it. Otherwise
// errElsewhere.
func (p *places) claim(ctx context.Context, m *machine, control bool) error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	m.placing.Lock()
	defer m.placing.Unlock()
	p.mu.Lock()
	at := p.where[m.key]
	p.mu.Unlock()
	for {
		mine := at.revision != 0 && at.Instance == p.node.ID()
		if mine && !control {
			return nil
		}
		// For a control socket it is written even so: what is known here may be
		// behind, and whoever writes last has the machine.
		if !control && !mine && at.revision != 0 && p.there(ctx, at.Instance) {
			return &errElsewhere{at.Instance}
		}
		err := p.write(ctx, m.key, home{Instance: p.node.ID(), Online: control, revision: at.revision})
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) {
			return err
		}
		e, err := p.store.Get(ctx, placeKey(m.key))
		switch {
		case err == nil:
			at = decodePlace(e)
		case errors.Is(err, store.ErrNotFound):
			at = home{}
		default:
			return err
		}
	}
}

// there says whether an instance is, by asking it if nothing was heard of it: an
// instance that has just started has heard of nobody.
func (p *places) there(ctx context.Context, instance string) bool {
	if p.node.Alive(instance) {
		return true
	}
	conn, err := p.node.Dial(ctx, instance)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// surelyGone says whether NATS itself knows of no such instance: that nothing was
// heard of it isn't enough.
func (p *places) surelyGone(instance string) bool {
	ctx, cancel := context.WithTimeout(p.srv.ctx, placeTime)
	defer cancel()
	conn, err := p.node.Dial(ctx, instance)
	if err != nil {
		return errors.Is(err, cluster.ErrGone)
	}
	_ = conn.Close()
	return false
}

// write puts at in place of what has its revision; zero: of nothing.
func (p *places) write(ctx context.Context, key machineKey, at home) error {
	value, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if at.revision == 0 {
		at.revision, err = p.store.Create(ctx, placeKey(key), value, time.Time{})
	} else {
		at.revision, err = p.store.Update(ctx, placeKey(key), value, time.Time{}, at.revision)
	}
	if err == nil {
		p.set(key, at)
	}
	return err
}

// set notes a record unless a newer one is known, and says whether it did, and
// what was there before.
func (p *places) set(key machineKey, at home) (before home, newer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before = p.where[key]
	if at.revision <= before.revision {
		return before, false
	}
	p.where[key] = at
	delete(p.left, key)
	return before, true
}

// released gives the machine up when its last socket went, or tells the others
// that its control socket is gone while others are still here.
func (p *places) released(m *machine) {
	if p == nil || !p.node.Alive(p.node.ID()) || !p.srv.enter() {
		return // the others see that the whole instance is gone
	}
	defer p.srv.leave()
	p.srv.spawn(func() {
		ctx, cancel := context.WithTimeout(p.srv.ctx, placeTime)
		defer cancel()
		m.placing.Lock()
		defer m.placing.Unlock()
		p.mu.Lock()
		at := p.where[m.key]
		p.mu.Unlock()
		if at.Instance != p.node.ID() || m.online() != nil || m.arriving.Load() > 0 {
			return
		}
		var err error
		switch {
		case len(m.sockets()) > 0:
			if !at.Online {
				return
			}
			at.Online = false
			err = p.write(ctx, m.key, at)
		default:
			if err = p.store.Delete(ctx, placeKey(m.key), at.revision); err == nil {
				p.vacate(m.key, at.revision)
			}
		}
		if err != nil && !errors.Is(err, store.ErrConflict) {
			p.srv.log.Error("place of a machine not given up", "machine", m.key.id, "error", err)
		}
	})
}

// vacate notes that a machine is nowhere since the record with this revision.
func (p *places) vacate(key machineKey, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.where[key]; ok && at.revision <= revision {
		delete(p.where, key)
		p.left[key] = time.Now()
	}
}

// changed takes what the watch tells.
func (p *places) changed(ev store.Event) {
	parts := store.Split(ev.Key)
	if len(parts) != 3 {
		return
	}
	key := machineKey{parts[1], parts[2]}
	if ev.Deleted {
		p.removed(key)
		return
	}
	at := decodePlace(ev.Entry)
	before, newer := p.set(key, at)
	if newer && before.Instance != at.Instance {
		p.srv.moved(key, at.Instance == p.node.ID(), at.Online)
	}
}

// removed takes that a record is gone. The watch may be behind, so what was
// written since is asked for.
func (p *places) removed(key machineKey) {
	ctx, cancel := context.WithTimeout(p.srv.ctx, placeTime)
	defer cancel()
	e, err := p.store.Get(ctx, placeKey(key))
	switch {
	case err == nil:
		p.changed(store.Event{Entry: e})
	case errors.Is(err, store.ErrNotFound):
		p.mu.Lock()
		at := p.where[key]
		p.mu.Unlock()
		p.vacate(key, at.revision)
	}
}

func decodePlace(e store.Entry) home {
	var at home
	_ = json.Unmarshal(e.Value, &at) // what can't be read names no instance
	at.revision = e.Revision
	return at
}

// instanceChanged hears of the coming and going of instances.
func (p *places) instanceChanged(id string, alive bool) {
	p.mu.Lock()
	if alive {
		delete(p.gone, id)
		p.mu.Unlock()
		if id == p.node.ID() { // what couldn't be given up meanwhile
			p.giveUp()
		} else {
			p.srv.tellWhatIsWatched(id)
		}
		return
	}
	now := time.Now()
	p.gone[id] = now
	var lost []machineKey
	for key, at := range p.where {
		if at.Instance == id {
			p.left[key] = now
			if at.Online {
				lost = append(lost, key)
			}
		}
	}
	p.mu.Unlock()
	switch {
	case id == p.node.ID():
		p.srv.isolated()
	case p.first():
		p.srv.abandoned(lost)
	}
}

// first says whether this is the instance that does what one does for all.
func (p *places) first() bool {
	peers := p.node.Peers()
	return len(peers) > 0 && peers[0] == p.node.ID()
}

// stillGone says, when it is asked, whether a machine that was lost is online
// nowhere else: what an instance says while it is cut off from the others is heard
// when that is over, and by then the machine has long come to another one, or had
// been there all the time.
func (p *places) stillGone(key machineKey) func(context.Context) bool {
	if p == nil {
		return nil
	}
	return func(ctx context.Context) bool {
		e, err := p.store.Get(ctx, placeKey(key))
		if err != nil {
			return true // nobody has it; or nobody knows, and then nothing is published either
		}
		at := decodePlace(e)
		return !at.Online || at.Instance == p.node.ID() || !p.there(ctx, at.Instance)
	}
}

// giveUp sees to the records of machines that aren't here any more.
func (p *places) giveUp() {
	p.mu.Lock()
	var mine []machineKey
	for key, at := range p.where {
		if at.Instance == p.node.ID() {
			mine = append(mine, key)
		}
	}
	p.mu.Unlock()
	for _, key := range mine {
		if m := p.srv.machine(key.owner, key.id); m.online() == nil {
			p.released(m)
		}
	}
}

// tidy removes the records of instances that are gone, and what is remembered
// of machines that don't come back.
func (p *places) tidy() {
	tick := time.NewTicker(forgetGone)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.srv.ctx.Done():
			return
		}
		p.mu.Lock()
		for key, at := range p.left {
			if time.Since(at) > p.srv.timing.reconnectGrace {
				delete(p.left, key)
			}
		}
		for id, at := range p.gone {
			if time.Since(at) > time.Hour {
				delete(p.gone, id)
			}
		}
		stale := make(map[machineKey]home)
		for key, at := range p.where {
			if !p.node.Alive(at.Instance) {
				stale[key] = at
			}
		}
		p.mu.Unlock()
		p.giveUp() // what failed when it was to be done
		// One instance does it for all.
		if !p.first() {
			continue
		}
		here := make(map[string]bool)
		for key, at := range stale {
			if p.srv.ctx.Err() != nil {
				return
			}
			// Who was cut off has heard of nobody yet, and would take the machines of
			// all others from them.
			if _, asked := here[at.Instance]; !asked {
				here[at.Instance] = !p.surelyGone(at.Instance)
			}
			if here[at.Instance] {
				continue
			}
			if err := p.store.Delete(p.srv.ctx, placeKey(key), at.revision); err != nil && !errors.Is(err, store.ErrConflict) {
				p.srv.log.Error("place of a machine at an instance that is gone not removed", "machine", key.id, "error", err)
				break
			}
		}
	}
}

// moved hears that another instance has a machine now than had before, and whether
// that was by its control socket.
func (s *Server) moved(key machineKey, here, control bool) {
	m := s.known(key.owner, key.id)
	if m == nil {
		return
	}
	if !here {
		m.evict(control)
	}
	m.lookAgain()
}

// evict lets go of a machine that another instance has now. If that has a control
// socket of it, the one here is told what it is told where one replaces another on
// one instance; all others come back, and are passed on. What waits in the queues
// is, too.
func (m *machine) evict(replaced bool) {
	m.mu.Lock()
	control := m.control
	close(m.came) // who waits for the control socket looks where it is
	m.came = make(chan struct{})
	sessions := make([]*session, 0, len(m.sessions))
	for _, ses := range m.sessions {
		sessions = append(sessions, ses)
	}
	m.mu.Unlock()
	switch {
	case control == nil:
	case replaced:
		control.revoke(wire.ReasonAnotherShim)
	default:
		control.sock.closeGently(wire.CloseServiceRestart, "the machine is elsewhere")
	}
	m.lane.handOver()
	for _, ses := range sessions {
		if d := ses.conn(); d != nil {
			d.sock.closeGently(wire.CloseServiceRestart, "the machine is elsewhere")
		}
		ses.lane.handOver()
	}
}

// handOver passes on what waits for a machine that another instance has now.
func (l *lane) handOver() {
	l.mu.Lock()
	waiting := l.queue
	l.queue = nil
	for _, r := range waiting {
		l.bytes -= r.size()
		r.stop()
	}
	l.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	l.srv.spawn(func() {
		for _, r := range waiting {
			if r.from == nil || r.from.guest || r.buf == nil {
				r.finish(result{err: l.of.unreachable()})
			} else {
				r.from.dispatchAgain(r)
			}
		}
	})
}

// isolated hears that this instance can't reach the others, nor the store: every
// socket comes back elsewhere.
func (s *Server) isolated() {
	s.log.Error("cut off from NATS: the sockets are closed, so that they go to other instances")
	for _, k := range s.tracked() {
		k.closeGently(wire.CloseServiceRestart, "cut off")
	}
}

// cutOff says that isolated was the last that was heard. Until that is over nobody
// is let in: whom this instance still knows it could connect to nothing, while
// another one would serve them.
func (s *Server) cutOff() bool { return s.places != nil && !s.places.node.Alive(s.places.node.ID()) }

// recordChanged hears that another instance ended a session.
func (s *Server) recordChanged(ev store.Event) {
	parts := store.Split(ev.Key)
	if len(parts) != 4 || parts[2] != "session" {
		return
	}
	s.reread(parts[1], parts[3])
	if !ev.Deleted {
		return
	}
	s.mu.Lock()
	ses := s.sessions[sessionRef{parts[1], parts[3]}]
	s.mu.Unlock()
	if ses == nil || ses.ending.Load() {
		return
	}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.timing.detach)
		defer cancel()
		s.detach(ctx, ses.machine, ses.rec.ID)
		s.forget(ses, wire.ReasonUserRevoked)
	})
}
