package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// tryout builds the program behind make run.
func tryout(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tryout")
	cmd := exec.Command("go", "build", "-o", name, "./internal/tryout")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return name
}

// heirs are the processes that have a directory in their command line.
func heirs(dir string) []string {
	var found []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	for _, name := range lines {
		b, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(b), dir) {
			found = append(found, filepath.Base(filepath.Dir(name))+": "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// make run shows a session that works, touches nothing outside its own
// directory, and leaves nothing behind, however it is ended.
func TestMakeRun(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	name := tryout(t)
	temp := filepath.Join(b.dir, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	env := b.env("TMPDIR=" + temp)
	clean := func(t *testing.T) {
		t.Helper()
		for _, dir := range []string{temp, filepath.Join(b.dir, "home")} {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("in %s there is %v (%v)", dir, left, err)
			}
		}
		within(t, stopTime, "the end of what was started", func() error {
			if left := heirs(temp); len(left) > 0 {
				return errors.New(strings.Join(left, "\n"))
			}
			return nil
		})
	}
	t.Run("once", func(t *testing.T) {
		r := runProgram(t, env, "", b.here(), name, "--once", "--bin", bin)
		if r.code != 0 {
			t.Fatalf("it ends with %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		at := 0
		for _, part := range []string{"$ farhand approve ", "$ farhand machines", "bench", "online", "$ farhand devices", "serial:sim-scpi", "$ farhand exec ",
			"far away\n", "$ farhand put ", "$ farhand ls", "note.txt\n", "$ farhand get ",
			"$ farhand gpio set ", "GPIO17  1\n", "$ farhand gpio get ", "GPIO27  1\n", "$ farhand i2c scan ", "76 --\n", "$ farhand i2c read ", "\n60\n",
			"$ farhand serial transact ", "FARHAND,", "$ farhand usb list", "usb:1209:0001-SIM-ECHO ", "$ farhand print status ", "Operational\n",
			"$ farhand audit verify", "ok: "} {
			i := strings.Index(r.stdout[at:], part)
			if i < 0 {
				t.Fatalf("after %q there is no %q in\n%s", r.stdout[:at], part, r.stdout)
			}
			at += i
		}
		clean(t)
	})
	t.Run("broken", func(t *testing.T) {
		empty := t.TempDir()
		if r := runProgram(t, env, "", b.here(), name, "--once", "--bin", empty); r.code != 1 || !strings.HasPrefix(r.stderr, "make run: ") {
			t.Errorf("without programs it gives %+v", r)
		}
		clean(t)
	})
	t.Run("interrupted", func(t *testing.T) {
		p := start(t, "make run", env, name, "--bin", bin)
		p.await(0, `farhand approve ([A-Z]{4}-[A-Z]{4})`)
		p.signal(syscall.SIGINT)
		if code := p.exit(); code != 130 {
			t.Errorf("interrupted before its end it ends with %d", code)
		}
		clean(t)
	})
	t.Run("stopped", func(t *testing.T) {
		p := start(t, "make run", env, name, "--bin", bin)
		dir := p.await(0, `export FARHAND_CONFIG_DIR=(\S+) `)
		// By hand in another terminal, as it says.
		r := runProgram(t, append(b.env(), "FARHAND_CONFIG_DIR="+dir[1]), "", b.here(), program("farhand"), "exec", "--", "echo", "by hand")
		if r.code != 0 || r.stdout != "by hand\n" {
			t.Errorf("by hand it says %+v", r)
		}
		tryExamples(t, append(b.env(), "FARHAND_CONFIG_DIR="+dir[1]))
		p.signal(syscall.SIGINT)
		if code := p.exit(); code != 0 {
			t.Errorf("after Ctrl-C it ends with %d", code)
		}
		clean(t)
	})
	t.Run("killed", func(t *testing.T) {
		p := start(t, "make run", env, name, "--bin", bin)
		p.await(0, `farhand approve ([A-Z]{4}-[A-Z]{4})`)
		p.kill()
		within(t, stopTime, "the end of what was started", func() error {
			if left := heirs(temp); len(left) > 0 {
				return errors.New(strconv.Itoa(len(left)) + " are left:\n" + strings.Join(left, "\n"))
			}
			return nil
		})
	})
}

// tryExamples runs what the README's table of devices says that works.
func tryExamples(t *testing.T, env []string) {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("G28\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env = append(env, "PATH="+filepath.Dir(program("farhand"))+":"+os.Getenv("PATH"))
	examples := regexp.MustCompile("(?m)^\\| .*\\| `(farhand .*)` \\|$").FindAllSubmatch(readme, -1)
	if len(examples) < 10 {
		t.Fatalf("only %d examples found", len(examples))
	}
	for _, m := range examples {
		line := string(m[1])
		if strings.Contains(line, "watch") {
			line += " --for 100ms" // otherwise it ends with Ctrl-C
		}
		if r := runProgram(t, env, "", dir, "sh", "-c", line); r.code != 0 {
			t.Errorf("%s gives %+v", line, r)
		}
	}
}
