package request

import (
	"fmt"
	"time"
)

// Socket is where the appliance's helper listens.
const Socket = "/run/farhand/provision.sock"

// MaxLine bounds a request or an answer, its line end included, in bytes.
const MaxLine = 64 << 10

// Bounds of what a request carries, so that the largest one fits into a line
// even if each of its bytes is escaped. Longer texts are cut and further entries
// left out by Clip; the helper refuses what exceeds them.
const (
	MaxText      = 512 // bytes of a text
	MaxAddress   = 64  // of an address
	MaxDevice    = 160 // of a device's id, or of its description
	MaxAddresses = 16
	MaxDevices   = 64
)

// Pairing is a pending device authorisation (RFC 8628), to be shown to whoever
// stands beside the device.
type Pairing struct {
	VerificationURI         string    `json:"verification_uri"`
	VerificationURIComplete string    `json:"verification_uri_complete"` // what the QR code holds
	UserCode                string    `json:"user_code"`
	ExpiresAt               time.Time `json:"expires_at"`
	Relay                   string    `json:"relay"` // the relay's base URL
	Name                    string    `json:"name"`  // this machine's, as shown to its owner
	// Note says why there is a code at all, where a claim key was to spare it.
	Note string `json:"note,omitempty"`
}

// Status is what the screen tells of a machine that doesn't wait for approval.
type Status struct {
	State        string     `json:"state"`                   // connected, connecting, offline, halted ...
	Detail       string     `json:"detail,omitempty"`        // why, in words a person can act on
	Name         string     `json:"name"`                    // as shown to the owner
	MDNSName     string     `json:"mdns_name,omitempty"`     // as claimed, with .local
	Addresses    []string   `json:"addresses,omitempty"`     // IP addresses with which it can be reached
	Relay        string     `json:"relay,omitempty"`         // the relay's base URL
	Devices      []Device   `json:"devices,omitempty"`       // what is wired to it
	ClockState   string     `json:"clock_state,omitempty"`   // synchronised, hint, saved, floor or unset
	Wifi         string     `json:"wifi,omitempty"`          // in words
	OfflineSince *time.Time `json:"offline_since,omitempty"` // nil while connected
}

// Device is one line of the screen's list.
type Device struct {
	ID   string `json:"id"`
	Desc string `json:"desc,omitempty"`
}

// Offline says that the relay can't be reached, which may bring up the rescue
// network.
type Offline struct {
	Since time.Time `json:"since"`
	// KnownNetwork says that the machine is in a network all the same: then the
	// rescue network would not help.
	KnownNetwork bool `json:"known_network"`
	// Wireless says that this network is a Wi-Fi alone: one that leads nowhere, such
	// as one with a page to log in on, can then be exchanged for another.
	Wireless bool `json:"wireless,omitempty"`
}

// ClockHint is what a host said the time is whose certificate was already
// pinned. It only ever moves the clock forward.
type ClockHint struct {
	Unix int64 `json:"unix"` // seconds since 1970
}

// Reached says that the relay was reached anew, by an attempt of its own.
type Reached struct {
	// Began is how long the machine had been up when the attempt began
	// (CLOCK_BOOTTIME), in nanoseconds.
	Began time.Duration `json:"began_ns"`
}

// Facts are what the helper found out at boot, and what it takes root to know.
type Facts struct {
	Slot       string     `json:"slot,omitempty"`        // a or b
	SlotSource string     `json:"slot_source,omitempty"` // bootloader or default
	ClockFloor int64      `json:"clock_floor,omitempty"` // seconds since 1970: the clock never stood below
	Wifi       WifiFacts  `json:"wifi"`
	Throttled  *uint32    `json:"throttled,omitempty"` // the firmware's bits; nil where it has none
	Watchdog   *Watchdog  `json:"watchdog,omitempty"`  // nil where there is no such hardware
	Bootloader Bootloader `json:"bootloader"`
	Report     []Item     `json:"report,omitempty"` // what became of each setting
	// Degraded says what stands in the way of keeping anything, in words: the
	// data partition is read-only or missing. Empty if all is well.
	Degraded string `json:"degraded,omitempty"`
	// Cloned says that the card came from another board, so that this boot made
	// a new identity and set the old state aside.
	Cloned bool `json:"cloned,omitempty"`
}

