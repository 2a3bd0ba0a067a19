package usbfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// Transfer is a transfer under way.
type Transfer struct {
	file   *File
	urb    *urb
	pinner runtime.Pinner
	done   chan struct{}
	n      int   // valid once done is closed
	err    error // valid once done is closed
}

// Submit begins a transfer of data to or from an endpoint. data belongs to the
// kernel until Wait has answered. Of a control transfer data begins with the
// eight bytes of setup. zero asks for a packet of no bytes after data that fills
// its last packet.
func (f *File) Submit(kind Kind, endpoint byte, data []byte, zero bool) (*Transfer, error) {
	u := &urb{endpoint: endpoint, length: int32(len(data))}
	switch kind {
	case Control:
		u.kind = urbControl
	case Bulk:
		u.kind = urbBulk
	case Interrupt:
		u.kind = urbInterrupt
	default:
		return nil, fmt.Errorf("%s transfers on endpoint %#02x: %w", kind, endpoint, syscall.EOPNOTSUPP)
	}
	if zero {
		u.flags |= urbZeroPacket
	}
	t := &Transfer{file: f, urb: u, done: make(chan struct{})}
	t.pinner.Pin(u)
	if len(data) > 0 {
		u.buffer = unsafe.Pointer(&data[0])
		t.pinner.Pin(u.buffer)
	}
	if err := f.submit(t); err != nil {
		t.pinner.Unpin()
		return nil, fmt.Errorf("beginning a transfer on endpoint %#02x of %s: %w", endpoint, f.node, err)
	}
	return t, nil
}

// submit holds mu, so that the reaper finds t however soon it ends.
func (f *File) submit(t *Transfer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	if _, err := f.ioctl(reqSubmit, unsafe.Pointer(t.urb)); err != nil {
		return err
	}
	f.pending[uintptr(unsafe.Pointer(t.urb))] = t
	return nil
}

// Wait waits for the end and answers how many bytes went over (without a
// control transfer's setup). If ctx is done first, the transfer is cancelled;
// then the count is of what went over before, and the error ctx's cause. Errors
// are the kernel's: EPIPE for a stall, EOVERFLOW for more data than was asked
// for, ENODEV or ESHUTDOWN for a device that is gone, EPROTO, EILSEQ and ETIME
// for trouble on the bus, ENOENT for one that Cancel or Release has ended.
func (t *Transfer) Wait(ctx context.Context) (int, error) {
	stop := context.AfterFunc(ctx, t.Cancel)
	defer stop()
	t.end()
	if errors.Is(t.err, syscall.ENOENT) && ctx.Err() != nil {
		return t.n, context.Cause(ctx)
	}
	return t.n, t.err
}

// end waits until the transfer has ended. Of those who wait one takes what has
// ended from the kernel, for all: mostly it is its own, and no other goroutine
// has to be woken for it.
func (t *Transfer) end() {
	for {
		select {
		case <-t.done:
			return
		case <-t.file.turn:
			t.file.reap(t)
			t.file.turn <- struct{}{}
		}
	}
}

// Cancel ends the transfer early; Wait still has to be called. One that has
// ended is left as it is.
func (t *Transfer) Cancel() {
	select {
	case <-t.done:
		return
	default:
	}
	// EINVAL: it has ended meanwhile. Nothing else can fail.
	_, _ = t.file.ioctl(reqDiscard, unsafe.Pointer(t.urb))
}

// reap takes ended transfers from the kernel until t has ended. It is called
// with the turn.
func (f *File) reap(t *Transfer) {
	var lost error
	err := f.raw.Write(func(fd uintptr) bool { // an ended transfer makes the node writable
		for {
			select {
			case <-t.done:
				return true
			default:
			}
			var u uintptr
			_, err := ioctl(fd, reqReapNoDelay, unsafe.Pointer(&u))
			switch {
			case err == nil:
				f.ended(u)
			case errors.Is(err, syscall.EAGAIN):
				return false
			default: // ENODEV, once all that had been under way is told
				lost = err
				return true
			}
		}
	})
	if err != nil {
		lost = err
	}
	if lost != nil {
		f.lost(lost)
	}
}

// ended is told of the end of the transfer with this URB.
func (f *File) ended(u uintptr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.pending[u]
	if t == nil {
		return
	}
	t.n = max(0, int(t.urb.actual))
	if t.urb.status != 0 {
		t.err = syscall.Errno(-t.urb.status)
		if t.err == syscall.ECONNRESET { // unlinked and killed are the same to us
			t.err = syscall.ENOENT
		}
	}
	f.finish(u, t)
}

// lost is told that the kernel will report nothing more.
func (f *File) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for u, t := range f.pending {
		t.err = err
		f.finish(u, t)
	}
}

// finish is called with mu.
func (f *File) finish(u uintptr, t *Transfer) {
	delete(f.pending, u)
	t.pinner.Unpin()
	close(t.done)
}
