package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/stream"
	"farhand/wire"
)

var (
	alice = stream.Owner{Session: "s", Holder: "alice", Owner: "owner"}
	bob   = stream.Owner{Session: "t", Holder: "bob", Owner: "owner"}
)

// patience bounds everything that is waited for.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	testenv.Hangups()
	os.Exit(m.Run())
}

type bench struct {
	t     *testing.T
	hub   *stream.Hub
	s     *Service
	path  string
	ended chan Ended
}

func newBench(t *testing.T, change func(*Options)) *bench {
	t.Helper()
	leak.Check(t)
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "terminals.json"), ended: make(chan Ended, 64)}
	b.begin(change)
	return b
}

// begin is what a daemon does at its start, stop at its end.
func (b *bench) begin(change func(*Options)) {
	b.t.Helper()
	hub := stream.NewHub(stream.HubOptions{})
	o := Options{Hub: hub, Path: b.path, OnEnd: func(e Ended) { b.ended <- e }}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.hub, b.s = hub, s
	b.t.Cleanup(func() {
		s.Close()
		hub.Close()
	})
}

func (b *bench) stop() {
	b.s.Leave()
	b.hub.Close()
}

// child is a program of this process.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

func (c *child) Exited() <-chan struct{} { return c.exited }
func (c *child) Terminate()              { syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM) }
func (c *child) Kill(patience time.Duration) {
	syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.exited
}

func (c *child) Reap() (int, error) {
	if ws := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return -int(ws.Signal()), nil
	}
	return c.cmd.ProcessState.ExitCode(), nil
}

func starter(argv ...string) func(Files) (Program, string, error) {
	return func(f Files) (Program, string, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = f.In, f.Out, f.Err
		cmd.Env = append(os.Environ(), "TERM=xterm-256color", "PS1=$ ", "HISTFILE=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: f.Terminal}
		if err := cmd.Start(); err != nil {
			return nil, "", err
		}
		c := &child{cmd, make(chan struct{})}
		go func() {
			cmd.Wait() // how it ended is in ProcessState
			close(c.exited)
		}()
		return c, filepath.Base(argv[0]), nil
	}
}

func (b *bench) open(r wire.TerminalOpen, argv ...string) *viewer {
	b.t.Helper()
	o, err := b.s.Open(Request{TerminalOpen: r, Owner: alice, Cwd: "/", Start: starter(argv...)})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.view(o, alice)
}

func (b *bench) attach(id string, from *wire.TerminalOffsets, by stream.Owner) *viewer {
	b.t.Helper()
	o, err := b.s.Attach(wire.TerminalAttach{Terminal: id, From: from}, by)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.view(o, by)
}

// viewer receives the streams of a terminal.
type viewer struct {
	b *bench
	wire.TerminalOpened
	out, err *receiver
	typed    int64
	name     string
	by       stream.Owner
}

func (b *bench) view(o wire.TerminalOpened, by stream.Owner) *viewer {
	v := &viewer{b: b, TerminalOpened: o, name: o.Streams.Out[:8], by: by}
	v.out = b.receive(o.Streams.Out, by)
	if o.Streams.Err != "" {
		v.err = b.receive(o.Streams.Err, by)
	}
	return v
}

func (b *bench) receive(id string, by stream.Owner) *receiver {
	r := &receiver{b: b, by: by, news: make(chan struct{}, 1)}
	b.hub.Begin(id, r)
	return r
}

// receiver is an Outlet that takes all.
type receiver struct {
	b     *bench
	by    stream.Owner
	stuck bool // gives no credit
	news  chan struct{}

	mu   sync.Mutex
	got  []byte
	lost bool
	end  *wire.StreamEnd
}

func (r *receiver) Request() string          { return "r" }
func (r *receiver) Context() context.Context { return r.b.t.Context() }
func (r *receiver) Send(_ context.Context, _ string, d wire.StreamData) error {
	r.mu.Lock()
	r.got = append(r.got, d.Data...)
	r.lost = r.lost || d.Lost != nil
	r.end = d.End
	stuck := r.stuck
	r.mu.Unlock()
	if !stuck {
		r.b.hub.Credit(wire.StreamCredit{Stream: d.Stream, Bytes: len(d.Data)}, r.by)
	}
	select {
	case r.news <- struct{}{}:
	default:
	}
	return nil
}

// await waits until what came satisfies ok.
func (r *receiver) await(what string, ok func(got string, end *wire.StreamEnd) bool) string {
	r.b.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		got, end := string(r.got), r.end
		r.mu.Unlock()
		if ok(got, end) {
			return got
		}
		select {
		case <-r.news:
		case <-timer.C:
			r.b.t.Fatalf("no %s in %q (end %+v)", what, got, end)
		}
	}
}

