package daemon

import (
	"bytes"
	"io"
	"time"

	"farhand/daemon/board"
	"farhand/daemon/clock"
	"farhand/provision/request"
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
	Machine      MachineStatus         `json:"machine"`
	Shell        ShellStatus           `json:"shell"`
	Privacy      *PrivacyStatus        `json:"privacy,omitempty"` // absent: nothing is private
	LLM          LLMStatus             `json:"llm"`
	// Warnings are conditions the owner should know of, such as commands
	// running as the daemon's own user.
	Warnings []string `json:"warnings"`
}

// MachineStatus is how the machine below the daemon is: its clock, its supply,
// what it started from. Empty fields are what it doesn't tell.
type MachineStatus struct {
	ClockState   clock.State `json:"clock_state"`
	OfflineSince *time.Time  `json:"offline_since,omitempty"` // the platform isn't reached
	MDNSName     string      `json:"mdns_name,omitempty"`     // as claimed, conflicts and all
	Addresses    []string    `json:"addresses,omitempty"`
	Wifi         string      `json:"wifi,omitempty"`
	Power        string      `json:"power,omitempty"` // in words; "ok"
	WeakPower    bool        `json:"weak_power,omitempty"`

	Slot       string     `json:"slot,omitempty"` // a or b
	SlotSource string     `json:"slot_source,omitempty"`
	Bootloader *time.Time `json:"bootloader,omitempty"` // when it was built
	// Updatable says that an update could be tried on the other slot and taken
	// back; NotUpdatable why it could not, where there are slots.
	Updatable    bool   `json:"updatable,omitempty"`
	NotUpdatable string `json:"not_updatable,omitempty"`

	Watchdog    *request.Watchdog `json:"watchdog,omitempty"`    // the hardware's
	Provisioned []request.Item    `json:"provisioned,omitempty"` // what became of the card's settings
	// NewBoard says that the card came from another board: this is a new
	// identity.
	NewBoard bool `json:"new_board,omitempty"`
	// Degraded says why nothing can be kept.
	Degraded string `json:"degraded,omitempty"`
}

func (m *MachineStatus) setBoot(b board.Boot) {
	m.Slot, m.SlotSource = b.Slot, b.SlotSource
	if built := b.Built(); !built.IsZero() {
		m.Bootloader = &built
	}
	if b.Slot != "" {
		m.Updatable, m.NotUpdatable = b.Updatable()
	}
}

// ShellStatus says as whom commands run.
type ShellStatus struct {
	On    bool   `json:"on"`
	Apart bool   `json:"apart"`           // as another user than the daemon's
	Fault string `json:"fault,omitempty"` // why none runs although it is on
	Words string `json:"words"`
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
