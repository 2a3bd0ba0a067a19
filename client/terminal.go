package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"sync"

	"farhand/wire"
)

// Output is a piece of what a terminal has written.
type Output struct {
	Stderr bool // of standard error, without a pty
	Offset int64
	Data   []byte
	// Reset says that the screen as it was can't go on: clear it. What comes next
	// begins at a line, or is the first that there was.
	Reset bool
	// Lost is what came before Offset and that nobody can have any more.
	Lost *wire.StreamGap
	// End is how the terminal ended. Nothing comes after it.
	End *wire.StreamEnd
}

// Terminal is a program on a machine, as one viewer has it. It goes on over lost
// links and, where the machine can, over a restart of its daemon: output comes
// once and in order, and what is written arrives once. Next is for one goroutine,
// the other methods for any.
type Terminal struct {
	session *Session
	id      string
	pty     bool
	writer  string // our name as one who types

	outputs chan Output
	stop    context.CancelFunc
	done    chan struct{} // closed when nothing comes any more
	failed  error         // why not, if not by an end; set before done

	mu      sync.Mutex
	trouble error
	viewing []*Stream
	at      wire.TerminalOffsets // what was put into outputs

	typing sync.Mutex
	typed  int64
}

// OpenTerminal starts a program on the machine. What is allowed is what is allowed
// for Exec; but it may run for as long as it likes. Detach or Close it.
func (s *Session) OpenTerminal(ctx context.Context, r wire.TerminalOpen) (*Terminal, error) {
	return s.terminal(ctx, request{method: method(wire.TTerminalOpen), payload: r}, r.Credit)
}

// AttachTerminal becomes one more viewer of a terminal. from is where the screen
// stands; nil shows all that there still is.
func (s *Session) AttachTerminal(ctx context.Context, id string, from *wire.TerminalOffsets) (*Terminal, error) {
	return s.terminal(ctx, request{method: method(wire.TTerminalAttach), payload: wire.TerminalAttach{Terminal: id, From: from}}, 0)
}

// Terminals lists the terminals of the machine that this login may attach.
func (s *Session) Terminals(ctx context.Context) ([]wire.TerminalInfo, error) {
	var out wire.TerminalListResponse
	err := s.do(ctx, request{method: method(wire.TTerminalList), payload: wire.Empty{}}, &out)
	return out.Terminals, err
}

// CloseTerminal hangs a program up and ends what it started. Of one that has ended
// it is no error.
func (s *Session) CloseTerminal(ctx context.Context, id string) error {
	return s.do(ctx, request{method: method(wire.TTerminalClose), payload: wire.TerminalClose{Terminal: id}}, nil)
}

func (s *Session) terminal(ctx context.Context, r request, credit int) (*Terminal, error) {
	v, err := s.viewTerminal(ctx, r, credit)
	if err != nil {
		return nil, err
	}
	var name [16]byte
	rand.Read(name[:]) // never fails, see crypto/rand
	sock := s.client.sock
	ctx, cancel := context.WithCancel(sock.ctx)
	t := &Terminal{
		session: s, id: v.opened.Terminal, pty: v.opened.PTY, writer: hex.EncodeToString(name[:]),
		outputs: make(chan Output), stop: cancel, done: make(chan struct{}), at: v.opened.From,
	}
	if !sock.streams.task(func() { t.follow(ctx, v) }) {
		cancel()
		v.detach()
		return nil, errClosed
	}
	return t, nil
}

// view is what one TERMINAL_OPENED has brought.
type view struct {
	opened   wire.TerminalOpened
	out, err *Stream // err is nil with a pty
}

func (v view) streams() []*Stream {
	if v.err == nil {
		return []*Stream{v.out}
	}
	return []*Stream{v.out, v.err}
}

func (v view) detach() {
	for _, st := range v.streams() {
		st.Detach()
	}
}

