package root

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unpack puts a package's files into the tree, but for those that a device has
// no use for.
func unpack(ctx context.Context, deb, tree string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = extract(tar.NewReader(out), tree)
	if err == nil {
		_, err = io.Copy(io.Discard, out) // padding after the end
	} else {
		_ = cmd.Process.Kill()
	}
	if waitErr := cmd.Wait(); err == nil && waitErr != nil {
		err = fmt.Errorf("%w: %s", waitErr, strings.TrimSpace(errs.String()))
	}
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(deb), err)
	}
	return nil
}

func extract(r *tar.Reader, tree string) error {
	for {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" || excluded(name) {
			continue
		}
		if err := place(r, h, tree, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// place makes one file. Packages are Debian's, signed; a name through a link
// that leads out of the tree is refused all the same.
func place(r io.Reader, h *tar.Header, tree, name string) error {
	dir, err := inside(tree, path.Dir(name))
	if err != nil {
		return err
	}
	at := filepath.Join(dir, path.Base(name))
	mode := os.FileMode(h.Mode & 0o777)
	switch h.Typeflag {
	case tar.TypeDir:
		if info, err := os.Stat(at); err == nil && info.IsDir() {
			return nil // a link to a directory counts
		}
		if err := os.Mkdir(at, mode); err != nil {
			return err
		}
	case tar.TypeReg:
		if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if _, err := os.Lstat(at); err == nil {
			if err := os.Remove(at); err != nil {
				return err
			}
		}
		if err := os.Symlink(h.Linkname, at); err != nil {
			return err
		}
		return os.Lchown(at, h.Uid, h.Gid)
	case tar.TypeLink:
		from := strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		fromDir, err := inside(tree, path.Dir(from))
		if err != nil {
			return err
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return os.Link(filepath.Join(fromDir, path.Base(from)), at)
	default:
		return fmt.Errorf("a package has a file of type %q", h.Typeflag)
	}
	if err := os.Lchown(at, h.Uid, h.Gid); err != nil {
		return err
	}
	// After the owner, whose change takes the bits away that change the user.
	return unix.Chmod(at, uint32(h.Mode&0o7777))
}

// inside is the real directory behind a name in the tree, whose links are those
// of a merged /usr.
func inside(tree, name string) (string, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(tree, name))
	if errors.Is(err, os.ErrNotExist) { // its package brings it later, or never
		real = filepath.Join(tree, name)
		err = os.MkdirAll(real, 0o755)
	}
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(tree, real); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", fmt.Errorf("it leads out of the tree, to %s", real)
	}
	return real, nil
}

// excluded says whether nobody reads a file on a device without a console.
func excluded(name string) bool {
	for _, prefix := range []string{
		"usr/share/man", "usr/share/doc", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/bug", "usr/share/doc-base",
		"usr/share/bash-completion", "usr/share/zsh", "usr/share/fish", "usr/share/apport", "usr/share/initramfs-tools", "usr/share/polkit-1",
		"usr/share/pixmaps", "usr/share/applications", "usr/share/icons", "usr/share/perl5", "usr/share/debconf", "usr/share/gitweb",
		"usr/lib/udev/hwdb.d", "usr/lib/udev/hwdb.bin", "usr/lib/systemd/catalog", "usr/lib/kernel", "usr/share/mime", "usr/share/gdb", "usr/share/gcc",
		"usr/share/zoneinfo/right", "usr/share/zoneinfo/posix", "usr/lib/aarch64-linux-gnu/perl-base",
		"usr/lib/aarch64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/gconv", "usr/share/i18n", "usr/share/systemd/kbd-model-map",
		"etc/init.d", "etc/rc0.d", "etc/rcS.d", "etc/cron.daily", "etc/cron.d", "etc/kernel", "etc/apt", "etc/logrotate.d", "etc/ufw", "etc/initramfs-tools",
		"var/cache", "var/lib/dpkg", "usr/sbin/update-passwd", "usr/share/calendar", "usr/share/nano", "usr/share/base-files/networks",
	} {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			return true
		}
	}
	return false
}

// settle gives every file the same times, so that what is made of the tree is
// the same each time.
func settle(tree string, epoch time.Time) error {
	times := []unix.Timespec{unix.NsecToTimespec(epoch.UnixNano()), unix.NsecToTimespec(epoch.UnixNano())}
	return filepath.WalkDir(tree, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, name, times, unix.AT_SYMLINK_NOFOLLOW)
	})
}
