package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWhy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nothing", "file")
	err := Write(path, nil, 0o600)
	if why := Why(err); err == nil || strings.Contains(why, "nothing") || why != syscall.ENOENT.Error() {
		t.Errorf("%v: %q", err, why)
	}
	if Full(err) || !Full(&os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}) {
		t.Error("what is full is told wrong")
	}
}
