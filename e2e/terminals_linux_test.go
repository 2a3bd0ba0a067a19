package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"farhand/client"
	"farhand/internal/testenv"
	"farhand/wire"
)

// viewing reads a terminal in the background.
type viewing struct {
	t    *testing.T
	term *client.Terminal
	done chan struct{}
	more chan struct{}

	mu       sync.Mutex
	out, err []byte
	begun    bool
	base     int64 // where out began
	resets   int
	end      *wire.StreamEnd
	failed   error
}

func view(t *testing.T, term *client.Terminal, err error) *viewing {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	v := &viewing{t: t, term: term, done: make(chan struct{}), more: make(chan struct{}, 1)}
	go func() {
		defer close(v.done)
		for v.next() {
		}
	}()
	t.Cleanup(func() {
		term.Detach()
		<-v.done
	})
	return v
}

func (v *viewing) next() bool {
	o, err := v.term.Next(context.Background())
	v.mu.Lock()
	defer v.mu.Unlock()
	defer func() {
		select {
		case v.more <- struct{}{}:
		default:
		}
	}()
	if err != nil {
		v.failed = err
		return false
	}
	to, at := &v.out, v.base+int64(len(v.out))
	switch {
	case o.Stderr:
		to, at = &v.err, int64(len(v.err))
	case !v.begun && len(o.Data) > 0:
		v.begun, v.base, at = true, o.Offset, o.Offset
	}
	if o.Lost != nil || !o.Reset && len(o.Data) > 0 && v.resets == 0 && o.Offset != at {
		v.failed = fmt.Errorf("at %d: offset %d, lost %+v", at, o.Offset, o.Lost)
		return false
	}
	*to = append(*to, o.Data...)
	if o.Reset {
		v.resets++
	}
	v.end = o.End
	return o.End == nil
}

// until waits until so much came, or what it is that is waited for.
func (v *viewing) until(what string, ok func(out string, end *wire.StreamEnd) bool) string {
	v.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		v.mu.Lock()
		out, end, failed := string(v.out), v.end, v.failed
		v.mu.Unlock()
		switch {
		case ok(out, end):
			return out
		case failed != nil && !errors.Is(failed, io.EOF):
			v.t.Fatalf("no %s: %v (%d bytes)", what, failed, len(out))
		}
		select {
		case <-v.more:
		case <-timer.C:
			v.t.Fatalf("no %s in %d bytes: …%q; %v", what, len(out), out[max(0, len(out)-300):], v.term.Trouble())
		}
	}
}

func (v *viewing) shows(text string) {
	v.t.Helper()
	v.until(text, func(out string, _ *wire.StreamEnd) bool { return strings.Contains(out, text) })
}

func (v *viewing) ends() (string, wire.StreamEnd) {
	v.t.Helper()
	out := v.until("end", func(_ string, end *wire.StreamEnd) bool { return end != nil })
	return out, *v.end
}

func (v *viewing) types(text string) {
	v.t.Helper()
	if _, err := v.term.Write(v.t.Context(), []byte(text)); err != nil {
		v.t.Fatal(err)
	}
}

func exitOf(e wire.StreamEnd) int {
	if e.ExitCode == nil {
		return -999
	}
	return *e.ExitCode
}

var pipes = new(bool)

