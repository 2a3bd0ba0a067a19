package e2e

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"farhand/client"
	"farhand/wire"
)

// browser is a phone: it keeps cookies, follows redirections and sends forms.
type browser struct {
	t    *testing.T
	base string
	http *http.Client
}

func (b *bench) browser() *browser {
	b.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return &browser{b.t, b.url, &http.Client{Jar: jar}}
}

// page is what a browser shows.
type page struct {
	status int
	at     string // path and query
	body   string
	header http.Header
}

func (b *browser) do(req *http.Request, err error) page {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return page{resp.StatusCode, resp.Request.URL.RequestURI(), string(body), resp.Header}
}

func (b *browser) get(path string) page {
	b.t.Helper()
	return b.do(http.NewRequest(http.MethodGet, b.base+path, nil))
}

// submit sends a form of the page with what it has in it, and more or other.
func (b *browser) submit(p page, action string, more url.Values) page {
	b.t.Helper()
	form := p.form(b.t, action)
	for name, values := range more {
		form[name] = values
	}
	req, err := http.NewRequest(http.MethodPost, b.base+action, strings.NewReader(form.Encode()))
	if err == nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", b.base)
	}
	return b.do(req, err)
}

var (
	input     = regexp.MustCompile(`<input ([^>]*)>`)
	attribute = regexp.MustCompile(`([a-z]+)(?:="([^"]*)")?`)
)

// form is what a form of the page has in it before anybody touches it.
func (p page) form(t *testing.T, action string) url.Values {
	t.Helper()
	_, rest, ok := strings.Cut(p.body, `action="`+action+`"`)
	if !ok {
		t.Fatalf("%s (%d) has no form for %s:\n%s", p.at, p.status, action, p.body)
	}
	rest, _, _ = strings.Cut(rest, "</form>")
	form := url.Values{}
	for _, tag := range input.FindAllStringSubmatch(rest, -1) {
		has := make(map[string]string)
		for _, a := range attribute.FindAllStringSubmatch(tag[1], -1) {
			has[a[1]] = html.UnescapeString(a[2])
		}
		_, checked := has["checked"]
		if has["name"] != "" && (has["type"] != "checkbox" || checked) {
			form.Add(has["name"], has["value"])
		}
	}
	return form
}

// The way of a phone: set up by the link, scan the machine's code, sign in,
// compare, tick, approve.
func TestPhone(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	b.startRelay()
	link := b.relay.await(0, `setup link: \S+(/setup\?token=\S+)`)
	phone := b.browser()
	if p := phone.submit(phone.get(link[1]), "/setup", url.Values{"name": {"ann"}, "passphrase": {"too short"}, "again": {"too short"}}); p.status != http.StatusBadRequest {
		t.Errorf("a short passphrase is answered with %d", p.status)
	}
	const passphrase = "a passphrase for a phone"
	if p := phone.submit(phone.get(link[1]), "/setup", url.Values{"name": {"ann"}, "passphrase": {passphrase}, "again": {passphrase}}); p.status != http.StatusOK {
		t.Fatalf("setting up is answered with %d at %s:\n%s", p.status, p.at, p.body)
	}
	if p := b.browser().get(link[1]); p.status == http.StatusOK {
		t.Error("the setup link works twice")
	}

	b.startDaemon()
	code := b.daemon.await(0, `farhand approve ([A-Z]{4}-[A-Z]{4})`)[1]
	phone = b.browser() // another one, which isn't signed in
	p := phone.get("/device?user_code=" + code)
	if !strings.HasPrefix(p.at, "/login") {
		t.Fatalf("the link leads to %s", p.at)
	}
	if wrong := phone.submit(p, "/login", url.Values{"name": {"ann"}, "passphrase": {"a wrong passphrase"}}); wrong.status != http.StatusUnauthorized && wrong.status != http.StatusForbidden {
		t.Errorf("a wrong passphrase is answered with %d", wrong.status)
	}
	p = phone.submit(p, "/login", url.Values{"name": {"ann"}, "passphrase": {passphrase}})
	if p.status != http.StatusOK || !strings.HasPrefix(p.at, "/device?user_code=") {
		t.Fatalf("signing in leads to %s (%d)", p.at, p.status)
	}
	for _, want := range []string{code, "bench", "127.0.0.1"} {
		if !strings.Contains(p.body, want) {
			t.Errorf("the page doesn't show %q", want)
		}
	}
	if strings.Contains(p.body, "<script") || !strings.Contains(p.header.Get("Content-Security-Policy"), "default-src 'none'") || !strings.Contains(p.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("the page has scripts, or the policy %q", p.header.Get("Content-Security-Policy"))
	}
	ticked := p.form(t, "/device/decide")["cap"]
	if !slices.Contains(ticked, "files") || !slices.Contains(ticked, "hardware_serial") || slices.Contains(ticked, "shell") {
		t.Errorf("ticked before anybody touches it is %v", ticked)
	}
	// Looking allows nothing, nor does a form without a decision or from elsewhere.
	if p := phone.submit(p, "/device/decide", nil); p.status != http.StatusBadRequest {
		t.Errorf("without a decision the answer is %d", p.status)
	}
	if p := phone.submit(p, "/device/decide", url.Values{"decision": {"approve"}, "form": {"another"}}); p.status != http.StatusForbidden {
		t.Errorf("without the form's proof the answer is %d", p.status)
	}
	if p := b.browser().submit(p, "/device/decide", url.Values{"decision": {"approve"}}); p.status != http.StatusForbidden {
		t.Errorf("from another browser the answer is %d", p.status)
	}
	if p = phone.submit(p, "/device/decide", url.Values{"decision": {"approve"}, "name": {"pi"}}); p.status != http.StatusOK {
		t.Fatalf("approving is answered with %d:\n%s", p.status, p.body)
	}
	b.daemon.await(0, `^Online`)
	b.write(filepath.Join(b.dir, "passphrase"), passphrase+"\n")
	b.signIn()
	m := parse[client.Machine](t, b.owner.must("machines", "pi", "--json"))
	if !m.Online || slices.Contains(*m.Approval.Capabilities, wire.Shell) || !slices.Contains(*m.Approval.Capabilities, wire.Files) {
		t.Errorf("the machine is %+v", m)
	}
	b.owner.must("ls")
	b.owner.refuses("approval", wire.CapabilityNotGranted, "exec", "--", "true")
}

