package oauth

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"unicode/utf8"
)

// maxBody is the most that any request body of this package may hold: far over
// a ceiling with hundreds of entries.
const maxBody = 64 << 10

// oauthError is a failure of the OAuth endpoints: RFC 6749 section 5.2 and
// RFC 8628 section 3.5.
type oauthError struct {
	status      int
	code        string
	description string
	retryAfter  int // seconds; 0: no header
}

func (e *oauthError) Error() string { return e.code + ": " + e.description }

var (
	errInvalidGrant     = &oauthError{status: 400, code: "invalid_grant", description: "the grant is unknown, expired, revoked or was used already"}
	errInvalidClient    = &oauthError{status: 401, code: "invalid_client", description: "no such client"}
	errUnsupportedGrant = &oauthError{status: 400, code: "unsupported_grant_type", description: "no such grant type here"}
	errInvalidScope     = &oauthError{status: 400, code: "invalid_scope", description: "the only scope is " + Scope}
	errUnavailable      = &oauthError{status: 503, code: "temporarily_unavailable", description: "try again later"}
	errPending          = &oauthError{status: 400, code: "authorization_pending", description: "not approved yet"}
	errSlowDown         = &oauthError{status: 400, code: "slow_down", description: "ask less often: 5 seconds more from now on"}
	errDenied           = &oauthError{status: 400, code: "access_denied", description: "the owner said no"}
	errExpired          = &oauthError{status: 400, code: "expired_token", description: "the code has expired"}
)

func invalidRequest(why string) *oauthError {
	return &oauthError{status: 400, code: "invalid_request", description: why}
}

// params reads the parameters of an OAuth request from its body, a form or a
// flat JSON object. Those of the URL don't count (they end up in logs). The
// error never repeats what was sent.
func params(r *http.Request) (map[string]string, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, invalidRequest("the body must be a form or JSON")
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return nil, invalidRequest("the body is too long or broke off")
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		return formParams(string(body))
	case "application/json":
		return jsonParams(body)
	}
	return nil, invalidRequest("the body must be a form or JSON")
}

func formParams(body string) (map[string]string, error) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return nil, invalidRequest("the form is malformed")
	}
	p := make(map[string]string, len(form))
	for k, v := range form {
		if len(v) != 1 { // RFC 6749 section 3.2: not more than once
			return nil, invalidRequest("a parameter was sent twice")
		}
		if !utf8.ValidString(k) || !utf8.ValidString(v[0]) {
			return nil, invalidRequest("the form isn't UTF-8")
		}
		p[k] = v[0]
	}
	return p, nil
}

func jsonParams(body []byte) (map[string]string, error) {
	var obj map[string]any
	if err := json.Unmarshal(body, &obj); err != nil || obj == nil {
		return nil, invalidRequest("the body isn't a JSON object")
	}
	p := make(map[string]string, len(obj))
	for k, v := range obj {
		switch v := v.(type) {
		case string:
			p[k] = v
		case nil: // as if it weren't there
		default:
			return nil, invalidRequest("every parameter must be a string")
		}
	}
	return p, nil
}

// answerRegistration is answerOAuth for a registration, which is created.
func (s *Server) answerRegistration(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err != nil {
		s.answerOAuth(w, r, nil, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusCreated, v)
}

// answerOAuth writes the answer, or the error as an OAuth error object.
func (s *Server) answerOAuth(w http.ResponseWriter, r *http.Request, v any, err error) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache") // RFC 6749 section 5.1
	if err == nil {
		writeJSON(w, http.StatusOK, v)
		return
	}
	fail, ok := errors.AsType[*oauthError](err)
	if !ok {
		s.failed(r, err)
		fail = errUnavailable
	}
	setRetryAfter(h, fail.retryAfter)
	writeJSON(w, fail.status, struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{fail.code, fail.description})
}
