package bus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"farhand/bus/i2cdev"
	"farhand/wire"
)

// The reasons of a transfer that failed: details.reason.
const (
	ReasonNack        = "nack"        // nothing acknowledged the address, or the chip a byte
	ReasonTimeout     = "timeout"     // the bus didn't come free: a stretched clock, a line held low
	ReasonArbitration = "arbitration" // another master won
	ReasonChecksum    = "checksum"    // the packet error code didn't fit
	ReasonBus         = "bus"         // the controller reports no more than that it failed
)

func invalid(field, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", field, fmt.Sprintf(format, args...)).With("field", field)
}

func unsupported(feature, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.FeatureNotSupported, format, args...).With("feature", feature)
}

// errnoText is what the system says, without the path that os puts around it.
func errnoText(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return err.Error()
}

// errnoName is the symbol, EREMOTEIO, or the text where there is none.
func errnoName(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		if e == syscall.EOPNOTSUPP { // on Linux the same as ENOTSUP, which no documentation of buses speaks of
			return "EOPNOTSUPP"
		}
		if name := unix.ErrnoName(e); name != "" {
			return name
		}
	}
	return errnoText(err)
}

func openError(node string, err error) error {
	if wire.CodeOf(err) != wire.InternalError {
		return err
	}
	for _, gone := range []error{fs.ErrNotExist, syscall.ENODEV, syscall.ENXIO} {
		if errors.Is(err, gone) {
			return wire.Errorf(wire.DeviceGone, "%s isn't there", node).With("os_error", errnoName(err))
		}
	}
	if errors.Is(err, syscall.EBUSY) {
		return wire.Errorf(wire.HardwareBusy, "%s is in use by another program", node).With("os_error", errnoName(err))
	}
	e := wire.Errorf(wire.HardwareOpenFailed, "opening %s: %s", node, errnoText(err)).With("os_error", errnoName(err))
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.With("hint", "the daemon's user must be in the group that the node belongs to, i2c or spi")
	case errors.Is(err, syscall.ENOTTY):
		e.With("hint", "this is no node of i2c-dev or spidev")
	}
	return e
}

// gone says whether a failure is that the device was taken away: spidev's errno
// for that, or that the node went with it. Adapters answer a missing
// acknowledgement with ENXIO or ENODEV, so those don't tell.
func gone(node string, err error) bool {
	if errors.Is(err, syscall.ESHUTDOWN) {
		return true
	}
	_, statErr := os.Stat(node)
	return errors.Is(statErr, fs.ErrNotExist)
}

// i2cError says what an adapter's errno means, after the kernel's
// Documentation/i2c/fault-codes.rst, and what the adapters of boards make of it.
func i2cError(node, what string, err error) error {
	if isOurs(err) {
		return err
	}
	if gone(node, err) {
		return wire.Errorf(wire.DeviceGone, "%s: the bus is gone", what).With("os_error", errnoName(err))
	}
	fail := func(reason, text, hint string) error {
		return wire.Errorf(wire.HardwareTransferFailed, "%s: %s", what, text).
			With("reason", reason).With("os_error", errnoName(err)).With("hint", hint)
	}
	const slower = "a chip that stretches the clock fails on Broadcom controllers: lower the bus speed (dtparam=i2c_arm_baudrate=10000) " +
		"or use a bus of the i2c-gpio overlay"
	switch e, _ := errors.AsType[syscall.Errno](err); e {
	case syscall.ENXIO, syscall.ENODEV:
		return fail(ReasonNack, "nothing acknowledged", "check the address (I2C_SCAN), power, ground and pull-ups; nothing was sent again")
	case i2cdev.EREMOTEIO:
		return fail(ReasonNack, "not acknowledged", "check the address (I2C_SCAN) and the wiring, and whether the chip was busy; "+slower+
			"; nothing was sent again")
	case syscall.ETIMEDOUT, syscall.ETIME:
		return fail(ReasonTimeout, "the bus timed out", "SDA or SCL may be held low; "+slower+"; nothing was sent again")
	case syscall.EAGAIN:
		return fail(ReasonArbitration, "another master had the bus", "nothing was sent again: repeat it if that does no harm")
	case syscall.EBUSY:
		return fail(ReasonTimeout, "the bus stayed busy", "SDA or SCL is held low: a chip that was interrupted, or missing pull-ups")
	case syscall.EBADMSG:
		return fail(ReasonChecksum, "the checksum (PEC) is wrong", "the chip may not use checksums, or the line is noisy")
	case syscall.EPROTO:
		return fail(ReasonBus, "the chip's answer breaks the SMBus protocol", "a block's count must be 1 to 32: the chip may want another protocol")
	case syscall.EOPNOTSUPP:
		return unsupported("i2c", "%s: the adapter can't do that transfer", what).With("os_error", errnoName(err)).
			With("hint", "many adapters on USB limit the length of a message or allow no more than a write and a read: shorten it, or use I2C_SMBUS")
	case syscall.EINVAL:
		return invalid("segments", "are refused by the adapter (%s)", what).With("os_error", errnoName(err))
	}
	return fail(ReasonBus, errnoText(err), "check the wiring; "+slower+"; nothing was sent again")
}

// isOurs says whether an error speaks for itself: it has a code, or it isn't
// the kernel's but a context's.
func isOurs(err error) bool {
	if wire.CodeOf(err) != wire.InternalError {
		return true
	}
	_, errno := errors.AsType[syscall.Errno](err)
	return !errno && !errors.Is(err, os.ErrClosed)
}

// spiError says what a controller's errno means. partial is how many bytes went
// out before, in earlier pieces.
func spiError(node, what string, partial int, err error) error {
	if isOurs(err) {
		return err
	}
	if gone(node, err) {
		return wire.Errorf(wire.DeviceGone, "%s: the bus is gone", what).With("os_error", errnoName(err))
	}
	e := wire.Errorf(wire.HardwareTransferFailed, "%s: %s", what, errnoText(err)).
		With("os_error", errnoName(err)).With("bytes_partial", partial)
	switch {
	case errors.Is(err, syscall.EINVAL):
		return e.With("hint", "the controller may not do words of this many bits, or this speed")
	case errors.Is(err, syscall.ETIMEDOUT):
		return e.With("reason", ReasonTimeout).With("hint", "the controller didn't finish: nothing was sent again")
	}
	return e.With("reason", ReasonBus).With("hint", "nothing was sent again")
}
