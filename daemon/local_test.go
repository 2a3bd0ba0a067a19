package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"farhand/internal/leak"
)

func handlers() localHandlers {
	return localHandlers{
		status: func() Status { return Status{State: StateOnline, MachineID: "m-1"} },
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