// viewTerminal does a request that is answered with TERMINAL_OPENED, whose streams
// are received from that very answer on.
func (s *Session) viewTerminal(ctx context.Context, r request, credit int) (view, error) {
	sock := s.client.sock
	came := make(chan view, 1)
	r.arrived = func(conn *connection, payload []byte) {
		var v view
		if wire.Decode(payload, &v.opened) != nil || v.opened.Streams.Out == "" {
			return
		}
		receive := func(id string, from int64) *Stream {
			st := newStream(sock, id, credit)
			st.do, st.at, st.conn, st.expect = s.do, s.at, conn, from
			sock.streams.add(st)
			return st
		}
		v.out = receive(v.opened.Streams.Out, v.opened.From.Out)
		if v.opened.Streams.Err != "" {
			v.err = receive(v.opened.Streams.Err, v.opened.From.Err)
		}
		came <- v
	}
	var opened wire.TerminalOpened
	err := s.do(ctx, r, &opened)
	var v view
	select {
	case v = <-came: // which was there before do returned the answer
	default:
		if err == nil {
			err = wire.Errorf(wire.InternalError, "%s was answered without a stream", r.method.Request).With("op", string(r.method.Request))
		}
		return v, err
	}
	if err != nil { // the caller gave up in the moment in which it came
		v.detach()
	}
	return v, err
}

// ID is the terminal's name on the machine.
func (t *Terminal) ID() string { return t.id }

// PTY says whether it is a terminal, or pipes.
func (t *Terminal) PTY() bool { return t.pty }

// Trouble says why the terminal isn't attached now, and nil if it is, as far as is
// known. It is tried again, so this is for showing to people.
func (t *Terminal) Trouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trouble != nil {
		return t.trouble
	}
	for _, st := range t.viewing {
		if err := st.Trouble(); err != nil {
			return err
		}
	}
	return nil
}

// Next waits for the next output. After the one with End it is io.EOF. A terminal
// that the machine no longer has, or no longer allows, is an error, and so is one
// that was detached.
func (t *Terminal) Next(ctx context.Context) (Output, error) {
	select {
	case o := <-t.outputs:
		return o, nil
	case <-t.done:
		select {
		case o := <-t.outputs:
			return o, nil
		default:
		}
		if t.failed != nil {
			return Output{}, t.failed
		}
		return Output{}, io.EOF
	case <-ctx.Done():
		return Output{}, ctx.Err()
	}
}

// Detach stops viewing the terminal, which goes on. Idempotent.
func (t *Terminal) Detach() {
	t.stop()
	<-t.done
}

// Close ends the program and stops viewing it.
func (t *Terminal) Close(ctx context.Context) error {
	err := t.session.CloseTerminal(ctx, t.id)
	t.Detach()
	return err
}

// Resize sets the size of the terminal, for all that view it. force has the
// program draw its screen anew even if that is its size already.
func (t *Terminal) Resize(ctx context.Context, columns, rows int, force bool) error {
	return t.session.do(ctx, request{method: method(wire.TTerminalResize),
		payload: wire.TerminalResize{Terminal: t.id, Columns: columns, Rows: rows, Force: force}}, nil)
}

