package oauth

import (
	"html"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPageHeaders(t *testing.T) {
	f := open(t)
	f.owner("ann")
	b := f.browser()
	b.signIn("ann")
	user, _ := f.ask("pi-1")
	_, challenge := pkce()
	for _, path := range []string{"/device", "/device?user_code=" + user, "/setup?token=x", "/auth/authorize?client_id=x",
		"/auth/authorize?" + url.Values{"response_type": {"code"}, "client_id": {ClientID}, "redirect_uri": {redirectURI(41899)},
			"code_challenge": {challenge}, "code_challenge_method": {"S256"}}.Encode()} {
		a := b.get(path)
		csp := a.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: no %s in %s", path, want, csp)
			}
		}
		for k, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"X-Frame-Options": "DENY", "Content-Type": "text/html; charset=utf-8"} {
			if got := a.header.Get(k); got != want {
				t.Errorf("%s: %s: %q, want %q", path, k, got, want)
			}
		}
		for _, never := range []string{"<script", "javascript:", " on", "src=", "style="} {
			if never == " on" {
				if strings.Contains(a.body, " onclick") || strings.Contains(a.body, " onload") {
					t.Errorf("%s: a handler", path)
				}
			} else if strings.Contains(a.body, never) {
				t.Errorf("%s: holds %s", path, never)
			}
		}
		if !strings.Contains(a.body, `name="viewport"`) {
			t.Errorf("%s isn't for a phone", path)
		}
	}
}

func TestCookies(t *testing.T) {
	f := open(t)
	f.owner("ann")
	b := f.browser()
	page := b.get("/login")
	a := f.want(b.submit(page, "/login", url.Values{"name": {"ann"}, "passphrase": {passphrase}}), 303)
	var login string
	for _, c := range a.header.Values("Set-Cookie") {
		if strings.HasPrefix(c, "__Host-farhand-login=") {
			login = c
		}
	}
	for _, want := range []string{"; Path=/", "; Max-Age=900", "; HttpOnly", "; Secure", "; SameSite=Strict"} {
		if !strings.Contains(login, want) {
			t.Errorf("no %q in %q", want, login)
		}
	}
	if strings.Contains(login, "Domain") {
		t.Errorf("%q", login)
	}
	// It is no operator token, and an operator token is no cookie.
	f.apiError(f.do(request{method: "GET", path: "/api/whoami", bearer: b.cookies["__Host-farhand-login"]}), 401, "AUTH_FAILED")
	thief := f.browser()
	thief.cookies["__Host-farhand-login"] = f.want(f.login("ann", passphrase), 200).str("token")
	f.want(thief.get("/device"), 303)
	// Sign out ends it on the relay too.
	kept := b.cookies["__Host-farhand-login"]
	f.want(b.submit(b.get("/device"), "/logout", nil), 303)
	b.cookies["__Host-farhand-login"] = kept
	f.want(b.get("/device"), 303)
}

func TestPageLoginEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		f.owner("ann")
		b := f.browser()
		b.signIn("ann")
		pass(15*time.Minute - time.Second)
		page := f.want(b.get("/device"), 200)
		pass(time.Second)
		f.want(b.get("/device"), 303)
		// A form from before is not taken either.
		f.want(b.submit(page, "/device", url.Values{"user_code": {"BCDF-GHJK"}}), 403)
	})
}

