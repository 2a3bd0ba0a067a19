package oauth

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRotation plays what may happen to the tokens of a family. In each story,
// pairs have names: "p0" is the first, "r p0=p1" redeems the refresh token of p0
// and calls what comes back p1 ("=!" must be refused), "a p1" introspects the
// access token of p1 ("a! p1" must fail), "x p1" sends p1's refresh token to
// the revocation endpoint, "dead" and "lives" say whether the family was
// revoked by now.
func TestRotation(t *testing.T) {
	for name, story := range map[string]string{
		"plain":                        "a p0; r p0=p1; a p1; r p1=p2; a p2; lives",
		"refresh without ever access":  "r p0=p1; r p1=p2; r p2=p3; a p3; lives",
		"answer lost once":             "a p0; r p0=p1; r p0=p2; a! p1; a p2; lives",
		"answer lost often":            "r p0=p1; r p0=p2; r p0=p3; r p0=p4; a p4; r p4=p5; lives",
		"the replaced one is refused":  "r p0=p1; r p0=p2; r p1=!; lives; a p2; lives",
		"replaced, then another used":  "r p0=p1; r p0=p2; a p2; r p1=!; dead; a! p2; r p2=!",
		"used by access token":         "r p0=p1; a p1; r p0=!; dead; a! p1; r p1=!",
		"used by refresh token":        "r p0=p1; r p1=p2; r p0=!; dead; a! p2",
		"previous after a long chain":  "r p0=p1; r p1=p2; r p2=p3; r p2=p4; a! p3; a p4; lives",
		"very old":                     "r p0=p1; a p1; r p1=p2; a p2; r p2=p3; a p3; r p0=!; dead",
		"old while successor unused":   "r p0=p1; a p1; r p1=p2; r p0=!; dead; r p1=!",
		"old access token lives on":    "a p0; r p0=p1; a p1; a p0; lives",
		"replaced pair's refresh ends": "r p0=p1; r p0=p2; x p1; dead; a! p2",
		"revoked by current":           "a p0; x p0; dead; a! p0; r p0=!",
		"revoked by an old one":        "r p0=p1; a p1; x p0; dead; a! p1",
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			login := f.owner("ann")
			access, refresh := f.paired(login, "pi-1")
			other, _ := f.paired(login, "pi-2")
			type tokens struct{ access, refresh string }
			pairs := map[string]tokens{"p0": {access, refresh}}
			for step := range strings.SplitSeq(story, "; ") {
				op, arg, _ := strings.Cut(step, " ")
				switch op {
				case "a":
					if !f.alive(pairs[arg].access) {
						t.Fatalf("%s: refused", step)
					}
				case "a!":
					if f.alive(pairs[arg].access) {
						t.Fatalf("%s: accepted", step)
					}
				case "r":
					from, to, _ := strings.Cut(arg, "=")
					a := f.refresh(pairs[from].refresh)
					if to == "!" {
						f.oauthError(a, "invalid_grant")
						continue
					}
					f.want(a, 200)
					pairs[to] = tokens{a.str("access_token"), a.str("refresh_token")}
				case "x":
					f.want(f.do(request{method: "POST", path: "/api/oauth/revoke",
						json: map[string]string{"token": pairs[arg].refresh, "client_id": ClientID}}), 200)
				case "dead", "lives":
					open, _ := parseRefresh(pairs["p0"].refresh)
					told := slices.Contains(f.sockets.take(), "family "+open.id)
					if told != (op == "dead") {
						t.Fatalf("%s: sockets told: %v", step, told)
					}
				default:
					t.Fatalf("what is %q?", step)
				}
			}
			if !f.alive(other) {
				t.Fatal("another machine's family was hit")
			}
			if calls := f.sockets.take(); len(calls) > 0 {
				t.Fatalf("sockets were told more: %v", calls)
			}
		})
	}
}

// A used mark is durable: it survives a restart of the authority.
func TestUsedIsDurable(t *testing.T) {
	f := open(t)
	_, r0 := f.paired(f.owner("ann"), "pi-1")
	a := f.want(f.refresh(r0), 200)
	if !f.alive(a.str("access_token")) {
		t.Fatal("refused")
	}
	second, err := New(t.Context(), Config{Store: f.store, PublicURL: publicURL, Passphrases: cheap, Log: f.s.log})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	f.s.Close()
	f.s, f.mux = second, newMux(second)
	f.oauthError(f.refresh(r0), "invalid_grant")
	if f.alive(a.str("access_token")) {
		t.Fatal("the family lives on")
	}
}

func TestConcurrentRefresh(t *testing.T) {
	f := open(t)
	_, r0 := f.paired(f.owner("ann"), "pi-1")
	const n = 12
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i] = f.refresh(r0) })
	}
	wg.Wait()
	living := 0
	for _, a := range answers {
		f.want(a, 200)
		if f.alive(a.str("access_token")) {
			living++
		}
	}
	if living != 1 {
		t.Fatalf("%d pairs live, want the last one alone", living)
	}
	if calls := f.sockets.take(); len(calls) > 0 {
		t.Fatalf("a race of redemptions revoked: %v", calls)
	}
}

func TestTokenLives(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		a0, r0 := f.paired(f.owner("ann"), "pi-1")
		d, err := f.s.Device(t.Context(), a0)
		if err != nil || !d.Expires.Equal(time.Now().Add(time.Hour)) {
			t.Fatalf("%+v, %v", d, err)
		}
		pass(time.Hour - time.Second)
		if !f.alive(a0) {
			t.Fatal("ended too early")
		}
		pass(time.Second)
		if f.alive(a0) {
			t.Fatal("the cache let an expired token live")
		}
		pass(refreshLife - time.Hour - time.Second)
		a := f.want(f.refresh(r0), 200)
		pass(refreshLife)
		f.oauthError(f.refresh(a.str("refresh_token")), "invalid_grant")
		pass(familyKept + time.Minute)
		f.oauthError(f.refresh(a.str("refresh_token")), "invalid_grant")
		if left, err := f.store.List(t.Context(), "o."); err != nil || len(left) != 2 { // the machine and its name
			t.Fatalf("%d records left, %v", len(left), err)
		}
	})
}
