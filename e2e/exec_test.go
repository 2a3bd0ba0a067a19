package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"farhand/wire"
)

// exec exits as the remote command does, or with 255 and a code on stderr.
func TestExec(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	sh := func(script string, flags ...string) result {
		t.Helper()
		return b.owner.run(append(append([]string{"exec"}, flags...), "--", "sh", "-c", script)...)
	}

	t.Run("status", func(t *testing.T) {
		for _, c := range []struct {
			script string
			code   int
		}{
			{"exit 0", 0}, {"exit 1", 1}, {"exit 77", 77}, {"exit 254", 254},
			{"kill -TERM $$", 128 + 15}, {"kill -KILL $$", 128 + 9}, {"kill -HUP $$", 128 + 1},
		} {
			if r := sh(c.script); r.code != c.code || r.stdout != "" || r.stderr != "" {
				t.Errorf("%s gives %+v, want %d", c.script, r, c.code)
			}
		}
	})

	t.Run("streams", func(t *testing.T) {
		r := sh("echo to stdout; echo to stderr >&2; printf end; exit 3")
		if want := (result{3, "to stdout\nend", "to stderr\n"}); r != want {
			t.Errorf("got %+v, want %+v", r, want)
		}
		r = sh("echo to stdout; echo to stderr >&2; kill -KILL $$", "--json")
		got := parse[wire.CommandResult](t, r.stdout)
		if r.code != 137 || r.stderr != "" || got.ExitCode != -9 || got.TimedOut || got.Stdout != "to stdout\n" || got.Stderr != "to stderr\n" || got.OutputTruncated {
			t.Errorf("--json gives %d, %q and %+v", r.code, r.stderr, got)
		}
		if r := sh(`printf 'a\377b\n'`); r.stdout != "a\xffb\n" {
			t.Errorf("bytes that are no UTF-8 come as %q", r.stdout)
		}
		if r := sh(`printf 'a\377b\n'`, "--json"); parse[wire.CommandResult](t, r.stdout).Stdout != "a\uFFFDb\n" {
			t.Errorf("bytes that are no UTF-8 come as %q", r.stdout)
		}
		if r := b.owner.feed("not for you\n", "exec", "--", "cat"); r.code != 0 || r.stdout != "" {
			t.Errorf("a command that reads its input gets %+v", r)
		}
		if r := b.owner.feed("for you\n", "exec", "-i", "--", "cat"); r.code != 0 || r.stdout != "for you\n" {
			t.Errorf("with --stdin it gets %+v", r)
		}
	})

	t.Run("timeout", func(t *testing.T) {
		begin := time.Now()
		r := sh("echo before; sleep 300", "--timeout", "300ms")
		if r.code != 255 || r.stdout != "before\n" || !strings.Contains(r.stderr, "COMMAND_TIMEOUT") {
			t.Errorf("a timeout gives %+v", r)
		}
		r = sh("echo before; sleep 300", "--timeout", "0.3", "--json")
		got := parse[wire.CommandResult](t, r.stdout)
		failure := parse[struct{ Error wire.Error }](t, r.stderr)
		if r.code != 255 || !got.TimedOut || got.ExitCode != -1 || got.Stdout != "before\n" || failure.Error.Code != wire.CommandTimeout {
			t.Errorf("--json gives %d, %+v and %+v", r.code, got, failure.Error)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("two timeouts of 0.3 s took %s", took)
		}
	})

	t.Run("tree", func(t *testing.T) {
		// Children in the background, in a session of their own, and deaf to SIGTERM.
		r := sh(`sleep 300 & echo $!; setsid sleep 300 & echo $!; (trap '' TERM; exec sleep 300) & echo $!; wait`, "--timeout", "500ms")
		if r.code != 255 {
			t.Fatalf("got %+v", r)
		}
		pids := strings.Fields(r.stdout)
		if len(pids) != 3 {
			t.Fatalf("the script says %q", r.stdout)
		}
		for _, text := range pids {
			gone(t, text)
		}
		// A child that keeps the output open delays nobody.
		begin := time.Now()
		r = sh("sleep 300 & echo $!")
		if r.code != 0 || time.Since(begin) > 15*time.Second {
			t.Errorf("with a child in the background it takes %s and gives %+v", time.Since(begin), r)
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(r.stdout)); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		}
	})

	t.Run("output", func(t *testing.T) {
		// reference: one budget of 2785280 bytes, the marker within it
		if r := sh("head -c 5000000 /dev/zero | tr '\\0' x"); r.code != 0 || r.stdout != strings.Repeat("x", 5000000) {
			t.Errorf("5 MB of output: exit %d, %d bytes, %q", r.code, len(r.stdout), r.stderr)
		}
		r := sh("head -c 5000000 /dev/zero | tr '\\0' x", "--json")
		got := parse[wire.CommandResult](t, r.stdout)
		const mark = "\n[command output truncated]\n"
		if r.code != 0 || !got.OutputTruncated || got.Stderr != mark || len(got.Stdout)+len(mark) != 2785280 {
			t.Errorf("5 MB of output: exit %d, truncated %v, %d bytes and %q", r.code, got.OutputTruncated, len(got.Stdout), got.Stderr)
		}
	})

	t.Run("place", func(t *testing.T) {
		if err := os.MkdirAll(filepath.Join(b.root(), "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		for dir, want := range map[string]string{"": b.root(), "sub": filepath.Join(b.root(), "sub"), filepath.Join(b.root(), "sub"): filepath.Join(b.root(), "sub")} {
			r := b.owner.run("exec", "bench", "--cwd", dir, "--", "pwd")
			if r.code != 0 || r.stdout != want+"\n" {
				t.Errorf("in %q pwd gives %+v, want %s", dir, r, want)
			}
		}
		e := b.owner.fails(255, wire.PathOutsideAllowedRoot, "exec", "--cwd", "/etc", "--", "pwd")
		if e.Details["path"] != "/etc" {
			t.Errorf("details %v", e.Details)
		}
		b.owner.fails(255, wire.PathOutsideAllowedRoot, "exec", "--cwd", "../..", "--", "pwd")
		b.owner.fails(255, wire.PathNotFound, "exec", "--cwd", "missing", "--", "pwd")
		b.owner.fails(255, wire.PathOutsideAllowedRoot, "exec", "--root", "/etc", "--", "pwd")
	})

	t.Run("environment", func(t *testing.T) {
		r := b.owner.run("exec", "--env", "GREETING=good day", "--env", "EMPTY=", "--", "env")
		for _, want := range []string{"GREETING=good day\n", "EMPTY=\n", "PATH=", "HOME="} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("the environment has no %q:\n%s", want, r.stdout)
			}
		}
		if strings.Contains(r.stdout, "FARHAND") {
			t.Errorf("the environment tells of us:\n%s", r.stdout)
		}
	})

	t.Run("failures", func(t *testing.T) {
		b.owner.fails(255, wire.ShellNotAvailable, "exec", "--", "no-such-program-here")
		b.owner.fails(255, wire.MachineNotAttached, "exec", "elsewhere", "--", "true")
		b.owner.fails(255, "USAGE", "exec", "bench", "true")
		b.owner.fails(255, "USAGE", "exec", "bench", "--")
		b.owner.fails(255, "USAGE", "exec", "--timeout", "soon", "--", "true")
		b.owner.fails(255, "USAGE", "exec", "--nonsense", "--", "true")
		if r := b.with("fh_xx_wrong").run("exec", "--", "true"); r.code != 255 || !strings.Contains(r.stderr, "AUTH_FAILED") {
			t.Errorf("with a wrong token: %+v", r)
		}
	})

	// What ran is on the record with its exit status, what was written is not.
	var ran []string
	opened := make(map[any]string)
	for _, x := range b.records() {
		argv, err := json.Marshal(x.Details["argv"])
		switch {
		case err != nil:
			t.Fatal(err)
		case x.Details["phase"] == "intent":
		case x.Op == "TERMINAL_OPEN":
			opened[x.Details["terminal"]] = string(argv)
		case x.Op == "TERMINAL_END" && x.Result.ExitCode != nil:
			ran = append(ran, fmt.Sprintf("%s %d", opened[x.Details["terminal"]], *x.Result.ExitCode))
		case x.Op == "EXECUTE_COMMAND" && x.Result.ExitCode != nil:
			ran = append(ran, fmt.Sprintf("%s %d", argv, *x.Result.ExitCode))
		}
	}
	for _, want := range []string{`["sh","-c","exit 77"] 77`, `["sh","-c","echo before; sleep 300"] -1`} {
		if !slices.Contains(ran, want) {
			t.Errorf("the record of commands lacks %s:\n%s", want, strings.Join(ran, "\n"))
		}
	}
	log := string(b.read(filepath.Join(b.stateDir(), "audit.log")))
	if strings.Contains(log, "good day") || strings.Contains(log, "GREETING=") {
		t.Error("the record has the values of variables")
	}
	b.wholeAudit()
}

