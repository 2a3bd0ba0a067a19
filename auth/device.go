package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"farhand/internal/backoff"
	"farhand/wire"
)

// DeviceRequest is what a device says about itself when it asks to be paired.
type DeviceRequest struct {
	MachineID    string
	DisplayName  string
	Board        string
	SerialSuffix string // the end of the board's serial number, to compare
	Capabilities []string
}

func (d DeviceRequest) form(clientID string) url.Values {
	form := url.Values{"client_id": {clientID}, "scope": {Scope}}
	for name, value := range map[string]string{
		"machine_id":    d.MachineID,
		"display_name":  d.DisplayName,
		"board":         d.Board,
		"serial_suffix": d.SerialSuffix,
		"capabilities":  strings.Join(d.Capabilities, " "),
	} {
		if value != "" {
			form.Set(name, value)
		}
	}
	return form
}

// Pending is a device authorisation that waits for the owner. It survives a
// restart in Store, so that a code that somebody reads off the card still works.
type Pending struct {
	DeviceCode              string
	UserCode                string // to be shown beside any link, for comparing
	VerificationURI         string
	VerificationURIComplete string // for the QR code; may be empty
	// Expires is by our clock, with a monotonic reading: setting the clock
	// neither ends nor prolongs the code.
	Expires time.Time
	// There is the same by the platform's clock, zero if that isn't known. It is
	// what counts after a restart, since the network's time may have come in
	// between.
	There    time.Time
	Life     time.Duration // of a fresh code, by which a stored one is bounded
	Interval time.Duration // between polls
	Token    string        // the endpoint to poll
}

// String hides the device code.
func (p Pending) String() string { return "pending authorisation " + p.UserCode }

// Bounds of what a platform may answer (RFC 8628 section 3.2 has none).
const (
	defaultInterval = 5 * time.Second // RFC 8628 section 3.2
	slowDown        = 5 * time.Second // RFC 8628 section 3.5
	maxInterval     = 5 * time.Minute
	maxCodeLife     = 24 * time.Hour
	// shortLife is from when on a code that expired was worth showing: one that
	// didn't live so long isn't replaced at once, or a platform whose codes are
	// born dead would be asked for a new one without pause.
	shortLife = time.Minute
)

// AuthorizeDevice asks for a user code.
func (p *Provider) AuthorizeDevice(ctx context.Context, device DeviceRequest) (Pending, error) {
	meta, err := p.Metadata(ctx)
	if err != nil {
		return Pending{}, err
	}
	answer, err := p.postForm(ctx, meta.DeviceAuthorization, device.form(p.clientID()))
	if err != nil {
		return Pending{}, fmt.Errorf("device authorisation: %w", err)
	}
	if answer.status != http.StatusOK {
		return Pending{}, fmt.Errorf("device authorisation: %w", answer.failure())
	}
	var doc struct {
		DeviceCode              string  `json:"device_code"`
		UserCode                string  `json:"user_code"`
		VerificationURI         string  `json:"verification_uri"`
		VerificationURIComplete string  `json:"verification_uri_complete"`
		ExpiresIn               float64 `json:"expires_in"`
		Interval                float64 `json:"interval"`
	}
	if err := answer.decode(&doc); err != nil {
		return Pending{}, fmt.Errorf("device authorisation: %w", err)
	}
	life := seconds(doc.ExpiresIn, maxCodeLife)
	pending := Pending{
		DeviceCode:              doc.DeviceCode,
		UserCode:                doc.UserCode,
		VerificationURI:         doc.VerificationURI,
		VerificationURIComplete: doc.VerificationURIComplete,
		Expires:                 answer.asked.Add(life),
		Life:                    life,
		Interval:                max(seconds(doc.Interval, maxInterval), time.Second),
		Token:                   meta.Token,
	}
	if doc.Interval <= 0 {
		pending.Interval = defaultInterval
	}
	if !answer.date.IsZero() {
		pending.There = answer.date.Add(life)
	}
	if err := pending.check(); err != nil {
		return Pending{}, fmt.Errorf("device authorisation: %w", err)
	}
	return pending, nil
}

func seconds(s float64, most time.Duration) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, most.Seconds()) * float64(time.Second))
}

