package audit

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
)

// Field case 58: a disk that takes its time is no hang, one that never answers is.
func TestTheLogIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alive := func(l *Log) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return l.Alive(ctx)
		}
		l := open(t, filepath.Join(t.TempDir(), "audit.log"))
		if err := alive(l); err != nil {
			t.Error(err)
		}
		add(t, l, 1)
		synctest.Wait()
		if err := alive(l); err != nil {
			t.Errorf("while records gather: %v", err)
		}
		release := make(chan struct{})
		l.mu.Lock()
		l.fsync = func(*os.File) error { <-release; return nil }
		l.mu.Unlock()
		add(t, l, 1)
		faketime.Advance(10 * time.Second)
		if err := alive(l); err != nil {
			t.Errorf("while a slow card syncs: %v", err)
		}
		faketime.Advance(syncOverdue)
		if err := alive(l); err == nil || !strings.Contains(err.Error(), "audit records on the disk is late") {
			t.Errorf("while a sync hangs: %v", err)
		}
		close(release)
		if err := alive(l); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if alive(l) == nil {
			t.Error("closed and alive")
		}
	})
}
