package relay

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"farhand/relay/access"
	"farhand/relay/cluster"
	"farhand/relay/oauth"
	"farhand/wire"
)

// Agents answers agents at /mcp.
type Agents interface {
	// ServeAgent answers a request whose sender is known: holder tells senders
	// apart, token is what the relay's own API takes for this one. A session of an
	// instance that is gone goes on here.
	ServeAgent(w http.ResponseWriter, r *http.Request, holder, token string)
	// Close ends what goes on and waits for it. Idempotent.
	Close() error
}

// sessionHeader names an agent's session in its requests.
const sessionHeader = "Mcp-Session-Id"

// agentEndpoint lets agents in that have a token for it: one that was made for
// something else is none. guests says that it answers another instance, which
// passes on what belongs here. ctx ends with the relay.
//
// Agents keep to no instance: each of their requests may come to another. What has
// no session yet gets one where it comes, and what has one is passed on to where
// that is, with everything that goes with it there: answers under way, progress,
// cancellation, news of other tools. If that instance is gone, one of those that
// are left, and the same one for all of them, goes on in its place.
func (r *Relay) agentEndpoint(ctx context.Context, guests bool) http.Handler {
	public, _ := url.Parse(r.url) // it was checked when it was made
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if !guests && !fromHere(q, public) {
			refuse(w, http.StatusForbidden, "invalid_request", "this address is for programs, not for pages of other sites")
			return
		}
		scheme, token, _ := strings.Cut(q.Header.Get("Authorization"), " ")
		challenge := fmt.Sprintf("Bearer resource_metadata=%q, scope=%q", r.auth.ResourceMetadataURL(), oauth.AgentScope)
		if !strings.EqualFold(scheme, "Bearer") || len(q.Header.Values("Authorization")) != 1 {
			w.Header().Set("WWW-Authenticate", challenge)
			refuse(w, http.StatusUnauthorized, "invalid_token", "sign in: the metadata that WWW-Authenticate names says where")
			return
		}
		who, inner, err := r.auth.Agent(q.Context(), strings.TrimSpace(token))
		switch {
		case errors.Is(err, access.ErrUnauthorized):
			w.Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
			refuse(w, http.StatusUnauthorized, "invalid_token", "the token is unknown, expired, revoked, or for something else than this")
			return
		case err != nil:
			r.log.Error("agent's token not looked up", "err", err.Error())
			notNow(w, q, "5", http.StatusServiceUnavailable, "temporarily_unavailable", "try again later")
			return
		}
		if !guests { // others count where they came to
			if refused := r.limits.Call(who.Holder); refused != nil {
				wait, _ := refused.Details["retry_after_seconds"].(float64)
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait))))
				refuse(w, http.StatusTooManyRequests, string(refused.Code), refused.Message)
				return
			}
		}
		serve := func(w http.ResponseWriter, q *http.Request) { r.agents.ServeAgent(w, q, who.Holder, inner) }
		if instance := r.sessionAt(q.Header.Get(sessionHeader)); !guests && instance != "" {
			r.passOnAgent(ctx, w, q, instance, serve)
			return
		}
		serve(w, q)
	})
}

// sessionAt is the other instance that has an agent's session; empty if it is this
// one, or nobody's.
func (r *Relay) sessionAt(session string) string {
	home, _, ok := strings.Cut(session, ".")
	switch {
	case r.node == nil || !ok || len(session) > maxSessionID || home == r.node.ID():
		return ""
	case r.node.Alive(home):
		return home
	}
	if heir := heir(session, r.node.Peers()); heir != r.node.ID() {
		return heir
	}
	return ""
}

// maxSessionID is more than any id of a session has, in bytes.
const maxSessionID = 128

// heir is the instance that goes on with a session whose own is gone: all choose
// the same, and only what was an instance's is chosen anew when that is gone, too
// (rendezvous hashing). Empty if there is none.
func heir(session string, instances []string) string {
	best, most := "", uint64(0)
	for _, id := range instances {
		sum := sha256.Sum256([]byte(id + "/" + session))
		if n := binary.BigEndian.Uint64(sum[:]); best == "" || n > most {
			best, most = id, n
		}
	}
	return best
}

// passOnAgent proxies a request to the instance that has its session, streams too.
// One that is gone in this moment, before it was sent anything, is answered here.
func (r *Relay) passOnAgent(ctx context.Context, w http.ResponseWriter, q *http.Request, instance string, here http.HandlerFunc) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // as for those that are answered here
	_ = control.SetReadDeadline(time.Time{})
	bounded, cancel := context.WithCancel(q.Context())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	body := &touched{ReadCloser: q.Body}
	out := q.WithContext(bounded)
	out.Body = body
	proxy := httputil.ReverseProxy{
		Transport: r.router.Transport(),
		Rewrite:   func(pr *httputil.ProxyRequest) { pr.SetURL(&url.URL{Scheme: "http", Host: instance}) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, cluster.ErrGone) && !body.read.Load() {
				here(w, q)
				return
			}
			if bounded.Err() == nil {
				r.log.Warn("agent's request not passed on", "instance", instance, "err", err.Error())
			}
			notNow(w, q, "1", http.StatusBadGateway, string(wire.OpUnconfirmed), "the relay's instance that has the session didn't answer; it may have happened: look before repeating it")
		},
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, out)
}

// notNow refuses a request that would be answered at another time, or by another
// instance. A stream of a session, which is GET, is broken off instead: a client
// asks for it again, as for one that a lost link has ended, while some take a
// refusal as the end of the session.
func notNow(w http.ResponseWriter, q *http.Request, retryAfter string, status int, code, text string) {
	if q.Method == http.MethodGet && q.Header.Get(sessionHeader) != "" {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Retry-After", retryAfter)
	refuse(w, status, code, text)
}

// touched says whether anything of a body was read.
type touched struct {
	io.ReadCloser
	read atomic.Bool
}

func (t *touched) Read(b []byte) (int, error) {
	t.read.Store(true)
	return t.ReadCloser.Read(b)
}

// fromHere says whether a request is one that no page of another site can have
// made: it asks for the relay by a name of its own, or by a loopback address as a
// proxy on its host does, so that no name was bent to its address (DNS rebinding),
// and if it comes from a page, from one of its own.
func fromHere(q *http.Request, public *url.URL) bool {
	host := q.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	if !strings.EqualFold(q.Host, public.Host) && !strings.EqualFold(host, public.Hostname()) && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return false
	}
	origin := q.Header.Values("Origin")
	return len(origin) == 0 || len(origin) == 1 && strings.EqualFold(origin[0], public.Scheme+"://"+public.Host)
}

func refuse(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A write that fails means that the agent has gone.
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": text})
}
