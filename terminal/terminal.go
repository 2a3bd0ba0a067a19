package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"farhand/internal/sorted"
	"farhand/stream"
	"farhand/wire"
)

const (
	// hangUpGrace is how long a program may take to end by itself when it is hung
	// up, killPatience how long the dead are waited for then.
	hangUpGrace  = 500 * time.Millisecond
	killPatience = 2 * time.Second
	// stragglerPatience is how long output is waited for that outlives the program,
	// stragglerMost how much of it is taken: more than a pipe holds (pipe(7)).
	stragglerPatience = 100 * time.Millisecond
	stragglerMost     = 1 << 20
	// chunk is how much is read at once. A terminal hands out 4 KiB at most.
	chunk = 32 << 10
)

// terminal is one program and what it writes.
type terminal struct {
	s       *Service
	id      string
	owner   stream.Owner
	pty     bool
	cwd     string
	opened  time.Time
	program string // its name

	ends
	out, err *stream.Shared // err is nil with a pty
	p        Program
	kept     bool     // for run alone
	journal  *journal // nil unless it was kept from the beginning
	keyboard keyboard

	ending   chan string   // why it is to end; the first counts
	leaving  chan struct{} // closed when this process is to let go of it
	released chan struct{} // closed when it does
	exited   chan struct{} // closed when the program has ended: what it wrote is all that comes
	over     chan struct{} // closed when nothing of it runs any more

	mu       sync.Mutex
	begun    bool
	unwanted bool // what it writes is for nobody
	left     bool
	shut     bool // our ends are closed
	size     size
	finish   *wire.TerminalEnd
	releases []func()
}

// End is our end of what a program reads or writes. Its deadlines end a call that
// waits, as those of an os.File do.
type End interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// ends are our ends of what the program reads and writes. With a pty they are
// one file.
type ends struct{ in, outEnd, errEnd End }

func (e ends) close() {
	for _, f := range []End{e.in, e.outEnd, e.errEnd} {
		if f != nil {
			f.Close()
		}
	}
}

// gone is the input of a program that has none any more: it ended with an earlier
// process, or its input did.
type gone struct{}

func (gone) Read([]byte) (int, error)         { return 0, os.ErrClosed }
func (gone) Write([]byte) (int, error)        { return 0, os.ErrClosed }
func (gone) Close() error                     { return nil }
func (gone) SetReadDeadline(time.Time) error  { return os.ErrClosed }
func (gone) SetWriteDeadline(time.Time) error { return os.ErrClosed }

// programEnds are a program's own ends, which are closed here once it has them.
type programEnds struct{ Files }

func (e programEnds) close() {
	for _, f := range []*os.File{e.In, e.Out, e.Err} {
		if f != nil {
			f.Close() // of a terminal all three are one
		}
	}
}

func newTerminal(s *Service, r Request, z size) *terminal {
	t := makeTerminal(s, newID())
	t.owner, t.pty, t.cwd, t.opened, t.size = r.Owner, r.HasPTY(), r.Cwd, time.Now(), z
	return t
}

func makeTerminal(s *Service, id string) *terminal {
	return &terminal{
		s: s, id: id, ending: make(chan string, 1), leaving: make(chan struct{}), released: make(chan struct{}), exited: make(chan struct{}), over: make(chan struct{}),
		keyboard: newKeyboard(),
	}
}

// start starts the program and all that follows it.
func (t *terminal) start(r Request) error {
	own, files, err := t.openEnds()
	begun := false
	defer func() { // also if Start panics
		if !begun {
			own.close()
			t.abandon()
		}
	}()
	if err != nil {
		own = ends{}
		return err
	}
	defer files.close()
	if err := t.share(); err != nil {
		return err
	}
	if t.p, t.program, err = r.Start(files.Files); err != nil {
		return err
	}
	begun = true
	t.ends = own
	t.hold(r.Hold)
	t.keep()
	t.mu.Lock()
	t.begun = true
	if t.unwanted {
		t.forget()
	}
	t.mu.Unlock()
	t.s.save()
	go func() { // Leave waits for it, since it was admitted
		defer t.s.running.Done()
		t.run()
	}()
	return nil
}

