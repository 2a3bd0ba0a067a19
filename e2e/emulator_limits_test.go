package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/daemon"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// A platform that allows little: the lower limit of both sides counts for
// everything, also on the next connection.
func TestEmulatorLimits(t *testing.T) {
	t.Parallel()
	const marker = "\n[command output truncated]\n"
	c := newCloud(t)
	c.Ack = func(s *shimtest.Socket, ack map[string]any) bool {
		ack["max_file_size_bytes"], ack["command_timeout_seconds"], ack["max_concurrent"] = 100, 0.3, 1000
		if s.Session == "" {
			ack["session_id"] = ""
		} else {
			ack["protocol_version"] = "1.0" // will do on data
		}
		return true
	}
	b := c.bench()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon("FARHAND_LOG_LEVEL=debug", "STATE_DIRECTORY=/nowhere")
	s, _ := b.on(c).open("limits")
	run := func(payload map[string]any) wire.CommandResult {
		t.Helper()
		e := s.Call(wire.TExecuteCommand, payload)
		emObject(t, e, wire.TCommandResult, "stdout", "stderr", "exit_code", "timed_out", "duration_seconds", "output_truncated")
		return answer[wire.CommandResult](t, e, wire.TCommandResult)
	}
	text := strings.Repeat("0123456789", 20)
	for _, x := range []struct{ line, stdout, stderr string }{
		{"printf " + text[:100], text[:100], ""},
		{"printf " + text[:101], text[:72], marker},
		{"printf " + text[:60] + "; sleep 0.05; printf " + text[:60] + " >&2", text[:32], text[:40] + marker},
		{"printf " + text + " >&2", "", text[:72] + marker},
		{"printf 12345; sleep 0.05; printf " + text + " >&2", "", text[:72] + marker},
	} {
		r := run(map[string]any{"command": x.line})
		if r.Stdout != x.stdout || r.Stderr != x.stderr || r.OutputTruncated != (strings.Contains(x.stderr, marker)) || r.ExitCode != 0 {
			t.Errorf("%s gives %+v", x.line, r)
		}
	}
	if r := run(map[string]any{"argv": []string{"sleep", "300"}, "timeout_seconds": 200}); !r.TimedOut || r.ExitCode != -1 || r.DurationSeconds > 10 {
		t.Errorf("a command beyond the platform's limit gives %+v", r)
	}
	if r := run(map[string]any{"command": "kill -9 $$"}); r.ExitCode != -9 || r.TimedOut {
		t.Errorf("a command that kills itself gives %+v", r)
	}
	// The environment is the safe one, with what was sent over it.
	env := run(map[string]any{"command": "env | grep -c FARHAND; echo $PYTHONIOENCODING $LC_ALL $STATE_DIRECTORY.", "env": map[string]string{"PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}}).Stdout
	if env != "0\nutf-8 C .\n" {
		t.Errorf("the environment is %q", env)
	}
	// A session of its own, nothing to read, no descriptor but the three.
	if r := run(map[string]any{"command": `cat; set -- $(cat /proc/self/stat); test "$6" = $$ && echo own; cd /proc/$$/fd && echo *`, "shell": "sh"}); r.Stdout != "own\n0 1 2 3\n" { // 3 is the directory that is being listed
		t.Errorf("a command is in its surroundings: %+v", r)
	}
	emRefused(t, s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"true"}, "cwd": filepath.Join(b.root(), "none")}), wire.PathNotFound, map[string]any{"path": filepath.Join(b.root(), "none")})
	b.write(filepath.Join(b.root(), "file"), text)
	if e := s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"true"}, "cwd": filepath.Join(b.root(), "file")}); e.Type != wire.TError {
		t.Errorf("a file as cwd gives %s", e.Payload)
	}
	emRefused(t, s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"true"}, "cwd": "/tmp"}), wire.PathOutsideAllowedRoot, map[string]any{"path": "/tmp"})
	emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": filepath.Join(b.root(), "file")}), wire.FileTooLarge, map[string]any{"max_file_size_bytes": 100, "attempted_bytes": 200})
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": filepath.Join(b.root(), "file"), "content": text}), wire.FileTooLarge, map[string]any{"max_file_size_bytes": 100, "attempted_bytes": 200})
	// Our own max_concurrent stays, and the next HELLO_ACK counts anew.
	if e := s.Call(wire.TFileStat, map[string]any{"path": "file"}); *e.PendingCapacity != 4 {
		t.Errorf("pending_capacity %d", *e.PendingCapacity)
	}
	c.Script(func() { c.Ack = nil })
	s.Close(1000, "")
	s = b.hurry(c)
	if v := answer[wire.FileContents](t, s.Call(wire.TFileRead, map[string]any{"path": filepath.Join(b.root(), "file")}), wire.TFileContents); string(v.Content) != text {
		t.Error("the earlier limit still counts")
	}
}