// Write types p, and returns when the program has got all of it or ctx ended. A
// link that is lost meanwhile is waited for.
func (t *Terminal) Write(ctx context.Context, p []byte) (int, error) {
	t.typing.Lock()
	defer t.typing.Unlock()
	written := 0
	for written < len(p) {
		n, err := t.put(ctx, p[written:min(len(p), written+wire.MaxTerminalInput)], false)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// CloseInput is the end of the program's standard input. On a terminal there is no
// such thing.
func (t *Terminal) CloseInput(ctx context.Context) error {
	t.typing.Lock()
	defer t.typing.Unlock()
	_, err := t.put(ctx, nil, true)
	return err
}

// put sends one TERMINAL_INPUT until it is answered. Called with typing.
func (t *Terminal) put(ctx context.Context, p []byte, eof bool) (int, error) {
	var again attempts
	for {
		var taken wire.TerminalTaken
		err := t.session.do(ctx, request{method: method(wire.TTerminalInput), payload: wire.TerminalInput{
			Terminal: t.id, Writer: t.writer, Offset: t.typed, Data: p, EOF: eof,
		}}, &taken)
		switch {
		case err == nil:
			n := int(min(max(taken.Next-t.typed, 0), int64(len(p))))
			t.typed += int64(n)
			return n, nil
		case !passing(err):
			return 0, err
		}
		if !again.wait(ctx, 0) {
			return 0, err
		}
	}
}

// follow puts what the terminal writes into outputs until it ends, and attaches it
// again as often as it must.
func (t *Terminal) follow(ctx context.Context, v view) {
	defer close(t.done)
	defer t.stop()
	for {
		t.set(v.streams(), nil)
		end, err := t.receive(ctx, v)
		t.leave(ctx, v)
		if err == nil && !final(end) || errors.Is(err, wire.StreamNotFound) {
			if v, err = t.again(ctx); errors.Is(err, wire.TerminalNotFound) && end != nil {
				err = nil // nobody knows more
			} else if err == nil {
				end = nil
			}
		}
		switch {
		case ctx.Err() != nil:
			t.failed = errDetached
		case err != nil:
			t.failed = err
		case end != nil:
			t.deliver(ctx, Output{End: end})
		case v.opened.Resumed || t.reset(ctx, v.opened.From):
			continue
		}
		return
	}
}

// reset says that the screen is another.
func (t *Terminal) reset(ctx context.Context, from wire.TerminalOffsets) bool {
	t.mu.Lock()
	t.at = from
	t.mu.Unlock()
	return t.deliver(ctx, Output{Offset: from.Out, Reset: true})
}

// final says whether an end is that of the terminal. One that only ends the view
// has no exit code and a reason of its own.
func final(end *wire.StreamEnd) bool {
	if end.ExitCode != nil {
		return true
	}
	switch end.Reason {
	case "idle", "session_ended", "daemon_stopping":
		return false
	}
	return true
}

// leave closes the streams of a view that isn't wanted any more, so that nobody
// waits for it.
func (t *Terminal) leave(ctx context.Context, v view) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for _, st := range v.streams() {
		if ctx.Err() != nil && t.session.client.sock.ctx.Err() == nil {
			_ = st.Close(bounded) // it finds out by itself
		}
		st.Detach()
	}
}

func (t *Terminal) set(viewing []*Stream, trouble error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.viewing, t.trouble = viewing, trouble
}

// receive puts the output of a view into outputs until all its streams have ended,
// or one failed.
func (t *Terminal) receive(ctx context.Context, v view) (*wire.StreamEnd, error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	type result struct {
		end *wire.StreamEnd
		err error
	}
	results := make(chan result, 2)
	for _, st := range v.streams() {
		all.Go(func() {
			end, err := t.pump(ctx, st, st == v.err)
			results <- result{end, err}
		})
	}
	var end *wire.StreamEnd
	for range v.streams() {
		r := <-results
		if r.err != nil {
			return nil, r.err
		}
		end = r.end
	}
	return end, nil
}

func (t *Terminal) pump(ctx context.Context, st *Stream, stderr bool) (*wire.StreamEnd, error) {
	for {
		c, err := st.Next(ctx)
		if err != nil {
			return nil, err
		}
		if len(c.Data) > 0 || c.Lost != nil {
			if !t.deliver(ctx, Output{Stderr: stderr, Offset: c.Offset, Data: c.Data, Lost: c.Lost}) {
				return nil, ctx.Err()
			}
			t.mu.Lock()
			at := &t.at.Out
			if stderr {
				at = &t.at.Err
			}
			*at = c.Offset + int64(len(c.Data))
			t.mu.Unlock()
		}
		if c.End != nil {
			return c.End, nil
		}
	}
}

func (t *Terminal) deliver(ctx context.Context, o Output) bool {
	select {
	case t.outputs <- o:
		return true
	case <-ctx.Done():
		return false
	}
}

// again attaches the terminal where it stands.
func (t *Terminal) again(ctx context.Context) (view, error) {
	var pauses attempts
	for {
		t.mu.Lock()
		from := t.at
		t.mu.Unlock()
		v, err := t.session.viewTerminal(ctx, request{method: method(wire.TTerminalAttach), payload: wire.TerminalAttach{Terminal: t.id, From: &from}}, 0)
		if err == nil || !passing(err) {
			return v, err
		}
		t.set(nil, err)
		if !pauses.wait(ctx, 0) {
			return v, errDetached
		}
	}
}

// task runs what ends with the streams' own end; false if that was.
func (t *streams) task(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.tasks.Go(f)
	return true
}
