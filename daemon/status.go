package daemon

import (
	"bytes"
	"io"
	"time"

	"farhand/wire"
)

// State is what the daemon is doing about its connection.
type State string

// The states of a daemon.
const (
	StateStarting    State = "starting"
	StatePairing     State = "pairing"      // a user code waits to be approved
	StateLoginNeeded State = "login_needed" // the platform offers no device authorisation: farhandd login
	StateConnecting  State = "connecting"
	StateOnline      State = "online"
	StateHalted      State = "halted" // told not to reconnect: farhandd resume
	StateStopping    State = "stopping"
)

// Status is what GET /status answers and `farhandd status` shows.
type Status struct {
	State       State     `json:"state"`
	Detail      string    `json:"detail,omitempty"` // why, and what to do
	Since       time.Time `json:"since"`
	Version     string    `json:"version"`
	PID         int       `json:"pid"`
	Uptime      float64   `json:"uptime_seconds"`
	Platform    string    `json:"platform_url"`
	MachineID   string    `json:"machine_id"`
	DisplayName string    `json:"display_name"`
	Board       string    `json:"board,omitempty"`
	StateDir    string    `json:"state_dir"`
	Roots       []string  `json:"roots"`

	Capabilities wire.Capabilities     `json:"capabilities"`
	Granted      wire.Capabilities     `json:"granted_capabilities,omitempty"`
	ConnectionID string                `json:"connection_id,omitempty"`
	RetryAt      *time.Time            `json:"retry_at,omitempty"`
	LastError    string                `json:"last_error,omitempty"`
	Sessions     []SessionStatus       `json:"sessions"`
	Devices      []wire.HardwareDevice `json:"devices"`
	Audit        AuditStatus           `json:"audit"`
	Pairing      *PairingStatus        `json:"pairing,omitempty"`
	// Warnings are conditions the owner should know of, such as commands
	// running as the daemon's own user.
	Warnings []string `json:"warnings"`
}

// SessionStatus is one live data session.
type SessionStatus struct {
	ID   string `json:"session_id"`
	Root string `json:"allowed_root"`
	Live bool   `json:"live"` // its socket is up
}

// AuditStatus is the head of the audit log.
type AuditStatus struct {
	Seq   int64  `json:"seq"`
	HMAC  string `json:"hmac"`
	Bytes int64  `json:"bytes"`
}

// PairingStatus is the code that waits to be approved.
type PairingStatus struct {
	UserCode                string    `json:"user_code"`
	VerificationURI         string    `json:"verification_uri"`
	VerificationURIComplete string    `json:"verification_uri_complete,omitempty"`
	ExpiresAt               time.Time `json:"expires_at"`
}

func bytesReader(b []byte) io.Reader {
	if b == nil {
		return nil
	}
	return bytes.NewReader(b)
}
