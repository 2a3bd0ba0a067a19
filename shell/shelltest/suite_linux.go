// Package shelltest has the contract of shell.Runner as tests, for whatever starts
// programs: this process, or a helper that runs as another user.
package shelltest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/shell"
	"farhand/wire"
)

// Suite tests a runner.
type Suite struct {
	// Open makes a runner that is closed by the test's clean-up.
	Open func(t *testing.T) shell.Runner
	// Dir is a directory that commands may enter and write to; nil: t.TempDir.
	Dir func(t *testing.T) string
}

// Run runs every test of the contract.
func (s Suite) Run(t *testing.T) {
	if s.Dir == nil {
		s.Dir = func(t *testing.T) string { return t.TempDir() }
	}
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"result", result}, {"signal", signal}, {"stdin", stdin}, {"environment", environment},
		{"directory", directory}, {"directory gone", directoryGone}, {"directory moved", directoryMoved},
		{"not started", notStarted}, {"descriptors", descriptors}, {"session", session}, {"terminal", terminal},
		{"ends within", endsWithin}, {"terminate", terminate}, {"kill", kill}, {"kill what the leader left", killLeft},
		{"background", background}, {"abandoned", abandoned}, {"many at once", many}, {"large request", large}, {"service", service},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&bench{T: t, runner: s.Open(t), dir: s.Dir(t)}) })
	}
}

// bench is a runner with a directory.
type bench struct {
	*testing.T
	runner shell.Runner
	dir    string
}

// patience bounds waits for what takes a moment.
const patience = 10 * time.Second

// running is a program and what it writes.
type running struct {
	shell.Process
	b        *bench
	out, err bytes.Buffer
	read     sync.WaitGroup
}

func (b *bench) spec(argv ...string) shell.Spec {
	return shell.Spec{Argv: argv, Env: []string{"PATH=" + shell.DefaultPath}, Path: shell.DefaultPath}
}

// start starts a program in the bench's directory unless spec names another.
func (b *bench) start(spec shell.Spec) (*running, error) {
	b.Helper()
	if spec.Dir == nil {
		spec.Dir = b.open(b.dir)
	}
	r := &running{b: b}
	for _, end := range []struct {
		file **os.File
		to   *bytes.Buffer
	}{{&spec.Stdout, &r.out}, {&spec.Stderr, &r.err}} {
		pr, pw, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		*end.file = pw
		defer pw.Close()
		r.read.Go(func() {
			defer pr.Close()
			_, _ = io.Copy(end.to, pr) // what came is compared
		})
	}
	p, err := b.runner.Start(b.Context(), spec)
	r.Process = p
	return r, err
}

func (b *bench) open(dir string) *os.File {
	b.Helper()
	f, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

func (b *bench) mustStart(spec shell.Spec) *running {
	b.Helper()
	r, err := b.start(spec)
	if err != nil {
		b.Fatalf("start %q: %v", spec.Argv, err)
	}
	return r
}

// wait waits for the leader's end and collects it.
func (r *running) wait() shell.Status {
	r.b.Helper()
	select {
	case <-r.Exited():
	case <-time.After(patience):
		r.Kill(time.Second)
		r.b.Error("the program didn't end")
	}
	status, err := r.Reap()
	if err != nil {
		r.b.Errorf("reap: %v", err)
	}
	return status
}

// all is wait, and then the output to its end.
func (r *running) all() (stdout, stderr string, status shell.Status) {
	r.b.Helper()
	status = r.wait()
	r.read.Wait()
	return r.out.String(), r.err.String(), status
}

func (b *bench) sh(line string) *running {
	b.Helper()
	return b.mustStart(b.spec("sh", "-c", line))
}

// eventually asks until the condition holds.
func (b *bench) eventually(what string, holds func() bool) {
	b.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			b.Fatalf("never: %s", what)
		case <-again.C:
		}
	}
}

