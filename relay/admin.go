package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"farhand/relay/acts"
	"farhand/relay/oauth"
	"farhand/relay/store"
)

// adminSocket lies in the data directory: whoever may connect to it could as
// well write the store.
const adminSocket = "admin.sock"

const (
	maxAdminBody = 4 << 10
	adminTimeout = 10 * time.Second
)

// Owners manages the accounts of the relay in a data directory: through the
// relay if it runs, else in its store.
type Owners struct {
	DataDir string
	// PublicURL is for links made while the relay is down. Empty: where it was
	// reached last.
	PublicURL string
	Log       *slog.Logger
}

// Add makes a one-time setup token for one more owner.
func (o Owners) Add(ctx context.Context, name string) (oauth.Setup, error) {
	return o.setup(ctx, ownerRequest{Name: name})
}

// Reset makes a one-time setup token that gives an owner a new passphrase and
// ends the logins.
func (o Owners) Reset(ctx context.Context, name string) (oauth.Setup, error) {
	return o.setup(ctx, ownerRequest{Name: name, Reset: true})
}

// ownerRequest is the body of POST /api/owners.
type ownerRequest struct {
	Name  string `json:"name"`
	Reset bool   `json:"reset,omitempty"`
}

type ownerList struct {
	Owners []string `json:"owners"`
}

// List returns the names of the owners.
func (o Owners) List(ctx context.Context) ([]string, error) {
	var out ownerList
	err := o.do(ctx, http.MethodGet, nil, &out, func(a *oauth.Server) error {
		var err error
		out.Owners, err = a.Owners(ctx)
		return err
	})
	return out.Owners, err
}

func (o Owners) setup(ctx context.Context, req ownerRequest) (oauth.Setup, error) {
	var out oauth.Setup
	err := o.do(ctx, http.MethodPost, req, &out, func(a *oauth.Server) error {
		var err error
		out, err = req.run(ctx, a)
		return err
	})
	return out, err
}

func (r ownerRequest) run(ctx context.Context, a *oauth.Server) (oauth.Setup, error) {
	if r.Reset {
		return a.ResetOwner(ctx, r.Name)
	}
	return a.AddOwner(ctx, r.Name)
}

// do asks the running relay, or does it here if there is none.
func (o Owners) do(ctx context.Context, method string, in, out any, here func(*oauth.Server) error) error {
	err := o.ask(ctx, method, in, out)
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	path := filepath.Join(o.DataDir, "relay.db")
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no relay has run in %s yet: %w", o.DataDir, err)
	}
	st, err := store.OpenBolt(path)
	if err != nil {
		return err
	}
	defer st.Close()
	public := o.PublicURL
	if public == "" {
		if public, err = rememberedURL(ctx, st); err != nil {
			return err
		}
	}
	log, key, err := openAudit(o.DataDir, o.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	book := acts.Open(filepath.Join(o.DataDir, "acts"), key, o.Log)
	defer book.Close()
	a, err := oauth.New(ctx, oauth.Config{Store: st, PublicURL: public, Record: recorder(log, book, o.Log), Log: o.Log})
	if err != nil {
		return err
	}
	defer a.Close()
	return here(a)
}

func (o Owners) ask(ctx context.Context, method string, in, out any) error {
	transport := &http.Transport{DisableKeepAlives: true}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		path, done, err := socketPath(o.DataDir)
		if err != nil {
			return nil, err
		}
		defer done()
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://relay/api/owners", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport, Timeout: adminTimeout}).Do(req)
	if err != nil {
		return fmt.Errorf("asking the running relay: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("asking the running relay: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var fail struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(answer, &fail) != nil || fail.Error.Message == "" {
			return fmt.Errorf("the running relay answered %s", resp.Status)
		}
		return errors.New(fail.Error.Message)
	}
	return json.Unmarshal(answer, out)
}

// adminHandler serves the admin socket.
func adminHandler(a *oauth.Server) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any, err error) {
		status := http.StatusOK
		if err != nil {
			status = http.StatusBadRequest
			v = map[string]any{"error": map[string]string{"code": "INVALID_ARGUMENT", "message": err.Error()}}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v) // a failure means that the caller has gone
	}
	mux.HandleFunc("GET /api/owners", func(w http.ResponseWriter, r *http.Request) {
		names, err := a.Owners(r.Context())
		answer(w, ownerList{names}, err)
	})
	mux.HandleFunc("POST /api/owners", func(w http.ResponseWriter, r *http.Request) {
		var req ownerRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAdminBody)).Decode(&req); err != nil {
			answer(w, nil, errors.New("the body isn't valid JSON"))
			return
		}
		made, err := req.run(r.Context(), a)
		answer(w, made, err)
	})
	return mux
}

// listenAdmin opens the admin socket. A socket that lies there and that nobody
// answers is a dead relay's.
func listenAdmin(dataDir string) (net.Listener, error) {
	path, done, err := socketPath(dataDir)
	if err != nil {
		return nil, err
	}
	defer done()
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("data directory %s: %w", dataDir, store.ErrLocked)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	// The directory is 0700, so nobody else gets in before the mode is set.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	// The path may go through a descriptor of ours, so it is removed by hand.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	return adminListener{l, filepath.Join(dataDir, adminSocket)}, nil
}

// adminListener removes its socket when it is closed.
type adminListener struct {
	net.Listener
	path string
}

func (l adminListener) Close() error {
	err := l.Listener.Close()
	if err == nil {
		err = os.Remove(l.path)
	}
	return err
}

// maxSocketPath is what fits into sockaddr_un everywhere, with its final zero
// byte (macOS: 104).
const maxSocketPath = 103

// socketPath is where to reach the admin socket: its path or, on Linux, if that
// is too long for a socket address, one through the directory's descriptor.
func socketPath(dataDir string) (path string, done func(), err error) {
	path = filepath.Join(dataDir, adminSocket)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(dataDir)
	if err != nil {
		return "", nil, fmt.Errorf("admin socket: %w", err)
	}
	path = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), adminSocket)
	return path, func() { dir.Close() }, nil
}

// The relay remembers where it was reached, for links made while it is down.
const urlKey = "relay.url"

func rememberURL(ctx context.Context, s store.Store, public string) error {
	e, err := s.Get(ctx, urlKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		_, err = s.Create(ctx, urlKey, []byte(public), time.Time{})
	case err == nil && string(e.Value) != public:
		_, err = s.Update(ctx, urlKey, []byte(public), time.Time{}, e.Revision)
	}
	return err
}

func rememberedURL(ctx context.Context, s store.Store) (string, error) {
	e, err := s.Get(ctx, urlKey)
	if errors.Is(err, store.ErrNotFound) {
		return "http://" + DefaultListen, nil
	}
	return string(e.Value), err
}
