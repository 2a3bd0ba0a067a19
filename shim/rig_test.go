package shim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/audit"
	"farhand/grant"
	"farhand/internal/leak"
	"farhand/link"
	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// rig is a shim with a real audit log and real bindings in a directory of its
// own, against a scripted platform.
type rig struct {
	t        *testing.T
	platform *shimtest.Platform
	cfg      shim.Config
	shim     *shim.Shim
	dir      string
	root     string
	tokens   *tokens
	log      *audit.Log
	states   chan shim.Status
	closed   chan string // sessions whose services were closed
	opened   chan *shim.Session

	cancel context.CancelFunc
	result chan error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	leak.Check(t)
	return rigOn(t, shimtest.New(t))
}

// newBubbleRig is for fake time: no network, no clock but the bubble's.
func newBubbleRig(t *testing.T) *rig {
	t.Helper()
	p := shimtest.NewInMemory(t)
	p.Patience = time.Hour
	r := rigOn(t, p)
	r.cfg.Dial = func(ctx context.Context, url, token string) (*link.Conn, error) {
		return link.Dial(ctx, url, link.DialOptions{Token: token, Device: true, NetDial: p.Dial})
	}
	return r
}

func rigOn(t *testing.T, platform *shimtest.Platform) *rig {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, platform: platform, dir: dir, root: filepath.Join(dir, "work"),
		tokens: &tokens{token: "token-0"}, states: make(chan shim.Status, 10000),
		closed: make(chan string, 10000), opened: make(chan *shim.Session, 10000), result: make(chan error, 1),
	}
	if err := os.Mkdir(r.root, 0o755); err != nil {
		t.Fatal(err)
	}
	key := []byte(strings.Repeat("k", 32))
	r.log, err = audit.Open(audit.Options{Path: filepath.Join(dir, "audit.log"), Key: key, MachineID: "machine-1", ShimVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.log.Close() })
	bindings, err := grant.Open(grant.Options{Dir: dir, Key: key, MachineID: "machine-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bindings.Close() })
	r.cfg = shim.Config{
		ControlURL: r.platform.URL,
		Dial: func(ctx context.Context, url, token string) (*link.Conn, error) {
			return link.Dial(ctx, url, link.DialOptions{Token: token, Device: true})
		},
		Tokens:      r.tokens,
		LoginNeeded: func(err error) bool { return errors.Is(err, errNoLogin) },
		Hello: func(context.Context, wire.Channel, string) (wire.Hello, error) {
			return wire.Hello{
				ShimVersion: "1.0", MachineID: "machine-1", DisplayName: "pi", Platform: "linux", Arch: "arm64",
				Capabilities: wire.Capabilities{wire.Files, wire.Shell, wire.LocalLLM, wire.Grants, wire.AuditAnchor, wire.HardwareSerial, wire.Cancel},
			}, nil
		},
		Open: func(_ context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
			r.opened <- s
			return r.table(), closer(func() error { r.closed <- s.ID(); return nil }), nil
		},
		Bindings: bindings,
		Audit:    r.log,
		Roots:    []string{r.root},
		OnState:  func(s shim.Status) { r.states <- s },
		Log:      slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return r
}

type closer func() error

func (c closer) Close() error { return c() }

// testLog shows the log of a test that fails.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

var errNoLogin = errors.New("no login")

// tokens is a token source without a network.
type tokens struct {
	mu       sync.Mutex
	token    string
	n        int
	expiry   time.Time
	err      error // of Rejected
	rejected []string
}

func (k *tokens) Token(context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.token, nil
}

func (k *tokens) Rejected(_ context.Context, token string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rejected = append(k.rejected, token)
	if k.err != nil {
		return "", k.err
	}
	if k.token == token {
		k.n++
		k.token = fmt.Sprintf("token-%d", k.n)
	}
	return k.token, nil
}

func (k *tokens) Expiry() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.expiry
}

// table serves data requests in the simplest way that can be told apart.
func (r *rig) table() shim.Table {
	return shim.Table{
		wire.TFileStat: {Handle: shim.Unary(func(_ context.Context, c *shim.Call, req wire.FileStat) (any, error) {
			if req.Path == "/missing" {
				return nil, wire.Errorf(wire.PathNotFound, "not there").With("path", req.Path)
			}
			return wire.FileStatResponse{Exists: true, Path: &req.Path}, nil
		})},
		wire.TFileDelete: {Handle: shim.Unary(func(context.Context, *shim.Call, wire.FileDelete) (any, error) { return nil, nil })},
		wire.TFileRead: {Handle: shim.Unary(func(_ context.Context, _ *shim.Call, req wire.FileRead) (any, error) {
			panic("reading " + req.Path)
		})},
	}
}

func (r *rig) start() *shimtest.Socket {
	r.t.Helper()
	r.run()
	return r.platform.Next()
}

func (r *rig) run() {
	r.t.Helper()
	if r.shim == nil {
		var err error
		if r.shim, err = shim.New(r.cfg); err != nil {
			r.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.result <- r.shim.Run(ctx) }()
	r.t.Cleanup(r.stop)
}

// stop ends the shim as a signal does.
func (r *rig) stop() {
	r.t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	select {
	case err := <-r.result:
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	case <-time.After(r.platform.Patience):
		r.t.Error("Run didn't return")
	}
}

// ended is what Run returned by itself.
func (r *rig) ended() error {
	r.t.Helper()
	select {
	case err := <-r.result:
		r.cancel()
		r.cancel = nil
		return err
	case <-time.After(r.platform.Patience):
		r.t.Fatal("Run goes on")
		return nil
	}
}

// browse walks to a directory and returns browse id and reference.
func (r *rig) browse(control *shimtest.Socket, path string) (string, string) {
	r.t.Helper()
	list := decodeTo[wire.DirectoryListResponse](r.t, control.Call(wire.TDirectoryListRequest, nil), wire.TDirectoryListResponse)
	for {
		i := slices.IndexFunc(list.Entries, func(e wire.DirectoryEntry) bool {
			return path == e.Path || strings.HasPrefix(path, e.Path+"/")
		})
		if i < 0 {
			r.t.Fatalf("no way to %s in %v", path, list.Entries)
		}
		e := list.Entries[i]
		if e.Path == path {
			return list.BrowseID, e.DirectoryRef
		}
		list = decodeTo[wire.DirectoryListResponse](r.t, control.Call(wire.TDirectoryListRequest,
			wire.DirectoryListRequest{BrowseID: &list.BrowseID, DirectoryRef: &e.DirectoryRef}), wire.TDirectoryListResponse)
	}
}

// attach binds a session to the rig's root.
func (r *rig) attach(control *shimtest.Socket, session string) wire.SessionBinding {
	r.t.Helper()
	browse, ref := r.browse(control, r.root)
	return decodeTo[wire.SessionBinding](r.t, control.Call(wire.TAttachSession, wire.AttachSession{SessionID: session, BrowseID: browse, DirectoryRef: ref}), wire.TSessionAttached)
}

// data brings a session up and returns its socket.
func (r *rig) data(control *shimtest.Socket, session string) (*shimtest.Socket, wire.SessionBinding) {
	r.t.Helper()
	b := r.attach(control, session)
	decodeTo[wire.SessionBinding](r.t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: session, Revision: b.Revision}), wire.TSessionActivated)
	s := r.platform.Next()
	if s.Session != session || *s.Hello.AllowedRoot != r.root {
		r.t.Fatalf("socket of %q with root %q", s.Session, *s.Hello.AllowedRoot)
	}
	return s, b
}

