package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
)

const (
	agentBack     = "http://127.0.0.1:1/callback" // where nobody listens: the test is the program
	agentVerifier = "an-agent-that-proves-that-it-is-the-same-one"
)

// signedIn is a browser in which the owner has signed in.
func (b *bench) signedIn() *browser {
	b.t.Helper()
	at := b.browser()
	passphrase := strings.TrimSpace(string(b.read(b.dir + "/passphrase")))
	p := at.submit(at.get("/login"), "/login", url.Values{"name": {"ann"}, "passphrase": {passphrase}})
	if p.status != http.StatusOK || strings.HasPrefix(p.at, "/login") {
		b.t.Fatalf("signing in gives %d at %s", p.status, p.at)
	}
	return at
}

// post sends a form or JSON and gives the answer.
func (b *bench) post(path, kind, body string) (int, map[string]any) {
	b.t.Helper()
	resp, err := http.Post(b.url+path, kind, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		b.t.Fatalf("%s answers %d without JSON: %v", path, resp.StatusCode, err)
	}
	return resp.StatusCode, out
}

// registerAgent registers a program that calls itself so.
func (b *bench) registerAgent(name string) string {
	b.t.Helper()
	status, out := b.post("/api/oauth/register", "application/json", fmt.Sprintf(`{"client_name": %q, "redirect_uris": ["http://127.0.0.1/callback"]}`, name))
	if status != http.StatusCreated {
		b.t.Fatalf("registering gives %d: %v", status, out)
	}
	return out["client_id"].(string)
}

// ask is the address of the consent page for a program.
func (b *bench) ask(id string, more url.Values) string {
	sum := sha256.Sum256([]byte(agentVerifier))
	q := url.Values{
		"response_type": {"code"}, "client_id": {id}, "redirect_uri": {agentBack}, "state": {"here"}, "scope": {"mcp"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}, "resource": {b.url + "/mcp"},
	}
	for k, v := range more {
		q[k] = v
	}
	return "/auth/authorize?" + q.Encode()
}

// consent lets a program in and gives the address that it is sent to.
func (b *bench) consent(at *browser, path string, allow url.Values) *url.URL {
	b.t.Helper()
	at.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Host == "127.0.0.1:1" {
			return http.ErrUseLastResponse
		}
		return nil
	}
	p := at.get(path)
	if allow == nil {
		allow = url.Values{}
	}
	if !allow.Has("for") {
		allow.Set("for", "1d")
	}
	allow.Set("decision", "approve")
	p = at.submit(p, "/auth/authorize", allow)
	to, err := url.Parse(p.header.Get("Location"))
	if err != nil || p.status != http.StatusSeeOther {
		b.t.Fatalf("consent gives %d %s", p.status, p.body)
	}
	return to
}

// redeem turns a code into tokens.
func (b *bench) redeem(id, code string, more url.Values) (int, map[string]any) {
	b.t.Helper()
	form := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {id}, "code": {code}, "redirect_uri": {agentBack},
		"code_verifier": {agentVerifier}, "resource": {b.url + "/mcp"},
	}
	for k, v := range more {
		form[k] = v
	}
	return b.post("/api/oauth/token", "application/x-www-form-urlencoded", form.Encode())
}

// agentToken lets an agent in and gives what it got.
func (b *bench) agentToken(name string, allow url.Values) (id string, tokens map[string]any) {
	b.t.Helper()
	id = b.registerAgent(name)
	back := b.consent(b.signedIn(), b.ask(id, nil), allow)
	status, tokens := b.redeem(id, back.Query().Get("code"), nil)
	if status != http.StatusOK {
		b.t.Fatalf("redeeming gives %d: %v", status, tokens)
	}
	return id, tokens
}

// withToken signs every request.
type withToken string

