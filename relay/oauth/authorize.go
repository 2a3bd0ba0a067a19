package oauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"time"

	"farhand/relay/store"
)

// codeLife is how long an authorisation code lives (RFC 6749 section 4.1.2:
// ten minutes at most).
const codeLife = 10 * time.Minute

// The ports of the loopback redirects: the twelve that the AutoGPT platform
// has registered, exactly these texts.
const (
	firstPort = 41899
	lastPort  = 41910
	maxState  = 1024 // bytes of state
)

var (
	// RFC 7636 section 4.2: an S256 challenge is 43 base64url characters.
	challenge = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	// RFC 7636 section 4.1.
	verifier = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)
)

// authCode is an authorisation code on its way to be redeemed.
type authCode struct {
	Secret    secretHash `json:"secret"`
	ClientID  string     `json:"client_id"`
	Redirect  string     `json:"redirect_uri"`
	Challenge string     `json:"challenge"`
	Family    string     `json:"family"`
	Grant     approved   `json:"grant"`
	Agent     *forAgent  `json:"agent,omitempty"` // nil: for a device
	Expires   time.Time  `json:"expires"`
}

// forAgent is what an owner decided for an agent, beside the grant's ceiling.
type forAgent struct {
	Name     string    `json:"name"`
	Account  string    `json:"account"`
	Machines *[]string `json:"machines,omitempty"`
	Ends     time.Time `json:"ends,omitzero"`
}

// authRequest is a checked authorisation request.
type authRequest struct {
	ClientID  string
	Redirect  string
	Scope     string
	State     string
	Challenge string
	Agent     *client // nil: a device's login
}

func knownRedirect(uri string) bool {
	for port := firstPort; port <= lastPort; port++ {
		if uri == fmt.Sprintf("http://localhost:%d/callback", port) {
			return true
		}
	}
	return false
}

// errNoRedirect says that the request can't even be refused by redirect.
var errNoRedirect = errors.New("the client or its redirect address is unknown here")

// readAuthRequest checks an authorisation request (RFC 6749 section 4.1.1, RFC
// 7636 section 4.3). errNoRedirect, or an *oauthError that may be redirected.
func (s *Server) readAuthRequest(q url.Values) (authRequest, error) {
	a := authRequest{
		ClientID:  q.Get("client_id"),
		Redirect:  q.Get("redirect_uri"),
		Scope:     q.Get("scope"),
		State:     q.Get("state"),
		Challenge: q.Get("code_challenge"),
	}
	if len(q["client_id"]) != 1 || len(q["redirect_uri"]) != 1 {
		return authRequest{}, errNoRedirect
	}
	scope, resource := Scope, s.public
	if c, ok := s.registered(a.ClientID); ok {
		a.Agent, scope, resource = &c, AgentScope, s.resource()
		if !c.mayRedirect(a.Redirect) {
			return authRequest{}, errNoRedirect
		}
	} else if !s.clients[a.ClientID] || !knownRedirect(a.Redirect) {
		return authRequest{}, errNoRedirect
	}
	for _, v := range q {
		if len(v) != 1 {
			return a, invalidRequest("a parameter was sent twice")
		}
	}
	switch {
	case len(a.State) > maxState:
		a.State = ""
		return a, invalidRequest("state is too long")
	case q.Get("response_type") != "code":
		return a, &oauthError{code: "unsupported_response_type", description: "only code"}
	case a.Scope != "" && a.Scope != scope:
		return a, errInvalidScope
	case q.Has("resource") && q.Get("resource") != resource:
		return a, errTarget
	case q.Get("code_challenge_method") != "S256":
		return a, invalidRequest("code_challenge_method must be S256")
	case !challenge.MatchString(a.Challenge):
		return a, invalidRequest("code_challenge is malformed")
	}
	return a, nil
}

