package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
	"farhand/client/clienttest"
	"farhand/internal/leak"
	"farhand/mcp"
	"farhand/wire"
)

// instances are HTTPs for the same agents, behind one address that gives each
// request to whichever is set.
type instances struct {
	all  []*mcp.HTTP
	next atomic.Int32
	ids  chan string // of the sessions in requests, as they come
}

func (i *instances) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		select {
		case i.ids <- id:
		default:
		}
	}
	i.all[i.next.Load()].ServeAgent(w, r, r.Header.Get("X-Holder"), clienttest.OwnerToken)
}

func newInstances(t *testing.T, names ...string) (*instances, string) {
	t.Helper()
	leak.Check(t)
	relay := clienttest.New(t)
	relay.Device.Exec = func(cmd wire.ExecuteCommand) (wire.CommandResult, error) {
		return wire.CommandResult{Stdout: strings.Join(cmd.Argv, " ")}, nil
	}
	i := &instances{ids: make(chan string, 1)}
	for _, name := range names {
		h := mcp.NewHTTP(mcp.HTTPConfig{Instance: name, Connect: func(token string) (*client.Client, error) {
			return client.New(client.Config{URL: relay.URL, Token: token})
		}})
		t.Cleanup(func() { h.Close() })
		i.all = append(i.all, h)
	}
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	return i, server.URL
}

type as string

func (holder as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Holder", string(holder))
	r.Header.Set("Authorization", "Bearer "+string(holder))
	return http.DefaultTransport.RoundTrip(r)
}

func agent(t *testing.T, url, holder string) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: as(holder)}, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t *testing.T, s *sdk.ClientSession) string {
	t.Helper()
	got, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"argv": []string{"echo", "hello"}}})
	if err != nil || got.IsError {
		t.Fatalf("%+v, %v", got, err)
	}
	return got.Content[0].(*sdk.TextContent).Text
}

// A session goes on at another HTTP, under its id and without the client's doing
// anything about it; it ends there, too.
func TestSessionsGoOnElsewhere(t *testing.T) {
	i, url := newInstances(t, "one", "two", "three")
	s := agent(t, url, "ann")
	run(t, s)
	id := <-i.ids
	if !strings.HasPrefix(id, "one.") {
		t.Fatalf("session %q", id)
	}
	for _, at := range []int32{1, 2, 1, 0} {
		i.next.Store(at)
		if got := run(t, s); !strings.Contains(got, "echo hello") {
			t.Errorf("at %d: %q", at, got)
		}
		tools, err := s.ListTools(t.Context(), nil)
		if err != nil || !slices.ContainsFunc(tools.Tools, func(x *sdk.Tool) bool { return x.Name == "list_machines" }) {
			t.Errorf("at %d: %v", at, err)
		}
	}
	i.next.Store(1)
	if err := s.Close(); err != nil { // DELETE
		t.Error(err)
	}
	// What it calls itself opens nobody else's.
	i.next.Store(0)
	if status := ask(t, url, "bob", http.MethodPost, id); status != http.StatusForbidden {
		t.Errorf("somebody else's session: %d", status)
	}
}

// Nonsense makes no session, and there are no more of them than of others.
func TestAdoptedAreBounded(t *testing.T) {
	i, url := newInstances(t, "one")
	for _, id := range []string{"one.AAAA", "nothing", ".x", "x.", "two.a b", "two." + strings.Repeat("A", 200), "two.x.y"} {
		if status := ask(t, url, "ann", http.MethodPost, id); status != http.StatusNotFound {
			t.Errorf("%q: %d", id, status)
		}
	}
	for n := range 20 {
		want := http.StatusOK
		if n >= 16 {
			want = http.StatusTooManyRequests
		}
		if status := ask(t, url, "ann", http.MethodPost, "two."+strings.Repeat("A", n+1)); status != want {
			t.Errorf("session %d: %d", n, status)
		}
	}
	if status := ask(t, url, "ann", http.MethodDelete, "two.A"); status != http.StatusNoContent {
		t.Errorf("DELETE: %d", status)
	}
	if status := ask(t, url, "ann", http.MethodPost, "two.B"); status != http.StatusOK {
		t.Errorf("after one was ended: %d", status)
	}
	if status := ask(t, url, "ann", http.MethodPut, "two.B"); status != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %d", status)
	}
	_ = i
}

// ask sends a ping in a session and gives the status.
func ask(t *testing.T, url, holder, method, id string) int {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(errors.New("done"))
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", id)
	r.Header.Set("X-Holder", holder)
	r.Header.Set("Authorization", "Bearer "+holder)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// One token's requests at once are bounded: it could have all of the relay's
// connections otherwise.
func TestRequestsAreBounded(t *testing.T) {
	_, url := newInstances(t, "one")
	s := agent(t, url, "ann")
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var going sync.WaitGroup
	defer going.Wait()
	defer cancel()
	tooMany := make(chan string, 256)
	for range 160 {
		going.Go(func() {
			body, _ := io.Pipe() // of which nothing ever comes
			defer body.Close()
			context.AfterFunc(ctx, func() { body.Close() })
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			r.Header.Set("Mcp-Session-Id", s.ID())
			res, err := as("ann").RoundTrip(r)
			if err != nil {
				return // it was cancelled
			}
			res.Body.Close()
			tooMany <- fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After") != "")
		})
	}
	if got := <-tooMany; got != "429 true" {
		t.Errorf("got %s", got)
	}
	other := agent(t, url, "bob")
	defer other.Close()
	run(t, other) // others go on
}
