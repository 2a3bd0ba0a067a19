package mcp

import (
	"context"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A session of the protocol holds nothing here that the token doesn't: which tools
// there are, terminals, devices and what was opened on machines are the token's, on
// the relay and on the machines. So one whose HTTP is gone can go on at another
// without anything having been stored: it is connected anew, under its id and as
// initialized. What was under way in it is lost with the HTTP that had it, and
// terminal_read doesn't know what it told before.

const (
	sessionHeader  = "Mcp-Session-Id"
	versionHeader  = "Mcp-Protocol-Version"
	defaultVersion = "2025-03-26" // of who doesn't say, by the protocol
	maxSessionID   = 128          // bytes
)

// adopted is a session that was another HTTP's.
type adopted struct {
	session   *mcp.ServerSession
	transport *mcp.StreamableServerTransport

	// Under seat.mu.
	busy int       // requests that it is answering
	used time.Time // when it last was
}

// elsewhere says whether an id is that of another HTTP's session.
func (h *HTTP) elsewhere(id string) bool {
	home, rest, ok := strings.Cut(id, ".")
	return h.instance != "" && ok && home != h.instance && plainID(home) && plainID(rest) && len(id) <= maxSessionID
}

func plainID(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}

// has says whether a session was adopted already.
func (at *seat) has(id string) bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.adopted[id] != nil
}

// goOn answers a request of a session that was another HTTP's. What the SDK's own
// handler looks at before it gives a request to a session is looked at here.
func (at *seat) goOn(w http.ResponseWriter, r *http.Request, id string) {
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case r.Method == http.MethodDelete:
		at.give(id)
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method != http.MethodPost && r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	case !accepts(r, "text/event-stream") || r.Method == http.MethodPost && !accepts(r, "application/json"):
		http.Error(w, "Accept must contain text/event-stream, and application/json for POST", http.StatusBadRequest)
		return
	case r.Method == http.MethodPost && kind != "application/json":
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	one, err := at.adopt(r.Context(), id, r.Header.Get(versionHeader), r.Method == http.MethodPost)
	if err != nil {
		http.Error(w, "the session can't go on here: initialize a new one", http.StatusNotFound)
		return
	}
	if r.Method == http.MethodPost {
		defer at.rest(one)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	one.transport.ServeHTTP(w, r)
}

// accepts says whether a request takes an answer of a type.
func accepts(r *http.Request, kind string) bool {
	family, _, _ := strings.Cut(kind, "/")
	for _, line := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(line, ",") {
			one, _, _ = strings.Cut(one, ";")
			switch one = strings.ToLower(strings.TrimSpace(one)); one {
			case kind, family + "/*", "*/*":
				return true
			}
		}
	}
	return false
}

// adopt finds a session that was adopted, or adopts it, and marks it busy if it is
// asked for something.
func (at *seat) adopt(ctx context.Context, id, version string, asks bool) (*adopted, error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	one := at.adopted[id]
	if one == nil || !at.lives(one) {
		if version == "" {
			version = defaultVersion
		}
		one = &adopted{transport: &mcp.StreamableServerTransport{SessionID: id}}
		var err error
		one.session, err = at.server.mcp.Connect(context.WithoutCancel(ctx), one.transport, &mcp.ServerSessionOptions{State: &mcp.ServerSessionState{
			InitializeParams: &mcp.InitializeParams{ProtocolVersion: version}, InitializedParams: &mcp.InitializedParams{},
		}})
		if err != nil {
			return nil, err
		}
		if at.adopted == nil {
			at.adopted = make(map[string]*adopted)
		}
		one.used = time.Now()
		at.adopted[id] = one
		at.server.log.Info("a session of an agent goes on here", "protocol", version)
	}
	if asks {
		one.busy++
	}
	return one, nil
}

// lives says whether a session wasn't ended: all are when the token is no longer
// good.
func (at *seat) lives(one *adopted) bool {
	for s := range at.server.mcp.Sessions() {
		if s == one.session {
			return true
		}
	}
	return false
}

func (at *seat) rest(one *adopted) {
	at.mu.Lock()
	defer at.mu.Unlock()
	one.busy--
	one.used = time.Now()
}

// give ends a session that was adopted.
func (at *seat) give(id string) {
	at.mu.Lock()
	one := at.adopted[id]
	delete(at.adopted, id)
	at.mu.Unlock()
	if one != nil {
		_ = one.session.Close() // the agent asked for it, or is gone
	}
}

// endIdle ends those that were adopted and ask for nothing any more, as the SDK's
// handler does with the others: a stream that is open for news isn't asking.
func (at *seat) endIdle() {
	at.mu.Lock()
	var idle []string
	for id, one := range at.adopted {
		if one.busy == 0 && time.Since(one.used) > sessionIdle || !at.lives(one) {
			idle = append(idle, id)
		}
	}
	at.mu.Unlock()
	for _, id := range idle {
		at.give(id)
	}
}
