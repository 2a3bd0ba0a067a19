package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Tokens is a login. It prints and logs as nothing.
type Tokens struct {
	AccessToken  string
	RefreshToken string    // empty if the platform gave none
	Expires      time.Time // of the access token by our clock; zero if unknown
}

// String hides the tokens.
func (Tokens) String() string { return "tokens" }

// LogValue implements slog.LogValuer.
func (Tokens) LogValue() slog.Value { return slog.StringValue("tokens") }

// tokenAnswer is what token endpoints answer: expires_in by RFC 6749,
// access_token_expires_at on the AutoGPT platform.
type tokenAnswer struct {
	AccessToken  string          `json:"access_token"`
	RefreshToken string          `json:"refresh_token"`
	ExpiresIn    json.RawMessage `json:"expires_in"`
	ExpiresAt    string          `json:"access_token_expires_at"`
}

// tokens reads the answer of a token endpoint.
func (a answer) tokens() (Tokens, error) {
	if a.status != http.StatusOK {
		return Tokens{}, a.failure()
	}
	var doc tokenAnswer
	if err := a.decode(&doc); err != nil {
		return Tokens{}, err
	}
	t := Tokens{AccessToken: doc.AccessToken, RefreshToken: doc.RefreshToken}
	if err := t.check(); err != nil {
		return Tokens{}, fmt.Errorf("answer of the token endpoint: %w", err)
	}
	t.Expires = a.expiry(doc)
	return t, nil
}

// maxLifetime bounds what a platform may say, so that sums don't overflow.
const maxLifetime = 10 * 365 * 24 * time.Hour

// expiry is when the access token expires by our clock. Boards without a
// battery have wrong clocks, so a duration counts more than a date, and a date
// is read against the server's own clock where it tells that.
func (a answer) expiry(doc tokenAnswer) time.Time {
	var seconds float64
	if json.Unmarshal([]byte(strings.Trim(string(doc.ExpiresIn), `"`)), &seconds) == nil && seconds > 0 {
		seconds = math.Min(seconds, maxLifetime.Seconds())
		return a.asked.Add(time.Duration(seconds * float64(time.Second)))
	}
	at := parseTime(doc.ExpiresAt)
	if at.IsZero() || a.date.IsZero() {
		return at
	}
	return a.asked.Add(min(at.Sub(a.date), maxLifetime))
}

// parseTime reads an ISO date-time; one without a zone is UTC, as Python's
// naive ones are meant. Zero if it is none.
func parseTime(s string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	return time.Time{}
}

// maxToken bounds one token; it must fit into a header of usual size.
const maxToken = 4096

// check says whether the tokens can be used in a header and a form at all.
func (t Tokens) check() error {
	if t.AccessToken == "" {
		return errors.New("no access_token")
	}
	for _, s := range []string{t.AccessToken, t.RefreshToken} {
		if len(s) > maxToken {
			return fmt.Errorf("a token of more than %d bytes", maxToken)
		}
		for i := range len(s) {
			if s[i] <= ' ' || s[i] >= 0x7f {
				return errors.New("a token with characters that no header takes")
			}
		}
	}
	return nil
}

func (p *Provider) tokenEndpoint() string { return p.Base + "/api/oauth/token" }

// Refresh redeems a refresh token for a new pair; where the platform gave no new
// refresh token, the old one is in the answer. ErrInvalidGrant means that it is
// worthless now. After any other error nobody knows whether it was redeemed:
// farhand-relay takes it again, the AutoGPT platform may not.
func (p *Provider) Refresh(ctx context.Context, refreshToken string) (Tokens, error) {
	answer, err := p.postForm(ctx, p.tokenEndpoint(), url.Values{
		"grant_type":    {"refresh_token"},
		"refresh_token": {refreshToken},
		"client_id":     {p.clientID()},
	})
	if err != nil {
		return Tokens{}, fmt.Errorf("refresh: %w", err)
	}
	t, err := answer.tokens()
	if err != nil {
		return Tokens{}, fmt.Errorf("refresh: %w", grantError(err))
	}
	if t.RefreshToken == "" {
		t.RefreshToken = refreshToken
	}
	return t, nil
}

// RedeemClaim redeems a claim key, which works once.
func (p *Provider) RedeemClaim(ctx context.Context, key string, device DeviceRequest) (Tokens, error) {
	form := device.form(p.clientID())
	form.Set("grant_type", "urn:farhand:params:oauth:grant-type:claim")
	form.Set("claim_key", key)
	answer, err := p.postForm(ctx, p.tokenEndpoint(), form)
	if err != nil {
		return Tokens{}, fmt.Errorf("redeem claim key: %w", err)
	}
	t, err := answer.tokens()
	if err != nil {
		return Tokens{}, fmt.Errorf("redeem claim key: %w", grantError(err))
	}
	return t, nil
}

// grantError adds ErrInvalidGrant to a refusal that means it.
func grantError(err error) error {
	if invalidGrant(err) {
		return fmt.Errorf("%w: %w", ErrInvalidGrant, err)
	}
	return err
}

// Revoke ends a login at the platform: the refresh token, whose whole family
// goes with it, then the access token. Unknown tokens are no failure.
func (p *Provider) Revoke(ctx context.Context, t Tokens) error {
	for _, one := range []struct{ token, hint string }{
		{t.RefreshToken, "refresh_token"},
		{t.AccessToken, "access_token"},
	} {
		if one.token == "" {
			continue
		}
		// JSON, because the AutoGPT platform takes nothing else here.
		body, err := json.Marshal(map[string]string{
			"token": one.token, "token_type_hint": one.hint, "client_id": p.clientID(),
		})
		if err != nil {
			return fmt.Errorf("revoke: %w", err)
		}
		answer, err := p.send(ctx, http.MethodPost, p.Base+"/api/oauth/revoke", "application/json", body)
		if err != nil {
			return fmt.Errorf("revoke %s: %w", one.hint, err)
		}
		if answer.status != http.StatusOK && answer.status != http.StatusNoContent {
			return fmt.Errorf("revoke %s: %w", one.hint, answer.failure())
		}
	}
	return nil
}
