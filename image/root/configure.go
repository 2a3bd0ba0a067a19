package root

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"farhand/systemd/units"
)

// files is laid over the packages' own.
//
//go:embed files
var files embed.FS

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// links of the root that packages leave to their scripts, or that lead to what
// provisioning renders.
func links() map[string]string {
	return map[string]string{
		"usr/sbin/init":                      "../lib/systemd/systemd",
		"usr/sbin/halt":                      "../bin/systemctl",
		"usr/sbin/poweroff":                  "../bin/systemctl",
		"usr/sbin/reboot":                    "../bin/systemctl",
		"usr/sbin/shutdown":                  "../bin/systemctl",
		"usr/lib/firmware/regulatory.db":     "regulatory.db-debian",
		"usr/lib/firmware/regulatory.db.p7s": "regulatory.db.p7s-debian",
		"usr/bin/awk":                        "mawk",
		"usr/bin/editor":                     "nano",
		"usr/bin/pager":                      "less",
		"etc/localtime":                      "/run/farhand/localtime",
		"etc/resolv.conf":                    "/run/systemd/resolve/stub-resolv.conf",
		"etc/vconsole.conf":                  "default/keyboard",
		"etc/farhand/farhandd.toml":          "/run/farhand/config.toml",
		"etc/default/locale":                 "../locale.conf",
		"etc/iwd/main.conf":                  "/run/farhand/iwd/main.conf",
		"etc/mtab":                           "../proc/self/mounts",
		"etc/os-release":                     "../usr/lib/os-release",
		"etc/ssl/cert.pem":                   "certs/ca-certificates.crt",
		"usr/lib/ssl/certs":                  "/etc/ssl/certs",
	}
}

// enabled are units of packages, with what wants them.
func enabled() map[string]string {
	return map[string]string{
		"systemd-networkd.service":          "multi-user.target.wants",
		"systemd-networkd.socket":           "sockets.target.wants",
		"systemd-resolved.service":          "sysinit.target.wants",
		"systemd-timesyncd.service":         "sysinit.target.wants",
		"iwd.service":                       "multi-user.target.wants",
		"systemd-network-generator.service": "sysinit.target.wants",
		"fstrim.timer":                      "timers.target.wants",
	}
}

// masked are units that would change a root which can't change, or that do what
// the initramfs or provisioning does here.
func masked() []string {
	return []string{
		"systemd-firstboot.service", "systemd-machine-id-commit.service", "systemd-random-seed.service", "systemd-sysusers.service",
		"systemd-hwdb-update.service", "systemd-update-done.service", "systemd-journal-catalog-update.service", "ldconfig.service",
		"systemd-networkd-wait-online.service", "systemd-boot-random-seed.service", "systemd-growfs-root.service", "systemd-remount-fs.service",
		"sshd-keygen.service", "systemd-homed.service", "systemd-homed-firstboot.service", "getty@.service", "autovt@.service", "serial-getty@.service", "console-getty.service",
		"e2scrub_all.timer", "e2scrub_all.service", "e2scrub_reap.service", "dpkg-db-backup.timer", "apt-daily.timer", "apt-daily-upgrade.timer",
		"systemd-pcrphase.service", "systemd-pcrphase-sysinit.service", "systemd-pcrmachine.service", "systemd-tpm2-setup.service", "systemd-tpm2-setup-early.service",
		"systemd-rfkill.service", "systemd-rfkill.socket", "systemd-backlight@.service", "systemd-hibernate-resume.service",
	}
}

// configure does what the packages' scripts would, and lays the image's own
// files over the tree.
func configure(tree string, o Options) error {
	for _, dir := range []string{"data", "boot/farhand", "boot/firmware", "dev", "proc", "sys", "run", "tmp", "root", "home", "mnt", "media", "srv", "opt", "var", "usr/local/bin", "etc/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(tree, "root"), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(tree, "tmp"), 0o1777|os.ModeSticky); err != nil {
		return err
	}
	// Packages bring these; here they are mount points.
	for _, dir := range []string{"var", "run", "tmp"} {
		if err := emptyDir(filepath.Join(tree, dir)); err != nil {
			return err
		}
	}
	// What systemd-tmpfiles would make at every start, if it could.
	for _, dir := range []string{"etc/credstore", "etc/credstore.encrypted"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(tree, dir), 0o700), os.Chmod(filepath.Join(tree, dir), 0o700)); err != nil {
			return err
		}
	}
	if err := writeUsers(tree, o.Epoch.Unix()/int64(24*time.Hour/time.Second)); err != nil {
		return fmt.Errorf("users: %w", err)
	}
	if err := bundleCertificates(tree); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := layOver(tree); err != nil {
		return err
	}
	for name, to := range links() {
		if err := link(tree, name, to); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{
		"usr/share/base-files/profile": "etc/profile", "usr/share/base-files/dot.bashrc": "root/.bashrc", "usr/share/openssh/sshd_config": "etc/ssh/sshd_config",
	} {
		if err := copyFile(filepath.Join(tree, from), filepath.Join(tree, to), 0o644); err != nil {
			return err
		}
	}
	if err := openSudoers(tree); err != nil {
		return err
	}
	if err := nameImage(tree, o); err != nil {
		return err
	}
	return enableUnits(tree)
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func link(tree, name, to string) error {
	at := filepath.Join(tree, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	return os.Symlink(to, at)
}

func copyFile(from, to string, mode os.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, b, mode); err != nil {
		return err
	}
	return os.Chmod(to, mode)
}

// layOver copies the image's own files into the tree.
func layOver(tree string) error {
	return fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		at := filepath.Join(tree, strings.TrimPrefix(name, "files/"))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		return os.WriteFile(at, b, 0o644)
	})
}

