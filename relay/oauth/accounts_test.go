package oauth

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/relay/access"
)

func (f *fixture) login(name, pass string, from ...string) answer {
	r := request{method: "POST", path: "/api/login", json: map[string]string{"name": name, "passphrase": pass}}
	if len(from) > 0 {
		r.from = from[0]
	}
	return f.do(r)
}

func TestFirstSetup(t *testing.T) {
	f := open(t)
	old, needed, err := f.s.FirstSetup(t.Context())
	if err != nil || !needed {
		t.Fatal(needed, err)
	}
	if want := publicURL + "/setup?token=" + old.Token; old.Link != want {
		t.Fatalf("link %q", old.Link)
	}
	// The next start prints another; the one before is dead.
	setup, _, err := f.s.FirstSetup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	try := func(token, name, pass string) answer {
		return f.do(request{method: "POST", path: "/api/setup", json: map[string]string{"setup_token": token, "name": name, "passphrase": pass}})
	}
	f.apiError(try(old.Token, "ann", passphrase), 403, "AUTH_FAILED")
	f.apiError(try("", "ann", passphrase), 403, "AUTH_FAILED")
	f.apiError(try(setup.Token, "ann", "elevenchars"), 400, "INVALID_ARGUMENT")
	f.apiError(try(setup.Token, "ann", strings.Repeat("x", maxPassphrase+1)), 400, "INVALID_ARGUMENT")
	for _, name := range []string{"", "a b", "-x", "a/b", "a:b", "<b>", strings.Repeat("n", 65), "a\x00"} {
		f.apiError(try(setup.Token, name, passphrase), 400, "INVALID_ARGUMENT")
	}
	a := f.want(try(setup.Token, "Ann", "zwölf.zeiche"), 200) // twelve characters
	if a.str("owner", "name") != "Ann" || a.str("token_type") != "Bearer" {
		t.Fatalf("%s", a.body)
	}
	f.apiError(try(setup.Token, "eve", passphrase), 403, "AUTH_FAILED")
	if _, needed, err := f.s.FirstSetup(t.Context()); err != nil || needed {
		t.Fatal(needed, err)
	}
	who := f.want(f.do(request{method: "GET", path: "/api/whoami", bearer: a.str("token")}), 200)
	if who.str("owner", "name") != "Ann" || who.json["login"] != true || who.json["machines"] != nil || who.json["ceiling"] != nil {
		t.Fatalf("%s", who.body)
	}
	f.want(f.login("aNN", "zwölf.zeiche"), 200)

	// Nothing secret is kept as it is.
	entries, err := f.store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		for _, secret := range []string{"zwölf.zeiche", setup.Token, a.str("token")} {
			if strings.Contains(string(e.Value), secret) {
				t.Errorf("%s holds a secret", e.Key)
			}
		}
	}
}