func (r *receiver) shows(text string) {
	r.b.t.Helper()
	r.await(text, func(got string, _ *wire.StreamEnd) bool { return strings.Contains(got, text) })
}

func (r *receiver) ends() (string, wire.StreamEnd) {
	r.b.t.Helper()
	got := r.await("end", func(_ string, end *wire.StreamEnd) bool { return end != nil })
	r.mu.Lock()
	defer r.mu.Unlock()
	return got, *r.end
}

// types sends text once.
func (v *viewer) types(text string) {
	v.b.t.Helper()
	v.typed = v.sends(v.typed, text, false)
}

func (v *viewer) sends(offset int64, text string, eof bool) int64 {
	v.b.t.Helper()
	taken, err := v.b.s.Input(v.b.t.Context(), wire.TerminalInput{Terminal: v.Terminal, Writer: v.name, Offset: offset, Data: []byte(text), EOF: eof}, v.by)
	if err != nil {
		v.b.t.Fatal(err)
	}
	return taken.Next
}

func code(e wire.StreamEnd) int {
	if e.ExitCode == nil {
		return -999
	}
	return *e.ExitCode
}

// A real shell on a real terminal: size, colours' TERM, job control, the end.
func TestShell(t *testing.T) {
	b := newBench(t, nil)
	v := b.open(wire.TerminalOpen{Columns: 40, Rows: 12}, "bash", "--norc", "--noprofile", "-i")
	v.types("PS1='rea''dy> '; stty size; echo $TERM; tty | grep -c /dev/pts\n")
	v.out.shows("12 40\r\nxterm-256color\r\n1\r\n")
	v.out.shows("ready> ") // before it asks, readline reads the size and sets it again: what comes in between is lost
	if err := b.s.Resize(wire.TerminalResize{Terminal: v.Terminal, Columns: 132, Rows: 50}, alice); err != nil {
		t.Fatal(err)
	}
	v.types("stty size\n")
	v.out.shows("50 132\r\n")
	v.types("trap 'echo drawn anew' WINCH; bash -c 'trap \"echo on ag\"ain CONT; echo in the fore''ground; while :; do read x; done'\n")
	v.out.shows("in the foreground") // what signals flushes what was typed before it, termios(3)
	v.types("\x1a")                  // ^Z
	v.out.shows("Stopped")
	v.types("fg\n")
	v.out.shows("on again")
	v.types("\x03") // ^C
	v.out.shows("^C\r\n")
	v.types("echo sta''tus $?\n")
	v.out.shows("status 130")
	if err := b.s.Resize(wire.TerminalResize{Terminal: v.Terminal, Columns: 132, Rows: 50, Force: true}, alice); err != nil {
		t.Fatal(err)
	}
	v.types("echo 'aft''er'\n")
	v.out.shows("after")
	v.out.shows("drawn anew\r\n")
	v.types("exit 7\n")
	got, end := v.out.ends()
	if end.Reason != wire.TerminalExited || code(end) != 7 {
		t.Errorf("%+v", end)
	}
	e := <-b.ended
	if e.ID != v.Terminal || e.Session != "s" || e.Reason != wire.TerminalExited || *e.ExitCode != 7 || e.Written != int64(len(got)) || e.Typed != v.typed {
		t.Errorf("%+v", e)
	}
	// Whoever comes later sees it all and learns how it ended.
	late := b.attach(v.Terminal, nil, alice)
	if again, end := late.out.ends(); again != got || code(end) != 7 || late.Resumed {
		t.Errorf("%+v, %d bytes of %d", end, len(again), len(got))
	}
	if i := b.s.List(alice); len(i) != 1 || i[0].Program != "bash" || i[0].Ended == nil || *i[0].Ended.ExitCode != 7 || i[0].Rows != 50 || i[0].Next.Out != int64(len(got)) {
		t.Errorf("%+v", i)
	}
	if err := b.s.CloseTerminal(t.Context(), v.Terminal, alice); err != nil {
		t.Error(err)
	}
}