// abandon is the end of one that didn't start.
func (t *terminal) abandon() {
	t.s.drop(t)
	if t.out != nil {
		t.endOutput(stream.ReasonFailed, nil)
	}
	t.mu.Lock()
	t.finish = &wire.TerminalEnd{StreamEnd: wire.StreamEnd{Reason: stream.ReasonFailed}, At: time.Now()}
	releases := t.releases // of a session that came back meanwhile
	t.releases = nil
	t.mu.Unlock()
	for _, release := range releases {
		release()
	}
}

// openEnds makes what the program reads and writes.
func (t *terminal) openEnds() (ends, programEnds, error) {
	if t.s.o.Ends == nil {
		return openEnds(t.pty, t.size)
	}
	if !t.pty {
		return ends{}, programEnds{}, wire.Errorf(wire.FeatureNotSupported, "programs here have terminals alone")
	}
	own, err := t.s.o.Ends()
	return ends{in: own, outEnd: own}, programEnds{}, err
}

// share makes the rings.
func (t *terminal) share() error {
	hub, size := t.s.o.Hub, wire.TerminalRing
	if !t.pty {
		size = wire.TerminalPipeRing
	}
	rings := hub.Share
	if t.begun { // with an earlier daemon
		rings = hub.ShareAgain
	}
	var err error
	if t.out, err = rings(size, t.owner); err != nil || t.pty {
		return err
	}
	if t.err, err = rings(size, t.owner); err != nil {
		t.out.End(stream.ReasonFailed, nil)
	}
	return err
}

func (t *terminal) endOutput(reason string, code *int) {
	t.out.End(reason, code)
	if t.err != nil {
		t.err.End(reason, code)
	}
}

// hold keeps a session from being idle for as long as the terminal runs.
func (t *terminal) hold(hold func() (release func())) {
	if hold == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finish == nil {
		t.releases = append(t.releases, hold())
	}
}

func (t *terminal) started() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun
}

func (t *terminal) ended() *wire.TerminalEnd {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finish
}

// end asks it to end. wait waits for that.
func (t *terminal) end(reason string) {
	select {
	case t.ending <- reason:
	default: // it has a reason already
	}
}

// discard is end, after which what it wrote, and still writes, is gone.
func (t *terminal) discard(reason string) {
	t.mu.Lock()
	t.unwanted = true
	if t.begun { // else it has no output yet
		t.forget()
	}
	t.mu.Unlock()
	t.end(reason)
}

func (t *terminal) forget() {
	t.out.Forget()
	if t.err != nil {
		t.err.Forget()
	}
}

