package mcp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
	"farhand/wire"
)

// Bounds of an HTTP.
const (
	// maxHolders is how many tokens are served at once, and maxHolderSessions how
	// many sessions one of them may have: an agent has one, and a few that it
	// forgot to end.
	maxHolders        = 1000
	maxHolderSessions = 16
	// maxHolderRequests is how many requests of one token are answered at once, the
	// streams of its sessions among them.
	maxHolderRequests = 128
	// sessionIdle ends a session that asks for nothing, and holderIdle forgets a
	// token without sessions.
	sessionIdle = 30 * time.Minute
	holderIdle  = 5 * time.Minute
	// maxRequest is the largest request: a write_file of 10 MiB in base64.
	maxRequest = 16 << 20
)

// HTTPConfig says what an HTTP stands on.
type HTTPConfig struct {
	// Connect makes a client for a token. The HTTP closes it.
	Connect func(token string) (*client.Client, error)
	// Instance is what the ids of sessions begin with where there are several HTTPs
	// for the same agents, and tells them apart: letters and digits. A session of
	// another that comes here, because that one is gone, goes on here: under its id,
	// with what the token may do, and with the terminals and devices that it holds,
	// which are the token's and not the session's. Empty: there is one alone.
	Instance string
	Log      *slog.Logger // nil: nothing is logged
}

// HTTP serves agents by the protocol's streamable HTTP transport, each token apart:
// its own client, its own tools, its own sessions, which answer to no other token.
// Who may ask is not its business: see ServeAgent. Close it when done.
type HTTP struct {
	connect  func(string) (*client.Client, error)
	instance string
	log      *slog.Logger
	handler  http.Handler

	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	holders map[string]*seat
	closed  bool
}

// seat is where one holder's agents are served.
type seat struct {
	ready  chan struct{} // closed when server or err is set
	server *Server
	client *client.Client
	err    error
	used   time.Time // under HTTP.mu

	requests atomic.Int32 // that are being answered

	mu      sync.Mutex
	adopted map[string]*adopted // by id
}

// NewHTTP makes an HTTP.
func NewHTTP(cfg HTTPConfig) *HTTP {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &HTTP{connect: cfg.Connect, instance: cfg.Instance, log: log, stop: stop, holders: make(map[string]*seat)}
	streamable := mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		return seatOf(r.Context()).seat.server.mcp
	}, &mcp.StreamableHTTPOptions{
		Logger: log, SessionTimeout: sessionIdle, MaxRequestBodyBytes: maxRequest,
		DisableLocalhostProtection: true, // who asks whom has been looked at, and rightly for proxies too
	})
	// The SDK ties sessions to who opened them, but only knows who that is from its
	// own middleware. The token itself has been looked at.
	h.handler = auth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: seatOf(ctx).holder}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(streamable)
	h.done.Go(func() { h.tend(ctx) })
	return h
}

type seatKey struct{}

type seated struct {
	holder string
	seat   *seat
}

func seatOf(ctx context.Context) seated {
	s, _ := ctx.Value(seatKey{}).(seated)
	return s
}

// ServeAgent answers a request. The caller has made sure who asks: holder tells
// them apart, token is what the relay takes from a client for them.
func (h *HTTP) ServeAgent(w http.ResponseWriter, r *http.Request, holder, token string) {
	at, err := h.seat(r.Context(), holder, token)
	switch {
	case errors.Is(err, errFull):
		w.Header().Set("Retry-After", "60")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		h.log.Warn("agent not served", "holder", holder, "err", err.Error())
		http.Error(w, "not now: "+string(wire.CodeOf(err)), http.StatusServiceUnavailable)
		return
	}
	defer at.requests.Add(-1)
	if at.requests.Add(1) > maxHolderRequests {
		w.Header().Set("Retry-After", "5")
		w.Header().Set("Connection", "close") // so that a body that doesn't come isn't waited for
		http.Error(w, "too many requests at once: wait for answers", http.StatusTooManyRequests)
		return
	}
	id := r.Header.Get(sessionHeader)
	strange := h.elsewhere(id)
	if (r.Method == http.MethodPost && id == "" || strange && !at.has(id)) && at.sessions() >= maxHolderSessions {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many sessions: end one (DELETE), or wait until one has been idle for long enough", http.StatusTooManyRequests)
		return
	}
	// Streams stay open for as long as the agent likes.
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // where it isn't supported there is none to begin with
	_ = control.SetReadDeadline(time.Time{})
	if strange {
		at.goOn(w, r, id)
		return
	}
	h.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), seatKey{}, seated{holder, at})))
}

var errFull = errors.New("too many agents are served already")

// seat finds a holder's seat, or makes it. Requests that come together make one.
func (h *HTTP) seat(ctx context.Context, holder, token string) (*seat, error) {
	h.mu.Lock()
	at, there := h.holders[holder]
	switch {
	case h.closed:
		h.mu.Unlock()
		return nil, wire.Errorf(wire.MachineUnreachable, "shutting down")
	case !there && len(h.holders) >= maxHolders:
		h.mu.Unlock()
		return nil, errFull
	case !there:
		at = &seat{ready: make(chan struct{})}
		h.holders[holder] = at
	}
	at.used = time.Now()
	h.mu.Unlock()
	if !there {
		at.open(ctx, h, token)
		if at.err != nil {
			h.mu.Lock()
			delete(h.holders, holder)
			h.mu.Unlock()
		}
		close(at.ready)
	}
	select {
	case <-at.ready:
		return at, at.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (at *seat) open(ctx context.Context, h *HTTP, token string) {
	c, err := h.connect(token)
	if err == nil {
		at.client = c
		at.server, err = New(ctx, Config{Client: c, Log: h.log, Instance: h.instance})
	}
	if err != nil && c != nil {
		err = errors.Join(err, c.Close())
	}
	at.err = err
}

// sessions counts those that are open.
func (at *seat) sessions() int {
	n := 0
	for range at.server.mcp.Sessions() {
		n++
	}
	return n
}

func (at *seat) close() {
	at.server.endSessions()
	_ = at.server.Close() // neither can fail
	_ = at.client.Close()
}

// tend forgets holders that nobody asks for any more.
func (h *HTTP) tend(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, at := range h.ready() {
			at.endIdle()
		}
		for _, at := range h.take(func(at *seat) bool { return at.sessions() == 0 && time.Since(at.used) > holderIdle }) {
			at.close()
		}
	}
}

// ready are the seats that answer.
func (h *HTTP) ready() []*seat {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*seat
	for _, at := range h.holders {
		select {
		case <-at.ready:
			if at.err == nil {
				out = append(out, at)
			}
		default:
		}
	}
	return out
}

// take removes the seats that are ready and that fit.
func (h *HTTP) take(fits func(*seat) bool) []*seat {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*seat
	for holder, at := range h.holders {
		select {
		case <-at.ready:
		default:
			continue
		}
		if at.err == nil && fits(at) {
			delete(h.holders, holder)
			out = append(out, at)
		}
	}
	return out
}

// Close ends every session and forgets everybody. Requests must have stopped
// coming, or are refused. Idempotent.
func (h *HTTP) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop()
	h.done.Wait()
	for _, at := range h.take(func(*seat) bool { return true }) {
		at.close()
	}
	return nil
}
