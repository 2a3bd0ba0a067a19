package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"farhand/client"
	"farhand/serialio/serialsim"
	"farhand/wire"
)

// TestKill ends the daemon, the relay or both by kill -9 at random moments while
// operators write, read, list, move, run commands and talk to an instrument. What
// was killed is started again and nothing else: no file is torn, nothing that was
// answered is lost, no login, machine or session is lost, and both audit logs are
// whole.
func TestKill(t *testing.T) {
	t.Parallel()
	kills := number(t, "FARHAND_TEST_KILLS", 20)
	seed := uint64(number(t, "FARHAND_TEST_SEED", int(rand.Uint32())))
	t.Logf("%d kills; FARHAND_TEST_SEED=%d repeats them", kills, seed)
	k := &killer{t: t, b: newBench(t), rng: rand.New(rand.NewPCG(seed, 1))}
	k.b.pair(everything)
	k.firstDaemon = k.b.daemon
	token := k.b.newToken("agent")

	// Two operators, so that there are two sessions to restore.
	load := &load{t: t, b: k.b, seed: seed, stop: make(chan struct{}), agent: k.b.with(token)}
	own, agent := load.open(k.b.sdk()), load.open(k.b.sdkWith(token))
	before := k.b.sdk()
	machines, sessions := k.machines(before), k.sessions(before)
	if len(sessions) != 2 {
		t.Fatalf("sessions %v, want two", sessions)
	}
	load.run(own, agent)
	t.Cleanup(load.end)
	for round := range kills {
		if t.Failed() {
			break
		}
		k.round(round, own)
	}
	load.end()

	for _, s := range []*client.Session{own, agent} {
		k.usable(s, patience)
	}
	k.b.mustd("", "resume")
	k.online(before)
	if now := k.machines(before); now != machines {
		t.Errorf("the machines were\n%s and are\n%s", machines, now)
	}
	now := k.sessions(before)
	for id := range sessions {
		if !now[id] || len(now) != len(sessions) {
			t.Errorf("the sessions were %v and are %v", sessions, now)
		}
	}
	load.check(own)
	if got := k.b.owner.must("audit", "verify"); !strings.HasPrefix(got, "ok") {
		t.Errorf("farhand audit verify says %q", got)
	}
	k.b.wholeAudit()
	k.b.daemon.stop()
	k.b.relay.stop()
	k.b.wholeAudit()
	t.Logf("%s", load.tally())
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return n
}

type killer struct {
	t           *testing.T
	b           *bench
	rng         *rand.Rand
	firstDaemon *process
}

// pause lets the load go on for a random while.
func (k *killer) pause(limit time.Duration) {
	timer := time.NewTimer(time.Duration(k.rng.Int64N(int64(limit))))
	defer timer.Stop()
	<-timer.C
}

func (k *killer) round(n int, s *client.Session) {
	k.t.Helper()
	k.pause(400 * time.Millisecond)
	again := k.rng.IntN(3) == 0 // and once more while it starts
	switch what := k.rng.IntN(10); {
	case what < 6:
		k.killDaemon()
		if again {
			k.pause(250 * time.Millisecond)
			k.killDaemon()
		}
	case what < 9:
		k.killRelay()
		if again {
			k.pause(250 * time.Millisecond)
			k.killRelay()
		}
	default:
		k.b.relay.kill()
		k.killDaemon()
		k.pause(100 * time.Millisecond)
		k.b.startRelay()
	}
	// It comes back by itself, but after a few failures only in a minute; so most
	// rounds have it try at once.
	patient := time.Second
	if n%10 == 0 {
		patient = 20 * time.Second
	}
	k.usable(s, patient)
	if k.t.Failed() {
		k.t.Logf("this was round %d", n)
	}
}

