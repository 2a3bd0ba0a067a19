package octotest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Options describe a server.
type Options struct {
	// API2 makes it OctoPrint 2.0, which speaks its new shapes to who asks for
	// them (docs: version, files, printer: "API version 2.0.0+").
	API2 bool
	// Moonraker makes it Moonraker with octoprint_compat; its key is trusted from
	// everywhere, and without a key no address is, unless Trusted.
	Moonraker, Trusted bool
	Key                string // the API key that is accepted; empty: "secret"
	// Prefix is the path under which a proxy offers the server.
	Prefix string
	// Job is how long a job takes; 0: 60 s.
	Job    time.Duration
	Faults Faults
}

// Faults is what servers and what stands before them are known to do.
type Faults struct {
	// RefuseNonLatin: OctoPrint#5206: a bare 400 for a multipart file name that
	// isn't Latin-1, in whatever form.
	RefuseNonLatin bool
	// PrintConflict: OctoPrint#1872: an upload or selection with print starts the
	// job and answers 409 all the same; so does a job command.
	PrintConflict bool
	// InnerHost makes Location and refs name a host that only the proxy knows
	// (OctoPrint-Obico#69: no X-Forwarded-Host).
	InnerHost string
	// Proxy is what a reverse proxy answers in the server's place: "" nothing,
	// "basic" 401 with a page (ioBroker.octoprint#39), "forbidden" 403 with a
	// page, "gateway" 502, "portal" 200 with a login page, "redirect" to another
	// origin.
	Proxy string
	// NoPush: no upgrade passes.
	NoPush bool
	// Framed: messages of the push socket in SockJS's frames.
	Framed bool
	// NoAppKeys: the plugin is disabled (docs: appkeys: "usually an HTTP 404").
	NoAppKeys bool
	// Hang makes requests whose path ends so wait until they are given up.
	Hang string
	// Cut makes requests whose path ends so be carried out and their connection
	// be cut before the answer.
	Cut string
}

// Server is the printer's server. It is an http.Handler; Close it when done.
type Server struct {
	opts Options

	mu       sync.Mutex
	faults   Faults
	m        *machine
	requests []string // "POST /api/job", of the last ones
	keys     map[string]bool
	joins    map[string]*join // by app token
	sessions map[string]bool
	sockets  map[*socket]struct{}
	serial   int
	work     sync.WaitGroup // sockets

	ctx    context.Context
	cancel context.CancelFunc
}

var _ http.Handler = (*Server)(nil)

