package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/relay/store"
	"farhand/wire"
)

const (
	publicURL  = "https://relay.test:7443"
	passphrase = "correct horse battery"
)

// cheap hashing keeps the tests fast; the real cost has a test of its own.
var cheap = Argon2{Time: 1, Memory: 8, Threads: 1}

// fixture is a Server over a real store, asked through its real handler.
type fixture struct {
	t       testing.TB
	s       *Server
	store   store.Store
	mux     *http.ServeMux
	sockets *sockets
	mu      sync.Mutex
	events  []Event
}

// open makes a fixture; wrap, if given, stands between the Server and the store.
func open(t testing.TB, wrap ...func(store.Store) store.Store) *fixture {
	t.Helper()
	return openIn(t, t.TempDir(), wrap...)
}

// openIn is for synctest bubbles, whose own TempDir isn't there.
func openIn(t testing.TB, dir string, wrap ...func(store.Store) store.Store) *fixture {
	t.Helper()
	bolt, err := store.OpenBolt(filepath.Join(dir, "relay.db"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, store: bolt, sockets: &sockets{}}
	for _, w := range wrap {
		f.store = w(f.store)
	}
	f.s, err = New(t.Context(), Config{
		Store: f.store, PublicURL: publicURL, Passphrases: cheap, Record: f.record,
		Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.s.Connect(f.sockets)
	f.mux = newMux(f.s)
	t.Cleanup(func() {
		if err := f.s.Close(); err != nil {
			t.Error(err)
		}
		if err := bolt.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func newMux(s *Server) *http.ServeMux {
	mux := http.NewServeMux()
	s.Register(mux)
	return mux
}

type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (f *fixture) record(e Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
	return nil
}

// recorded are the events with this op.
func (f *fixture) recorded(op string) []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Event
	for _, e := range f.events {
		if e.Op == op {
			out = append(out, e)
		}
	}
	return out
}

// sockets notes what it was told.
type sockets struct {
	mu    sync.Mutex
	calls []string
	hello *wire.Hello // of the machine "online"
}

func (k *sockets) note(what ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, strings.Join(what, " "))
}

func (k *sockets) take() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.calls
	k.calls = nil
	return c
}

func (k *sockets) Approved(owner, machine string, _ wire.Ceiling) { k.note("approved", owner, machine) }
func (k *sockets) Hello(owner, machine string) *wire.Hello {
	if machine != "online" {
		return nil
	}
	return k.hello
}
func (k *sockets) Facts(owner, machine string) *wire.MachineFacts {
	if machine != "online" {
		return nil
	}
	return &wire.MachineFacts{ClockState: "synchronised", Addresses: []string{"192.0.2.7"}}
}
func (k *sockets) Online(owner, machine string) bool   { return machine == "online" }
func (k *sockets) RevokeFamily(owner, family string)   { k.note("family", family) }
func (k *sockets) RevokeMachine(owner, machine string) { k.note("machine", machine) }
func (k *sockets) RevokeHolder(owner, holder string)   { k.note("holder", holder) }
func (k *sockets) ApprovalChanged(_ context.Context, owner, machineID string) {
	k.note("approval", machineID)
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
	json   map[string]any
}

// str is a string of a JSON answer, by path.
func (a answer) str(path ...string) string {
	var v any = a.json
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[p]
	}
	s, _ := v.(string)
	return s
}

// request is one HTTP request.
type request struct {
	method, path string
	bearer       string
	form         url.Values
	json         any
	body         string // with contentType
	contentType  string
	from         string // address; default 192.0.2.1
	header       map[string]string
}

func (f *fixture) do(r request) answer {
	f.t.Helper()
	var body io.Reader
	kind := r.contentType
	switch {
	case r.form != nil:
		body, kind = strings.NewReader(r.form.Encode()), "application/x-www-form-urlencoded"
	case r.json != nil:
		raw, err := json.Marshal(r.json)
		if err != nil {
			f.t.Fatal(err)
		}
		body, kind = strings.NewReader(string(raw)), "application/json"
	case r.body != "":
		body = strings.NewReader(r.body)
	}
	req := httptest.NewRequestWithContext(context.Background(), r.method, r.path, body)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if r.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+r.bearer)
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	if r.from == "" {
		r.from = "192.0.2.1"
	}
	req.RemoteAddr = r.from + ":4711"
	if strings.Contains(r.from, ":") {
		req.RemoteAddr = "[" + r.from + "]:4711"
	}
	rec := httptest.NewRecorder()
	f.mux.ServeHTTP(rec, req)
	a := answer{status: rec.Code, header: rec.Header(), body: rec.Body.String()}
	if strings.HasPrefix(rec.Header().Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(rec.Body.Bytes(), &a.json); err != nil {
			f.t.Fatalf("%s %s: %v: %s", r.method, r.path, err, a.body)
		}
	}
	return a
}

// want fails unless the answer has the status.
func (f *fixture) want(a answer, status int) answer {
	f.t.Helper()
	if a.status != status {
		f.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// owner sets up an account and returns the token of its login.
func (f *fixture) owner(name string) string {
	f.t.Helper()
	setup, err := f.s.AddOwner(f.t.Context(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	a := f.want(f.do(request{method: "POST", path: "/api/setup",
		json: map[string]string{"setup_token": setup.Token, "name": name, "passphrase": passphrase}}), 200)
	return a.str("token")
}

// ask is a device that asks to be let in.
func (f *fixture) ask(machineID string, more ...string) (userCode, deviceCode string) {
	f.t.Helper()
	form := url.Values{"client_id": {ClientID}, "scope": {Scope}, "machine_id": {machineID},
		"display_name": {"Bench Pi"}, "capabilities": {"files shell hardware_gpio"}, "board": {"Raspberry Pi 5"}, "serial_suffix": {"c0de"}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	a := f.want(f.do(request{method: "POST", path: "/api/oauth/device_authorization", form: form}), 200)
	return a.str("user_code"), a.str("device_code")
}

func (f *fixture) poll(deviceCode string) answer {
	return f.token("grant_type", grantDevice, "device_code", deviceCode)
}

// token asks the token endpoint, as the client that devices are.
func (f *fixture) token(params ...string) answer {
	form := url.Values{"client_id": {ClientID}}
	for i := 0; i < len(params); i += 2 {
		form.Set(params[i], params[i+1])
	}
	return f.do(request{method: "POST", path: "/api/oauth/token", form: form})
}

func (f *fixture) refresh(token string) answer {
	return f.token("grant_type", grantRefresh, "refresh_token", token)
}

// approve approves by the API; the answer may be a refusal.
func (f *fixture) approve(login, userCode string, more ...any) answer {
	body := map[string]any{"decision": "approve", "capabilities": []string{"files", "hardware_gpio"}}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return f.do(request{method: "POST", path: "/api/approvals/" + userCode, bearer: login, json: body})
}

// paired is a device with its tokens.
func (f *fixture) paired(login, machineID string) (access, refresh string) {
	f.t.Helper()
	user, device := f.ask(machineID)
	f.want(f.approve(login, user), 200)
	a := f.want(f.poll(device), 200)
	return a.str("access_token"), a.str("refresh_token")
}

func (f *fixture) oauthError(a answer, code string) {
	f.t.Helper()
	if got := a.str("error"); got != code || a.status < 400 {
		f.t.Fatalf("status %d, error %q, want %q: %s", a.status, got, code, a.body)
	}
}

func (f *fixture) apiError(a answer, status int, code string) {
	f.t.Helper()
	if got := a.str("error", "code"); got != code || a.status != status {
		f.t.Fatalf("status %d, code %q, want %d, %q: %s", a.status, got, status, code, a.body)
	}
}

// alive says whether an access token is good, without the cache's help or harm.
func (f *fixture) alive(access string) bool {
	f.t.Helper()
	_, err := f.s.Device(f.t.Context(), access)
	return err == nil
}

// browser keeps cookies.
type browser struct {
	f       *fixture
	cookies map[string]string
	from    string
	origin  string
}

func (f *fixture) browser() *browser {
	return &browser{f: f, cookies: map[string]string{}, origin: publicURL}
}

func (b *browser) send(r request) answer {
	b.f.t.Helper()
	var parts []string
	for k, v := range b.cookies {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	if r.header == nil {
		r.header = map[string]string{}
	}
	if len(parts) > 0 {
		r.header["Cookie"] = strings.Join(parts, "; ")
	}
	if r.method == "POST" && b.origin != "" {
		if _, set := r.header["Origin"]; !set {
			r.header["Origin"] = b.origin
		}
	}
	r.from = b.from
	a := b.f.do(r)
	resp := http.Response{Header: a.header}
	for _, c := range resp.Cookies() {
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c.Value
		}
	}
	return a
}

func (b *browser) get(path string) answer {
	b.f.t.Helper()
	return b.send(request{method: "GET", path: path})
}

// submit sends the form of a page with some fields set; it brings the hidden
// ones along as a browser does.
func (b *browser) submit(page answer, action string, fields url.Values) answer {
	b.f.t.Helper()
	form := hiddenFields(b.f.t, page.body, action)
	for k, v := range fields {
		form[k] = v
	}
	return b.send(request{method: "POST", path: action, form: form})
}

func (b *browser) signIn(name string) {
	b.f.t.Helper()
	page := b.f.want(b.get("/login"), 200)
	b.f.want(b.submit(page, "/login", url.Values{"name": {name}, "passphrase": {passphrase}}), 303)
}

// hiddenFields reads the hidden inputs of the form with the given action.
func hiddenFields(t testing.TB, body, action string) url.Values {
	t.Helper()
	_, rest, ok := strings.Cut(body, `action="`+action+`"`)
	if !ok {
		t.Fatalf("no form for %s in:\n%s", action, body)
	}
	rest, _, _ = strings.Cut(rest, "</form>")
	form := url.Values{}
	for {
		var tag string
		_, rest, ok = strings.Cut(rest, `<input type="hidden" `)
		if !ok {
			return form
		}
		tag, rest, _ = strings.Cut(rest, ">")
		form.Add(unescape(attribute(tag, "name")), unescape(attribute(tag, "value")))
	}
}

func attribute(tag, name string) string {
	_, rest, _ := strings.Cut(tag, name+`="`)
	v, _, _ := strings.Cut(rest, `"`)
	return v
}

func unescape(s string) string {
	return strings.NewReplacer("&amp;", "&", "&#43;", "+", "&#34;", `"`, "&lt;", "<", "&gt;", ">").Replace(s)
}

// pass lets d go by in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

// pkce is a verifier and its challenge.
func pkce() (verifier, challenge string) {
	verifier = strings.Repeat("v3rifier~", 6)
	sum := sha256.Sum256([]byte(verifier))
	return verifier, base64.RawURLEncoding.EncodeToString(sum[:])
}

func redirectURI(port int) string { return fmt.Sprintf("http://localhost:%d/callback", port) }