func no() *bool { return new(bool) }

// Pipes: two streams, the end of the input, the exit code.
func TestPipes(t *testing.T) {
	b := newBench(t, nil)
	v := b.open(wire.TerminalOpen{PTY: no()}, "sh", "-c", "sort; echo aside >&2; exit 3")
	if v.PTY || v.Streams.Err == "" {
		t.Fatalf("%+v", v.TerminalOpened)
	}
	at := v.sends(0, "b\na\n", false)
	if at = v.sends(at, "c\n", true); at != 6 {
		t.Errorf("taken to %d", at)
	}
	if v.sends(4, "c\n", true) != 6 { // once more
		t.Error("not known any more")
	}
	out, end := v.out.ends()
	if out != "a\nb\nc\n" || code(end) != 3 {
		t.Errorf("%q, %+v", out, end)
	}
	if errs, end := v.err.ends(); errs != "aside\n" || code(end) != 3 {
		t.Errorf("%q, %+v", errs, end)
	}
	if v.sends(6, "nobody reads this", false) != 23 {
		t.Error("what nobody reads isn't taken")
	}
	if err := b.s.Resize(wire.TerminalResize{Terminal: v.Terminal, Columns: 1, Rows: 1}, alice); !errors.Is(err, wire.InvalidArgument) {
		t.Error(err)
	}
}

// What a program leaves in the background neither holds up its end nor costs any
// of its output.
func TestBackground(t *testing.T) {
	b := newBench(t, nil)
	v := b.open(wire.TerminalOpen{PTY: no()}, "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; sleep 60 & echo $! >&2")
	out, end := v.out.ends()
	if len(out) != 300000 || code(end) != 0 {
		t.Errorf("%d bytes, %+v", len(out), end)
	}
	pid, _ := v.err.ends()
	exec.Command("kill", strings.TrimSpace(pid)).Run() // it lives on, as it should
}

// Input is applied once, however it is repeated, cut and overlapped.
func TestInputOnce(t *testing.T) {
	b := newBench(t, nil)
	v := b.open(wire.TerminalOpen{PTY: no()}, "cat")
	for _, c := range []struct {
		offset int64
		text   string
		next   int64
	}{{0, "one ", 4}, {0, "one ", 4}, {0, "one two ", 8}, {6, "o three", 13}, {13, "", 13}, {2, "e", 13}} {
		if next := v.sends(c.offset, c.text, false); next != c.next {
			t.Errorf("%+v: taken to %d", c, next)
		}
	}
	_, err := b.s.Input(t.Context(), wire.TerminalInput{Terminal: v.Terminal, Writer: v.name, Offset: 14, Data: []byte("x")}, alice)
	if e := wire.AsError(err); e.Code != wire.InvalidArgument || e.Details["next"] != int64(13) {
		t.Errorf("a gap: %+v", e)
	}
	other := b.attach(v.Terminal, nil, alice)
	other.sends(0, "!", true)
	if out, _ := v.out.ends(); out != "one two three!" {
		t.Errorf("%q", out)
	}
	for _, r := range []wire.TerminalInput{
		{Writer: ""}, {Writer: strings.Repeat("x", 65)}, {Writer: "w", Offset: -1}, {Writer: "w", Data: make([]byte, wire.MaxTerminalInput+1)},
	} {
		r.Terminal = v.Terminal
		if _, err := b.s.Input(t.Context(), r, alice); !errors.Is(err, wire.InvalidArgument) {
			t.Errorf("%+v: %v", r.Writer, err)
		}
	}
}

