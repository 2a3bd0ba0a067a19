//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"farhand/client/clienttest"
	"farhand/cmd/farhand/cli"
	"farhand/internal/leak"
	"farhand/wire"
)

// screen is an output that is no terminal, and can be waited for.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{}
}

func newScreen() *screen { return &screen{grew: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.text.Write(p)
	select {
	case s.grew <- struct{}{}:
	default:
	}
	return n, err
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) wait(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !strings.Contains(s.String(), text) {
		select {
		case <-s.grew:
		case <-deadline:
			t.Fatalf("%q did not appear: %q", text, s.String())
		}
	}
}

// start runs the command with its output on a screen.
func start(ctx context.Context, r *clienttest.Relay, args ...string) (*screen, *screen, <-chan int) {
	out, err := newScreen(), newScreen()
	code := make(chan int, 1)
	env := cli.Env{Args: args, Stdin: strings.NewReader(""), Stdout: out, Stderr: err,
		Now: func() time.Time { return clienttest.Epoch() },
		Getenv: func(name string) string {
			return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken}[name]
		}}
	go func() { code <- cli.Run(ctx, env) }()
	return out, err, code
}

// Ctrl-C is how a watch ends: the stream is closed, and the exit code is 0.
func TestInterruptEndsAWatch(t *testing.T) {
	for _, c := range []struct{ args, seen string }{
		{"gpio watch pi GPIO17", "GPIO17    is 0"},
		{"gpio watch pi GPIO17 --json", `"kind":"level"`},
		{"serial watch pi", "world"},
		{"usb watch pi", "01 02 ff"},
		{"print watch pi", "PrintDone"},
		{"devices pi --watch", "printer:prusa"},
	} {
		t.Run(c.args, func(t *testing.T) {
			leak.Check(t)
			r := clienttest.New(t)
			newBench(r)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, errs, code := start(ctx, r, strings.Fields(c.args)...)
			out.wait(t, c.seen)
			cancel()
			exit(t, code, 0)
			if strings.Contains(errs.String(), "interrupted") {
				t.Errorf("it says so: %q", errs)
			}
			if !slices.Contains(r.Calls(), string(wire.TStreamClose)) {
				t.Errorf("the stream was not closed: %v", r.Calls())
			}
		})
	}
}

// What the terminal shows of Ctrl-C has a line of its own.
func TestInterruptHasItsLine(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	b := newBench(r)
	hangs := make(chan struct{})
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TExecuteCommand {
				close(hangs)
				return "", nil, nil // no answer
			}
			return b.handle(env)
		}
	})
	for _, c := range []struct {
		args, seen, after string
		code              int
	}{
		{"exec pi -- sleep 100", "", "\r\n\x1b[31mfarhand:\x1b[0m interrupted", 255},
		{"gpio set pi GPIO17=1 --stay", "GPIO17", "\r\n\r\n", 0},
		{"gpio watch pi GPIO17", "rising", "\r\n\r\n", 0},
	} {
		s := newTerminal(t)
		ctx, cancel := context.WithCancel(t.Context())
		code := s.run(ctx, r, strings.Fields(c.args)...)
		if c.seen == "" {
			<-hangs
		}
		s.wait(c.seen)
		cancel()
		exit(t, code, c.code)
		s.wait(c.after)
	}
}

// Before anything has begun it is an interrupt like any other, and so it is for
// what isn't done before its end.
func TestInterruptOfWhatIsNoWatch(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	b := newBench(r)
	ctx, cancel := context.WithCancel(t.Context())
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.THardwareOp {
				cancel()
				return "", nil, nil // no answer
			}
			return b.handle(env)
		}
	})
	_, errs, code := start(ctx, r, "gpio", "watch", "pi", "GPIO17")
	exit(t, code, 130)
	errs.wait(t, "interrupted")

	r.Change(func() { r.Handle = joinNever(b) })
	ctx, cancel = context.WithCancel(t.Context())
	_, errs, code = start(ctx, r, "print", "join", "pi")
	errs.wait(t, "allow it within")
	cancel()
	exit(t, code, 130)
}

// joinNever is the bench with a printer's owner who doesn't decide.
func joinNever(b *bench) clienttest.Handler {
	return func(env wire.Envelope) (wire.Type, any, error) {
		if env.Type != wire.THardwareOp {
			return "", nil, clienttest.ErrPass
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		opened := b.stream([]any{wire.PrinterJoinEvent{Decision: wire.JoinWaiting}}, nil)
		return wire.THardwareResult, wire.HardwareResult{Device: "printer:prusa", Generation: 1,
			Result: wire.PrinterJoining{Opened: opened, Hint: "allow it within ten minutes"}}, nil
	}
}

func TestWatchDevices(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	newBench(r)
	d := wire.HardwareDevice{Type: "usb", ID: "usb:046d:c31c@1-1.2", Desc: "Keyboard", Available: true, Generation: 1}
	for _, c := range []struct {
		args string
		seen []string
	}{
		{"devices pi --watch --count 2", []string{"2026-11-29 12:00:00Z  added    usb:046d:c31c@1-1.2  Keyboard  available\n", "removed  usb:046d:c31c@1-1.2  Keyboard\n"}},
		{"devices pi --watch --count 2 --json", []string{`{"event":"added","device":{"type":"usb","id":"usb:046d:c31c@1-1.2"`}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out, _, code := start(ctx, r, strings.Fields(c.args)...)
		out.wait(t, "printer:prusa")
		r.Plug(wire.HardwareAdded, d)
		r.Plug(wire.HardwareRemoved, d)
		exit(t, code, 0)
		for _, text := range c.seen {
			out.wait(t, text)
		}
		cancel()
	}
	_, errs, code := start(t.Context(), r, "devices", "pi", "--count", "2")
	exit(t, code, 2)
	errs.wait(t, "go with --watch")
}

// A daemon that was started anew knows no stream of before: the devices are
// listed again.
func TestWatchDevicesOfARestartedDaemon(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	newBench(r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newScreen()
	var minutes atomic.Int64
	code := make(chan int, 1)
	env := cli.Env{Args: []string{"devices", "pi", "--watch", "--json"}, Stdout: out, Stderr: newScreen(),
		Now: func() time.Time { return clienttest.Epoch().Add(time.Duration(minutes.Add(1)) * time.Minute) },
		Getenv: func(name string) string {
			return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken}[name]
		}}
	go func() { code <- cli.Run(ctx, env) }()
	out.wait(t, `"printer:prusa"`)
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TStreamAttach {
				return "", nil, wire.Errorf(wire.StreamNotFound, "there is no such stream")
			}
			return "", nil, clienttest.ErrPass
		}
	})
	r.Cut()
	for strings.Count(out.String(), `{"opened"`) < 2 {
		select {
		case <-out.grew:
		case <-time.After(time.Minute):
			t.Fatalf("they were not listed again: %s", out)
		}
	}
	cancel()
	exit(t, code, 0)
}

