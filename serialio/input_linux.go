package serialio

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// input is what was received from a port. One goroutine of the port's fills
// the ring, whoever reads or not; so no client holds up the port, and everybody
// sees every byte. A Read that runs is waited for before the ring forgets what
// it still has to copy, which it does at the speed of memory.
type input struct {
	ended   chan struct{} // closed when nothing more is received
	pulling sync.Mutex    // whose turn it is to fill the ring's room; taken before mu

	mu     sync.Mutex
	ring   ring
	cursor int64         // where the next Read begins
	err    error         // why nothing more is received
	news   chan struct{} // closed at the next change; nil if nobody waits
	wanted int64         // from here on a Read that runs needs it; below 0: none runs
	copied chan struct{} // closed when that moves on; nil if nobody waits
	need   int64         // what the Read that runs waits for: this offset
	enough chan struct{} // closed when that has come; nil if it doesn't wait
}

// errFull says that the ring has no room before a Read moves on.
var errFull = errors.New("the ring is full of what is being read")

// wants moves on what a Read needs. Called with mu.
func (in *input) wants(offset int64) {
	in.wanted = offset
	if in.copied != nil {
		close(in.copied)
		in.copied = nil
	}
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
	if in.enough != nil && (in.ring.next >= in.need || in.err != nil) {
		close(in.enough)
		in.enough = nil
	}
}

// until is closed when an offset has come, or nothing more comes. Only one Read
// at a time may use it. Called with mu.
func (in *input) until(offset int64) <-chan struct{} {
	in.need = offset
	if in.enough == nil {
		in.enough = make(chan struct{})
	}
	return in.enough
}

// pull takes what the kernel has right now, at most one buffer of it, without
// waiting. It answers EAGAIN if there is nothing, io.EOF if the kernel says
// that there will be nothing, and errFull.
func (in *input) pull(fd int) error {
	in.pulling.Lock()
	defer in.pulling.Unlock()
	room, err := in.reserve()
	if err != nil {
		return err
	}
	var n int
	for n, err = unix.Read(fd, room); errors.Is(err, unix.EINTR); {
		n, err = unix.Read(fd, room)
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ring.add(n)
	in.changed()
	return nil
}

// reserve is where the next bytes go. Called with pulling.
func (in *input) reserve() ([]byte, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return nil, in.failure()
	}
	if in.wanted >= 0 && in.ring.next+chunk-RingSize > in.wanted {
		if in.copied == nil {
			in.copied = make(chan struct{})
		}
		return nil, errFull
	}
	return in.ring.room(), nil
}

// failure is why nothing more is received, for one caller alone, who may add
// details to it. Called with mu.
func (in *input) failure() error {
	e, ok := errors.AsType[*wire.Error](in.err)
	if !ok {
		return in.err
	}
	own := *e
	own.Details = maps.Clone(e.Details)
	return &own
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
			if free := p.lead.follow(); free != nil {
				select {
				case <-free:
				case <-p.done:
				}
				continue
			}
			err := p.in.pull(int(fd))
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, errFull):
				p.in.waitCopied(p.done)
			case err != nil:
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

// waitCopied waits until a Read has moved on, or done is closed.
func (in *input) waitCopied(done <-chan struct{}) {
	in.mu.Lock()
	copied := in.copied
	in.mu.Unlock()
	if copied == nil { // it has meanwhile
		return
	}
	select {
	case <-copied:
	case <-done:
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
	return p.in.failure()
}

// Offsets are the first offset that the port still has and that of the next
// byte to come, both counted since it was opened.
func (p *Port) Offsets() (oldest, next int64) {
	p.pull()
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return p.in.ring.oldest(), p.in.ring.next
}

// cursor is where the next Read begins, and how many bytes wait for it.
func (p *Port) cursor() (offset int64, waiting int) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return p.in.cursor, int(p.in.ring.next - p.in.cursor)
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
			return 0, lost, in.failure()
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
	in := &p.in
	in.mu.Lock()
	r := ReadResult{Offset: max(in.cursor, in.ring.oldest())}
	r.Lost = r.Offset - in.cursor
	in.wants(r.Offset)
	in.mu.Unlock()
	n, err := p.collect(ctx, o, &r)
	in.mu.Lock()
	in.wants(-1)
	in.mu.Unlock()
	if err != nil {
		return ReadResult{Seen: r.Seen}, err
	}
	r.Data = r.Data[:n:n]
	in.mu.Lock()
	in.cursor = r.Offset + int64(n)
	r.Waiting = int(in.ring.next - in.cursor)
	in.mu.Unlock()
	return r, nil
}

// collect fills r and answers how many of its bytes count.
func (p *Port) collect(ctx context.Context, o ReadOptions, r *ReadResult) (n int, err error) {
	r.Data = []byte{}
	search := search{ReadOptions: o}
	end := time.Now().Add(o.Timeout)
	var timer *time.Timer
	for late := false; ; {
		change, many, failure := p.in.take(o, r)
		if r.Stop == StopLost {
			return r.Seen, nil
		}
		if n, ok := search.find(r); ok {
			return n, nil
		}
		switch {
		case r.Seen >= o.Size:
			r.Stop = StopSize
			return o.Size, nil
		case failure != nil:
			return 0, failure
		case late:
			r.Stop = StopTimeout
			return r.Seen, nil
		case timer == nil:
			timer = time.NewTimer(min(o.Timeout, lookAfter))
			defer timer.Stop()
		}
		if many {
			p.fill(ctx, change, min(time.Until(end), lookAfter))
		}
		fired := false
		select {
		case <-change:
			fired = search.rest(ctx, timer.C, p.done)
		case <-timer.C:
			fired = true
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-p.done:
			return 0, p.closedError()
		}
		if fired {
			p.pull() // what came by now counts, however late we were woken
			left := time.Until(end)
			late = left <= 0
			timer.Reset(left)
		}
	}
}

// lookAfter is how long a Read waits before it looks for itself: a port that
// another process has set so that reads don't wait wakes nobody.
const lookAfter = 20 * time.Millisecond

// take adds to r what has come, up to o.Size, and answers what is closed when
// it is worth while to look again, whether much is wanted until then, and why
// nothing more will come. If what comes next is gone, since so much came at
// once, r.Stop is StopLost.
func (in *input) take(o ReadOptions, r *ReadResult) (change <-chan struct{}, many bool, failure error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	at := r.Offset + int64(len(r.Data))
	if at < in.ring.oldest() {
		r.Stop = StopLost
		return nil, false, nil
	}
	if n := min(int64(o.Size-len(r.Data)), in.ring.next-at); n > 0 {
		r.Data = in.ring.read(slices.Grow(r.Data, int(n)), at, int(n))
		r.Seen = len(r.Data)
		at += n
		in.wants(at)
	}
	need := at + 1
	if len(o.Until) == 0 && len(o.Expect.all) == 0 {
		need = at + min(int64(o.Size-len(r.Data)), RingSize/2) // nothing is looked for in between
	}
	return in.until(need), need-at >= leadFrom, in.failure()
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