// A program that doesn't read takes what a pipe holds; the rest is not lost.
func TestInputThatIsNotRead(t *testing.T) {
	b := newBench(t, nil)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	v := b.open(wire.TerminalOpen{PTY: no()}, "sh", "-c", "read go <"+gate+"; exec wc -c")
	const size = 200_000
	text, at := strings.Repeat("x", size), int64(0)
	send := func() int64 { return v.sends(at, text[at:min(at+wire.MaxTerminalInput, size)], false) }
	for next := send(); next > at; next = send() { // until it takes no more
		at = next
	}
	if at == 0 || at == size {
		t.Fatalf("taken to %d", at)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	for at < size {
		at = send()
	}
	v.sends(at, "", true)
	if out, _ := v.out.ends(); strings.TrimSpace(out) != fmt.Sprint(size) {
		t.Errorf("%q arrived", out)
	}
}

// Several see the same, whoever types; one that is slow doesn't stop the others.
func TestViewers(t *testing.T) {
	b := newBench(t, nil)
	v := b.open(wire.TerminalOpen{}, "bash", "--norc", "--noprofile", "-i")
	v.types("echo o''ne\n")
	v.out.shows("one\r\n")
	w := b.attach(v.Terminal, nil, stream.Owner{Session: "other", Holder: "owner", Owner: "owner"})
	w.types("echo t''wo\n")
	v.out.shows("two\r\n")
	w.out.shows("two\r\n")
	slow := b.attach(v.Terminal, nil, alice)
	slow.out.mu.Lock()
	slow.out.stuck = true
	slow.out.mu.Unlock()
	if i := b.s.List(alice); i[0].Viewers != 3 {
		t.Errorf("%+v", i)
	}
	v.types("head -c 3000000 /dev/zero | tr '\\0' x; echo; exit\n")
	out, _ := v.out.ends()
	if n := strings.Count(out, "x"); n < 3000000 || v.out.lost {
		t.Errorf("%d of it came, lost %t", n, v.out.lost)
	}
	if _, err := b.s.Attach(wire.TerminalAttach{Terminal: v.Terminal}, bob); !errors.Is(err, wire.TerminalNotFound) {
		t.Errorf("somebody else's: %v", err)
	}
	if len(b.s.List(bob)) != 0 {
		t.Error("somebody else sees it")
	}
}

// A screen that is still right goes on, one that isn't begins at a line.
func TestResume(t *testing.T) {
	b := newBench(t, nil)
	v := b.open(wire.TerminalOpen{PTY: no()}, "sh", "-c", "echo begin; read x; i=0; while [ $i -lt 40000 ]; do i=$((i+1)); echo line $i of those that push out the first ones; done")
	v.out.shows("begin\n")
	if w := b.attach(v.Terminal, &wire.TerminalOffsets{Out: 3}, alice); !w.Resumed || w.From.Out != 3 {
		t.Errorf("%+v", w.TerminalOpened)
	} else {
		w.out.shows("in\n")
	}
	v.types("\n")
	all, _ := v.out.ends()
	if v.out.lost || !strings.HasSuffix(all, "line 40000 of those that push out the first ones\n") {
		t.Errorf("lost %t", v.out.lost)
	}
	w := b.attach(v.Terminal, &wire.TerminalOffsets{Out: 3}, alice)
	rest, _ := w.out.ends()
	if w.Resumed || !strings.HasPrefix(rest, "line ") || !strings.HasSuffix(all, rest) || w.From.Out != int64(len(all)-len(rest)) || len(rest) < wire.TerminalPipeRing-100 {
		t.Errorf("%+v: %d of %d bytes", w.TerminalOpened, len(rest), len(all))
	}
	at := int64(len(all)) - 10
	if w := b.attach(v.Terminal, &wire.TerminalOffsets{Out: at}, alice); !w.Resumed {
		t.Errorf("%+v", w.TerminalOpened)
	} else if rest, end := w.out.ends(); rest != all[at:] || code(end) != 0 {
		t.Errorf("%q, %+v", rest, end)
	}
	for _, from := range []wire.TerminalOffsets{{Out: int64(len(all)) + 1}, {Out: -1}, {Out: at, Err: 1}} {
		if w := b.attach(v.Terminal, &from, alice); w.Resumed {
			t.Errorf("%+v is resumed", from)
		}
	}
}

// Closing hangs the program up, and ends what ignores that.
func TestClose(t *testing.T) {
	b := newBench(t, nil)
	v := b.open(wire.TerminalOpen{}, "bash", "--norc", "--noprofile", "-i")
	v.types("trap '' HUP TERM; echo re''ady; while :; do sleep 1; done\n")
	v.out.shows("ready")
	held := 0
	b.s.Hold("s", func() func() { held++; return func() { held-- } })
	if err := b.s.CloseTerminal(t.Context(), v.Terminal, bob); !errors.Is(err, wire.TerminalNotFound) {
		t.Error(err)
	}
	if err := b.s.CloseTerminal(t.Context(), v.Terminal, alice); err != nil {
		t.Fatal(err)
	}
	if _, end := v.out.ends(); end.Reason != stream.ReasonClosed || code(end) != -9 {
		t.Errorf("%+v", end)
	}
	if held != 0 {
		t.Error("the session is still held")
	}
	// A polite one ends by the hang-up.
	v = b.open(wire.TerminalOpen{}, "sh", "-c", "trap 'exit 5' HUP; echo ready; while :; do sleep 0.01; done")
	v.out.shows("ready")
	b.s.EndSession("another", "x")
	b.s.EndSession("s", stream.ReasonSessionEnded)
	if _, end := v.out.ends(); end.Reason != stream.ReasonSessionEnded || code(end) != 5 {
		t.Errorf("%+v", end)
	}
}

// What is discarded ends, and nobody gets what it wrote: neither of those that run
// nor of those that have ended, nor of one that is just being started.
func TestDiscard(t *testing.T) {
	b := newBench(t, nil)
	over := b.open(wire.TerminalOpen{}, "echo", "secret")
	over.out.ends()
	runs := b.open(wire.TerminalOpen{PTY: no()}, "sh", "-c", "echo secret; echo secret >&2; exec sleep 300")
	runs.out.shows("secret")
	runs.err.shows("secret")
	o, err := b.s.Open(Request{Owner: alice, Cwd: "/", Start: func(f Files) (Program, string, error) {
		b.s.Discard(stream.ReasonGrantRevoked)
		return starter("sh", "-c", "echo secret; exec sleep 300")(f)
	}})
	if err != nil {
		t.Fatal(err)
	}
	begins := b.view(o, alice)
	if got, end := begins.out.ends(); got != "" || end.Reason != stream.ReasonGrantRevoked {
		t.Errorf("one that began: %q, %+v", got, end)
	}
	if _, end := runs.out.ends(); end.Reason != stream.ReasonGrantRevoked {
		t.Errorf("one that ran: %+v", end)
	}
	for _, id := range []string{over.Terminal, runs.Terminal, begins.Terminal} {
		v := b.attach(id, nil, alice)
		if got, _ := v.out.ends(); got != "" {
			t.Errorf("later it has %q", got)
		}
		again := b.attach(id, &wire.TerminalOffsets{}, alice)
		if got, _ := again.out.ends(); got != "" {
			t.Errorf("from its beginning it has %q", got)
		}
	}
	if n := b.s.Running(); n != 0 {
		t.Errorf("%d run", n)
	}
}

func TestLimits(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Max = 2 })
	for range 2 {
		b.open(wire.TerminalOpen{}, "cat")
	}
	request := func(r wire.TerminalOpen) error {
		_, err := b.s.Open(Request{TerminalOpen: r, Owner: alice, Start: starter("cat")})
		return err
	}
	if err := request(wire.TerminalOpen{}); !errors.Is(err, wire.ShimOverloaded) {
		t.Error(err)
	}
	b.s.EndSession("", "enough")
	for range 2 {
		<-b.ended
	}
	for _, r := range []wire.TerminalOpen{{Columns: -1}, {Rows: wire.MaxTerminalSide + 1}, {Credit: -1}, {Credit: wire.MaxTerminalRoom + 1}} {
		if err := request(r); !errors.Is(err, wire.InvalidArgument) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	_, err := b.s.Open(Request{Owner: alice, Start: func(Files) (Program, string, error) { return nil, "", os.ErrNotExist }})
	if !errors.Is(err, os.ErrNotExist) || b.s.Running() != 0 || len(b.s.List(alice)) != 2 {
		t.Errorf("%v, %+v", err, b.s.List(alice))
	}
}

