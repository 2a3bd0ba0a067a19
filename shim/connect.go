package shim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"farhand/audit"
	"farhand/internal/backoff"
	"farhand/internal/pulse"
	"farhand/link"
	"farhand/wire"
)

// endpoint is one place to connect to, again and again: the control socket or a
// session's.
type endpoint struct {
	shim    *Shim
	url     string
	session *Session // nil: control
	wake    chan struct{}
	backoff backoff.Backoff
	refused int         // refusals in a row: 4400, 4403, HTTP 403
	expired int         // closes with 4401 in a row
	token   string      // of the last connection
	stale   string      // closed with 4401: not to be used again
	hopeful atomic.Bool // waits for the network or the platform to come back
	loop    *pulse.Loop
}

// How long the parts of a connection may take at the very most. Each has bounds of
// its own that come to less.
const (
	openOverdue  = 4 * time.Minute // tokens, the clock, dialling twice, the handshake
	closeOverdue = time.Minute
)

func (s *Shim) newEndpoint(url string, session *Session) *endpoint {
	return &endpoint{shim: s, url: url, session: session, wake: make(chan struct{}, 1), backoff: backoff.Default(), loop: pulse.New("the loop that keeps a connection")}
}

// nudge ends a wait between two attempts.
func (p *endpoint) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// keep connects until ctx ends (nil) or something says not to go on.
func (p *endpoint) keep(ctx context.Context) error {
	defer p.loop.End()
	for {
		served, err := p.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait, err := p.judge(err, served)
		if err != nil {
			return err
		}
		p.shim.waiting(p, wait)
		if !p.rest(ctx, wait) {
			return nil
		}
	}
}

// rest waits between two attempts; false means that ctx has ended.
func (p *endpoint) rest(ctx context.Context, wait time.Duration) bool {
	p.hopeful.Store(p.refused == 0)
	defer p.hopeful.Store(false)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-p.wake:
			return true
		case <-ctx.Done():
			return false
		case reply := <-p.loop.Asked():
			close(reply)
		}
	}
}

// notServed stands for a connection that ended before its handshake was over.
const notServed time.Duration = -1

// once is one connection from dial to end, and how long it was served.
func (p *endpoint) once(ctx context.Context) (served time.Duration, err error) {
	s := p.shim
	opened := sync.OnceFunc(p.loop.Busy(openOverdue))
	defer opened()
	s.connecting(p)
	conn, token, hello, offered, err := p.open(ctx)
	if err != nil {
		return notServed, err
	}
	p.token = token
	kind, id := wire.Control, ""
	if p.session != nil {
		kind, id = wire.Data, p.session.ID()
	}
	stop := context.AfterFunc(ctx, func() { conn.Abort(context.Cause(ctx)) })
	a, err := s.handshake(ctx, conn, kind, id, hello, offered)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		p.endHandshake(conn, err)
		return notServed, err
	}
	k := s.newSocket(ctx, conn, p.session, a, token)
	p.recordConnected(a)
	s.connected(p, k, a)
	since := time.Now()
	opened()
	err = k.serve(ctx, p.loop)
	defer p.loop.Busy(closeOverdue)()
	s.disconnected(p, err)
	p.recordDisconnected(err)
	return time.Since(since), err
}

// endHandshake closes a socket whose handshake failed.
func (p *endpoint) endHandshake(conn *link.Conn, err error) {
	var no *refusal
	var r *revoked
	switch {
	case errors.As(err, &no):
		conn.Close(no.code, no.reason)
	case errors.As(err, &r):
		conn.Mute()
		p.shim.recordRevoked(p.session, r.Reason, "frame", 0, r.NewShimMachineID)
		conn.Close(wire.CloseSessionRevoked, "session_revoked")
	default:
		conn.Close(1000, "")
	}
}