// Output comes byte for byte and input once, whatever becomes of the links.
func TestTerminalsOverLostLinks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	ctx := t.Context()
	s, err := b.sdk().Open(ctx, b.place())
	if err != nil {
		t.Fatal(err)
	}
	const script = `i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo "this is line $i of sixty thousand"; done; echo aside >&2; exit 9`
	term, err := s.OpenTerminal(ctx, wire.TerminalOpen{Argv: []string{"sh", "-c", script}, PTY: pipes})
	long := view(t, term, err)
	term, err = s.OpenTerminal(ctx, wire.TerminalOpen{Argv: []string{"cat"}, PTY: pipes})
	cat := view(t, term, err)
	var typed strings.Builder
	say := func(n int) {
		t.Helper()
		for i := range n {
			text := fmt.Sprintf("word %d of %d\n", i, n)
			cat.types(text)
			typed.WriteString(text)
		}
	}
	say(20)
	long.shows("line 500 ")
	b.relay.kill()
	written := make(chan struct{})
	go func() { // while nobody is there
		defer close(written)
		say(30)
	}()
	b.startRelay()
	<-written
	say(20)
	b.relay.stop()
	b.startRelay()
	say(10)
	out, end := long.ends()
	var want bytes.Buffer
	for i := range 60000 {
		fmt.Fprintf(&want, "this is line %d of sixty thousand\n", i+1)
	}
	if out != want.String() || exitOf(end) != 9 || string(long.err) != "aside\n" {
		t.Errorf("%d of %d bytes, %+v, %q", len(out), want.Len(), end, long.err)
	}
	if err := cat.term.CloseInput(ctx); err != nil {
		t.Fatal(err)
	}
	if out, end := cat.ends(); out != typed.String() || exitOf(end) != 0 {
		t.Errorf("typed %d bytes, came %d: %+v", typed.Len(), len(out), end)
	}
	// Who comes now learns how it ended, and by another login of the same owner.
	other, err := b.sdk().Open(ctx, b.place())
	if err != nil {
		t.Fatal(err)
	}
	term, err = other.AttachTerminal(ctx, long.term.ID(), nil)
	late := view(t, term, err)
	if out, end := late.ends(); exitOf(end) != 9 || !strings.HasSuffix(want.String(), out) || !strings.HasPrefix(out, "this is line ") {
		t.Errorf("%+v, %d bytes", end, len(out))
	}
	list, err := other.Terminals(ctx)
	if err != nil || len(list) != 2 || list[0].Ended == nil || *list[0].Ended.ExitCode != 9 || list[0].Program != "sh" {
		t.Errorf("%+v, %v", list, err)
	}
}

// Nobody sees or opens a terminal who may not: a token without shell, another
// token, and no one after the owner has withdrawn shell.
func TestTerminalsArePolicy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	ctx := t.Context()
	open := func(c *client.Client) *client.Session {
		t.Helper()
		s, err := c.Open(ctx, b.place())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	owner := b.sdk()
	token := open(b.sdkWith(b.newToken("agent", "--capability", "shell,files")))
	term, err := token.OpenTerminal(ctx, wire.TerminalOpen{})
	mine := view(t, term, err)
	mine.types("echo o''ne\n")
	mine.shows("one\r\n")

	blind := open(b.sdkWith(b.newToken("blind", "--capability", "files")))
	if _, err := blind.OpenTerminal(ctx, wire.TerminalOpen{}); !errors.Is(err, wire.CapabilityNotGranted) || wire.AsError(err).Details["ceiling"] != "token" {
		t.Errorf("without shell: %v", err)
	}
	stranger := open(b.sdkWith(b.newToken("stranger", "--capability", "shell")))
	if _, err := stranger.AttachTerminal(ctx, term.ID(), nil); !errors.Is(err, wire.TerminalNotFound) {
		t.Errorf("a stranger: %v", err)
	}
	if list, err := stranger.Terminals(ctx); err != nil || len(list) != 0 {
		t.Errorf("a stranger sees %+v, %v", list, err)
	}
	// The owner may watch, and type.
	term, err = open(owner).AttachTerminal(ctx, term.ID(), nil)
	watched := view(t, term, err)
	watched.types("echo t''wo\n")
	mine.shows("two\r\n")
	watched.shows("two\r\n")

	if _, err := owner.EditApproval(ctx, "bench", func(allow *wire.Ceiling) error {
		allow.Capabilities = &[]wire.Capability{wire.Files}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, end := watched.ends(); end.Reason != "grant_revoked" {
		t.Errorf("%+v", end)
	}
	var ops []string
	for _, r := range b.records() {
		if strings.HasPrefix(r.Op, "TERMINAL_") {
			ops = append(ops, r.Op)
		}
	}
	want := []string{"TERMINAL_OPEN", "TERMINAL_OPEN", "TERMINAL_INPUT", "TERMINAL_INPUT", "TERMINAL_ATTACH", "TERMINAL_ATTACH", "TERMINAL_INPUT", "TERMINAL_INPUT", "TERMINAL_END"}
	if fmt.Sprint(ops) != fmt.Sprint(want) {
		t.Errorf("recorded %q", ops)
	}
	b.wholeAudit()
}

// Without a service manager a restart of the daemon is the end, and is told as such.
func TestTerminalsEndWithTheDaemon(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	s, err := b.sdk().Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	term, err := s.OpenTerminal(t.Context(), wire.TerminalOpen{Argv: []string{"cat"}})
	v := view(t, term, err)
	v.types("hello\n")
	v.shows("hello\r\nhello\r\n")
	b.daemon.kill()
	b.startDaemon()
	if _, end := v.ends(); end.Reason != wire.TerminalRestarted {
		t.Errorf("%+v", end)
	}
	list, err := s.Terminals(t.Context())
	if err != nil || len(list) != 1 || list[0].Ended == nil || list[0].Ended.Reason != wire.TerminalRestarted {
		t.Errorf("%+v, %v", list, err)
	}
}

// With one and a helper, terminals outlive the daemon, also a kill -9.
func TestTerminalsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root", os.Getuid() == 0, "programs of another user are started")
	b := newBench(t)
	b.helper()
	b.claim("files,shell")
	b.daemon.stop()
	m := b.manager("manager")
	m.files = make(map[string]*os.File)
	m.startDaemon(b)
	b.daemon.await(0, `^Online`)
	s, err := b.sdk().Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	term, err := s.OpenTerminal(t.Context(), wire.TerminalOpen{Argv: []string{"bash", "--norc", "--noprofile", "-i"}})
	v := view(t, term, err)
	term, err = s.OpenTerminal(t.Context(), wire.TerminalOpen{PTY: pipes, Argv: []string{"sh", "-c", "read first; echo got $first; read second; echo got $second; echo aside >&2; exit 6"}})
	p := view(t, term, err)
	v.types("id -u; i=0\n")
	v.shows(fmt.Sprintf("%d\r\n", nobody))
	p.types("one\n")
	p.shows("got one\n")
	for i := range 3 {
		// Something is under way when it happens.
		v.types("while [ $i -lt " + fmt.Sprint(2000*(i+1)) + " ]; do i=$((i+1)); echo \"<$i>\"; done; echo round " + fmt.Sprint(i) + " d''one\n")
		v.shows(fmt.Sprintf("<%d>\r\n", 2000*i+200))
		if i == 0 {
			b.daemon.stop()
		} else {
			b.daemon.kill()
		}
		m.startDaemon(b)
		v.shows(fmt.Sprintf("round %d done\r\n", i))
	}
	p.types("two\n")
	if out, end := p.ends(); out != "got one\ngot two\n" || string(p.err) != "aside\n" || exitOf(end) != 6 {
		t.Errorf("%q, %q, %+v", out, p.err, end)
	}
	v.types("exit 5\n")
	out, end := v.ends()
	if exitOf(end) != 5 || v.resets != 0 {
		t.Errorf("%+v after %d resets", end, v.resets)
	}
	var want strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&want, "<%d>\r\n", i+1)
	}
	if got := strings.Join(regexp.MustCompile(`<\d+>\r\n`).FindAllString(out, -1), ""); got != want.String() {
		t.Errorf("%d bytes of numbers, want %d, or others", len(got), want.Len())
	}
	m.keeps(t, 0)
	b.daemon.stop()
	b.wholeAudit()
}

