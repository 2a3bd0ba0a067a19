package e2e

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/client"
	"farhand/wire"
)

// first are the capabilities that the first daemon had, and the AutoGPT platform
// grants: no streams, and so no terminals.
var first = wire.Capabilities{wire.DirectoryBrowse, wire.Files, wire.Shell, wire.LocalLLM}

// disguise stands between a relay and what talks to it, and has every daemon look
// as if it offered nothing beyond what the first one did.
type disguise struct {
	t     *testing.T
	relay string // host:port
	proxy *httputil.ReverseProxy
	pipes sync.WaitGroup
}

// newOlderBench is a bench whose daemon passes for an older one.
func newOlderBench(t *testing.T) *bench {
	t.Helper()
	b := bareBench(t)
	d := &disguise{t: t, relay: b.listen}
	d.proxy = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: b.listen})
	d.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: d}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
		d.pipes.Wait()
	})
	b.url = "http://" + l.Addr().String()
	b.relayFlags = []string{"--public-url", b.url}
	b.startRelay()
	b.signIn("--setup", b.relay.await(0, `setup token: (\S+)`)[1])
	return b
}

func (d *disguise) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/ws/local-executor") {
		d.proxy.ServeHTTP(w, r)
		return
	}
	up, answer, err := websocket.DefaultDialer.Dial("ws://"+d.relay+r.URL.Path, http.Header{"Authorization": r.Header.Values("Authorization")})
	if err != nil {
		status := http.StatusBadGateway
		if answer != nil {
			status = answer.StatusCode
		}
		w.WriteHeader(status)
		return
	}
	down, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		up.Close()
		return
	}
	d.pipes.Go(func() { d.pipe(down, up, humble) })
	d.pipes.Go(func() { d.pipe(up, down, func(frame []byte) []byte { return frame }) })
}

// pipe copies messages until one side ends, and ends the other likewise.
func (d *disguise) pipe(from, to *websocket.Conn, change func([]byte) []byte) {
	defer to.Close()
	for {
		kind, frame, err := from.ReadMessage()
		if end, ok := errors.AsType[*websocket.CloseError](err); ok && end.Code != websocket.CloseAbnormalClosure {
			_ = to.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(end.Code, end.Text), time.Now().Add(time.Second))
		}
		if err != nil || to.WriteMessage(kind, change(frame)) != nil {
			return
		}
	}
}

// humble takes out of a HELLO what the first daemon didn't offer.
func humble(frame []byte) []byte {
	var m map[string]any
	if !strings.Contains(string(frame), `"HELLO"`) || json.Unmarshal(frame, &m) != nil || m["type"] != "HELLO" {
		return frame
	}
	hello := m["payload"].(map[string]any)
	all, _ := hello["capabilities"].([]any)
	hello["capabilities"] = slices.DeleteFunc(all, func(c any) bool { return !slices.Contains(first, wire.Capability(c.(string))) })
	out, err := json.Marshal(m)
	if err != nil {
		return frame
	}
	return out
}

// On a machine whose daemon knows no terminals, exec still does all that commands
// can; what takes a terminal says so.
func TestExecWithoutTerminals(t *testing.T) {
	t.Parallel()
	b := newOlderBench(t)
	b.claim("files,shell")
	for _, c := range []struct {
		script string
		want   result
	}{
		{"echo to stdout; echo to stderr >&2; printf end; exit 3", result{3, "to stdout\nend", "to stderr\n"}},
		{"kill -KILL $$", result{137, "", ""}},
		{"cat", result{0, "", ""}},
	} {
		if r := b.owner.feed("not for you\n", "exec", "--", "sh", "-c", c.script); r != c.want {
			t.Errorf("%s gives %+v, want %+v", c.script, r, c.want)
		}
	}
	if r := b.owner.run("exec", "--timeout", "300ms", "--", "sh", "-c", "echo before; sleep 300"); r.code != 255 || r.stdout != "before\n" || !strings.Contains(r.stderr, "COMMAND_TIMEOUT") {
		t.Errorf("a timeout gives %+v", r)
	}
	if r := b.owner.run("exec", "--all", "--", "echo", "everywhere"); r.code != 0 || !strings.Contains(r.stdout, "bench: everywhere\n") {
		t.Errorf("on all machines: %+v", r)
	}
	if r := b.owner.run("exec", "--json", "--", "echo", "whole"); r.code != 0 || parse[wire.CommandResult](t, r.stdout).Stdout != "whole\n" {
		t.Errorf("--json: %+v", r)
	}
	// Standard input can't be handed on, and nothing is run without it.
	if r := b.owner.feed("input", "exec", "-i", "--", "touch", filepath.Join(b.root(), "ran")); r.code != 255 || !strings.Contains(r.stderr, "FEATURE_NOT_SUPPORTED") || !strings.Contains(r.stderr, "without --stdin") {
		t.Errorf("with --stdin: %+v", r)
	}
	if _, err := os.Stat(filepath.Join(b.root(), "ran")); err == nil {
		t.Error("it ran without its input")
	}
	b.owner.fails(1, wire.FeatureNotSupported, "terminals")
	if r := b.owner.feed("echo hello\n", "shell"); r.code != 255 || !strings.Contains(r.stderr, "FEATURE_NOT_SUPPORTED") || r.stdout != "" {
		t.Errorf("shell gives %+v", r)
	}
	for _, x := range b.records() {
		if strings.HasPrefix(x.Op, "TERMINAL_") {
			t.Errorf("recorded %s", x.Op)
		}
	}
	// An agent's commands run as well, and its terminals say what to do instead.
	a, _ := b.inMemory(b.sdk())
	if out, text := a.call("run_command", `{"argv": ["sh", "-c", "echo ran; exit 4"]}`); out["exit_code"] != 4.0 || !strings.Contains(text, "ran") {
		t.Errorf("run_command gives %v", out)
	}
	a.fails(wire.FeatureNotSupported, "run_command", "terminal_open", `{}`)
	b.wholeAudit()
}

// A machine that doesn't answer holds up no command longer than it was given.
func TestExecTimeoutWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	b.owner.must("exec", "--", "true") // the session is there
	b.daemon.signal(syscall.SIGSTOP)
	t.Cleanup(func() { b.daemon.signal(syscall.SIGCONT) }) // whatever fails, it can be stopped
	var all sync.WaitGroup
	for _, flags := range [][]string{{}, {"--json"}, {"--all"}} {
		all.Go(func() {
			begin := time.Now()
			r := b.owner.run(append(append([]string{"exec", "--timeout", "1s"}, flags...), "--", "sh", "-c", "sleep 60")...)
			// Opening the session, opening the terminal: the time and its grace, each.
			if took := time.Since(begin); r.code != 255 || !strings.Contains(r.stderr, "COMMAND_TIMEOUT") || took < time.Second || took > 2*(time.Second+client.ExecGrace)+15*time.Second {
				t.Errorf("%q ends after %s with %+v", flags, took, r)
			}
		})
	}
	all.Wait()
}
