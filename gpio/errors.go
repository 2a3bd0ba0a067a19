package gpio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"farhand/wire"
)

// failure turns an error of a Chip or a Request into what the caller is told.
// code is for what has none of its own.
func failure(code wire.Code, what string, err error) error {
	var e *wire.Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, syscall.ENODEV), errors.Is(err, fs.ErrNotExist):
		return wire.Errorf(wire.DeviceGone, "%s: the chip has gone", what).With("os_error", errnoName(err))
	case errors.Is(err, syscall.ENXIO):
		return wire.Errorf(wire.FeatureNotSupported, "%s: the controller has no interrupt for the line, so it can't detect edges", what).
			With("os_error", "ENXIO").With("feature", "edges").With("hint", "poll_seconds watches it without")
	case errors.Is(err, fs.ErrPermission):
		return wire.Errorf(code, "%s: permission denied", what).With("os_error", errnoName(err)).
			With("hint", "the daemon's user must be in the group of the chip's node (gpio)")
	case errors.Is(err, os.ErrClosed):
		return wire.Errorf(wire.HardwareTransferFailed, "%s: the line was given back meanwhile", what).With("reason", "closed")
	}
	return wire.Errorf(code, "%s: %v", what, errnoText(err)).With("os_error", errnoName(err))
}

// errnoText leaves out what the wrapping says, which names nodes and numbers
// that the caller hasn't asked about.
func errnoText(err error) string {
	var n syscall.Errno
	if errors.As(err, &n) {
		return n.Error()
	}
	return err.Error()
}

// errnoName names the errors that GPIO calls have; the number stands for others.
func errnoName(err error) string {
	var n syscall.Errno
	if !errors.As(err, &n) {
		return ""
	}
	switch n {
	case syscall.EBUSY:
		return "EBUSY"
	case syscall.EINVAL:
		return "EINVAL"
	case syscall.EIO:
		return "EIO"
	case syscall.ENODEV:
		return "ENODEV"
	case syscall.ENOENT:
		return "ENOENT"
	case syscall.ENXIO:
		return "ENXIO"
	case syscall.EPERM:
		return "EPERM"
	case syscall.EACCES:
		return "EACCES"
	case syscall.ENOTTY:
		return "ENOTTY"
	case syscall.ETIMEDOUT:
		return "ETIMEDOUT"
	}
	return fmt.Sprintf("errno %d", int(n))
}

func invalid(field, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", field, fmt.Sprintf(format, args...)).With("field", field)
}