// pid reads the number that a program wrote into a file.
func (b *bench) pid(name string) int {
	b.Helper()
	n := 0
	b.eventually("a pid in "+name, func() bool {
		data, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil || !bytes.HasSuffix(data, []byte("\n")) {
			return false
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	})
	return n
}

// alive says whether a process runs; a zombie doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := stat[bytes.LastIndexByte(stat, ')')+1:]
	fields := bytes.Fields(after)
	return len(fields) > 0 && fields[0][0] != 'Z' && fields[0][0] != 'X'
}

func result(b *bench) {
	out, errs, status := b.sh("echo out; echo err >&2; exit 7").all()
	if out != "out\n" || errs != "err\n" || status.WireCode() != 7 {
		b.Errorf("%q, %q, %d", out, errs, status.WireCode())
	}
}

func signal(b *bench) {
	if _, _, status := b.sh("kill -KILL $$").all(); status.Signal != syscall.SIGKILL {
		b.Errorf("%+v", status)
	}
}

func stdin(b *bench) {
	if out, _, _ := b.sh("wc -c").all(); strings.TrimSpace(out) != "0" {
		b.Errorf("without stdin %q bytes were read", out)
	}
	name := filepath.Join(b.dir, "in")
	if err := os.WriteFile(name, []byte("given"), 0o600); err != nil {
		b.Fatal(err)
	}
	spec := b.spec("cat")
	spec.Stdin = b.open(name)
	if out, _, _ := b.mustStart(spec).all(); out != "given" {
		b.Errorf("stdin is %q", out)
	}
}

// Field case 53: what belongs to the daemon, such as its service manager's socket,
// isn't the command's.
func environment(b *bench) {
	b.Setenv("NOTIFY_SOCKET", "/run/mark")
	b.Setenv("WATCHDOG_PID", "1")
	b.Setenv("FARHAND_TEST_MARK", "of the runner")
	spec := b.spec("env")
	spec.Env = append(spec.Env, "ASKED=for", "EMPTY=", "BYTES=\xff\xfe")
	out, _, _ := b.mustStart(spec).all()
	for _, want := range []string{"ASKED=for\n", "EMPTY=\n", "BYTES=\xff\xfe\n"} {
		if !strings.Contains(out, want) {
			b.Errorf("%q isn't in %q", want, out)
		}
	}
	for _, never := range []string{"FARHAND_", "NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_"} {
		if strings.Contains(out, never) {
			b.Errorf("%s is in the environment: %q", never, out)
		}
	}
}

func directory(b *bench) {
	sub := filepath.Join(b.dir, "sub")
	if err := os.Mkdir(sub, 0o777); err != nil {
		b.Fatal(err)
	}
	spec := b.spec("pwd", "-P")
	spec.Dir = b.open(sub)
	want, err := filepath.EvalSymlinks(sub)
	if err != nil {
		b.Fatal(err)
	}
	if out, errs, _ := b.mustStart(spec).all(); out != want+"\n" {
		b.Errorf("%q %q, want %q", out, errs, want)
	}
}

func directoryGone(b *bench) {
	sub := filepath.Join(b.dir, "sub")
	if err := os.Mkdir(sub, 0o777); err != nil {
		b.Fatal(err)
	}
	spec := b.spec("pwd")
	spec.Dir = b.open(sub)
	if err := os.Remove(sub); err != nil {
		b.Fatal(err)
	}
	if _, err := b.start(spec); !errors.Is(err, shell.ErrDirGone) {
		b.Errorf("%v, want ErrDirGone", err)
	}
}

