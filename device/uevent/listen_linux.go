package uevent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernelGroup is the multicast group of the kernel's own events; group 2 has
// what udev makes of them, in a format of its own.
const kernelGroup = 1

// receiveBuffer holds the burst of a hub full of devices.
const receiveBuffer = 1 << 20

// Listener receives events. One goroutine may call Next; Close may be called
// from any, and ends a Next that waits.
type Listener struct {
	f   *os.File
	buf []byte
}

// Listen starts to listen: events that happen from now on are seen.
func Listen() (*Listener, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("netlink socket for device events: %w", err)
	}
	// A bigger buffer is a wish: without it a burst ends in ErrLost.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("joining the kernel's device events: %w", err)
	}
	return &Listener{f: os.NewFile(uintptr(fd), "uevents"), buf: make([]byte, MaxMessage)}, nil
}

// Next waits for the next event of the kernel; what other processes send to
// the socket is ignored. It fails with ctx's error, ErrLost or ErrClosed.
func (l *Listener) Next(ctx context.Context) (Event, error) {
	if err := ctx.Err(); err != nil {
		return Event{}, context.Cause(ctx)
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = l.f.SetReadDeadline(time.Unix(1, 0)) // fails on a closed listener alone
	})
	defer func() {
		if !stop() {
			<-fired
			_ = l.f.SetReadDeadline(time.Time{})
		}
	}()
	for {
		n, from, err := l.receive()
		switch {
		case ctx.Err() != nil:
			return Event{}, context.Cause(ctx)
		case errors.Is(err, ErrClosed):
			return Event{}, err
		case errors.Is(err, unix.ENOBUFS):
			return Event{}, ErrLost
		case err != nil:
			return Event{}, fmt.Errorf("reading a device event: %w", err)
		case !fromKernel(from):
			continue
		}
		e, err := Parse(l.buf[:n])
		if err != nil {
			continue // nothing that the kernel sends; nothing to do about it
		}
		return e, nil
	}
}

func (l *Listener) receive() (n int, from unix.Sockaddr, err error) {
	raw, err := l.f.SyscallConn()
	if err != nil {
		return 0, nil, ErrClosed
	}
	var opErr error
	err = raw.Read(func(fd uintptr) bool {
		n, from, opErr = unix.Recvfrom(int(fd), l.buf, 0)
		return !errors.Is(opErr, unix.EAGAIN) && !errors.Is(opErr, unix.EINTR)
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // set by Next's context alone
		return 0, nil, err
	case err != nil:
		return 0, nil, ErrClosed
	}
	return n, from, opErr
}

func fromKernel(from unix.Sockaddr) bool {
	nl, ok := from.(*unix.SockaddrNetlink)
	return ok && nl.Pid == 0
}

// Close ends the listener. It may be repeated.
func (l *Listener) Close() error {
	if err := l.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