func decodeTo[T any](t *testing.T, e wire.Envelope, want wire.Type) T {
	t.Helper()
	var v T
	if e.Type != want {
		t.Fatalf("%s %s instead of %s", e.Type, e.Payload, want)
	}
	if err := json.Unmarshal(e.Payload, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// wantError checks an ERROR and returns its details.
func wantError(t *testing.T, e wire.Envelope, code wire.Code) map[string]any {
	t.Helper()
	got := decodeTo[wire.Error](t, e, wire.TError)
	if got.Code != code || got.Message == "" || got.Fatal {
		t.Fatalf("%s %q fatal=%v instead of %s", got.Code, got.Message, got.Fatal, code)
	}
	return got.Details
}

// ops are the operations in the audit log, in order.
func (r *rig) ops() []string {
	r.t.Helper()
	var ops []string
	for _, e := range r.records() {
		ops = append(ops, e.Op)
	}
	return ops
}

type auditRecord struct {
	SessionID string         `json:"session_id"`
	RequestID *string        `json:"request_id"`
	Op        string         `json:"op"`
	Details   map[string]any `json:"details"`
	Result    struct {
		OK        bool    `json:"ok"`
		ErrorCode *string `json:"error_code"`
	} `json:"result"`
}

func (r *rig) records() []auditRecord {
	r.t.Helper()
	f, err := os.Open(filepath.Join(r.dir, "audit.log"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	var all []auditRecord
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditRecord
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// last is the newest record of an operation.
func (r *rig) last(op string) auditRecord {
	r.t.Helper()
	all := r.records()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Op == op {
			return all[i]
		}
	}
	r.t.Fatalf("no record of %s in %v", op, r.ops())
	return auditRecord{}
}

// awaitState waits until the shim says that it is in a phase.
func (r *rig) awaitState(phase shim.Phase) shim.Status {
	r.t.Helper()
	deadline := time.After(r.platform.Patience)
	for {
		select {
		case s := <-r.states:
			if s.Phase == phase {
				return s
			}
		case <-deadline:
			r.t.Fatalf("never %s", phase)
		}
	}
}

// serve makes sessions answer by another table.
func (r *rig) serve(table shim.Table) {
	r.cfg.Open = func(_ context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
		r.opened <- s
		return table, closer(func() error { r.closed <- s.ID(); return nil }), nil
	}
}
