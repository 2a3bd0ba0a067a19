package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/wire"

	"golang.org/x/sys/unix"
)

// bench is a service over the local runner in a directory of its own.
type bench struct {
	*Service
	t   testing.TB
	dir string
	at  Place
}

func newBench(t testing.TB, cgroup string, c Config) *bench {
	t.Helper()
	runner, err := NewLocal(LocalConfig{Cgroup: cgroup})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runner.Close() })
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	c.Runner = runner
	if c.Environ == nil {
		c.Environ = os.Environ()
	}
	if c.PerMinute == 0 {
		c.PerMinute = 10000
	}
	return &bench{New(c), t, dir, Place{Dir: f, Path: dir}}
}

func (b *bench) run(cmd wire.ExecuteCommand) wire.CommandResult {
	b.t.Helper()
	result, _, err := b.Execute(b.t.Context(), cmd, b.at, Limits{})
	if err != nil {
		b.t.Fatalf("execute: %v", err)
	}
	return result
}

func line(s string) wire.ExecuteCommand       { return wire.ExecuteCommand{Command: &s} }
func argv(args ...string) wire.ExecuteCommand { return wire.ExecuteCommand{Argv: args} }
func within(c wire.ExecuteCommand, seconds float64) wire.ExecuteCommand {
	c.TimeoutSeconds = &seconds
	return c
}

// eachWay runs a test by process tree and, where this machine lets us, by cgroup.
func eachWay(t *testing.T, f func(t *testing.T, cgroup string)) {
	t.Run("tree", func(t *testing.T) { f(t, "none") })
	t.Run("cgroup", func(t *testing.T) { f(t, testCgroup(t)) })
}

// testCgroup makes a cgroup that stands for a delegated one.
func testCgroup(t *testing.T) string {
	t.Helper()
	self, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	own, ok := ownCgroup(string(self), string(mounts))
	testenv.Need(t, "cgroup2", ok, "no cgroup v2 mounted")
	dir, err := os.MkdirTemp(own, "farhand-test-")
	testenv.Need(t, "cgroup2", err == nil, fmt.Sprint("can't make a cgroup: ", err))
	t.Cleanup(func() {
		os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		eventually(t, "cgroup removed", func() bool {
			inner, _ := filepath.Glob(filepath.Join(dir, "*-*"))
			for _, d := range inner {
				unix.Rmdir(d)
			}
			err := unix.Rmdir(dir)
			return err == nil || err == unix.ENOENT
		})
	})
	return dir
}

// eventually asks until the condition holds or a minute is over.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		case <-again.C:
		}
	}
}

// pids reads the process ids that a command wrote into a file, one a line.
func (b *bench) pids(name string, n int) []int {
	b.t.Helper()
	var pids []int
	eventually(b.t, fmt.Sprintf("%d pids in %s", n, name), func() bool {
		data, _ := os.ReadFile(filepath.Join(b.dir, name))
		pids = pids[:0]
		for _, s := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(s); err == nil {
				pids = append(pids, pid)
			}
		}
		return len(pids) == n
	})
	return pids
}

// alive says whether the process runs: a zombie doesn't.
func alive(pid int) bool {
	p, ok := readProc(pid)
	return ok && !p.dead()
}

func TestResult(t *testing.T) {
	eachWay(t, func(t *testing.T, cgroup string) {
		leak.Check(t)
		b := newBench(t, cgroup, Config{})
		for _, c := range []struct {
			name string
			cmd  wire.ExecuteCommand
			want wire.CommandResult
		}{
			{"argv", argv("printf", "%s|", "a b", "$HOME"), wire.CommandResult{Stdout: "a b|$HOME|"}},
			{"line", line("echo out; echo err >&2; exit 3"), wire.CommandResult{Stdout: "out\n", Stderr: "err\n", ExitCode: 3}},
			{"empty line", line(""), wire.CommandResult{}},
			{"signal", line("kill -9 $$"), wire.CommandResult{ExitCode: -9}},
			{"SIGTERM", argv("sh", "-c", "kill $$"), wire.CommandResult{ExitCode: -15}},
			{"stdin is empty", argv("cat"), wire.CommandResult{}},
			{"own session", line(`test "$(ps -o sid= -p $$ | tr -d ' ')" = $$ && echo yes`), wire.CommandResult{Stdout: "yes\n"}},
			{"cwd", line("pwd -P"), wire.CommandResult{Stdout: b.dir + "\n"}},
			{"no descriptors of ours", argv("sh", "-c", `for fd in 3 4 5 6 7 8 9; do test -e /proc/$$/fd/$fd && echo $fd; done; :`), wire.CommandResult{}},
		} {
			t.Run(c.name, func(t *testing.T) {
				got := b.run(c.cmd)
				got.DurationSeconds = 0
				if got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
			})
		}
	})
}