// Without a store a restart is the end, which the next start tells.
func TestRestartIsTheEnd(t *testing.T) {
	b := newBench(t, nil)
	v := b.open(wire.TerminalOpen{}, "cat")
	saved, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	if e := <-b.ended; e.Reason != stream.ReasonStopping {
		t.Errorf("%+v", e)
	}
	if err := os.WriteFile(b.path, saved, 0o600); err != nil { // as kill -9 leaves it
		t.Fatal(err)
	}
	b.begin(nil)
	if e := <-b.ended; e.ID != v.Terminal || e.Reason != wire.TerminalRestarted {
		t.Errorf("%+v", e)
	}
	if i := b.s.List(alice); len(i) != 1 || i[0].Ended.Reason != wire.TerminalRestarted || i[0].Program != "cat" {
		t.Errorf("%+v", i)
	}
	w := b.attach(v.Terminal, &wire.TerminalOffsets{Out: 5}, alice)
	if _, end := w.out.ends(); end.Reason != wire.TerminalRestarted || end.ExitCode != nil {
		t.Errorf("%+v", end)
	}
	w.types("x") // is gone
	b.stop()
	if err := os.WriteFile(b.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Hub: b.hub, Path: b.path}); err == nil {
		t.Error("a damaged file isn't told")
	}
}

