package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/leak"
)

// direct is an HTTP client whose requests go straight into a handler, so that
// tests can run on fake time.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	if w.Code == failToConnect {
		return nil, errors.New("connection refused")
	}
	return w.Result(), nil
}

const failToConnect = 299

const base = "https://relay.test"

func newProvider(h http.Handler) *Provider {
	return &Provider{Base: base, HTTP: &http.Client{Transport: direct{h}}}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

type obj = map[string]any

func TestBaseURL(t *testing.T) {
	for in, want := range map[string]string{
		"wss://platform.example":         "https://platform.example",
		"https://platform.example/":      "https://platform.example",
		"wss://u:p@h.example:8443/a/?q#": "https://h.example:8443/a",
		"ws://127.0.0.1:7443":            "http://127.0.0.1:7443",
		"http://localhost:1/":            "http://localhost:1",
		"ws://[::1]:9":                   "http://[::1]:9",
		"ws://platform.example":          "",
		"http://10.0.0.1":                "",
		"http://localhost.example":       "",
		"ftp://h":                        "",
		"wss://":                         "",
		"h:x:y":                          "",
	} {
		got, err := BaseURL(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   Metadata
		err    error // nil with an empty want: any error that is not ErrNotOffered
	}{
		{"own host", func(w http.ResponseWriter, r *http.Request) {
			reply(w, 200, obj{"issuer": base, "device_authorization_endpoint": base + "/d", "token_endpoint": base + "/t"})
		}, Metadata{base, base + "/d", base + "/t"}, nil},
		{"another host", func(w http.ResponseWriter, r *http.Request) {
			reply(w, 200, obj{"issuer": "https://x.test", "device_authorization_endpoint": "https://x.test/d", "token_endpoint": "http://relay.test/t"})
		}, Metadata{"https://x.test", base + "/api/oauth/device_authorization", base + "/api/oauth/token"}, nil},
		{"404", http.NotFound, Metadata{}, ErrNotOffered},
		{"no endpoint", func(w http.ResponseWriter, r *http.Request) {
			reply(w, 200, obj{"issuer": base, "token_endpoint": base + "/t"})
		}, Metadata{}, ErrNotOffered},
		{"503", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }, Metadata{}, nil},
		{"401", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }, Metadata{}, nil},
		{"captive portal", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") }, Metadata{}, nil},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://portal.test/404", http.StatusFound)
		}, Metadata{}, nil},
		{"cut off", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"issuer":`) }, Metadata{}, nil},
		{"no network", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(failToConnect) }, Metadata{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := newProvider(c.answer).Metadata(t.Context())
			switch {
			case got != c.want:
				t.Errorf("got %+v", got)
			case c.err != nil && !errors.Is(err, c.err):
				t.Errorf("got %v, want %v", err, c.err)
			case c.err == nil && c.want == Metadata{} && (err == nil || errors.Is(err, ErrNotOffered)):
				t.Errorf("got %v, want something passing", err)
			}
		})
	}
}

// scripted is a platform whose token endpoint plays a list of answers, the last
// one for ever.
type scripted struct {
	t      *testing.T
	answer []func(w http.ResponseWriter)

	mu    sync.Mutex
	forms []url.Values
	at    []time.Time
	codes int
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		reply(w, 200, obj{"device_authorization_endpoint": base + "/api/oauth/device_authorization", "token_endpoint": base + "/api/oauth/token"})
	case "/api/oauth/device_authorization":
		r.ParseForm()
		s.forms = append(s.forms, r.PostForm)
		s.codes++
		reply(w, 200, obj{"device_code": fmt.Sprint("dc", s.codes), "user_code": fmt.Sprintf("BCDF-000%d", s.codes),
			"verification_uri": base + "/device", "verification_uri_complete": base + "/device?user_code=x", "expires_in": 600, "interval": 5})
	case "/api/oauth/token":
		r.ParseForm()
		s.forms = append(s.forms, r.PostForm)
		s.at = append(s.at, time.Now())
		n := min(len(s.at), len(s.answer)) - 1
		s.answer[n](w)
	default:
		s.t.Errorf("asked for %s", r.URL.Path)
	}
}

func oauthError(code string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { reply(w, 400, obj{"error": code}) }
}

func status(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code); fmt.Fprint(w, "<html>gateway</html>") }
}

func pair(access, refresh string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		reply(w, 200, obj{"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 3600})
	}
}

// TestPoll: field case 78.
func TestPoll(t *testing.T) {
	pending, slow := oauthError("authorization_pending"), oauthError("slow_down")
	for _, c := range []struct {
		name   string
		answer []func(http.ResponseWriter)
		err    error
		gaps   [][2]float64 // bounds of the seconds before each poll
	}{
		{"approved", []func(http.ResponseWriter){pending, pending, pair("a", "r")}, nil, [][2]float64{{6, 7}, {6, 7}, {6, 7}}},
		{"slow_down stays", []func(http.ResponseWriter){slow, pending, slow, pair("a", "r")}, nil, [][2]float64{{6, 7}, {11, 12}, {11, 12}, {16, 17}}},
		{"denied", []func(http.ResponseWriter){pending, oauthError("access_denied")}, ErrDenied, nil},
		{"expired", []func(http.ResponseWriter){pending, oauthError("expired_token")}, ErrExpired, nil},
		{"forgotten by the server", []func(http.ResponseWriter){oauthError("invalid_grant")}, ErrExpired, nil},
		{"never says expired", []func(http.ResponseWriter){pending}, ErrExpired, nil},
		{"trouble means pending", []func(http.ResponseWriter){status(502), status(200), status(failToConnect), pending, pair("a", "r")}, nil,
			[][2]float64{{6, 7}, {8, 11}, {10, 13}, {14, 17}, {6, 7}}},
		{"a refusal of the moment", []func(http.ResponseWriter){oauthError("temporarily_unavailable"), oauthError("server_error"), pair("a", "r")}, nil,
			[][2]float64{{6, 7}, {8, 11}, {10, 13}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{t: t, answer: c.answer}
				p := newProvider(s)
				authorisation, err := p.AuthorizeDevice(t.Context(), DeviceRequest{})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				got, err := p.Poll(t.Context(), &authorisation)
				if c.err != nil {
					if !errors.Is(err, c.err) {
						t.Fatalf("got %v, want %v", err, c.err)
					}
					if time.Since(start) > 600*time.Second {
						t.Errorf("went on for %v", time.Since(start))
					}
					return
				}
				if err != nil || got.AccessToken != "a" || got.RefreshToken != "r" {
					t.Fatalf("%v, %v", got.AccessToken, err)
				}
				last := start
				for i, at := range s.at {
					if gap := at.Sub(last).Seconds(); gap < c.gaps[i][0] || gap > c.gaps[i][1] {
						t.Errorf("poll %d after %.1f s, want %v", i, gap, c.gaps[i])
					}
					last = at
				}
			})
		})
	}

	t.Run("other refusals are final", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(&scripted{t: t, answer: []func(http.ResponseWriter){oauthError("invalid_client")}})
			_, err := p.Poll(t.Context(), &Pending{DeviceCode: "d", Expires: time.Now().Add(time.Hour)})
			if e, ok := errors.AsType[*TokenError](err); !ok || e.Code != "invalid_client" {
				t.Error(err)
			}
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := newProvider(&scripted{t: t, answer: []func(http.ResponseWriter){pending}})
			_, err := p.Poll(ctx, &Pending{DeviceCode: "d", Expires: time.Now().Add(time.Hour)})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	})
}

func TestDeviceRequest(t *testing.T) {
	s := &scripted{t: t}
	got, err := newProvider(s).AuthorizeDevice(t.Context(), DeviceRequest{
		MachineID: "m", DisplayName: "Bench & co", Board: "Pi 5", SerialSuffix: "1f", Capabilities: []string{"files", "shell"}})
	if err != nil {
		t.Fatal(err)
	}
	if got.UserCode != "BCDF-0001" || got.Interval != 5*time.Second || got.Token != base+"/api/oauth/token" {
		t.Errorf("got %+v", got)
	}
	want := url.Values{"client_id": {DefaultClientID}, "scope": {Scope}, "machine_id": {"m"}, "display_name": {"Bench & co"},
		"board": {"Pi 5"}, "serial_suffix": {"1f"}, "capabilities": {"files shell"}}
	if s.forms[0].Encode() != want.Encode() {
		t.Errorf("sent %v", s.forms[0])
	}
	if strings.Contains(fmt.Sprint(got), "dc1") || strings.Contains(fmt.Sprintf("%v", &got), "dc1") {
		t.Error("prints the device code")
	}
}

func TestAuthorizeDeviceRefuses(t *testing.T) {
	good := obj{"device_code": "d", "user_code": "u", "verification_uri": base + "/d", "expires_in": 60}
	for name, change := range map[string]obj{
		"no device code":  {"device_code": ""},
		"no user code":    {"user_code": nil},
		"escape sequence": {"user_code": "\x1b[2J"},
		"no link":         {"verification_uri": ""},
		"odd link":        {"verification_uri": "javascript:x"},
		"odd full link":   {"verification_uri_complete": "file:///etc"},
		"wrong type":      {"expires_in": "soon"},
	} {
		doc := obj{}
		for k, v := range good {
			doc[k] = v
		}
		for k, v := range change {
			doc[k] = v
		}
		p := newProvider(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/.well-known/oauth-authorization-server" {
				reply(w, 200, obj{"device_authorization_endpoint": base + "/d"})
				return
			}
			reply(w, 200, doc)
		}))
		if got, err := p.AuthorizeDevice(t.Context(), DeviceRequest{}); err == nil {
			t.Errorf("%s: took %+v", name, got)
		}
	}
}

func TestPairSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{t: t, answer: []func(http.ResponseWriter){oauthError("authorization_pending")}}
		p := newProvider(s)
		dir := t.TempDir()
		store := NewStore(dir, base, "")

		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var shown []string
		show := func(p Pending) { shown = append(shown, p.UserCode) }
		if _, err := p.Pair(ctx, store, DeviceRequest{}, show); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()

		// After a restart the same code is polled on; once it has expired, a new
		// one is shown, and that one is approved.
		store = NewStore(dir, base, "")
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		go func() {
			timer := time.NewTimer(700 * time.Second)
			<-timer.C
			s.mu.Lock()
			s.answer = []func(http.ResponseWriter){pair("a", "r")}
			s.mu.Unlock()
		}()
		got, err := p.Pair(ctx, store, DeviceRequest{}, show)
		if err != nil || got.AccessToken != "a" {
			t.Fatal(got.AccessToken, err)
		}
		if strings.Join(shown, " ") != "BCDF-0001 BCDF-0001 BCDF-0002" {
			t.Errorf("shown %v", shown)
		}
		if _, ok, _ := store.LoadPending(); !ok {
			t.Error("the authorisation was forgotten before the tokens were stored")
		}
		source, err := NewSource(p, store)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		if err := source.Adopt(got); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := store.LoadPending(); ok {
			t.Error("the authorisation outlives the login")
		}
		if _, ok, err := NewStore(dir, "https://other.test", "").LoadPending(); ok || err != nil {
			t.Error("another platform's authorisation is used", err)
		}
	})
}

// TestIntervalSurvivesRestart: field case 78, what slow_down asked for is kept
// with the code, so that a daemon that restarts isn't told so for ever.
func TestIntervalSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{t: t, answer: []func(http.ResponseWriter){oauthError("slow_down"), oauthError("slow_down"), oauthError("authorization_pending")}}
		p, store := newProvider(s), NewStore(t.TempDir(), base, "")
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := p.Pair(ctx, store, DeviceRequest{}, func(Pending) {}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		if got, ok, err := store.LoadPending(); !ok || err != nil || got.Interval != 15*time.Second {
			t.Errorf("%v, %v, %v", got.Interval, ok, err)
		}
		for i := 4; i < len(s.at); i++ {
			if gap := s.at[i].Sub(s.at[i-1]); gap < 15*time.Second {
				t.Errorf("poll %d after %s", i, gap)
			}
		}
	})
}

// TestCodeOutlivesClock: field case 78, the life of a code is counted by the
// platform's clock across a restart, so that it neither ends with the network's
// time, which came after the code, nor lasts longer than it was good for.
func TestCodeOutlivesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Our clock stands where the image was built, a month ago.
		const behind = 30 * 24 * time.Hour
		s := &scripted{t: t, answer: []func(http.ResponseWriter){oauthError("authorization_pending")}}
		p := newProvider(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(behind).UTC().Format(http.TimeFormat))
			s.ServeHTTP(w, r)
		}))
		pending, err := p.AuthorizeDevice(t.Context(), DeviceRequest{})
		if err != nil {
			t.Fatal(err)
		}
		store := NewStore(t.TempDir(), base, "")
		if err := store.SavePending(pending); err != nil {
			t.Fatal(err)
		}
		// Before the network's time came: at most as long as it was good for.
		got, ok, err := store.LoadPending()
		if left := time.Until(got.Expires); !ok || err != nil || left != 600*time.Second {
			t.Errorf("clock behind: %s, %v, %v", left, ok, err)
		}
		// After it came: what is left by the platform's clock.
		<-time.After(behind + 4*time.Minute)
		got, ok, err = store.LoadPending()
		if left := time.Until(got.Expires); !ok || err != nil || left < 355*time.Second || left > 361*time.Second {
			t.Errorf("clock right: %s, %v, %v", left, ok, err)
		}
		<-time.After(7 * time.Minute)
		if _, ok, err := store.LoadPending(); ok || err != nil {
			t.Errorf("an expired code is used: %v", err)
		}
	})
}

// A disk that takes nothing doesn't keep the code from being shown.
func TestPairWithoutDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{t: t, answer: []func(http.ResponseWriter){oauthError("authorization_pending"), pair("a", "r")}}
		shown := 0
		store := NewStore(filepath.Join(t.TempDir(), "none"), base, "")
		if got, err := newProvider(s).Pair(t.Context(), store, DeviceRequest{}, func(Pending) { shown++ }); err != nil || got.AccessToken != "a" || shown != 1 {
			t.Errorf("%v after %d codes", err, shown)
		}
	})
}

func TestPairEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewStore(t.TempDir(), base, "")
		p := newProvider(&scripted{t: t, answer: []func(http.ResponseWriter){oauthError("access_denied")}})
		if _, err := p.Pair(t.Context(), store, DeviceRequest{}, func(Pending) {}); !errors.Is(err, ErrDenied) {
			t.Error(err)
		}
		if _, ok, _ := store.LoadPending(); ok {
			t.Error("a denied authorisation was kept")
		}
		if _, err := newProvider(http.NotFoundHandler()).Pair(t.Context(), store, DeviceRequest{}, nil); !errors.Is(err, ErrNotOffered) {
			t.Error(err)
		}
		// A platform that is away is waited for, for as long as it takes.
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		away := newProvider(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }))
		var told error
		away.Trouble = func(err error) { told = err }
		if _, err := away.Pair(ctx, store, DeviceRequest{}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if told == nil || !strings.Contains(told.Error(), "HTTP 503") {
			t.Errorf("whoever stands beside it is told %v", told)
		}
		// A gateway that knows no such page, since its platform is away, ends nothing.
		gateway := newProvider(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/.well-known/oauth-authorization-server" {
				reply(w, 200, obj{"device_authorization_endpoint": base + "/d"})
				return
			}
			reply(w, 404, obj{"detail": "Not Found"})
		}))
		short, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if _, err := gateway.Pair(short, store, DeviceRequest{}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A FIFO in the place of a file is an error, and nobody waits for its other end.
func TestStoreDoesNotWait(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{tokensName, pendingName} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store := NewStore(dir, base, "")
	if _, err := store.Load(); err == nil || errors.Is(err, ErrLoginNeeded) {
		t.Errorf("tokens: %v", err)
	}
	if _, ok, err := store.LoadPending(); ok || err == nil {
		t.Errorf("authorisation: %v, %v", ok, err)
	}
}

// A platform whose codes are dead when they arrive isn't asked for the next one
// without a pause.
func TestPairCodesBornDead(t *testing.T) {
	for _, life := range []any{-5, 0.001, 1, nil} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			p := newProvider(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/.well-known/oauth-authorization-server" {
					reply(w, 200, obj{"device_authorization_endpoint": base + "/device", "token_endpoint": base + "/token"})
					return
				}
				asked++
				reply(w, 200, obj{"device_code": "d", "user_code": "BCDF", "verification_uri": base + "/device", "expires_in": life, "interval": 1})
			}))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if _, err := p.Pair(ctx, NewStore(t.TempDir(), base, ""), DeviceRequest{}, func(Pending) {}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if asked > 30 || asked < 5 {
				t.Errorf("life %v: asked %d times in ten minutes", life, asked)
			}
		})
	}
}

// Both ways to say when a token expires, read by a clock that may be wrong.
func TestExpiry(t *testing.T) {
	asked := time.Date(1970, 1, 1, 0, 10, 0, 0, time.UTC)
	date := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		body string
		date time.Time
		want time.Time
	}{
		{`{"access_token":"a","expires_in":3600}`, date, asked.Add(time.Hour)},
		{`{"access_token":"a","expires_in":"60"}`, date, asked.Add(time.Minute)},
		{`{"access_token":"a","expires_in":3600,"access_token_expires_at":"2030-01-01T00:00:00Z"}`, date, asked.Add(time.Hour)},
		{`{"access_token":"a","access_token_expires_at":"2026-05-01T13:00:00Z"}`, date, asked.Add(time.Hour)},
		{`{"access_token":"a","access_token_expires_at":"2026-05-01T15:00:00.250000+02:00"}`, date, asked.Add(time.Hour + 250*time.Millisecond)},
		{`{"access_token":"a","access_token_expires_at":"2026-05-01T13:00:00.5"}`, date, asked.Add(time.Hour + 500*time.Millisecond)},
		{`{"access_token":"a","access_token_expires_at":"2026-05-01T13:00:00Z"}`, time.Time{}, date.Add(time.Hour)},
		{`{"access_token":"a","expires_in":1e300}`, date, asked.Add(maxLifetime)},
		{`{"access_token":"a","expires_in":-1,"access_token_expires_at":"soon"}`, date, time.Time{}},
		{`{"access_token":"a","expires_in":null}`, date, time.Time{}},
	} {
		got, err := answer{status: 200, json: true, body: []byte(c.body), date: c.date, asked: asked}.tokens()
		if err != nil || !got.Expires.Equal(c.want) {
			t.Errorf("%s: %v, %v; want %v", c.body, got.Expires, err, c.want)
		}
	}
}

func TestRefreshErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		body    string
		invalid bool
	}{
		{"RFC 6749", 400, `{"error":"invalid_grant","error_description":"x"}`, true},
		{"401", 401, `{"error":"invalid_grant"}`, true},
		{"AutoGPT", 400, `{"detail":"Invalid grant: token revoked"}`, true},
		{"AutoGPT client", 401, `{"detail":"Invalid client"}`, false},
		{"AutoGPT shape", 422, `{"detail":[{"loc":["body"],"msg":"x"}]}`, false},
		{"client", 401, `{"error":"invalid_client"}`, false},
		{"server", 500, `{"error":"invalid_grant"}`, false},
		{"gateway", 502, `<html>invalid_grant</html>`, false},
		{"proxy", 400, `<html>invalid_grant</html>`, false},
		{"too many", 429, `{"error":"slow_down"}`, false},
		{"nothing", 400, ``, false},
		{"no token", 200, `{"access_token":""}`, false},
		{"odd token", 200, `{"access_token":"a\nb"}`, false},
		{"other JSON", 200, `[1]`, false},
		{"null", 200, `null`, false},
		{"redirect", 307, ``, false},
	} {
		p := newProvider(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://elsewhere.test/")
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		_, err := p.Refresh(t.Context(), "secret-refresh")
		if err == nil || errors.Is(err, ErrInvalidGrant) != c.invalid {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the token: %v", c.name, err)
		}
	}
}

func TestRefreshKeepsOldToken(t *testing.T) {
	p := newProvider(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reply(w, 200, obj{"access_token": "new"}) }))
	got, err := p.Refresh(t.Context(), "old")
	if err != nil || got.RefreshToken != "old" {
		t.Error(got.RefreshToken, err)
	}
}

func TestClaim(t *testing.T) {
	s := &scripted{t: t, answer: []func(http.ResponseWriter){pair("a", "r"), oauthError("invalid_grant")}}
	p := newProvider(s)
	if got, err := p.RedeemClaim(t.Context(), "key", DeviceRequest{MachineID: "m", DisplayName: "n"}); err != nil || got.AccessToken != "a" {
		t.Fatal(err)
	}
	f := s.forms[0]
	if f.Get("grant_type") != "urn:farhand:params:oauth:grant-type:claim" || f.Get("claim_key") != "key" || f.Get("machine_id") != "m" || f.Get("client_id") != DefaultClientID {
		t.Errorf("sent %v", f)
	}
	if _, err := p.RedeemClaim(t.Context(), "key", DeviceRequest{}); !errors.Is(err, ErrInvalidGrant) || !Refused(err) {
		t.Error(err)
	}
	// What asking again may change, and what not.
	for _, c := range []struct {
		answer  func(http.ResponseWriter)
		refused bool
	}{
		{oauthError("unsupported_grant_type"), true}, {oauthError("temporarily_unavailable"), false},
		{status(502), false}, {status(404), false}, {status(failToConnect), false},
		{func(w http.ResponseWriter) { reply(w, 404, obj{"detail": "Not Found"}) }, false}, // a gateway's
		{func(w http.ResponseWriter) { reply(w, 400, obj{"detail": "Unsupported grant type"}) }, true},
		{func(w http.ResponseWriter) { reply(w, 429, obj{"error": "slow_down"}) }, false},
	} {
		p := newProvider(&scripted{t: t, answer: []func(http.ResponseWriter){c.answer}})
		if _, err := p.RedeemClaim(t.Context(), "key", DeviceRequest{}); err == nil || Refused(err) != c.refused {
			t.Errorf("%v is final: %v", err, !c.refused)
		}
	}
}

func TestRevoke(t *testing.T) {
	var sent []string
	fail := false
	p := newProvider(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Error(err)
		}
		sent = append(sent, body["token_type_hint"]+" "+body["token"])
		if fail {
			w.WriteHeader(500)
			return
		}
		reply(w, 200, obj{"status": "ok"})
	}))
	store := NewStore(t.TempDir(), base, "")
	if err := store.Save(Tokens{AccessToken: "a", RefreshToken: "r"}); err != nil {
		t.Fatal(err)
	}
	source, err := NewSource(p, store)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	fail = true
	if err := source.Revoke(t.Context()); err == nil || !source.HasLogin() {
		t.Error("a failed revocation forgot the login", err)
	}
	fail, sent = false, nil
	if err := source.Revoke(t.Context()); err != nil || source.HasLogin() {
		t.Error(err)
	}
	if strings.Join(sent, ",") != "refresh_token r,access_token a" {
		t.Errorf("sent %v", sent)
	}
	if _, err := store.Load(); !errors.Is(err, ErrLoginNeeded) {
		t.Error(err)
	}
}

func TestPasteLogin(t *testing.T) {
	s := &scripted{t: t, answer: []func(http.ResponseWriter){pair("a", "r")}}
	login := newProvider(s).PasteLogin()
	u, err := url.Parse(login.URL())
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if u.Path != "/auth/authorize" || q.Get("redirect_uri") != RedirectURI || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("code_challenge")) != 43 || len(q.Get("state")) != 43 || q.Get("scope") != Scope || q.Get("response_type") != "code" {
		t.Errorf("page %s", u)
	}
	state := q.Get("state")
	for name, pasted := range map[string]string{
		"nothing":       "",
		"no state":      RedirectURI + "?code=c",
		"another login": RedirectURI + "?code=c&state=other",
		"no code":       RedirectURI + "?state=" + state,
		"a bare code":   "c",
	} {
		if _, err := login.Finish(t.Context(), pasted); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := login.Finish(t.Context(), RedirectURI+"?error=access_denied&state="+state); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
	if len(s.forms) != 0 {
		t.Error("asked the platform with a bad address")
	}
	for _, pasted := range []string{
		RedirectURI + "?code=c%2B1&state=" + state,
		"  'localhost:41899/callback?code=c%2B1&state=" + state + "#top'\n",
		"state=" + state + "&code=c%2B1",
	} {
		got, err := login.Finish(t.Context(), pasted)
		if err != nil || got.AccessToken != "a" {
			t.Errorf("%s: %v", pasted, err)
			continue
		}
		f := s.forms[len(s.forms)-1]
		if f.Get("code") != "c+1" || f.Get("grant_type") != "authorization_code" || f.Get("redirect_uri") != RedirectURI || len(f.Get("code_verifier")) < 43 {
			t.Errorf("sent %v", f)
		}
	}
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	store := NewStore(dir, base, "")
	if _, err := store.Load(); !errors.Is(err, ErrLoginNeeded) {
		t.Fatal(err)
	}
	want := Tokens{"a", "r", time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	if err := store.Save(want); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tokens.json")
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if got, err := store.Load(); err != nil || got != want {
		t.Errorf("%+v, %v", got.Expires, err)
	}
	os.Chmod(path, 0o644)
	if _, err := store.Load(); err != nil {
		t.Error(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if _, err := NewStore(dir, "https://other.test", "").Load(); !errors.Is(err, ErrLoginNeeded) {
		t.Errorf("tokens would go to another platform: %v", err)
	}
	for name, content := range map[string]string{
		"torn":  `{"access_token":"a`,
		"empty": "",
		"date":  `{"access_token":"a","access_token_expires_at":"x"}`,
		"long":  strings.Repeat(" ", maxFile+1),
	} {
		os.WriteFile(path, []byte(content), 0o600)
		if _, err := store.Load(); err == nil || errors.Is(err, ErrLoginNeeded) {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := os.ReadFile(path); string(now) != content {
			t.Errorf("%s: the file was replaced", name)
		}
	}
	if err := store.Save(Tokens{AccessToken: "a b"}); err == nil {
		t.Error("stored a token that no header takes")
	}
	os.WriteFile(path, []byte(`{"access_token":"a","refresh_token":"r","access_token_expires_at":"2026-05-01T12:00:00Z","extra":1}`), 0o600)
	if got, err := store.Load(); err != nil || got != want {
		t.Error("tokens written by hand:", err)
	}
	if strings.Contains(fmt.Sprintf("%v %+v %s", want, want, want), "{a") {
		t.Error("prints the tokens")
	}
}

// TestClonedCard: field case 79, the login and the pending code of the board that
// a card was cloned from aren't used on another.
func TestClonedCard(t *testing.T) {
	dir := t.TempDir()
	one, two := NewStore(dir, base, "").ForMachine("pi-1"), NewStore(dir, base, "").ForMachine("pi-2")
	if err := one.Save(Tokens{AccessToken: "a", RefreshToken: "r"}); err != nil {
		t.Fatal(err)
	}
	pending := Pending{DeviceCode: "d", UserCode: "BCDF-0001", VerificationURI: base, Expires: time.Now().Add(time.Hour), Interval: 5 * time.Second}
	if err := one.SavePending(pending); err != nil {
		t.Fatal(err)
	}
	if got, err := two.Load(); !errors.Is(err, ErrLoginNeeded) {
		t.Errorf("the clone logs in with %q, %v", got.AccessToken, err)
	}
	if _, ok, err := two.LoadPending(); ok || err != nil {
		t.Errorf("the clone polls for the other's code: %v", err)
	}
	if got, err := one.Load(); err != nil || got.AccessToken != "a" {
		t.Errorf("back in the first board: %q, %v", got.AccessToken, err)
	}
	if err := NewStore(dir, base, "").Save(Tokens{AccessToken: "b"}); err != nil { // stored by hand
		t.Fatal(err)
	}
	if got, err := two.Load(); err != nil || got.AccessToken != "b" {
		t.Errorf("tokens that name no machine: %q, %v", got.AccessToken, err)
	}
}

func TestCredential(t *testing.T) {
	dir, credentials := t.TempDir(), t.TempDir()
	seed := filepath.Join(credentials, "farhand-tokens")
	os.WriteFile(seed, []byte(`{"access_token":"seed","refresh_token":"r"}`), 0o400)
	store := NewStore(dir, base, credentials)
	load := func() string {
		got, err := store.Load()
		if errors.Is(err, ErrLoginNeeded) {
			return "none"
		}
		if err != nil {
			t.Fatal(err)
		}
		return got.AccessToken
	}
	if got := load(); got != "seed" {
		t.Error(got)
	}
	store.Save(Tokens{AccessToken: "newer", RefreshToken: "r2"})
	if got := load(); got != "newer" {
		t.Error(got)
	}
	store.Drop()
	if got := load(); got != "none" {
		t.Errorf("the spent credential is used again: %s", got)
	}
	os.Remove(seed)
	os.WriteFile(seed, []byte(`{"access_token":"seed2","refresh_token":"r3"}`), 0o400)
	if got := load(); got != "seed2" {
		t.Errorf("the new credential isn't used: %s", got)
	}
}

// What is wrong with a token file is said without what stands in it.
func TestParseTokensKeepsSecrets(t *testing.T) {
	if _, err := ParseTokens([]byte(`{"refresh_token":"hunter2"}`)); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func TestTokenTimes(t *testing.T) {
	want := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, at := range []string{`"2026-05-01T12:00:00Z"`, `"2026-05-01T14:00:00+02:00"`, `"2026-05-01T12:00:00.000000"`, `1777636800`, `1777636800.0`} {
		got, err := ParseTokens([]byte(`{"access_token":"a","refresh_token":"r","access_token_expires_at":` + at + `}`))
		if err != nil || !got.Expires.Equal(want) {
			t.Errorf("%s is read as %s, %v", at, got.Expires, err)
		}
	}
	for _, at := range []string{`null`, `""`} {
		if got, err := ParseTokens([]byte(`{"access_token":"a","access_token_expires_at":` + at + `}`)); err != nil || !got.Expires.IsZero() {
			t.Errorf("%s is read as %s, %v", at, got.Expires, err)
		}
	}
	for _, at := range []string{`"soon"`, `-1`, `1e300`, `true`, `{}`} {
		if _, err := ParseTokens([]byte(`{"access_token":"a","access_token_expires_at":` + at + `}`)); err == nil {
			t.Errorf("%s is taken", at)
		}
	}
}

// rotating is a platform with strict rotation: a refresh token works once.
type rotating struct {
	mu        sync.Mutex
	n         int
	reused    int
	expiresIn float64
	down      atomic.Bool
	hold      chan struct{} // if set, answers wait for it
	stored    func() string // what is on the disk when a request comes
	saw       []string
}

func (r *rotating) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if r.hold != nil {
		<-r.hold
	}
	if r.down.Load() {
		w.WriteHeader(503)
		return
	}
	q.ParseForm()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored != nil {
		r.saw = append(r.saw, r.stored())
	}
	if q.PostForm.Get("refresh_token") != fmt.Sprint("r", r.n) {
		r.reused++
		reply(w, 400, obj{"error": "invalid_grant"})
		return
	}
	r.n++
	reply(w, 200, obj{"access_token": fmt.Sprint("a", r.n), "refresh_token": fmt.Sprint("r", r.n), "expires_in": r.expiresIn})
}

func newSource(t *testing.T, h http.Handler, store *Store, tokens Tokens) *Source {
	t.Helper()
	if err := store.Save(tokens); err != nil {
		t.Fatal(err)
	}
	source, err := NewSource(newProvider(h), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	return source
}

func TestSingleFlight(t *testing.T) {
	leak.Check(t)
	platform := &rotating{expiresIn: 3600}
	store := NewStore(t.TempDir(), base, "")
	source := newSource(t, platform, store, Tokens{AccessToken: "a0", RefreshToken: "r0"})
	platform.stored = func() string { stored, _ := store.Load(); return stored.AccessToken }
	renewed := 0
	source.OnRenewed(func() { renewed++ })
	for round := range 5 {
		stale := fmt.Sprint("a", round)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				got, err := source.Rejected(t.Context(), stale)
				if want := fmt.Sprint("a", round+1); err != nil || got != want {
					t.Errorf("got %s, %v; want %s", got, err, want)
				}
				// Whoever holds it can rely on the disk to hold it too.
				if stored, err := store.Load(); err != nil || stored.AccessToken != got {
					t.Errorf("in use: %s, stored: %s, %v", got, stored.AccessToken, err)
				}
			})
		}
		wg.Wait()
	}
	if platform.n != 5 || platform.reused != 0 || renewed != 5 {
		t.Errorf("%d refreshes, %d reuses, told of %d", platform.n, platform.reused, renewed)
	}
}

