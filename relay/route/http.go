package route

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"farhand/relay/access"
	"farhand/relay/limit"
	"farhand/relay/metrics"
	"farhand/wire"
)

// maxBody is the largest request body of the JSON API: a ceiling with some
// hundred device patterns is below 32 KiB.
const maxBody = 64 << 10

// codeUnavailable is the API's code for a failure of the relay itself.
const codeUnavailable wire.Code = "UNAVAILABLE"

// bearer is the credential of the Authorization header.
func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > 1024 {
		return "", false
	}
	return token, true
}

// sameOrigin refuses what a browser sends from a foreign page. Devices and
// commands send no Origin.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Values("Origin")
	if len(origin) == 0 {
		return true
	}
	u, err := url.Parse(origin[0])
	return len(origin) == 1 && err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// deny answers an upgrade that is refused, in the AutoGPT platform's words.
func deny(w http.ResponseWriter, status int, detail string) {
	reply(w, status, map[string]string{"detail": detail})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body)
}

// replyError answers a call of the JSON API that failed.
func (s *Server) replyError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*wire.Error](err)
	status := http.StatusServiceUnavailable
	switch {
	case ok:
		status = statusOf(e.Code)
	case errors.Is(err, access.ErrNotFound), errors.Is(err, errNoSession):
		e, status = wire.Errorf(wire.SessionNotFound, "not found"), http.StatusNotFound
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e = wire.Errorf(wire.RequestTimeout, "it took too long")
	default:
		s.log.Error("call failed", "error", err)
		e = wire.Errorf(codeUnavailable, "the relay can't answer now: try again")
	}
	if wait, ok := e.Details["retry_after_seconds"].(float64); ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait))))
	}
	reply(w, status, map[string]any{"error": e})
}

// statusOf is the HTTP status that goes with a code.
func statusOf(c wire.Code) int {
	switch c {
	case wire.AuthFailed:
		return http.StatusUnauthorized
	case wire.CapabilityNotGranted, wire.PathOutsideAllowedRoot, codeLoginRequired:
		return http.StatusForbidden
	case wire.SessionNotFound, wire.MachineNotAttached, wire.PathNotFound:
		return http.StatusNotFound
	case wire.InvalidArgument:
		return http.StatusBadRequest
	case wire.MachineAmbiguous, wire.DirectoryUnavailable, wire.DirectoryReferenceInvalid, wire.SessionAlreadyActive,
		wire.SessionRevisionMismatch, wire.RootGrantInvalid, wire.SessionNotAttached:
		return http.StatusConflict
	case wire.FeatureNotSupported:
		return http.StatusNotImplemented
	case wire.ShimOverloaded, limit.Code:
		return http.StatusTooManyRequests
	case wire.RequestTimeout, wire.OpUnconfirmed:
		return http.StatusGatewayTimeout
	case wire.MachineUnreachable, codeUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadGateway
	}
}

// operatorOf says whose call it is, or answers it.
func (s *Server) operatorOf(w http.ResponseWriter, r *http.Request) (access.Operator, bool) {
	token, ok := bearer(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.replyError(w, wire.Errorf(wire.AuthFailed, "bearer token needed"))
		return access.Operator{}, false
	}
	op, err := s.authority.Operator(r.Context(), token)
	switch {
	case errors.Is(err, access.ErrUnauthorized):
		s.metrics.AuthFailed(metrics.Operator)
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		s.replyError(w, wire.Errorf(wire.AuthFailed, "token unknown, expired or revoked"))
		return op, false
	case err != nil:
		s.replyError(w, err)
		return op, false
	}
	if !isGuest(r.Context()) {
		if refused := s.limits.Call(op.Holder); refused != nil {
			s.replyError(w, refused)
			return op, false
		}
	}
	return op, true
}

// readBody decodes a JSON body; an empty one is an empty object.
func readBody(w http.ResponseWriter, r *http.Request, dst any) *wire.Error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return wire.Errorf(wire.InvalidArgument, "the body is too long or was cut off")
	}
	if len(body) == 0 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return wire.Errorf(wire.InvalidArgument, "Content-Type must be application/json")
	}
	if body[0] != '{' && strings.TrimSpace(string(body[:1])) != "" || json.Unmarshal(body, dst) != nil {
		return wire.Errorf(wire.InvalidArgument, "the body is not the JSON object that is expected here")
	}
	return nil
}

// counter bounds how many of something one key may have.
type counter struct {
	max int
	mu  sync.Mutex
	n   map[string]int
}

func (c *counter) enter(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[key] >= c.max {
		return false
	}
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[key]++
	return true
}

func (c *counter) leave(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[key]--; c.n[key] <= 0 {
		delete(c.n, key)
	}
}
