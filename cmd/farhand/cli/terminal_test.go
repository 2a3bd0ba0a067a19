//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"farhand/client"
	"farhand/client/clienttest"
	"farhand/cmd/farhand/cli"
	"farhand/internal/leak"
	"farhand/wire"
)

// terminal is a person at a terminal: what the command shows, and what is typed.
type terminal struct {
	t      *testing.T
	person *os.File // the far end
	tty    *os.File // the command's end
	mu     sync.Mutex
	seen   bytes.Buffer
	grew   chan struct{}
	done   chan struct{}
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	person, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 100})
	term := &terminal{t: t, person: person, tty: tty, grew: make(chan struct{}, 1), done: make(chan struct{})}
	go term.watch()
	t.Cleanup(func() { tty.Close(); <-term.done; person.Close() })
	return term
}

func (s *terminal) watch() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, err := s.person.Read(buf)
		s.mu.Lock()
		s.seen.Write(buf[:n])
		s.mu.Unlock()
		select {
		case s.grew <- struct{}{}:
		default:
		}
		if err != nil { // EIO: nobody holds the other end any more
			return
		}
	}
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// wait waits until text is on the screen.
func (s *terminal) wait(text string) {
	s.t.Helper()
	deadline := time.After(time.Minute)
	for !strings.Contains(s.text(), text) {
		select {
		case <-s.grew:
		case <-deadline:
			s.t.Fatalf("%q did not appear; the screen has %q", text, s.text())
		}
	}
}

func (s *terminal) enter(line string) { io.WriteString(s.person, line+"\r") }

// press types without Enter.
func (s *terminal) press(keys string) { io.WriteString(s.person, keys) }

// run starts the command on the terminal; the channel gives its exit code.
func (s *terminal) run(ctx context.Context, r *clienttest.Relay, args ...string) <-chan int {
	code := make(chan int, 1)
	env := cli.Env{
		Args: args, Stdin: s.tty, Stdout: s.tty, Stderr: s.tty, Home: s.t.TempDir(),
		Getenv: func(name string) string {
			return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken, "TERM": "xterm"}[name]
		},
	}
	go func() { code <- cli.Run(ctx, env) }()
	return code
}

