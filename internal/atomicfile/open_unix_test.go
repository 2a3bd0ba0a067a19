//go:build unix

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What isn't a file of the expected length is refused at once.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{"fits": "1234", "empty": "", "long": "12345"} {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("dir"), 0o700), os.Symlink("fits", at("link")), os.Symlink("fifo", at("link to a fifo"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"fits": nil, "empty": nil, "link": nil, "long": ErrTooLong,
		"fifo": ErrNotRegular, "link to a fifo": ErrNotRegular, "dir": ErrNotRegular, os.DevNull: ErrNotRegular, "missing": fs.ErrNotExist,
	} {
		path := name
		if !filepath.IsAbs(path) {
			path = at(name)
		}
		data, err := Read(path, 4)
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s isn't named: %v", name, err)
		}
	}
	if _, err := OpenFile(at("fifo"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); !errors.Is(err, ErrNotRegular) {
		t.Errorf("opened a FIFO for writing: %v", err)
	}
	f, err := OpenFile(at("new"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