// openSudoers lets sudo read what provisioning renders.
func openSudoers(tree string) error {
	at := filepath.Join(tree, "etc/sudoers")
	b, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	return os.WriteFile(at, append(b, "\n@includedir /run/farhand/sudoers.d\n"...), 0o440)
}

// bundleCertificates joins the authorities that Mozilla trusts into the file
// that programs read.
func bundleCertificates(tree string) error {
	all, err := filepath.Glob(filepath.Join(tree, "usr/share/ca-certificates/mozilla/*.crt"))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("the package has none")
	}
	var bundle []byte
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		bundle = append(append(bundle, strings.TrimRight(string(b), "\n")...), '\n')
	}
	dir := filepath.Join(tree, "etc/ssl/certs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(tree, "usr/share/ca-certificates")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "ca-certificates.crt"), bundle, 0o644)
}

// nameImage says in os-release what this is, which is where status and support
// look.
func nameImage(tree string, o Options) error {
	at := filepath.Join(tree, "usr/lib/os-release")
	b, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	b = fmt.Appendf(b, "IMAGE_ID=farhand\nIMAGE_VERSION=%q\nVARIANT=\"Farhand appliance\"\nVARIANT_ID=farhand\n", o.Version)
	if err := os.WriteFile(at, b, 0o644); err != nil {
		return err
	}
	// systemd never sets the clock earlier than this file's time.
	return os.WriteFile(filepath.Join(tree, "usr/lib/clock-epoch"), nil, 0o644)
}

func enableUnits(tree string) error {
	o := units.Options{Appliance: true}
	all, err := units.Files(o)
	if err != nil {
		return err
	}
	for _, f := range all {
		at := filepath.Join(tree, f.Path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(f.Content), 0o644); err != nil {
			return err
		}
	}
	const lib = "usr/lib/systemd/system"
	wants := maps.Clone(enabled())
	for _, name := range o.Enabled() {
		target, err := wantedBy(filepath.Join(tree, lib, name))
		if err != nil {
			return err
		}
		wants[name] = target + ".wants"
	}
	for name, target := range wants {
		if _, err := os.Stat(filepath.Join(tree, lib, name)); err != nil {
			return fmt.Errorf("a unit to be enabled: %w", err)
		}
		if err := link(tree, path.Join("etc/systemd/system", target, name), "/"+path.Join(lib, name)); err != nil {
			return err
		}
	}
	for _, name := range masked() {
		if err := link(tree, path.Join("etc/systemd/system", name), "/dev/null"); err != nil {
			return err
		}
	}
	if err := link(tree, "etc/systemd/system/default.target", "/"+lib+"/multi-user.target"); err != nil {
		return err
	}
	if err := link(tree, "etc/systemd/system/dbus.service", "/"+lib+"/dbus-broker.service"); err != nil {
		return err
	}
	if err := link(tree, "etc/systemd/system/dbus-org.freedesktop.network1.service", "/"+lib+"/systemd-networkd.service"); err != nil {
		return err
	}
	return link(tree, "etc/systemd/system/dbus-org.freedesktop.resolve1.service", "/"+lib+"/systemd-resolved.service")
}

// wantedBy is the target of a unit's [Install] section.
func wantedBy(unit string) (string, error) {
	b, err := os.ReadFile(unit)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if target, ok := strings.CutPrefix(strings.TrimSpace(line), "WantedBy="); ok {
			return target, nil
		}
	}
	return "", fmt.Errorf("%s names no target that wants it", filepath.Base(unit))
}