// gone waits until a process no longer exists. A zombie doesn't.
func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the end of process "+pid, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
		if err != nil {
			return nil
		}
		if _, tail, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(tail, "Z") {
			return nil
		}
		return errors.New(string(stat))
	})
}

// Commands whose caller was killed end with it: nobody gets their output, and the
// machine takes so many at a time.
func TestExecCallerKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables = strings.Replace(b.tables, "[limits]\n", "[limits]\ncommand_timeout_seconds = 600\n", 1)
	b.claim("files,shell")
	var callers []*process
	pid := func(i int) string { return filepath.Join(b.root(), fmt.Sprint("pid", i)) }
	for i := range 4 {
		callers = append(callers, b.owner.start("exec", "--json", "--timeout", "600", "bench", "--", "sh", "-c", fmt.Sprintf("echo $$ >pid%d; exec sleep 600", i)))
	}
	var pids []string
	for i := range callers {
		eventually(t, "the command runs", func() error {
			content, err := os.ReadFile(pid(i))
			if err == nil && !strings.HasSuffix(string(content), "\n") {
				err = fmt.Errorf("%q", content)
			}
			if err == nil {
				pids = append(pids, strings.TrimSpace(string(content)))
			}
			return err
		})
	}
	for _, c := range callers {
		c.kill()
	}
	for _, pid := range pids {
		eventually(t, "the command has ended", func() error {
			if _, err := os.Stat("/proc/" + pid); err == nil {
				return fmt.Errorf("process %s is there", pid)
			}
			return nil
		})
	}
	if out := b.owner.must("exec", "--json", "bench", "--", "echo", "hello"); !strings.Contains(out, "hello") {
		t.Errorf("%q", out)
	}
}
