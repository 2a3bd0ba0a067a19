package fat

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	d := &Directory{Path: dir}
	for _, content := range []string{"one", "two, longer", ""} {
		// What a power cut left is no obstacle.
		if err := os.WriteFile(filepath.Join(dir, "PAIR.TXT.new"), []byte("left over and longer than all of them"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Commit(t.Context(), func(root *os.Root) error { return Replace(root, "PAIR.TXT", []byte(content)) }); err != nil {
			t.Fatal(err)
		}
		var got []byte
		if err := d.View(t.Context(), func(root *os.Root) (err error) {
			got, err = Read(root, "PAIR.TXT", 100)
			return err
		}); err != nil || string(got) != content || got == nil {
			t.Errorf("%q, %v; want %q", got, err, content)
		}
		if names := list(t, dir); names != "PAIR.TXT" {
			t.Errorf("directory: %s", names)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "long"), make([]byte, 11), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := &Directory{Path: dir}
	if err := d.View(t.Context(), func(root *os.Root) error {
		if b, err := Read(root, "none", 10); b != nil || err != nil {
			t.Errorf("no file: %q, %v", b, err)
		}
		if _, err := Read(root, "long", 10); err == nil {
			t.Error("a file that is too long was read")
		}
		if _, err := Read(root, "dir", 10); err == nil {
			t.Error("a directory was read")
		}
		if _, err := Read(root, "../"+filepath.Base(dir)+"/long", 100); err == nil {
			t.Error("the way out of the volume is open")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A second name of the file shows what is left of its content.
func TestShred(t *testing.T) {
	dir := t.TempDir()
	secret, witness := filepath.Join(dir, "secret"), filepath.Join(t.TempDir(), "witness")
	if err := os.WriteFile(secret, []byte(strings.Repeat("password", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(secret, witness); err != nil {
		t.Fatal(err)
	}
	d := &Directory{Path: dir}
	for range 2 { // nothing to shred is no error
		if err := d.Commit(t.Context(), func(root *os.Root) error { return Shred(root, "secret") }); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadFile(witness)
	if err != nil || len(left) != 40000 || len(bytes.Trim(left, "\x00")) > 0 {
		t.Errorf("%d bytes left, %v", len(left), err)
	}
	if names := list(t, dir); names != "" {
		t.Errorf("directory: %s", names)
	}
}

func TestChangeFails(t *testing.T) {
	d := &Directory{Path: t.TempDir()}
	want := errors.New("no")
	if err := d.Commit(t.Context(), func(*os.Root) error { return want }); !errors.Is(err, want) {
		t.Error(err)
	}
	if err := (&Directory{Path: "/nowhere"}).View(t.Context(), func(*os.Root) error { return nil }); err == nil {
		t.Error("a directory that isn't there was opened")
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