func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		platform := &rotating{expiresIn: 3600}
		source := newSource(t, platform, NewStore(t.TempDir(), base, ""), Tokens{"a0", "r0", time.Now().Add(time.Hour)})
		token := func() string {
			t.Helper()
			got, err := source.Token(t.Context())
			if err != nil {
				return err.Error()
			}
			return got
		}
		wait := func(d time.Duration) { <-time.NewTimer(d).C } // fake time
		if got := token(); got != "a0" {
			t.Error(got)
		}
		if got := time.Until(source.NextRefresh()); got != 55*time.Minute {
			t.Errorf("renews in %v", got)
		}
		platform.down.Store(true)
		wait(56 * time.Minute)
		if got := token(); got != "a0" { // still good, though it can't be renewed
			t.Error(got)
		}
		wait(5 * time.Minute)
		if got := token(); !strings.Contains(got, "503") {
			t.Errorf("an expired token is handed out: %s", got)
		}
		platform.down.Store(false)
		wait(2 * time.Second)
		if got := token(); got != "a1" {
			t.Error(got)
		}
		if got := time.Until(source.Expiry()); got != time.Hour {
			t.Errorf("expires in %v", got)
		}
		wait(56 * time.Minute)
		if got := token(); got != "a2" {
			t.Error(got)
		}
		if platform.reused != 0 {
			t.Error("a refresh token was used twice")
		}
		source.Close()
	})
}

func TestAheadDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		platform := &rotating{expiresIn: 3600, hold: make(chan struct{})}
		source := newSource(t, platform, NewStore(t.TempDir(), base, ""), Tokens{"a0", "r0", time.Now().Add(10 * time.Minute)})
		<-time.NewTimer(9 * time.Minute).C
		start := time.Now()
		if got, err := source.Token(t.Context()); err != nil || got != "a0" || time.Since(start) > aheadPatience {
			t.Error(got, err, time.Since(start))
		}
		close(platform.hold)
		synctest.Wait()
		if got, err := source.Token(t.Context()); err != nil || got != "a1" {
			t.Error(got, err)
		}
		source.Close()
	})
}

// Whoever gives up waiting doesn't lose the pair that is on its way.
func TestImpatientCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		platform := &rotating{expiresIn: 3600, hold: make(chan struct{})}
		source := newSource(t, platform, NewStore(t.TempDir(), base, ""), Tokens{AccessToken: "a0", RefreshToken: "r0"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := source.Rejected(ctx, "a0"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(platform.hold)
		if got, err := source.Rejected(t.Context(), "a0"); err != nil || got != "a1" {
			t.Error(got, err)
		}
		if platform.reused != 0 {
			t.Error("a refresh token was used twice")
		}
		source.Close()
		if _, err := source.Rejected(t.Context(), "a1"); err == nil {
			t.Error("a closed source refreshes")
		}
	})
}

