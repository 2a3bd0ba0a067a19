package stream

import (
	"context"
	"errors"

	"farhand/wire"
)

// Why a stream ended: the reason in its last frame. A family has others for
// what it alone knows (port_shared).
const (
	ReasonClosed       = "closed"          // by its receiver
	ReasonDone         = "done"            // there is no more of it
	ReasonReleased     = "released"        // the device was given back
	ReasonGone         = "device_gone"     // unplugged
	ReasonGrantRevoked = "grant_revoked"   // the owner no longer allows it
	ReasonSessionEnded = "session_ended"   // detached, revoked, or its link stayed lost
	ReasonIdle         = "idle"            // its receiver was not heard of
	ReasonDeadman      = "deadman"         // the session was silent for longer than it had promised
	ReasonStopping     = "daemon_stopping" // the daemon stops
	ReasonFailed       = "failed"          // the device stopped answering
)

// Cause is an error that says which of the reasons it stands for, in
// details.reason.
func Cause(code wire.Code, reason, message string) error {
	return wire.Errorf(code, "%s", message).With("reason", reason)
}

// Reason is the reason for the end of a stream whose lease ended with this
// cause, or whose device failed with it.
func Reason(cause error) string {
	var e *wire.Error
	if errors.As(cause, &e) {
		switch reason, _ := e.Details["reason"].(string); reason {
		case ReasonClosed, ReasonReleased, ReasonGone, ReasonGrantRevoked, ReasonSessionEnded, ReasonIdle, ReasonDeadman, ReasonStopping:
			return reason
		}
	}
	switch {
	case errors.Is(cause, wire.DeviceGone):
		return ReasonGone
	case cause == nil || errors.Is(cause, context.Canceled):
		return ReasonReleased
	}
	return ReasonFailed
}
