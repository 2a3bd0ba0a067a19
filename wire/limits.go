package wire

import "time"

// ProtocolVersion is the newest wire protocol that we speak, major.minor.
const ProtocolVersion = "1.1"

// Limits that both sides keep. Sources: protocol 1.1 and the AutoGPT relay.
const (
	MaxFrame       = 16 << 20 // bytes of one WebSocket message, either way
	MaxHello       = 56 << 10 // bytes of our HELLO; the platform refuses 64 KiB
	MaxHelloRelay  = 64 << 10 // bytes of a HELLO that our relay accepts
	envelopeMargin = 64 << 10 // room for the envelope around bulk data

	// MaxText is the most text one answer carries: every byte may become a
	// six-byte \u00xx escape.
	MaxText = (MaxFrame - envelopeMargin) / 6
	// MaxBinary is the most raw bytes one answer carries as base64.
	MaxBinary = (MaxFrame - envelopeMargin) / 4 * 3

	MaxID            = 256 // characters of an envelope's id that we accept
	MaxSessionID     = 256
	MaxMachineID     = 128
	MaxDisplayName   = 128
	MaxDeviceString  = 128 // a string a device reports about itself
	MaxAllowedRoot   = 4096
	MaxPath          = 4096 // characters of a path on Linux (PATH_MAX)
	MaxListEntries   = 1000
	MaxHelloDevices  = 200
	MaxBrowseEntries = 200
	MaxGrant         = 131072
)

// Defaults of HELLO_ACK when a platform omits them, and of the daemon's own
// configuration.
const (
	DefaultMaxConcurrent  = 4
	DefaultMaxFileSize    = 10 << 20
	DefaultCommandTimeout = 30 * time.Second
)

// Times of protocol 1.1.
const (
	HandshakeTimeout = 10 * time.Second // HELLO after the upgrade, HELLO_ACK after HELLO
	StatusInterval   = 30 * time.Second
	PingInterval     = 20 * time.Second
	// PlatformTimeout is how long the AutoGPT platform waits for any answer on
	// a data socket, EXECUTE_COMMAND included.
	PlatformTimeout = 30 * time.Second
)

// WebSocket close codes of the protocol (4400 and up are application codes,
// RFC 6455 section 7.4.2).
const (
	CloseServiceRestart   = 1012
	CloseBadHello         = 4400
	CloseAuthExpired      = 4401
	CloseForbidden        = 4403
	CloseHelloTimeout     = 4408
	CloseVersionMismatch  = 4426
	CloseSessionTakenOver = 4427
	CloseSessionRevoked   = 4428
	ClosePlatformShutdown = 4429
	ClosePlatformError    = 4500
)

// Reasons of SESSION_REVOKED. Receivers accept others.
const (
	ReasonAnotherShim      = "another_shim_connected"
	ReasonUserRevoked      = "user_revoked"
	ReasonPlatformShutdown = "platform_shutdown"
)
