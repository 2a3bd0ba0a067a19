package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"farhand/relay/access"
	"farhand/relay/oauth"
)

// Agents answers agents at /mcp.
type Agents interface {
	// ServeAgent answers a request whose sender is known: holder tells senders
	// apart, token is what the relay's own API takes for this one.
	ServeAgent(w http.ResponseWriter, r *http.Request, holder, token string)
	// Close ends what goes on and waits for it. Idempotent.
	Close() error
}

// agentEndpoint lets agents in that have a token for it: one that was made for
// something else is none.
func (r *Relay) agentEndpoint() http.Handler {
	public, _ := url.Parse(r.url) // it was checked when it was made
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if !fromHere(q, public) {
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
			w.Header().Set("Retry-After", "5")
			refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", "try again later")
			return
		}
		r.agents.ServeAgent(w, q, who.Holder, inner)
	})
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
