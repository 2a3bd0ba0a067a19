package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/audit"
	"farhand/internal/leak"
	"farhand/relay/oauth"
	"farhand/relay/store"
	"farhand/wire"
)

const passphrase = "correct horse battery"

type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func config(t testing.TB, dir string) Config {
	return Config{
		Listen: "127.0.0.1:0", DataDir: dir, Passphrases: oauth.Argon2{Time: 1, Memory: 8, Threads: 1},
		Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}
}

// running is a relay that serves.
type running struct {
	*Relay
	t      testing.TB
	client *http.Client
	cancel context.CancelFunc
	ended  chan error
}

func start(t testing.TB, cfg Config) *running {
	t.Helper()
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{Relay: r, t: t, cancel: cancel, ended: make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	go func() { run.ended <- r.Run(ctx) }()
	t.Cleanup(run.stop)
	return run
}

func (r *running) stop() {
	r.cancel()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Error(err)
		}
		r.ended <- nil
	case <-time.After(time.Minute):
		r.t.Error("the relay doesn't end")
	}
}

// call is one JSON call; the answer must have the status.
func (r *running) call(method, path, bearer string, in any, status int) map[string]any {
	r.t.Helper()
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			r.t.Fatal(err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.URL()+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != status {
		r.t.Fatalf("%s %s: %s, want %d: %s", method, path, resp.Status, status, raw)
	}
	out := map[string]any{}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(raw, &out); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

func (r *running) setUp(name string) (login string) {
	r.t.Helper()
	if r.FirstSetup() == nil {
		r.t.Fatal("no setup token")
	}
	return r.call("POST", "/api/setup", "", map[string]string{"setup_token": r.FirstSetup().Token, "name": name, "passphrase": passphrase}, 200)["token"].(string)
}

// pair lets a device in and returns its tokens.
func (r *running) pair(login, machineID string) map[string]any {
	r.t.Helper()
	resp, err := r.client.PostForm(r.URL()+"/api/oauth/device_authorization", url.Values{"client_id": {oauth.ClientID}, "machine_id": {machineID}})
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var asked map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&asked); err != nil {
		r.t.Fatal(err)
	}
	r.call("POST", "/api/approvals/"+asked["user_code"].(string), login, map[string]any{"decision": "approve", "capabilities": []string{"files"}}, 200)
	return r.call("POST", "/api/oauth/token", "", map[string]any{"grant_type": "urn:ietf:params:oauth:grant-type:device_code",
		"client_id": oauth.ClientID, "device_code": asked["device_code"]}, 200)
}

// dial opens a control socket, says HELLO and waits for HELLO_ACK.
func (r *running) dial(access, machineID string) *websocket.Conn {
	r.t.Helper()
	d := websocket.Dialer{HandshakeTimeout: 5 * time.Second}
	ws, resp, err := d.DialContext(r.t.Context(), "ws"+strings.TrimPrefix(r.URL(), "http")+"/ws/local-executor", http.Header{"Authorization": {"Bearer " + access}})
	if err != nil {
		r.t.Fatalf("%v %v", err, resp)
	}
	resp.Body.Close()
	r.t.Cleanup(func() { ws.Close() })
	hello := wire.Hello{ShimVersion: "1", ProtocolVersion: "1.1", MachineID: machineID, Platform: "linux", Arch: "arm64",
		Capabilities: wire.Capabilities{"files", "directory_browse"}, LocalLLMModels: []string{}, HardwareDevices: []wire.HardwareDevice{},
		ComputerUse: []string{}, ComputerUseCoarse: []string{}, RecordingChannels: []string{}, RecordingRoutes: []string{}}
	if err := ws.WriteJSON(map[string]any{"type": "HELLO", "id": "h1", "ts": 1.0, "payload": hello}); err != nil {
		r.t.Fatal(err)
	}
	var ack struct{ Type string }
	if err := ws.ReadJSON(&ack); err != nil || ack.Type != "HELLO_ACK" {
		r.t.Fatalf("%+v, %v", ack, err)
	}
	return ws
}

// closed reads until the socket ends and gives the close code, -1 if it ended
// without one.
func closed(ws *websocket.Conn) <-chan int {
	code := make(chan int, 1)
	go func() {
		for {
			if _, _, err := ws.ReadMessage(); err != nil {
				e, ok := errors.AsType[*websocket.CloseError](err)
				if !ok {
					code <- -1
					return
				}
				code <- e.Code
				return
			}
		}
	}()
	return code
}

func TestLife(t *testing.T) {
	leak.Check(t)
	dir := filepath.Join(t.TempDir(), "data")
	r := start(t, config(t, dir))
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v", fi, err)
	}
	if _, err := New(t.Context(), config(t, dir)); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("a second relay in the directory: %v", err)
	}
	var said bytes.Buffer
	if err := r.Announce(&said); err != nil || !strings.Contains(said.String(), "setup link: "+r.URL()+"/setup?token="+r.FirstSetup().Token) {
		t.Fatalf("%v %s", err, said.String())
	}
	login := r.setUp("ann")
	tokens := r.pair(login, "pi-1")
	gone := r.pair(login, "pi-2")

	one := r.dial(tokens["access_token"].(string), "pi-1")
	two := r.dial(gone["access_token"].(string), "pi-2")
	oneEnds, twoEnds := closed(one), closed(two)
	if m := r.call("GET", "/api/machines/pi-1", login, nil, 200); m["online"] != true || m["arch"] != "arm64" {
		t.Fatalf("%v", m)
	}
	r.call("DELETE", "/api/machines/pi-2", login, nil, 200)
	if code := <-twoEnds; code != wire.CloseSessionRevoked {
		t.Fatalf("a removed machine's socket was closed with %d", code)
	}
	r.call("GET", "/healthz", "", nil, 200)
	r.call("GET", "/", "", nil, 303)
	r.call("GET", "/nothing", "", nil, 404)

	r.stop()
	if code := <-oneEnds; code != wire.CloseServiceRestart {
		t.Fatalf("closed with %d", code)
	}

	// The next start: no new owner, and everything is there.
	r = start(t, config(t, dir))
	if r.FirstSetup() != nil {
		t.Fatal("another first owner")
	}
	r.call("GET", "/api/whoami", login, nil, 200)
	closed(r.dial(tokens["access_token"].(string), "pi-1"))
	r.stop()
	path, keyPath := AuditPaths(dir)
	key, err := audit.ReadKey(keyPath)
	if err != nil {
		t.Fatal(err)
	}
	report, err := audit.Verify(t.Context(), path, key)
	if err != nil || !report.OK || report.Records < 6 {
		t.Fatalf("%+v, %v", report, err)
	}
}