// store keeps descriptors as a service manager does.
type store struct {
	mu    sync.Mutex
	files map[string]*os.File
}

func (s *store) Keep(name string, fd uintptr) error {
	n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = os.NewFile(uintptr(n), name)
	return nil
}

func (s *store) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[name]; f != nil {
		f.Close()
		delete(s.files, name)
	}
	return nil
}

func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files)
}

// passed are copies for the next process.
func (s *store) passed(t *testing.T) map[string]*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*os.File)
	for name, f := range s.files {
		n, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = os.NewFile(uintptr(n), name)
	}
	return all
}

// kept is a child that stands in for a program of another process.
type kept struct {
	*child
	f *os.File
}

func (k kept) Descriptor(do func(fd uintptr) error) error {
	return control(k.f, func(fd int) error { return do(uintptr(fd)) })
}
func (k kept) Leave() { k.f.Close() }

func (k kept) Reap() (int, error) {
	k.f.Close()
	return k.child.Reap()
}

// With one, the program goes on over a restart, and nothing of what it writes and
// is told is lost or doubled.
func TestRestart(t *testing.T) {
	st := &store{files: make(map[string]*os.File)}
	var program *child
	keep := func(o *Options) {
		o.Keep = &Keep{Store: st, Restored: st.passed(t), Adopt: func(f *os.File) (Program, error) {
			return kept{program, f}, nil
		}}
	}
	start := func(f Files) (Program, string, error) {
		p, name, err := starter("bash", "--norc", "--noprofile", "-i")(f)
		if err != nil {
			return nil, "", err
		}
		program = p.(*child)
		file, err := os.Open(os.DevNull)
		return kept{program, file}, name, err
	}
	b := newBench(t, keep)
	o, err := b.s.Open(Request{Owner: alice, Start: start})
	if err != nil {
		t.Fatal(err)
	}
	v := b.view(o, alice)
	v.types("PS1=; printf '%s\\n' be''fore; head -c 1500000 /dev/zero | tr '\\0' x; echo d''one\n")
	v.out.shows("done")
	before, _ := string(v.out.got), v.out.end
	b.stop()
	if len(st.files) != 3 {
		t.Errorf("kept: %v", st.files)
	}
	at := int64(len(before))
	b.begin(keep)
	v.b = b
	if v.sends(0, "PS1=; printf", false) != v.typed {
		t.Error("what was typed before is typed again")
	}
	v.types("echo af''ter\n")
	w := b.attach(v.Terminal, &wire.TerminalOffsets{Out: at}, alice)
	if !w.Resumed {
		t.Errorf("%+v", w.TerminalOpened)
	}
	w.out.shows("after\r\n")
	all := b.attach(v.Terminal, nil, alice)
	if all.Resumed || all.From.Out == 0 {
		t.Errorf("%+v", all.TerminalOpened)
	}
	v.types("exit 4\n")
	rest, end := w.out.ends()
	if code(end) != 4 || end.Reason != wire.TerminalExited {
		t.Errorf("%+v", end)
	}
	whole := before + rest
	if got, _ := all.out.ends(); got != whole[all.From.Out:] {
		t.Errorf("%d bytes from %d on, of %d", len(got), all.From.Out, len(whole))
	}
	if len(st.files) != 0 {
		t.Errorf("still kept: %v", st.files)
	}
	b.stop()
}

