package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"farhand/wire"
)

// fakeJournal is a PATH whose journalctl shows what the file entries beside it
// says, and with --follow what is added to that.
func (b *bench) fakeJournal() (path, entries string) {
	b.t.Helper()
	dir := filepath.Join(b.dir, "journal")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	entries = filepath.Join(dir, "entries")
	b.write(entries, "")
	script := filepath.Join(dir, "journalctl")
	b.write(script, fmt.Sprintf("#!/bin/sh\necho \"$@\" >> %q\ncase \"$*\" in *--follow*) exec tail -n +1 -f %q;; *) exec cat %q;; esac\n", dir+"/arguments", entries, entries))
	if err := os.Chmod(script, 0o755); err != nil {
		b.t.Fatal(err)
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH"), entries
}

func appendLine(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text + "\n"); err != nil {
		t.Fatal(err)
	}
}

func TestLogsAndTop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path, entries := b.fakeJournal()
	b.environ = []string{path}
	b.claim("files,observe,hardware_gpio")

	t.Run("logs", func(t *testing.T) {
		appendLine(t, entries, `{"__REALTIME_TIMESTAMP":"1712345678000000","MESSAGE":"first\u001b[31m","SYSLOG_IDENTIFIER":"sshd","_PID":"7","PRIORITY":"3"}`)
		appendLine(t, entries, `{"__REALTIME_TIMESTAMP":"1712345679000000","MESSAGE":"two\nlines","_SYSTEMD_UNIT":"x.service"}`)
		got := b.owner.must("logs", "bench", "-n", "5", "-u", "ssh", "--since", "2h", "-p", "warning")
		if !regexp.MustCompile(`(?s)^\w{3} \d\d \d\d:\d\d:\d\d sshd\[7\]: first.\[31m\n\w{3} .* x.service: two\n    lines\n$`).MatchString(got) || strings.Contains(got, "\x1b") {
			t.Errorf("%q", got)
		}
		arguments, err := os.ReadFile(filepath.Join(filepath.Dir(entries), "arguments"))
		if err != nil || !regexp.MustCompile(`--since=@\d+\.\d{6} --lines=5 --unit=ssh --priority=4\n`).Match(arguments) {
			t.Errorf("%s, %v", arguments, err)
		}
		lines := strings.Split(strings.TrimSpace(b.owner.must("logs", "--json")), "\n")
		if len(lines) != 4 || parse[wire.LogRecord](t, lines[1]).PID != 7 || !strings.Contains(lines[3], `"reason":"done"`) {
			t.Errorf("%q", lines)
		}
		if r := b.owner.run("logs", "-u", "--help me"); r.code != 1 || !strings.Contains(r.stderr, "unit") {
			t.Errorf("%+v", r)
		}
	})

	t.Run("follow over a lost link", func(t *testing.T) {
		p := b.owner.start("logs", "-f")
		p.await(0, `lines$`)
		b.relay.kill()
		appendLine(t, entries, `{"__REALTIME_TIMESTAMP":"1712345680000000","MESSAGE":"while it was away"}`)
		b.startRelay()
		p.await(0, `while it was away$`)
		p.signal(syscall.SIGINT)
		if code := p.exit(); code != 0 {
			t.Errorf("after Ctrl-C it ends with %d\n%s", code, p.out)
		}
		if n := strings.Count(p.out.String(), "two"); n != 1 {
			t.Errorf("an entry is shown %d times", n)
		}
	})

	t.Run("top", func(t *testing.T) {
		b.daemon.await(0, `^Online`)
		got := parse[wire.Top](t, b.owner.must("top", "--json"))
		if got.Busy == nil || got.Memory == nil || got.Uptime == nil || len(got.Disks) != 2 || got.Disks[1].Path != b.roots[0] || got.Disks[0].Path != "" {
			t.Errorf("%+v", got)
		}
		lines := strings.Split(strings.TrimSpace(b.owner.must("top", "--interval", "500ms", "--count", "2", "--json")), "\n")
		if len(lines) != 3 || parse[wire.Top](t, lines[2]).Time <= parse[wire.Top](t, lines[1]).Time {
			t.Errorf("%q", lines)
		}
		if r := b.owner.run("top", "--interval", "1ms"); r.code != 2 {
			t.Errorf("%+v", r)
		}
	})

	// What it takes to open a stream doesn't count for --for.
	t.Run("for", func(t *testing.T) {
		for _, line := range [][]string{{"top", "--interval", "1s"}, {"logs", "-f"}, {"devices", "--watch"}} {
			r := b.owner.run(append(line, "--for", "1us")...)
			if r.code != 0 {
				t.Errorf("%q gives %+v", line, r)
			}
			if r := b.owner.run(append(line, "--for", "x")...); r.code != 2 {
				t.Errorf("%q for x gives %+v", line, r)
			}
		}
	})

	// Reading the journal is on the record, what it said is not.
	t.Run("record", func(t *testing.T) {
		log := string(b.read(filepath.Join(b.stateDir(), "audit.log")))
		seen := make(map[string]bool)
		for _, r := range b.records() {
			seen[r.Op] = true
			if r.Op == string(wire.TLogsRequest) && r.Details["unit"] == "ssh" {
				seen["ssh"] = true
			}
		}
		for _, want := range []string{string(wire.TLogsRequest), "ssh", string(wire.TTopRequest), "STREAM_END"} {
			if !seen[want] {
				t.Errorf("the record has no %s", want)
			}
		}
		for _, never := range []string{"while it was away", "sshd"} {
			if strings.Contains(log, never) || strings.Contains(b.daemon.out.String(), never) {
				t.Errorf("the record or the log has %q", never)
			}
		}
	})

	t.Run("revoked", func(t *testing.T) {
		p := b.owner.start("logs", "-f")
		p.await(0, `lines$`)
		b.owner.must("grants", "bench", "--remove", "observe")
		if code := p.exit(); code == 0 || !strings.Contains(p.out.String(), "no longer allowed") {
			t.Errorf("it ends with %d\n%s", code, p.out)
		}
		b.owner.fails(1, wire.CapabilityNotGranted, "logs")
		b.owner.fails(1, wire.CapabilityNotGranted, "top")
	})
}

// A machine without journalctl says so, and one that shows nothing of itself
// doesn't offer to.
func TestNoLogs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.environ = []string{"PATH=" + t.TempDir()}
	b.claim("files,observe")
	if err := b.owner.fails(1, wire.DependencyMissing, "logs"); err.Details["dependency"] != "journalctl" {
		t.Errorf("%+v", err)
	}
	b.daemon.stop()
	b.tables += "[observe]\nenabled = false\n"
	b.configure()
	b.startDaemon()
	b.daemon.await(0, `^Online`)
	if err := b.owner.fails(1, wire.CapabilityNotGranted, "top"); err.Details["ceiling"] != "config" {
		t.Errorf("%+v", err)
	}
}