func TestForeignOrigin(t *testing.T) {
	r := start(t, config(t, t.TempDir()))
	login := r.setUp("ann")
	access := r.pair(login, "pi-1")["access_token"].(string)
	for path, token := range map[string]string{"/ws/local-executor": access, "/ws/operator": login} {
		for origin, want := range map[string]int{"https://evil.test": 403, r.URL(): 101, "": 101} {
			h := http.Header{"Authorization": {"Bearer " + token}}
			if origin != "" {
				h.Set("Origin", origin)
			}
			ws, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.URL(), "http")+path, h)
			if resp == nil || resp.StatusCode != want {
				t.Errorf("%s from %q: %v %v", path, origin, resp, err)
			}
			if resp != nil {
				resp.Body.Close()
			}
			if ws != nil {
				ws.Close()
			}
		}
	}
}

func TestConfigRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"plain on every address": func(c *Config) { c.Listen = "0.0.0.0:0" },
		"plain public URL":       func(c *Config) { c.PublicURL = "http://relay.test" },
		"odd public URL":         func(c *Config) { c.PublicURL = "https://relay.test/path" },
		"certificate alone":      func(c *Config) { c.TLSCert = "x" },
		"no such certificate":    func(c *Config) { c.TLSCert, c.TLSKey = "/nonexistent", "/nonexistent" },
		"no directory":           func(c *Config) { c.DataDir = "" },
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			cfg := config(t, t.TempDir())
			change(&cfg)
			if r, err := New(t.Context(), cfg); !errors.Is(err, ErrConfig) {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
}

func TestCheckURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://Relay.Test":       "https://relay.test",
		"https://relay.test:443/":  "https://relay.test",
		"https://relay.test:7443":  "https://relay.test:7443",
		"http://127.0.0.1:80":      "http://127.0.0.1",
		"http://localhost:7443":    "http://localhost:7443",
		"http://[::1]:7443":        "http://[::1]:7443",
		"http://192.0.2.1":         "",
		"ftp://x":                  "",
		"https://":                 "",
		"https://u@relay.test":     "",
		"https://relay.test?x":     "",
		"relay.test":               "",
		"https://relay.test/#frag": "",
	} {
		got, err := checkURL(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("checkURL(%q) = %q, %v", in, got, err)
		}
	}
}

