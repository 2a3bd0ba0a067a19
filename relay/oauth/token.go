package oauth

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"farhand/relay/store"
)

// The grant types of the token endpoint.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
	grantDevice  = "urn:ietf:params:oauth:grant-type:device_code"
	grantClaim   = "urn:farhand:params:oauth:grant-type:claim"
)

func (s *Server) registerOAuth(mux *http.ServeMux) {
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", s.metadata)
	for _, path := range []string{"", agentPath} { // with the path of the resource, as RFC 9728 has it, and without
		mux.HandleFunc("GET /.well-known/oauth-protected-resource"+path, s.resourceMetadata)
	}
	mux.HandleFunc("POST /api/oauth/register", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.register(r)
		s.answerRegistration(w, r, v, err)
	})
	mux.HandleFunc("POST /api/oauth/device_authorization", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.deviceAuthorization(r)
		s.answerOAuth(w, r, v, err)
	})
	mux.HandleFunc("POST /api/oauth/token", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.token(r)
		s.answerOAuth(w, r, v, err)
	})
	mux.HandleFunc("POST /api/oauth/revoke", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.revoke(r)
		s.answerOAuth(w, r, v, err)
	})
}

// metadata is RFC 8414.
func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	forAnyPage(w.Header())
	writeJSON(w, http.StatusOK, struct {
		Issuer              string   `json:"issuer"`
		Authorization       string   `json:"authorization_endpoint"`
		Token               string   `json:"token_endpoint"`
		Revocation          string   `json:"revocation_endpoint"`
		Registration        string   `json:"registration_endpoint"` // RFC 7591
		DeviceAuthorization string   `json:"device_authorization_endpoint"`
		Scopes              []string `json:"scopes_supported"`
		ResponseTypes       []string `json:"response_types_supported"`
		ResponseModes       []string `json:"response_modes_supported"`
		GrantTypes          []string `json:"grant_types_supported"`
		AuthMethods         []string `json:"token_endpoint_auth_methods_supported"`
		RevokeAuthMethods   []string `json:"revocation_endpoint_auth_methods_supported"`
		ChallengeMethods    []string `json:"code_challenge_methods_supported"`
		IssuerInAnswer      bool     `json:"authorization_response_iss_parameter_supported"` // RFC 9207
	}{
		Issuer:              s.public,
		Authorization:       s.public + "/auth/authorize",
		Token:               s.public + "/api/oauth/token",
		Revocation:          s.public + "/api/oauth/revoke",
		Registration:        s.public + "/api/oauth/register",
		DeviceAuthorization: s.public + "/api/oauth/device_authorization",
		Scopes:              []string{Scope, AgentScope},
		ResponseTypes:       []string{"code"},
		ResponseModes:       []string{"query"},
		GrantTypes:          []string{grantCode, grantRefresh, grantDevice, grantClaim},
		AuthMethods:         []string{"none"},
		RevokeAuthMethods:   []string{"none"},
		ChallengeMethods:    []string{"S256"},
		IssuerInAnswer:      true,
	})
}

// tokenAnswer is RFC 6749 section 5.1, and beside it what the AutoGPT
// platform's shim reads.
type tokenAnswer struct {
	AccessToken    string    `json:"access_token"`
	TokenType      string    `json:"token_type"`
	ExpiresIn      int       `json:"expires_in"`
	RefreshToken   string    `json:"refresh_token"`
	Scope          string    `json:"scope"`
	AccessExpires  time.Time `json:"access_token_expires_at"`
	RefreshExpires time.Time `json:"refresh_token_expires_at"`
	Scopes         []string  `json:"scopes"`
}