// WifiFacts are what the radio was told.
type WifiFacts struct {
	State   string `json:"state"`              // one of the Wifi constants
	SSIDHex string `json:"ssid_hex,omitempty"` // an SSID may be any 1 to 32 bytes
	Country string `json:"country,omitempty"`
}

// InstallOllama has the local model's server be what an archive holds. The open
// archive comes with the request as a descriptor: a tar of the plainest kind
// (internal/ustar), compressed by gzip.
type InstallOllama struct {
	SHA256 string `json:"sha256"` // of the archive, lower-case hex
}

// OllamaIDLen is how many digits of an archive's SHA-256 make the name of the
// version that it holds.
const OllamaIDLen = 12

// RemoveOllama takes the local model's server away.
type RemoveOllama struct {
	Models bool `json:"models"` // and all that it was given, too
}

// States of the radio.
const (
	WifiNone      = "none"                 // the board has no radio
	WifiOff       = "off"                  // nothing was configured
	WifiReady     = "configured"           // a network is known and the radio may send
	WifiNoCountry = "blocked (no country)" // the radio may not send before its country is known
	WifiBlocked   = "blocked"              // rfkill blocks it, by a switch or by somebody's order
	WifiOpen      = "open"                 // configured, for a network without encryption
)

// Watchdog is the hardware watchdog's time limit: what the system was told to
// set, and what the device really runs with.
type Watchdog struct {
	Identity   string `json:"identity,omitempty"`
	WantedS    int    `json:"wanted_s"`
	EffectiveS int    `json:"effective_s"` // 0: it doesn't run
}

// Bootloader is what the firmware says of itself below
// /proc/device-tree/chosen/bootloader; nil for what it doesn't say.
type Bootloader struct {
	Partition      *uint32 `json:"partition,omitempty"`
	Tryboot        *uint32 `json:"tryboot,omitempty"`
	BuildTimestamp *uint32 `json:"build_timestamp,omitempty"` // seconds since 1970
	Capabilities   *uint32 `json:"capabilities,omitempty"`
}

// Item is what became of one setting of the card.
type Item struct {
	Item    string `json:"item"`          // file and key: "rpi-preseed.toml wlan.ssid"
	Outcome string `json:"outcome"`       // one of the Outcome constants
	Why     string `json:"why,omitempty"` // not for OutcomeApplied
}

// Outcomes of a setting.
const (
	OutcomeApplied = "applied"
	OutcomeChanged = "changed" // applied, but not to the letter
	OutcomeRefused = "refused" // not applied: it is wrong
	OutcomeIgnored = "ignored" // not applied: this image has no such thing
	OutcomeRemoved = "removed" // a file that doesn't belong on the card
)

// Code is the kind of a failure.
type Code string

// Codes of failures. A Code is an error itself, so errors.Is(err, Refused)
// holds on both ends.
const (
	Malformed   Code = "malformed"   // not a request, or with arguments out of bounds
	Unknown     Code = "unknown"     // no such request
	NotAllowed  Code = "not_allowed" // the caller is neither the daemon nor root
	Refused     Code = "refused"     // understood, and not done by policy
	Unavailable Code = "unavailable" // this machine has no such thing, or not now
	NoRoom      Code = "no_room"     // the disk is too full
	Failed      Code = "failed"      // tried, and it didn't work
)

func (c Code) Error() string { return string(c) }

// Error is a failed request.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string { return e.Message }

// Unwrap makes errors.Is find the code.
func (e *Error) Unwrap() error { return e.Code }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
