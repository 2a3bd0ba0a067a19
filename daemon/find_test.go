package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// The daemon that the service manager started is found by who shares its
// configuration, and by nobody else.
func TestFindLocal(t *testing.T) {
	service, state := t.TempDir(), t.TempDir()
	other := Local{Socket: filepath.Join(state, socketName)}
	if got := findLocal(t.Context(), "", state, service); got != other {
		t.Errorf("without any daemon: %+v", got)
	}
	l, err := listenLocal(t.Context(), filepath.Join(service, socketName), localHandlers{
		status: func(context.Context) Status { return Status{StateDir: state} }, resume: func() error { return nil }, login: func([]byte) error { return nil },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := findLocal(t.Context(), "", state, service); got.Socket != filepath.Join(service, socketName) {
		t.Errorf("the service isn't found: %+v", got)
	}
	if got := findLocal(t.Context(), "", t.TempDir(), service); got.Socket == filepath.Join(service, socketName) {
		t.Error("another's daemon was taken for this one")
	}
	if err := os.WriteFile(other.Socket, nil, 0o600); err != nil { // one that was started by hand
		t.Fatal(err)
	}
	if got := findLocal(t.Context(), "", state, service); got != other {
		t.Errorf("%+v", got)
	}
	if got := findLocal(t.Context(), "/run/x", state, service); got.Socket != "/run/x/"+socketName {
		t.Errorf("%+v", got)
	}
}
