package route

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"

	"farhand/relay/access"
	"farhand/relay/events"
	"farhand/relay/metrics"
	"farhand/wire"
)

// device is one accepted socket of a device: control (session nil) or data.
type device struct {
	sock    *socket
	token   access.Device
	machine *machine
	session *session
	lane    *lane

	id      string // of this connection: connection_id on control, for the log on data
	prefix  string // of the ids of our requests on this connection
	offered wire.Capabilities
	granted wire.Capabilities
	facts   atomic.Pointer[wire.MachineFacts] // control: what STATUS told last
	odd     nuisance
	// watching says that the relay itself receives a stream on this socket.
	watching atomic.Bool
}

// describe names the socket in the log.
func (d *device) describe() []any {
	a := []any{"owner", d.token.Owner, "machine", d.machine.key.id, "connection", d.id}
	if d.session != nil {
		a = append(a, "session", d.session.rec.ID)
	}
	return a
}

// serveDevice is GET /ws/local-executor and /ws/local-executor/{session_id}.
func (s *Server) serveDevice(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		deny(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	defer s.leave()
	if s.cutOff() {
		deny(w, http.StatusServiceUnavailable, "cut off from NATS")
		return
	}
	if !sameOrigin(r) {
		deny(w, http.StatusForbidden, "foreign origin")
		return
	}
	token, ok := bearer(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		deny(w, http.StatusUnauthorized, "bearer token needed")
		return
	}
	who, err := s.authority.Device(r.Context(), token)
	switch {
	case errors.Is(err, access.ErrUnauthorized):
		s.metrics.AuthFailed(metrics.Device)
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		deny(w, http.StatusUnauthorized, "token unknown, expired or revoked")
		return
	case err != nil:
		s.log.Error("device token not checked", "error", err)
		deny(w, http.StatusServiceUnavailable, "try again later")
		return
	case who.ClientID != s.clientID:
		deny(w, http.StatusForbidden, "not a client for devices")
		return
	}
	var ses *session
	if id := r.PathValue("session_id"); id != "" {
		ses, err = s.sessionForDevice(r.Context(), who, id)
		switch {
		case errors.Is(err, errNoSession):
			deny(w, http.StatusForbidden, "no such session of this machine")
			return
		case err != nil:
			s.log.Error("session not looked up", "error", err)
			deny(w, http.StatusServiceUnavailable, "try again later")
			return
		}
	}
	if ses != nil {
		if instance := s.elsewhere(r.Context(), ses.machine.key); instance != "" {
			s.passOn(w, r, instance)
			return
		}
	}
	if !s.families.enter(who.Owner + "/" + who.Family) {
		deny(w, http.StatusTooManyRequests, "too many sockets of one device")
		return
	}
	ws, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.families.leave(who.Owner + "/" + who.Family)
		s.log.Debug("upgrade failed", "error", err)
		return
	}
	s.spawn(func() {
		defer s.families.leave(who.Owner + "/" + who.Family)
		s.runDevice(ws, token, who, ses)
	})
}

// sessionForDevice finds the session that a data socket asks for.
func (s *Server) sessionForDevice(ctx context.Context, who access.Device, id string) (*session, error) {
	if !isSessionID(id) || who.MachineID == "" {
		return nil, errNoSession
	}
	ses, err := s.sessionOn(ctx, who.Owner, id, who.MachineID)
	if err != nil {
		return nil, err
	}
	if ses.rec.Machine != who.MachineID {
		return nil, errNoSession
	}
	return ses, nil
}

// runDevice is the reader of a device's socket, from the upgrade to the end.
func (s *Server) runDevice(ws *websocket.Conn, token string, who access.Device, ses *session) {
	k := s.newSocket(ws, s.bounds.device)
	k.expires, k.owner, k.family, k.peer = who.Expires, who.Owner, who.Family, metrics.Device
	if !s.track(k) {
		k.close(wire.CloseServiceRestart, "restarting")
	}
	defer s.untrack(k)
	// A revocation that came before the socket was tracked didn't see it.
	if _, err := s.authority.Device(s.ctx, token); errors.Is(err, access.ErrUnauthorized) {
		k.revoke(wire.ReasonUserRevoked)
	}

	d, err := s.handshake(k, who, ses)
	if err != nil {
		if no, ok := errors.AsType[*refusal](err); ok {
			s.log.Warn("device refused", "owner", who.Owner, "machine", who.MachineID, "code", no.code, "reason", no.reason)
			k.close(no.code, no.reason)
			k.discard()
		}
		k.finish(err)
		return
	}
	s.log.Info("device connected", append(d.describe(), "capabilities", len(d.granted))...)
	err = d.readLoop()
	if d.leave() {
		d.machine.lost(closeText(err))
	}
	s.log.Info("device disconnected", append(d.describe(), "why", closeText(err), "after", time.Since(k.born).Round(time.Millisecond))...)
	k.finish(err)
}