// helper starts a helper that runs commands as another user, and has the daemon use
// it.
func (b *bench) helper() {
	b.t.Helper()
	public, err := os.MkdirTemp("", "fh-helper-")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(public) })
	b.copyProgram("farhandd", public)
	for name, mode := range map[string]os.FileMode{public: 0o777, filepath.Join(public, "farhandd"): 0o755, b.dir: 0o755, b.root(): 0o777} {
		if err := os.Chmod(name, mode); err != nil {
			b.t.Fatal(err)
		}
	}
	socket := filepath.Join(public, "exec.sock")
	cmd := exec.Command(filepath.Join(public, "farhandd"), "exec-helper", "--for", "root", "--socket", socket)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	launch(b.t, "helper", cmd, []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "USER=nobody"})
	b.tables = fmt.Sprintf("[shell]\nenabled = true\nhelper = %q\n[limits]\nmax_commands_per_minute = 100000\n", socket)
}

// copyProgram copies a program into a directory. Another process does it: what we
// had open for writing, a child that is forked meanwhile would have open, too, and
// then it can't be executed (ETXTBSY, execve(2)).
func (b *bench) copyProgram(name, dir string) {
	b.t.Helper()
	if out, err := exec.Command("cp", program(name), dir).CombinedOutput(); err != nil {
		b.t.Fatalf("cp %s: %v\n%s", name, err, out)
	}
}

// person sits at a terminal in which a command runs.
type person struct {
	t    *testing.T
	keys *os.File
	more chan struct{}
	mu   sync.Mutex
	seen []byte
	gone chan struct{}
}

