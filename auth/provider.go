// Package auth is the device's side of OAuth: how a daemon gets tokens (by
// device authorisation, by a claim key, by a pasted redirect, from a file), how
// it keeps them, and how it renews them.
//
// Provider speaks to the platform, Store keeps what must survive a power cut,
// and Source hands out an access token that works, refreshing it at most once at
// a time and never using a pair that isn't on the disk yet: refresh tokens
// rotate, and one that was used twice costs the whole login.
//
// Two kinds of platform are understood: those that answer as RFC 6749 and 8628
// have it, such as farhand-relay, and the AutoGPT platform, whose answers differ
// (no expires_in, errors as {"detail": …}) and which has no device flow.
package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"farhand/wire"
)

// What the AutoGPT platform and our relay register for devices.
const (
	DefaultClientID = "autogpt-local-executor"
	Scope           = "USE_TOOLS"
)

const (
	requestTimeout = 30 * time.Second // of one HTTP request, answer included
	maxAnswer      = 1 << 20          // bytes of an answer that are read
)

// The outcomes that callers tell apart. Whatever is none of them is transient
// (network, DNS, TLS, clock, a broken proxy) and worth another attempt later,
// except a *TokenError.
var (
	// ErrNotOffered: the platform answered, and it has no device authorisation.
	ErrNotOffered = errors.New("the platform doesn't offer device authorisation")
	// ErrDenied: the owner said no.
	ErrDenied = errors.New("the owner denied access")
	// ErrExpired: the code is no longer good, a new one is needed.
	ErrExpired = errors.New("the code has expired")
	// ErrInvalidGrant: the refresh token, claim key or code isn't accepted, and
	// never will be again.
	ErrInvalidGrant = errors.New("the platform no longer accepts this login")
	// ErrLoginNeeded: there are no tokens, or none that are still accepted.
	ErrLoginNeeded = errors.New("login needed")
)

// TokenError is a refusal of an OAuth endpoint that is none of the errors above.
type TokenError struct {
	Status int    // of HTTP
	Code   string // RFC 6749 section 5.2, empty on the AutoGPT platform
	Detail string // for a person
}

func (e *TokenError) Error() string {
	text := e.Code
	if e.Detail != "" && text != "" {
		text += ": " + e.Detail
	} else if text == "" {
		text = e.Detail
	}
	return fmt.Sprintf("the platform refused (HTTP %d) %s", e.Status, text)
}

// passing says whether the refusal is about the moment and not about the
// request, whatever its HTTP status (RFC 6749 section 4.1.2.1). That there is no
// such page, in words that aren't OAuth's, is what a gateway says whose platform is
// away.
func (e *TokenError) passing() bool {
	return e.Code == "temporarily_unavailable" || e.Code == "server_error" || e.Code == "" && e.Status == http.StatusNotFound
}

// Refused says whether err is the platform's own and final no, which asking
// again won't change: ErrInvalidGrant, ErrDenied, ErrNotOffered, or a
// *TokenError that isn't about the moment.
func Refused(err error) bool {
	if errors.Is(err, ErrInvalidGrant) || errors.Is(err, ErrDenied) || errors.Is(err, ErrNotOffered) {
		return true
	}
	refusal, ok := errors.AsType[*TokenError](err)
	return ok && !refusal.passing()
}

// Provider is a platform as an OAuth server. Its methods are safe for
// concurrent use.
type Provider struct {
	Base     string       // https://host[:port][/path], see BaseURL
	ClientID string       // empty: DefaultClientID
	HTTP     *http.Client // nil: http.DefaultClient. Redirects are never followed
	Log      *slog.Logger // nil: none
	// Trouble, if not nil, is told what keeps Pair from getting a code, each time
	// that it will try again. It must not block.
	Trouble func(error)
}

// BaseURL derives a provider's base from platform_url: ws becomes http. An
// unencrypted URL is refused unless it leads to this very machine.
func BaseURL(platformURL string) (string, error) {
	u, err := url.Parse(platformURL)
	if err != nil {
		return "", fmt.Errorf("platform_url: %w", err)
	}
	switch u.Scheme {
	case "wss", "https":
		u.Scheme = "https"
	case "ws", "http":
		u.Scheme = "http"
		if !loopback(u.Hostname()) {
			return "", fmt.Errorf("platform_url %s: unencrypted to another machine", u.Redacted())
		}
	default:
		return "", fmt.Errorf("platform_url: scheme %q is none of wss, https, ws, http", u.Scheme)
	}
	if u.Host == "" {
		return "", errors.New("platform_url has no host")
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}).String(), nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (p *Provider) clientID() string {
	if p.ClientID == "" {
		return DefaultClientID
	}
	return p.ClientID
}

func (p *Provider) log() *slog.Logger {
	if p.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Log
}

// Metadata is what of RFC 8414 matters here. Endpoints are always on the
// provider's own host: one that is named elsewhere is replaced by its usual
// place, since the host by which the device reaches the platform is the one
// that works, and the one that it trusts.
type Metadata struct {
	Issuer              string
	DeviceAuthorization string
	Token               string
}

