// Package fat changes files of a boot partition without leaving it mounted: a
// FAT that is written when the power goes loses more than the file that was
// being written, so it is mounted for reading to look, for writing to commit,
// and not at all in between.
//
// What is overwritten here before it is removed is gone for every program that
// reads the card. The card's own controller may keep old copies in blocks that
// it has taken out of use; nothing a system can do reaches those.
package fat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Volume is a partition's file system. Its methods may be called from several
// goroutines; each waits for the others.
type Volume interface {
	// View calls look with the root directory, which can only be read.
	View(ctx context.Context, look func(*os.Root) error) error
	// Commit calls change with the root directory, and returns when what it did
	// is on the disk.
	Commit(ctx context.Context, change func(*os.Root) error) error
}

// Directory is a Volume in a directory, for a file system that somebody else has
// mounted, and for tests. Its View can't keep look from writing.
type Directory struct {
	Path string
	mu   sync.Mutex
}

var _ Volume = (*Directory)(nil)

// View implements Volume.
func (d *Directory) View(ctx context.Context, look func(*os.Root) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return in(ctx, d.Path, look)
}

// Commit implements Volume.
func (d *Directory) Commit(ctx context.Context, change func(*os.Root) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return in(ctx, d.Path, func(root *os.Root) error {
		return errors.Join(change(root), syncRoot(root))
	})
}

func in(ctx context.Context, path string, do func(*os.Root) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}

// Read is a file's content, at most most bytes of it: a longer one is an error.
// A file that isn't there is nil without error.
func Read(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return append([]byte{}, b...), nil // not nil, even if empty
}

// newSuffix marks a file that is being written. One that a power cut left is
// written over by the next try.
const newSuffix = ".new"

// Replace gives a file new content: beside it, synced, and then in its place.
func Replace(root *os.Root, name string, data []byte) error {
	temp := name + newSuffix
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		root.Remove(temp)
		return err
	}
	return syncRoot(root)
}

// Shred overwrites a file with zeros, makes sure that they are on the disk, and
// removes it. One that isn't there is no error.
func Shred(root *os.Root, name string) error {
	f, err := root.OpenFile(name, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = io.CopyN(f, zeros{}, info.Size())
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return Remove(root, name)
}

// Remove removes a file. One that isn't there is no error.
func Remove(root *os.Root, name string) error {
	err := root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncRoot(root)
}

func syncRoot(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