// Every form is refused from elsewhere, without its proof, with another's proof
// and with another form's proof.
func TestForms(t *testing.T) {
	f := open(t)
	f.owner("ann")
	user, device := f.ask("pi-1")
	signedIn := func() *browser {
		b := f.browser()
		b.signIn("ann")
		return b
	}
	approval := func(b *browser) answer { return f.want(b.get("/device?user_code="+user), 200) }
	decide := url.Values{"decision": {"approve"}, "cap": {"files"}}

	for _, origin := range []string{"", "null", "https://evil.test", "http://relay.test:7443", "https://relay.test", publicURL + "/", "https://relay.test:7443.evil.test"} {
		b := signedIn()
		page := approval(b)
		b.origin = origin
		f.want(b.submit(page, "/device/decide", decide), 403)
		f.want(b.submit(page, "/logout", nil), 403)
		f.want(b.submit(f.browser().get("/login"), "/login", url.Values{"name": {"ann"}, "passphrase": {passphrase}}), 403)
	}
	b := signedIn()
	page := approval(b)
	with := func(form string) url.Values {
		v := url.Values{"form": {form}}
		for k, x := range decide {
			v[k] = x
		}
		return v
	}
	f.want(b.submit(page, "/device/decide", with("")), 403)
	codeForm := hiddenFields(t, b.get("/device").body, "/device").Get("form")
	f.want(b.submit(page, "/device/decide", with(codeForm)), 403)
	other := hiddenFields(t, approval(signedIn()).body, "/device/decide").Get("form")
	f.want(b.submit(page, "/device/decide", with(other)), 403)
	user2, _ := f.ask("pi-2")
	elsewhere := with(hiddenFields(t, f.want(b.get("/device?user_code="+user2), 200).body, "/device/decide").Get("form"))
	f.want(b.submit(page, "/device/decide", elsewhere), 403)
	f.want(b.send(request{method: "POST", path: "/device/decide", json: map[string]string{"decision": "approve"}}), 415)
	f.want(b.send(request{method: "POST", path: "/device/decide", contentType: "application/x-www-form-urlencoded",
		body: strings.Repeat("x", maxBody+1)}), 400)
	// In the URL it doesn't count.
	form := hiddenFields(t, page.body, "/device/decide")
	for k, x := range decide {
		form[k] = x
	}
	f.want(b.send(request{method: "POST", path: "/device/decide?" + form.Encode(), form: url.Values{"a": {"b"}}}), 403)
	f.want(b.get("/device/decide?"+form.Encode()), 405)
	f.oauthError(f.poll(device), "authorization_pending")

	f.want(b.submit(page, "/device/decide", decide), 200)
	f.want(f.poll(device), 200)
}

func TestApprovalPage(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	user, device := f.ask("pi-1", "display_name", `Bench <b>&"Pi`, "capabilities", "files shell hardware_gpio computer_use",
		"board", "Raspberry\u202e Pi 5")
	link := "/device?user_code=" + user

	b := f.browser()
	to := f.want(b.get(link), 303).header.Get("Location")
	if to != "/login?next="+url.QueryEscape(link) {
		t.Fatalf("Location %q", to)
	}
	page := f.want(b.get(to), 200)
	f.want(b.submit(page, "/login", url.Values{"name": {"ann"}, "passphrase": {"wrong wrong wrong"}}), 401)
	a := f.want(b.submit(page, "/login", url.Values{"name": {"ann"}, "passphrase": {passphrase}}), 303)
	if a.header.Get("Location") != link {
		t.Fatalf("login leads to %q", a.header.Get("Location"))
	}
	page = f.want(b.get(link), 200)
	for _, want := range []string{user, "Bench b&amp;&#34;Pi", "Raspberry Pi 5", "ends in c0de", "192.0.2.1", "ago", "must show this code", "The same code: approve",
		`value="files" checked`, `value="hardware_gpio" checked`, `value="shell">`, `value="computer_use">`} {
		if !strings.Contains(page.body, want) {
			t.Errorf("no %q in:\n%s", want, page.body)
		}
	}
	if strings.Index(page.body, `value="shell"`) < strings.Index(page.body, `value="hardware_gpio"`) {
		t.Error("what is risky stands among the rest")
	}
	// Opening the link, even signed in, approves nothing.
	f.oauthError(f.poll(device), "authorization_pending")
	// Nor does a form without a decision; what was ticked stays ticked.
	a = f.want(b.submit(page, "/device/decide", url.Values{"cap": {"shell"}, "name": {"bench"}}), 400)
	if !strings.Contains(a.body, "Approve or deny?") || !strings.Contains(a.body, `value="shell" checked`) ||
		strings.Contains(a.body, `value="files" checked`) || !strings.Contains(a.body, `value="bench"`) {
		t.Fatalf("%s", a.body)
	}
	for _, bad := range []url.Values{{"name": {"a b"}}, {"roots": {"relative"}}, {"cap": {"sheel"}}} {
		bad.Set("decision", "approve")
		f.want(b.submit(page, "/device/decide", bad), 400)
	}
	a = f.want(b.submit(page, "/device/decide", url.Values{"decision": {"approve"}, "cap": {"files", "hardware_gpio"},
		"devices": {"gpio:*\r\n\r\nserial:usb-*\r\n"}, "roots": {"/data/work"}, "name": {"bench"}}), 200)
	for _, want := range []string{"bench is connected", "<li>Files in its directories</li>\n<li>GPIO pins</li>\n</ul>", "you didn't allow the shell", "farhand revoke"} {
		if !strings.Contains(html.UnescapeString(a.body), want) {
			t.Errorf("no %q in:\n%s", want, a.body)
		}
	}
	f.want(f.poll(device), 200)
	m := f.want(f.do(request{method: "GET", path: "/api/machines/bench", bearer: login}), 200)
	if !strings.Contains(m.body, `"approval":{"capabilities":["files","hardware_gpio"],"devices":[{"pattern":"gpio:*"},{"pattern":"serial:usb-*"}],"roots":["/data/work"]}`) {
		t.Fatalf("%s", m.body)
	}
	f.want(b.submit(page, "/device/decide", url.Values{"decision": {"deny"}}), 409)

	// By hand, and no.
	user, device = f.ask("pi-2")
	page = f.want(b.submit(b.get("/device"), "/device", url.Values{"user_code": {" " + strings.ToLower(user[:4]) + " " + user[5:]}}), 200)
	f.want(b.submit(page, "/device/decide", url.Values{"decision": {"deny"}}), 200)
	f.oauthError(f.poll(device), "access_denied")

	// A name that another machine has.
	user, device = f.ask("pi-3")
	page = f.want(b.get("/device?user_code="+user), 200)
	a = f.want(b.submit(page, "/device/decide", url.Values{"decision": {"approve"}, "cap": {"files"}, "name": {"BENCH"}}), 400)
	if !strings.Contains(a.body, "Another machine has this name") {
		t.Fatalf("%s", a.body)
	}
	f.oauthError(f.poll(device), "authorization_pending")
}