func (token withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

func (b *bench) overHTTP(token string) sdk.Transport {
	return &sdk.StreamableClientTransport{Endpoint: b.url + "/mcp", HTTPClient: &http.Client{Transport: withToken(token)}, MaxRetries: -1}
}

// status is what a request with a token gets, and its header.
func (b *bench) status(method, path, token string, more http.Header) (int, http.Header) {
	b.t.Helper()
	req, err := http.NewRequest(method, b.url+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for k, v := range more {
		req.Header[k] = v
	}
	if host := more.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header
}

// An agent finds its way by what the relay says: from the refusal to the metadata,
// it registers, the owner lets it in on a page, and it has what was ticked.
func TestMCPOverHTTP(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)

	status, header := b.status(http.MethodPost, "/mcp", "", nil)
	found := regexp.MustCompile(`resource_metadata="([^"]+)"`).FindStringSubmatch(header.Get("WWW-Authenticate"))
	if status != http.StatusUnauthorized || found == nil {
		t.Fatalf("without a token: %d %v", status, header)
	}
	about := fetch[struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
	}](t, found[1])
	if about.Resource != b.url+"/mcp" || !slices.Equal(about.Servers, []string{b.url}) {
		t.Errorf("resource metadata: %+v", about)
	}
	server := fetch[struct {
		Registration string   `json:"registration_endpoint"`
		Challenges   []string `json:"code_challenge_methods_supported"`
	}](t, about.Servers[0]+"/.well-known/oauth-authorization-server")
	if server.Registration != b.url+"/api/oauth/register" || !slices.Equal(server.Challenges, []string{"S256"}) {
		t.Errorf("server metadata: %+v", server)
	}

	// What is shown is what was said, and as untrusted as that.
	id := b.registerAgent(`<b>Claude</b>`)
	at := b.signedIn()
	p := at.get(b.ask(id, nil))
	if !strings.Contains(p.body, "&lt;b&gt;Claude&lt;/b&gt;") && strings.Contains(p.body, "<b>Claude") || !strings.Contains(p.body, "Let an agent in?") {
		t.Errorf("the page says\n%s", p.body)
	}
	if caps := p.form(t, "/auth/authorize")["cap"]; slices.Contains(caps, "shell") || !slices.Contains(caps, "files") {
		t.Errorf("ticked beforehand: %v", caps)
	}
	to := b.consent(at, b.ask(id, nil), url.Values{"cap": {"files", "hardware_gpio"}, "devices": {"gpio:*"}})
	if q := to.Query(); q.Get("state") != "here" || q.Get("iss") != b.url || to.Host != "127.0.0.1:1" {
		t.Errorf("the program is sent to %s", to)
	}
	status, tokens := b.redeem(id, to.Query().Get("code"), nil)
	if status != http.StatusOK || tokens["scope"] != "mcp" {
		t.Fatalf("redeeming gives %d %v", status, tokens)
	}
	token := tokens["access_token"].(string)

	a := connect(t, b.overHTTP(token))
	if !slices.Contains(a.names, "gpio_read") || slices.Contains(a.names, "run_command") || slices.Contains(a.names, "i2c_scan") {
		t.Errorf("tools are %v", a.names)
	}
	a.call("write_file", `{"path": "agent.txt", "content": "hello"}`)
	a.call("gpio_write", `{"lines": [{"line": "GPIO17", "value": 1}]}`)

	// The token is for this and nothing else, and nothing else's is for this.
	for _, path := range []string{"/api/whoami", "/api/machines", "/ws/operator", "/ws/local-executor"} {
		if status, _ := b.status(http.MethodGet, path, token, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
			"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}); status != http.StatusUnauthorized {
			t.Errorf("an agent's token at %s: %d", path, status)
		}
	}
	for what, other := range map[string]string{
		"the owner's login": b.owner.secret(), "an operator's token": b.newToken("op"), "no token": "fh_at_nonsense", "a refresh token": tokens["refresh_token"].(string),
	} {
		status, header := b.status(http.MethodPost, "/mcp", other, nil)
		if status != http.StatusUnauthorized || !strings.Contains(header.Get("WWW-Authenticate"), `error="invalid_token"`) {
			t.Errorf("%s at /mcp: %d %v", what, status, header)
		}
	}

	// Pages of other sites get nowhere, whatever name they bend.
	if status, _ := b.status(http.MethodPost, "/mcp", token, http.Header{"Origin": {"https://evil.example"}}); status != http.StatusForbidden {
		t.Errorf("a foreign origin: %d", status)
	}
	if status, _ := b.status(http.MethodPost, "/mcp", token, http.Header{"Host": {"evil.example"}}); status != http.StatusForbidden {
		t.Errorf("a foreign name: %d", status)
	}

	// Refreshed tokens go on with the session; what the owner takes back is over.
	refreshed := url.Values{"grant_type": {"refresh_token"}, "client_id": {id}, "refresh_token": {tokens["refresh_token"].(string)}, "resource": {b.url + "/mcp"}}
	status, more := b.post("/api/oauth/token", "application/x-www-form-urlencoded", refreshed.Encode())
	if status != http.StatusOK || more["access_token"] == token {
		t.Fatalf("refreshing gives %d %v", status, more)
	}
	next := connect(t, b.overHTTP(more["access_token"].(string)))
	next.call("list_machines", `{}`)
	list := parse[client.TokenList](t, b.owner.must("token", "list", "--json"))
	if len(list.Agents) != 1 || list.Agents[0].Capabilities == nil || list.Agents[0].ExpiresAt.IsZero() {
		t.Fatalf("token list: %+v", list.Agents)
	}
	b.owner.must("token", "revoke", list.Agents[0].ID)
	if status, _ := b.status(http.MethodPost, "/mcp", more["access_token"].(string), nil); status != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d", status)
	}
	if _, err := next.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_machines"}); err == nil {
		t.Error("a revoked agent's session goes on")
	}
}