// The directory is the one that was opened, whatever is done to its name.
func directoryMoved(b *bench) {
	was, is := filepath.Join(b.dir, "was"), filepath.Join(b.dir, "is")
	if err := os.Mkdir(was, 0o777); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(was, "right"), nil, 0o666); err != nil {
		b.Fatal(err)
	}
	spec := b.spec("ls")
	spec.Dir = b.open(was)
	if err := os.Rename(was, is); err != nil {
		b.Fatal(err)
	}
	if err := os.Mkdir(was, 0o777); err != nil {
		b.Fatal(err)
	}
	if out, errs, _ := b.mustStart(spec).all(); out != "right\n" {
		b.Errorf("%q %q", out, errs)
	}
}

func notStarted(b *bench) {
	for name, content := range map[string]struct {
		text string
		mode os.FileMode
	}{"plain": {"text", 0o644}, "odd": {"\x01no program", 0o755}} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content.text), content.mode); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		program string
		want    error
	}{
		{"no-such-program", fs.ErrNotExist}, {"./none", fs.ErrNotExist}, {"", fs.ErrNotExist},
		{"./plain", fs.ErrPermission}, {"./odd", unix.ENOEXEC},
	} {
		if _, err := b.start(b.spec(c.program)); !errors.Is(err, c.want) {
			b.Errorf("%q: %v, want %v", c.program, err, c.want)
		}
	}
	if _, err := b.start(shell.Spec{}); !errors.Is(err, fs.ErrNotExist) {
		b.Errorf("no argv: %v", err)
	}
	if _, err := b.start(b.spec("true", strings.Repeat("x", 1<<20))); !errors.Is(err, unix.E2BIG) {
		b.Errorf("an argument of 1 MiB: %v, want E2BIG", err)
	}
}

func descriptors(b *bench) {
	// ls itself opens the directory that it lists, as one more.
	out, _, _ := b.mustStart(b.spec("ls", "/proc/self/fd")).all()
	if got := strings.Fields(out); len(got) != 4 {
		b.Errorf("open: %q", got)
	}
}

func session(b *bench) {
	out, _, _ := b.sh("echo $$; cat /proc/$$/stat").all()
	pid, stat, _ := strings.Cut(out, "\n")
	_, after, ok := strings.Cut(stat, ") ")
	fields := strings.Fields(after)
	if !ok || len(fields) < 4 || fields[2] != pid || fields[3] != pid { // process group, session
		b.Errorf("pid %s: %q", pid, stat)
	}
}

// openTerminal makes a pseudo-terminal, pty(7).
func (b *bench) openTerminal() (master, slave *os.File) {
	b.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		b.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		b.Fatal(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { slave.Close() })
	return master, slave
}

func terminal(b *bench) {
	_, slave := b.openTerminal()
	spec := b.spec("sh", "-c", "test -t 0 && : </dev/tty && echo mine")
	spec.Stdin, spec.Terminal = slave, true
	if out, errs, _ := b.mustStart(spec).all(); out != "mine\n" {
		b.Errorf("%q %q", out, errs)
	}
	if out, _, _ := b.sh("( : </dev/tty ) 2>/dev/null || echo none").all(); out != "none\n" {
		b.Errorf("without asking for one there is a controlling terminal: %q", out)
	}
}

func endsWithin(b *bench) {
	quick := b.mustStart(b.spec("true"))
	if !quick.EndsWithin(patience) {
		b.Error("true didn't end")
	}
	quick.wait()
	slow := b.mustStart(b.spec("sleep", "300"))
	if slow.EndsWithin(time.Millisecond) {
		b.Error("sleep 300 has ended")
	}
	slow.Kill(time.Second)
	if status := slow.wait(); status.Signal != syscall.SIGKILL {
		b.Errorf("%+v", status)
	}
}

func terminate(b *bench) {
	r := b.sh("trap 'echo bye; exit 3' TERM; echo ready >ready; while :; do sleep 0.05; done")
	b.eventually("the trap is set", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "ready"))
		return err == nil
	})
	r.Terminate()
	if out, _, status := r.all(); out != "bye\n" || status.Code != 3 {
		b.Errorf("%q, %+v", out, status)
	}
	r.Terminate() // of one that is collected: nothing
}