func TestShells(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"bash", "sh", "zsh", "pwsh"} {
		script := "#!/bin/sh\nprintf '%s ' " + name + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t, "none", Config{Environ: []string{"PATH=" + bin}})
	run := func(shell string) string {
		t.Helper()
		cmd := line("x y")
		cmd.Shell = shell
		cmd.Env = map[string]string{"PATH": "/nowhere"} // which shell runs isn't the request's to say
		return b.run(cmd).Stdout
	}
	for shell, want := range map[string]string{
		"": "bash -c x y ", "auto": "bash -c x y ", "bash": "bash -c x y ", "sh": "sh -c x y ", "zsh": "zsh -c x y ",
		"pwsh": "pwsh -NoLogo -NoProfile -Command x y ",
	} {
		if got := run(shell); got != want {
			t.Errorf("shell %q ran %q, want %q", shell, got, want)
		}
	}
	os.Remove(filepath.Join(bin, "bash"))
	if got := run("auto"); got != "sh -c x y " {
		t.Errorf("auto without bash ran %q", got)
	}
	os.Remove(filepath.Join(bin, "sh"))
	for _, shell := range []string{"auto", "bash", "powershell", "cmd"} {
		cmd := line("x")
		cmd.Shell = shell
		_, _, err := b.Execute(t.Context(), cmd, b.at, Limits{})
		e := wire.AsError(err)
		if e.Code != wire.ShellNotAvailable || e.Details["requested_shell"] != shell {
			t.Errorf("shell %q: %v %v", shell, err, e.Details)
		}
	}
}

func TestRefused(t *testing.T) {
	leak.Check(t)
	b := newBench(t, "none", Config{})
	both := line("true")
	both.Argv = []string{"true"}
	withEnv := func(name, value string) wire.ExecuteCommand {
		c := argv("true")
		c.Env = map[string]string{name: value}
		return c
	}
	odd := line("true")
	odd.Shell = "fish"
	os.WriteFile(filepath.Join(b.dir, "plain"), []byte("x"), 0o644)
	os.WriteFile(filepath.Join(b.dir, "noformat"), []byte("x"), 0o755)
	os.WriteFile(filepath.Join(b.dir, "nointerpreter"), []byte("#!/no/such/thing\n"), 0o755)
	os.Mkdir(filepath.Join(b.dir, "folder"), 0o755)
	for _, c := range []struct {
		name   string
		cmd    wire.ExecuteCommand
		code   wire.Code
		reason string
	}{
		{"both", both, wire.InternalError, "command_and_argv"},
		{"neither", wire.ExecuteCommand{}, wire.InternalError, "no_command"},
		{"empty argv", wire.ExecuteCommand{Argv: []string{}}, wire.InternalError, "no_command"},
		{"NUL in line", line("true\x00"), wire.InternalError, "nul_byte"},
		{"NUL in argv", argv("true", "\x00"), wire.InternalError, "nul_byte"},
		{"NUL in env", withEnv("A", "\x00"), wire.InternalError, "nul_byte"},
		{"NUL in env name", withEnv("A\x00", ""), wire.InternalError, "invalid_env"},
		{"= in env name", withEnv("A=B", ""), wire.InternalError, "invalid_env"},
		{"empty env name", withEnv("", "x"), wire.InternalError, "invalid_env"},
		{"zero timeout", within(argv("true"), 0), wire.InternalError, "invalid_timeout"},
		{"negative timeout", within(argv("true"), -1), wire.InternalError, "invalid_timeout"},
		{"unknown shell", odd, wire.InternalError, "invalid_shell"},
		{"no such program", argv("no-such-program-here"), wire.ShellNotAvailable, ""},
		{"no such path", argv("./no/such"), wire.ShellNotAvailable, ""},
		{"empty program", argv(""), wire.ShellNotAvailable, ""},
		{"no interpreter", argv("./nointerpreter"), wire.ShellNotAvailable, ""},
		{"below a file", argv("./plain/x"), wire.ShellNotAvailable, ""},
		{"directory", argv("./folder"), wire.InternalError, "permission_denied"},
		{"not executable", argv("./plain"), wire.InternalError, "permission_denied"},
		{"bad format", argv("./noformat"), wire.InternalError, "exec_format"},
		{"too long", argv("true", strings.Repeat("x", 200<<10)), wire.InternalError, "argument_list_too_long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := b.Execute(t.Context(), c.cmd, b.at, Limits{})
			e := wire.AsError(err)
			if err == nil || e.Code != c.code {
				t.Fatalf("got %v, want %s", err, c.code)
			}
			if reason, _ := e.Details["reason"].(string); reason != c.reason {
				t.Errorf("reason %q, want %q (%v)", reason, c.reason, err)
			}
			if c.code == wire.ShellNotAvailable && e.Details["requested_shell"] != c.cmd.Argv[0] {
				t.Errorf("details %v", e.Details)
			}
		})
	}
}

