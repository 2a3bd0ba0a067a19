package usb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"farhand/wire"
)

// unplugging is how long a device that has just been pulled may look like one
// with bad contacts: the controller reports errors before the hub notices.
const unplugging = 300 * time.Millisecond

// noNode is what to do where there are no nodes at all.
const noNode = "is /dev/bus/usb there? Containers and machines without USB have none"

// openFailed says in the protocol's words why a device could not be opened.
func openFailed(id string, err error) error {
	var errno syscall.Errno
	switch errors.As(err, &errno); {
	case errors.Is(err, wire.FeatureNotSupported):
		return err
	case errors.Is(err, fs.ErrNotExist), errno == syscall.ENODEV, errno == syscall.ENXIO:
		return wire.Errorf(wire.DeviceGone, "%s: %v", id, err).With("os_error", name(errno)).With("hint", noNode)
	case errors.Is(err, fs.ErrPermission):
		return wire.Errorf(wire.HardwareOpenFailed, "%s: %v", id, err).With("os_error", name(errno)).
			With("hint", "the daemon's user needs write access to the node: a udev rule for its group")
	case errno == syscall.ENOTTY, errno == syscall.EINVAL:
		return wire.Errorf(wire.HardwareOpenFailed, "%s: no USB device node: %v", id, err).With("os_error", name(errno))
	}
	return wire.Errorf(wire.HardwareOpenFailed, "%s: %v", id, err).With("os_error", name(errno))
}

// name is a kernel's code by name, where it is one that is to be expected here.
func name(e syscall.Errno) string {
	switch e {
	case 0:
		return ""
	case syscall.ENOENT:
		return "ENOENT"
	case syscall.ENODEV:
		return "ENODEV"
	case syscall.ENXIO:
		return "ENXIO"
	case syscall.ESHUTDOWN:
		return "ESHUTDOWN"
	case syscall.EACCES:
		return "EACCES"
	case syscall.EPERM:
		return "EPERM"
	case syscall.EBUSY:
		return "EBUSY"
	case syscall.EPIPE:
		return "EPIPE"
	case syscall.EPROTO:
		return "EPROTO"
	case syscall.EILSEQ:
		return "EILSEQ"
	case syscall.ETIME:
		return "ETIME"
	case syscall.EOVERFLOW:
		return "EOVERFLOW"
	case syscall.ENOMEM:
		return "ENOMEM"
	case syscall.EINVAL:
		return "EINVAL"
	case syscall.ENOTTY:
		return "ENOTTY"
	case syscall.EIO:
		return "EIO"
	}
	return fmt.Sprintf("errno %d", int(e))
}

// failed says in the protocol's words why something that a handle was asked for
// didn't work. n is how many bytes went over.
func failed(h Handle, err error, n int) error {
	var already *wire.Error
	if errors.As(err, &already) {
		return err
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		if errors.Is(err, os.ErrClosed) {
			return wire.Errorf(wire.HardwareTransferFailed, "the device was closed meanwhile").With("reason", "closed").With("bytes_partial", n)
		}
		return err // a context's cause
	}
	if gone(h, errno) {
		return wire.Errorf(wire.DeviceGone, "the device was unplugged: %v", err).With("os_error", name(errno)).With("bytes_partial", n)
	}
	e := wire.Errorf(wire.HardwareTransferFailed, "%v", err).With("os_error", name(errno)).With("bytes_partial", n)
	switch errno {
	case syscall.EPIPE:
		e.Message = "the device refuses: it has stalled the endpoint"
		return e.With("reason", "stall").With("hint", "the device doesn't know the request, or isn't in a state to serve it")
	case syscall.EOVERFLOW:
		e.Message = "the device sent more than was asked for"
		return e.With("reason", "overflow").With("hint", "ask for a larger size")
	case syscall.EPROTO, syscall.EILSEQ, syscall.ETIME:
		e.Message = fmt.Sprintf("the bus doesn't carry: %v", err)
		return e.With("reason", "bus").With("hint", "a bad cable or contact, too little power, or a device that has crashed; USB_RESET may help")
	case syscall.ENOMEM:
		return e.With("reason", "memory").With("hint", "transfer less at a time, or raise /sys/module/usbcore/parameters/usbfs_memory_mb")
	case syscall.ENOENT:
		return e.With("reason", "cancelled")
	case syscall.EBUSY:
		e.Code = wire.HardwareBusy
	}
	return e
}

// gone says whether it is the device's absence that made for this error.
func gone(h Handle, errno syscall.Errno) bool {
	switch errno {
	case syscall.ENODEV, syscall.ESHUTDOWN, syscall.ENXIO:
		return true
	case syscall.EPROTO, syscall.EILSEQ, syscall.ETIME, syscall.EPIPE, syscall.ENOENT, syscall.EIO:
	default:
		return false
	}
	if h.Gone() || errno == syscall.EPIPE || errno == syscall.ENOENT {
		return h.Gone()
	}
	again := time.NewTicker(unplugging / 10)
	defer again.Stop()
	for range 10 {
		if <-again.C; h.Gone() {
			return true
		}
	}
	return false
}

func invalid(field, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", field, fmt.Sprintf(format, args...)).With("field", field)
}
