package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
	"farhand/internal/badlink"
	"farhand/internal/natstest"
	"farhand/wire"
)

// TestCluster runs three relays as one, over a NATS server, behind a balancer
// that knows nothing, and kills one after the other while operators write, read
// and run commands, the one that has the machine most often. Nothing but the one
// that was killed is started again, and later. What was asked for has an answer,
// in time; what was answered was done once, and nothing was done twice.
func TestCluster(t *testing.T) {
	t.Parallel()
	kills := number(t, "FARHAND_TEST_KILLS", 3)
	seed := uint64(number(t, "FARHAND_TEST_SEED", int(rand.Uint32())))
	t.Logf("%d kills; FARHAND_TEST_SEED=%d repeats them", kills, seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := newRelayCluster(t, 3)
	b := c.bench
	b.claim("files,shell")

	load := &clusterLoad{t: t, seed: seed, stop: make(chan struct{}), log: filepath.Join(b.root(), "log")}
	for i := range 4 {
		load.worker(b.sdk(), i)
	}
	defer load.end()
	for range kills {
		pause := time.NewTimer(500*time.Millisecond + time.Duration(rng.Int64N(int64(500*time.Millisecond))))
		<-pause.C
		victim := rng.IntN(len(c.relays))
		if home := c.home(); home >= 0 && rng.IntN(4) > 0 {
			victim = home
		}
		done := load.done.Load()
		c.relays[victim].kill()
		// The load goes on by way of the others before the dead one is back.
		eventually(t, "commands after a relay was killed", func() error {
			if load.done.Load() < done+4 {
				return errors.New("none were answered")
			}
			return nil
		})
		c.start(victim)
	}
	load.end()
	load.check()
	if got := b.owner.must("audit", "verify"); !strings.HasPrefix(got, "ok") {
		t.Errorf("farhand audit verify says %q", got)
	}
	acts := parse[client.Acts](t, b.owner.must("audit", "--relay", "--lines", "1000", "--json"))
	commands := 0
	for _, a := range acts.Records {
		if a.Op == string(wire.TExecuteCommand) && a.Details.Phase == "" && a.Result.OK {
			commands++
		}
	}
	if commands == 0 || acts.InstancesMissing > 0 {
		t.Errorf("farhand audit --relay has %d commands, of %d instances nothing", commands, acts.InstancesMissing)
	}
	if got := b.owner.must("audit", "verify", "--relay"); !strings.HasPrefix(got, "ok") {
		t.Errorf("farhand audit verify --relay says %q", got)
	}
	t.Logf("%d commands done, %d in doubt, %d refused", load.done.Load(), load.doubtful.Load(), load.refused.Load())
}

// Whoever follows the events behind the balancer misses nothing when instances die,
// the own one too; and each instance's numbers are its own.
func TestClusterEvents(t *testing.T) {
	t.Parallel()
	c := newRelayCluster(t, 3)
	b := c.bench
	b.claim("files")
	f := b.owner.start("events", "-f", "--json")
	f.await(0, `"machine_online"`)
	for range 3 { // so that it is the follower's own instance at some time, or was not at all
		home := c.home()
		from := f.out.len()
		c.relays[home].kill()
		f.await(from, `"machine_online"`)
		c.start(home)
		c.relays[home].await(0, `relay serves`)
	}
	from := f.out.len()
	b.owner.must("token", "create", "--name", "t")
	f.await(from, `"token_created"`)
	if strings.Contains(f.out.String(), `"gap"`) {
		t.Errorf("followed:\n%s", f.out)
	}
	first := b.owner.must("events", "--json")
	for range c.relays { // each in turn
		if got := b.owner.must("events", "--json"); got != first {
			t.Errorf("one instance tells\n%sanother\n%s", first, got)
		}
	}
	online := 0
	for i := range c.relays {
		text := scraped(t, http.DefaultClient, "http://"+c.scrape[i]+"/metrics")
		for _, want := range []string{fmt.Sprintf(`farhand_relay_info{cluster="farhand",name="relay%d",version=`, i), "farhand_relay_instances 3\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("instance %d shows no %s", i, want)
			}
		}
		online += strings.Count(text, "farhand_relay_machines_online 1\n")
	}
	if online != 1 {
		t.Errorf("%d instances count the machine", online)
	}
}

// everywhere makes a connection of its own for each request, so that each comes to
// another relay.
type everywhere string

func (token everywhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	r.Close = true
	return http.DefaultTransport.RoundTrip(r)
}

