package oauth

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/relay/access"
)

func TestMetadata(t *testing.T) {
	f := open(t)
	a := f.want(f.do(request{method: "GET", path: "/.well-known/oauth-authorization-server"}), 200)
	for k, want := range map[string]string{
		"issuer":                        publicURL,
		"token_endpoint":                publicURL + "/api/oauth/token",
		"device_authorization_endpoint": publicURL + "/api/oauth/device_authorization",
		"authorization_endpoint":        publicURL + "/auth/authorize",
		"revocation_endpoint":           publicURL + "/api/oauth/revoke",
	} {
		if a.str(k) != want {
			t.Errorf("%s = %q, want %q", k, a.str(k), want)
		}
	}
	for k, want := range map[string]string{
		"grant_types_supported":                          `["authorization_code","refresh_token","urn:ietf:params:oauth:grant-type:device_code","urn:farhand:params:oauth:grant-type:claim"]`,
		"response_types_supported":                       `["code"]`,
		"code_challenge_methods_supported":               `["S256"]`,
		"token_endpoint_auth_methods_supported":          `["none"]`,
		"scopes_supported":                               `["USE_TOOLS","mcp"]`,
		"authorization_response_iss_parameter_supported": `true`,
	} {
		if !strings.Contains(a.body, `"`+k+`":`+want) {
			t.Errorf("%s isn't %s in %s", k, want, a.body)
		}
	}
}

func TestDeviceFlow(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		login := f.owner("ann")
		user, device := f.ask("pi-1", "capabilities", "files shell directory_browse hardware_gpio grants nonsense <b>")
		if len(user) != 9 || user[4] != '-' || strings.Trim(strings.Replace(user, "-", "", 1), userCodeAlphabet) != "" {
			t.Fatalf("user code %q", user)
		}

		f.oauthError(f.poll(device), "authorization_pending")
		f.oauthError(f.poll(device), "slow_down") // at once: 5 s more from now on
		pass(5 * time.Second)
		f.oauthError(f.poll(device), "slow_down") // 10 were due, 15 are now
		pass(15 * time.Second)
		f.oauthError(f.poll(device), "authorization_pending")
		pass(15*time.Second - 500*time.Millisecond) // a timer that is a bit early
		f.oauthError(f.poll(device), "authorization_pending")

		a := f.want(f.do(request{method: "GET", path: "/api/approvals/" + strings.ToLower(strings.Replace(user, "-", " ", 1)[:4]) + strings.ToLower(user[5:]), bearer: login}), 200)
		if a.str("user_code") != user || a.str("machine_id") != "pi-1" || a.str("board") != "Raspberry Pi 5" ||
			a.str("serial_suffix") != "c0de" || a.str("address") != "192.0.2.1" || a.str("display_name") != "Bench Pi" {
			t.Fatalf("%s", a.body)
		}
		if !strings.Contains(a.body, `"capabilities":["files","shell","hardware_gpio"]`) {
			t.Fatalf("%s", a.body)
		}
		a = f.want(f.approve(login, user, "name", "bench", "devices", []map[string]any{{"pattern": "gpio:*"}}), 200)
		if a.str("machine_id") != "pi-1" || a.str("name") != "bench" {
			t.Fatalf("%s", a.body)
		}
		f.apiError(f.approve(login, user), 409, "CONFLICT")

		// The answer may get lost: the code works until its pair is used.
		first := f.want(f.poll(device), 200)
		if first.str("token_type") != "Bearer" || first.json["expires_in"] != 3600.0 || first.str("scope") != Scope ||
			first.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%s", first.body)
		}
		at, err := time.Parse(time.RFC3339, first.str("access_token_expires_at"))
		if err != nil || !at.Equal(time.Now().Add(time.Hour)) {
			t.Fatalf("access_token_expires_at %v, %v", at, err)
		}
		second := f.want(f.poll(device), 200)
		if f.alive(first.str("access_token")) {
			t.Fatal("the replaced pair lives")
		}
		if !f.alive(second.str("access_token")) {
			t.Fatal("the pair is refused")
		}
		f.oauthError(f.poll(device), "invalid_grant")
		if !f.alive(second.str("access_token")) {
			t.Fatal("a late poll ended the family")
		}
		d, err := f.s.Device(t.Context(), second.str("access_token"))
		if err != nil || d.MachineID != "pi-1" || d.ClientID != ClientID {
			t.Fatalf("%+v, %v", d, err)
		}
		m, err := f.s.Machine(t.Context(), d.Owner, "pi-1")
		if err != nil || m.Name != "bench" || len(*m.Approval.Capabilities) != 2 || len(*m.Approval.Devices) != 1 || m.Approval.Roots != nil {
			t.Fatalf("%+v, %v", m, err)
		}
		// A device's token is nobody's login, and the reverse.
		f.apiError(f.do(request{method: "GET", path: "/api/whoami", bearer: second.str("access_token")}), 401, "AUTH_FAILED")
		if _, err := f.s.Device(t.Context(), login); !errors.Is(err, access.ErrUnauthorized) {
			t.Fatalf("a login as a device: %v", err)
		}
	})
}

func TestDeviceCodeEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		login := f.owner("ann")
		_, silent := f.ask("pi-1")
		deniedUser, denied := f.ask("pi-2")
		approvedUser, approved := f.ask("pi-3")
		f.want(f.do(request{method: "POST", path: "/api/approvals/" + deniedUser, bearer: login, json: map[string]string{"decision": "deny"}}), 200)
		f.want(f.approve(login, approvedUser), 200)
		f.oauthError(f.poll(denied), "access_denied")
		lateUser, _ := f.ask("pi-4")
		pass(time.Hour)
		f.oauthError(f.poll(silent), "expired_token")
		f.oauthError(f.poll(approved), "expired_token") // never fetched in time
		f.apiError(f.approve(login, lateUser), 404, "NOT_FOUND")
		pass(25 * time.Hour)
		f.oauthError(f.poll(silent), "invalid_grant") // forgotten
	})
}

// A flood of devices is slowed down before it fills the store.
func TestDeviceAuthorizationFlood(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		ask := func() answer {
			return f.do(request{method: "POST", path: "/api/oauth/device_authorization", form: url.Values{"client_id": {ClientID}}})
		}
		granted := 0
		for range authorizationsBurst + 20 {
			if ask().status == 200 {
				granted++
			}
		}
		if granted != authorizationsBurst {
			t.Fatalf("%d granted", granted)
		}
		a := ask()
		f.oauthError(a, "slow_down")
		if a.status != 429 || a.header.Get("Retry-After") == "" {
			t.Fatalf("%d %v", a.status, a.header)
		}
		pass(2 * time.Second)
		f.want(ask(), 200)
	})
}

