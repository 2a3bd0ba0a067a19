package lp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

const (
	// block is what usblp sends with one URB (USBLP_BUF_SIZE).
	block = 8192
	// maxID is the longest device id that usblp keeps (USBLP_DEVICE_ID_SIZE).
	maxID = 1024

	lpGetStatus = 0x060b // LPGETSTATUS of lp.h; usblp writes an int
	// getDeviceID is LPIOC_GET_DEVICE_ID(maxID): _IOC(_IOC_READ, 'P', 1, maxID).
	getDeviceID = 2<<30 | maxID<<16 | 'P'<<8 | 1
)

// Port is an open port.
type Port struct {
	f    *os.File
	node string
}

// Open opens a port. It is HARDWARE_BUSY if another program has it, DEVICE_GONE
// if it isn't there, HARDWARE_OPEN_FAILED with details.os_error otherwise.
func Open(node string) (*Port, error) {
	f, err := os.OpenFile(node, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, wire.Errorf(wire.HardwareBusy, "another program has %s open", node).
			With("consumer", "another program").With("hint", "stop what uses the printer, such as cupsd")
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO), errors.Is(err, os.ErrNotExist):
		return nil, gone(node)
	case err != nil:
		return nil, wire.Errorf(wire.HardwareOpenFailed, "%s can't be opened", node).With("os_error", osError(err))
	}
	return &Port{f: f, node: node}, nil
}

func gone(node string) error { return wire.Errorf(wire.DeviceGone, "%s was unplugged", node) }

func osError(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return wire.Clean(err.Error(), 200)
}

// Close closes the port; what was handed over and not sent yet is dropped.
func (p *Port) Close() error {
	if err := p.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("closing %s: %w", p.node, err)
	}
	return nil
}

// ioctl runs one request; the kernel writes at most what the request's type
// says to arg.
func (p *Port) ioctl(request uintptr, arg unsafe.Pointer) error {
	conn, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = conn.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

// fail makes an error of what an ioctl answers.
func (p *Port) fail(what string, err error) error {
	switch {
	case errors.Is(err, unix.ENODEV):
		return gone(p.node)
	case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPIPE):
		return wire.Errorf(wire.FeatureNotSupported, "%s doesn't tell its %s", p.node, what).With("feature", what)
	}
	return wire.Errorf(wire.HardwareTransferFailed, "%s doesn't answer with its %s", p.node, what).With("os_error", osError(err))
}

// Status asks for the port's status. The kernel waits at most 5 s for it.
func (p *Port) Status() (Status, error) {
	var bits int32
	if err := p.ioctl(lpGetStatus, unsafe.Pointer(&bits)); err != nil {
		return Status{}, p.fail("status", err)
	}
	return decodeStatus(byte(bits)), nil
}

// DeviceID asks for the IEEE 1284 device id.
func (p *Port) DeviceID() (map[string]string, error) {
	buf := make([]byte, maxID)
	if err := p.ioctl(getDeviceID, unsafe.Pointer(&buf[0])); err != nil {
		return nil, p.fail("device id", err)
	}
	return ParseID(rawID(buf)), nil
}

// Write sends data and waits until the printer has taken it, for at most the
// timeout. n is how many bytes it certainly has: usblp hands over block by
// block, and of the one that was under way when the time was up nobody can tell.
func (p *Port) Write(ctx context.Context, data []byte, timeout time.Duration) (n int, err error) {
	if err := p.f.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return 0, fmt.Errorf("setting a deadline on %s: %w", p.node, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	for at := 0; at < len(data); {
		end := min(len(data), at+block)
		// A write waits for the block before to be taken.
		if _, err := p.f.Write(data[at:end]); err != nil {
			return n, p.writeError(ctx, n, err)
		}
		n, at = at, end
	}
	if err := p.drain(); err != nil {
		return n, p.writeError(ctx, n, err)
	}
	return len(data), nil
}

// drain waits for the last block. usblp takes an empty write when all before it
// is done (usblp.c, the comment above usblp_wwait).
func (p *Port) drain() error {
	conn, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var last error
	err = conn.Write(func(fd uintptr) bool {
		_, last = unix.Write(int(fd), nil)
		return !errors.Is(last, unix.EAGAIN)
	})
	return errors.Join(err, last)
}

func (p *Port) writeError(ctx context.Context, n int, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, unix.ENODEV), errors.Is(err, os.ErrClosed):
		return wire.Errorf(wire.DeviceGone, "%s was unplugged", p.node).With("bytes_partial", n)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return wire.Errorf(wire.HardwareTransferFailed, "the printer at %s took %d bytes and no more in time", p.node, n).
			With("bytes_partial", n).With("reason", "timeout").With("hint", "see PRINTER_STATUS: it may be out of paper, offline or busy")
	}
	return wire.Errorf(wire.HardwareTransferFailed, "writing to %s failed after %d bytes", p.node, n).
		With("bytes_partial", n).With("os_error", osError(err))
}
