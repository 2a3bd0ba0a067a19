package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"farhand/daemon/clock"
	"farhand/daemon/present"
	"farhand/internal/pinned"
	"farhand/link"
)

// contact knows whether the platform can be reached, from every request and
// every dial that is made anyway. It is safe for concurrent use.
type contact struct {
	mu    sync.Mutex
	tried bool
	lost  time.Time // the first failure in a row; zero: reached
}

// saw notes how an attempt to reach the platform ended, and says whether that
// is news. An HTTP answer, whatever its status, is an answer.
func (c *contact) saw(err error) (news bool) {
	if _, answered := errors.AsType[*link.DialError](err); answered {
		err = nil
	}
	if errors.Is(err, context.Canceled) {
		return false // given up by us
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	news = !c.tried || (err == nil) != c.lost.IsZero()
	c.tried = true
	switch {
	case err == nil:
		c.lost = time.Time{}
	case c.lost.IsZero():
		c.lost = time.Now()
	}
	return news
}

// offline is since when nothing was reached; zero while the platform answers.
// tried is false before the first attempt ended.
func (c *contact) offline() (since time.Time, tried bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost, c.tried
}

// reason is why the platform isn't reached, for whoever stands beside a machine, with
// what is to be looked at where the words of an error don't tell.
func reason(err error) string {
	text := err.Error()
	if clock.NotYetValid(err) {
		return text + " (this clock may be wrong)"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok || errors.Is(err, pinned.ErrPin) {
		return text + " (something else than the relay may answer, such as a network's log-in page, or the relay has another certificate than this machine was told)"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return text + " (the relay's name may be wrong, or this network doesn't know it)"
	}
	return text
}

// watched makes requests through next, after before, and shows how each ended.
type watched struct {
	next   http.RoundTripper
	before func(context.Context)
	saw    func(error)
}

func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	w.before(r.Context())
	resp, err := w.next.RoundTrip(r)
	w.saw(err)
	return resp, err
}

// CloseIdleConnections lets http.Client reach the transport below.
func (w watched) CloseIdleConnections() {
	if c, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// arrivalSpread is up to how long after the network came the platform is tried:
// where the power comes back to many machines, they shall not come at once.
const arrivalSpread = time.Second

// followNetworks tries the platform soon after this machine came into a network,
// whatever pause the attempts before that have earned.
func (d *daemon) followNetworks(ctx context.Context) {
	arrived := make(chan struct{}, 1)
	var wakes sync.WaitGroup
	defer wakes.Wait()
	wakes.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-arrived:
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(rand.N(arrivalSpread)):
			}
			d.shim.Wake()
			d.poke()
		}
	})
	err := present.Arrivals(ctx, func() {
		select {
		case arrived <- struct{}{}:
		default:
		}
	})
	if err != nil && ctx.Err() == nil {
		d.log.Warn("networks that come are not noticed", "error", err)
	}
}

const (
	// timePatience bounds the wait for the network's time before the first
	// certificate is judged by this clock.
	timePatience = 10 * time.Second
	// Hints are asked for with growing pauses.
	hintPause    = 30 * time.Second
	hintPauseMax = 10 * time.Minute
)

// timekeeper sees to it that a clock which stands wrong doesn't keep the daemon
// from its platform: it waits for the network's time once, and where certificates
// still seem to lie in the future it takes a hint.
type timekeeper struct {
	clock     clock.Clock
	inNetwork func() bool
	ask       func(context.Context) (time.Time, error) // the pinned platform for the date
	set       func(context.Context, time.Time) error   // the clock, forward
	moved     func()                                   // it was
	log       *slog.Logger
	doubt     chan struct{} // a certificate isn't valid yet by our clock

	mu     sync.Mutex
	waited bool
}

// newTimekeeper is the daemon's own.
func (d *daemon) newTimekeeper() *timekeeper {
	return &timekeeper{
		inNetwork: present.InNetwork,
		ask: func(ctx context.Context) (time.Time, error) {
			return clock.Ask(ctx, d.config.Platform, d.config.PinSHA256)
		},
		set:   func(ctx context.Context, t time.Time) error { return d.presenter.SetClockHint(ctx, t) },
		moved: func() { d.shim.Wake() },
		log:   d.opts.Log,
		doubt: make(chan struct{}, 1),
	}
}

// settle waits for the network's time before the first attempt in a network;
// without one the attempt fails soon enough, and the wait comes before a later
// one. Whoever comes while another waits, waits too.
func (k *timekeeper) settle(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waited || !k.inNetwork() {
		return
	}
	k.clock.Wait(ctx, timePatience)
	k.waited = ctx.Err() == nil
}

// saw notices that a certificate isn't valid yet.
func (k *timekeeper) saw(err error) {
	if !clock.NotYetValid(err) {
		return
	}
	select {
	case k.doubt <- struct{}{}:
	default:
	}
}

// keep takes hints when they are needed, until ctx ends.
func (k *timekeeper) keep(ctx context.Context) {
	pause := hintPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.doubt:
		}
		if k.takeHint(ctx) {
			pause = hintPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, hintPauseMax)
	}
}

// takeHint says whether the clock was moved.
func (k *timekeeper) takeHint(ctx context.Context) bool {
	state := k.clock.State()
	if state.Trusted() {
		k.log.Error("the platform's certificate isn't valid yet, and this clock is right", "clock_state", string(state))
		return false
	}
	date, err := k.ask(ctx)
	if err == nil {
		err = k.set(ctx, date)
	}
	if err != nil {
		if ctx.Err() == nil {
			k.log.Warn("this clock is behind the platform's certificate; waiting for the network's time", "clock_state", string(state), "error", err)
		}
		return false
	}
	k.log.Warn("the clock was moved to the date of the pinned platform, until the network's time comes", "date", date.UTC().Format(time.RFC3339))
	k.moved()
	return true
}
