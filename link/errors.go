package link

import (
	"errors"
	"fmt"
)

// Errors of a Conn.
var (
	// ErrClosed: the socket was closed on this side, or failed before.
	ErrClosed = errors.New("socket closed")
	// ErrSilent: the peer sent no byte for longer than Options.DeadAfter.
	ErrSilent = errors.New("peer is silent")
	// ErrTooBig: a message above wire.MaxFrame arrived; the peer was told 1009.
	ErrTooBig = errors.New("message larger than 16 MiB")
	// ErrFull: Post found its queue full; the peer reads too slowly.
	ErrFull = errors.New("send queue full")
	// ErrRefused: the frame may not be sent on this socket. It is a mistake of
	// the caller and was logged.
	ErrRefused = errors.New("frame not allowed on this socket")
)

// CloseError is how the peer closed the socket. Code is 1006 if it vanished
// without a word (RFC 6455 section 7.1.5) and 1005 if it gave no code.
type CloseError struct {
	Code   int
	Reason string
}

func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("closed by the peer with %d", e.Code)
	}
	return fmt.Sprintf("closed by the peer with %d: %s", e.Code, e.Reason)
}

// DialError is an HTTP answer that refused the upgrade.
type DialError struct {
	Status int    // HTTP status code
	Body   string // the first KiB of the answer's body
}

func (e *DialError) Error() string {
	return fmt.Sprintf("upgrade refused with HTTP %d", e.Status)
}
