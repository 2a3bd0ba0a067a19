package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
	"farhand/wire"
)

// TestClusterParted parts the instances of a relay while operators run commands,
// type and copy, and an agent calls tools in one session, all behind a balancer
// that doesn't look whether an instance is well: the one that has the machine is
// cut off from NATS and isn't told, is stopped while its sockets stand, and the
// NATS server is killed. Nobody does anything about it. Everything that was asked
// for has an answer in time and was done at most once, and what goes on goes on.
func TestClusterParted(t *testing.T) {
	t.Parallel()
	seed := uint64(number(t, "FARHAND_TEST_SEED", int(rand.Uint32())))
	t.Logf("FARHAND_TEST_SEED=%d repeats what is asked", seed)
	c := newRelayClusterBy(t, 3, true)
	b := c.bench
	b.claim("files,shell")
	runs := &clusterLoad{t: t, seed: seed, stop: make(chan struct{}), log: filepath.Join(b.root(), "log")}
	rest := &load{t: t, b: b, seed: seed, stop: make(chan struct{}), agent: b.owner}
	defer rest.end()
	defer runs.end()
	for i := range 2 {
		runs.worker(b.sdk(), i)
	}
	own := rest.open(b.sdk())
	rest.repeat("typing", 1, breath, func(ctx context.Context, rng *rand.Rand) error { return typing(ctx, own, 20+rng.IntN(50)) })
	rest.repeat("copy", 2, breath, func(ctx context.Context, rng *rand.Rand) error { return copying(ctx, own, "copy", rng) })
	rest.repeat("large", 3, time.Second, func(ctx context.Context, _ *rand.Rand) error {
		return overAndBack(ctx, own, "large", 10<<20)
	})
	_, tokens := b.agentToken("agent", url.Values{"cap": {"files", "shell"}})
	a := connect(t, &sdk.StreamableClientTransport{
		Endpoint: b.url + "/mcp", HTTPClient: &http.Client{Transport: everywhere(tokens["access_token"].(string))}, MaxRetries: 100,
	})
	calls, late := 0, 0
	rest.repeat("agent", 4, 2*breath, func(ctx context.Context, _ *rand.Rand) error {
		calls++
		err := runs.call(ctx, a, fmt.Sprintf("agent-%d", calls))
		if errors.Is(err, context.DeadlineExceeded) {
			// Who has asked the one that is stopped waits, as at any server.
			if late++; late == 1 {
				return wire.Errorf(wire.OpUnconfirmed, "%v", err)
			}
		}
		return err
	})

	// goesOn waits until each has done something.
	goesOn := func(when string) {
		t.Helper()
		kinds := []string{"typing", "copy", "large", "agent"}
		commands, before := runs.done.Load(), make(map[string]int64)
		for _, k := range kinds {
			before[k] = rest.count(k).good.Load()
		}
		within(t, 2*patience, when, func() error {
			if runs.done.Load() < commands+4 {
				return errors.New("no commands")
			}
			for _, k := range kinds {
				if rest.count(k).good.Load() < before[k]+2 {
					return errors.New("no " + k)
				}
			}
			return nil
		})
	}
	well := func(i int, want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("instance %d says whether it is well", i), func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.addrs[i]+"/healthz", nil)
			if err != nil {
				return err
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if (res.StatusCode == http.StatusOK) != want {
				return fmt.Errorf("%d", res.StatusCode)
			}
			return nil
		})
	}
	goesOn("the beginning")

	home := max(c.home(), 0)
	c.links[home].Silence()
	well(home, false)
	goesOn("one is cut off")
	c.links[home].Mend()
	well(home, true)
	goesOn("it is back")

	// Whoever comes to it now would wait for an answer, so a balancer is needed that
	// notices; who has come before notices by himself.
	home = max(c.home(), 0)
	c.relays[home].signal(syscall.SIGSTOP)
	c.sick[home].Store(true)
	goesOn("one is stopped")
	c.relays[home].signal(syscall.SIGCONT)
	c.sick[home].Store(false)
	goesOn("it runs again")

	c.nats.Kill()
	for i := range c.relays {
		well(i, false)
	}
	c.nats.Restart()
	c.nats.Ready()
	goesOn("NATS is back")

	runs.end()
	rest.end()
	runs.check()
	t.Logf("%d commands done, %d in doubt, %d refused; %s", runs.done.Load(), runs.doubtful.Load(), runs.refused.Load(), rest.tally())
}

// call has an agent append a line to the log.
func (l *clusterLoad) call(ctx context.Context, a *agent, line string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.asked.Store(line, "asked")
	got, err := a.session.CallTool(ctx, &sdk.CallToolParams{
		Name: "run_command", Arguments: map[string]any{"argv": []string{"sh", "-c", "echo " + line + " >> " + l.log}},
	})
	how := "done"
	switch {
	case ctx.Err() != nil:
		l.asked.Store(line, "doubtful")
		return fmt.Errorf("call %s has no answer in %s: %w", line, patience, ctx.Err())
	case err != nil && strings.Contains(err.Error(), "client is closing"):
		return fmt.Errorf("the agent's session is over: %w", err)
	case err != nil && strings.Contains(err.Error(), http.StatusText(http.StatusServiceUnavailable)):
		how, err = "refused", wire.Errorf(wire.MachineUnreachable, "%v", err)
	case err != nil:
		how, err = "doubtful", wire.Errorf(wire.OpUnconfirmed, "%v", err)
	case got.IsError:
		text := got.Content[0].(*sdk.TextContent).Text
		code, _, _ := strings.Cut(text, ":")
		how, err = "doubtful", wire.Errorf(wire.Code(code), "%s", text)
		if code := wire.Code(code); code == wire.MachineUnreachable || code == wire.ShimOverloaded {
			how = "refused"
		}
	}
	l.asked.Store(line, how)
	return err
}

// overAndBack writes a file of one frame and reads it.
func overAndBack(ctx context.Context, s *client.Session, name string, size int) error {
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	if err := s.Write(ctx, name, content, false, nil); err != nil {
		return err
	}
	got, err := s.Read(ctx, name, 0, int64(len(content)))
	if err == nil && !bytes.Equal(got.Content, content) {
		return fmt.Errorf("%d bytes were written, and %d others were read", len(content), len(got.Content))
	}
	return err
}