func kill(b *bench) {
	r := b.sh("trap '' TERM; setsid sh -c 'echo $$ >inner; exec sleep 300' & echo $$ >outer; wait")
	outer, inner := b.pid("outer"), b.pid("inner")
	r.Terminate()
	r.Kill(5 * time.Second)
	if status := r.wait(); status.Signal != syscall.SIGKILL {
		b.Errorf("%+v", status)
	}
	b.eventually("all gone", func() bool { return !alive(outer) && !alive(inner) })
	r.read.Wait()
}

// A leader that obeys SIGTERM may leave what doesn't.
func killLeft(b *bench) {
	r := b.sh("(trap '' TERM; echo ready >ready; exec sleep 300) & echo $! >left; wait")
	left := b.pid("left")
	b.eventually("the child ignores SIGTERM", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "ready"))
		return err == nil
	})
	r.Terminate()
	select {
	case <-r.Exited():
	case <-time.After(patience):
		b.Error("the leader ignored SIGTERM")
	}
	r.Kill(5 * time.Second)
	if status := r.wait(); status.Signal != syscall.SIGTERM {
		b.Errorf("%+v", status)
	}
	b.eventually("the child is gone", func() bool { return !alive(left) })
}

func background(b *bench) {
	r := b.sh("sleep 300 >/dev/null 2>&1 & echo $! >pid")
	r.all()
	pid := b.pid("pid")
	defer syscall.Kill(pid, syscall.SIGKILL)
	b.sh("true").all()
	if !alive(pid) {
		b.Error("what a command left in the background was ended with it")
	}
}

// What can't even be killed doesn't hold up its caller.
func abandoned(b *bench) {
	r := b.sh("echo $$ >pid; exec sleep 300")
	pid := b.pid("pid")
	defer syscall.Kill(pid, syscall.SIGKILL)
	if status, err := r.Reap(); status.Signal != syscall.SIGKILL || err != nil {
		b.Errorf("%+v, %v", status, err)
	}
	r.Kill(time.Second) // harmless now
}

func many(b *bench) {
	const n = 20
	var all [n]*running
	for i := range all {
		all[i] = b.sh(fmt.Sprintf("echo %d; exit %d", i, i))
	}
	for i, r := range all {
		if out, _, status := r.all(); out != fmt.Sprintf("%d\n", i) || status.Code != i {
			b.Errorf("command %d: %q, %+v", i, out, status)
		}
	}
}

// A request that is longer than a socket takes at once.
func large(b *bench) {
	spec := b.spec("sh", "-c", `printf %s "$#"`, "sh")
	arg := strings.Repeat("x", 100<<10)
	for range 8 {
		spec.Argv = append(spec.Argv, arg)
	}
	if out, errs, _ := b.mustStart(spec).all(); out != "8" {
		b.Errorf("%q %q", out, errs)
	}
}

// The same through the service that serves sessions.
func service(b *bench) {
	s := shell.New(shell.Config{Runner: b.runner, Environ: []string{"PATH=" + shell.DefaultPath}})
	place := shell.Place{Dir: b.open(b.dir), Path: b.dir}
	line, within := "echo started; (setsid sleep 300 & echo $! >pid); sleep 300", 0.5
	got, _, err := s.Execute(b.Context(), wire.ExecuteCommand{Command: &line, TimeoutSeconds: &within}, place, shell.Limits{})
	if err != nil || !got.TimedOut || got.Stdout != "started\n" {
		b.Errorf("%+v, %v", got, err)
	}
	pid := b.pid("pid")
	b.eventually("all gone", func() bool { return !alive(pid) })
	line = "exit 5"
	got, _, err = s.Execute(b.Context(), wire.ExecuteCommand{Command: &line}, place, shell.Limits{})
	if err != nil || got.ExitCode != 5 || got.TimedOut {
		b.Errorf("%+v, %v", got, err)
	}
}