func TestPKCE(t *testing.T) {
	f := open(t)
	f.owner("ann")
	b := f.browser()
	verifier, challenge := pkce()
	q := url.Values{"response_type": {"code"}, "client_id": {ClientID}, "redirect_uri": {redirectURI(41905)}, "scope": {Scope},
		"state": {"s t&a=te"}, "code_challenge": {challenge}, "code_challenge_method": {"S256"}}
	path := "/auth/authorize?" + q.Encode()

	a := f.want(b.get(path), 303)
	toLogin := a.header.Get("Location")
	if toLogin != "/login?next="+url.QueryEscape(path) {
		t.Fatalf("Location %q", toLogin)
	}
	page := f.want(b.get(toLogin), 200)
	a = f.want(b.submit(page, "/login", url.Values{"name": {"Ann"}, "passphrase": {passphrase}}), 303)
	if got := a.header.Get("Location"); got != path {
		t.Fatalf("login leads to %q, want %q", got, path)
	}
	consent := func() answer { return f.want(b.get(path), 200) }
	page = consent()
	if csp := page.header.Get("Content-Security-Policy"); !strings.Contains(csp, "form-action 'self' http://localhost:41905;") {
		t.Fatalf("the browser won't follow the redirect: %s", csp)
	}
	code := func(a answer) string {
		u, err := url.Parse(f.want(a, 303).header.Get("Location"))
		if err != nil || u.Host != "localhost:41905" || u.Path != "/callback" || u.Query().Get("state") != "s t&a=te" || u.Query().Get("iss") != publicURL {
			t.Fatalf("%v %v", u, err)
		}
		return u.Query().Get("code")
	}
	allow := url.Values{"decision": {"approve"}, "cap": {"files", "shell"}}
	one := code(b.submit(page, "/auth/authorize", allow))
	redeem := func(code string, more ...string) answer {
		return f.token(append([]string{"grant_type", grantCode, "code", code, "redirect_uri", redirectURI(41905), "code_verifier", verifier}, more...)...)
	}
	f.oauthError(redeem(one, "code_verifier", "short"), "invalid_request")
	f.oauthError(redeem(one, "code_verifier", strings.Repeat("x", 43)), "invalid_grant")
	f.oauthError(redeem(one, "redirect_uri", redirectURI(41906)), "invalid_grant")
	f.oauthError(redeem(one, "client_id", "other"), "invalid_client")
	f.oauthError(redeem(one[:len(one)-2]+"AA"), "invalid_grant")
	tokens := f.want(redeem(one), 200)
	dev, err := f.s.Device(t.Context(), tokens.str("access_token"))
	if err != nil || dev.MachineID != "" {
		t.Fatalf("%+v, %v", dev, err)
	}

	// Its first HELLO says which machine it is; then it stays that one.
	if err := f.s.Bind(t.Context(), dev, "laptop"); err != nil {
		t.Fatal(err)
	}
	if err := f.s.Bind(t.Context(), dev, "laptop"); err != nil {
		t.Fatal(err)
	}
	if err := f.s.Bind(t.Context(), dev, "another"); !errors.Is(err, access.ErrUnauthorized) {
		t.Fatalf("bound twice: %v", err)
	}
	if dev, err = f.s.Device(t.Context(), tokens.str("access_token")); err != nil || dev.MachineID != "laptop" {
		t.Fatalf("%+v, %v", dev, err)
	}
	m, err := f.s.Machine(t.Context(), dev.Owner, "laptop")
	if err != nil || len(*m.Approval.Capabilities) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}

	// The code twice: both lose.
	f.oauthError(redeem(one), "invalid_grant")
	if f.alive(tokens.str("access_token")) {
		t.Fatal("the tokens outlive the replay of their code")
	}

	// Deny.
	u, err := url.Parse(f.want(b.submit(consent(), "/auth/authorize", url.Values{"decision": {"deny"}}), 303).header.Get("Location"))
	if err != nil || u.Query().Get("error") != "access_denied" || u.Query().Get("code") != "" {
		t.Fatalf("%v %v", u, err)
	}
}

func TestAuthorizeRefuses(t *testing.T) {
	f := open(t)
	f.owner("ann")
	b := f.browser()
	b.signIn("ann")
	_, challenge := pkce()
	good := url.Values{"response_type": {"code"}, "client_id": {ClientID}, "redirect_uri": {redirectURI(41899)}, "state": {"s"},
		"code_challenge": {challenge}, "code_challenge_method": {"S256"}}
	for name, c := range map[string]struct {
		key, value, want string // want: the error in the redirect; empty: no redirect
	}{
		"client":          {"client_id", "evil", ""},
		"port":            {"redirect_uri", redirectURI(41911), ""},
		"host":            {"redirect_uri", "http://127.0.0.1:41899/callback", ""},
		"path":            {"redirect_uri", "http://localhost:41899/callback/", ""},
		"elsewhere":       {"redirect_uri", "https://evil.test/callback", ""},
		"no redirect":     {"redirect_uri", "", ""},
		"response type":   {"response_type", "token", "unsupported_response_type"},
		"scope":           {"scope", "EVERYTHING", "invalid_scope"},
		"plain challenge": {"code_challenge_method", "plain", "invalid_request"},
		"no method":       {"code_challenge_method", "", "invalid_request"},
		"short challenge": {"code_challenge", challenge[1:], "invalid_request"},
		"odd challenge":   {"code_challenge", challenge[1:] + "+", "invalid_request"},
		"long state":      {"state", strings.Repeat("s", maxState+1), "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			q := url.Values{}
			for k, v := range good {
				q[k] = v
			}
			q.Set(c.key, c.value)
			a := b.get("/auth/authorize?" + q.Encode())
			if c.want == "" {
				if a.status != 400 || a.header.Get("Location") != "" {
					t.Fatalf("%d, Location %q", a.status, a.header.Get("Location"))
				}
				return
			}
			u, err := url.Parse(a.header.Get("Location"))
			if err != nil || a.status != 303 || u.Host != "localhost:41899" || u.Query().Get("error") != c.want {
				t.Fatalf("%d %v %v", a.status, u, err)
			}
		})
	}
	// A consent form is good for the request that it was shown for, no other.
	page := f.want(b.get("/auth/authorize?"+good.Encode()), 200)
	a := b.submit(page, "/auth/authorize", url.Values{"decision": {"approve"}, "cap": {"files"}, "redirect_uri": {redirectURI(41900)}})
	f.want(a, 403)
}

