package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/client"
	"farhand/internal/badlink"
	"farhand/wire"
)

// TestChaos makes everything between an operator and a machine go wrong, in steps
// that a seed repeats: both links break, fall silent while they seem to stand, and
// crawl; relay and daemon are killed. Meanwhile commands, transfers and terminals
// go on. No command runs twice, none is lost without an error, what was written
// compares equal byte for byte.
//
// FARHAND_TEST_CHAOS is for how many seconds (make chaos).
func TestChaos(t *testing.T) {
	t.Parallel()
	seconds := number(t, "FARHAND_TEST_CHAOS", 40)
	seed := uint64(number(t, "FARHAND_TEST_SEED", int(rand.Uint32())))
	t.Logf("%d s; FARHAND_TEST_SEED=%d repeats the steps", seconds, seed)

	c := newChaos(t, seed)
	c.b.pair(everything)
	c.killer.firstDaemon = c.b.daemon
	own := c.load.open(c.b.sdk())
	c.work(own)
	t.Cleanup(c.load.end)
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end) && !t.Failed(); {
		c.step(own)
	}
	c.load.end()

	c.killer.usable(own, patience)
	c.ledger.check(t, filepath.Join(c.b.root(), "ledger"))
	if got := c.b.owner.must("audit", "verify"); !strings.HasPrefix(got, "ok") {
		t.Errorf("farhand audit verify says %q", got)
	}
	c.b.wholeAudit()
	t.Logf("%v; %s", c.steps, c.load.tally())
}

// chaos is a bench whose programs reach each other over bad links.
type chaos struct {
	t      *testing.T
	b      *bench
	rng    *rand.Rand
	killer *killer
	load   *load
	device *badlink.Link // between daemon and relay
	desk   *badlink.Link // between operator and relay
	ledger *ledger
	steps  map[string]int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	b := bareBench(t)
	link := func() *badlink.Link {
		l, err := badlink.Listen(t.Context(), "127.0.0.1:0", b.listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	c := &chaos{t: t, b: b, rng: rand.New(rand.NewPCG(seed, 1)), device: link(), desk: link(), ledger: newLedger(), steps: make(map[string]int)}
	b.url = "http://" + c.device.Addr()
	b.configure() // the daemon's way to the relay
	b.url = "http://" + c.desk.Addr()
	b.startRelay()
	setup := b.relay.await(0, `setup token: (\S+)`)
	b.signIn("--setup", setup[1])
	c.killer = &killer{t: t, b: b, rng: c.rng}
	c.load = &load{t: t, b: b, seed: seed, stop: make(chan struct{}), agent: b.owner}
	return c
}

// work starts what goes on meanwhile.
func (c *chaos) work(s *client.Session) {
	for n := range uint64(3) {
		c.load.repeat("command", n, breath, func(ctx context.Context, _ *rand.Rand) error { return c.ledger.run(ctx, s) })
	}
	for n := range uint64(2) {
		c.load.repeat("program", 10+n, breath, func(ctx context.Context, rng *rand.Rand) error { return writing(ctx, s, 200+rng.IntN(800)) })
		c.load.repeat("copy", 30+n, breath, func(ctx context.Context, rng *rand.Rand) error {
			return copying(ctx, s, fmt.Sprintf("copy-%d", n), rng)
		})
		c.load.repeat("typing", 20+n, breath, func(ctx context.Context, rng *rand.Rand) error { return typing(ctx, s, 20+rng.IntN(200)) })
	}
}

// lines is a text that shows what is missing in it, twice or out of place.
func lines(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "line %d of %d\n", i, n)
	}
	return text.String()
}

// writing has a program write and exit: what comes is that, whatever happens
// meanwhile, or the beginning of it if the daemon that it lived by was killed.
func writing(ctx context.Context, s *client.Session, n int) error {
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i of %d"; i=$((i+1)); [ $((i%%10)) != 0 ] || sleep 0.01; done; exit 7`, n, n)
	t, err := s.OpenTerminal(ctx, wire.TerminalOpen{PTY: new(false), Argv: []string{"sh", "-c", script}})
	if err != nil {
		return err
	}
	defer t.Detach()
	return compare(ctx, t, lines(n), 7)
}

// typing has a program give back what is typed, which arrives once.
func typing(ctx context.Context, s *client.Session, n int) error {
	t, err := s.OpenTerminal(ctx, wire.TerminalOpen{PTY: new(false), Argv: []string{"cat"}})
	if err != nil {
		return err
	}
	defer t.Detach()
	var typing sync.WaitGroup
	defer typing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of what a program that has ended would still be given
	typing.Go(func() {
		for line := range strings.Lines(lines(n)) {
			if _, err := t.Write(ctx, []byte(line)); err != nil {
				return // what comes back says the rest
			}
		}
		_ = t.CloseInput(ctx)
	})
	return compare(ctx, t, lines(n), 0)
}

