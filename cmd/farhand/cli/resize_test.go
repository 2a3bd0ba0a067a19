//go:build unix

package cli_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"farhand/client/clienttest"
	"farhand/internal/leak"
	"farhand/wire"
)

// since waits until text is on the screen behind what was there.
func (s *terminal) since(mark int, text string) {
	s.t.Helper()
	deadline := time.After(time.Minute)
	for !strings.Contains(s.text()[mark:], text) {
		select {
		case <-s.grew:
		case <-deadline:
			s.t.Fatalf("%q did not appear; the screen has %q", text, s.text()[mark:])
		}
	}
}

// What is drawn in place is drawn anew when the terminal gets another width, though
// nothing else has changed; the terminal has broken the lines that are too wide by then.
func TestResizeOfALiveView(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	b := newBench(r)
	busy := 0.25
	now := wire.Top{Time: 1712345678, Busy: &busy, Power: &wire.TopPower{Text: "under-voltage; since the start also: throttled"}}
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type != wire.TTopRequest {
				return b.handle(env)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			return wire.TTopResponse, wire.TopResponse{Top: now, Stream: b.stream(nil, nil).Stream}, nil
		}
	})
	for _, c := range []struct{ args, before, after string }{
		{"gpio watch pi GPIO17", "\x1b[31m3\x1b[0m", "\x1b[5A\r\x1b[J"},
		{"gpio set pi GPIO17=1 --stay", "LEVEL", "\x1b[2A\r\x1b[J"},
		{"print watch pi", "\x1b[32mready\x1b[0m", "\x1b[1A\r\x1b[J"},
		{"top pi", "also: throttled", "\x1b[4A\r\x1b[J"},
	} {
		t.Run(c.args, func(t *testing.T) {
			s := newTerminal(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			code := s.run(ctx, r, strings.Fields(c.args)...)
			s.wait(c.before)
			mark := len(s.text())
			if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 24, Cols: 30}); err != nil {
				t.Fatal(err)
			}
			s.since(mark, c.after)
			cancel()
			exit(t, code, 0)
		})
	}
}

// What is told meanwhile stands above what is drawn in place, and the view is whole.
func TestLiveViewBelowWhatIsTold(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	b := newBench(r)
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TStreamAttach {
				return "", nil, wire.Errorf(wire.MachineUnreachable, "offline")
			}
			kind, payload, err := b.handle(env)
			if result, ok := payload.(wire.HardwareResult); ok {
				if w, ok := result.Result.(wire.GPIOWatching); ok {
					w.Polled = []int{17}
					result.Result = w
					payload = result
				}
			}
			return kind, payload, err
		}
	})
	s := newTerminal(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := s.run(ctx, r, "gpio", "watch", "pi", "GPIO17")
	s.wait("looking at it.\r\n\r\x1b[J")
	s.wait("\x1b[31m3\x1b[0m")
	mark := len(s.text())
	r.Cut()
	s.since(mark, "\x1b[2A\r\x1b[JThe link is lost")
	s.since(mark, "EDGES") // and there it is again
	cancel()
	exit(t, code, 0)
}
