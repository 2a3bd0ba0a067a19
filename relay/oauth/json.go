package oauth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"

	"farhand/relay/access"
	"farhand/relay/limit"
	"farhand/wire"
)

// Codes of the management API beside those of package wire.
const (
	codeNotFound      wire.Code = "NOT_FOUND"
	codeConflict      wire.Code = "CONFLICT"
	codeLoginRequired wire.Code = "LOGIN_REQUIRED"
	codeRateLimited             = limit.Code
	codeUnavailable   wire.Code = "UNAVAILABLE"
)

// apiError is a failure of the management API.
type apiError struct {
	status     int
	fail       *wire.Error
	retryAfter int // seconds; 0: no header
}

func (e *apiError) Error() string { return e.fail.Error() }

func apiErrorf(status int, code wire.Code, format string, args ...any) *apiError {
	return &apiError{status: status, fail: wire.Errorf(code, format, args...)}
}

func badArgument(format string, args ...any) *apiError {
	return apiErrorf(http.StatusBadRequest, wire.InvalidArgument, format, args...)
}

var errNoBearer = apiErrorf(http.StatusUnauthorized, wire.AuthFailed, "the token is missing, unknown, expired or revoked: log in again")

// toAPI finds the answer for an error of this package; false if it is a
// failure of the relay itself.
func toAPI(err error) (*apiError, bool) {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e, true
	}
	if e, ok := errors.AsType[*waitError](err); ok {
		a := apiErrorf(http.StatusTooManyRequests, codeRateLimited, "%s", e.Error())
		a.retryAfter = retryAfter(e.wait)
		return a, true
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		status := map[wire.Code]int{
			wire.MachineAmbiguous:     http.StatusConflict,
			wire.MachineNotAttached:   http.StatusNotFound,
			wire.CapabilityNotGranted: http.StatusForbidden,
			wire.InvalidArgument:      http.StatusBadRequest,
		}[e.Code]
		if status != 0 {
			return &apiError{status: status, fail: e}, true
		}
	}
	for _, c := range []struct {
		is     error
		status int
		code   wire.Code
	}{
		{access.ErrUnauthorized, http.StatusUnauthorized, wire.AuthFailed},
		{errCredentials, http.StatusUnauthorized, wire.AuthFailed},
		{access.ErrNotFound, http.StatusNotFound, codeNotFound},
		{errNoSuchCode, http.StatusNotFound, codeNotFound},
		{ErrNoAccount, http.StatusNotFound, codeNotFound},
		{errDecided, http.StatusConflict, codeConflict},
		{errNameTaken, http.StatusConflict, codeConflict},
		{ErrAccountExists, http.StatusConflict, codeConflict},
		{errSetupToken, http.StatusForbidden, wire.AuthFailed},
		{errAccountName, http.StatusBadRequest, wire.InvalidArgument},
		{errPassphrase, http.StatusBadRequest, wire.InvalidArgument},
	} {
		if errors.Is(err, c.is) {
			return apiErrorf(c.status, c.code, "%s", c.is.Error()), true
		}
	}
	if errors.Is(err, errBusy) {
		return &apiError{http.StatusServiceUnavailable, wire.Errorf(codeUnavailable, "%s: try again", err), 1}, true
	}
	return nil, false
}

// answerAPI writes the answer of a call, or its error.
func (s *Server) answerAPI(w http.ResponseWriter, r *http.Request, v any, err error) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if err == nil {
		if tagged, ok := v.(interface{ etag() string }); ok {
			h.Set("ETag", tagged.etag())
		}
		writeJSON(w, http.StatusOK, v)
		return
	}
	fail, ok := toAPI(err)
	if !ok {
		s.failed(r, err)
		fail = apiErrorf(http.StatusServiceUnavailable, codeUnavailable, "the relay can't answer now: try again")
	}
	if fail.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	setRetryAfter(h, fail.retryAfter)
	writeJSON(w, fail.status, struct {
		Error errorBody `json:"error"`
	}{errorBody{fail.fail.Code, fail.fail.Message, fail.fail.Details}})
}

type errorBody struct {
	Code    wire.Code      `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// failed logs what went wrong inside. The path of a request may hold a user
// code, so only its pattern is logged.
func (s *Server) failed(r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the caller has gone
	}
	s.log.LogAttrs(context.Background(), slog.LevelError, "request failed",
		slog.String("route", r.Pattern), slog.String("err", err.Error()))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("oauth: an answer can't be encoded: " + err.Error())
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A write that fails means that the caller has gone: there is nobody to tell.
	_, _ = w.Write(append(body, '\n'))
}

func setRetryAfter(h http.Header, seconds int) {
	if seconds > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds))
	}
}

// readJSON reads the body of a call, one JSON object, into each of into;
// unknown keys are ignored.
func readJSON(r *http.Request, into ...any) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return apiErrorf(http.StatusUnsupportedMediaType, wire.InvalidArgument, "the body must be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return apiErrorf(http.StatusRequestEntityTooLarge, wire.InvalidArgument, "the body is over %d bytes or broke off", maxBody)
	}
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' {
		return badArgument("the body must be a JSON object")
	}
	for _, v := range into {
		if err := json.Unmarshal(body, v); err != nil {
			return badJSON(err)
		}
	}
	return nil
}

func badJSON(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return badArgument("%s has the wrong type", e.Field)
	}
	return badArgument("the body isn't valid JSON")
}