func TestClaims(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		login := f.owner("ann")
		mint := func(body map[string]any) answer {
			return f.do(request{method: "POST", path: "/api/claims", bearer: login, json: body})
		}
		f.apiError(mint(map[string]any{}), 400, "INVALID_ARGUMENT") // what to allow is never guessed
		f.apiError(mint(map[string]any{"capabilities": []string{"files"}, "expires": "2000h"}), 400, "INVALID_ARGUMENT")
		a := f.want(mint(map[string]any{"capabilities": []string{"files"}, "roots": []string{"/data/work/"}, "machine_name": "attic"}), 200)
		key, id := a.str("claim_key"), a.str("id")
		if at, err := time.Parse(time.RFC3339, a.str("expires_at")); err != nil || !at.Equal(time.Now().Add(7*24*time.Hour)) {
			t.Fatalf("%v, %v", at, err)
		}
		redeem := func(key, machine string) answer {
			return f.token("grant_type", grantClaim, "claim_key", key, "machine_id", machine, "display_name", "Attic Pi")
		}
		f.oauthError(redeem(key, ""), "invalid_request")
		f.oauthError(redeem(key, "<x>"), "invalid_request")
		f.oauthError(redeem("fh_ck_nonsense", "pi-1"), "invalid_grant")
		tokens := f.want(redeem(key, "pi-1"), 200)
		if !f.alive(tokens.str("access_token")) {
			t.Fatal("refused")
		}
		f.oauthError(redeem(key, "pi-1"), "invalid_grant")
		f.oauthError(redeem(key, "pi-2"), "invalid_grant")
		m := f.want(f.do(request{method: "GET", path: "/api/machines/attic", bearer: login}), 200)
		if m.str("machine_id") != "pi-1" || !strings.Contains(m.body, `"approval":{"capabilities":["files"],"roots":["/data/work"]}`) {
			t.Fatalf("%s", m.body)
		}
		listed := f.want(f.do(request{method: "GET", path: "/api/claims", bearer: login}), 200)
		if !strings.Contains(listed.body, `"machine_id":"pi-1"`) || strings.Contains(listed.body, key) {
			t.Fatalf("%s", listed.body)
		}
		if len(f.recorded(OpClaimRedeemed)) != 1 {
			t.Fatal("the redemption isn't in the audit log once")
		}

		// A revoked key is dead; one that expires too.
		gone := f.want(mint(map[string]any{"capabilities": []string{}}), 200)
		f.want(f.do(request{method: "DELETE", path: "/api/claims/" + gone.str("id"), bearer: login}), 200)
		f.apiError(f.do(request{method: "DELETE", path: "/api/claims/" + gone.str("id"), bearer: login}), 404, "NOT_FOUND")
		f.oauthError(redeem(gone.str("claim_key"), "pi-3"), "invalid_grant")
		short := f.want(mint(map[string]any{"capabilities": []string{"files"}, "expires": "1h"}), 200)
		pass(time.Hour)
		f.oauthError(redeem(short.str("claim_key"), "pi-4"), "invalid_grant")
		// Revoking a key that was used takes nothing from the machine.
		f.want(f.do(request{method: "DELETE", path: "/api/claims/" + id, bearer: login}), 200)
		f.want(f.refresh(tokens.str("refresh_token")), 200)
		f.oauthError(redeem(key, "pi-5"), "invalid_grant")
	})
}

