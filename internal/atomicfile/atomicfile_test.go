package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, data := range []string{"one", "", "three and longer"} {
		if err := Write(path, []byte(data), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != data {
			t.Fatalf("read %q, %v", got, err)
		}
	}
	if fi, err := os.Stat(path); err != nil || (runtime.GOOS != "windows" && fi.Mode().Perm() != 0o640) {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	onlyEntry(t, filepath.Dir(path), "f")
}

func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Mkdir(path, 0o700); err != nil { // a rename over a directory fails
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Error("wrote over a directory")
	}
	onlyEntry(t, dir, "f")
	if err := Write(filepath.Join(dir, "none", "f"), nil, 0o600); err == nil {
		t.Error("wrote into a directory that doesn't exist")
	}
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var wg sync.WaitGroup
	won := make(chan byte, 8)
	for i := range 8 {
		wg.Go(func() {
			switch err := Create(path, []byte{byte(i)}, 0o600); {
			case err == nil:
				won <- byte(i)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d winners", len(won))
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, []byte{<-won}) {
		t.Errorf("read %v, %v", got, err)
	}
	onlyEntry(t, filepath.Dir(path), "f")
}

// TestNeverTorn: a reader beside many writers sees one of the contents whole.
func TestNeverTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 10_000*(i+1)) }
	if err := Write(path, content(0), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 10 {
				if err := Write(path, content(i), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		got, err := os.ReadFile(path)
		if err != nil || len(got) == 0 || !bytes.Equal(got, content(int(got[0]-'a'))) {
			t.Fatalf("torn: %d bytes, %v", len(got), err)
		}
	}
}

func TestRemoveStale(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, name := range []string{"f", "f.tmp-0011", "f.tmp-2233"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveStale(path); err != nil {
		t.Fatal(err)
	}
	onlyEntry(t, dir, "f")
}

func onlyEntry(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("entries %v, %v", entries, err)
	}
}