func exit(t *testing.T, code <-chan int, want int) {
	t.Helper()
	select {
	case got := <-code:
		if got != want {
			t.Fatalf("exit code %d, want %d", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command did not end")
	}
}

func TestLoginAsksOnTheTerminal(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	s := newTerminal(t)
	code := s.run(t.Context(), r, "login", r.URL)
	s.wait("Name: ")
	s.enter(clienttest.OwnerName)
	s.wait("Passphrase: ")
	s.enter(clienttest.Passphrase)
	exit(t, code, 0)
	s.wait("Signed in to")
	if strings.Contains(s.text(), clienttest.Passphrase) {
		t.Fatalf("the passphrase is on the screen: %q", s.text())
	}
}

func TestSetupAsksTwice(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	s := newTerminal(t)
	code := s.run(t.Context(), r, "login", r.URL, "--setup", clienttest.SetupToken, "--name", clienttest.OwnerName)
	s.wait("at least 12 characters): ")
	s.enter(clienttest.Passphrase)
	s.wait("The same again: ")
	s.enter("something else")
	exit(t, code, 2)
	s.wait("the two passphrases differ")
	if len(r.Calls()) != 0 {
		t.Fatalf("it asked the relay: %v", r.Calls())
	}
}

// Enter alone is no password: a card that took the network for an open one would
// never find it.
func TestWifiPasswordIsMissing(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	for _, args := range [][]string{{"flash", "none.img", "none"}, {"settings", "pi"}} {
		s := newTerminal(t)
		code := s.run(t.Context(), r, append(args, "--wifi", "home", "--country", "DE")...)
		s.wait("Password of the Wi-Fi home: ")
		s.enter("")
		exit(t, code, 2)
		s.wait("--wifi-open if there is none")
	}
	if len(r.Calls()) != 0 {
		t.Fatalf("it asked the relay: %v", r.Calls())
	}
}

// An interrupt while the passphrase is awaited gives the terminal its echo back.
func TestInterruptedPassphrase(t *testing.T) {
	r := clienttest.New(t)
	s := newTerminal(t)
	ctx, cancel := context.WithCancel(t.Context())
	code := s.run(ctx, r, "login", r.URL, "--name", "ann")
	s.wait("Passphrase: ")
	cancel()
	exit(t, code, 130)
	s.wait("interrupted")
	s.enter("seen again") // also ends the read that was left behind
	s.wait("seen again")
}

func TestCtrlCAtThePassphrase(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	s := newTerminal(t)
	code := s.run(t.Context(), r, "login", r.URL, "--name", "ann")
	s.wait("Passphrase: ")
	s.press("abc\x03")
	exit(t, code, 130)
	s.wait("interrupted")
}

func TestApproveAsks(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	s := newTerminal(t)
	code := s.run(t.Context(), r, "approve", clienttest.UserCode)
	s.wait("Does the machine show the code BCDF-GHJK? Let it in? [y/N] ")
	s.enter("")
	exit(t, code, 1)
	s.wait("Nothing was decided")
	code = s.run(t.Context(), r, "approve", clienttest.UserCode)
	s.wait("192.0.2.7")
	s.enter("y")
	exit(t, code, 0)
	s.wait("bench is let in.")
	r.Change(func() {
		r.Approvals[clienttest.UserCode] = client.Approval{UserCode: clienttest.UserCode, MachineID: "b6d767d2", DisplayName: "twin",
			Paired: &client.Paired{Name: "bench", Online: true}}
	})
	code = s.run(t.Context(), r, "approve", clienttest.UserCode)
	s.wait("Let it take the place of bench? [y/N] ")
	s.enter("n")
	exit(t, code, 1)
	code = s.run(t.Context(), r, "revoke", "pi")
	s.wait("Shut out pi (8f14e45f")
	s.enter("n")
	exit(t, code, 1)
}

func TestColourOnlyOnATerminal(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	s := newTerminal(t)
	exit(t, s.run(t.Context(), r, "machines"), 0)
	s.wait("\x1b[32monline\x1b[0m")
	var plain bytes.Buffer
	env := func(name string) string {
		return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken, "NO_COLOR": "1"}[name]
	}
	if code := cli.Run(t.Context(), cli.Env{Args: []string{"machines"}, Stdout: &plain, Stderr: io.Discard, Getenv: env}); code != 0 {
		t.Fatal(code)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Fatalf("colour in a pipe: %q", plain.String())
	}
	quiet := newTerminal(t)
	code := cli.Run(t.Context(), cli.Env{Args: []string{"machines"}, Stdout: quiet.tty, Stderr: quiet.tty, Getenv: env})
	if quiet.wait("online"); code != 0 || strings.Contains(quiet.text(), "\x1b") {
		t.Fatalf("NO_COLOR was ignored: %q", quiet.text())
	}
}

// A transfer shows a bar after a second, which a clock of the test makes pass.
func TestProgress(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	r.Device.Set("/data/work/big", make([]byte, 9<<20))
	s := newTerminal(t)
	var mu sync.Mutex
	now := clienttest.Epoch()
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TFileRead {
				mu.Lock()
				now = now.Add(700 * time.Millisecond)
				mu.Unlock()
			}
			return "", nil, clienttest.ErrPass
		}
	})
	dir := t.TempDir()
	code := cli.Run(t.Context(), cli.Env{
		Args: []string{"get", "pi:big", dir}, Stdout: s.tty, Stderr: s.tty,
		Getenv: func(name string) string {
			return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken}[name]
		},
		Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
	})
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, s.text())
	}
	s.wait("big ")
	s.wait("9.0 MiB")
	if info, err := os.Stat(filepath.Join(dir, "big")); err != nil || info.Size() != 9<<20 {
		t.Fatalf("the file: %v, %v", info, err)
	}
}
