package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The local socket is HTTP over a Unix socket: GET /status and GET /metrics for
// whoever may open it (mode 0660), POST /resume and POST /login for root and the
// daemon's own user, told apart by SO_PEERCRED (unix(7)). So are the answers of the
// local model that wait to be let go: GET /answers, POST /answers/ID.

// socketName is the socket's file in $RUNTIME_DIRECTORY or the state directory.
const socketName = "farhandd.sock"

// maxSunPath is sizeof(sockaddr_un.sun_path) less its NUL, unix(7).
const maxSunPath = 107

// SocketPath is where the daemon with this environment and state directory
// listens.
func SocketPath(runtimeDir, stateDir string) string {
	if runtimeDir == "" {
		runtimeDir = stateDir
	}
	return filepath.Join(runtimeDir, socketName)
}

// localHandlers is what the local socket does; all are safe for concurrent use.
type localHandlers struct {
	status func(context.Context) Status
	metric func(io.Writer) // in Prometheus' text format
	resume func() error
	login  func(tokens []byte) error

	answers func() []Answer
	decide  func(id string, letGo bool) error
}

type local struct {
	listener net.Listener
	server   *http.Server
	done     chan error
}

// listenLocal opens the socket. One that a dead daemon left behind is replaced,
// but only after connecting to it failed.
func listenLocal(ctx context.Context, path string, h localHandlers, log *slog.Logger) (*local, error) {
	if len(path) > maxSunPath {
		return nil, fmt.Errorf("socket path %s is longer than %d bytes; choose a shorter state_dir", path, maxSunPath)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("set the mode of %s: %w", path, err), l.Close())
	}
	s := &local{listener: l, done: make(chan error, 1)}
	s.server = &http.Server{
		Handler:           h.mux(),
		ConnContext:       withPeer,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() { s.done <- s.server.Serve(l) }()
	return s, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is in the way and is no socket", path)
	}
	dialer := net.Dialer{Timeout: 2 * time.Second}
	if c, err := dialer.DialContext(ctx, "unix", path); err == nil {
		c.Close()
		return fmt.Errorf("a daemon is already listening on %s", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the stale socket: %w", err)
	}
	return nil
}

// Close stops listening and waits for the calls in work.
func (s *local) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = s.server.Close()
	}
	<-s.done
	return err
}

type peerKey struct{}

// withPeer notes who is at the other end of the socket.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred.Uid)
}

func (h localHandlers) mux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// The peer may be gone; there is nobody left to tell.
		_ = json.NewEncoder(w).Encode(h.status(r.Context()))
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		h.metric(w)
	})
	mux.HandleFunc("POST /resume", h.owner(func(http.ResponseWriter, *http.Request) error { return h.resume() }))
	mux.HandleFunc("POST /login", h.owner(func(w http.ResponseWriter, r *http.Request) error {
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			return err
		}
		return h.login(b)
	}))
	mux.HandleFunc("GET /answers", func(w http.ResponseWriter, r *http.Request) {
		if !mayOwn(w, r) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h.answers()) // who asked may be gone
	})
	mux.HandleFunc("POST /answers/{id}", h.owner(func(w http.ResponseWriter, r *http.Request) error {
		var body decision
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil {
			return err
		}
		return h.decide(r.PathValue("id"), body.Release)
	}))
	return mux
}

// decision is what the owner says to an answer.
type decision struct {
	Release bool `json:"release"`
}

// mayOwn says whether root or the daemon's own user asks, and refuses others.
func mayOwn(w http.ResponseWriter, r *http.Request) bool {
	uid, known := r.Context().Value(peerKey{}).(uint32)
	if !known || (uid != 0 && int(uid) != os.Getuid()) {
		http.Error(w, "only root and the daemon's own user may do this", http.StatusForbidden)
		return false
	}
	return true
}

// owner lets through root and the daemon's own user.
func (h localHandlers) owner(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !mayOwn(w, r) {
			return
		}
		if err := do(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// maxLocalAnswer holds all answers that may wait, each character of which may take
// six bytes as JSON.
const maxLocalAnswer = 32 << 20

// ErrNotRunning says that no daemon listens on the local socket.
var ErrNotRunning = errors.New("no daemon is running")

// Local asks the running daemon over its socket.
type Local struct {
	Socket string
}

// Status asks for the daemon's status.
func (l Local) Status(ctx context.Context) (Status, error) {
	var s Status
	b, err := l.call(ctx, http.MethodGet, "/status", nil)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read the daemon's status: %w", err)
	}
	return s, nil
}

// Resume makes a halted daemon connect again.
func (l Local) Resume(ctx context.Context) error {
	_, err := l.call(ctx, http.MethodPost, "/resume", nil)
	return err
}

// Login hands tokens to the running daemon, which stores them itself.
func (l Local) Login(ctx context.Context, tokens []byte) error {
	_, err := l.call(ctx, http.MethodPost, "/login", tokens)
	return err
}

// Answers are what the local model said about private files and waits to be let go.
func (l Local) Answers(ctx context.Context) ([]Answer, error) {
	b, err := l.call(ctx, http.MethodGet, "/answers", nil)
	if err != nil {
		return nil, err
	}
	var all []Answer
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read the daemon's answers: %w", err)
	}
	return all, nil
}

// Decide lets an answer go, or refuses it.
func (l Local) Decide(ctx context.Context, id string, letGo bool) error {
	body, err := json.Marshal(decision{letGo})
	if err != nil {
		return err
	}
	_, err = l.call(ctx, http.MethodPost, "/answers/"+url.PathEscape(id), body)
	return err
}

func (l Local) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", l.Socket)
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	req, err := http.NewRequestWithContext(ctx, method, "http://farhandd"+path, bytesReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("%w (%s)", ErrNotRunning, l.Socket)
		}
		return nil, fmt.Errorf("ask the daemon at %s: %w", l.Socket, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxLocalAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's answer: %w", err)
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("the daemon refused: %s", string(b))
	}
	return b, nil
}