func TestSetupPage(t *testing.T) {
	f := open(t)
	setup, _, err := f.s.FirstSetup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := f.browser()
	f.want(b.get("/setup?token=fh_su_wrong"), 403)
	page := f.want(b.get(strings.TrimPrefix(setup.Link, publicURL)), 200)
	fields := func(name, one, two string) url.Values {
		return url.Values{"name": {name}, "passphrase": {one}, "again": {two}}
	}
	f.want(b.submit(page, "/setup", fields("ann", passphrase, passphrase+"x")), 400)
	f.want(b.submit(page, "/setup", fields("ann", "short", "short")), 400)
	a := f.want(b.submit(page, "/setup", fields("not a name", passphrase, passphrase)), 400)
	if strings.Contains(a.body, passphrase) || strings.Contains(a.body, "not a name") {
		t.Fatal("what was typed comes back")
	}
	a = f.want(b.submit(page, "/setup", fields("ann", passphrase, passphrase)), 303)
	if a.header.Get("Location") != "/device" {
		t.Fatalf("Location %q", a.header.Get("Location"))
	}
	f.want(b.get("/device"), 200) // signed in
	f.want(f.browser().get(strings.TrimPrefix(setup.Link, publicURL)), 403)
}

func TestSafeNext(t *testing.T) {
	for next, want := range map[string]string{
		"/device?user_code=BCDF-GHJK": "/device?user_code=BCDF-GHJK",
		"/auth/authorize?a=b":         "/auth/authorize?a=b",
		"":                            "/device",
		"//evil.test/device":          "/device",
		"https://evil.test/device":    "/device",
		"/\\evil.test":                "/device",
		"\\/evil.test":                "/device",
		"/device/../../x":             "/device",
		"/devicex":                    "/device",
		"javascript:alert(1)":         "/device",
		"/device#x":                   "/device",
		"/login?next=x":               "/device",
		"/device\r\nX: y":             "/device",
	} {
		if got := safeNext(next); got != want {
			t.Errorf("safeNext(%q) = %q, want %q", next, got, want)
		}
	}
}