func TestDirectory(t *testing.T) {
	b := newBench(t, "none", Config{})
	sub := filepath.Join(b.dir, "sub")
	os.Mkdir(sub, 0o755)
	os.WriteFile(filepath.Join(sub, "tool"), []byte("#!/bin/sh\necho tool\n"), 0o755)
	dir, err := os.Open(sub)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	place := Place{Dir: dir, Path: sub}

	// The descriptor decides, not the name.
	if err := os.Rename(sub, filepath.Join(b.dir, "moved")); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(sub, 0o755)
	for _, cmd := range []wire.ExecuteCommand{
		argv("./tool"),
		{Argv: []string{"tool"}, Env: map[string]string{"PATH": ":/usr/bin:/bin"}},
		{Argv: []string{"tool"}, Env: map[string]string{"PATH": "../moved:/bin"}},
	} {
		result, _, err := b.Execute(t.Context(), cmd, place, Limits{})
		if err != nil || result.Stdout != "tool\n" {
			t.Errorf("%q with PATH %q: %q, %v", cmd.Argv, cmd.Env["PATH"], result.Stdout, err)
		}
	}

	os.RemoveAll(filepath.Join(b.dir, "moved"))
	_, _, err = b.Execute(t.Context(), argv("true"), place, Limits{})
	if e := wire.AsError(err); e.Code != wire.PathNotFound || e.Details["path"] != sub {
		t.Errorf("vanished directory: %v %v", err, e.Details)
	}
}

func TestEnvironment(t *testing.T) {
	b := newBench(t, "none", Config{Environ: []string{
		"PATH=/usr/bin:/bin", "HOME=/h", "LC_ALL=C", "LC_X=1", "TZ=UTC", "=odd", "odd",
		"NOTIFY_SOCKET=/run/x", "CREDENTIALS_DIRECTORY=/c", "FARHAND_STATE_DIR=/s", "LD_PRELOAD=/evil", "SECRET=1",
	}})
	cmd := argv("env")
	cmd.Env = map[string]string{"HOME": "/mine", "EXTRA": "a=b", "PYTHONIOENCODING": "latin-1"}
	result, trace, err := b.Execute(t.Context(), cmd, b.at, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(result.Stdout, "\n"), "\n")
	slices.Sort(got)
	want := []string{"EXTRA=a=b", "HOME=/mine", "LC_ALL=C", "LC_X=1", "PATH=/usr/bin:/bin", "PYTHONIOENCODING=utf-8", "TZ=UTC"}
	if !slices.Equal(got, want) {
		t.Errorf("environment %q\nwant %q", got, want)
	}
	keys := []string{"EXTRA", "HOME", "LC_ALL", "LC_X", "PATH", "PYTHONIOENCODING", "TZ"}
	if !slices.Equal(trace.EnvKeys, keys) || trace.Shell != "" {
		t.Errorf("trace %+v", trace)
	}
	if _, trace, _ = b.Execute(t.Context(), line("true"), b.at, Limits{}); trace.Shell != "bash" {
		t.Errorf("trace %+v", trace)
	}
}