// What is wrong with a registration, a request for consent or a redemption.
func TestMCPOAuthRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	for _, body := range []string{
		`{}`, `[]`, `{"redirect_uris": []}`, `{"redirect_uris": ["https://example.org/cb"]}`, `{"redirect_uris": ["http://example.org/cb"]}`,
		`{"redirect_uris": ["http://127.0.0.1/cb?x=1"]}`, `{"redirect_uris": ["http://127.0.0.1.example.org/cb"]}`, `{"redirect_uris": ["javascript:1"]}`,
		`{"redirect_uris": ["http://u@127.0.0.1/cb"]}`, `{"redirect_uris": ["http://127.0.0.1/cb"], "grant_types": ["implicit"]}`,
	} {
		if status, out := b.post("/api/oauth/register", "application/json", body); status != http.StatusBadRequest || out["error"] == nil {
			t.Errorf("%s: %d %v", body, status, out)
		}
	}
	// Of a program that names pages of its own, too, the addresses on loopback count.
	status, out := b.post("/api/oauth/register", "application/json", `{"client_name": "editor", "redirect_uris": ["https://editor.example/redirect", "editor://callback", "http://127.0.0.1", "http://[::1]/cb"]}`)
	if status != http.StatusCreated || fmt.Sprint(out["redirect_uris"]) != "[http://127.0.0.1 http://[::1]/cb]" {
		t.Fatalf("registering an editor: %d %v", status, out)
	}
	id := out["client_id"].(string)
	at := b.signedIn()
	for uri, want := range map[string]string{
		"http://127.0.0.1:33418/": "http://127.0.0.1:33418", "http://127.0.0.1:33418": "http://127.0.0.1:33418", "http://127.0.0.1": "http://127.0.0.1",
		"http://[::1]:4711/cb":            "http:", // a browser takes no address of IPv6 from a policy, and wouldn't follow
		"https://editor.example/redirect": "", "editor://callback": "", "http://127.0.0.1/cb": "", "http://[::1]/": "", "http://localhost/": "",
		"http://127.0.0.2/": "", "http://127.0.0.1@evil.example/": "", "http://127.0.0.1.evil.example/": "", "http://127.0.0.1/?x": "", "http://127.0.0.1/#x": "",
		"http://[::ffff:127.0.0.1]/": "", "http://127.1/": "", "http://2130706433/": "", "https://127.0.0.1/": "", "//127.0.0.1/": "", `http://127.0.0.1\@evil.example/`: "", "http://127.0.0.1/./": "",
	} {
		p := at.get(b.ask(id, url.Values{"redirect_uri": {uri}}))
		switch csp := p.header.Get("Content-Security-Policy"); {
		case want == "" && (p.status != http.StatusBadRequest || !strings.Contains(p.body, "known here")):
			t.Errorf("asked to answer to %s: %d at %s", uri, p.status, p.at)
		case want != "" && (p.status != http.StatusOK || !strings.Contains(csp, "form-action 'self' "+want+";")):
			t.Errorf("asked to answer to %s: %d, %s", uri, p.status, csp)
		}
	}

	id = b.registerAgent("x")
	for what, path := range map[string]string{
		"another client": b.ask(id[:len(id)-4]+"AAAA", nil), "another path": b.ask(id, url.Values{"redirect_uri": {"http://127.0.0.1:1/other"}}),
		"another host": b.ask(id, url.Values{"redirect_uri": {"http://localhost:1/callback"}}),
	} {
		if p := at.get(path); p.status != http.StatusBadRequest || !strings.Contains(p.body, "known here") {
			t.Errorf("%s: %d %s", what, p.status, p.body)
		}
	}
	at.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for code, more := range map[string]url.Values{
		"invalid_target": {"resource": {"https://other.example/mcp"}}, "invalid_scope": {"scope": {"USE_TOOLS"}},
		"invalid_request": {"code_challenge_method": {"plain"}}, "unsupported_response_type": {"response_type": {"token"}},
	} {
		p := at.get(b.ask(id, more))
		to, err := url.Parse(p.header.Get("Location"))
		if err != nil || to.Query().Get("error") != code {
			t.Errorf("%v: %d to %s", more, p.status, to)
		}
	}
	// Nobody is let in by half a form.
	for _, form := range []url.Values{{"machine": {}, "for": {"1d"}}, {"machine": {"other"}, "for": {"1d"}}, {"for": {"never"}}} {
		form.Set("decision", "approve")
		if p := at.submit(at.get(b.ask(id, nil)), "/auth/authorize", form); p.status != http.StatusBadRequest {
			t.Errorf("%v: %d", form, p.status)
		}
	}
	code := func() string {
		t.Helper()
		return b.consent(at, b.ask(id, nil), nil).Query().Get("code")
	}
	if status, out := b.redeem(id, code(), url.Values{"resource": {"https://other.example/mcp"}}); status != http.StatusBadRequest || out["error"] != "invalid_target" {
		t.Errorf("for another resource: %d %v", status, out)
	}
	if status, out := b.redeem(id, code(), url.Values{"code_verifier": {strings.Repeat("x", 43)}}); status != http.StatusBadRequest || out["error"] != "invalid_grant" {
		t.Errorf("with another verifier: %d %v", status, out)
	}
	other := b.registerAgent("y")
	if status, out := b.redeem(other, code(), nil); status != http.StatusBadRequest || out["error"] != "invalid_grant" {
		t.Errorf("by another client: %d %v", status, out)
	}
	// A code that comes back ends what it gave.
	once := code()
	status, tokens := b.redeem(id, once, nil)
	if again, _ := b.redeem(id, once, nil); status != http.StatusOK || again != http.StatusBadRequest {
		t.Errorf("a code twice: %d, %d", status, again)
	}
	if status, _ := b.status(http.MethodPost, "/mcp", tokens["access_token"].(string), nil); status != http.StatusUnauthorized {
		t.Errorf("its token afterwards: %d", status)
	}
}