func TestAddAndResetOwner(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	if _, err := f.s.AddOwner(t.Context(), "ANN"); !errors.Is(err, ErrAccountExists) {
		t.Fatalf("%v", err)
	}
	if _, err := f.s.ResetOwner(t.Context(), "bob"); !errors.Is(err, ErrNoAccount) {
		t.Fatalf("%v", err)
	}
	setup, err := f.s.AddOwner(t.Context(), "bob")
	if err != nil {
		t.Fatal(err)
	}
	body := map[string]string{"setup_token": setup.Token, "name": "eve", "passphrase": passphrase}
	f.apiError(f.do(request{method: "POST", path: "/api/setup", json: body}), 400, "INVALID_ARGUMENT")
	delete(body, "name") // the token knows
	f.want(f.do(request{method: "POST", path: "/api/setup", json: body}), 200)

	reset, err := f.s.ResetOwner(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	body = map[string]string{"setup_token": reset.Token, "name": "ann", "passphrase": "another long passphrase"}
	f.want(f.do(request{method: "POST", path: "/api/setup", json: body}), 200)
	f.apiError(f.do(request{method: "GET", path: "/api/whoami", bearer: login}), 401, "AUTH_FAILED")
	f.apiError(f.login("ann", passphrase), 401, "AUTH_FAILED")
	f.want(f.login("ann", "another long passphrase"), 200)
	if names, err := f.s.Owners(t.Context()); err != nil || strings.Join(names, " ") != "ann bob" {
		t.Fatal(names, err)
	}
}

func TestLoginBackoff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		f.owner("ann")
		f.owner("bob")
		wrong := func(name, from string) answer { return f.login(name, "wrong wrong wrong", from) }
		for i := range freeFailures {
			// From everywhere: it is the account that is attacked.
			f.apiError(wrong("ann", "192.0.2."+string(rune('1'+i))), 401, "AUTH_FAILED")
		}
		wait := firstWait
		for range 8 {
			a := f.login("ann", passphrase, "198.51.100.9") // even the right one waits
			f.apiError(a, 429, "RATE_LIMITED")
			if got := a.header.Get("Retry-After"); got != itoa(int(wait/time.Second)) {
				t.Fatalf("Retry-After %s, want %v", got, wait)
			}
			pass(wait)
			f.apiError(wrong("ann", "198.51.100.9"), 401, "AUTH_FAILED")
			wait = min(2*wait, longestWait)
			// One address failed that often too by now; it isn't this test's.
			f.s.attempts = transplant(f.s.attempts, "account ann")
		}
		f.want(f.login("bob", passphrase, "198.51.100.9"), 200)
		pass(longestWait)
		f.want(f.login("ann", passphrase, "198.51.100.9"), 200)
		for range freeFailures - 1 { // forgiven
			f.apiError(wrong("ann", "203.0.113.1"), 401, "AUTH_FAILED")
		}
		f.want(f.login("ann", passphrase, "203.0.113.1"), 200)
		if n := len(f.recorded(OpLogin)); n < 20 {
			t.Fatalf("%d logins in the audit log", n)
		}
	})
}

// transplant keeps one key of a backoff.
func transplant(b *backoff, key string) *backoff {
	n := newBackoff()
	n.keys[key] = b.keys[key]
	return n
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// An address that tries many accounts, existing or not, waits as well, and its
// own account doesn't help it.
func TestLoginBackoffByAddress(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		f.owner("eve")
		f.owner("ann")
		for i := range freeFailures {
			f.apiError(f.login("user"+itoa(i), "wrong wrong wrong", "2001:db8::1"), 401, "AUTH_FAILED")
			if i < freeFailures-1 {
				f.want(f.login("eve", passphrase, "2001:db8::2"), 200)
			}
		}
		f.apiError(f.login("ann", passphrase, "2001:db8::ffff"), 429, "RATE_LIMITED") // the same /64
		f.want(f.login("ann", passphrase, "2001:db8:0:1::1"), 200)
	})
}