// open dials and, meanwhile, makes the HELLO. An HTTP 401 renews the token once.
func (p *endpoint) open(ctx context.Context) (conn *link.Conn, token string, hello wire.Message, offered wire.Capabilities, err error) {
	kind, root := wire.Control, ""
	if p.session != nil {
		kind, root = wire.Data, p.session.Root()
	}
	type made struct {
		message wire.Message
		offered wire.Capabilities
		err     error
	}
	making := make(chan made, 1)
	helloCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		m, o, err := p.shim.hello(helloCtx, kind, root)
		making <- made{m, o, err}
	}()
	conn, token, err = p.dial(ctx)
	if err != nil {
		cancel()
	}
	h := <-making
	switch {
	case err != nil:
		return nil, "", wire.Message{}, nil, err
	case h.err != nil:
		conn.Close(1000, "")
		return nil, "", wire.Message{}, nil, h.err
	}
	return conn, token, h.message, h.offered, nil
}

func (p *endpoint) dial(ctx context.Context) (*link.Conn, string, error) {
	cfg := &p.shim.cfg
	token, err := cfg.Tokens.Token(ctx)
	if err == nil && token == p.stale {
		token, err = cfg.Tokens.Rejected(ctx, token)
	}
	if err != nil {
		return nil, "", p.tokenError(err)
	}
	conn, err := cfg.Dial(ctx, p.url, token)
	if !unauthorised(err, cfg.Tokens.Expiry()) {
		return conn, token, err
	}
	if token, err = cfg.Tokens.Rejected(ctx, token); err != nil {
		return nil, "", p.tokenError(err)
	}
	conn, err = cfg.Dial(ctx, p.url, token)
	if e, ok := errors.AsType[*link.DialError](err); ok && e.Status == 401 {
		return nil, "", fmt.Errorf("%w: the renewed token was refused too", ErrLoginNeeded)
	}
	return conn, token, err
}

// unauthorised says whether a refusal calls for another token. Some servers can
// only say 403 before the upgrade, whatever the cause.
func unauthorised(err error, expiry time.Time) bool {
	e, ok := errors.AsType[*link.DialError](err)
	if !ok {
		return false
	}
	return e.Status == 401 || e.Status == 403 && !expiry.IsZero() && !time.Now().Before(expiry)
}

func (p *endpoint) tokenError(err error) error {
	if p.shim.cfg.LoginNeeded(err) {
		return fmt.Errorf("%w: %w", ErrLoginNeeded, err)
	}
	return fmt.Errorf("token: %w", err)
}

// judge decides what follows the end of a connection that was served for so
// long: a wait before the next attempt, or an error that ends the endpoint.
func (p *endpoint) judge(err error, served time.Duration) (time.Duration, error) {
	if served >= healthyAfter {
		p.backoff.Reset()
	}
	if served != notServed {
		p.refused = 0 // the handshake went through; a 4400 or 4403 below counts anew
	}
	code := 0
	if e, ok := errors.AsType[*link.CloseError](err); ok {
		code = e.Code
	}
	if code == wire.CloseVersionMismatch || code == wire.CloseSessionTakenOver || code == wire.CloseSessionRevoked || code == wire.ClosePlatformShutdown {
		p.shim.recordRevoked(p.session, closeLabel(code), "ws_close_code", code, nil)
	}
	if end := terminal(err, code); end != nil {
		return 0, end
	}
	p.shim.failed(p, err)
	if served >= healthyAfter/2 {
		p.expired = 0
	}
	if code == wire.CloseAuthExpired {
		p.stale = p.token
		p.expired++
	}
	switch {
	case errors.Is(err, errHandover):
		return 0, nil
	case code == wire.CloseAuthExpired && p.expired == 1:
		return 0, nil // the hourly renewal
	case code == wire.CloseBadHello || code == wire.CloseForbidden || isForbidden(err):
		return p.refusedAgain(code)
	case served != notServed && (code == 1000 || code == 1001 || code == wire.CloseServiceRestart):
		p.backoff.Reset()
		return p.backoff.Next(), nil
	}
	return p.backoff.Next(), nil
}

// refusedAgain: what only a person can end is tried a few times in case it was
// a passing trouble, and then seldom. A session ends instead: it is restored
// with its next turn.
func (p *endpoint) refusedAgain(code int) (time.Duration, error) {
	p.refused++
	again := p.refused < refusalsUntil
	switch {
	case p.session != nil && (code == wire.CloseForbidden || !again):
		return 0, &Halted{Code: wire.CloseForbidden, Reason: "the platform refuses this session"}
	case again:
		return p.backoff.Next(), nil
	}
	return slowRetry - slowJitter + rand.N(2*slowJitter), nil
}