// An agent whose every request comes to another relay notices nothing of it, also
// when the one that has its session dies.
func TestClusterAgent(t *testing.T) {
	t.Parallel()
	c := newRelayCluster(t, 3)
	b := c.bench
	b.claim("files,shell,hardware_gpio")
	_, tokens := b.agentToken("agent", url.Values{"cap": {"files", "shell"}})
	token := tokens["access_token"].(string)
	a := connect(t, &sdk.StreamableClientTransport{Endpoint: b.url + "/mcp", HTTPClient: &http.Client{Transport: everywhere(token)}, MaxRetries: 5})
	if !slices.Contains(a.names, "run_command") || slices.Contains(a.names, "gpio_read") {
		t.Errorf("tools are %v", a.names)
	}
	for i := range 9 {
		a.call("write_file", fmt.Sprintf(`{"path": "note", "content": "%d"}`, i))
		if out, _ := a.call("read_file", `{"path": "note"}`); out["content"] != fmt.Sprint(i) {
			t.Errorf("read %v", out)
		}
	}
	out, _ := a.call("terminal_open", `{"argv": ["env", "PS1=$ ", "sh", "-i"], "until": "\\$ $"}`)
	terminal := out["terminal"].(string)
	typed := func(text, until string) string {
		t.Helper()
		out, _ := a.call("terminal_write", fmt.Sprintf(`{"terminal": %q, "text": %q, "until": %q}`, terminal, text, until))
		return fmt.Sprint(out["output"])
	}
	if got := typed("echo o''ne\n", "one"); !strings.Contains(got, "one") {
		t.Errorf("the terminal says %q", got)
	}
	// Cancelling comes another way than what it cancels, and reaches the machine.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.session.CallTool(ctx, &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"argv": []string{"sh", "-c", "echo $$ > pid; exec sleep 300"}}})
		ended <- err
	}()
	var pid string
	eventually(t, "the command", func() error {
		text, err := os.ReadFile(filepath.Join(b.root(), "pid"))
		if pid = strings.TrimSpace(string(text)); pid == "" {
			return fmt.Errorf("not there yet: %v", err)
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, it ends with %v", err)
	}
	gone(t, pid)

	// Each relay dies once, and so does the one that has the session.
	for i := range c.relays {
		c.relays[i].kill()
		eventually(t, "a call after a relay was killed", func() error {
			got, err := a.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "file_info", Arguments: map[string]any{"path": "note"}})
			if err != nil {
				return err
			}
			if got.IsError {
				return fmt.Errorf("%+v", got.Content[0])
			}
			return nil
		})
		if got := typed("echo aft''er\n", "after"); !strings.Contains(got, "after") {
			t.Errorf("after relay %d was killed the terminal says %q", i, got)
		}
		c.start(i)
		c.relays[i].await(0, `relay serves`)
	}
	if status, _ := b.status(http.MethodPost, "/mcp", token, http.Header{"Mcp-Session-Id": {"nonsense"}}); status != http.StatusNotFound {
		t.Errorf("a session that never was: %d", status)
	}
}

// relayCluster is several relays behind a balancer, which is what the bench takes
// for its relay.
type relayCluster struct {
	*bench
	nats   *natstest.Server
	addrs  []string
	scrape []string // where each shows its numbers
	relays []*process
	links  []*badlink.Link // each one's way to NATS; nil: a straight one
	sick   []atomic.Bool   // what the balancer leaves out
}

func newRelayCluster(t *testing.T, n int) *relayCluster {
	t.Helper()
	return newRelayClusterBy(t, n, false)
}

// newRelayClusterBy makes one whose instances reach NATS by links that can be
// broken, if links is set.
func newRelayClusterBy(t *testing.T, n int, links bool) *relayCluster {
	t.Helper()
	c := &relayCluster{bench: bareBench(t), nats: natstest.Start(t), relays: make([]*process, n), links: make([]*badlink.Link, n), sick: make([]atomic.Bool, n)}
	for range n {
		c.addrs, c.scrape = append(c.addrs, address(t)), append(c.scrape, address(t))
	}
	for i := range c.links {
		if !links {
			break
		}
		l, err := badlink.Listen(t.Context(), "127.0.0.1:0", strings.TrimPrefix(c.nats.URL, "nats://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		c.links[i] = l
	}
	c.balance()
	c.start(0)
	setup := c.relays[0].await(0, `setup token: (\S+)`)
	c.signIn("--setup", setup[1])
	for i := 1; i < n; i++ { // there is an owner now, so these announce no setup
		c.start(i)
		c.relays[i].await(0, `relay serves`)
	}
	return c
}

func (c *relayCluster) start(i int) {
	c.t.Helper()
	at := c.nats.URL
	if c.links[i] != nil {
		at = "nats://" + c.links[i].Addr()
	}
	c.relays[i] = start(c.t, fmt.Sprint("relay ", i), c.env(), program("farhand-relay"), "run", "--listen", c.addrs[i],
		"--data-dir", filepath.Join(c.dir, fmt.Sprint("relay", i)), "--nats", at, "--public-url", c.url,
		"--metrics-listen", c.scrape[i], "--instance", fmt.Sprint("relay", i))
}

// home is the relay that has the machine's control socket, by its log; -1 if
// nobody says.
func (c *relayCluster) home() int {
	last, at := -1, ""
	for i, r := range c.relays {
		if !r.running() {
			continue
		}
		for line := range strings.Lines(r.out.String()) {
			if strings.Contains(line, "device connected") && !strings.Contains(line, "session=") {
				if stamp, _, _ := strings.Cut(line, " level"); stamp > at {
					last, at = i, stamp
				}
			}
		}
	}
	return last
}

// balance takes connections where the relay is said to be and gives each to the
// next relay in turn that answers.
func (c *relayCluster) balance() {
	c.t.Helper()
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		c.t.Fatal(err)
	}
	var all sync.WaitGroup
	c.t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for turn := 0; ; turn++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				for i := range c.addrs {
					at := (turn + i) % len(c.addrs)
					if c.sick[at].Load() {
						continue
					}
					relay, err := net.Dial("tcp", c.addrs[at])
					if err != nil {
						continue
					}
					defer relay.Close()
					splice(conn.(*net.TCPConn), relay.(*net.TCPConn))
					return
				}
			})
		}
	})
}