// What the daemon's own starter had open is no business of its commands.
func TestNoDescriptorIsInherited(t *testing.T) {
	secret, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	inherited, err := unix.Dup(int(secret.Fd())) // not closed on exec, as what was inherited
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	b := newBench(t, "none", Config{Environ: os.Environ()})
	if r := b.run(line(fmt.Sprintf("test -e /proc/$$/fd/%d || echo closed", inherited))); r.Stdout != "closed\n" {
		t.Errorf("descriptor %d is open in a command: %+v", inherited, r)
	}
}

// A program that ignores SIGTERM and starts others in every way that should
// survive it.
const stubborn = `
trap '' TERM
echo $$ >>pids
sleep 300 & echo $! >>pids
setsid sh -c 'trap "" TERM; echo $$ >>pids; sleep 300 & echo $! >>pids; wait' &
(setsid setsid sh -c 'trap "" TERM; echo $$ >>pids; exec sleep 300' >/dev/null 2>&1 </dev/null &)
(env -i /bin/sh -c 'setsid sleep 300 >/dev/null 2>&1 & echo $! >>pids')
echo started
while :; do sleep 0.2; done`

func TestTimeoutKillsTheTree(t *testing.T) {
	eachWay(t, func(t *testing.T, cgroup string) {
		leak.Check(t)
		b := newBench(t, cgroup, Config{})
		result := b.run(within(line(stubborn), 0.3))
		if !result.TimedOut || result.ExitCode != -1 || result.Stdout != "started\n" {
			t.Errorf("result %+v", result)
		}
		if result.DurationSeconds < 0.3 || result.DurationSeconds > 3 {
			t.Errorf("took %v s", result.DurationSeconds)
		}
		for _, pid := range b.pids("pids", 6) {
			if alive(pid) {
				t.Errorf("process %d is alive: %s", pid, describe(pid))
			}
		}
	})
}

func describe(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return string(b)
}