// The answer to a claim key may be lost, to the network or to a power cut: the
// same machine gets another pair until one was used, and nobody else.
func TestClaimAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		login := f.owner("ann")
		mint := func() string {
			return f.want(f.do(request{method: "POST", path: "/api/claims", bearer: login, json: map[string]any{"capabilities": []string{"files"}}}), 200).str("claim_key")
		}
		redeem := func(key, machine string) answer {
			return f.token("grant_type", grantClaim, "claim_key", key, "machine_id", machine)
		}
		key := mint()
		lost := f.want(redeem(key, "pi-1"), 200)
		f.oauthError(redeem(key, "pi-2"), "invalid_grant")
		pass(time.Minute)
		kept := f.want(redeem(key, "pi-1"), 200)
		if f.alive(lost.str("access_token")) || !f.alive(kept.str("access_token")) {
			t.Error("both pairs live, or the wrong one")
		}
		f.oauthError(redeem(key, "pi-1"), "invalid_grant") // used now
		f.want(f.refresh(kept.str("refresh_token")), 200)
		if n := len(f.recorded(OpClaimRedeemed)); n != 1 {
			t.Errorf("redeemed %d times by the audit log", n)
		}

		late := mint()
		f.want(redeem(late, "pi-3"), 200)
		pass(claimAgain + time.Second)
		f.oauthError(redeem(late, "pi-3"), "invalid_grant")
	})
}

// A key outlived by nothing: used on its first day, tried again on its last.
func TestClaimNeverTwice(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		login := f.owner("ann")
		a := f.want(f.do(request{method: "POST", path: "/api/claims", bearer: login,
			json: map[string]any{"capabilities": []string{"files"}, "expires": "720h"}}), 200)
		redeem := func() answer {
			return f.token("grant_type", grantClaim, "claim_key", a.str("claim_key"), "machine_id", "pi-1")
		}
		f.want(redeem(), 200)
		pass(30*24*time.Hour - time.Minute)
		f.oauthError(redeem(), "invalid_grant")
	})
}

