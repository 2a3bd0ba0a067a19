// Package limit bounds how fast each login and token may ask the relay, so that
// one that runs wild (an agent in a loop) leaves the others their share.
package limit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"farhand/wire"
)

// Code is what is answered to who asks too fast; details.retry_after_seconds says
// when it makes sense again.
const Code wire.Code = "RATE_LIMITED"

// maxHolders bounds the table; beyond it whoever has its whole share is forgotten
// first, which changes nothing for it.
const maxHolders = 1 << 14

// Rates are shares of one login or token, over all its sockets and calls at one
// instance of the relay. Zero means no bound.
type Rates struct {
	Calls    float64 // of the JSON API, upgrades included, in a second
	Requests float64 // on the operators' sockets, in a second
}

// Default is far above what people, scripts and agents do: a call takes the relay
// about a millisecond, a request some 50 µs of one processor.
var Default = Rates{Calls: 50, Requests: 5000}

// burstFor is how long nobody notices: so much of a share can be used at once.
const burstFor = 10 * time.Second

// Limits count. Safe for concurrent use; nil bounds nothing.
type Limits struct {
	rates Rates

	mu      sync.Mutex
	holders map[string]*holder
}

type holder struct{ calls, requests *rate.Limiter }

// New makes Limits with nobody in them.
func New(r Rates) *Limits { return &Limits{rates: r, holders: make(map[string]*holder)} }

// Call counts a call of the JSON API. The error, if it is too many, is RATE_LIMITED.
func (l *Limits) Call(who string) *wire.Error {
	if l == nil || l.rates.Calls <= 0 {
		return nil
	}
	return refuse(l.of(who).calls, "calls", l.rates.Calls)
}

// Request counts a request on a socket. The error, if it is too many, is
// RATE_LIMITED.
func (l *Limits) Request(who string) *wire.Error {
	if l == nil || l.rates.Requests <= 0 {
		return nil
	}
	return refuse(l.of(who).requests, "requests", l.rates.Requests)
}

func (l *Limits) of(who string) *holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holders[who]
	if h == nil {
		if len(l.holders) >= maxHolders {
			l.forget()
		}
		h = &holder{bucket(l.rates.Calls), bucket(l.rates.Requests)}
		l.holders[who] = h
	}
	return h
}

// forget drops those with a whole share, or if all are busy any one. Called with
// the lock held.
func (l *Limits) forget() {
	for who, h := range l.holders {
		if whole(h.calls) && whole(h.requests) {
			delete(l.holders, who)
		}
	}
	for who := range l.holders {
		if len(l.holders) < maxHolders {
			return
		}
		delete(l.holders, who)
	}
}

func bucket(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond*burstFor.Seconds())))
}

func whole(b *rate.Limiter) bool { return b.Tokens() >= float64(b.Burst()) }

func refuse(b *rate.Limiter, what string, perSecond float64) *wire.Error {
	if b.Allow() {
		return nil
	}
	wait := (1 - b.Tokens()) / perSecond
	wait = math.Ceil(max(wait, 0.001)*1000) / 1000
	return wire.Errorf(Code, "more %s than %g a second of one login or token: wait %g s", what, perSecond, wait).
		With("retry_after_seconds", wait).With("limit_per_second", perSecond)
}
