package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"farhand/internal/testenv"
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

// An update without the flags of the first time leaves everything as it was: the
// helper, and what the unit lets the daemon write to.
func TestInstallAgain(t *testing.T) {
	_, err := exec.LookPath("systemd-sysusers")
	testenv.Need(t, "root", os.Geteuid() == 0 && err == nil, "a service of the machine is installed by root, with systemd's tools")
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	units := filepath.Join(root, "etc/systemd/system/farhandd.service.d")
	config := filepath.Join(root, "etc/farhand/farhandd.toml")
	must := func(args ...string) {
		t.Helper()
		if code, out, errs := invoke(t, append([]string{"install", "--root", root}, args...)...); code != exitOK {
			t.Fatalf("%q: exit %d: %s%s", args, code, out, errs)
		}
	}
	must("--helper", "--roots", "/srv/farhand,/srv/projects")
	for _, edit := range []string{"/srv/projects", "/srv/measured"} { // the second time after its owner changed it
		b, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(config, []byte(strings.Replace(string(b), "/srv/projects", edit, 1)), 0o640); err != nil {
			t.Fatal(err)
		}
		must()
		if b, err := os.ReadFile(filepath.Join(units, "roots.conf")); err != nil || !strings.Contains(string(b), edit) {
			t.Errorf("the daemon may no longer write to %s: %v\n%s", edit, err, b)
		}
		if _, err := os.Stat(filepath.Join(units, "helper.conf")); err != nil {
			t.Errorf("commands would run as the daemon's user: %v", err)
		}
	}
	if err := os.WriteFile(config, []byte("nonsense = 1\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := invoke(t, "install", "--root", root); code != exitConfig || !strings.Contains(errs, "that is there") {
		t.Errorf("over a configuration that isn't understood: exit %d: %s", code, errs)
	}
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	must("--helper=false")
	if _, err := os.Stat(filepath.Join(units, "helper.conf")); err == nil {
		t.Error("the helper is still there")
	}
}