func TestCancelKillsTheTree(t *testing.T) {
	eachWay(t, func(t *testing.T, cgroup string) {
		leak.Check(t)
		b := newBench(t, cgroup, Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		lost := errors.New("link lost")
		failed := make(chan error)
		go func() {
			_, _, err := b.Execute(ctx, line(stubborn), b.at, Limits{})
			failed <- err
		}()
		pids := b.pids("pids", 6)
		cancel(lost)
		if err := <-failed; !errors.Is(err, lost) {
			t.Errorf("got %v", err)
		}
		for _, pid := range pids {
			if alive(pid) {
				t.Errorf("process %d is alive: %s", pid, describe(pid))
			}
		}
	})
}

// What obeys SIGTERM has time to say so, and the answer comes at once.
func TestTimeoutIsPolite(t *testing.T) {
	b := newBench(t, "none", Config{})
	start := time.Now()
	result := b.run(within(line(`trap 'echo bye; exit 7' TERM; echo hi; sleep 300 & wait`), 0.3))
	if result.Stdout != "hi\nbye\n" || !result.TimedOut || result.ExitCode != -1 {
		t.Errorf("result %+v", result)
	}
	if took := time.Since(start); took > 300*time.Millisecond+termGrace {
		t.Errorf("took %v though the command obeyed", took)
	}
}

func TestAnswerWithin(t *testing.T) {
	b := newBench(t, "none", Config{Timeout: time.Hour})
	start := time.Now()
	result, trace, err := b.Execute(t.Context(), within(line(`trap '' TERM; while :; do sleep 1; done`), 30), b.at,
		Limits{Timeout: 30 * time.Second, AnswerWithin: 2 * time.Second})
	if err != nil || !result.TimedOut {
		t.Errorf("result %+v, %v", result, err)
	}
	if took := time.Since(start); took >= 2*time.Second {
		t.Errorf("answered after %v", took)
	}
	if trace.Timeout != time.Second {
		t.Errorf("trace %v", trace.Timeout)
	}
}

func TestTimeoutFor(t *testing.T) {
	s := New(Config{Timeout: 20 * time.Second})
	for _, c := range []struct {
		asked  float64
		limits Limits
		want   time.Duration
	}{
		{0, Limits{}, 20 * time.Second},
		{5, Limits{}, 5 * time.Second},
		{1e300, Limits{}, 20 * time.Second},
		{0.25, Limits{}, 250 * time.Millisecond},
		{15, Limits{Timeout: 10 * time.Second}, 10 * time.Second},
		{15, Limits{Timeout: time.Hour}, 15 * time.Second},
		{0, Limits{AnswerWithin: 30 * time.Second}, 20 * time.Second},
		{0, Limits{AnswerWithin: 20 * time.Second}, 18500 * time.Millisecond},
		{0, Limits{AnswerWithin: 2 * time.Second}, time.Second},
	} {
		var asked *float64
		if c.asked != 0 {
			asked = &c.asked
		}
		if got, err := s.timeoutFor(asked, c.limits); err != nil || got != c.want {
			t.Errorf("asked %v, limits %+v: %v, %v; want %v", c.asked, c.limits, got, err, c.want)
		}
	}
}

// A background process that holds the pipes doesn't delay the answer and lives on.
func TestBackgroundLivesOn(t *testing.T) {
	eachWay(t, func(t *testing.T, cgroup string) {
		b := newBench(t, cgroup, Config{})
		start := time.Now()
		result := b.run(line(`sh -c 'trap "" PIPE; echo $$ >pids; while :; do echo tick; sleep 0.02; done' & echo done`))
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if !strings.Contains(result.Stdout, "done\n") || result.TimedOut || result.ExitCode != 0 {
			t.Errorf("result %+v", result)
		}
		pid := b.pids("pids", 1)[0]
		if !alive(pid) {
			t.Error("the background process was killed")
		}
		// The runner goes on to serve others beside it.
		if got := b.run(argv("echo", "next")).Stdout; got != "next\n" {
			t.Errorf("next command: %q", got)
		}
		if !alive(pid) {
			t.Error("the next command killed the background process")
		}
		unix.Kill(pid, unix.SIGKILL)
		eventually(t, "background process gone", func() bool { return !alive(pid) })
	})
}

// What a command wrote before it ended is never lost, even if its pipe lives on.
func TestNothingLost(t *testing.T) {
	b := newBench(t, "none", Config{})
	for range 5 {
		result := b.run(line(`sleep 1 & head -c 60000 /dev/zero | tr '\0' x`))
		if len(result.Stdout) != 60000 {
			t.Fatalf("%d bytes of 60000", len(result.Stdout))
		}
	}
}

// Orphans that end are collected, so that no zombies pile up.
func TestOrphansAreReaped(t *testing.T) {
	leak.Check(t)
	b := newBench(t, "none", Config{})
	b.run(line(`for i in 1 2 3; do (setsid sh -c 'echo $$ >>pids' >/dev/null 2>&1 &) ; done`))
	for _, pid := range b.pids("pids", 3) {
		eventually(t, "orphan reaped", func() bool {
			_, exists := readProc(pid)
			return !exists
		})
	}
}

// Another part of this process may start programs its own way meanwhile: they
// are neither killed nor collected from under it.
func TestForeignChildren(t *testing.T) {
	b := newBench(t, "none", Config{})
	other := newBench(t, "none", Config{}) // of another daemon in this process
	ctx, cancel := context.WithCancel(t.Context())
	victim := make(chan struct{})
	go func() {
		defer close(victim)
		b.Execute(ctx, line("echo $$ >pids; setsid sleep 300 & wait"), b.at, Limits{})
	}()
	b.pids("pids", 1)

	foreign := exec.Command("sleep", "0.5")
	foreign.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	neighbour := make(chan wire.CommandResult)
	go func() { neighbour <- other.run(line("echo $$ >pids; sleep 0.5; echo fine")) }()
	other.pids("pids", 1)
	cancel()
	<-victim
	if err := foreign.Wait(); err != nil {
		t.Errorf("foreign child: %v", err)
	}
	if got := <-neighbour; got.Stdout != "fine\n" || got.ExitCode != 0 {
		t.Errorf("other daemon's command: %+v", got)
	}
}

// Two commands at once: the death of one leaves the other alone.
func TestNeighbourSurvives(t *testing.T) {
	eachWay(t, func(t *testing.T, cgroup string) {
		b := newBench(t, cgroup, Config{})
		neighbour := make(chan wire.CommandResult)
		go func() {
			result, _, _ := b.Execute(t.Context(), line(`setsid -w sh -c 'echo $$ >pids; while [ ! -e go ]; do sleep 0.02; done; echo fine'`), b.at, Limits{})
			neighbour <- result
		}()
		b.pids("pids", 1)
		b.run(within(line(`setsid sleep 300 & sleep 300`), 0.1))
		os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644)
		if got := (<-neighbour).Stdout; got != "fine\n" {
			t.Errorf("neighbour said %q", got)
		}
	})
}

