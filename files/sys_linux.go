package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The system calls of this package, repeated when a signal interrupts them
// (network and FUSE file systems return EINTR; the Go runtime sends signals).

// ident is what an object is, whatever its name.
type ident struct{ dev, ino uint64 }

func identOf(st *unix.Stat_t) ident { return ident{uint64(st.Dev), st.Ino} }

// handle is an open directory (or, in outside, any object) with its identity.
type handle struct {
	fd    int
	id    ident
	owned bool // false for the root's own descriptor
}

func (h *handle) close() {
	if h.owned {
		unix.Close(h.fd)
		h.owned = false
	}
}

// down opens the directory name below h as a place to stand on, without
// following a link.
func (h *handle) down(name string) (handle, error) {
	fd, err := pin(h.fd, name)
	if err != nil {
		return handle{}, err
	}
	st, err := fstat(fd)
	if err != nil {
		unix.Close(fd)
		return handle{}, err
	}
	return handle{fd: fd, id: identOf(&st), owned: true}, nil
}

func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func fstat(fd int) (st unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstat(fd, &st) })
	return st, err
}

// lstatat is stat of name itself, links not followed.
func lstatat(dir int, name string, st *unix.Stat_t) error {
	for {
		if err := unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW); err != unix.EINTR {
			return err
		}
	}
}

// readlinkat is the target of a link; EINVAL says that name isn't one.
func readlinkat(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	for {
		n, err := unix.Readlinkat(dir, name, buf)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return "", err
		case n == len(buf): // never on Linux, whose targets are shorter
			return "", unix.ENAMETOOLONG
		default:
			return string(buf[:n]), nil
		}
	}
}

// openDir opens a directory for reading its entries, links not followed.
func openDir(dir int, name string) (int, error) {
	return openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// pin opens a directory as a place to stand on: search permission suffices.
func pin(dir int, name string) (int, error) {
	return openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

func unlinkat(dir int, name string, flags int) error {
	return retry(func() error { return unix.Unlinkat(dir, name, flags) })
}

func mkdirat(dir int, name string, mode uint32) error {
	return retry(func() error { return unix.Mkdirat(dir, name, mode) })
}

func renameat(from int, old string, to int, name string) error {
	return retry(func() error { return unix.Renameat(from, old, to, name) })
}

func renameat2(from int, old string, to int, name string, flags uint) error {
	return retry(func() error { return unix.Renameat2(from, old, to, name, flags) })
}

// linkDescriptor gives the file behind fd a name. Through /proc, because
// AT_EMPTY_PATH needs a capability before Linux 6.10.
func linkDescriptor(fd, dir int, name string) error {
	return retry(func() error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), dir, name, unix.AT_SYMLINK_FOLLOW)
	})
}

func fsync(fd int) error { return retry(func() error { return unix.Fsync(fd) }) }

// syncDir makes the entries of a directory durable. It is best effort: a
// directory that may be searched but not read can't be synced, and some file
// systems refuse it.
func syncDir(dir int) {
	if fd, err := openDir(dir, "."); err == nil {
		_ = fsync(fd)
		unix.Close(fd)
	}
}

func pread(fd int, p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(fd, p, off)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// pwriteAll writes all of p at off.
func pwriteAll(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.EIO
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// dirent is an entry of a directory as the kernel lists it.
type dirent struct {
	name string
	kind byte // unix.DT_*; DT_UNKNOWN on file systems that don't tell
}

// direntBuffer is how many bytes of entries one getdents64 returns at most,
// some 800 of usual length.
const direntBuffer = 32 << 10

// readDir calls each with every entry of the directory fd from its beginning,
// but "." and "..", until each returns an error, which it returns.
func readDir(fd int, each func(dirent) error) error {
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return err
	}
	buf := make([]byte, direntBuffer)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		if err := parseDirents(buf[:n], each); err != nil {
			return err
		}
	}
}

// parseDirents reads struct linux_dirent64 (getdents64(2)): inode 8 bytes,
// offset 8, record length 2, type 1, then the name up to a NUL.
func parseDirents(b []byte, each func(dirent) error) error {
	const header = 19
	for len(b) > 0 {
		if len(b) < header {
			return errors.New("directory record cut short")
		}
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= header || size > len(b) {
			return errors.New("directory record of impossible length")
		}
		name := b[header:size]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		kind := b[18]
		b = b[size:]
		if s := string(name); s != "." && s != ".." && s != "" && !strings.Contains(s, "/") {
			if err := each(dirent{s, kind}); err != nil {
				return err
			}
		}
	}
	return nil
}

// isDir says whether an entry is a directory, asking the file system only if
// the listing didn't tell.
func (d dirent) isDir(dir int) bool {
	if d.kind != unix.DT_UNKNOWN {
		return d.kind == unix.DT_DIR
	}
	var st unix.Stat_t
	return lstatat(dir, d.name, &st) == nil && kindOf(&st) == unix.S_IFDIR
}

func kindOf(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// shown is a name as it can stand in JSON: each byte that isn't UTF-8 is U+FFFD.
func shown(name string) string {
	for i := 0; i < len(name); i++ {
		if name[i] >= 0x80 {
			return string([]rune(name))
		}
	}
	return name
}

// rootSlash opens the root of the file system as a place to stand on.
func rootSlash() (handle, error) {
	fd, err := openat(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return handle{}, os.NewSyscallError("open /", err)
	}
	st, err := fstat(fd)
	if err != nil {
		unix.Close(fd)
		return handle{}, os.NewSyscallError("stat /", err)
	}
	return handle{fd: fd, id: identOf(&st), owned: true}, nil
}