func (k *killer) killDaemon() {
	k.t.Helper()
	k.b.daemon.kill()
	if r := k.b.farhandd("", "audit", "verify"); r.code != 0 {
		k.t.Errorf("after kill -9 of the daemon, farhandd audit verify gives %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if k.b.daemon != k.firstDaemon && strings.Contains(k.b.daemon.out.String(), "farhand approve") {
		k.t.Error("the daemon lost its login: it asks to be paired again")
	}
	if k.rng.IntN(2) == 0 {
		k.age()
	}
	k.b.startDaemon()
}

func (k *killer) killRelay() {
	k.t.Helper()
	k.b.relay.kill()
	if r := k.b.relayctl("audit", "verify"); r.code != 0 {
		k.t.Errorf("after kill -9 of the relay, farhand-relay audit verify gives %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	k.b.startRelay()
}

// age lets the stored access token's time run out, so that the daemon renews it
// at its start, and perhaps is killed while it does.
func (k *killer) age() {
	k.t.Helper()
	name := filepath.Join(k.b.stateDir(), "tokens.json")
	tokens := parse[map[string]any](k.t, string(k.b.read(name)))
	tokens["access_token_expires_at"] = "2020-01-01T00:00:00Z"
	text, err := json.Marshal(tokens)
	if err != nil {
		k.t.Fatal(err)
	}
	k.b.write(name, string(text))
}

// usable waits until a session works again; after a while of patience the daemon
// is told not to wait for its next attempt.
func (k *killer) usable(s *client.Session, patient time.Duration) {
	k.t.Helper()
	start := time.Now()
	eventually(k.t, "using the session after a kill", func() error {
		for _, p := range []*process{k.b.daemon, k.b.relay} {
			if !p.running() {
				k.t.Fatalf("%s ended by itself: %s", p.name, p.cmd.ProcessState)
			}
		}
		ctx, cancel := context.WithTimeout(k.t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.Stat(ctx, ".", true)
		if err != nil && !passing(err) && !errors.Is(err, context.DeadlineExceeded) {
			k.t.Fatalf("the session is lost: %v", err)
		}
		if err != nil && time.Since(start) > patient {
			k.b.farhandd("", "resume")
		}
		return err
	})
}

// online waits for the control connection, which comes back on its own time.
func (k *killer) online(c *client.Client) {
	k.t.Helper()
	eventually(k.t, "the machine being online", func() error {
		m, err := c.Machine(k.t.Context(), "bench")
		if err == nil && !m.Online {
			err = errors.New("offline")
		}
		return err
	})
}

// machines is what doesn't change of the machines.
func (k *killer) machines(c *client.Client) string {
	k.t.Helper()
	all, err := c.Machines(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	var text strings.Builder
	for _, m := range all {
		fmt.Fprintf(&text, "%s %s %v %v\n", m.ID, m.Name, *m.Approval.Capabilities, m.ApprovedAt)
	}
	return text.String()
}

func (k *killer) sessions(c *client.Client) map[string]bool {
	k.t.Helper()
	all, err := c.Sessions(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	ids := make(map[string]bool)
	for _, s := range all {
		ids[s.ID] = true
	}
	return ids
}

// passing says whether an error is one that a kill may cause.
func passing(err error) bool {
	for _, code := range []wire.Code{client.RelayUnreachable, wire.MachineUnreachable, wire.OpUnconfirmed, wire.RequestTimeout, wire.ShimOverloaded} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// load is what operators do meanwhile.
type load struct {
	t       *testing.T
	b       *bench
	agent   operator
	seed    uint64
	workers sync.WaitGroup
	stop    chan struct{}
	ended   sync.Once
	files   [files]file
	moved   atomic.Int64
	done    sync.Map // what -> *counts
}

const files = 6

// file is what is known of a file that one worker writes: its content is of a
// generation from confirmed to attempted.
type file struct {
	attempted, confirmed atomic.Int64
}

type counts struct{ good, failed atomic.Int64 }

func (l *load) count(what string) *counts {
	c, _ := l.done.LoadOrStore(what, new(counts))
	return c.(*counts)
}

func (l *load) tally() string {
	var text []string
	l.done.Range(func(what, c any) bool {
		text = append(text, fmt.Sprintf("%s %d (%d failed)", what, c.(*counts).good.Load(), c.(*counts).failed.Load()))
		return true
	})
	slices.Sort(text)
	return strings.Join(text, ", ")
}

func (l *load) open(c *client.Client) *client.Session {
	l.t.Helper()
	s, err := c.Open(l.t.Context(), l.b.place())
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// run starts the workers.
func (l *load) run(own, agent *client.Session) {
	for i := range l.files {
		s := own
		if i%2 == 1 {
			s = agent
		}
		l.repeat("write", uint64(i), breath, func(ctx context.Context, rng *rand.Rand) error { return l.write(ctx, rng, s, i) })
	}
	l.repeat("read", 100, breath, func(ctx context.Context, rng *rand.Rand) error { return l.readOne(ctx, own, rng.IntN(files)) })
	l.repeat("list", 101, breath, func(ctx context.Context, _ *rand.Rand) error { return l.list(ctx, agent) })
	l.repeat("move", 102, breath, func(ctx context.Context, _ *rand.Rand) error { return l.move(ctx, own) })
	l.repeat("exec", 103, breath, func(ctx context.Context, rng *rand.Rand) error { return l.exec(ctx, agent, rng) })
	l.repeat("serial", 104, breath, func(ctx context.Context, _ *rand.Rand) error { return l.serial(ctx, own) })
	l.repeat("command", 105, 20*breath, func(context.Context, *rand.Rand) error { return l.command() })
}

// breath is the shortest time from one request of a worker to its next, so that
// what fails at once doesn't eat the processor.
const breath = 15 * time.Millisecond

// repeat does one thing again and again until end.
func (l *load) repeat(what string, n uint64, every time.Duration, do func(context.Context, *rand.Rand) error) {
	rng := rand.New(rand.NewPCG(l.seed, n+2))
	c := l.count(what)
	l.workers.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			err := do(ctx, rng)
			cancel()
			switch {
			case err == nil:
				c.good.Add(1)
			case passing(err):
				c.failed.Add(1)
			default:
				l.t.Errorf("%s: %v", what, err)
				return
			}
		}
	})
}

// end waits for the workers. It may be called twice.
func (l *load) end() {
	l.ended.Do(func() { close(l.stop) })
	l.workers.Wait()
}

func fileName(i int) string { return fmt.Sprintf("file-%d", i) }

// content of a generation tells by itself whether it is whole.
func content(i int, generation int64, size int) []byte {
	head := fmt.Sprintf("file %d generation %d size %d\n", i, generation, size)
	body := append([]byte(head), bytes.Repeat([]byte{byte(generation), byte(i), 0xff, '\n'}, size/4)...)
	sum := sha256.Sum256(body)
	return append(body, sum[:]...)
}

var contentHead = regexp.MustCompile(`^file (\d+) generation (\d+) size (\d+)\n`)

// generation of a content, or an error if it isn't whole.
func generation(i int, b []byte) (int64, error) {
	m := contentHead.FindSubmatch(b)
	if m == nil || string(m[1]) != strconv.Itoa(i) || len(b) < sha256.Size {
		return 0, fmt.Errorf("%s is torn: %d bytes begin with %.80q", fileName(i), len(b), b)
	}
	body, sum := b[:len(b)-sha256.Size], [sha256.Size]byte(b[len(b)-sha256.Size:])
	if sha256.Sum256(body) != sum {
		return 0, fmt.Errorf("%s is torn: %d bytes with a wrong sum begin with %.80q", fileName(i), len(b), b)
	}
	return strconv.ParseInt(string(m[2]), 10, 64)
}

func (l *load) write(ctx context.Context, rng *rand.Rand, s *client.Session, i int) error {
	f := &l.files[i]
	next := f.attempted.Load() + 1
	size := rng.IntN(200 << 10)
	if rng.IntN(20) == 0 {
		size = 4 << 20
	}
	f.attempted.Store(next)
	err := s.Write(ctx, fileName(i), content(i, next, size), false, nil)
	if err == nil {
		f.confirmed.Store(next)
	}
	return err
}

func (l *load) readOne(ctx context.Context, s *client.Session, i int) error {
	f := &l.files[i]
	least := f.confirmed.Load()
	if least == 0 {
		return nil
	}
	got, err := s.Read(ctx, fileName(i), 0, 8<<20)
	if err != nil {
		return err
	}
	return l.between(i, got.Content, least, f.attempted.Load())
}

func (l *load) between(i int, b []byte, least, most int64) error {
	g, err := generation(i, b)
	if err == nil && (g < least || g > most) {
		err = fmt.Errorf("%s has generation %d, want one from %d to %d", fileName(i), g, least, most)
	}
	return err
}

// list sees the files that are there and nothing that is on its way to be one.
func (l *load) list(ctx context.Context, s *client.Session) error {
	got, err := s.List(ctx, wire.FileList{Path: ".", IncludeHidden: true, Recursive: true})
	if err != nil {
		return err
	}
	names := make(map[string]bool)
	for _, e := range got.Entries {
		names[e.Name] = true
		if !strings.HasPrefix(e.Name, "file-") && e.Name != "here" && e.Name != "there" {
			return fmt.Errorf("%q is listed", e.Name)
		}
	}
	for i := range l.files {
		if l.files[i].confirmed.Load() > 0 && !names[fileName(i)] && len(names) > 0 {
			// Its first confirmation may be younger than the list.
			if stat, err := s.Stat(ctx, fileName(i), true); err == nil && !stat.Exists {
				return fmt.Errorf("%s is gone", fileName(i))
			}
		}
	}
	return nil
}

// move moves one file to and fro; it is always at one of the two places.
func (l *load) move(ctx context.Context, s *client.Session) error {
	here, err := s.Stat(ctx, "here", true)
	if err != nil {
		return err
	}
	there, err := s.Stat(ctx, "there", true)
	switch {
	case err != nil:
		return err
	case here.Exists && there.Exists:
		return errors.New("a file that was moved is here and there")
	case here.Exists:
		err = s.Move(ctx, wire.FileMove{Src: "here", Dst: "there"})
	case there.Exists:
		err = s.Move(ctx, wire.FileMove{Src: "there", Dst: "here"})
	case l.moved.Load() > 0:
		return errors.New("a file that was moved is neither here nor there")
	default:
		err = s.Write(ctx, "here", []byte("moving"), false, nil)
	}
	if err == nil {
		l.moved.Add(1)
	}
	return err
}

func (l *load) exec(ctx context.Context, s *client.Session, rng *rand.Rand) error {
	n := rng.IntN(250)
	r, err := s.Exec(ctx, wire.ExecuteCommand{Argv: []string{"sh", "-c", fmt.Sprintf("echo out %d; echo err %d >&2; exit %d", n, n, n)}})
	if err != nil {
		return err
	}
	if out, errs := fmt.Sprintf("out %d\n", n), fmt.Sprintf("err %d\n", n); r.Stdout != out || r.Stderr != errs || r.ExitCode != n || r.TimedOut {
		return fmt.Errorf("exit %d gives %+v", n, r)
	}
	return nil
}

func (l *load) serial(ctx context.Context, s *client.Session) error {
	got, err := s.SerialTransact(ctx, "serial:sim-scpi", wire.SerialTransact{Data: []byte("*IDN?\n"), Until: []byte("\n"), Flush: true, TimeoutSeconds: new(5.0)}, false)
	if err == nil && string(got.Data) != serialsim.Identity+"\n" {
		err = fmt.Errorf("*IDN? is answered with %+v", got)
	}
	return err
}

// command is the same by the operator's command.
func (l *load) command() error {
	r := l.agent.run("exec", "--json", "--", "echo", "hello")
	if r.code == 0 {
		return nil
	}
	var answer struct {
		Error wire.Error `json:"error"`
	}
	if err := json.Unmarshal([]byte(r.stderr), &answer); err != nil || answer.Error.Code == "" {
		return fmt.Errorf("farhand exec gives %d: %s%s", r.code, r.stdout, r.stderr)
	}
	return &answer.Error
}

// check looks at what is on the disk when all is over.
func (l *load) check(s *client.Session) {
	l.t.Helper()
	for i := range l.files {
		f := &l.files[i]
		b, err := os.ReadFile(filepath.Join(l.b.root(), fileName(i)))
		if err == nil {
			err = l.between(i, b, f.confirmed.Load(), f.attempted.Load())
		}
		if err != nil && (f.confirmed.Load() > 0 || !errors.Is(err, os.ErrNotExist)) {
			l.t.Error(err)
		}
	}
	for _, do := range []func(context.Context, *client.Session) error{l.list, l.move, l.serial} {
		if err := do(l.t.Context(), s); err != nil {
			l.t.Error(err)
		}
	}
}
