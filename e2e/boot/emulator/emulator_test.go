package emulator

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"farhand/internal/testenv"
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
	fetched := filepath.Join(cache, "qemu-system-arm/usr/bin/qemu-system-aarch64")
	fake(t, fetched, "10.0.2")
	for _, c := range []struct {
		oldest        int
		path, version string
	}{
		{AnyVersion, filepath.Join(own, "qemu-system-aarch64"), "7.2.22"},
		{Oldest, fetched, "10.0.2"},
	} {
		p, err := Locate(t.Context(), Arm64(), c.oldest, cache, io.Discard)
		if err != nil || p.Path != c.path || p.Version != c.version {
			t.Errorf("of %d or later there is %+v, %v", c.oldest, p, err)
		}
	}
	fake(t, fetched, "8.1")
	if _, err := Locate(t.Context(), Arm64(), Oldest, cache, io.Discard); err == nil || !strings.Contains(err.Error(), "remove") {
		t.Errorf("an old one in the cache: %v", err)
	}
	fake(t, fetched, "of no number")
	if _, err := Locate(t.Context(), Arm64(), Oldest, cache, io.Discard); err == nil {
		t.Error("a program without a version is taken")
	}
}

// What is unpacked is started by the linker that its program names.
func TestUnpacked(t *testing.T) {
	linker, err := interpreter("/bin/sh")
	testenv.Need(t, "linux", err == nil, "there is no dynamic /bin/sh")
	tree := t.TempDir()
	for _, dir := range []string{"usr/bin", "usr/lib/x86_64-linux-gnu/qemu", filepath.Dir("usr" + linker)} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"usr/bin/qemu-system-aarch64", "usr" + linker} {
		if err := os.Symlink("/bin/sh", filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	p := unpacked(tree, Arm64())
	if p.Path != filepath.Join(tree, "usr"+linker) || len(p.Args) != 3 || p.Args[2] != filepath.Join(tree, "usr/bin/qemu-system-aarch64") {
		t.Errorf("it is started as %s %q", p.Path, p.Args)
	}
	if !strings.Contains(strings.Join(p.Env, " "), "QEMU_MODULE_DIR="+tree) {
		t.Errorf("its environment is %q", p.Env)
	}
}