// copying puts a file there and fetches it back.
func copying(ctx context.Context, s *client.Session, name string, rng *rand.Rand) error {
	content := make([]byte, rng.IntN(3<<20))
	for i := range content {
		content[i] = byte(rng.Uint32())
	}
	_, err := s.Put(ctx, name, client.Source{Size: int64(len(content)), Open: func(_ context.Context, offset int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content[offset:])), nil
	}}, client.PutOptions{Patience: patience})
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	there, err := s.Source(ctx, name, patience)
	if err != nil {
		return fmt.Errorf("look at what was put: %w", err)
	}
	from, err := there.Open(ctx, 0)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	defer from.Close()
	got, err := io.ReadAll(from)
	if err == nil && !bytes.Equal(got, content) {
		return fmt.Errorf("%d bytes were put and %d others came back", len(content), len(got))
	}
	return err
}

// compare reads a terminal to its end.
func compare(ctx context.Context, t *client.Terminal, want string, exit int) error {
	var got strings.Builder
	for {
		o, err := t.Next(ctx)
		switch {
		case err != nil && !strings.HasPrefix(want, got.String()):
			return fmt.Errorf("%d bytes came that aren't what was written, then %w", got.Len(), err)
		case errors.Is(err, wire.TerminalNotFound):
			return wire.Errorf(wire.MachineUnreachable, "the daemon was killed and forgot the terminal") // passing
		case err != nil:
			return err
		case o.Lost != nil:
			return fmt.Errorf("output was lost: %+v", o)
		case o.Stderr:
			return fmt.Errorf("standard error says %q", o.Data)
		}
		if o.Reset { // it begins anew: of one that went with the daemon there is nothing but its end
			got.Reset()
		}
		got.Write(o.Data)
		if o.End == nil {
			continue
		}
		text, code := got.String(), -1
		if o.End.ExitCode != nil {
			code = *o.End.ExitCode
		}
		switch {
		case text == want && o.End.Reason == wire.TerminalExited && code == exit:
			return nil
		case o.End.Reason == wire.TerminalRestarted && strings.HasPrefix(want, text):
			return wire.Errorf(wire.MachineUnreachable, "the daemon was killed") // passing
		}
		return fmt.Errorf("%d bytes, %.60q…, want %d; the end is %s, %d, want %d", len(text), text, len(want), o.End.Reason, code, exit)
	}
}

// step does one thing wrong, for a while that is mostly short, and rights it.
func (c *chaos) step(s *client.Session) {
	c.t.Helper()
	link, whose := c.device, "device "
	if c.rng.IntN(2) == 0 {
		link, whose = c.desk, "desk "
	}
	what := [...]string{"cut", "cut", "cut", "silence", "silence", "crawl", "kill relay", "kill daemon"}[c.rng.IntN(8)]
	switch what {
	case "cut":
		link.Cut()
	case "silence":
		link.Silence()
		c.killer.pause(2 * time.Second)
		if c.rng.IntN(2) == 0 {
			link.Cut()
		}
		link.Mend()
	case "crawl":
		link.Crawl(4<<10 + c.rng.IntN(64<<10))
		c.killer.pause(2 * time.Second)
		link.Mend()
	case "kill relay":
		whose = ""
		c.killer.killRelay()
	case "kill daemon":
		whose = ""
		c.killer.killDaemon()
	}
	c.steps[whose+what]++
	c.killer.pause(time.Second)
	if c.rng.IntN(3) == 0 { // else the next comes before all is well again
		c.killer.usable(s, time.Second)
	}
}

// ledger is a file on the machine to which every command adds a line of its own.
type ledger struct {
	mu   sync.Mutex
	next int
	ran  map[int]bool // line -> whether the command was answered
}

func newLedger() *ledger { return &ledger{ran: make(map[int]bool)} }

func (l *ledger) run(ctx context.Context, s *client.Session) error {
	l.mu.Lock()
	l.next++
	n := l.next
	l.ran[n] = false
	l.mu.Unlock()
	r, err := s.Exec(ctx, wire.ExecuteCommand{Argv: []string{"sh", "-c", fmt.Sprintf("echo %d >>ledger; echo %d", n, n)}})
	if err != nil {
		return err
	}
	if r.Stdout != fmt.Sprintln(n) || r.ExitCode != 0 {
		return fmt.Errorf("command %d is answered with %+v", n, r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran[n] = true
	return nil
}

// check compares what commands did with what was answered.
func (l *ledger) check(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	times := make(map[int]int)
	for line := range strings.Lines(string(text)) {
		var n int
		if _, err := fmt.Sscanf(line, "%d\n", &n); err != nil {
			t.Errorf("the ledger has a line %q", line)
		}
		times[n]++
	}
	for n, answered := range l.ran {
		switch {
		case times[n] > 1:
			t.Errorf("command %d ran %d times", n, times[n])
		case answered && times[n] == 0:
			t.Errorf("command %d was answered and never ran", n)
		}
	}
	if len(l.ran) == 0 || !slices.Contains(slices.Collect(maps.Values(l.ran)), true) {
		t.Error("no command was answered at all")
	}
}
