package shim

import (
	"context"
	"time"
)

const (
	// handoverAhead is how long before the token's expiry a socket looks for a
	// quiet moment to move to a newer one.
	handoverAhead = time.Minute
	handoverRetry = 2 * time.Second
	// handoverLeast: tokens that live shorter are left to 4401.
	handoverLeast = 5 * time.Minute
)

// errHandover ends a socket so that the next is opened at once with a newer token.
var errHandover = &closing{1000, "token renewal"}

// handover is the timer for moving to a newer token, or one that never fires.
func (k *socket) handover() *time.Timer {
	const never = 1<<63 - 1
	expiry := k.shim.cfg.Tokens.Expiry()
	if left := time.Until(expiry); !expiry.IsZero() && left >= handoverLeast {
		return time.NewTimer(left - handoverAhead)
	}
	return time.NewTimer(never)
}

// tryHandover closes the socket if it is idle and a newer token is at hand.
func (k *socket) tryHandover(ctx context.Context) bool {
	if k.session == nil && k.shim.browser.active() {
		return false // the references of a browse die with the socket
	}
	token, err := k.shim.cfg.Tokens.Token(ctx)
	if err != nil || token == k.token {
		return false
	}
	k.mu.Lock()
	idle := len(k.calls) == 0
	k.stopping = k.stopping || idle
	k.mu.Unlock()
	if !idle {
		return false
	}
	k.shim.log.Info("moving to a newer token", k.attr()...)
	k.moving.Store(true)
	k.leave(errHandover)
	return true
}