// check refuses what can't be polled, or must not reach a screen.
func (p Pending) check() error {
	if p.DeviceCode == "" || len(p.DeviceCode) > maxToken {
		return errors.New("no usable device_code")
	}
	if p.UserCode == "" || len(p.UserCode) > 64 || !wire.Plain(p.UserCode) {
		return errors.New("no usable user_code")
	}
	for _, link := range []string{p.VerificationURI, p.VerificationURIComplete} {
		if link == "" && link != p.VerificationURI {
			continue
		}
		u, err := url.Parse(link)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || len(link) > 1024 || !wire.Plain(link) {
			return errors.New("no usable verification_uri")
		}
	}
	if p.Expires.IsZero() {
		return errors.New("no expires_in")
	}
	return nil
}

// Poll asks until the owner has decided: tokens, ErrDenied, ErrExpired, or a
// *TokenError. It waits a little more than the interval, since some servers
// measure it their own way; slow_down lengthens it for good (in pending, too).
// Whatever else happens (network, 5xx, HTML of a proxy) means "not yet", with
// growing pauses. The code's end is counted here as well, as not every server
// ever says so.
func (p *Provider) Poll(ctx context.Context, pending *Pending) (Tokens, error) {
	return p.poll(ctx, pending, func() {})
}

// poll is Poll, and calls slowed after the interval has grown.
func (p *Provider) poll(ctx context.Context, pending *Pending, slowed func()) (Tokens, error) {
	form := url.Values{
		"grant_type":  {"urn:ietf:params:oauth:grant-type:device_code"},
		"device_code": {pending.DeviceCode},
		"client_id":   {p.clientID()},
	}
	trouble := backoff.Backoff{Base: 2 * time.Second, Max: time.Minute, Jitter: 2 * time.Second}
	extra := time.Duration(0)
	for {
		if err := sleep(ctx, pending.Interval+time.Second+rand.N(time.Second)+extra, pending.Expires); err != nil {
			return Tokens{}, err
		}
		answer, err := p.postForm(ctx, p.pollEndpoint(pending), form)
		var t Tokens
		if err == nil {
			t, err = answer.tokens()
		}
		if err == nil {
			return t, nil
		}
		if ctx.Err() != nil {
			return Tokens{}, context.Cause(ctx)
		}
		refusal, spoke := errors.AsType[*TokenError](err)
		if !spoke || refusal.passing() {
			extra = trouble.Next()
			p.log().Info("waiting for approval, platform not reached", "err", err, "next", pending.Interval+extra)
			continue
		}
		trouble.Reset()
		extra = 0
		switch refusal.Code {
		case "authorization_pending":
		case "slow_down":
			pending.Interval = min(pending.Interval+slowDown, maxInterval)
			slowed()
		case "access_denied":
			return Tokens{}, ErrDenied
		case "expired_token", "invalid_grant":
			return Tokens{}, fmt.Errorf("%w: %w", ErrExpired, err)
		default:
			return Tokens{}, fmt.Errorf("wait for approval: %w", err)
		}
	}
}

func (p *Provider) pollEndpoint(pending *Pending) string {
	if pending.Token == "" {
		return p.tokenEndpoint()
	}
	return pending.Token
}

// sleep waits, but not beyond the end of the code.
func sleep(ctx context.Context, d time.Duration, expires time.Time) error {
	left := time.Until(expires)
	timer := time.NewTimer(min(d, left))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	if left <= d {
		return ErrExpired
	}
	return nil
}

