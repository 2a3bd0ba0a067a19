package shim

import (
	"errors"
	"fmt"

	"farhand/wire"
)

// Why Run returned although its context goes on. The daemon decides what to do.
var (
	// ErrLoginNeeded: there is no token that the platform takes, and renewing
	// it isn't possible.
	ErrLoginNeeded = errors.New("login needed")
	// ErrRevoked: the owner revoked this device (4428 or user_revoked).
	ErrRevoked = errors.New("access revoked by the owner")
)

// Halted says that the platform told us not to come back by ourselves, or that
// it would be of no use. Code is the WebSocket close code that stands for the
// cause: 4426 version or capabilities, 4427 another device took the place, 4429
// the platform is shutting down, 4400 and 4403 a broken handshake.
type Halted struct {
	Code   int
	Reason string
}

func (h *Halted) Error() string { return fmt.Sprintf("halted (%d): %s", h.Code, h.Reason) }

// errStopping is the cause of a call's end when its socket is being closed.
var errStopping error = wire.Errorf(wire.InternalError, "the session is closing").With("reason", "stopping")
