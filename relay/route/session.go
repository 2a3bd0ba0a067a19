package route

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"farhand/wire"
)

// session is one session while the relay runs: its record, its data socket when
// there is one, and the lane that brings the socket back when there is not.
type session struct {
	machine *machine
	rec     record // read only
	lane    lane
	used    atomic.Int64 // unix seconds of the last request
	saved   atomic.Int64 // of it, what the record has
	flowed  atomic.Int64 // unix seconds: when a frame of a stream last went through, either way

	mu     sync.Mutex
	data   *device
	came   chan struct{} // closed and replaced when a data socket comes
	count  int           // data sockets that came so far
	flight *flight
	gone   bool
	ending atomic.Bool // here: the record goes, and nobody else has to see to the rest
	reread int         // counts what may have changed joined
	joined []*session  // the parts of a session that spans machines, but the first, which has them; nil: not read yet

	turn atomic.Uint64 // of the router, whose is it
}

// flight is one attempt to bring the data socket back, shared by all who want it.
type flight struct {
	done chan struct{}
	err  *wire.Error // read only once done is closed
}

// session finds a session of an owner, in memory or in the store.
func (s *Server) session(ctx context.Context, owner, id string) (*session, error) {
	s.mu.Lock()
	ses := s.sessions[sessionRef{owner, id}]
	s.mu.Unlock()
	if ses != nil {
		if e := ses.rec.Expires; !e.IsZero() && time.Now().After(e) {
			return nil, errNoSession
		}
		return ses, nil
	}
	rec, err := s.loadRecord(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return s.adopt(rec), nil
}

type sessionRef struct{ owner, id string }

// adopt makes the live half of a record, or finds it.
func (s *Server) adopt(rec record) *session {
	m := s.machine(rec.Owner, rec.Machine)
	s.mu.Lock()
	ses := s.sessions[sessionRef{rec.Owner, rec.key()}]
	fresh := ses == nil
	if fresh {
		ses = &session{machine: m, rec: rec, came: make(chan struct{})}
		ses.lane.srv, ses.lane.machineID, ses.lane.of, ses.lane.hungry = s, rec.Machine, m, func() { ses.revive() }
		ses.used.Store(rec.LastUsed.Unix())
		ses.saved.Store(rec.LastUsed.Unix())
		s.sessions[sessionRef{rec.Owner, rec.key()}] = ses
	}
	s.mu.Unlock()
	if fresh {
		m.mu.Lock()
		m.sessions[rec.ID] = ses
		m.mu.Unlock()
	}
	return ses
}

// forget takes the session out of memory and ends its socket and its requests.
func (s *Server) forget(ses *session, reason string) {
	ref := sessionRef{ses.rec.Owner, ses.rec.key()}
	s.mu.Lock()
	if s.sessions[ref] == ses {
		delete(s.sessions, ref)
	}
	s.mu.Unlock()
	m := ses.machine
	m.mu.Lock()
	if m.sessions[ses.rec.ID] == ses {
		delete(m.sessions, ses.rec.ID)
	}
	m.mu.Unlock()
	ses.mu.Lock()
	ses.gone = true
	d := ses.data
	ses.mu.Unlock()
	if d != nil {
		d.revoke(reason)
	}
	ses.lane.close(noSession(ses.rec.ID))
}

func noSession(id string) *wire.Error {
	return wire.Errorf(wire.SessionNotFound, "there is no such session").With("session_id", cut(id, 128))
}

func (ses *session) conn() *device {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return ses.data
}

// take makes d the data socket.
func (ses *session) take(d *device) error {
	if ses.machine.srv.isClosed() {
		return errClosed
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.gone {
		return forbidden("the session has ended")
	}
	d.lane = &ses.lane
	ses.lane.hint(ses.machine.lane.known()) // max_concurrent is one setting for all sockets of a device
	if old := ses.data; old != nil {
		old.revoke(wire.ReasonAnotherShim)
	}
	ses.data = d
	ses.count++
	return nil
}

func (ses *session) announce() {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	close(ses.came)
	ses.came = make(chan struct{})
}

func (ses *session) drop(d *device) {
	ses.mu.Lock()
	if ses.data == d {
		ses.data = nil
	}
	ses.mu.Unlock()
	ses.machine.srv.places.released(ses.machine)
	ses.save()
}

// save has the time of the last use written, if it changed by more than a minute.
func (ses *session) save() {
	used := ses.used.Load()
	if used-ses.saved.Load() < 60 {
		return
	}
	ses.saved.Store(used)
	s := ses.machine.srv
	if err := s.touchRecord(s.ctx, ses.rec.Owner, ses.rec.key(), time.Unix(used, 0).UTC()); err != nil {
		s.log.Error("last use not stored", "session", ses.rec.ID, "error", err)
	}
}

func (ses *session) ceilings() ceilings {
	return ceilings{approval: ses.machine.approved(), token: ses.rec.Token, session: ses.rec.Session}
}

// ensure returns once the data socket is there, or says why it isn't.
func (ses *session) ensure(ctx context.Context) *wire.Error {
	f := ses.revive()
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return wire.Errorf(wire.RequestTimeout, "the session was not restored in time")
	}
}

// revive starts bringing the data socket back, or joins those who do; nil if it
// is there.
func (ses *session) revive() *flight {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.data != nil {
		return nil
	}
	if ses.flight == nil {
		f := &flight{done: make(chan struct{})}
		ses.flight = f
		ses.machine.srv.spawn(func() { ses.fly(f) })
	}
	return ses.flight
}

func (ses *session) fly(f *flight) {
	ctx, cancel := context.WithTimeout(ses.machine.srv.ctx, ses.machine.srv.timing.queue)
	defer cancel()
	err := ses.restore(ctx)
	ses.mu.Lock()
	ses.flight = nil
	ses.mu.Unlock()
	f.err = err
	close(f.done)
	if err != nil {
		ses.machine.srv.log.Warn("session not restored", "machine", ses.machine.key.id, "session", ses.rec.ID, "error", err)
		ses.lane.failQueued(err)
	} else if ses.lane.starving() {
		ses.revive()
	}
}

// restore asks the device to open the session again and waits for its socket. A
// control socket that is lost meanwhile is waited for.
func (ses *session) restore(ctx context.Context) *wire.Error {
	m := ses.machine
	for {
		if _, err := m.connected(ctx); err != nil {
			return err
		}
		ses.mu.Lock()
		here, before := ses.data != nil, ses.count
		ses.mu.Unlock()
		if here { // the device came back by itself
			return nil
		}
		restore := func() ([]byte, error) {
			return m.call(ctx, wire.TRestoreSession,
				wire.RestoreSession{SessionID: ses.rec.ID, RootGrant: ses.rec.Grant}, m.srv.timing.control)
		}
		body, err := restore()
		if m.crowded(ctx, err, ses) {
			body, err = restore()
		}
		switch {
		case err == nil:
		case errors.Is(err, wire.MachineUnreachable) && ctx.Err() == nil,
			errors.Is(err, wire.RequestTimeout) && ctx.Err() == nil && m.online() == nil:
			continue // connected decides whether that makes sense
		case errors.Is(err, wire.RequestTimeout):
			return m.about(wire.Errorf(wire.MachineUnreachable, "%s doesn't answer: the session was not restored", m.called()))
		default:
			return wire.AsError(err)
		}
		var got wire.SessionBinding
		if err := wire.Decode(body, &got); err != nil || got != ses.rec.binding() {
			return wire.Errorf(wire.RootGrantInvalid, "the machine restored something else than this session").
				With("session_id", ses.rec.ID)
		}
		if !ses.await(ctx, before, m.srv.timing.dataSocket) {
			return m.about(wire.Errorf(wire.MachineUnreachable, "%s didn't open the session's connection in time", m.called()))
		}
		return nil
	}
}

func (r record) binding() wire.SessionBinding {
	return wire.SessionBinding{SessionID: r.ID, AllowedRoot: r.Root, Fingerprint: r.Fingerprint, Revision: r.Revision, RootGrant: r.Grant}
}

// await waits for a data socket after the first so many. One that is gone again
// counts: it was there.
func (ses *session) await(ctx context.Context, before int, patience time.Duration) bool {
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		ses.mu.Lock()
		more, came := ses.count > before, ses.came
		ses.mu.Unlock()
		if more {
			return true
		}
		select {
		case <-came:
		case <-t.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// maxLive is how many sessions a device has live at a time (protocol 1.1). It
// answers INTERNAL_ERROR to one more.
const maxLive = 8

// crowded says whether err came of too many live sessions and one that nobody
// uses was closed on the device, so that trying again makes sense. The closed one
// comes back with its next request.
func (m *machine) crowded(ctx context.Context, err error, wanted *session) bool {
	if !errors.Is(err, wire.InternalError) {
		return false
	}
	m.mu.Lock()
	live := 0
	var idle *session
	for _, ses := range m.sessions {
		if ses == wanted || ses.conn() == nil {
			continue
		}
		live++
		if ses.lane.outstanding() == 0 && !ses.streaming(time.Now()) && (idle == nil || ses.used.Load() < idle.used.Load()) {
			idle = ses
		}
	}
	m.mu.Unlock()
	if live < maxLive || idle == nil {
		return false
	}
	m.srv.log.Info("idle session closed to make room", "machine", m.key.id, "session", idle.rec.ID)
	m.srv.detach(ctx, m, idle.rec.ID)
	return true
}

// end removes the session: the record first, so that a removal that fails has
// torn nothing down, then the device's side and ours.
func (s *Server) end(ctx context.Context, ses *session) error {
	ses.ending.Store(true)
	if err := s.endJoined(ctx, ses); err != nil {
		return err
	}
	if err := s.deleteRecord(ctx, ses.rec.Owner, ses.rec.key()); err != nil {
		return err
	}
	s.detach(ctx, ses.machine, ses.rec.ID)
	s.forget(ses, wire.ReasonUserRevoked)
	return nil
}

// detach tells the device to give a session up. That is best effort: a session
// whose record is gone gets no socket any more.
func (s *Server) detach(ctx context.Context, m *machine, id string) {
	if m.online() == nil {
		return
	}
	if _, err := m.call(ctx, wire.TDetachSession, wire.DetachSession{SessionID: id}, s.timing.detach); err != nil {
		s.log.Warn("session not detached on the device", "machine", m.key.id, "session", id, "error", fmt.Sprint(err))
	}
}

// endJoined ends what hangs on a session that is about to end: the parts on other
// machines, or its place among them.
func (s *Server) endJoined(ctx context.Context, ses *session) error {
	if ses.rec.Joined {
		if first, err := s.session(ctx, ses.rec.Owner, ses.rec.ID); err == nil {
			first.join(ses, false)
		}
		return nil
	}
	parts, err := s.parts(ctx, ses)
	if err != nil {
		return err
	}
	for _, part := range parts[1:] {
		if err := s.end(ctx, part); err != nil {
			return err
		}
	}
	return nil
}
