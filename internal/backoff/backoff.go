// Package backoff spaces out attempts: each wait doubles the one before up to a
// bound, with a random part on top so that many devices don't come back at once.
package backoff

import (
	"math/rand/v2"
	"time"
)

// The protocol's own values for reconnecting.
const (
	DefaultBase   = time.Second
	DefaultMax    = time.Minute
	DefaultJitter = 5 * time.Second
)

// Backoff counts attempts. The zero value with its fields set is ready to use;
// it is not safe for concurrent use.
type Backoff struct {
	Base   time.Duration // the first wait
	Max    time.Duration // no wait is longer, jitter apart
	Jitter time.Duration // up to this much is added, evenly spread

	attempt int
}

// Default has the values of the protocol.
func Default() Backoff {
	return Backoff{Base: DefaultBase, Max: DefaultMax, Jitter: DefaultJitter}
}

// Next is how long to wait before the next attempt:
// min(Base·2^n, Max) + uniform[0, Jitter), where n counts the calls since Reset.
func (b *Backoff) Next() time.Duration {
	wait := b.Base
	for i := 0; i < b.attempt && wait < b.Max; i++ {
		wait *= 2
	}
	if wait >= b.Max {
		wait = b.Max // and attempt stays, so that it never overflows
	} else {
		b.attempt++
	}
	if b.Jitter > 0 {
		wait += rand.N(b.Jitter)
	}
	return wait
}

// Reset starts over, after a time in which all was well.
func (b *Backoff) Reset() { b.attempt = 0 }
