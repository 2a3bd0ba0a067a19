package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInstallForOneUser(t *testing.T) {
	root := t.TempDir()
	code, out, errs := invoke(t, "install", "--user", "--root", root, "--platform-url", "https://relay.example.org", "--shell-enabled")
	if code != exitOK {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	var found []string
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) == "farhandd.toml" {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) != 1 {
		t.Fatalf("%q, %v: %s", found, err, out)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"platform_url = \"https://relay.example.org\"\n", "\n[shell]\nenabled = true\n"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%q isn't in:\n%s", want, b)
		}
	}
}

// What can't work is refused before anything is written.
func TestInstallRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--user", "--helper"}, exitUsage, "leave out --user"},
		{[]string{"--user", "--prefix", "opt"}, exitUsage, "absolute"},
		{[]string{"--user", "--platform-url", "http://relay.example.org"}, exitConfig, "https://"},
		{[]string{"--user", "--limits-max-concurrent", "0"}, exitConfig, "max_concurrent"},
		{[]string{"more"}, exitUsage, "unexpected argument"},
	} {
		root := t.TempDir()
		code, _, errs := invoke(t, append([]string{"install", "--root", root}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%q: exit %d: %s", c.args, code, errs)
		}
		if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
			t.Errorf("%q: wrote %v (%v)", c.args, left, err)
		}
	}
}