// handshake waits for HELLO, checks it, answers it and makes the socket the
// machine's or the session's own.
func (s *Server) handshake(k *socket, who access.Device, ses *session) (_ *device, err error) {
	late := time.AfterFunc(s.timing.hello, func() {
		no := refuse(wire.CloseHelloTimeout, "HELLO_TIMEOUT", "no HELLO in time")
		k.close(no.code, no.reason)
	})
	frame, err := k.read(wire.MaxHelloRelay)
	if !late.Stop() || err != nil {
		if errors.Is(err, errTooBig) {
			return nil, badHello("HELLO over 64 KiB")
		}
		if err == nil {
			err = errClosed
		}
		return nil, err
	}
	channel := wire.Control
	if ses != nil {
		channel = wire.Data
	}
	h, no := parseHello(frame.b, channel)
	s.buffers.release(frame)
	if no != nil {
		return nil, no
	}
	ctx := s.ctx
	switch {
	case ses != nil && (h.MachineID != ses.rec.Machine || *h.AllowedRoot != ses.rec.Root):
		return nil, forbidden("not the machine and root of this session")
	case who.MachineID != "" && who.MachineID != h.MachineID:
		return nil, forbidden("the token belongs to another machine_id")
	case who.MachineID == "":
		err := s.authority.Bind(ctx, who, h.MachineID)
		switch {
		case errors.Is(err, access.ErrUnauthorized):
			return nil, forbidden("this machine_id can't be used")
		case err != nil:
			s.log.Error("machine not bound", "machine", h.MachineID, "error", err)
			return nil, refuse(wire.ClosePlatformError, "INTERNAL_ERROR", "try again later")
		}
		who.MachineID = h.MachineID
	}
	m := s.machine(who.Owner, h.MachineID)
	before, err := m.read(ctx)
	if err != nil {
		if errors.Is(err, access.ErrNotFound) {
			return nil, forbidden("this machine isn't approved")
		}
		s.log.Error("machine not read", "machine", h.MachineID, "error", err)
		return nil, refuse(wire.ClosePlatformError, "INTERNAL_ERROR", "try again later")
	}
	m.arriving.Add(1)
	defer func() {
		m.arriving.Add(-1)
		if err != nil {
			s.places.released(m)
		}
	}()
	switch err := s.places.claim(ctx, m, ses == nil); {
	case errors.As(err, new(*errElsewhere)):
		return nil, &refusal{wire.CloseServiceRestart, "the machine is elsewhere"}
	case err != nil:
		s.log.Error("machine not claimed", "machine", h.MachineID, "error", err)
		return nil, refuse(wire.ClosePlatformError, "INTERNAL_ERROR", "try again later")
	}
	d := &device{sock: k, token: who, machine: m, session: ses, offered: h.Capabilities,
		id: uuid.NewString(), prefix: idPrefix()}
	if err := d.welcome(h, before); err != nil {
		return nil, err
	}
	return d, nil
}

// idPrefix makes ids of one connection unlike those of any other, so that an
// answer of an earlier connection is never taken for one of this.
func idPrefix() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-", b)
}

