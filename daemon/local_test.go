package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"farhand/internal/leak"
)

func handlers() localHandlers {
	return localHandlers{
		status: func(context.Context) Status { return Status{State: StateOnline, MachineID: "m-1"} },
		resume: func() error { return nil },
		login:  func(b []byte) error { return errors.New("refused " + string(b)) },
	}
}

func serve(t *testing.T, path string) {
	t.Helper()
	l, err := listenLocal(t.Context(), path, handlers(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestLocalSocket(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), socketName)
	serve(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v; want 0660", info.Mode(), err)
	}
	local := Local{Socket: path}
	s, err := local.Status(t.Context())
	if err != nil || s.State != StateOnline || s.MachineID != "m-1" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := local.Resume(t.Context()); err != nil {
		t.Error(err)
	}
	if err := local.Login(t.Context(), []byte("x")); err == nil || !strings.Contains(err.Error(), "refused x") {
		t.Errorf("the daemon's own words are lost: %v", err)
	}
	if err := local.Login(t.Context(), make([]byte, 65<<10)); err == nil {
		t.Error("a body of any size is read")
	}
}

// Whoever the socket's mode lets in may ask for the status; only root and the
// daemon's own user may change anything.
func TestLocalPeers(t *testing.T) {
	changed := 0
	mux := localHandlers{
		status: func(context.Context) Status { return Status{State: StateOnline} },
		resume: func() error { changed++; return nil },
		login:  func([]byte) error { changed++; return nil },
	}.mux()
	ask := func(method, path string, peer any) int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil).WithContext(context.WithValue(t.Context(), peerKey{}, peer)))
		return w.Code
	}
	own := uint32(os.Getuid())
	for _, x := range []struct {
		peer any
		want int
	}{{own, 204}, {uint32(0), 204}, {own + 4711, 403}, {nil, 403}} {
		if got := ask("GET", "/status", x.peer); got != 200 {
			t.Errorf("status for %v: %d", x.peer, got)
		}
		for _, path := range []string{"/resume", "/login"} {
			before := changed
			if got := ask("POST", path, x.peer); got != x.want || (changed > before) != (x.want == 204) {
				t.Errorf("%s for %v: %d", path, x.peer, got)
			}
			if got := ask("GET", path, own); got != 405 {
				t.Errorf("GET %s: %d", path, got)
			}
		}
	}
}

func TestLocalStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), socketName)
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	old.Close() // the file stays behind, as after kill -9
	serve(t, path)
	if _, err := (Local{Socket: path}).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLocalLiveSocketIsNotTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), socketName)
	serve(t, path)
	_, err := listenLocal(context.Background(), path, handlers(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "already listening") {
		t.Errorf("err = %v", err)
	}
}

func TestLocalRefusesWhatIsNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), socketName)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenLocal(context.Background(), path, handlers(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file was taken for a stale socket")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

func TestLocalNotRunning(t *testing.T) {
	_, err := Local{Socket: filepath.Join(t.TempDir(), "none")}.Status(t.Context())
	if !errors.Is(err, ErrNotRunning) {
		t.Errorf("err = %v", err)
	}
}

func TestLocalPathTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("x", maxSunPath))
	if _, err := listenLocal(context.Background(), path, handlers(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "state_dir") {
		t.Errorf("err = %v: it must say what to change", err)
	}
}