// What is typed after the end of the input is gone, over a restart, too.
func TestRestartWithoutInput(t *testing.T) {
	st := &store{files: make(map[string]*os.File)}
	var program *child
	keep := func(o *Options) {
		o.Keep = &Keep{Store: st, Restored: st.passed(t), Adopt: func(f *os.File) (Program, error) { return kept{program, f}, nil }}
	}
	b := newBench(t, keep)
	o, err := b.s.Open(Request{TerminalOpen: wire.TerminalOpen{PTY: no()}, Owner: alice, Start: func(f Files) (Program, string, error) {
		p, name, err := starter("sh", "-c", "cat; echo read; exec sleep 300")(f)
		if err != nil {
			return nil, "", err
		}
		program = p.(*child)
		file, err := os.Open(os.DevNull)
		return kept{program, file}, name, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	v := b.view(o, alice)
	v.sends(0, "x", true)
	v.out.shows("read")
	b.stop()
	b.begin(keep)
	v.b = b
	if next := v.sends(1, "yz", true); next != 3 {
		t.Errorf("taken up to %d", next)
	}
	if next := v.sends(3, "", true); next != 3 {
		t.Errorf("taken up to %d", next)
	}
	b.s.EndSession("", stream.ReasonGrantRevoked)
	if e := <-b.ended; e.ID != v.Terminal || e.Reason != stream.ReasonGrantRevoked {
		t.Errorf("%+v", e)
	}
}

// hungUp is a kept program that tells what the store has when it is asked to end.
type hungUp struct {
	kept
	st   *store
	left chan int
}

func (h hungUp) Terminate() {
	h.left <- h.st.count()
	h.kept.Terminate()
}

// What is to end isn't taken over by the next process, which would go on with it if
// this one were killed at that moment.
func TestEndingIsNotKept(t *testing.T) {
	st := &store{files: make(map[string]*os.File)}
	b := newBench(t, func(o *Options) { o.Keep = &Keep{Store: st} })
	left := make(chan int, 1)
	o, err := b.s.Open(Request{TerminalOpen: wire.TerminalOpen{PTY: no()}, Owner: alice, Start: func(f Files) (Program, string, error) {
		p, name, err := starter("sleep", "300")(f)
		if err != nil {
			return nil, "", err
		}
		file, err := os.Open(os.DevNull)
		return hungUp{kept{p.(*child), file}, st, left}, name, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if n := st.count(); n != 5 {
		t.Errorf("%d descriptors are kept", n)
	}
	b.s.EndSession("", stream.ReasonGrantRevoked)
	if n := <-left; n != 0 {
		t.Errorf("while it ends %d descriptors are kept", n)
	}
	b.view(o, alice).out.ends()
}

// What a store holds that nobody knows, or in parts, is given back.
func TestStrays(t *testing.T) {
	st := &store{files: make(map[string]*os.File)}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, name := range []string{StorePrefix + "abc-pty", StorePrefix + "abc-log", StorePrefix + "xyz-log", "gpio-1"} {
		if err := st.Keep(name, null.Fd()); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "terminals.json")
	if err := os.WriteFile(path, []byte(`{"version":1,"terminals":[{"id":"abc","pty":true,"owner":{"Session":"s"},"opened_at":"2026-01-01T00:00:00Z"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := stream.NewHub(stream.HubOptions{})
	defer hub.Close()
	s, err := New(Options{Hub: hub, Path: path, Keep: &Keep{Store: st, Restored: st.passed(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(st.files) != 1 || st.files["gpio-1"] == nil {
		t.Errorf("kept: %v", st.files)
	}
	st.Remove("gpio-1")
	if i := s.List(alice); len(i) != 1 || i[0].Ended.Reason != wire.TerminalRestarted {
		t.Errorf("%+v", i)
	}
}

// What was read when the process was killed is there, once, whenever that was.
func TestKilledWhileReading(t *testing.T) {
	for _, text := range []string{"", "x", "some output\r\n", strings.Repeat("y", scratchSize)} {
		for _, when := range []string{"read", "noted", "blanked"} {
			file, err := newJournalFile()
			if err != nil {
				t.Fatal(err)
			}
			j, err := openJournal(file, true)
			if err != nil {
				t.Fatal(err)
			}
			buf, keep := j.buffer(0)
			keep(copy(buf, "before "))
			n := copy(buf, text)
			switch when {
			case "noted":
				j.append(0, 7, buf[:n])
			case "blanked":
				keep(n)
			}
			hub := stream.NewHub(stream.HubOptions{})
			x, err := hub.Share(wire.TerminalRing, stream.Owner{})
			if err != nil {
				t.Fatal(err)
			}
			if err := j.restore(0, x); err != nil || x.Next() != int64(7+n) {
				t.Errorf("%d bytes, %s: restored to %d, %v", n, when, x.Next(), err)
			}
			if buf, keep := j.buffer(0); len(buf) != scratchSize || j.number(8) != 0 {
				t.Error("err has something")
			} else {
				keep(copy(buf, "z"))
			}
			if j.number(0) != int64(8+n) {
				t.Errorf("goes on at %d", j.number(0))
			}
			j.close()
			hub.Close()
		}
	}
}

// FuzzJournal: whatever is in the memory that an earlier process left, restoring
// it neither fails badly nor reads what isn't there.
func FuzzJournal(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0})
	f.Add(bytes.Repeat([]byte{0xff}, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := newJournalFile()
		if err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(file, true)
		if err != nil {
			t.Fatal(err)
		}
		defer j.close()
		copy(j.mapped, b)
		hub := stream.NewHub(stream.HubOptions{})
		defer hub.Close()
		x, err := hub.Share(wire.TerminalRing, stream.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.restore(0, x); err == nil && x.Next()-x.Oldest() > wire.TerminalRing {
			t.Errorf("%d to %d", x.Oldest(), x.Next())
		}
		for name, w := range j.writers() {
			if len(name) > maxWriterName || w.next < 0 {
				t.Errorf("%q: %+v", name, w)
			}
		}
		_ = fmt.Sprint(x.Line())
	})
}