// welcome answers HELLO and takes the socket over. Grants are read under the
// machine's lock, so that no change falls between the answer and GRANTS_UPDATE.
func (d *device) welcome(h hello, before *wire.Hello) error {
	m := d.machine
	m.mu.Lock()
	continued := m.control != nil // by another connection, which this one replaces
	approval := m.approved()
	limits := ceilings{approval: approval}
	set := wire.GrantSet{Owner: m.key.owner, Approval: approval}
	if ses := d.session; ses != nil {
		limits.token, limits.session = ses.rec.Token, ses.rec.Session
		set.Holder, set.Token, set.Session = ses.rec.Holder, ses.rec.Token, ses.rec.Session
	}
	d.granted = grantable(d.offered)
	var grants *wire.GrantSet
	if d.granted.Has(wire.Grants) {
		grants = &set
	} else {
		d.granted = limits.strip(d.granted)
	}
	var sessionID, connectionID *string
	if d.session != nil {
		sessionID = &d.session.rec.ID
	} else {
		connectionID = &d.id
	}
	d.sock.drained = func() { d.lane.resume() }
	err := d.sock.send(h.acknowledge(sessionID, connectionID, d.granted, grants))
	if err == nil {
		if d.session != nil {
			err = d.session.take(d)
		} else {
			err = m.take(d)
		}
	}
	if err == nil && d.session == nil {
		m.hello = &h.Hello
	}
	if err == nil {
		d.lane.attach(d)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	if d.session != nil {
		d.session.announce()
	} else {
		m.announce()
		m.remember()
		if !continued {
			m.happened(events.Event{Type: events.MachineOnline})
		}
		m.devicesSince(before, h.HardwareDevices, h.HardwareTruncated)
		if m.srv.isWatched(m.key.owner) {
			m.srv.spawn(func() { m.watchDevices(d) })
		}
	}
	d.lookAgain()
	return nil
}

// readLoop reads until the socket ends.
func (d *device) readLoop() error {
	s := d.sock.srv
	for {
		frame, err := d.sock.read(wire.MaxFrame)
		if err != nil {
			return err
		}
		if d.sock.isClosing() {
			s.buffers.release(frame) // read on for the sake of the close frame's answer
			continue
		}
		if !d.dispatch(frame) {
			s.buffers.release(frame)
			if d.odd.another(time.Now()) {
				s.log.Warn("device cut off: too many frames that fit nothing", d.describe()...)
				d.sock.close(websocket.ClosePolicyViolation, "too many unexpected frames")
			}
		}
	}
}

// dispatch handles one frame. It says false if the frame fits nothing: late,
// twice, of an unknown type, not an envelope. The frame is then still the caller's.
func (d *device) dispatch(frame *frameBuf) bool {
	env, err := wire.DecodeEnvelope(frame.b)
	if err != nil || env.Payload[0] != '{' {
		return false
	}
	if otherMajor(env.Version) {
		d.sock.srv.log.Error("device sent a frame of another protocol version", append(d.describe(), "version", cut(env.Version, 12), "type", cut(string(env.Type), 64))...)
		no := versionMismatch(env.Version, "upgrade")
		d.sock.close(no.code, no.reason)
		d.sock.srv.buffers.release(frame)
		return true
	}
	switch env.Type {
	case wire.TStatus:
		d.status(env)
		d.sock.srv.buffers.release(frame)
		return true
	case wire.TPing:
		_ = d.sock.send(encode(wire.Message{Type: wire.TPong, ID: env.ID}))
		d.sock.srv.buffers.release(frame)
		return true
	case wire.TRecordingStep:
		return false
	case wire.TStreamData:
		return d.stream(env, frame)
	}
	return d.lane.answer(d, env, frame)
}

func (d *device) status(env wire.Envelope) {
	var st wire.Status
	if wire.Decode(env.Payload, &st) != nil {
		return
	}
	d.lane.status(d, st, env.PendingCapacity)
	if st.AuditAnchor != nil && d.granted.Has(wire.AuditAnchor) {
		d.machine.anchored(*st.AuditAnchor)
	}
	if st.Facts != nil && d.session == nil && d.granted.Has(wire.MachineFactsCapability) {
		facts := st.Facts.Cleaned()
		d.facts.Store(&facts)
	}
}

// leave gives up the socket's place, and says whether the machine is offline now
// that wasn't before.
func (d *device) leave() (offline bool) {
	if d.session != nil {
		d.session.drop(d)
	} else {
		offline = d.machine.drop(d)
	}
	d.lane.detach(d)
	return offline
}

// revoke ends the socket, see socket.revoke.
func (d *device) revoke(reason string) {
	d.sock.srv.log.Info("device socket revoked", append(d.describe(), "reason", reason)...)
	d.sock.revoke(reason)
}

// nuisance counts what a peer sends that fits nothing. Single frames of the kind
// are the ordinary consequence of lost links and deadlines; only many in a short
// time are abuse.
type nuisance struct {
	n    int
	last time.Time
}

const (
	nuisanceLimit  = 128             // so many in a row are forgiven
	nuisanceForget = 2 * time.Second // and one more each time this passes
)

// another counts one and says whether it was one too many.
func (c *nuisance) another(now time.Time) bool {
	c.n = max(0, c.n-int(now.Sub(c.last)/nuisanceForget)) + 1
	c.last = now
	return c.n > nuisanceLimit
}
