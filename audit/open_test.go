//go:build unix

package audit

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"farhand/internal/atomicfile"
)

// A FIFO in the place of one of our files is an error, and nobody waits for its
// other end.
func TestNothingWaits(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"audit.key", "audit.log", "audit.head"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadKey(filepath.Join(dir, "audit.key")); !errors.Is(err, atomicfile.ErrNotRegular) {
		t.Errorf("key: %v", err)
	}
	key := make([]byte, KeySize)
	log := filepath.Join(dir, "audit.log")
	if _, err := Verify(t.Context(), log, key); !errors.Is(err, atomicfile.ErrNotRegular) {
		t.Errorf("verify: %v", err)
	}
	if _, _, err := readHead(log, key); !errors.Is(err, atomicfile.ErrNotRegular) {
		t.Errorf("head: %v", err)
	}
	if l, err := Open(Options{Path: log, Key: key}); !errors.Is(err, atomicfile.ErrNotRegular) {
		t.Errorf("open: %v", err)
		l.Close()
	}
}