// A full disk must not cost the login: the new pair is kept until it fits.
func TestUnsavedPair(t *testing.T) {
	dir := t.TempDir()
	platform := &rotating{expiresIn: 3600}
	state := filepath.Join(dir, "state")
	os.Mkdir(state, 0o700)
	source := newSource(t, platform, NewStore(state, base, ""), Tokens{AccessToken: "a0", RefreshToken: "r0"})
	os.Rename(state, state+".away") // stands for a disk that takes nothing
	if got, err := source.Rejected(t.Context(), "a0"); err == nil {
		t.Fatalf("%s is in use but not stored", got)
	}
	os.Rename(state+".away", state)
	source.mu.Lock()
	source.failedAt = time.Time{} // the pause is over
	source.mu.Unlock()
	if got, err := source.Rejected(t.Context(), "a0"); err != nil || got != "a1" {
		t.Error(got, err)
	}
	if platform.n != 1 || platform.reused != 0 {
		t.Errorf("%d refreshes, %d reuses", platform.n, platform.reused)
	}
}

func TestInvalidGrant(t *testing.T) {
	refused := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reply(w, 400, obj{"error": "invalid_grant"}) })
	store := NewStore(t.TempDir(), base, "")
	source := newSource(t, refused, store, Tokens{AccessToken: "a0", RefreshToken: "r0"})

	// Somebody logged in anew behind our back: that login counts.
	if err := store.Save(Tokens{AccessToken: "b", RefreshToken: "s"}); err != nil {
		t.Fatal(err)
	}
	if got, err := source.Rejected(t.Context(), "a0"); err != nil || got != "b" {
		t.Fatal(got, err)
	}
	if _, err := source.Rejected(t.Context(), "b"); !errors.Is(err, ErrLoginNeeded) || !errors.Is(err, ErrInvalidGrant) {
		t.Fatal(err)
	}
	if _, err := source.Token(t.Context()); !errors.Is(err, ErrLoginNeeded) {
		t.Error(err)
	}
	if _, err := store.Load(); !errors.Is(err, ErrLoginNeeded) {
		t.Error(err)
	}
	if err := source.Adopt(Tokens{AccessToken: "c"}); err != nil {
		t.Fatal(err)
	}
	if got, err := source.Token(t.Context()); err != nil || got != "c" {
		t.Error(got, err)
	}
	if _, err := source.Rejected(t.Context(), "c"); !errors.Is(err, ErrLoginNeeded) { // no refresh token
		t.Error(err)
	}
}

