// Package sysfs reads what the families need from a sysfs tree under an
// injected root: attributes, links, and the USB device behind a port. It opens
// attributes alone, never a device, and takes everything missing or unreadable
// as absent, since strings and links are optional there.
package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxAttr bounds what is read of one attribute: a sysfs attribute has at most
// a page.
const maxAttr = 4096

// FS is a sysfs tree and the device nodes that belong to it.
type FS struct {
	SysRoot string // stands for /sys; empty means /sys
	DevRoot string // stands for /dev; empty means /dev
}

func (f FS) sys() string {
	if f.SysRoot == "" {
		return "/sys"
	}
	return f.SysRoot
}

func (f FS) dev() string {
	if f.DevRoot == "" {
		return "/dev"
	}
	return f.DevRoot
}

// Dir is the path of a directory of the tree, such as "class/tty".
func (f FS) Dir(rel string) string { return filepath.Join(f.sys(), rel) }

// Node is the path of a device node, such as "ttyUSB0".
func (f FS) Node(rel string) string { return filepath.Join(f.dev(), rel) }

// List is the names in a directory of the tree, sorted. A directory that isn't
// there is empty: the kernel has no such devices.
func (f FS) List(rel string) ([]string, error) {
	entries, err := os.ReadDir(f.Dir(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", rel, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Attr is an attribute's text without the newline at its end, or empty.
func Attr(dir, name string) string {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxAttr))
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(data), "\n")
}

// LinkName is the last element of where a link points, such as the name of a
// driver, or empty.
func LinkName(dir, name string) string {
	target, err := os.Readlink(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// Real is a path with its links resolved, or empty if it leads nowhere.
func Real(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	return real
}

// Instance tells one appearance of a directory from the next: the kernel gives
// every directory of sysfs an inode number of its own.
func Instance(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d", st.Ino)
	}
	return ""
}

// Parents calls visit with a directory and those above it, up to the root of
// the tree, until visit says that it has seen enough.
func (f FS) Parents(dir string, visit func(dir string) (enough bool)) {
	root := Real(f.sys())
	for dir != root && len(dir) > len(root) && strings.HasPrefix(dir, root) {
		if visit(dir) {
			return
		}
		dir = filepath.Dir(dir)
	}
}