func TestProxies(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct{ peer, forwarded, want string }{
		{"127.0.0.1:9", "192.0.2.7", "192.0.2.7"},
		{"127.0.0.1:9", "6.6.6.6, 192.0.2.7", "192.0.2.7"},           // the client wrote the first
		{"127.0.0.1:9", "6.6.6.6, 192.0.2.7, 10.1.1.1", "192.0.2.7"}, // two proxies
		{"127.0.0.1:9", "2001:db8::1", "2001:db8::1"},
		{"127.0.0.1:9", "", "127.0.0.1"},
		{"127.0.0.1:9", "nonsense", "127.0.0.1"},
		{"127.0.0.1:9", "6.6.6.6, nonsense, 10.1.1.1", "10.1.1.1"},
		{"198.51.100.1:9", "192.0.2.7", "198.51.100.1"}, // not trusted
	} {
		var got string
		h := fromProxies(trusted, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }))
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		req.RemoteAddr = c.peer
		if c.forwarded != "" {
			req.Header.Set("X-Forwarded-For", c.forwarded)
		}
		h.ServeHTTP(httptest.NewRecorder(), req)
		host, _, err := net.SplitHostPort(got)
		if err != nil || host != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestOwners(t *testing.T) {
	leak.Check(t)
	for name, dir := range map[string]string{
		"short path": filepath.Join(t.TempDir(), "d"),
		"long path":  filepath.Join(t.TempDir(), strings.Repeat("long/", 25)+"d"),
	} {
		t.Run(name, func(t *testing.T) {
			owners := Owners{DataDir: dir, Log: slog.New(slog.NewTextHandler(testLog{t}, nil))}
			if _, err := owners.Add(t.Context(), "bob"); err == nil {
				t.Fatal("an owner without a relay")
			}
			r := start(t, config(t, dir))
			r.setUp("ann")
			public := r.URL()
			if fi, err := os.Stat(filepath.Join(dir, adminSocket)); err != nil || fi.Mode().Perm() != 0o600 {
				t.Fatalf("%v %v", fi, err)
			}
			r.call("POST", "/api/owners", "", map[string]string{"name": "eve"}, 404) // not for the network
			live, err := owners.Add(t.Context(), "bob")
			if err != nil || !strings.HasPrefix(live.Link, public+"/setup?token=") {
				t.Fatalf("%+v, %v", live, err)
			}
			if _, err := owners.Add(t.Context(), "ann"); err == nil || !strings.Contains(err.Error(), "exists") {
				t.Fatalf("%v", err)
			}
			r.stop()
			if _, err := os.Stat(filepath.Join(dir, adminSocket)); err == nil {
				t.Fatal("the socket stays")
			}
			down, err := owners.Add(t.Context(), "cy")
			if err != nil || !strings.HasPrefix(down.Link, public+"/setup?token=") {
				t.Fatalf("%+v, %v", down, err)
			}
			reset, err := owners.Reset(t.Context(), "ann")
			if err != nil {
				t.Fatal(err)
			}
			// A socket that a killed relay left doesn't matter.
			stale, err := listenAdmin(dir)
			if err != nil {
				t.Fatal(err)
			}
			stale.(adminListener).Listener.Close()
			if names, err := owners.List(t.Context()); err != nil || fmt.Sprint(names) != "[ann]" {
				t.Fatalf("%v, %v", names, err)
			}
			r = start(t, config(t, dir))
			for name, s := range map[string]oauth.Setup{"bob": live, "cy": down, "ann": reset} {
				r.call("POST", "/api/setup", "", map[string]string{"setup_token": s.Token, "name": name, "passphrase": passphrase}, 200)
			}
			if names, err := owners.List(t.Context()); err != nil || fmt.Sprint(names) != "[ann bob cy]" {
				t.Fatalf("%v, %v", names, err)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	leak.Check(t)
	dir := t.TempDir()
	sum, err := Init(dir, []string{"relay.test", "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Init(dir, []string{"127.0.0.1", "Relay.Test"}); err != nil || again != sum {
		t.Fatalf("%s, %v", again, err)
	}
	if _, err := Init(dir, []string{"other.test"}); !errors.Is(err, ErrConfig) {
		t.Fatalf("the CA was replaced: %v", err)
	}
	for _, path := range []string{caKeyPath(dir), leafPath(dir)} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v %v", path, fi, err)
		}
	}
	r := start(t, config(t, dir))
	_, port, _ := net.SplitHostPort(r.listener.Addr().String())
	if r.URL() != "https://relay.test:"+port || r.CASHA256() != sum {
		t.Fatalf("%s %s", r.URL(), r.CASHA256())
	}
	// A client that holds the hash trusts exactly that certificate, and finds
	// it in the chain.
	dial := func(name string) error {
		c, err := (&tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
			for _, c := range s.PeerCertificates {
				if fingerprint(c) == sum {
					roots := x509.NewCertPool()
					roots.AddCert(c)
					_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
					return err
				}
			}
			return errors.New("the pinned CA isn't in the chain")
		}}}).DialContext(t.Context(), "tcp", r.listener.Addr().String())
		if err != nil {
			return err
		}
		if p := c.(*tls.Conn).ConnectionState().NegotiatedProtocol; p == "h2" {
			t.Errorf("speaks %s", p)
		}
		return c.Close()
	}
	for name, ok := range map[string]bool{"relay.test": true, "127.0.0.1": true, "other.test": false, "127.0.0.2": false} {
		if err := dial(name); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the CA's key could be misused for: other names.
func TestCAConstrained(t *testing.T) {
	for _, c := range []struct{ own, other []string }{
		{[]string{"relay.test"}, []string{"bank.test", "192.0.2.1", "2001:db8::1"}},
		{[]string{"192.0.2.1"}, []string{"bank.test", "192.0.2.2", "2001:db8::1"}},
		{[]string{"2001:db8::1"}, []string{"bank.test", "192.0.2.2", "2001:db8::2"}},
		{[]string{"relay.test", "192.0.2.1"}, []string{"bank.test", "192.0.2.2", "2001:db8::1"}},
	} {
		dir := t.TempDir()
		if _, err := Init(dir, c.own); err != nil {
			t.Fatal(err)
		}
		ca, key, err := readCA(dir)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca)
		verify := func(name string) error {
			if err := makeLeaf(dir, ca, key, []string{name}); err != nil {
				t.Fatal(err)
			}
			pair, err := readPair(leafPath(dir), leafPath(dir))
			if err != nil {
				t.Fatal(err)
			}
			_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
			return err
		}
		for _, name := range c.own {
			if err := verify(name); err != nil {
				t.Errorf("%v: %s: %v", c.own, name, err)
			}
		}
		for _, name := range c.other {
			if verify(name) == nil {
				t.Errorf("a CA for %v vouches for %s", c.own, name)
			}
		}
	}
}

func TestInitNames(t *testing.T) {
	for _, bad := range []string{"", "a b", "-x", "x-.test", "*.test", "https://relay.test", "relay.test:7443", "a..b", strings.Repeat("x", 64)} {
		if _, err := Init(t.TempDir(), []string{bad}); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Init(t.TempDir(), nil); !errors.Is(err, ErrConfig) {
		t.Errorf("no name: %v", err)
	}
}

// All instances choose the same heir of a session, and only those whose own is gone
// get another.
func TestHeir(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	moved, had := 0, make(map[string]int)
	for n := range 1000 {
		session := fmt.Sprint("gone.", n)
		h := heir(session, all)
		if other := heir(session, []string{"d", "b", "a", "c"}); other != h {
			t.Fatalf("%s or %s", h, other)
		}
		had[h]++
		less := heir(session, []string{"a", "b", "d"})
		if h != "c" && less != h {
			t.Fatalf("%s goes from %s to %s though that is still there", session, h, less)
		}
		if less != h {
			moved++
		}
	}
	if moved != had["c"] || len(had) != 4 || min(had["a"], had["b"], had["c"], had["d"]) < 100 {
		t.Errorf("%v, %d moved", had, moved)
	}
	if h := heir("x", nil); h != "" {
		t.Errorf("of nobody %q", h)
	}
}

// What can't be answered now is refused, except for a stream of a session: clients
// take a refusal of that as the end of the session, and a lost link as what it is.
func TestNotNow(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		notNow(w, q, "5", http.StatusServiceUnavailable, "temporarily_unavailable", "try again later")
	}))
	defer server.Close()
	for _, c := range []struct {
		method, session string
		broken          bool
	}{{http.MethodPost, "a.b", false}, {http.MethodDelete, "a.b", false}, {http.MethodGet, "", false}, {http.MethodGet, "a.b", true}} {
		q, err := http.NewRequest(c.method, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.session != "" {
			q.Header.Set(sessionHeader, c.session)
		}
		res, err := server.Client().Do(q)
		if err == nil {
			res.Body.Close()
		}
		if broken := err != nil; broken != c.broken || !broken && (res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "5") {
			t.Errorf("%s of session %q: %v %v", c.method, c.session, res, err)
		}
	}
}
