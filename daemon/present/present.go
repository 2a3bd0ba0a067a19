// Package present keeps an appliance's helper informed, which owns the screen,
// the card's boot partition and the rescue network: the code that waits to be
// approved, how the machine is, whether the relay is reached. The daemon says
// what is true and goes on; a goroutine of the Presenter's own brings it to the
// helper, tries again when the helper is away, and never holds anybody up.
//
// On a machine without such a helper nothing happens but a look at the socket
// every half minute.
package present

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"farhand/internal/backoff"
	"farhand/provision/request"
)

// Helper is what the provisioning helper does; a request.Client.
type Helper interface {
	ShowPairing(context.Context, request.Pairing) error
	ShowStatus(context.Context, request.Status) error
	Paired(context.Context) error
	Facts(context.Context) (request.Facts, error)
	Offline(context.Context, request.Offline) error
	Online(context.Context) error
	SetClockHint(context.Context, request.ClockHint) error
}

var _ Helper = request.Client{}

// Report is what the daemon knows at a moment.
type Report struct {
	Status request.Status
	// Offline is since when the relay isn't reached; zero while it is, or while
	// nothing was tried yet.
	Offline time.Time
	// Unknown says that nothing was tried yet.
	Unknown bool
}

// Options are what a Presenter needs.
type Options struct {
	Helper Helper
	// Report is asked for the state of things, by the Presenter's goroutine,
	// which shows it what the helper knows.
	Report func(context.Context, request.Facts) Report
	// InNetwork says whether this machine is in a network at all; nil: look at
	// the routes.
	InNetwork func() bool
	// Wireless says whether that is by Wi-Fi alone; nil: look at the routes.
	Wireless func() bool
	Log      *slog.Logger
}

const (
	// gap is the least time between two looks, so that a burst of changes makes
	// one picture.
	gap = time.Second
	// look is how often what nobody tells of is looked at: addresses, the name.
	look = 30 * time.Second
	// remind is how often a state that isn't as it should be is told again, though
	// it hasn't changed: what the helper does about it hangs on how long it lasts.
	remind = 2 * time.Minute
	// factsLife is how long the helper's facts are good for.
	factsLife = 5 * time.Minute
)

// Presenter keeps the helper informed. Its methods are safe for concurrent use
// and return at once.
type Presenter struct {
	opt    Options
	wake   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	pairing *request.Pairing // to be shown; nil: the status is
	paired  bool             // the card's copy of the code is to be removed
	facts   *request.Facts

	// What the helper was told, by the goroutine alone.
	toldPairing *request.Pairing
	toldStatus  *request.Status
	toldAt      time.Time // the status
	toldOnline  bool
	factsAt     time.Time
	trouble     backoff.Backoff
	quiet       bool // the last failure is logged
}

// New starts the goroutine, which Close ends.
func New(ctx context.Context, o Options) *Presenter {
	if o.InNetwork == nil {
		o.InNetwork = InNetwork
	}
	if o.Wireless == nil {
		o.Wireless = Wireless
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Presenter{
		opt: o, wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
		trouble: backoff.Backoff{Base: 2 * time.Second, Max: look, Jitter: time.Second},
	}
	go p.run(ctx)
	return p
}

// Close ends the goroutine, a call in work included.
func (p *Presenter) Close() error {
	p.cancel()
	<-p.done
	return nil
}

// ShowPairing has the code shown from now on.
func (p *Presenter) ShowPairing(pairing request.Pairing) {
	p.mu.Lock()
	p.pairing = &pairing
	p.mu.Unlock()
	p.Changed()
}

// EndPairing has the status shown again.
func (p *Presenter) EndPairing() {
	p.mu.Lock()
	p.pairing = nil
	p.mu.Unlock()
	p.Changed()
}

// Paired says that the machine has a login, so that no code stays on the card.
// The helper is told until it has heard it, and no more than once a login.
func (p *Presenter) Paired() {
	p.mu.Lock()
	p.pairing, p.paired = nil, true
	p.mu.Unlock()
	p.Changed()
}

// Changed says that Report would answer otherwise.
func (p *Presenter) Changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Facts are the helper's newest; false if there is no helper or it hasn't
// answered yet.
func (p *Presenter) Facts() (request.Facts, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.facts == nil {
		return request.Facts{}, false
	}
	return *p.facts, true
}

// SetClockHint passes a trusted host's date on.
func (p *Presenter) SetClockHint(ctx context.Context, at time.Time) error {
	return p.opt.Helper.SetClockHint(ctx, request.ClockHint{Unix: at.Unix()})
}

func (p *Presenter) run(ctx context.Context) {
	defer close(p.done)
	for {
		wait := look
		if err := p.tell(ctx); err != nil && ctx.Err() == nil {
			wait = p.failed(err)
		} else if err == nil {
			p.trouble.Reset()
			p.quiet = false
		}
		if !p.rest(ctx, wait) {
			return
		}
	}
}

// rest waits for a change or for the time to look; false means the end.
func (p *Presenter) rest(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	timer.Reset(max(wait-gap, 0))
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-p.wake:
	}
	return true
}