// A line that is kept is looked at often enough for its dead-man, and given back
// at the end.
func TestStay(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	b := newBench(r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, _, code := start(ctx, r, "gpio", "set", "pi", "GPIO17=1", "--on-release", "0", "--deadman", "100ms", "--stay")
	out.wait(t, "GPIO17  1")
	b.mu.Lock()
	b.levels["GPIO17"] = 0 // somebody shorts it
	b.mu.Unlock()
	out.wait(t, "GPIO17  0")
	cancel()
	exit(t, code, 0)
	if body := r.Body(string(wire.THardwareOp)); !strings.Contains(body, `"op":"RELEASE","args":{"lines":["17"]}`) {
		t.Errorf("the last operation was %s", body)
	}

	// PWM alike; and what can't be kept any more is a failure.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	out, errs, code := start(ctx, r, "gpio", "pwm", "pi", "GPIO18", "--duty", "0.5", "--deadman", "80ms", "--stay", "--json")
	out.wait(t, `"running":true`)
	b.mu.Lock()
	b.fail[wire.OpGPIOGet] = *wire.Errorf(wire.HardwareBusy, "in use by bob").With("holder", "bob")
	b.mu.Unlock()
	exit(t, code, 1)
	errs.wait(t, "HARDWARE_BUSY")
}

// On a terminal what changes is written again in place.
func TestLiveOnATerminal(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	newBench(r)
	for _, c := range []struct {
		args string
		seen []string
	}{
		{"gpio watch pi GPIO17", []string{"EDGES", "\x1b[2A\r\x1b[J", "\x1b[31m3\x1b[0m", "rising"}},
		{"gpio watch pi GPIO17 --log", []string{"rising   1"}},
		{"print watch pi", []string{"PrintDone", "\x1b[32mready\x1b[0m"}},
		{"usb watch pi", []string{"01 02 ff"}},
		{"serial watch pi", []string{"hello\r\n", `\x1b[2Jworld`}},
	} {
		t.Run(c.args, func(t *testing.T) {
			s := newTerminal(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			code := s.run(ctx, r, strings.Fields(c.args)...)
			for _, text := range c.seen {
				s.wait(text)
			}
			cancel()
			exit(t, code, 0)
		})
	}
	s := newTerminal(t)
	exit(t, s.run(t.Context(), r, "gpio", "pinout", "pi"), 0)
	s.wait("\x1b[31m( 2)  5V\x1b[0m") // red, as its wires are
	s = newTerminal(t)
	exit(t, s.run(t.Context(), r, "i2c", "read", "pi", "i2c:1", "0x76", "-n", "3"), 0)
	s.wait("00000000  58 59 5a ") // a dump
	s = newTerminal(t)
	exit(t, s.run(t.Context(), r, "usb", "receive", "pi", "--text"), 0)
	s.wait(`pong\x00`)
}

// A link that is lost during a watch is told, and nothing of the stream is missed.
func TestWatchOverALostLink(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	b := newBench(r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, _, code := start(ctx, r, "serial", "watch", "pi", "--raw")
	out.wait(t, "world\n")
	r.Cut()
	b.mu.Lock()
	io.WriteString(b.open[0], "after it\n")
	b.mu.Unlock()
	out.wait(t, "after it\n")
	cancel()
	exit(t, code, 0)
}

// What comes line by line keeps to a narrow terminal, too.
func TestLinesOnANarrowTerminal(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	newBench(r)
	steers := regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)
	for _, c := range []struct{ args, seen string }{
		{"gpio watch pi GPIO17 --log --count 3", "edges were"},
		{"usb watch pi --count 2", "6b 65"},
		{"print watch pi --log --count 3", "PrintDone"},
	} {
		s := newTerminal(t)
		if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 24, Cols: 40}); err != nil {
			t.Fatal(err)
		}
		exit(t, s.run(t.Context(), r, strings.Fields(c.args)...), 0)
		s.wait(c.seen)
		for line := range strings.SplitSeq(steers.ReplaceAllString(s.text(), ""), "\n") {
			if n := utf8.RuneCountInString(strings.Trim(line, "\r")); n > 40 {
				t.Errorf("%s: %d columns: %q", c.args, n, line)
			}
		}
	}
}
