// Package atomicfile replaces small files so that a reader, and whoever comes
// after a crash or a power cut, sees the old content or the new one, never a
// part of either.
package atomicfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// tempMark stands between the name of the file and the random part in the name
// of the temporary file.
const tempMark = ".tmp-"

// Write replaces the content of path by data and sets its mode to perm, the
// umask notwithstanding. When it returns nil, the content is on the disk. The
// temporary file lies in the same directory; it is gone after a failure, and
// RemoveStale collects those of a killed process. Concurrent writers of one path
// don't disturb each other: one of them wins.
func Write(path string, data []byte, perm fs.FileMode) error {
	return write(path, data, perm, os.Rename)
}

// Create is Write for a path that must not exist: one that does is left alone,
// and the error is fs.ErrExist. Of two that create at the same time one wins.
func Create(path string, data []byte, perm fs.FileMode) error {
	return write(path, data, perm, func(temp, path string) error {
		if err := os.Link(temp, path); err == nil {
			return os.Remove(temp)
		} else if errors.Is(err, fs.ErrExist) {
			return err
		}
		// A file system without links: the gap between looking and renaming
		// stays.
		if _, err := os.Lstat(path); err == nil {
			return fs.ErrExist
		}
		return os.Rename(temp, path)
	})
}

func write(path string, data []byte, perm fs.FileMode, place func(temp, path string) error) (err error) {
	dir := filepath.Dir(path)
	f, err := createTemp(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if runtime.GOOS != "windows" {
		if err := f.Chmod(perm); err != nil {
			return err
		}
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

func createTemp(path string) (*os.File, error) {
	for {
		var r [8]byte
		rand.Read(r[:]) // never fails (crypto/rand)
		name := path + tempMark + hex.EncodeToString(r[:])
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// SyncDir makes the names in dir durable: a new, renamed or removed entry is on
// the disk when it returns nil. Windows has no such call; there it does nothing.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// RemoveStale removes the temporary files that a killed process left of path.
// The caller makes sure that nobody is writing path now.
func RemoveStale(path string) error {
	dir, prefix := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove stale files of %s: %w", path, err)
	}
	prefix += tempMark
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), prefix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
