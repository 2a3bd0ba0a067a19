package files

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Forbidden is what no path may lead to, whatever the root. It is built once and
// safe for concurrent use. A nil Forbidden still keeps the kernel's own file
// systems (procfs, sysfs and their like) closed where they are mounted.
type Forbidden struct {
	objects map[ident]struct{} // the things themselves
	entries map[entry]struct{} // their names, which outlive a replaced inode
	devices map[uint64]struct{}
	holders map[ident]struct{} // the directories above them
}

type entry struct {
	dir  ident
	name string
}

// NewForbidden closes the given paths (the daemon's state directory, its
// configuration file, the boot partition) and always /proc, /sys, /dev and /run.
// A path that doesn't exist yet is remembered by its directory and name, and
// ignored if that directory doesn't exist either. The error names the path that
// can't be looked at.
func NewForbidden(paths ...string) (*Forbidden, error) {
	f := &Forbidden{
		objects: make(map[ident]struct{}),
		entries: make(map[entry]struct{}),
		devices: make(map[uint64]struct{}),
		holders: make(map[ident]struct{}),
	}
	for _, path := range append([]string{"/proc", "/sys", "/dev", "/run"}, paths...) {
		if path == "" {
			continue
		}
		if err := f.add(path); err != nil {
			return nil, fmt.Errorf("protect %s: %w", path, err)
		}
	}
	return f, nil
}

func (f *Forbidden) add(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := f.addHolders(parent)
	if err != nil {
		return err
	}
	name := filepath.Base(abs)
	if abs == "/" {
		return errors.New("the whole file system can't be closed")
	}
	f.entries[entry{identOf(&dir), name}] = struct{}{}

	var st unix.Stat_t
	err = retry(func() error { return unix.Lstat(filepath.Join(parent, name), &st) })
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	f.objects[identOf(&st)] = struct{}{}
	switch kindOf(&st) {
	case unix.S_IFLNK:
		target, err := filepath.EvalSymlinks(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return f.add(target)
	case unix.S_IFDIR:
		if st.Dev != dir.Dev && wholeDevice(filepath.Join(parent, name)) {
			f.devices[uint64(st.Dev)] = struct{}{}
		}
	}
	return nil
}

// addHolders notes a canonical directory and all above it, and returns its stat.
func (f *Forbidden) addHolders(dir string) (unix.Stat_t, error) {
	var own, st unix.Stat_t
	for path := dir; ; path = filepath.Dir(path) {
		if err := retry(func() error { return unix.Stat(path, &st) }); err != nil {
			return own, err
		}
		f.holders[identOf(&st)] = struct{}{}
		if path == dir {
			own = st
		}
		if path == "/" {
			return own, nil
		}
	}
}

// wholeDevice says whether everything on the device of a mount point is to be
// closed, wherever else it is mounted: true for the memory file systems of /dev
// and /run and for the FAT of the boot partition. Not for disks in general: a
// state directory may be a bind mount from the disk that the roots are on.
func wholeDevice(mount string) bool {
	var st unix.Statfs_t
	if retry(func() error { return unix.Statfs(mount, &st) }) != nil {
		return false
	}
	switch int64(st.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.MSDOS_SUPER_MAGIC:
		return true
	}
	return kernelFS(int64(st.Type))
}

// kernelFS says whether a file system is the kernel's face rather than storage.
// The numbers are those of statfs(2).
func kernelFS(magic int64) bool {
	switch uint32(magic) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
		unix.SECURITYFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEVPTS_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
		unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC,
		unix.RDTGROUP_SUPER_MAGIC, configfsMagic, mqueueMagic, fusectlMagic:
		return true
	}
	return false
}

// Numbers that golang.org/x/sys doesn't have (Linux: fs/configfs/mount.c,
// ipc/mqueue.c, fs/fuse/control.c).
const (
	configfsMagic = 0x62656570
	mqueueMagic   = 0x19800202
	fusectlMagic  = 0x65735543
)

// blocks says whether the object id, found in dir under name, is closed. look
// tells the type of the object's file system and is called only where a mount
// is crossed.
func (f *Forbidden) blocks(dir ident, name string, id ident, look func() (int64, error)) bool {
	if f != nil {
		if _, closed := f.objects[id]; closed {
			return true
		}
		if _, closed := f.devices[id.dev]; closed {
			return true
		}
		if f.named(dir, name) {
			return true
		}
	}
	if dir.dev == id.dev {
		return false
	}
	magic, err := look()
	return err != nil || kernelFS(magic)
}

// named says whether name in dir is closed even if nothing has that name.
func (f *Forbidden) named(dir ident, name string) bool {
	if f == nil {
		return false
	}
	_, closed := f.entries[entry{dir, name}]
	return closed
}

// holds says whether something closed lies below the directory id.
func (f *Forbidden) holds(id ident) bool {
	if f == nil {
		return false
	}
	_, above := f.holders[id]
	return above
}

// CheckRoot fails with PATH_OUTSIDE_ALLOWED_ROOT if path is, or lies in,
// something closed, and with PATH_NOT_FOUND if it is no directory.
func (f *Forbidden) CheckRoot(path string) error {
	_, at, _, err := f.descend(path)
	at.close()
	return err
}

// descend resolves path and walks down to it from "/" without following links,
// looking at each step. It returns the canonical path, the directory, and those
// above it.
func (f *Forbidden) descend(path string) (_ string, _ handle, line []ident, _ error) {
	a := asked{key: "path", path: path}
	if strings.ContainsRune(path, 0) {
		return "", handle{}, nil, a.fail(wire.PathInvalidChars, "", "root has a NUL in it")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", handle{}, nil, fault(a, "open root", err)
	}
	canonical, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", handle{}, nil, fault(a, "open root", err)
	}
	at, err := rootSlash()
	if err != nil {
		return "", handle{}, nil, fault(a, "open root", err)
	}
	for _, name := range split(canonical) {
		next, err := at.down(name)
		if err != nil {
			at.close()
			return "", handle{}, nil, fault(a, "open root", err)
		}
		line = append(line, at.id)
		closed := f.blocks(at.id, name, next.id, func() (int64, error) { return fsType(next.fd) })
		at.close()
		at = next
		if closed {
			at.close()
			return "", handle{}, nil, a.fail(wire.PathOutsideAllowedRoot, "protected",
				"root %s is or lies in what files can never reach", shown(path)).With("requested_path", shown(path))
		}
	}
	return canonical, at, line, nil
}

func fsType(fd int) (int64, error) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Fstatfs(fd, &st) })
	return int64(st.Type), err
}