func TestMalformedTokenRequests(t *testing.T) {
	f := open(t)
	const secret = "s3cr3t-that-must-not-come-back"
	for name, c := range map[string]struct {
		kind, body, code string
	}{
		"no type":           {"", "grant_type=x", "invalid_request"},
		"odd type":          {"text/plain", "grant_type=x", "invalid_request"},
		"bad json":          {"application/json", `{"grant_type":"` + secret, "invalid_request"},
		"json array":        {"application/json", `["` + secret + `"]`, "invalid_request"},
		"json null":         {"application/json", `null`, "invalid_request"},
		"json number":       {"application/json", `{"grant_type":1,"x":"` + secret + `"}`, "invalid_request"},
		"bad form":          {"application/x-www-form-urlencoded", "a=%zz" + secret, "invalid_request"},
		"twice":             {"application/x-www-form-urlencoded", "client_id=a&client_id=" + secret, "invalid_request"},
		"not utf-8":         {"application/x-www-form-urlencoded", "client_id=%ff", "invalid_request"},
		"empty":             {"application/x-www-form-urlencoded", "", "invalid_request"},
		"no client":         {"application/x-www-form-urlencoded", "grant_type=refresh_token&refresh_token=" + secret, "invalid_request"},
		"odd client":        {"application/x-www-form-urlencoded", "grant_type=refresh_token&client_id=" + secret, "invalid_client"},
		"odd grant":         {"application/json", `{"grant_type":"` + secret + `","client_id":"` + ClientID + `"}`, "unsupported_grant_type"},
		"no refresh":        {"application/json", `{"grant_type":"refresh_token","client_id":"` + ClientID + `"}`, "invalid_request"},
		"odd refresh":       {"application/json", `{"grant_type":"refresh_token","refresh_token":"` + secret + `","client_id":"` + ClientID + `"}`, "invalid_grant"},
		"no device code":    {"application/json", `{"grant_type":"` + grantDevice + `","client_id":"` + ClientID + `"}`, "invalid_request"},
		"odd device code":   {"application/json", `{"grant_type":"` + grantDevice + `","device_code":"` + secret + `","client_id":"` + ClientID + `"}`, "invalid_grant"},
		"no code":           {"application/json", `{"grant_type":"authorization_code","client_id":"` + ClientID + `"}`, "invalid_request"},
		"too long":          {"application/x-www-form-urlencoded", "x=" + strings.Repeat(secret, maxBody/len(secret)+1), "invalid_request"},
		"deep json":         {"application/json", strings.Repeat(`{"a":`, 50000), "invalid_request"},
		"scope of refresh":  {"application/x-www-form-urlencoded", "grant_type=refresh_token&scope=X&refresh_token=x&client_id=" + ClientID, "invalid_scope"},
		"parameters in URL": {"application/x-www-form-urlencoded", "client_id=" + ClientID, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			a := f.do(request{method: "POST", path: "/api/oauth/token?grant_type=refresh_token", contentType: c.kind, body: c.body})
			f.oauthError(a, c.code)
			if want := map[bool]int{true: 401, false: 400}[c.code == "invalid_client"]; a.status != want {
				t.Errorf("status %d, want %d", a.status, want)
			}
			if strings.Contains(a.body, secret) {
				t.Errorf("what was sent comes back: %s", a.body)
			}
		})
	}
	f.want(f.do(request{method: "GET", path: "/api/oauth/token"}), 405)
	// golang.org/x/oauth2 tries Basic first, with an empty secret.
	a := f.do(request{method: "POST", path: "/api/oauth/token", form: url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"x"}},
		header: map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(ClientID+":"))}})
	f.oauthError(a, "invalid_grant")
}

func TestRevoke(t *testing.T) {
	f := open(t)
	access, refresh := f.paired(f.owner("ann"), "pi-1")
	revoke := func(r request) answer {
		r.method, r.path = "POST", "/api/oauth/revoke"
		return f.do(r)
	}
	// What the AutoGPT platform's shim sends, and nothing to be learnt from it.
	for _, token := range []string{"nonsense", "agpt_xt_whatever", access[:len(access)-2] + "AA", refresh[:len(refresh)-2] + "AA"} {
		a := f.want(revoke(request{json: map[string]string{"token": token, "token_type_hint": "access_token", "client_id": ClientID, "client_secret": ""}}), 200)
		if a.str("status") != "ok" {
			t.Fatalf("%s", a.body)
		}
	}
	f.oauthError(revoke(request{form: url.Values{"token": {access}, "client_id": {"evil"}}}), "invalid_client")
	f.oauthError(revoke(request{form: url.Values{"client_id": {ClientID}}}), "invalid_request")
	// Whoever knows a refresh token but for its end holds the family all the same.
	if f.alive(access) {
		t.Fatal("the family outlives a leaked refresh token")
	}
	access, refresh = f.paired(f.owner("bob"), "pi-2")
	f.sockets.take()
	f.want(revoke(request{form: url.Values{"token": {access}, "client_id": {ClientID}}}), 200)
	if f.alive(access) {
		t.Fatal("a revoked access token lives")
	}
	if calls := f.sockets.take(); len(calls) != 1 {
		t.Fatalf("sockets were told %v", calls)
	}
	a := f.want(f.refresh(refresh), 200) // only that token
	if !f.alive(a.str("access_token")) {
		t.Fatal("the family died with one access token")
	}
	f.want(revoke(request{form: url.Values{"token": {a.str("refresh_token")}, "client_id": {ClientID}}}), 200)
	if f.alive(a.str("access_token")) {
		t.Fatal("the family outlives its refresh token")
	}
	f.oauthError(f.refresh(a.str("refresh_token")), "invalid_grant")
}