func (s *Server) token(r *http.Request) (any, error) {
	p, err := params(r)
	if err != nil {
		return nil, err
	}
	if p["grant_type"] == "" {
		return nil, invalidRequest("grant_type is missing")
	}
	if name, secret, ok := r.BasicAuth(); ok && p["client_id"] == "" && secret == "" {
		p["client_id"] = name // what some OAuth libraries try first
	}
	if p["client_id"] == "" {
		return nil, invalidRequest("client_id is missing")
	}
	scope := Scope
	if _, ok := s.registered(p["client_id"]); ok {
		scope = AgentScope
	} else if !s.clients[p["client_id"]] {
		return nil, errInvalidClient
	}
	var out issued
	switch p["grant_type"] {
	case grantRefresh:
		out, err = s.redeemRefresh(r.Context(), p)
	case grantDevice:
		out, err = s.redeemDevice(r.Context(), p)
	case grantCode:
		out, err = s.redeemCode(r.Context(), p)
	case grantClaim:
		out, err = s.redeemClaim(r, p)
	default:
		return nil, errUnsupportedGrant
	}
	if err != nil {
		return nil, err
	}
	return tokenAnswer{
		AccessToken:    out.access,
		TokenType:      "Bearer",
		ExpiresIn:      int(time.Until(out.accessExpires).Round(time.Second) / time.Second),
		RefreshToken:   out.refresh,
		Scope:          scope,
		AccessExpires:  out.accessExpires,
		RefreshExpires: out.refreshExpires,
		Scopes:         []string{scope},
	}, nil
}

func (s *Server) redeemRefresh(ctx context.Context, p map[string]string) (issued, error) {
	text := p["refresh_token"]
	if text == "" {
		return issued{}, invalidRequest("refresh_token is missing")
	}
	own := Scope
	_, agent := s.registered(p["client_id"])
	if agent {
		own = AgentScope
	}
	if scope, ok := p["scope"]; ok && scope != "" && scope != own {
		return issued{}, errInvalidScope
	}
	open, ok := parseRefresh(text)
	if !ok {
		return issued{}, errInvalidGrant
	}
	if agent {
		if to, ok := p["resource"]; ok && to != s.resource() {
			return issued{}, errTarget
		}
		return s.refreshAgent(ctx, p, open)
	}
	var out issued
	_, err := s.changeFamily(ctx, open.owner, open.id, func(f *family) error {
		if f.ClientID != p["client_id"] {
			return errInvalidGrant
		}
		var err error
		out, err = f.rotate(text, open, now())
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return issued{}, errInvalidGrant
	case errors.Is(err, errReplay):
		if err := s.revokeFamily(ctx, open.owner, open.id, "a spent refresh token came back"); err != nil {
			return issued{}, err
		}
		return issued{}, errInvalidGrant
	case err != nil:
		return issued{}, err
	}
	return out, nil
}

// revoke is RFC 7009. A refresh token takes its whole family along, an access
// token only itself; either way the sockets of the family end, and of no other.
func (s *Server) revoke(r *http.Request) (any, error) {
	p, err := params(r)
	if err != nil {
		return nil, err
	}
	if id, ok := p["client_id"]; ok && !s.knownClient(id) {
		return nil, errInvalidClient
	}
	text := p["token"]
	if text == "" {
		return nil, invalidRequest("token is missing")
	}
	done := struct {
		Status string `json:"status"`
	}{"ok"}
	// The hint is only a hint: the token says itself what it is.
	if open, ok := parseRefresh(text); ok {
		return done, s.revokeByRefresh(r.Context(), text, open)
	}
	if open, ok := parse(text, prefixAccess, ownerSize, secretSize); ok {
		return done, s.revokeAccess(r.Context(), text, open)
	}
	return done, nil
}

func (s *Server) revokeByRefresh(ctx context.Context, text string, open refresh) error {
	f, err := load[family](ctx, s.store, familyKey(open.owner, open.id))
	if errors.Is(err, store.ErrNotFound) {
		return s.revokeAgentByRefresh(ctx, text, open)
	}
	if err != nil {
		return err
	}
	fam := f.value
	// Whoever holds any refresh token of the family, even a spent one, may end it.
	if !fam.Current.Refresh.matches(text) && !fam.Lineage.matches(hex.EncodeToString(open.lineage)) {
		return nil
	}
	return s.revokeFamily(ctx, open.owner, open.id, "revoked by the device")
}

func (s *Server) revokeAccess(ctx context.Context, text string, open ref) error {
	found := false
	_, err := s.changeFamily(ctx, open.owner, open.id, func(f *family) error {
		p, _ := f.holds(text, now())
		found = p != nil
		if !found {
			return errUnchanged
		}
		p.Access, p.Used = "", true
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return s.revokeAgentAccess(ctx, text, open)
	}
	if err != nil || !found {
		return err
	}
	s.record(Event{Op: OpTokenRevoked, Owner: open.owner, Family: open.id, Reason: "an access token, by the device"})
	s.sockets().RevokeFamily(open.owner, open.id)
	return nil
}