// New makes a server whose printer is connected and idle.
func New(o Options) *Server {
	o.Key = cmp.Or(o.Key, "secret")
	o.Job = cmp.Or(o.Job, time.Minute)
	s := &Server{
		opts: o, faults: o.Faults, m: newMachine(time.Now(), o.Job),
		keys: map[string]bool{o.Key: true}, joins: make(map[string]*join),
		sessions: make(map[string]bool), sockets: make(map[*socket]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close closes the push sockets and waits for them.
func (s *Server) Close() error {
	s.cancel()
	s.mu.Lock()
	for c := range s.sockets {
		c.conn.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// SetFaults replaces the faults.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// do runs fn on the printer as it is now.
func (s *Server) do(fn func(*machine)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m.advance(time.Now())
	fn(s.m)
}

// SetConnected connects the server with its printer or disconnects it.
func (s *Server) SetConnected(on bool) {
	s.do(func(m *machine) {
		m.state = Offline
		if on {
			m.state = Operational
		}
	})
}

// Shutdown makes the firmware shut itself down.
func (s *Server) Shutdown() { s.do((*machine).shutdown) }

// Run executes lines of G-code at the printer, as somebody at its panel would.
func (s *Server) Run(lines ...string) {
	s.do(func(m *machine) {
		for _, l := range lines {
			m.run(l)
		}
	})
}

// Target is the target of a heater in °C.
func (s *Server) Target(name string) (celsius float64) {
	s.do(func(m *machine) {
		if h := m.heaters[name]; h != nil {
			celsius = h.target
		}
	})
	return celsius
}

// Put stores a file; location is local or sdcard.
func (s *Server) Put(location, path string, content []byte) {
	s.do(func(m *machine) {
		m.files[location][path] = &file{Path: path, Display: base(path), Size: int64(len(content)), Date: time.Now().Unix(), Content: content}
	})
}

// Requests are the requests that came, method and path without the prefix; at
// most the last 1000.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Count is how many requests came with this method and path.
func (s *Server) Count(request string) (n int) {
	for _, r := range s.Requests() {
		if r == request {
			n++
		}
	}
	return n
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// ServeHTTP answers as the proxy, if one is in the way, or as the server.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	if proxied(w, r, f.Proxy) {
		return
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), strings.TrimRight(s.opts.Prefix, "/"))
	if !ok || !strings.HasPrefix(path, "/") {
		page(w, http.StatusNotFound, "Not Found")
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+path)
	s.requests = s.requests[max(0, len(s.requests)-1000):]
	s.m.advance(time.Now())
	s.mu.Unlock()
	if f.Hang != "" && strings.HasSuffix(path, f.Hang) {
		select {
		case <-r.Context().Done():
		case <-s.ctx.Done():
		}
		return
	}
	if f.Cut != "" && strings.HasSuffix(path, f.Cut) {
		defer panic(http.ErrAbortHandler)
		w = discard{w}
	}
	var segments []string
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		part, err := url.PathUnescape(part)
		if err != nil {
			page(w, http.StatusBadRequest, "Bad Request")
			return
		}
		segments = append(segments, part)
	}
	q := &request{s: s, w: w, r: r, path: segments, faults: f}
	if s.opts.Moonraker {
		q.moonraker()
		return
	}
	q.octoprint()
}

// discard swallows an answer whose connection is going to be cut.
type discard struct{ http.ResponseWriter }

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// proxied is what a reverse proxy does instead of passing a request on.
func proxied(w http.ResponseWriter, r *http.Request, kind string) bool {
	switch kind {
	case "basic":
		w.Header().Set("WWW-Authenticate", `Basic realm="Restricted"`)
		page(w, http.StatusUnauthorized, "401 Authorization Required")
	case "forbidden":
		page(w, http.StatusForbidden, "403 Forbidden")
	case "gateway":
		page(w, http.StatusBadGateway, "502 Bad Gateway")
	case "portal":
		page(w, http.StatusOK, "Please log in")
	case "redirect":
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	default:
		return false
	}
	return true
}

func page(w http.ResponseWriter, status int, title string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<!DOCTYPE html><html><head><title>" + title + "</title></head><body><h1>" + title + "</h1></body></html>\n"))
}

// request is one request on its way through the server.
type request struct {
	s      *Server
	w      http.ResponseWriter
	r      *http.Request
	path   []string // unescaped, without the prefix
	faults Faults
}

func (q *request) json(status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		page(q.w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(status)
	_, _ = q.w.Write(b)
}

// fail answers with OctoPrint's form of an error.
func (q *request) fail(status int, text string) { q.json(status, map[string]string{"error": text}) }

func (q *request) done() { q.w.WriteHeader(http.StatusNoContent) }

// body decodes the JSON of a request; false: it was answered with 400.
func (q *request) body(v any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(q.w, q.r.Body, 1<<20)).Decode(v); err != nil {
		q.fail(http.StatusBadRequest, "Malformed JSON body in request")
		return false
	}
	return true
}

// keyed says whether the request has a key that is good.
func (q *request) keyed() bool {
	key := q.r.Header.Get("X-Api-Key")
	if bearer, ok := strings.CutPrefix(q.r.Header.Get("Authorization"), "Bearer "); ok && key == "" {
		key = bearer
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return q.s.keys[key]
}

// ref is a reference to a resource, as the server believes its address to be.
func (q *request) ref(segments ...string) string {
	host := q.r.Host
	prefix := strings.TrimRight(q.s.opts.Prefix, "/")
	if q.faults.InnerHost != "" { // the proxy told neither host nor prefix
		host, prefix = q.faults.InnerHost, ""
	}
	out := "http://" + host + prefix
	for _, s := range segments {
		out += "/" + url.PathEscape(s)
	}
	return out
}

// shape2 says whether the new shapes are asked for and there.
func (q *request) shape2() bool {
	return q.s.opts.API2 && q.r.Header.Get("X-OctoPrint-Api-Version") == "2.0.0"
}

// upgrader takes every origin, as SockJS does.
func upgrader() *websocket.Upgrader {
	return &websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
}