// Guesses that run side by side don't get more tries than one after another.
func TestLoginParallel(t *testing.T) {
	f := open(t)
	f.owner("ann")
	f.s.hasher.turns <- struct{}{} // no hash gets its turn until all have asked
	f.s.hasher.turns <- struct{}{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := map[int]int{}
	for range 14 {
		wg.Go(func() {
			a := f.login("ann", "wrong wrong wrong")
			mu.Lock()
			defer mu.Unlock()
			count[a.status]++
			if a.status == 429 && count[429] == 14-freeFailures {
				<-f.s.hasher.turns
				<-f.s.hasher.turns
			}
		})
	}
	wg.Wait()
	if count[401] != freeFailures || count[429] != 14-freeFailures {
		t.Fatalf("%v", count)
	}
}

// An account that doesn't exist costs a hash like any other, and says the same.
func TestUnknownAccountCosts(t *testing.T) {
	f := open(t)
	f.owner("ann")
	a, b := f.login("ann", "wrong wrong wrong"), f.login("nobody", "wrong wrong wrong")
	if a.status != b.status || a.body != b.body {
		t.Fatalf("%s differs from %s", a.body, b.body)
	}
	for range maxWaiting { // no hash can begin
		f.s.hasher.waiting <- struct{}{}
	}
	for _, name := range []string{"ann", "nobody", "no such/name"} {
		f.apiError(f.login(name, "wrong wrong wrong"), 503, "UNAVAILABLE")
	}
	for range maxWaiting {
		<-f.s.hasher.waiting
	}
	// Being sent away is no failure.
	for range freeFailures - 1 {
		f.apiError(f.login("ann", "wrong wrong wrong", "203.0.113.7"), 401, "AUTH_FAILED")
	}
}

func TestHashes(t *testing.T) {
	h := newHasher(Argon2{})
	if h.cost != (Argon2{3, 65536, 4}) {
		t.Fatalf("the default cost is %+v", h.cost)
	}
	kept, err := h.hash(t.Context(), passphrase)
	if err != nil || !strings.HasPrefix(kept, "$argon2id$v=19$m=65536,t=3,p=4$") {
		t.Fatal(kept, err)
	}
	other := newHasher(cheap) // an old cost still verifies
	if ok, err := other.verify(t.Context(), passphrase, kept); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if kept, err = other.hash(t.Context(), passphrase); err != nil {
		t.Fatal(err)
	}
	if ok, err := other.verify(t.Context(), passphrase+" ", kept); err != nil || ok {
		t.Fatal(ok, err)
	}
	if ok, err := other.verify(t.Context(), "", ""); err != nil || ok {
		t.Fatal(ok, err)
	}
	if _, err := other.verify(t.Context(), passphrase, "$argon2id$v=19$m=99999999,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$AAAA"); err == nil {
		t.Fatal("a hash that would eat the memory is computed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	other.turns <- struct{}{}
	other.turns <- struct{}{}
	if _, err := other.hash(ctx, passphrase); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestLoginsAndTokens(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		login := f.owner("ann")
		f.paired(login, "pi-1")
		f.paired(login, "pi-2")
		mint := func(body map[string]any) answer {
			return f.do(request{method: "POST", path: "/api/tokens", bearer: login, json: body})
		}
		a := f.want(mint(map[string]any{"name": "ci", "machines": []string{"pi-2"}, "capabilities": []string{"files"},
			"devices": []any{}, "expires": time.Now().Add(time.Hour)}), 200)
		token, id := a.str("token"), a.str("id")
		op, err := f.s.Operator(t.Context(), token)
		if err != nil || op.Login || op.Manage || op.Holder != id || op.MayUse("pi-1") || !op.MayUse("pi-2") ||
			len(*op.Ceiling.Capabilities) != 1 || op.Ceiling.Devices == nil || len(*op.Ceiling.Devices) != 0 || op.Ceiling.Roots != nil {
			t.Fatalf("%+v, %v", op, err)
		}
		who := f.want(f.do(request{method: "GET", path: "/api/whoami", bearer: token}), 200)
		if who.str("holder") != id || who.json["login"] != false || !strings.Contains(who.body, `"machines":["pi-2"],"ceiling":{"capabilities":["files"],"devices":[]}`) {
			t.Fatalf("%s", who.body)
		}
		list := f.want(f.do(request{method: "GET", path: "/api/machines", bearer: token}), 200)
		if strings.Contains(list.body, "pi-1") || !strings.Contains(list.body, "pi-2") {
			t.Fatalf("a token sees %s", list.body)
		}
		f.apiError(f.do(request{method: "GET", path: "/api/machines/pi-1", bearer: token}), 404, "MACHINE_NOT_ATTACHED")
		// Null allows as much as an empty list does: nothing.
		none := f.want(mint(map[string]any{"machines": nil}), 200)
		if op, err := f.s.Operator(t.Context(), none.str("token")); err != nil || op.MayUse("pi-1") || op.MayUse("pi-2") {
			t.Fatalf("%+v, %v", op, err)
		}
		f.want(f.do(request{method: "DELETE", path: "/api/tokens/" + none.str("id"), bearer: login}), 200)
		f.apiError(mint(map[string]any{"machines": "pi-1"}), 400, "INVALID_ARGUMENT")
		for _, c := range calls {
			if !c.login {
				continue
			}
			method, path, _ := strings.Cut(c.pattern, " ")
			path = strings.NewReplacer("{machine}", "pi-2", "{id}", "x", "{user_code}", "BCDF-GHJK").Replace(path)
			f.apiError(f.do(request{method: method, path: path, bearer: token, json: map[string]any{}}), 403, "LOGIN_REQUIRED")
		}
		if tokens := f.want(f.do(request{method: "GET", path: "/api/tokens", bearer: login}), 200); !strings.Contains(tokens.body, id) ||
			strings.Contains(tokens.body, token) || len(tokens.json["tokens"].([]any)) != 1 || len(tokens.json["logins"].([]any)) != 1 {
			t.Fatalf("%s", tokens.body)
		}
		pass(time.Hour)
		if _, err := f.s.Operator(t.Context(), token); !errors.Is(err, access.ErrUnauthorized) {
			t.Fatalf("an expired token: %v", err)
		}

		forever := f.want(mint(map[string]any{}), 200)
		op, err = f.s.Operator(t.Context(), forever.str("token"))
		if err != nil || !op.Expires.IsZero() || op.Machines != nil || op.Ceiling == nil || op.Ceiling.Capabilities != nil {
			t.Fatalf("%+v, %v", op, err)
		}
		f.sockets.take()
		f.want(f.do(request{method: "DELETE", path: "/api/tokens/" + forever.str("id"), bearer: login}), 200)
		if calls := f.sockets.take(); len(calls) != 1 || calls[0] != "holder "+forever.str("id") {
			t.Fatalf("sockets were told %v", calls)
		}
		if _, err := f.s.Operator(t.Context(), forever.str("token")); !errors.Is(err, access.ErrUnauthorized) {
			t.Fatalf("a revoked token: %v", err)
		}
		f.apiError(f.do(request{method: "DELETE", path: "/api/tokens/" + forever.str("id"), bearer: login}), 404, "NOT_FOUND")
		f.apiError(f.do(request{method: "DELETE", path: "/api/tokens/page-00", bearer: login}), 404, "NOT_FOUND")

		// Another owner's hands are off.
		bob := f.owner("bob")
		mine := f.want(mint(map[string]any{}), 200)
		f.apiError(f.do(request{method: "DELETE", path: "/api/tokens/" + mine.str("id"), bearer: bob}), 404, "NOT_FOUND")
		f.apiError(f.do(request{method: "DELETE", path: "/api/machines/pi-1", bearer: bob}), 404, "MACHINE_NOT_ATTACHED")

		for _, bad := range []map[string]any{
			{"machines": []string{"nothing"}}, {"capabilities": []string{"sheel"}}, {"capabilities": "files"}, {"expires": "yesterday"},
			{"expires": "1999-01-01T00:00:00Z"}, {"expires": 5}, {"roots": []string{"relative"}},
			{"devices": []any{map[string]any{"pattern": ""}}}, {"expires": "-1h"}, {"machines": []string{""}},
		} {
			if a := mint(bad); a.status != 400 && a.status != 404 && a.status != 409 {
				t.Errorf("%v: %d %s", bad, a.status, a.body)
			}
		}

		f.want(f.do(request{method: "POST", path: "/api/logout", bearer: login}), 200)
		f.apiError(f.do(request{method: "GET", path: "/api/whoami", bearer: login}), 401, "AUTH_FAILED")
		again := f.want(f.login("ann", passphrase), 200).str("token")
		pass(loginLife)
		f.apiError(f.do(request{method: "GET", path: "/api/whoami", bearer: again}), 401, "AUTH_FAILED")
	})
}

func TestBearer(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	for header, ok := range map[string]bool{
		"Bearer " + login: true, "bearer  " + login + " ": true, "": false, "Bearer": false, "Bearer ": false,
		"Basic " + login: false, login: false, "Bearer " + login[:len(login)-1]: false, "Bearer " + login + "x": false,
	} {
		a := f.do(request{method: "GET", path: "/api/whoami", header: map[string]string{"Authorization": header}})
		if (a.status == 200) != ok {
			t.Errorf("%.20q…: %d", header, a.status)
		}
		if !ok && a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%.20q…: no challenge", header)
		}
	}
}

func TestBodies(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	post := func(kind, body string) answer {
		return f.do(request{method: "POST", path: "/api/tokens", bearer: login, contentType: kind, body: body})
	}
	f.apiError(post("text/plain", "{}"), http.StatusUnsupportedMediaType, "INVALID_ARGUMENT")
	f.apiError(post("application/x-www-form-urlencoded", "a=b"), http.StatusUnsupportedMediaType, "INVALID_ARGUMENT")
	f.apiError(post("application/json", "[]"), 400, "INVALID_ARGUMENT")
	f.apiError(post("application/json", "{} {}"), 400, "INVALID_ARGUMENT")
	f.apiError(post("application/json", `{"name":`), 400, "INVALID_ARGUMENT")
	f.apiError(post("application/json", `{"name":"`+strings.Repeat("x", maxBody)+`"}`), http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT")
	f.want(post("application/json; charset=utf-8", `{"unknown":1}`), 200)
}
