package emulator

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake is an emulator that says its version.
func fake(t *testing.T, path, version string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho 'QEMU emulator version "+version+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestLocate(t *testing.T) {
	own, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", own)
	fake(t, filepath.Join(own, "qemu-system-aarch64"), "7.2.22 (Debian 1:7.2)")
	fetched := filepath.Join(cache, "qemu/usr/bin/qemu-system-aarch64")
	fake(t, fetched, "10.0.2")
	for _, c := range []struct {
		oldest        int
		path, version string
	}{
		{AnyVersion, filepath.Join(own, "qemu-system-aarch64"), "7.2.22"},
		{Oldest, fetched, "10.0.2"},
	} {
		p, err := Locate(t.Context(), c.oldest, cache, io.Discard)
		if err != nil || p.Path != c.path || p.Version != c.version {
			t.Errorf("of %d or later there is %+v, %v", c.oldest, p, err)
		}
	}
	fake(t, fetched, "8.1")
	if _, err := Locate(t.Context(), Oldest, cache, io.Discard); err == nil || !strings.Contains(err.Error(), "remove") {
		t.Errorf("an old one in the cache: %v", err)
	}
	fake(t, fetched, "of no number")
	if _, err := Locate(t.Context(), Oldest, cache, io.Discard); err == nil {
		t.Error("a program without a version is taken")
	}
}

func TestPrepare(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	say := func(text string) {
		if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte("#!/bin/sh\ncat <<'E'\n"+text+"E\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := apt{dir: t.TempDir()}
	say("http://a.example/tools|nodistro|/k.gpg\nhttp://a.example/debian/|bookworm|/k.gpg\n")
	from, err := a.prepare(context.Background())
	if err != nil || from != "bookworm-backports" {
		t.Fatalf("it comes from %q, %v", from, err)
	}
	list, err := os.ReadFile(filepath.Join(a.dir, "sources.list"))
	if err != nil || strings.Count(string(list), "http://a.example/debian/ bookworm") != 2 || strings.Contains(string(list), "tools") {
		t.Errorf("the sources are %q, %v", list, err)
	}
	say("http://a.example/tools|nodistro|/k.gpg\n")
	if _, err := a.prepare(context.Background()); err == nil {
		t.Error("a machine without Debian's archive has one")
	}
}