// Over a real socket, once.
func TestOverHTTP(t *testing.T) {
	leak.Check(t)
	server := httptest.NewServer(&rotating{expiresIn: 60})
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	p := &Provider{Base: server.URL, HTTP: client}
	got, err := p.Refresh(t.Context(), "r0")
	if err != nil || got.AccessToken != "a1" {
		t.Error(err)
	}
	server.Close()
	if _, err := p.Refresh(t.Context(), "r1"); err == nil || strings.Contains(err.Error(), "r1") {
		t.Error(err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"access_token":"a","refresh_token":"r","expires_in":3600}`))
	f.Add(200, []byte(`{"access_token":"a","access_token_expires_at":"2026-05-01T13:00:00.5"}`))
	f.Add(400, []byte(`{"error":"slow_down"}`))
	f.Add(422, []byte(`{"detail":[{"msg":"x"}]}`))
	f.Add(502, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a := answer{status: status, json: len(body) > 0 && body[0] == '{', body: body, asked: time.Unix(0, 0)}
		got, err := a.tokens()
		if (err == nil) != (got.AccessToken != "") {
			t.Errorf("token %q with error %v", got.AccessToken, err)
		}
		if err == nil && strings.ContainsAny(got.AccessToken+got.RefreshToken, "\r\n\x00 ") {
			t.Error("a token that splits a header")
		}
		if err != nil && strings.ContainsAny(err.Error(), "\r\n\x1b") {
			t.Errorf("an error that a terminal obeys: %q", err)
		}
	})
}

func FuzzStored(f *testing.F) {
	f.Add([]byte(`{"access_token":"a","refresh_token":"r","access_token_expires_at":"2026-05-01T12:00:00Z"}`))
	f.Add([]byte(`{"device_code":"d","user_code":"u","verification_uri":"https://h/d","expires_at":"2026-05-01T12:00:00Z","interval":5}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := ParseTokens(data); err == nil && got.AccessToken == "" {
			t.Error("a login without a token")
		}
		if got, _, err := decodePending(data); err == nil && (got.Interval < time.Second || got.Interval > maxInterval) {
			t.Errorf("interval %v", got.Interval)
		}
	})
}

func FuzzRedirect(f *testing.F) {
	f.Add(RedirectURI + "?code=c&state=s")
	f.Add("state=s&error=access_denied")
	f.Fuzz(func(t *testing.T, pasted string) {
		if code, err := parseRedirect(pasted, "s"); err == nil && code == "" {
			t.Error("success without a code")
		}
	})
}