func (o operator) sits(columns, rows int, args ...string) *person {
	o.b.t.Helper()
	t := o.b.t
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		t.Fatal(err)
	}
	p := &person{t: t, keys: master, more: make(chan struct{}, 1), gone: make(chan struct{})}
	script := exec.Command("sh", "-c", `before=$(stty -g); "$@"; code=$?; [ "$before" = "$(stty -g)" ] && echo as before; echo code $code`, "sh", program("farhand"))
	script.Args = append(script.Args, args...)
	script.Env = append(o.b.env(o.env...), "TERM=xterm-256color")
	script.Dir = o.b.here()
	script.Stdin, script.Stdout, script.Stderr = tty, tty, tty
	script.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	go func() {
		defer close(p.gone)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			p.mu.Lock()
			p.seen = append(p.seen, buf[:n]...)
			p.mu.Unlock()
			select {
			case p.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		script.Process.Kill() // it may have ended
		script.Wait()
		<-p.gone
		master.Close()
	})
	return p
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := p.keys.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *person) sees(text string) string {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		p.mu.Lock()
		seen := string(p.seen)
		p.mu.Unlock()
		if strings.Contains(seen, text) {
			return seen
		}
		select {
		case <-p.more:
		case <-timer.C:
			p.t.Fatalf("no %q in %q", text, seen)
		}
	}
}

// A person at a terminal of 40 columns: the size, leaving and coming back, the exit
// code, and a terminal that is as it was on every way out.
func TestShellCommand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	p := b.owner.sits(40, 12, "shell", "bench", "--", "bash", "--norc", "--noprofile", "-i")
	p.types("PS1='rea''dy> '; stty size\n")
	p.sees("12 40\r\n")
	p.sees("ready> ") // before it asks, readline reads the size and sets it again: what comes in between is lost
	if err := pty.Setsize(p.keys, &pty.Winsize{Cols: 41, Rows: 13}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new size", func() error {
		if out := b.owner.must("terminals", "bench", "--json"); !strings.Contains(out, `"columns": 41`) {
			return errors.New(out)
		}
		return nil
	})
	p.types("stty size\n")
	p.sees("13 41\r\n")
	// The other screen is left when the terminal is left to itself.
	p.types("printf '\\033[?1049h\\033[?25lfull scr''een'\n")
	p.sees("full screen")
	p.types("\x1d")
	seen := p.sees("code 0\r\n")
	if _, after, _ := strings.Cut(seen, "full screen"); !strings.Contains(after, "\x1b[?1049l") || !strings.Contains(after, "\x1b[?25h") || !strings.Contains(after, "as before") {
		t.Errorf("left with %q", after)
	}
	if out := b.owner.must("terminals", "bench"); !strings.Contains(out, "bash") || !strings.Contains(out, "runs") {
		t.Errorf("%s", out)
	}
	if out := b.owner.must("__complete", "shell", "bench", "--attach", ""); !strings.Contains(out, "\tbash\n") {
		t.Errorf("completed as %q", out)
	}
	// Two come back, one of them without a terminal.
	q := b.owner.sits(40, 12, "shell", "bench", "--attach", "last")
	q.sees("full screen")
	log := b.owner.start("shell", "bench", "--attach", "last", "--escape", "none")
	eventually(t, "two viewers", func() error {
		if out := b.owner.must("terminals", "bench", "--json"); !strings.Contains(out, `"viewers": 2`) {
			return errors.New(out)
		}
		return nil
	})
	b.relay.stop()
	b.startRelay()
	q.types("printf '\\033[?1049l\\033[?25h'; echo af''ter\n")
	q.sees("after\r\n")
	q.types("exit 3\n")
	q.sees("as before\r\ncode 3\r\n")
	if code := log.exit(); code != 3 {
		t.Errorf("the other exits with %d", code)
	}
	if out := b.owner.must("terminals", "bench", "--all"); !strings.Contains(out, "exited 3") {
		t.Errorf("%s", out)
	}
	if out := b.owner.must("terminals", "bench"); out != "" {
		t.Errorf("still there: %s", out)
	}
	// What can't be reached, or isn't there, leaves it as it was, too.
	q = b.owner.sits(40, 12, "shell", "bench", "--", "no-such-program-here")
	q.sees("as before\r\ncode 255\r\n")
	q = b.owner.sits(40, 12, "shell", "bench", "--", "sleep", "1000")
	eventually(t, "the terminal", func() error {
		if out := b.owner.must("terminals", "bench"); !strings.Contains(out, "sleep") {
			return errors.New("not yet")
		}
		return nil
	})
	id := strings.Fields(strings.Split(b.owner.must("terminals", "bench"), "\n")[1])[0]
	b.owner.must("terminals", "close", "bench", id)
	q.sees("as before\r\ncode 255\r\n")
	if r := b.owner.feed("echo pi''ped; exit 4\n", "shell", "bench"); r.code != 4 || !strings.Contains(r.stdout, "piped") {
		t.Errorf("%+v", r)
	}
}