// A daemonised process dies with its command, though another command ended just
// before this one began.
func TestTimeoutKillsTheTreeAfterAnother(t *testing.T) {
	eachWay(t, func(t *testing.T, cgroup string) {
		b := newBench(t, cgroup, Config{})
		for n := range 10 {
			b.run(argv("true"))
			name := fmt.Sprintf("pids%d", n)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				b.Execute(ctx, line(`(setsid sh -c 'echo $$ >`+name+`; exec sleep 300' >/dev/null 2>&1 &); exec sleep 300`), b.at, Limits{})
			}()
			pid := b.pids(name, 1)[0]
			cancel()
			<-ended
			if alive(pid) {
				t.Errorf("round %d: process %d is alive: %s", n, pid, describe(pid))
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

// Two commands at once: the death of one takes all of its own processes along,
// those in sessions of their own too.
func TestTimeoutKillsTheTreeBesideAnother(t *testing.T) {
	eachWay(t, func(t *testing.T, cgroup string) {
		for name, script := range map[string]string{
			"below its parent":          `setsid sleep 300 >/dev/null 2>&1 & echo $! >pids; wait`,
			"orphan with the output":    `(setsid sleep 300 & echo $! >pids); sleep 300`,
			"orphan of an orphan":       `setsid sh -c 'setsid sh -c "sleep 300 & sleep 300" >/dev/null 2>&1 & echo $! >pids; wait' & wait`,
			"below one with the output": `(setsid sh -c 'sleep 300 >/dev/null 2>&1 & echo $! >pids; wait' &); sleep 300`,
		} {
			t.Run(name, func(t *testing.T) {
				b, other := newBench(t, cgroup, Config{}), make(chan wire.CommandResult)
				go func() {
					result, _, _ := b.Execute(t.Context(), line(`echo $$ >other; while [ ! -e go ]; do sleep 0.02; done; echo fine`), b.at, Limits{})
					other <- result
				}()
				b.pids("other", 1)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					b.Execute(ctx, line(script), b.at, Limits{})
				}()
				pid := b.pids("pids", 1)[0]
				eventually(t, "the sleep", func() bool {
					name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
					return string(name) == "sleep\n" || string(name) == "sh\n"
				})
				cancel()
				<-ended
				if alive(pid) {
					t.Errorf("process %d is alive: %s", pid, describe(pid))
					syscall.Kill(pid, syscall.SIGKILL)
				}
				os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644)
				if got := (<-other).Stdout; got != "fine\n" {
					t.Errorf("the other said %q", got)
				}
			})
		}
	})
}

func TestOutputBudget(t *testing.T) {
	b := newBench(t, "none", Config{})
	run := func(s string, limit int64) wire.CommandResult {
		t.Helper()
		result, _, err := b.Execute(t.Context(), line(s), b.at, Limits{OutputBytes: limit})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name           string
		line           string
		limit          int64
		stdout, stderr string
		truncated      bool
	}{
		{"fits exactly", "printf " + x(100), 100, x(100), "", false},
		{"one too many", "printf " + x(101), 100, x(72), marker, true},
		{"stderr keeps what it has", "printf " + x(50) + ">&2; sleep 0.2; printf " + x(80), 100, x(22), x(50) + marker, true},
		{"stderr gives way last", "printf " + x(200) + ">&2", 100, "", x(72) + marker, true},
		{"limit below the marker", "printf " + x(50), 10, "", marker[:10], true},
		{"one byte", "printf xx", 1, "", "\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(c.line, c.limit)
			if got.Stdout != c.stdout || got.Stderr != c.stderr || got.OutputTruncated != c.truncated {
				t.Errorf("got %q, %q, %v", got.Stdout, got.Stderr, got.OutputTruncated)
			}
			if n := int64(len(got.Stdout) + len(got.Stderr)); n > c.limit {
				t.Errorf("%d bytes of %d", n, c.limit)
			}
		})
	}

	t.Run("huge output is drained", func(t *testing.T) {
		got := run("head -c 50000000 /dev/zero; echo end >&2", 1<<40)
		if n := len(got.Stdout) + len(got.Stderr); n != wire.MaxText || !got.OutputTruncated || got.ExitCode != 0 {
			t.Errorf("%d bytes, %v, exit %d", n, got.OutputTruncated, got.ExitCode)
		}
		if !strings.HasSuffix(got.Stderr, marker) {
			t.Errorf("stderr %q", got.Stderr)
		}
	})
}

func TestInvalidUTF8(t *testing.T) {
	b := newBench(t, "none", Config{})
	got := b.run(line(`printf 'a\377\376b\342\202c\355\240\200\360\237\230\200'`)).Stdout
	if want := "a\ufffd\ufffdb\ufffdc\ufffd\ufffd\ufffd😀"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConcurrencyLimit(t *testing.T) {
	b := newBench(t, "none", Config{MaxConcurrent: 2})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	for range 2 {
		go func() {
			b.Execute(ctx, line("echo $$ >>pids; sleep 300"), b.at, Limits{})
			done <- struct{}{}
		}()
	}
	b.pids("pids", 2)
	_, _, err := b.Execute(t.Context(), argv("true"), b.at, Limits{})
	if e := wire.AsError(err); e.Code != wire.ShimOverloaded || e.Details["max_concurrent"] != 2 {
		t.Errorf("third command: %v %v", err, e.Details)
	}
	cancel()
	<-done
	<-done
	b.run(argv("true"))
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(3, 10)
		start := func() error {
			err := l.acquire()
			if err == nil {
				l.release()
			}
			return err
		}
		wait := func(d time.Duration) { // fake time
			timer := time.NewTimer(d)
			<-timer.C
		}
		for range 3 {
			if err := start(); err != nil {
				t.Fatal(err)
			}
			wait(10 * time.Second)
		}
		for range 5 { // what is refused doesn't count
			if err := start(); !errors.Is(err, wire.ShimOverloaded) {
				t.Fatalf("fourth in a minute: %v", err)
			}
		}
		if after := wire.AsError(start()).Details["retry_after_seconds"]; after != 30.0 {
			t.Errorf("retry after %v", after)
		}
		wait(30 * time.Second)
		if err := start(); err != nil {
			t.Errorf("after the window moved: %v", err)
		}
		if err := start(); err == nil {
			t.Error("the window moved too far")
		}
		wait(10 * time.Second)
		if err := start(); err != nil {
			t.Errorf("after it moved again: %v", err)
		}
	})
}