// Metadata asks what the platform offers. ErrNotOffered means that it answered,
// and the answer was 404 or named no device authorisation endpoint.
func (p *Provider) Metadata(ctx context.Context) (Metadata, error) {
	var doc struct {
		Issuer              string `json:"issuer"`
		DeviceAuthorization string `json:"device_authorization_endpoint"`
		Token               string `json:"token_endpoint"`
	}
	answer, err := p.send(ctx, http.MethodGet, p.Base+"/.well-known/oauth-authorization-server", "", nil)
	switch {
	case err != nil:
		return Metadata{}, fmt.Errorf("OAuth metadata: %w", err)
	case answer.status == http.StatusNotFound:
		return Metadata{}, ErrNotOffered
	case answer.status != http.StatusOK:
		return Metadata{}, fmt.Errorf("OAuth metadata: %w", answer.failure())
	}
	if err := answer.decode(&doc); err != nil {
		return Metadata{}, fmt.Errorf("OAuth metadata: %w", err)
	}
	if doc.DeviceAuthorization == "" {
		return Metadata{}, ErrNotOffered
	}
	return Metadata{
		Issuer:              doc.Issuer,
		DeviceAuthorization: p.here(doc.DeviceAuthorization, "/api/oauth/device_authorization"),
		Token:               p.here(doc.Token, "/api/oauth/token"),
	}, nil
}

// here is the endpoint if it is on our own host, else its usual place.
func (p *Provider) here(endpoint, usual string) string {
	u, err := url.Parse(endpoint)
	base, baseErr := url.Parse(p.Base)
	if err != nil || baseErr != nil || u.Scheme != base.Scheme || u.Host != base.Host || u.User != nil {
		return p.Base + usual
	}
	return endpoint
}

// answer is an HTTP answer, read as far as it counts.
type answer struct {
	status int
	json   bool
	body   []byte
	date   time.Time // of the server, zero if it didn't say
	asked  time.Time // when the request left, by our clock
}

func (a answer) decode(dst any) error {
	if !a.json {
		return fmt.Errorf("HTTP %d with something else than JSON", a.status)
	}
	if err := json.Unmarshal(a.body, dst); err != nil {
		return fmt.Errorf("HTTP %d with malformed JSON", a.status) // its text may be a secret
	}
	return nil
}

// failure is a transient error, or a *TokenError where the platform itself
// spoke.
func (a answer) failure() error {
	var doc struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
		Detail      any    `json:"detail"`
	}
	said := a.json && json.Unmarshal(a.body, &doc) == nil && (doc.Error != "" || doc.Detail != nil)
	if !said || a.status < 400 || a.status >= 500 || a.status == http.StatusTooManyRequests || a.status == http.StatusRequestTimeout {
		return fmt.Errorf("the platform answered HTTP %d", a.status)
	}
	e := &TokenError{Status: a.status, Code: wire.Clean(doc.Error, maxShown), Detail: wire.Clean(doc.Description, maxShown)}
	if detail, ok := doc.Detail.(string); ok && e.Detail == "" {
		e.Detail = wire.Clean(detail, maxShown)
	}
	return e
}

// maxShown bounds, in characters, what a person or a log sees of the platform's
// own words.
const maxShown = 200

// invalidGrant says whether a token endpoint refused the grant itself, in the
// words of RFC 6749 or of the AutoGPT platform.
func invalidGrant(err error) bool {
	e, ok := errors.AsType[*TokenError](err)
	if !ok || e.Status != http.StatusBadRequest && e.Status != http.StatusUnauthorized {
		return false
	}
	return e.Code == "invalid_grant" || e.Code == "" && strings.HasPrefix(strings.ToLower(e.Detail), "invalid grant")
}

func (p *Provider) postForm(ctx context.Context, endpoint string, form url.Values) (answer, error) {
	return p.send(ctx, http.MethodPost, endpoint, "application/x-www-form-urlencoded", []byte(form.Encode()))
}

// send makes one request. Its errors name the host at most, never a query or a
// body.
func (p *Provider) send(ctx context.Context, method, endpoint, contentType string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, endpoint, strings.NewReader(string(body)))
	if err != nil {
		return answer{}, errors.New("malformed URL")
	}
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	client := http.DefaultClient
	if p.HTTP != nil {
		client = p.HTTP
	}
	direct := *client
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	asked := time.Now()
	resp, err := direct.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return answer{}, fmt.Errorf("reach %s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return answer{}, fmt.Errorf("answer of %s: %w", req.URL.Host, err)
	}
	if len(data) > maxAnswer {
		return answer{}, fmt.Errorf("answer of %s is longer than %d bytes", req.URL.Host, maxAnswer)
	}
	date, _ := http.ParseTime(resp.Header.Get("Date"))
	return answer{
		status: resp.StatusCode,
		// By what it is, not by what its label says: a proxy's page is HTML, and
		// not every server labels its objects.
		json:  bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")),
		body:  data,
		date:  date,
		asked: asked,
	}, nil
}