func (t *terminal) wait(ctx context.Context) error {
	select {
	case <-t.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave has this process let go of it, if another can take it over, and else ends
// it.
func (t *terminal) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.left {
		t.left = true
		close(t.leaving)
	}
}

// run follows the program to its end.
func (t *terminal) run() {
	defer close(t.over)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pumped := t.pumps(ctx)
	reason := wire.TerminalExited
	exited, drained, leaving := t.p.Exited(), pumped, t.leaving
	for (exited != nil || drained != nil) && reason == wire.TerminalExited {
		select {
		case <-exited:
			exited = nil
			close(t.exited)
			t.wake()
		case <-drained:
			drained = nil
		case reason = <-t.ending:
			t.hangUp()
		case <-leaving:
			if t.kept {
				close(t.released)
				t.wake()
				cancel() // of what waits for room, and took nothing yet
				<-pumped
				t.letGo()
				return
			}
			t.end(stream.ReasonStopping)
			leaving = nil
		}
	}
	cancel()
	t.wake()
	code, err := t.p.Reap()
	<-pumped
	if err != nil && reason == wire.TerminalExited {
		reason = wire.TerminalLost
	}
	t.finished(reason, code, err)
}

// pumps copies all outputs; the channel is closed when there is nothing more.
func (t *terminal) pumps(ctx context.Context) <-chan struct{} {
	var all sync.WaitGroup
	all.Go(func() { t.pump(ctx, t.outEnd, t.out, 0) })
	if t.err != nil {
		all.Go(func() { t.pump(ctx, t.errEnd, t.err, 1) })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	return done
}

// hangUp ends the program and all that it started, politely for a moment. The next
// process, if there is one meanwhile, doesn't go on with it.
func (t *terminal) hangUp() {
	t.unstore()
	if t.pty {
		t.closeEnds() // the last of its kind: SIGHUP, tty(4)
	} else {
		t.p.Terminate()
	}
	timer := time.NewTimer(hangUpGrace)
	defer timer.Stop()
	select {
	case <-t.p.Exited():
	case <-timer.C:
	}
	t.p.Kill(killPatience)
}

// closeEnds closes our ends, which may be done again.
func (t *terminal) closeEnds() {
	t.mu.Lock()
	t.shut = true
	t.mu.Unlock()
	t.ends.close()
}

// wake has the pumps look what has changed.
func (t *terminal) wake() {
	for _, f := range []End{t.outEnd, t.errEnd} {
		if f != nil {
			_ = f.SetReadDeadline(time.Now()) // fails only if it is closed
		}
	}
}

// finished tells how it ended.
func (t *terminal) finished(reason string, code int, unknown error) {
	var exit *int
	if unknown == nil {
		exit = &code
	}
	t.unstore()
	t.closeEnds()
	t.journal.close()
	at := time.Now()
	t.mu.Lock()
	t.finish = &wire.TerminalEnd{StreamEnd: wire.StreamEnd{Reason: reason, ExitCode: exit}, At: at}
	releases := t.releases
	t.releases = nil
	t.mu.Unlock()
	t.s.save()
	next := t.next()
	t.s.o.OnEnd(Ended{
		ID: t.id, Session: t.owner.Session, Reason: reason, ExitCode: exit, Lasted: at.Sub(t.opened),
		Written: next.Out + next.Err, Typed: t.keyboard.total(),
	})
	t.endOutput(reason, exit)
	for _, release := range releases {
		release()
	}
}

// pump copies what the program writes until there is nothing more or ctx ends.
func (t *terminal) pump(ctx context.Context, from End, to *stream.Shared, which int) {
	buf, keep := t.journal.buffer(which)
	late, left := 0, stragglerMost
	for {
		if to.Room(ctx, len(buf)) != nil {
			return
		}
		if isClosed(t.released) {
			return
		}
		exited := isClosed(t.exited)
		if exited {
			_ = from.SetReadDeadline(time.Now().Add(stragglerPatience)) // fails only if it is closed
		}
		n, err := from.Read(buf)
		if n > 0 {
			_, _ = to.Write(buf[:n]) // fails only after the end, which is ours to tell
			keep(n)
			late = 0
			if exited {
				left -= n
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil:
			return // EIO of a terminal, EOF of a pipe: nobody has it open any more
		case exited:
			late++
		default: // woken
			_ = from.SetReadDeadline(time.Time{})
		}
		if late > 1 || left <= 0 {
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// next is how much was written.
func (t *terminal) next() wire.TerminalOffsets {
	o := wire.TerminalOffsets{Out: t.out.Next()}
	if t.err != nil {
		o.Err = t.err.Next()
	}
	return o
}

// has says whether a screen that stands there can go on.
func (t *terminal) has(from wire.TerminalOffsets) bool {
	within := func(x *stream.Shared, at int64) bool { return at >= x.Oldest() && at <= x.Next() }
	return within(t.out, from.Out) && (t.err == nil || within(t.err, from.Err))
}

// beginning is where a screen can begin.
func (t *terminal) beginning() wire.TerminalOffsets {
	o := wire.TerminalOffsets{Out: t.out.Line()}
	if t.err != nil {
		o.Err = t.err.Line()
	}
	return o
}

// view opens the streams of one viewer.
func (t *terminal) view(by stream.Owner, from wire.TerminalOffsets, credit int, op wire.Type) (wire.TerminalOpened, error) {
	o := stream.Options{Owner: by, Credit: credit, Op: string(op)}
	opened := wire.TerminalOpened{Terminal: t.id, PTY: t.pty, From: from}
	out, err := t.out.View(o, from.Out)
	if err != nil {
		return opened, err
	}
	opened.Streams.Out = out.ID()
	if t.err != nil {
		errs, err := t.err.View(o, from.Err)
		if err != nil {
			out.End(stream.ReasonFailed, nil)
			return opened, err
		}
		opened.Streams.Err = errs.ID()
	}
	return opened, nil
}

// resize sets its size. The last one counts.
func (t *terminal) resize(z size, force bool) error {
	if !t.pty {
		return invalid("terminal", "this program has no terminal, and so no size")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut { // it has ended, or is about to
		return nil
	}
	if force && z == t.size {
		other := z // the kernel tells of changes alone
		if other.rows++; other.rows > wire.MaxTerminalSide {
			other.rows -= 2
		}
		if err := resize(t.outEnd, other); err != nil {
			return err
		}
	}
	t.size = z
	return resize(t.outEnd, z)
}

// resize sets the size of a terminal of the system's.
func resize(e End, z size) error {
	if f, ok := e.(*os.File); ok {
		return setSize(f, z)
	}
	return nil
}

func (t *terminal) info() wire.TerminalInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := wire.TerminalInfo{
		Terminal: t.id, Program: t.program, PTY: t.pty, Cwd: t.cwd, Session: t.owner.Session, OpenedAt: t.opened,
		Viewers: t.out.Views(), Next: t.next(), Ended: t.finish,
	}
	if t.pty {
		i.Columns, i.Rows = t.size.columns, t.size.rows
	}
	return i
}

// input types what the writer has not typed yet, and says how far it came.
func (t *terminal) input(ctx context.Context, r wire.TerminalInput) (int64, error) {
	switch {
	case r.Writer == "" || len(r.Writer) > maxWriterName:
		return 0, invalid("writer", "writer must be 1 to %d characters", maxWriterName)
	case r.Offset < 0:
		return 0, invalid("offset", "offset can't be negative")
	case len(r.Data) > wire.MaxTerminalInput:
		return 0, invalid("data", "data is %d bytes, more than %d", len(r.Data), wire.MaxTerminalInput)
	case r.EOF && t.pty:
		return 0, invalid("eof", "a terminal has no end of input; send ^D")
	}
	return t.keyboard.apply(ctx, r, t.in, t.journal, t.closeInput)
}

// closeInput is the end of the program's input. The store's copy would keep it
// open.
func (t *terminal) closeInput() {
	t.in.Close()
	if t.journal != nil {
		t.remove("in")
	}
}

func (t *terminal) knows(writer string) bool { return t.keyboard.knows(writer) }

// names are those of its descriptors in the store, by what they are.
func (t *terminal) descriptors() map[string]*os.File {
	all := make(map[string]*os.File)
	ends := map[string]End{"in": t.in, "out": t.outEnd, "err": t.errEnd}
	if t.pty {
		ends = map[string]End{"pty": t.outEnd}
	}
	for what, e := range ends {
		if f, ok := e.(*os.File); ok {
			all[what] = f
		}
	}
	return all
}

// sortByAge puts the oldest first.
func sortByAge(all []*terminal) {
	sorted.By(all, func(a, b *terminal) int { return a.opened.Compare(b.opened) })
}
