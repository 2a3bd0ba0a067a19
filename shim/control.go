package shim

import (
	"context"
	"regexp"
	"sync"
	"time"

	"farhand/audit"
	"farhand/wire"
)

var sessionIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)

// controlTable is what the control socket answers by itself. The four that
// change sessions hold the session's lock, so that a lane isn't needed.
func (s *Shim) controlTable() Table {
	return Table{
		wire.TDirectoryListRequest: {Handle: Unary(s.directoryList)},
		wire.TAttachSession:        {Handle: Unary(s.attachSession), Lane: sessionLane},
		wire.TActivateSession:      {Handle: Unary(s.activateSession), Lane: sessionLane},
		wire.TRestoreSession:       {Handle: Unary(s.restoreSession), Lane: sessionLane},
		wire.TDetachSession:        {Handle: Unary(s.detachSession), Lane: sessionLane},
	}
}

// sessionLane keeps the requests for one session in the order of the wire.
func sessionLane(c *Call) string {
	var which struct {
		SessionID string `json:"session_id"`
	}
	if wire.Decode(c.Payload, &which) != nil {
		return ""
	}
	return which.SessionID
}

// sessionLock serialises what changes one session; it lives as long as somebody
// wants it.
type sessionLock struct {
	held  chan struct{}
	users int
}

// lock takes the lock of a session.
func (s *Shim) lock(ctx context.Context, id string) (unlock func(), err error) {
	if len(id) > 256 || !sessionIDForm.MatchString(id) {
		return nil, wire.Errorf(wire.InternalError, "not a session id").With("reason", "invalid_session_id")
	}
	s.mu.Lock()
	l := s.locks[id]
	if l == nil {
		l = &sessionLock{held: make(chan struct{}, 1)}
		s.locks[id] = l
	}
	l.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.locks, id)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