// Agents don't get in each other's way: sessions are bounded and answer to the
// token that opened them alone.
func TestMCPSessions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	_, first := b.agentToken("first", url.Values{"cap": {"files", "shell"}})
	_, second := b.agentToken("second", url.Values{"cap": {"files"}})
	token := first["access_token"].(string)
	var all []*agent
	for range 16 {
		all = append(all, connect(t, b.overHTTP(token)))
	}
	if status, header := b.status(http.MethodPost, "/mcp", token, nil); status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("the 17th session: %d", status)
	}
	other := connect(t, b.overHTTP(second["access_token"].(string)))
	if slices.Contains(other.names, "run_command") || !slices.Contains(all[0].names, "run_command") {
		t.Errorf("tools of the two are %v and %v", all[0].names, other.names)
	}
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		status, _ := b.status(method, "/mcp", second["access_token"].(string), http.Header{"Mcp-Session-Id": {all[0].session.ID()}})
		if status != http.StatusForbidden && status != http.StatusNotFound {
			t.Errorf("%s to another's session: %d", method, status)
		}
	}
	done := make(chan error, len(all))
	for i, a := range all {
		go func() {
			got, err := a.session.CallTool(context.Background(), &sdk.CallToolParams{Name: "run_command",
				Arguments: json.RawMessage(fmt.Sprintf(`{"argv": ["echo", "%d"]}`, i))})
			if err == nil && (got.IsError || got.StructuredContent.(map[string]any)["stdout"] != fmt.Sprintf("%d\n", i)) {
				err = fmt.Errorf("%d: %v", i, got.StructuredContent)
			}
			done <- err
		}()
	}
	for range all {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	all[0].session.Close()
	eventually(t, "a session that ended makes room", func() error {
		if status, _ := b.status(http.MethodPost, "/mcp", token, nil); status == http.StatusTooManyRequests {
			return fmt.Errorf("%d", status)
		}
		return nil
	})
}

// fetch reads a JSON document.
func fetch[T any](t *testing.T, address string) T {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v", address, resp.StatusCode, err)
	}
	return parse[T](t, string(body))
}

// An agent in a loop is told to wait as whoever calls the API is; another one isn't.
func TestMCPIsLimited(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	b.relayFlags = []string{"--max-calls", "2"} // twenty at once
	b.startRelay()
	b.signIn("--setup", b.relay.await(0, `setup token: (\S+)`)[1])
	b.claim("files")
	_, first := b.agentToken("first", url.Values{"cap": {"files"}})
	_, second := b.agentToken("second", url.Values{"cap": {"files"}})
	for range 200 {
		status, header := b.status(http.MethodPost, "/mcp", first["access_token"].(string), nil)
		if status != http.StatusTooManyRequests {
			continue
		}
		if header.Get("Retry-After") == "" {
			t.Error("it isn't told how long to wait")
		}
		if status, _ := b.status(http.MethodPost, "/mcp", second["access_token"].(string), nil); status != http.StatusOK {
			t.Errorf("another agent: %d", status)
		}
		return
	}
	t.Error("nothing bounds an agent")
}
