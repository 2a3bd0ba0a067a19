package root

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/internal/testenv"
)

// archive is a package's content.
func archive(t *testing.T, headers ...tar.Header) *tar.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		text := h.Uname
		h.Uname, h.Uid, h.Gid, h.Size = "", os.Getuid(), os.Getgid(), 0
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(text))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return tar.NewReader(&b)
}

func file(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Uname: text}
}

func TestExtract(t *testing.T) {
	tree := t.TempDir()
	if err := os.Symlink("usr/bin", filepath.Join(tree, "bin")); err != nil {
		t.Fatal(err)
	}
	err := extract(archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./usr/bin/", Mode: 0o755}, tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o755},
		file("./bin/a", "of a merged /usr"), file("./usr/share/doc/x", "left out"),
		tar.Header{Typeflag: tar.TypeLink, Name: "./usr/bin/b", Linkname: "./bin/a"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "./usr/bin/c", Linkname: "a"},
		tar.Header{Typeflag: tar.TypeReg, Name: "./usr/bin/sudo", Mode: 0o4755},
	), tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/bin/a", "usr/bin/b", "usr/bin/c"} {
		if b, err := os.ReadFile(filepath.Join(tree, name)); err != nil || string(b) != "of a merged /usr" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := os.Stat(filepath.Join(tree, "usr/share/doc")); !os.IsNotExist(err) {
		t.Errorf("documentation is unpacked: %v", err)
	}
	if info, err := os.Stat(filepath.Join(tree, "usr/bin/sudo")); err != nil || info.Mode()&os.ModeSetuid == 0 {
		t.Errorf("a bit is lost: %v, %v", info, err)
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(tree, "away")); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []tar.Header{file("away/x", "y"), {Typeflag: tar.TypeLink, Name: "z", Linkname: "away/x"}, {Typeflag: tar.TypeChar, Name: "d"}} {
		if err := extract(archive(t, bad), tree); err == nil {
			t.Errorf("%s is unpacked", bad.Name)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("%s is outside", left[0].Name())
	}
}

func TestUsers(t *testing.T) {
	testenv.Need(t, "root", os.Geteuid() == 0, "files of other users can't be made")
	tree := t.TempDir()
	base := filepath.Join(tree, "usr/share/base-passwd")
	for name, text := range map[string]string{"passwd.master": "root:*:0:0:root:/root:/bin/bash\n", "group.master": "root:*:0:\ndialout:*:20:\nplugdev:*:46:\nlp:*:7:\n"} {
		if err := os.MkdirAll(base, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(tree, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeUsers(tree, 20000); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(tree, "etc", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, line := range map[string]string{
		"passwd": "\nfarhand:x:900:900:Farhand daemon:/data/farhand:/usr/sbin/nologin\n",
		"group":  "\ndialout:x:20:farhand\n",
		"shadow": "\noperator:*:20000:0:99999:7:::\n",
	} {
		if !strings.Contains(read(name), line) {
			t.Errorf("%s lacks %q:\n%s", name, line, read(name))
		}
	}
	// Commands run as somebody who is in no device group.
	for line := range strings.Lines(read("group")) {
		if strings.Contains(line[strings.LastIndex(line, ":"):], "operator") {
			t.Errorf("commands may use what %s may", line)
		}
	}
	seen := make(map[string]string)
	for line := range strings.Lines(read("group")) {
		f := strings.Split(line, ":")
		if was := seen[f[2]]; was != "" {
			t.Errorf("%s and %s have the same number", was, f[0])
		}
		seen[f[2]] = f[0]
	}
	if info, err := os.Stat(filepath.Join(tree, "etc/shadow")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("shadow: %v, %v", info, err)
	}
}

func TestKeepModule(t *testing.T) {
	for name, want := range map[string]bool{
		"drivers/gpu/drm/vc4/vc4.ko.xz": true, "drivers/gpu/drm/amd/amdgpu/amdgpu.ko.xz": false, "sound/core/snd.ko.xz": false,
		"drivers/usb/serial/ftdi_sio.ko.xz": true, "drivers/net/ethernet/intel/e1000e/e1000e.ko.xz": false, "drivers/net/usb/smsc95xx.ko.xz": true,
		"fs/fat/vfat.ko.xz": true, "fs/btrfs/btrfs.ko.xz": false, "drivers/watchdog/bcm2835_wdt.ko.xz": true, "crypto/cmac.ko.xz": true,
		"drivers/gpio/gpio-sim.ko.xz": true, "drivers/usb/misc/usbio.ko.xz": true, "drivers/net/wireless/virtual/mac80211_hwsim.ko.xz": true,
	} {
		if keepModule(moduleRules, name) != want {
			t.Errorf("%s: kept %t", name, !want)
		}
	}
}

func TestSettle(t *testing.T) {
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("none", filepath.Join(tree, "b")); err != nil {
		t.Fatal(err)
	}
	epoch := time.Unix(1790000000, 0)
	if err := settle(tree, epoch); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".", "a", "b"} {
		if info, err := os.Lstat(filepath.Join(tree, name)); err != nil || !info.ModTime().Equal(epoch) {
			t.Errorf("%s: %v, %v", name, info.ModTime(), err)
		}
	}
}
