package e2e

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/shim/shimtest"
)

// cloud is a platform as the AutoGPT cloud is one: the strict sockets of
// shimtest, rotating tokens, and no device authorisation.
type cloud struct {
	*shimtest.Platform
	t   *testing.T
	url string

	mu        sync.Mutex
	broken    int // HTTP status of every answer; 0: none
	asked     int // requests so far
	access    string
	refresh   string
	refreshes int
	challenge string // of the authorisation that was asked for
	spent     int    // refresh tokens that came again
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{t: t, Platform: shimtest.New(t)}
	c.Patience = patience
	c.rotate()
	c.Upgrade = func(r *http.Request) int {
		if c.holds(r.Header.Get("Authorization")) {
			return 0
		}
		return http.StatusUnauthorized
	}
	target, err := url.Parse("http" + strings.TrimSuffix(strings.TrimPrefix(c.URL, "ws"), "/ws/local-executor"))
	if err != nil {
		t.Fatal(err)
	}
	sockets := httputil.NewSingleHostReverseProxy(target)
	sockets.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	mux := http.NewServeMux()
	mux.Handle("/ws/", sockets)
	mux.HandleFunc("POST /api/oauth/token", c.token)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.asked++
		broken := c.broken
		c.mu.Unlock()
		if broken != 0 {
			w.WriteHeader(broken)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// rotate makes a new pair of tokens; the old ones are worthless.
func (c *cloud) rotate() {
	c.access, c.refresh = "agpt_xt_"+rand.Text(), "agpt_rt_"+rand.Text()
}

func (c *cloud) holds(header string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return header == "Bearer "+c.access
}

// answers has every answer be of this status, 0 for real ones.
func (c *cloud) answers(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = status
}

// expire makes the access token worthless.
func (c *cloud) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.access = "agpt_xt_expired"
}

func (c *cloud) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func (c *cloud) count() (refreshes, spent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refreshes, c.spent
}

// token is the token endpoint, with the bodies of the cloud rather than those of
// RFC 6749.
func (c *cloud) token(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	refuse := func() {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"detail":"Invalid grant: it is unknown, expired or was used"}`)
	}
	switch r.PostFormValue("grant_type") {
	case "refresh_token":
		if r.PostFormValue("refresh_token") != c.refresh {
			c.spent++
			refuse()
			return
		}
		c.refreshes++
	case "authorization_code":
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if r.PostFormValue("code") != "the-code" || c.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) || r.PostFormValue("redirect_uri") != "http://localhost:41899/callback" {
			refuse()
			return
		}
	default:
		refuse()
		return
	}
	if r.PostFormValue("client_id") != "autogpt-local-executor" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	c.rotate()
	json.NewEncoder(w).Encode(map[string]any{
		"token_type": "Bearer", "access_token": c.access, "refresh_token": c.refresh, "scopes": []string{"USE_TOOLS"},
		"access_token_expires_at":  time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.999999"),
		"refresh_token_expires_at": time.Now().Add(720 * time.Hour).UTC().Format("2006-01-02T15:04:05.999999"),
	})
}

// file is the tokens as `farhandd login --tokens` takes them.
func (c *cloud) file() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf(`{"access_token":%q,"refresh_token":%q,"access_token_expires_at":%q}`,
		c.access, c.refresh, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// on has a daemon, not started yet, that belongs to this platform.
func (c *cloud) bench() *bench {
	c.t.Helper()
	b := bareBench(c.t)
	b.url = c.url
	b.configure()
	return b
}

// loggedIn has a daemon that runs with the platform's tokens.
func (c *cloud) loggedIn() *bench {
	c.t.Helper()
	b := c.bench()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	return b
}
