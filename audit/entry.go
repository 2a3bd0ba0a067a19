package audit

import (
	"time"

	"farhand/wire"
)

// Operations that are not requests of the protocol. A request is recorded under
// its own message type (FILE_READ, EXECUTE_COMMAND, ATTACH_SESSION, …).
const (
	OpShimStart       = "SHIM_START"               // details: shim_version
	OpShimStop        = "SHIM_STOP"                // reason
	OpConnected       = "WS_CONNECTED"             // url
	OpDisconnected    = "WS_DISCONNECTED"          // reason
	OpTokenRefreshed  = "TOKEN_REFRESHED"          //
	OpConfigReloaded  = "CONFIG_RELOADED"          // granted_capabilities
	OpSessionRevoked  = "SESSION_REVOKED"          // reason, source, close_code
	OpRootSet         = "SESSION_ALLOWED_ROOT_SET" // previous_allowed_root, allowed_root, fingerprint, revision
	OpIdleDetach      = "IDLE_SESSION_DETACH"      // idle_seconds
	OpDirectoryList   = "DIRECTORY_LIST"           // browse_id, path, entries_returned, truncated
	OpJailViolation   = "JAIL_VIOLATION"           // code, path, attempted_op
	OpPreflightFailed = "DAEMON_PREFLIGHT_FAILED"  // reason
	OpPairingStarted  = "PAIRING_STARTED"          //
	OpPaired          = "PAIRED"                   //
	OpFileReadStub    = "FILE_READ_STUB"           // path, hmac_sha256, size_bytes, mode
	OpForwardEnd      = "FORWARD_END"              // stream, target, address, reason, bytes_sent, bytes_received, duration_seconds
	OpStreamEnd       = "STREAM_END"               // stream, device, op, reason, bytes_sent
	OpTerminalEnd     = "TERMINAL_END"             // terminal, reason, bytes_written, bytes_typed
	OpGrantsChanged   = "GRANTS_CHANGED"           //
	OpRotated         = "AUDIT_ROTATED"            // previous_file, previous_seq, previous_hmac
	OpRecovered       = "AUDIT_RECOVERED"          // what a crash left was set aside: torn_bytes, saved_as
	OpGap             = "AUDIT_GAP"                // records that were on the disk are gone: see Verify
	OpPruned          = "AUDIT_PRUNED"             // an old file was removed to keep the bound: file, first_seq, last_seq, last_hmac
)

// PhaseIntent is the value of details.phase in the record that a mutating
// operation leaves before its effect. The outcome has a record of its own.
const PhaseIntent = "intent"

// Entry is one record as its author knows it; sequence number, time, machine and
// chain are added by the Log.
type Entry struct {
	SessionID string // empty: none
	RequestID string // empty: none
	Op        string
	Details   []Field // never contents, tokens, prompts, output or serial data
	Result    Result
}

// Result is how the operation ended. The zero value says failed without a code.
type Result struct {
	OK        bool
	ExitCode  *int          // EXECUTE_COMMAND only
	Duration  time.Duration // recorded in whole milliseconds
	ErrorCode wire.Code     // empty: none
}

// ResultOf is the result for err after d: ok if it is nil, else its wire code.
func ResultOf(err error, d time.Duration) Result {
	return Result{OK: err == nil, Duration: d, ErrorCode: wire.CodeOf(err)}
}

// Field is one member of a record's details. Make it with String, Int, ….
type Field struct {
	Key  string
	kind fieldKind
	text string
	num  int64
	real float64
	list []string
	sub  []Field
}

type fieldKind uint8

const (
	nullField fieldKind = iota
	stringField
	intField
	floatField
	boolField
	listField
	objectField
)

// String is a string. Bytes that are not UTF-8 are recorded as \xNN, and what
// is longer than 32 KiB is cut and ends with its full length and SHA-256.
func String(key, value string) Field { return Field{Key: key, kind: stringField, text: value} }

// Int is an integer.
func Int[T ~int | ~int64 | ~int32 | ~uint32](key string, value T) Field {
	return Field{Key: key, kind: intField, num: int64(value)}
}

// Float is a number; NaN and infinities are recorded as null.
func Float(key string, value float64) Field { return Field{Key: key, kind: floatField, real: value} }

// Bool is true or false.
func Bool(key string, value bool) Field {
	f := Field{Key: key, kind: boolField}
	if value {
		f.num = 1
	}
	return f
}

// Null is null.
func Null(key string) Field { return Field{Key: key} }

// Strings is a list of strings; nil is an empty list.
func Strings(key string, values []string) Field {
	return Field{Key: key, kind: listField, list: values}
}

// Object is an object of its own.
func Object(key string, fields ...Field) Field {
	return Field{Key: key, kind: objectField, sub: fields}
}

// StringOrNull is the string that value points to, or null.
func StringOrNull(key string, value *string) Field {
	if value == nil {
		return Null(key)
	}
	return String(key, *value)
}

// IntOrNull is the integer that value points to, or null.
func IntOrNull[T ~int | ~int64 | ~int32 | ~uint32](key string, value *T) Field {
	if value == nil {
		return Null(key)
	}
	return Int(key, *value)
}