// Pair goes on with the stored authorisation or begins a new one, calls show
// with it, and waits for the owner; an expired code is replaced by a new one,
// and what is transient is tried again, for as long as ctx lasts. Other errors
// are ErrNotOffered, ErrDenied and *TokenError. The caller gives the tokens to
// Source.Adopt, which also forgets the authorisation: until then the code can
// be redeemed again.
func (p *Provider) Pair(ctx context.Context, store *Store, device DeviceRequest, show func(Pending)) (Tokens, error) {
	trouble := backoff.Backoff{Base: 2 * time.Second, Max: time.Minute, Jitter: 5 * time.Second}
	for {
		pending, fresh, err := p.pendingFor(ctx, store, device)
		begun := time.Now()
		if err == nil {
			show(pending)
			var t Tokens
			t, err = p.poll(ctx, &pending, func() { p.keep(store, pending) })
			if err == nil {
				return t, nil
			}
		}
		refusal, refused := errors.AsType[*TokenError](err)
		switch {
		case ctx.Err() != nil:
			return Tokens{}, context.Cause(ctx)
		case errors.Is(err, ErrExpired):
			if err := store.ClearPending(); err != nil { // it isn't used again: it has expired
				p.log().Error("the expired authorisation can't be removed", "err", err)
			}
			if !fresh || time.Since(begun) >= shortLife {
				trouble.Reset()
				continue
			}
		case errors.Is(err, ErrDenied), refused && !refusal.passing():
			return Tokens{}, errors.Join(err, store.ClearPending())
		case errors.Is(err, ErrNotOffered):
			return Tokens{}, err
		}
		wait := trouble.Next()
		p.log().Warn("device authorisation", "err", err, "next", wait)
		if p.Trouble != nil {
			p.Trouble(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return Tokens{}, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// pendingFor is the stored authorisation or a new one, and says which.
func (p *Provider) pendingFor(ctx context.Context, store *Store, device DeviceRequest) (pending Pending, fresh bool, err error) {
	pending, ok, err := store.LoadPending()
	if err != nil {
		p.log().Warn("stored authorisation dropped", "err", err)
	}
	if ok {
		return pending, false, nil
	}
	if pending, err = p.AuthorizeDevice(ctx, device); err != nil {
		return Pending{}, false, err
	}
	p.keep(store, pending)
	return pending, true, nil
}

// keep stores the authorisation. A disk that takes nothing is no reason to show
// no code: what doesn't survive then is a restart.
func (p *Provider) keep(store *Store, pending Pending) {
	if err := store.SavePending(pending); err != nil {
		p.log().Error("the pending authorisation can't be stored; a restart will need a new code", "err", err)
	}
}

// pendingFile is a Pending on the disk.
type pendingFile struct {
	Issuer                  string    `json:"issuer"`
	MachineID               string    `json:"machine_id,omitempty"`
	DeviceCode              string    `json:"device_code"`
	UserCode                string    `json:"user_code"`
	VerificationURI         string    `json:"verification_uri"`
	VerificationURIComplete string    `json:"verification_uri_complete,omitempty"`
	Expires                 time.Time `json:"expires_at"` // by the platform's clock, where known
	LifeSeconds             float64   `json:"expires_in,omitempty"`
	IntervalSeconds         float64   `json:"interval"`
	Token                   string    `json:"token_endpoint,omitempty"`
}

func (p Pending) encode(issuer, machine string) ([]byte, error) {
	expires := p.Expires
	if !p.There.IsZero() {
		expires = p.There
	}
	return json.Marshal(pendingFile{
		Issuer: issuer, MachineID: machine, DeviceCode: p.DeviceCode, UserCode: p.UserCode,
		VerificationURI: p.VerificationURI, VerificationURIComplete: p.VerificationURIComplete,
		Expires: expires.UTC().Round(0), LifeSeconds: p.Life.Seconds(), IntervalSeconds: p.Interval.Seconds(), Token: p.Token,
	})
}

// decodePending also gives the file itself, for whose it is.
func decodePending(data []byte) (Pending, pendingFile, error) {
	var f pendingFile
	if err := json.Unmarshal(data, &f); err != nil {
		return Pending{}, f, errors.New("malformed JSON")
	}
	life := seconds(f.LifeSeconds, maxCodeLife)
	if life == 0 {
		life = maxCodeLife
	}
	// After a start with the clock at an earlier date than the code's, its end
	// would lie too far ahead.
	now := time.Now()
	left := min(f.Expires.Sub(now), life)
	p := Pending{
		DeviceCode: f.DeviceCode, UserCode: f.UserCode,
		VerificationURI: f.VerificationURI, VerificationURIComplete: f.VerificationURIComplete,
		Expires: now.Add(left), There: f.Expires, Life: life, Interval: max(seconds(f.IntervalSeconds, maxInterval), time.Second), Token: f.Token,
	}
	if f.Expires.IsZero() {
		p.Expires = f.Expires // which check refuses
	}
	return p, f, p.check()
}
