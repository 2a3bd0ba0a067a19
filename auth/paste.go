package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"farhand/wire"
)

// RedirectURI is where the browser is sent after consent. Nobody listens there:
// the person copies the address that the browser couldn't open. It is the first
// of those that the AutoGPT platform registers, which compares them as strings.
const RedirectURI = "http://localhost:41899/callback"

// PasteLogin is a login by a browser on any machine, whose redirected address
// is pasted back: what is left where there is no device authorisation.
type PasteLogin struct {
	provider *Provider
	state    string
	verifier string
}

// PasteLogin begins a login with new secrets (PKCE S256, RFC 7636).
func (p *Provider) PasteLogin() *PasteLogin {
	state := make([]byte, 32)
	rand.Read(state) // never fails (crypto/rand)
	return &PasteLogin{p, base64.RawURLEncoding.EncodeToString(state), oauth2.GenerateVerifier()}
}

// URL is the page to open in a browser.
func (l *PasteLogin) URL() string {
	return l.provider.Base + "/auth/authorize?" + url.Values{
		"response_type":         {"code"},
		"client_id":             {l.provider.clientID()},
		"redirect_uri":          {RedirectURI},
		"scope":                 {Scope},
		"state":                 {l.state},
		"code_challenge":        {oauth2.S256ChallengeFromVerifier(l.verifier)},
		"code_challenge_method": {"S256"},
	}.Encode()
}

// Finish takes the address that the browser ended at and redeems its code.
// ErrDenied means that consent was refused, ErrInvalidGrant that the code was
// used before or is too old.
func (l *PasteLogin) Finish(ctx context.Context, pasted string) (Tokens, error) {
	code, err := parseRedirect(pasted, l.state)
	if err != nil {
		return Tokens{}, err
	}
	answer, err := l.provider.postForm(ctx, l.provider.tokenEndpoint(), url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {RedirectURI},
		"client_id":     {l.provider.clientID()},
		"code_verifier": {l.verifier},
	})
	if err != nil {
		return Tokens{}, fmt.Errorf("redeem code: %w", err)
	}
	t, err := answer.tokens()
	if err != nil {
		return Tokens{}, fmt.Errorf("redeem code: %w", grantError(err))
	}
	return t, nil
}

// parseRedirect finds the code in what a person pasted: the whole address,
// perhaps quoted, without its scheme, or its query alone. Its errors quote
// nothing.
func parseRedirect(pasted, state string) (string, error) {
	pasted = strings.Trim(strings.TrimSpace(pasted), "\"'<>")
	query := pasted
	if _, after, ok := strings.Cut(pasted, "?"); ok {
		query = after
	}
	query, _, _ = strings.Cut(query, "#")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errors.New("this is not the address of the page that the browser ended at")
	}
	if subtle.ConstantTimeCompare([]byte(values.Get("state")), []byte(state)) != 1 {
		if !values.Has("state") {
			return "", errors.New("the pasted address has no state: paste all of it")
		}
		return "", errors.New("the pasted address belongs to another login")
	}
	switch reason := values.Get("error"); {
	case reason == "access_denied":
		return "", ErrDenied
	case reason != "":
		return "", &TokenError{Status: 302, Code: wire.Clean(reason, maxShown), Detail: wire.Clean(values.Get("error_description"), maxShown)}
	case values.Get("code") == "":
		return "", errors.New("the pasted address has no code: paste all of it")
	}
	return values.Get("code"), nil
}