// Codes that don't exist: five an hour for an account, twenty for an address,
// pages and API together; right ones cost nothing.
func TestUserCodeMisses(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		login := f.owner("ann")
		b := f.browser()
		b.signIn("ann")
		user, _ := f.ask("pi-1")
		api := func(login, code, from string) answer {
			return f.do(request{method: "GET", path: "/api/approvals/" + url.PathEscape(code), bearer: login, from: from})
		}
		for range 10 {
			f.want(api(login, user, ""), 200)
		}
		f.apiError(api(login, "BBBB-BBBB", ""), 404, "NOT_FOUND")
		f.apiError(api(login, "nonsense", ""), 404, "NOT_FOUND")
		f.want(b.get("/device?user_code=CCCC-CCCC"), 404)
		f.apiError(f.approve(login, "DDDD-DDDD"), 404, "NOT_FOUND")
		f.want(b.submit(b.get("/device"), "/device", url.Values{"user_code": {"aeiou"}}), 404)
		for range 2 {
			a := api(login, user, "") // even the right one
			f.apiError(a, 429, "RATE_LIMITED")
			if a.header.Get("Retry-After") != "3600" {
				t.Fatalf("Retry-After %s", a.header.Get("Retry-After"))
			}
		}
		f.apiError(f.approve(login, user), 429, "RATE_LIMITED")
		f.want(b.get("/device?user_code="+user), 429)
		if n := len(f.recorded(OpCodeMissed)); n != 5 {
			t.Fatalf("%d misses in the audit log", n)
		}
		others := []string{f.owner("bob"), f.owner("cy"), f.owner("dan"), f.owner("eve")}
		f.want(api(others[0], user, ""), 200) // another account isn't hit
		for i := range 15 {
			f.apiError(api(others[i/5], "BBBB-BBBB", ""), 404, "NOT_FOUND")
		}
		f.apiError(api(others[3], "BBBB-BBBB", ""), 429, "RATE_LIMITED") // twenty from this address
		f.want(api(others[3], user, "198.51.100.1"), 200)
		pass(time.Hour)
		user, _ = f.ask("pi-1")
		f.want(api(login, user, ""), 200)
	})
}

func TestReadCode(t *testing.T) {
	for text, want := range map[string]string{
		"BCDF-GHJK": "BCDFGHJK", "bcdfghjk": "BCDFGHJK", " b c d f – g h j k ": "BCDFGHJK", "BCDF_GHJK": "BCDFGHJK",
		"": "", "BCDF-GHJ": "", "BCDF-GHJKL": "", "ACDF-GHJK": "", "BCDF-GHJ1": "", strings.Repeat("-", 100) + "BCDFGHJK": "",
	} {
		if got, ok := readCode(text); got != want || ok != (want != "") {
			t.Errorf("readCode(%q) = %q, %v", text, got, ok)
		}
	}
	seen := map[rune]bool{}
	for range 200 {
		for _, r := range newUserCode() {
			seen[r] = true
		}
	}
	if len(seen) != 20 {
		t.Errorf("only %d letters are used", len(seen))
	}
	if slices.ContainsFunc([]rune(userCodeAlphabet), func(r rune) bool { return strings.ContainsRune("AEIOUY", r) }) {
		t.Error("a vowel")
	}
}

// A form from here has one origin; a second one is somebody's attempt.
func TestOneOrigin(t *testing.T) {
	f := open(t)
	for _, c := range []struct {
		origins []string
		ok      bool
	}{{[]string{publicURL}, true}, {[]string{publicURL, "https://evil.test"}, false}, {[]string{publicURL, publicURL}, false}, {nil, false}} {
		r := httptest.NewRequest("POST", "/login", strings.NewReader("a=b"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header["Origin"] = c.origins
		if _, refused := f.s.readForm(r); (refused == nil) != c.ok {
			t.Errorf("%q: %v", c.origins, refused)
		}
	}
}

// Who approves a machine whose id is that of another one is told, on the page and by
// the API, and whether that is there.
func TestApprovalTellsWhoWasThere(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	f.paired(login, "pi-1")
	f.paired(login, "online")
	f.owner("bob")
	for _, c := range []struct{ id, page, api string }{
		{"new", "", `"paired":null`},
		{"pi-1", "It takes the place of bench-pi</strong>, which has the same machine id and isn&#39;t connected.", `"paired":{"name":"bench-pi","board":"Raspberry Pi 5"`},
		{"online", "It takes the place of bench-pi-2</strong>, which has the same machine id and is connected right now", `"online":true`},
	} {
		user, _ := f.ask(c.id)
		b := f.browser()
		b.signIn("ann")
		page := f.want(b.get("/device?user_code="+user), 200).body
		if strings.Contains(page, "takes the place") != (c.page != "") || !strings.Contains(strings.ReplaceAll(page, "isn't", "isn&#39;t"), c.page) {
			t.Errorf("%s: the page is %s", c.id, page)
		}
		if a := f.want(f.do(request{method: "GET", path: "/api/approvals/" + user, bearer: login}), 200); !strings.Contains(a.body, c.api) {
			t.Errorf("%s: %s", c.id, a.body)
		}
		// Another owner's machines are nobody's business.
		b = f.browser()
		b.signIn("bob")
		if page := f.want(b.get("/device?user_code="+user), 200).body; strings.Contains(page, "takes the place") {
			t.Errorf("%s: bob is told %s", c.id, page)
		}
	}
}