// hurry is the next socket, without the wait between two attempts.
func (b *bench) hurry(c *cloud) (s *shimtest.Socket) {
	b.t.Helper()
	eventually(b.t, "the next socket", func() error {
		b.mustd("", "resume")
		select {
		case s = <-c.Arrivals():
			return nil
		default:
			return errors.New("none yet")
		}
	})
	return s
}

// A resume that came while there was nothing to resume doesn't count later.
func TestEmulatorEarlyResume(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	s := c.Next()
	for _, code := range []int{4429, 4427} {
		b.awaitState(daemon.StateOnline)
		b.mustd("", "resume")
		s.Close(code, "")
		b.awaitState(daemon.StateHalted)
		if code, _ := s.Ended(); code == 1006 {
			t.Error("the close isn't answered")
		}
		if n := len(c.Arrivals()); n != 0 {
			t.Errorf("%d: it came back by itself", code)
		}
		b.mustd("", "resume")
		s = c.Next()
	}
}

// Tokens that are over, refused, or can't be renewed just now.
func TestEmulatorTokens(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.bench()
	// Known to be over: renewed before the first connection.
	old := c.access
	b.mustd(fmt.Sprintf(`{"access_token":%q,"refresh_token":%q,"access_token_expires_at":%q}`, c.access, c.refresh,
		time.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04:05.999999")), "login", "--tokens", "-")
	b.startDaemon()
	s := c.Next()
	for _, token := range c.Tokens() {
		if token == old || token == "" {
			t.Errorf("it dials with %q", token)
		}
	}
	// Revoked, but the token endpoint is in trouble: that isn't an answer.
	c.expire()
	c.answers(http.StatusServiceUnavailable)
	from := b.daemon.out.len()
	s.Close(4401, "expired")
	b.daemon.await(from, "503")
	b.awaitState(daemon.StateConnecting)
	c.answers(0)
	s = b.hurry(c)

	// Another login takes the place of the one that is in use.
	c.mu.Lock()
	c.rotate()
	c.mu.Unlock()
	b.mustd(c.file(), "login", "--tokens", "-")
	s.Ended()
	s = c.Next()
	if used := c.Tokens(); used[len(used)-1] != c.access {
		t.Errorf("after a new login it dials with %q", used[len(used)-1])
	}

	// Refused: the login is over. The refresh token is sent once and no more.
	c.expire()
	c.mu.Lock()
	c.refresh = "agpt_rt_gone"
	c.mu.Unlock()
	s.Close(4401, "expired")
	if code := b.daemon.exit(); code != 77 {
		t.Errorf("it ends with %d", code)
	}
	if _, spent := c.count(); spent != 1 {
		t.Errorf("a refresh token that was refused is sent %d times", spent)
	}
	if left, err := os.ReadFile(filepath.Join(b.stateDir(), "tokens.json")); err != nil || strings.Contains(string(left), "agpt_rt") {
		t.Errorf("what is left is %s, %v", left, err)
	}

	// A renewed token that is refused too: no loop, and no second refresh.
	c.mu.Lock()
	c.rotate()
	c.mu.Unlock()
	before, _ := c.count()
	c.Script(func() { c.Upgrade = func(*http.Request) int { return http.StatusUnauthorized } })
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	if code := b.daemon.exit(); code != 77 {
		t.Errorf("it ends with %d", code)
	}
	if n, _ := c.count(); n != before+1 {
		t.Errorf("%d refreshes", n-before)
	}
	b.chained()
}