// splice copies both ways until both are done.
func splice(a, b *net.TCPConn) {
	done := make(chan struct{}, 2)
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].CloseWrite()
			done <- struct{}{}
		}()
	}
	<-done
	// A relay that was killed answers nothing more; nor does who asked it.
	_ = a.SetReadDeadline(time.Now().Add(time.Second))
	_ = b.SetReadDeadline(time.Now().Add(time.Second))
	<-done
}

// clusterLoad has workers append lines to one file by commands.
type clusterLoad struct {
	t       *testing.T
	seed    uint64
	log     string // on the machine, which is here
	stop    chan struct{}
	ended   sync.Once
	workers sync.WaitGroup
	asked   sync.Map // line -> how it ended: "done", "doubtful", "refused"

	done, doubtful, refused atomic.Int64
}

func (l *clusterLoad) worker(c *client.Client, n int) {
	rng := rand.New(rand.NewPCG(l.seed, uint64(n+2)))
	l.workers.Go(func() {
		tick := time.NewTicker(breath)
		defer tick.Stop()
		var s *client.Session
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			err := l.once(ctx, c, &s, rng, fmt.Sprintf("%d-%d", n, i))
			cancel()
			if err != nil {
				l.t.Errorf("worker %d: %v", n, err)
				return
			}
		}
	})
}

// once does one thing and notes how it ended. What it returns should not happen.
func (l *clusterLoad) once(ctx context.Context, c *client.Client, s **client.Session, rng *rand.Rand, line string) error {
	if *s == nil {
		opened, err := c.Open(ctx, client.Place{Machine: "bench"})
		if err != nil {
			if passing(err) {
				return nil
			}
			return fmt.Errorf("opening a session: %w", err)
		}
		*s = opened
	}
	if rng.IntN(3) == 0 { // what may be repeated, in between
		_, err := (*s).Stat(ctx, ".", true)
		if err != nil && !passing(err) {
			return fmt.Errorf("stat: %w", err)
		}
	}
	l.asked.Store(line, "asked")
	_, err := (*s).Exec(ctx, wire.ExecuteCommand{Argv: []string{"sh", "-c", "echo " + line + " >> " + l.log}})
	how := "done"
	switch {
	case err == nil:
		l.done.Add(1)
	case errors.Is(err, wire.OpUnconfirmed), errors.Is(err, client.RelayUnreachable), errors.Is(err, wire.RequestTimeout):
		how = "doubtful"
		l.doubtful.Add(1)
	case errors.Is(err, wire.MachineUnreachable), errors.Is(err, wire.ShimOverloaded):
		how = "refused"
		l.refused.Add(1)
	default:
		return fmt.Errorf("command %s: %w", line, err)
	}
	l.asked.Store(line, how)
	return nil
}

// end waits for the workers. It may be called twice.
func (l *clusterLoad) end() {
	l.ended.Do(func() { close(l.stop) })
	l.workers.Wait()
}

// check compares what was answered with what was done.
func (l *clusterLoad) check() {
	l.t.Helper()
	b, err := os.ReadFile(l.log)
	if err != nil {
		l.t.Fatal(err)
	}
	times := make(map[string]int)
	for line := range bytes.Lines(b) {
		times[strings.TrimSpace(string(line))]++
	}
	l.asked.Range(func(line, how any) bool {
		n := times[line.(string)]
		delete(times, line.(string))
		switch {
		case n > 1:
			l.t.Errorf("command %s was done %d times and answered %q", line, n, how)
		case how == "done" && n != 1:
			l.t.Errorf("command %s was answered and not done", line)
		case how == "refused" && n != 0:
			l.t.Errorf("command %s was refused and done", line)
		case how == "asked":
			l.t.Errorf("command %s has no answer", line)
		}
		return true
	})
	if len(times) > 0 {
		l.t.Errorf("commands that nobody asked for: %v", times)
	}
}