// A runner's typed refusal reaches the wire as it is.
type refusing struct{ Runner }

func (refusing) Start(context.Context, Spec) (Process, error) {
	return nil, fmt.Errorf("helper: %w", wire.FeatureNotSupported)
}

func TestRunnerRefuses(t *testing.T) {
	s := New(Config{Runner: refusing{}})
	_, _, err := s.Execute(t.Context(), line("x"), Place{}, Limits{})
	if !errors.Is(err, wire.FeatureNotSupported) {
		t.Error(err)
	}
}

func TestStartErrorTellsNoArguments(t *testing.T) {
	cmd := argv("prog", "hunter2")
	for _, err := range []error{fs.ErrNotExist, fs.ErrPermission, unix.ENOEXEC, unix.EIO, unix.E2BIG} {
		if text := startError(err, cmd, Place{}).Error(); strings.Contains(text, "hunter2") {
			t.Errorf("%q", text)
		}
	}
}

func BenchmarkTrue(b *testing.B) {
	b.Run("exec", func(b *testing.B) {
		dir := b.TempDir()
		for b.Loop() {
			var out, err bytes.Buffer
			cmd := exec.Command("/bin/true")
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &err
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	s := newBench(b, "none", Config{PerMinute: 1 << 20})
	b.Run("tree", func(b *testing.B) {
		for b.Loop() {
			s.run(argv("/bin/true"))
		}
	})
	b.Run("cgroup", func(b *testing.B) {
		dir := os.Getenv("FARHAND_TEST_CGROUP")
		if dir == "" {
			b.Skip("needs FARHAND_TEST_CGROUP, a cgroup v2 that is ours")
		}
		s := newBench(b, dir, Config{PerMinute: 1 << 20})
		for b.Loop() {
			s.run(argv("/bin/true"))
		}
	})
}