// redirect is the address to send the browser to, with the answer in it.
func (s *Server) redirect(a authRequest, answer url.Values) string {
	if a.State != "" {
		answer.Set("state", a.State)
	}
	answer.Set("iss", s.public) // RFC 9207
	return a.Redirect + "?" + answer.Encode()
}

func (s *Server) refuse(a authRequest, fail *oauthError) string {
	return s.redirect(a, url.Values{"error": {fail.code}, "error_description": {fail.description}})
}

// grantCodeTo makes the code that the browser carries back.
func (s *Server) grantCodeTo(ctx context.Context, who Event, a authRequest, grant approved, to *forAgent) (string, error) {
	who.Op, who.Subject = OpConsented, a.ClientID
	if to != nil {
		who.Subject = to.Name
	}
	if err := s.intend(who); err != nil {
		return "", err
	}
	id := newID()
	text := mint(prefixCode, ref{who.Owner, id}, secretSize)
	rec := authCode{
		Secret: hashSecret(text), ClientID: a.ClientID, Redirect: a.Redirect, Challenge: a.Challenge,
		Family: newID(), Grant: grant, Agent: to, Expires: now().Add(codeLife),
	}
	err := create(ctx, s.store, store.Key("o", who.Owner, "code", id), rec, rec.Expires)
	return text, err
}

// redeemCode is RFC 6749 section 4.1.3 with PKCE.
func (s *Server) redeemCode(ctx context.Context, p map[string]string) (issued, error) {
	for _, k := range []string{"code", "redirect_uri", "code_verifier"} {
		if p[k] == "" {
			return issued{}, invalidRequest(k + " is missing")
		}
	}
	if !verifier.MatchString(p["code_verifier"]) {
		return issued{}, invalidRequest("code_verifier is malformed")
	}
	open, ok := parse(p["code"], prefixCode, ownerSize, secretSize)
	if !ok {
		return issued{}, errInvalidGrant
	}
	r, err := load[authCode](ctx, s.store, store.Key("o", open.owner, "code", open.id))
	if errors.Is(err, store.ErrNotFound) {
		return issued{}, errInvalidGrant
	}
	if err != nil {
		return issued{}, err
	}
	c := r.value
	sum := sha256.Sum256([]byte(p["code_verifier"]))
	proof := base64.RawURLEncoding.EncodeToString(sum[:])
	if !c.Secret.matches(p["code"]) || subtle.ConstantTimeCompare([]byte(proof), []byte(c.Challenge)) != 1 ||
		c.ClientID != p["client_id"] || c.Redirect != p["redirect_uri"] || !now().Before(c.Expires) {
		return issued{}, errInvalidGrant
	}
	if c.Agent != nil {
		if to, ok := p["resource"]; ok && to != s.resource() {
			return issued{}, errTarget
		}
		return s.redeemAgentCode(ctx, open.owner, c)
	}
	out, err := s.newFamily(ctx, family{ID: c.Family, Owner: open.owner, ClientID: c.ClientID, Source: grantCode, Grant: c.Grant})
	if errors.Is(err, store.ErrExists) {
		// The same code twice, with the right verifier: two parties hold it
		// (RFC 6749 section 4.1.2).
		if err := s.revokeFamily(ctx, open.owner, c.Family, "an authorisation code came back"); err != nil {
			return issued{}, err
		}
		return issued{}, errInvalidGrant
	}
	if err != nil {
		return issued{}, err
	}
	s.record(Event{Op: OpTokensIssued, Owner: open.owner, Family: c.Family, Reason: "authorisation code"})
	return out, nil
}

// redirectOrigin is the scheme and host of a known redirect, for the consent
// page's form-action. A policy has no words for addresses of IPv6, and of IPv4 for
// 127.0.0.1 alone (CSP 3 section 6.7.2.8): browsers don't follow an answer to
// another one, so there it is the scheme.
func redirectOrigin(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	if host := u.Hostname(); host != "127.0.0.1" && net.ParseIP(host) != nil {
		return u.Scheme + ":"
	}
	return u.Scheme + "://" + u.Host
}
