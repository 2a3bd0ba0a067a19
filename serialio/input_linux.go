package serialio

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// input is what was received from a port. One goroutine of the port's fills
// the ring, whoever reads or not; so nobody holds up the port, and everybody
// sees every byte.
type input struct {
	ended chan struct{} // closed when nothing more is received

	mu     sync.Mutex
	ring   ring
	cursor int64         // where the next Read begins
	err    error         // why nothing more is received
	news   chan struct{} // closed at the next change; nil if nobody waits
}

// change is closed when the input has changed. Called with mu.
func (in *input) change() <-chan struct{} {
	if in.news == nil {
		in.news = make(chan struct{})
	}
	return in.news
}

// changed wakes everybody who waits. Called with mu.
func (in *input) changed() {
	if in.news != nil {
		close(in.news)
		in.news = nil
	}
}

// pull takes what the kernel has right now, at most one buffer of it, without
// waiting. It answers EAGAIN if there is nothing, io.EOF if the kernel says
// that there will be nothing.
func (in *input) pull(fd int) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return in.err
	}
	for {
		n, err := unix.Read(fd, in.ring.room())
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
		in.ring.add(n)
		in.changed()
		return nil
	}
}

// fail ends the input.
func (in *input) fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
	}
	in.changed()
}

// receive fills the ring until the port is closed, gone or shared.
func (p *Port) receive(raw syscall.RawConn) {
	defer close(p.in.ended)
	var failure error
	err := raw.Read(func(fd uintptr) bool {
		for {
			select {
			case <-p.done:
				failure = os.ErrClosed
				return true
			default:
			}
			err := p.in.pull(int(fd))
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			if err != nil {
				failure = err
				return true
			}
		}
	})
	select {
	case <-p.done:
		p.in.fail(p.closedError())
	default:
		if failure == nil {
			failure = err
		}
		p.in.fail(p.failed("reading", failure))
	}
}

// pull takes what the kernel has now, so that what came before a moment counts
// even if the receiving goroutine wasn't scheduled yet.
func (p *Port) pull() {
	// What goes wrong here the receiver sees, too, except that a read answers
	// nothing although there is something, which doesn't wake it.
	_ = p.control(func(fd int) error {
		err := p.in.pull(fd)
		if errors.Is(err, io.EOF) {
			p.in.fail(p.failed("reading", err))
		}
		return err
	})
}

// Failed says why the port receives nothing any more: DEVICE_GONE,
// HARDWARE_TRANSFER_FAILED with details.reason port_shared or closed, or nil.
func (p *Port) Failed() error {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return p.in.err
}

// Offsets are the first offset that the port still has and that of the next
// byte to come, both counted since it was opened.
func (p *Port) Offsets() (oldest, next int64) {
	p.pull()
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return p.in.ring.oldest(), p.in.ring.next
}

// Follow waits for bytes at or after an offset and puts them into b. It
// doesn't change what Read sees. If the port has lost what was there, the
// first n of it are lost and the bytes are those after them. The error is
// ctx's, or why nothing more will come; what came before it is answered first.
func (p *Port) Follow(ctx context.Context, offset int64, b []byte) (n int, lost int64, err error) {
	in := &p.in
	for {
		in.mu.Lock()
		lost = max(0, in.ring.oldest()-offset)
		if got := in.ring.read(b[:0], offset+lost, len(b)); len(got) > 0 {
			in.mu.Unlock()
			return len(got), lost, nil
		}
		if in.err != nil {
			defer in.mu.Unlock()
			return 0, lost, in.err
		}
		change := in.change()
		in.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
	}
}

// Read reads until a pattern came, enough came, or time is up, and keeps what
// came beyond for the next Read. A cancelled Read keeps everything, as far as
// the port's ring reaches.
func (p *Port) Read(ctx context.Context, o ReadOptions) (ReadResult, error) {
	if err := p.turn(ctx, p.reading); err != nil {
		return ReadResult{}, err
	}
	defer func() { p.reading <- struct{}{} }()
	p.pull()
	in := &p.in
	in.mu.Lock()
	r := ReadResult{Offset: max(in.cursor, in.ring.oldest())}
	r.Lost = r.Offset - in.cursor
	in.mu.Unlock()
	n, err := p.collect(ctx, o, &r)
	if err != nil {
		return ReadResult{Seen: r.Seen}, err
	}
	r.Data = r.Data[:n:n]
	in.mu.Lock()
	in.cursor = r.Offset + int64(n)
	r.Waiting = int(in.ring.next - in.cursor)
	in.mu.Unlock()
	r.Waiting += p.inQueue()
	return r, nil
}

// collect fills r and answers how many of its bytes count.
func (p *Port) collect(ctx context.Context, o ReadOptions, r *ReadResult) (n int, err error) {
	in := &p.in
	r.Data = []byte{}
	until := time.NewTimer(o.Timeout)
	defer until.Stop()
	search := search{ReadOptions: o}
	for late := o.Timeout <= 0; ; {
		in.mu.Lock()
		at := r.Offset + int64(len(r.Data))
		gap := at < in.ring.oldest()
		if !gap {
			r.Data = in.ring.read(r.Data, at, o.Size-len(r.Data))
		}
		failure, change := in.err, in.change()
		in.mu.Unlock()
		r.Seen = len(r.Data)
		if gap { // so much came at once that the rest of it is gone
			r.Stop = StopLost
			return r.Seen, nil
		}
		if n, ok := search.find(r); ok {
			return n, nil
		}
		switch {
		case len(r.Data) >= o.Size:
			r.Stop = StopSize
			return o.Size, nil
		case failure != nil:
			return 0, failure
		case late:
			r.Stop = StopTimeout
			return r.Seen, nil
		}
		select {
		case <-change:
			late = search.rest(ctx, until.C, p.done)
		case <-until.C:
			late = true
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-p.done:
			return 0, p.closedError()
		}
		if late {
			p.pull() // what came by now counts, however late we were woken
		}
	}
}

// FlushInput drops everything that was received and not read yet. Who follows
// the port still sees what had come from the kernel.
func (p *Port) FlushInput(ctx context.Context) error {
	if err := p.turn(ctx, p.reading); err != nil {
		return err
	}
	defer func() { p.reading <- struct{}{} }()
	if err := p.Failed(); err != nil {
		return err
	}
	for range RingSize / chunk { // a port that sends without end has no end to wait for
		var err error
		if controlErr := p.control(func(fd int) error { err = p.in.pull(fd); return nil }); controlErr != nil {
			return controlErr
		}
		if err != nil {
			break
		}
	}
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.in.cursor = p.in.ring.next
	return nil
}
