package wire

import (
	"errors"
	"fmt"
	"maps"
)

// Code is an error code as it stands in ERROR.payload.code. A Code is itself an
// error, as syscall.Errno is, so a driver returns it wrapped with what and
// which, and errors.Is(err, wire.HardwareBusy) holds there, in the service, in
// the command and across the relay.
type Code string

func (c Code) Error() string { return string(c) }

// The codes of protocol 1.1.
const (
	PathOutsideAllowedRoot Code = "PATH_OUTSIDE_ALLOWED_ROOT"
	PathReservedName       Code = "PATH_RESERVED_NAME"
	PathInvalidChars       Code = "PATH_INVALID_CHARS"
	PathNotFound           Code = "PATH_NOT_FOUND"
	PathNotEmpty           Code = "PATH_NOT_EMPTY"
	PathExists             Code = "PATH_EXISTS"
	CommandTimeout         Code = "COMMAND_TIMEOUT" // audit and the command only; the wire says timed_out
	ShellNotAvailable      Code = "SHELL_NOT_AVAILABLE"
	UnsupportedArch        Code = "UNSUPPORTED_ARCH"
	CapabilityNotGranted   Code = "CAPABILITY_NOT_GRANTED"
	AuthFailed             Code = "AUTH_FAILED"
	ShimOverloaded         Code = "SHIM_OVERLOADED"
	InternalError          Code = "INTERNAL_ERROR"
	FileTooLarge           Code = "FILE_TOO_LARGE"
	DependencyMissing      Code = "DEPENDENCY_MISSING"

	DirectoryReferenceInvalid Code = "DIRECTORY_REFERENCE_INVALID"
	DirectoryUnavailable      Code = "DIRECTORY_UNAVAILABLE"
	RootGrantInvalid          Code = "ROOT_GRANT_INVALID"
	SessionNotAttached        Code = "SESSION_NOT_ATTACHED"
	SessionAlreadyActive      Code = "SESSION_ALREADY_ACTIVE"
	SessionRevisionMismatch   Code = "SESSION_REVISION_MISMATCH"

	WindowStale         Code = "WINDOW_STALE"
	PermissionPending   Code = "PERMISSION_PENDING"
	FeatureNotSupported Code = "FEATURE_NOT_SUPPORTED"
	ClipboardConcealed  Code = "CLIPBOARD_CONCEALED"
	InputOutOfBounds    Code = "INPUT_OUT_OF_BOUNDS"

	ModelNotAvailable Code = "MODEL_NOT_AVAILABLE"
	LocalLLMBusy      Code = "LOCAL_LLM_BUSY"
	LocalLLMFailed    Code = "LOCAL_LLM_FAILED"
)

// The codes of the extensions.
const (
	HardwareNotFound       Code = "HARDWARE_NOT_FOUND"
	HardwareAmbiguous      Code = "HARDWARE_AMBIGUOUS" // an alias fits several devices; details.candidates
	HardwareBusy           Code = "HARDWARE_BUSY"      // another session holds the device; details.holder
	HardwareOpenFailed     Code = "HARDWARE_OPEN_FAILED"
	HardwareTransferFailed Code = "HARDWARE_TRANSFER_FAILED"
	HardwareNotGranted     Code = "HARDWARE_NOT_GRANTED" // a ceiling forbids the device, the line or the operation; details.ceiling
	DeviceGone             Code = "DEVICE_GONE"          // unplugged during the operation
	InvalidArgument        Code = "INVALID_ARGUMENT"
	Cancelled              Code = "CANCELLED"    // by who asked for it; what was done by then stays done
	SerialStale            Code = "SERIAL_STALE" // of the handle family: no such handle, or what it stood for has ended
	USBStale               Code = "USB_STALE"
	GPIOStale              Code = "GPIO_STALE"
	StreamNotFound         Code = "STREAM_NOT_FOUND" // no such stream, or not this caller's

	TargetNotAllowed  Code = "TARGET_NOT_ALLOWED" // the configuration does not name what is to be connected to
	TargetUnreachable Code = "TARGET_UNREACHABLE" // or nothing answers there
	TerminalNotFound  Code = "TERMINAL_NOT_FOUND" // no such terminal, or not this caller's

	TransferNotFound Code = "TRANSFER_NOT_FOUND" // no such transfer is open, or not this session's: open it again
	TransferOffset   Code = "TRANSFER_OFFSET"    // not what comes next; details.offset does
	TransferMismatch Code = "TRANSFER_MISMATCH"  // what came isn't what was sent, and was thrown away
	SourceChanged    Code = "SOURCE_CHANGED"     // the file changed while it was copied

	PrivacyModeBlocked Code = "PRIVACY_MODE_BLOCKED" // it would let out what the owner marked private, or could
	StubStale          Code = "STUB_STALE"           // no such stub in this session, or the file is no longer what it was
	AnswerNotReleased  Code = "ANSWER_NOT_RELEASED"  // the owner didn't let the answer of a turn go

	DiskFull       Code = "DISK_FULL"         // ENOSPC, EDQUOT: nothing was changed
	ReadOnlyDisk   Code = "READ_ONLY_DISK"    // EROFS
	PathNotAllowed Code = "PERMISSION_DENIED" // EACCES, EPERM of the operating system

	MachineNotAttached Code = "MACHINE_NOT_ATTACHED"
	MachineUnreachable Code = "MACHINE_UNREACHABLE"
	MachineAmbiguous   Code = "MACHINE_AMBIGUOUS"
	SessionNotFound    Code = "SESSION_NOT_FOUND"
	OpUnconfirmed      Code = "OP_UNCONFIRMED"  // made by the relay: the operation may have happened
	RequestTimeout     Code = "REQUEST_TIMEOUT" // made by the relay: no answer, and the operation is safe to repeat
)

// Error is a failure as it crosses the wire. Its Unwrap is the Code, so callers
// never compare strings.
type Error struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Fatal   bool           `json:"fatal"`
	Details map[string]any `json:"details,omitempty"`
}

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Code }

// Errorf makes an Error whose message is for a person at the far end: it names
// what failed and which, and never carries content or secrets.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With adds one detail and returns e. Keys are those that the platform's error
// translator looks for (path, op, capability, max_concurrent, …) or our own.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = make(map[string]any)
	}
	e.Details[key] = value
	return e
}

// Texts is a detail that is a list of strings: as it was given, or as JSON brings it.
func Texts(detail any) []string {
	switch list := detail.(type) {
	case []string:
		return list
	case []any:
		var out []string
		for _, x := range list {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// AsError turns any error into what is put on the wire: a copy of an *Error in
// its chain, a Code in its chain with the error's text, and anything else as
// INTERNAL_ERROR. The answer is the caller's to add details to: the error itself
// may be the cause of many contexts' end.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		own := *e
		own.Details = maps.Clone(e.Details)
		return &own
	}
	if c, ok := errors.AsType[Code](err); ok {
		return &Error{Code: c, Message: err.Error()}
	}
	return &Error{Code: InternalError, Message: err.Error()}
}

// CodeOf is the code of err: empty for nil, INTERNAL_ERROR if none is in the chain.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if c, ok := errors.AsType[Code](err); ok {
		return c
	}
	return InternalError
}