func isForbidden(err error) bool {
	e, ok := errors.AsType[*link.DialError](err)
	return ok && e.Status == 403
}

// terminal is the error that ends an endpoint, or nil if it may go on.
func terminal(err error, code int) error {
	var halted *Halted
	var no *refusal
	var r *revoked
	switch {
	case errors.Is(err, ErrLoginNeeded), errors.As(err, &halted):
		return err
	case errors.As(err, &no):
		return &Halted{Code: no.code, Reason: no.reason}
	case errors.As(err, &r):
		return revocation(r.Reason)
	}
	switch code {
	case wire.CloseVersionMismatch, wire.CloseSessionTakenOver, wire.ClosePlatformShutdown:
		return &Halted{Code: code, Reason: err.Error()}
	case wire.CloseSessionRevoked:
		return ErrRevoked
	}
	return nil
}

// revocation is what a reason of SESSION_REVOKED means for the endpoint.
func revocation(reason string) error {
	switch reason {
	case wire.ReasonAnotherShim:
		return &Halted{Code: wire.CloseSessionTakenOver, Reason: reason}
	case wire.ReasonPlatformShutdown:
		return &Halted{Code: wire.ClosePlatformShutdown, Reason: reason}
	case wire.ReasonUserRevoked:
		return ErrRevoked
	}
	return &Halted{Code: wire.CloseSessionRevoked, Reason: "revoked: " + clip(reason)}
}

// closeLabel names a close code in records.
func closeLabel(code int) string {
	switch code {
	case wire.CloseBadHello:
		return "bad_hello"
	case wire.CloseAuthExpired:
		return "auth_expired"
	case wire.CloseForbidden:
		return "forbidden"
	case wire.CloseHelloTimeout:
		return "hello_timeout"
	case wire.CloseVersionMismatch:
		return "protocol_version_mismatch"
	case wire.CloseSessionTakenOver:
		return "session_taken_over"
	case wire.CloseSessionRevoked:
		return "session_revoked"
	case wire.ClosePlatformShutdown:
		return "platform_shutdown"
	case wire.CloseServiceRestart:
		return "service_restart"
	}
	return "other"
}

func (p *endpoint) sessionID() string {
	if p.session == nil {
		return ""
	}
	return p.session.ID()
}

// recordConnected leaves the records of a good handshake. They are told rather
// than asked: a full disk shows at each operation, and a device that can't be
// reached can't be helped.
func (p *endpoint) recordConnected(a accepted) {
	names := make([]string, len(a.granted))
	for i, c := range a.granted {
		names[i] = string(c)
	}
	p.shim.note(audit.Entry{SessionID: p.sessionID(), Op: audit.OpConnected, Details: []audit.Field{audit.String("url", p.url)}, Result: audit.Result{OK: true}})
	p.shim.note(audit.Entry{SessionID: p.sessionID(), Op: audit.OpConfigReloaded, Details: []audit.Field{audit.Strings("granted_capabilities", names)}, Result: audit.Result{OK: true}})
}

func (p *endpoint) recordDisconnected(err error) {
	reason := "clean_exit"
	if e, ok := errors.AsType[*link.CloseError](err); ok {
		reason = fmt.Sprintf("ws_closed_%d_%s", e.Code, closeLabel(e.Code))
	} else if err != nil && !errors.Is(err, errHandover) {
		reason = "loop_error: " + errorClass(err)
	}
	p.shim.note(audit.Entry{SessionID: p.sessionID(), Op: audit.OpDisconnected, Details: []audit.Field{audit.String("reason", reason)}, Result: audit.Result{OK: true}})
}

func errorClass(err error) string {
	var r *revoked
	switch {
	case errors.As(err, &r):
		return "session_revoked"
	case errors.Is(err, link.ErrSilent):
		return "peer_silent"
	case errors.Is(err, link.ErrTooBig):
		return "message_too_large"
	}
	return "network"
}