// failed says when to try again. A machine without a helper is no trouble.
func (p *Presenter) failed(err error) time.Duration {
	p.toldStatus, p.toldPairing, p.toldOnline = nil, nil, false // another helper knows nothing
	if errors.Is(err, request.ErrNoHelper) {
		return look
	}
	if !p.quiet {
		p.quiet = true
		p.opt.Log.Warn("the provisioning helper can't be told how things are; trying again", "error", err)
	}
	return p.trouble.Next()
}

// tell brings the helper up to date with one call for each thing that it doesn't
// know yet.
func (p *Presenter) tell(ctx context.Context) error {
	if err := p.askFacts(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	pairing, paired, facts := p.pairing, p.paired, *p.facts
	p.mu.Unlock()
	if paired {
		if err := p.opt.Helper.Paired(ctx); err != nil {
			return err
		}
		p.mu.Lock()
		p.paired = false
		p.mu.Unlock()
	}
	report := p.opt.Report(ctx, facts)
	if err := p.tellContact(ctx, report); err != nil {
		return err
	}
	if pairing != nil {
		return p.tellPairing(ctx, *pairing)
	}
	return p.tellStatus(ctx, report.Status)
}

func (p *Presenter) askFacts(ctx context.Context) error {
	if !p.factsAt.IsZero() && time.Since(p.factsAt) < factsLife {
		return nil
	}
	f, err := p.opt.Helper.Facts(ctx)
	if err != nil {
		return err
	}
	p.factsAt = time.Now()
	p.mu.Lock()
	p.facts = &f
	p.mu.Unlock()
	return nil
}

// tellContact says again and again that the relay isn't reached, since the
// rescue network comes after a while of that, but only once that it is.
func (p *Presenter) tellContact(ctx context.Context, r Report) error {
	switch {
	case r.Unknown:
		return nil
	case !r.Offline.IsZero():
		p.toldOnline = false
		return p.opt.Helper.Offline(ctx, request.Offline{Since: r.Offline, KnownNetwork: p.opt.InNetwork(), Wireless: p.opt.Wireless()})
	case p.toldOnline:
		return nil
	}
	if err := p.opt.Helper.Online(ctx); err != nil {
		return err
	}
	p.toldOnline = true
	return nil
}

func (p *Presenter) tellPairing(ctx context.Context, pairing request.Pairing) error {
	if p.toldPairing != nil && *p.toldPairing == pairing {
		return nil
	}
	p.toldStatus = nil
	if err := p.opt.Helper.ShowPairing(ctx, pairing); err != nil {
		return err
	}
	p.toldPairing = &pairing
	return nil
}

func (p *Presenter) tellStatus(ctx context.Context, s request.Status) error {
	s = s.Clip()
	if p.toldStatus != nil && reflect.DeepEqual(*p.toldStatus, s) && (s.State == "connected" || time.Since(p.toldAt) < remind) {
		return nil
	}
	p.toldPairing = nil
	if err := p.opt.Helper.ShowStatus(ctx, s); err != nil {
		return err
	}
	p.toldStatus, p.toldAt = &s, time.Now()
	return nil
}
