package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrNotRegular says that something else than a file stands under a name.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLong says that a file is longer than anything that is written under its
// name.
var ErrTooLong = errors.New("file too long")

// Open opens a regular file for reading. Nothing else is opened, and a FIFO is
// never waited for.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile is os.OpenFile for regular files alone.
func OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|dontWait, perm)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return f, nil
}

// Read reads a regular file of at most most bytes.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("read %s: %w: more than %d bytes", path, ErrTooLong, most)
	}
	return data, nil
}
