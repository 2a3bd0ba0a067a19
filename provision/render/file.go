package render

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// File is one file to be there, or a symbolic link.
type File struct {
	Path  string // absolute
	Link  string // not empty: a symbolic link to this
	Data  []byte
	Mode  fs.FileMode
	Group int // its group's number; the owner is root
}

// Tree is where files are written.
type Tree struct {
	// Root is the directory below which the paths of files lie; empty: /.
	Root string
	// Chown gives a file to a user and a group; nil: os.Lchown. Tests that don't
	// run as root have another.
	Chown func(path string, uid, gid int) error
}

// manifest lists what the last Write made, one path a line.
const manifest = "/run/farhand/rendered"

// Path is where a file of the system lies.
func (t Tree) Path(path string) string {
	if t.Root == "" {
		return path
	}
	return filepath.Join(t.Root, path)
}

// Write makes the files, each replaced as a whole unless it is as it should be,
// and removes what an earlier call made and this one doesn't. It goes on after a
// failure.
func (t Tree) Write(files []File) error {
	var errs []error
	var paths []string
	for _, f := range files {
		if err := t.put(f); err != nil {
			errs = append(errs, fmt.Errorf("render %s: %w", f.Path, err))
		}
		paths = append(paths, f.Path)
	}
	old, err := os.ReadFile(t.Path(manifest))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for path := range strings.Lines(string(old)) {
		if path = strings.TrimSpace(path); path == "" || slices.Contains(paths, path) {
			continue
		}
		if err := os.Remove(t.Path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := t.put(File{Path: manifest, Data: []byte(strings.Join(paths, "\n") + "\n"), Mode: 0o644}); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Replace makes one file, as Write does, without being what the next Write goes
// by.
func (t Tree) Replace(f File) error {
	if err := t.put(f); err != nil {
		return fmt.Errorf("render %s: %w", f.Path, err)
	}
	return nil
}

func (t Tree) put(f File) error {
	path := t.Path(f.Path)
	if there(path, f) { // programs that watch it have nothing to do
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var r [8]byte
	rand.Read(r[:]) // never fails (crypto/rand)
	temp := filepath.Join(filepath.Dir(path), ".render-"+hex.EncodeToString(r[:]))
	if err := t.make(temp, f); err != nil {
		os.Remove(temp)
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return err
	}
	return nil
}

// there says whether the file is as it should be, its owner aside.
func there(path string, f File) bool {
	info, err := os.Lstat(path)
	if err != nil || f.Link == "" && (info.Mode() != f.Mode || info.Size() != int64(len(f.Data))) {
		return false
	}
	if f.Link != "" {
		to, err := os.Readlink(path)
		return err == nil && to == f.Link
	}
	data, err := os.ReadFile(path)
	return err == nil && bytes.Equal(data, f.Data)
}

func (t Tree) make(temp string, f File) error {
	if f.Link != "" {
		return os.Symlink(f.Link, temp)
	}
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(f.Data)
	if err == nil && f.Group != 0 {
		err = t.Own(temp, 0, f.Group)
	}
	if err == nil {
		err = file.Chmod(f.Mode) // the umask notwithstanding, and after chown, which clears bits
	}
	return errors.Join(err, file.Close())
}

// Own gives a file, by its path on this machine, to a user and a group.
func (t Tree) Own(path string, uid, gid int) error {
	if t.Chown != nil {
		return t.Chown(path, uid, gid)
	}
	return os.Lchown(path, uid, gid)
}
