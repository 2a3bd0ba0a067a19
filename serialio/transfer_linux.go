package serialio

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"farhand/serialio/termios"
	"farhand/wire"
)

// Write writes all of data, or says how much of it the kernel took: then the
// error is HARDWARE_TRANSFER_FAILED with details.bytes_partial, DEVICE_GONE, or
// ctx's.
func (p *Port) Write(ctx context.Context, data []byte, timeout time.Duration) (int, error) {
	if err := p.turn(ctx, p.writing); err != nil {
		return 0, err
	}
	defer func() { p.writing <- struct{}{} }()
	n, err := p.writeNow(data)
	if err == nil && n < len(data) {
		release := p.bound(ctx, p.f.SetWriteDeadline, timeout)
		defer release()
		var m int
		m, err = p.f.Write(data[n:])
		n += m
	}
	if err == nil {
		return n, nil
	}
	if err := p.ended(ctx); err != nil {
		return n, err
	}
	if timedOut(err) {
		return n, wire.Errorf(wire.HardwareTransferFailed, "%s took %d of %d bytes within %v: flow control, or nobody reads", p.node, n, len(data), timeout).
			With("reason", "timeout").With("bytes_partial", n).With("timeout_seconds", timeout.Seconds())
	}
	failure := p.failed("writing", err)
	if e, ok := errors.AsType[*wire.Error](failure); ok {
		e.With("bytes_partial", n)
	}
	return n, failure
}

// writeNow is how much the kernel takes at once, without a wait that has to be
// bounded.
func (p *Port) writeNow(data []byte) (n int, err error) {
	if len(data) == 0 {
		return 0, nil
	}
	var opErr error
	err = p.control(func(fd int) error {
		n, opErr = unix.Write(fd, data)
		return nil
	})
	switch {
	case err != nil:
		return 0, os.ErrClosed
	case errors.Is(opErr, unix.EAGAIN), errors.Is(opErr, unix.EINTR):
		return 0, nil
	}
	return max(0, n), opErr
}

// Drain waits until everything written has left the port.
func (p *Port) Drain(ctx context.Context, timeout time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := p.waitSent(bounded)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return wire.Errorf(wire.HardwareTransferFailed, "%s has not sent everything within %v: flow control, or nobody reads", p.node, timeout).
			With("reason", "timeout").With("timeout_seconds", timeout.Seconds())
	}
	return err
}

// The biggest transmit buffers that a driver doesn't count, in bits on the wire:
// of a UART that can't say whether it is empty, and of a bridge (FT2232H) whose
// "no" may be a lie, as that of some clones and emulators always is.
const (
	uartFIFO   = 64 * 10
	bridgeFIFO = 4096 * 10
)

// waitSent asks again and again: the kernel's own wait can't be cancelled.
func (p *Port) waitSent(ctx context.Context) error {
	again := time.NewTimer(0)
	defer again.Stop()
	var emptied time.Time
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var queued int
		var empty bool
		var emptyErr error
		err := p.control(func(fd int) error {
			var err error
			if queued, err = termios.OutQueue(fd); err != nil {
				return p.failed("draining", err)
			}
			empty, emptyErr = termios.TransmitterEmpty(fd)
			return nil
		})
		bits := bridgeFIFO
		if emptyErr != nil {
			bits = uartFIFO
		}
		switch now := time.Now(); {
		case err != nil:
			return err
		case queued > 0:
			emptied = time.Time{}
		case p.pty, emptyErr == nil && empty:
			return nil
		case emptied.IsZero():
			emptied = now
		case now.Sub(emptied) >= time.Second*time.Duration(bits)/time.Duration(max(1, p.Baud())):
			return nil
		}
		again.Reset(time.Millisecond)
	}
}

// bound gives one direction a deadline, which comes at once when ctx is done
// or the port is closed. release ends it and must be called.
func (p *Port) bound(ctx context.Context, set func(time.Time) error, timeout time.Duration) (release func()) {
	past := time.Unix(1, 0)
	// Setting a deadline fails on a closed file alone, and then so does the
	// operation.
	_ = set(time.Now().Add(timeout))
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = set(past)
	})
	select {
	case <-p.done: // Close's own deadline may have been overwritten
		_ = set(past)
	default:
	}
	return func() {
		if !stop() {
			<-fired
		}
	}
}

// ended says why an operation that was interrupted has to end: nil if only its
// own time is up.
func (p *Port) ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-p.done:
		return p.closedError()
	default:
		return nil
	}
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