func (s *Shim) session(id string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// admit adds a session that is about to start.
func (s *Shim) admit(session *Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= maxLive {
		return tooManySessions()
	}
	s.sessions[session.ID()] = session
	return nil
}

func tooManySessions() error {
	return wire.Errorf(wire.InternalError, "%d sessions are live already", maxLive).With("reason", "too_many_sessions")
}

// forget removes a session that ended.
func (s *Shim) forget(session *Session) {
	s.mu.Lock()
	if s.sessions[session.ID()] == session {
		delete(s.sessions, session.ID())
	}
	s.mu.Unlock()
	s.set(func(*Status) {})
}

// attachSession binds a session to a directory that was browsed to.
func (s *Shim) attachSession(ctx context.Context, c *Call, req wire.AttachSession) (any, error) {
	start := time.Now()
	b, previous, err := s.attach(ctx, c, req)
	if err != nil {
		s.note(audit.Entry{SessionID: req.SessionID, RequestID: c.ID, Op: string(wire.TAttachSession), Result: audit.ResultOf(err, time.Since(start))})
		return nil, err
	}
	err = s.record(ctx, audit.Entry{SessionID: req.SessionID, RequestID: c.ID, Op: audit.OpRootSet, Details: []audit.Field{
		audit.StringOrNull("previous_allowed_root", previous), audit.String("allowed_root", b.AllowedRoot),
		audit.String("fingerprint", b.Fingerprint), audit.Int("revision", b.Revision),
	}, Result: audit.ResultOf(nil, time.Since(start))})
	if err != nil {
		if undo := s.cfg.Bindings.Detach(req.SessionID); undo != nil {
			s.log.Error("unrecorded binding not undone", "session", req.SessionID, "err", undo)
		}
		return nil, err
	}
	return b, nil
}

func (s *Shim) attach(ctx context.Context, c *Call, req wire.AttachSession) (wire.SessionBinding, *string, error) {
	unlock, err := s.lock(ctx, req.SessionID)
	if err != nil {
		return wire.SessionBinding{}, nil, err
	}
	defer unlock()
	if s.session(req.SessionID) != nil {
		return wire.SessionBinding{}, nil, wire.Errorf(wire.SessionAlreadyActive, "the session is active; detach it first")
	}
	root, err := s.browser.take(req.BrowseID, req.DirectoryRef)
	if err != nil {
		return wire.SessionBinding{}, nil, err
	}
	if err := c.Policy().Root(root); err != nil {
		return wire.SessionBinding{}, nil, err
	}
	var previous *string
	if b, ok := s.cfg.Bindings.Lookup(req.SessionID); ok {
		previous = &b.AllowedRoot
	}
	b, err := s.cfg.Bindings.Attach(req.SessionID, root)
	return b, previous, err
}

// activateSession starts an attached session.
func (s *Shim) activateSession(ctx context.Context, c *Call, req wire.ActivateSession) (any, error) {
	start := time.Now()
	b, err := s.activate(ctx, c, req, start)
	if err != nil {
		s.note(audit.Entry{SessionID: req.SessionID, RequestID: c.ID, Op: string(wire.TActivateSession), Result: audit.ResultOf(err, time.Since(start))})
		return nil, err
	}
	b.RootGrant = ""
	return b, nil
}

func (s *Shim) activate(ctx context.Context, c *Call, req wire.ActivateSession, start time.Time) (wire.SessionBinding, error) {
	unlock, err := s.lock(ctx, req.SessionID)
	if err != nil {
		return wire.SessionBinding{}, err
	}
	defer unlock()
	b, err := s.cfg.Bindings.Activate(req.SessionID, req.Revision)
	if err != nil {
		return b, err
	}
	return b, s.bringUp(ctx, c, b, wire.TActivateSession, start)
}

// restoreSession starts a session by the grant that the platform kept.
func (s *Shim) restoreSession(ctx context.Context, c *Call, req wire.RestoreSession) (any, error) {
	start := time.Now()
	b, err := s.restore(ctx, c, req, start)
	if err != nil {
		s.note(audit.Entry{SessionID: req.SessionID, RequestID: c.ID, Op: string(wire.TRestoreSession), Result: audit.ResultOf(err, time.Since(start))})
		return nil, err
	}
	return b, nil
}

func (s *Shim) restore(ctx context.Context, c *Call, req wire.RestoreSession, start time.Time) (wire.SessionBinding, error) {
	unlock, err := s.lock(ctx, req.SessionID)
	if err != nil {
		return wire.SessionBinding{}, err
	}
	defer unlock()
	b, err := s.cfg.Bindings.Restore(req.SessionID, req.RootGrant)
	if err != nil {
		return b, err
	}
	return b, s.bringUp(ctx, c, b, wire.TRestoreSession, start)
}

// bringUp makes the session of a binding live. One that is live already with
// the same binding stays; one with another is replaced. Called with the
// session's lock held.
func (s *Shim) bringUp(ctx context.Context, c *Call, b wire.SessionBinding, op wire.Type, start time.Time) error {
	entry := audit.Entry{SessionID: b.SessionID, RequestID: c.ID, Op: string(op), Details: []audit.Field{
		audit.String("allowed_root", b.AllowedRoot), audit.Int("revision", b.Revision),
	}, Result: audit.Result{OK: true, Duration: time.Since(start)}}
	if err := c.Policy().Root(b.AllowedRoot); err != nil {
		return err
	}
	old := s.session(b.SessionID)
	if old != nil && old.binding == b && old.ctx.Err() == nil {
		old.revive()
		if err := s.cfg.Audit.Append(entry); err != nil { // nothing changes: no need to wait for the disk
			return wire.Errorf(wire.InternalError, "the audit log can't be written").With("reason", "audit_unavailable")
		}
		return nil
	}
	if err := checkRootText(b.AllowedRoot); err != nil {
		return wire.Errorf(wire.DirectoryUnavailable, "the root can't be announced: %v", err)
	}
	s.mu.Lock()
	parent, full := s.running, old == nil && len(s.sessions) >= maxLive
	s.mu.Unlock()
	if full {
		return tooManySessions()
	}
	session, err := s.newSession(parent, b)
	if err != nil {
		return err
	}
	if err := s.record(ctx, entry); err != nil {
		session.abandon()
		return err
	}
	if old != nil {
		old.stop(detachWait, errStopping)
		s.forget(old)
	}
	if err := s.admit(session); err != nil {
		session.abandon()
		return err
	}
	session.start()
	s.set(func(*Status) {})
	return nil
}

// detachSession stops a session and forgets its binding. It succeeds for
// sessions that don't exist, since the platform detaches to clean up.
func (s *Shim) detachSession(ctx context.Context, c *Call, req wire.DetachSession) (any, error) {
	start := time.Now()
	unlock, err := s.lock(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	details := []audit.Field{audit.Null("allowed_root"), audit.Null("revision")}
	if b, ok := s.cfg.Bindings.Lookup(req.SessionID); ok {
		details = []audit.Field{audit.String("allowed_root", b.AllowedRoot), audit.Int("revision", b.Revision)}
	}
	// Less access is never refused for want of a record: the session stops first.
	if session := s.session(req.SessionID); session != nil {
		if !session.stop(detachWait, errStopping) {
			s.log.Warn("session still closing after DETACH_SESSION", "session", session.ID())
		}
		s.forget(session)
	}
	if err := s.cfg.Bindings.Detach(req.SessionID); err != nil {
		s.note(audit.Entry{SessionID: req.SessionID, RequestID: c.ID, Op: string(wire.TDetachSession), Details: details, Result: audit.ResultOf(err, time.Since(start))})
		return nil, err
	}
	return nil, s.record(ctx, audit.Entry{SessionID: req.SessionID, RequestID: c.ID, Op: string(wire.TDetachSession), Details: details, Result: audit.ResultOf(nil, time.Since(start))})
}

// reap ends sessions that nobody used for long; their bindings stay.
func (s *Shim) reap(ctx context.Context) {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		sessions := s.live()
		s.mu.Unlock()
		for _, session := range sessions {
			s.reapOne(ctx, session)
		}
	}
}

func (s *Shim) reapOne(ctx context.Context, session *Session) {
	if session.idle() <= idleLimit {
		return
	}
	unlock, err := s.lock(ctx, session.ID())
	if err != nil {
		return
	}
	defer unlock()
	idle := session.idle()
	if idle <= idleLimit || s.session(session.ID()) != session {
		return
	}
	err = s.record(ctx, audit.Entry{SessionID: session.ID(), Op: audit.OpIdleDetach, Details: []audit.Field{audit.Float("idle_seconds", idle.Seconds())}, Result: audit.Result{OK: true}})
	if err != nil {
		return // what can't be recorded waits for the next round
	}
	session.stop(detachWait, errStopping)
}

// stopSessions ends all sessions at once and waits for them.
func (s *Shim) stopSessions() {
	s.mu.Lock()
	sessions := s.live()
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, session := range sessions {
		all.Go(func() {
			if !session.stop(stopWait, errStopping) {
				s.log.Error("session didn't end in time", "session", session.ID())
			}
		})
	}
	all.Wait()
}
