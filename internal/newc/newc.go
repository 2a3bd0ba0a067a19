// Package newc writes the cpio archive that the kernel unpacks as its
// first root file system.
//
// The format is "newc" of the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst: a header of
// thirteen fields of eight hexadecimal digits, then the name and the data, each
// padded to four bytes. The archive is not compressed: under emulation,
// unpacking would take longer than copying does.
package newc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// File types of the mode field (inode(7)).
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeChar = 0o020000
)

// Writer writes one archive. Its methods are not for concurrent use.
type Writer struct {
	w       io.Writer
	written int64
	inode   uint32
	dirs    map[string]bool
}

// NewWriter returns a Writer to w. End completes the archive.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, dirs: map[string]bool{"": true}}
}

// Dir adds a directory and those above it. Adding one twice does nothing.
func (w *Writer) Dir(name string) error {
	name = clean(name)
	if w.dirs[name] {
		return nil
	}
	if err := w.above(name); err != nil {
		return err
	}
	w.dirs[name] = true
	return w.entry(entry{name: name, mode: typeDir | 0o755, links: 2}, nil)
}

// Bytes adds a file.
func (w *Writer) Bytes(name string, mode fs.FileMode, data []byte) error {
	return w.file(name, mode, int64(len(data)), strings.NewReader(string(data)))
}

// File adds what the host has as from.
func (w *Writer) File(name string, mode fs.FileMode, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return w.file(name, mode, info.Size(), f)
}

// Char adds a character device.
func (w *Writer) Char(name string, mode fs.FileMode, major, minor uint32) error {
	name = clean(name)
	if err := w.above(name); err != nil {
		return err
	}
	return w.entry(entry{name: name, mode: typeChar | uint32(mode.Perm()), links: 1, major: major, minor: minor}, nil)
}

// End writes the archive's last entry. The Writer is of no use afterwards.
func (w *Writer) End() error {
	w.inode = 0
	return w.entry(entry{name: "TRAILER!!!", links: 1}, nil)
}

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func (w *Writer) above(name string) error {
	if dir := path.Dir(name); dir != "." {
		return w.Dir(dir)
	}
	return nil
}

func (w *Writer) file(name string, mode fs.FileMode, size int64, data io.Reader) error {
	name = clean(name)
	if err := w.above(name); err != nil {
		return err
	}
	return w.entry(entry{name: name, mode: typeFile | uint32(mode.Perm()), links: 1, size: size}, data)
}

type entry struct {
	name         string
	mode, links  uint32
	size         int64
	major, minor uint32
}

func (w *Writer) entry(e entry, data io.Reader) error {
	if e.size > 1<<32-1 {
		return fmt.Errorf("%s: a file of an archive has at most 4 GiB", e.name)
	}
	if e.name != "TRAILER!!!" {
		w.inode++
	}
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor,
	// rdevmajor, rdevminor, namesize with its NUL, check (0 for this magic).
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		w.inode, e.mode, 0, 0, e.links, 0, e.size, 0, 0, e.major, e.minor, len(e.name)+1, 0, e.name)
	if err := w.padded(strings.NewReader(head), int64(len(head))); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	if data == nil {
		return nil
	}
	if err := w.padded(data, e.size); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// padded writes size bytes and as many zeros as reach the next multiple of four.
func (w *Writer) padded(data io.Reader, size int64) error {
	n, err := io.CopyN(w.w, data, size)
	w.written += n
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	pad := make([]byte, -w.written&3)
	_, err = w.w.Write(pad)
	w.written += int64(len(pad))
	return err
}
