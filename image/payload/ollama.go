// Package payload is what an image brings on its data partition, where a card has
// room that the read-only root doesn't: Ollama, out of its maker's archive for
// Linux.
//
// It lies where ollama.service looks and where a later one is put beside it:
// ollama/versions/ID holds an archive's bin and lib, ID being the beginning of the
// archive's SHA-256, and the link ollama/current leads to the one that runs.
package payload

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"farhand/image/spec"
	"farhand/internal/ollamapack"
)

// Ollama unpacks an archive, whose checksum is looked at first, below tree: a
// data partition's. It gives every file the same time.
func Ollama(ctx context.Context, o spec.Ollama, tree string, epoch time.Time) error {
	f, err := os.Open(o.Tarball)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := verify(ctx, f, o.SHA256); err != nil {
		return fmt.Errorf("%s: %w", o.Tarball, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	id := o.SHA256[:12]
	to := filepath.Join(tree, "ollama/versions", id)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unpack(ctx, f, to); err != nil {
		return fmt.Errorf("%s: %w", o.Tarball, err)
	}
	if info, err := os.Stat(filepath.Join(to, ollamapack.Program)); err != nil || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s: it has no program bin/ollama: is it Ollama's archive for Linux?", o.Tarball)
	}
	if err := os.Symlink("versions/"+id, filepath.Join(tree, "ollama/current")); err != nil {
		return err
	}
	return settle(tree, epoch)
}

func verify(ctx context.Context, f io.Reader, want string) error {
	h := sha256.New()
	if _, err := io.Copy(h, ollamapack.Reader{Context: ctx, From: f}); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("its SHA-256 is %s, the spec says %s", got, want)
	}
	return nil
}

// unpack makes an archive's files below a folder, which nothing of it leaves.
func unpack(ctx context.Context, f io.Reader, to string) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	return ollamapack.Each(ctx, f, func(name string, h *tar.Header, content io.Reader) error {
		return place(root, content, h, name)
	})
}

func place(root *os.Root, r io.Reader, h *tar.Header, name string) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		mode := os.FileMode(0o644)
		if h.Mode&0o111 != 0 {
			mode = 0o755
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Chmod(mode), f.Close())
	case tar.TypeSymlink:
		if path.IsAbs(h.Linkname) {
			return fmt.Errorf("it is a link to %s, which is elsewhere on a machine", h.Linkname)
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	}
	return fmt.Errorf("it is of type %q", h.Typeflag)
}

// Size is how much room a tree's files take in blocks of 4 KiB, bytes.
func Size(tree string) (n int64, err error) {
	const block = 4096
	err = filepath.WalkDir(tree, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		n += (info.Size()/block + 1) * block
		return nil
	})
	return n, err
}

// settle gives every file the same times.
func settle(tree string, epoch time.Time) error {
	times := []unix.Timespec{unix.NsecToTimespec(epoch.UnixNano()), unix.NsecToTimespec(epoch.UnixNano())}
	return filepath.WalkDir(tree, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, name, times, unix.AT_SYMLINK_NOFOLLOW)
	})
}
