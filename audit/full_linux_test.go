package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/internal/testenv"
	"farhand/wire"
)

// smallDisk is a directory on a file system of 128 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k")
	testenv.Need(t, "mount", err == nil, fmt.Sprint("a small tmpfs: ", err))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk fills a real one: the log says so, keeps its chain, and goes on
// by itself when there is room.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "audit.log")
	must(t, os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 40<<10), 0o600))
	l, err := Open(Options{Path: path, Key: testKey})
	must(t, err)
	defer l.Close()
	e := Entry{Op: "X", Details: []Field{String("pad", strings.Repeat("x", 1500))}}
	taken := int64(0)
	for {
		if err = l.Append(e); err != nil {
			break
		}
		if taken++; taken > 1000 {
			t.Fatal("the disk never fills")
		}
	}
	if wire.CodeOf(err) != wire.DiskFull {
		t.Errorf("%v", err)
	}
	wantClean(t, path, taken)
	must(t, os.Remove(filepath.Join(dir, "ballast")))
	must(t, l.AppendSync(t.Context(), e))
	must(t, l.Close())
	if r := wantClean(t, path, taken+1); len(r.Notes) != 0 {
		t.Errorf("%v", r.Notes)
	}
}

// TestTornTailOnFullDisk: what can't be set aside is dropped, rather than never
// starting again.
func TestTornTailOnFullDisk(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "audit.log")
	l := open(t, path)
	add(t, l, 3)
	must(t, l.Close())
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	for err == nil { // until the disk is full
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	l = open(t, path)
	add(t, l, 1)
	must(t, l.Close())
	if r := wantClean(t, path, 5); len(r.Notes) != 1 {
		t.Errorf("%v", r.Notes)
	}
	if left, err := filepath.Glob(path + ".torn*"); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