// A code that the owner turns down lets nobody in.
func TestDeny(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.startDaemon()
	code := b.daemon.await(0, `farhand approve ([A-Z]{4}-[A-Z]{4})`)[1]
	b.owner.must("approve", code, "--deny", "--yes")
	b.daemon.await(0, "denied|said no")
	if got := parse[struct{ Machines []client.Machine }](t, b.owner.must("machines", "--json")); len(got.Machines) != 0 {
		t.Errorf("machines says %+v", got)
	}
	b.owner.fails(1, "NOT_FOUND", "approve", "BCDF-GHJK", "--yes")
	if !b.daemon.running() {
		t.Error("the daemon has ended")
	}
}

// Accounts: setting up once, signing in and out, and nothing of one owner's for
// another.
func TestAccounts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	setup := b.relay.await(0, `setup token: (\S+)`)[1]
	file := filepath.Join(b.dir, "other")
	b.write(file, "another passphrase\n")
	bob := b.operator("bob")
	bob.fails(77, wire.AuthFailed, "login", b.url, "--name", "ann", "--passphrase-file", file)
	bob.fails(77, wire.AuthFailed, "login", b.url, "--name", "bob", "--passphrase-file", file)
	if r := bob.run("login", b.url, "--name", "bob", "--passphrase-file", file, "--setup", setup); r.code == 0 {
		t.Error("a setup token works twice")
	}
	if r := bob.run("machines"); r.code != 77 || !strings.Contains(r.stderr, "farhand login") {
		t.Errorf("without a login: %+v", r)
	}

	made := b.relayctl("owner", "add", "bob", "--json")
	token := parse[map[string]string](t, made.stdout)["setup_token"]
	if made.code != 0 || token == "" {
		t.Fatalf("owner add gives %+v", made)
	}
	b.write(file, "short\n")
	if r := bob.run("login", b.url, "--name", "bob", "--passphrase-file", file, "--setup", token); r.code == 0 {
		t.Error("a short passphrase is taken")
	}
	b.write(file, "another passphrase\n")
	bob.must("login", b.url, "--name", "bob", "--passphrase-file", file, "--setup", token)
	if got := parse[struct{ Machines []client.Machine }](t, bob.must("machines", "--json")); len(got.Machines) != 0 {
		t.Errorf("another owner sees %+v", got)
	}
	bob.fails(1, wire.MachineNotAttached, "ls", "bench:")
	bob.fails(1, wire.MachineNotAttached, "ls", b.machineID()+":")
	bob.fails(1, wire.MachineNotAttached, "revoke", "bench", "--yes")
	b.owner.must("ls")
	sessions := parse[struct{ Sessions []client.SessionInfo }](t, b.owner.must("sessions", "--json")).Sessions
	bob.fails(1, wire.SessionNotFound, "sessions", "close", sessions[0].ID)
	if got := b.relayctl("owner", "list"); got.stdout != "ann\nbob\n" {
		t.Errorf("owner list says %q", got.stdout)
	}

	// A reset ends the logins; the tokens made for others stay.
	agent := b.with(b.newToken("agent"))
	reset := parse[map[string]string](t, b.relayctl("owner", "reset", "ann", "--json").stdout)["setup_token"]
	b.owner.must("machines")
	b.write(filepath.Join(b.dir, "passphrase"), "the new passphrase\n")
	ann := b.operator("ann again")
	ann.must("login", b.url, "--name", "ann", "--passphrase-file", filepath.Join(b.dir, "passphrase"), "--setup", reset)
	b.owner.fails(77, wire.AuthFailed, "machines")
	agent.must("ls")
	ann.must("ls", "bench:")
	ann.must("logout")
	if r := ann.run("machines"); r.code != 77 {
		t.Errorf("signed out, machines gives %+v", r)
	}
	b.wholeAudit()
	if r := b.relayctl("audit", "verify", "--json"); !strings.Contains(r.stdout, `"ok":true`) {
		t.Errorf("the relay's audit verify says %+v", r)
	}
}
