package flash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func looksLikeDevice(path string) bool { return strings.HasPrefix(filepath.Clean(path), "/dev/") }

func inspectDevice(path string) (Target, error) {
	return system{"/sys", "/proc"}.inspect(path)
}

// system is where the kernel tells of its disks.
type system struct{ sys, proc string }

// inspect reads what the kernel says of a device (Documentation/ABI: sysfs-block).
func (s system) inspect(path string) (Target, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Target{}, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Target{}, fmt.Errorf("%s is no disk", path)
	}
	return s.disk(path, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
}

// disk looks at the device with a number.
func (s system) disk(path, number string) (Target, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(s.sys, "dev/block", number))
	if err != nil {
		return Target{}, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		return Target{}, fmt.Errorf("%s is a partition; an image takes the whole disk, /dev/%s", path, filepath.Base(filepath.Dir(dir)))
	}
	if read(dir, "ro") == "1" {
		return Target{}, fmt.Errorf("%s is read-only: look for the lock at the card's side", path)
	}
	sectors, err := strconv.ParseInt(read(dir, "size"), 10, 64) // always of 512 bytes
	if err != nil || sectors <= 0 {
		return Target{}, fmt.Errorf("%s holds no card", path)
	}
	if err := s.busy(path, dir); err != nil {
		return Target{}, err
	}
	model := strings.Join(strings.Fields(read(dir, "device/vendor")+" "+first(read(dir, "device/model"), read(dir, "device/name"))), " ")
	return Target{
		Path: path, Device: true, Exists: true, Size: sectors * 512, Model: model,
		Removable: read(dir, "removable") == "1" || strings.HasPrefix(filepath.Base(dir), "mmcblk"),
	}, nil
}

// busy says what uses a disk or one of its partitions: a mount, swap, another
// block device on top of it.
func (s system) busy(path, dir string) error {
	numbers := map[string]string{read(dir, "dev"): filepath.Base(dir)}
	parts, err := filepath.Glob(filepath.Join(dir, "*/partition"))
	if err != nil {
		return err
	}
	dirs := []string{dir}
	for _, p := range parts {
		dirs = append(dirs, filepath.Dir(p))
		numbers[read(filepath.Dir(p), "dev")] = filepath.Base(filepath.Dir(p))
	}
	for _, d := range dirs {
		if holders, err := os.ReadDir(filepath.Join(d, "holders")); err == nil && len(holders) > 0 {
			return fmt.Errorf("%s is in use: %s belongs to %s", path, filepath.Base(d), holders[0].Name())
		}
	}
	names := make(map[string]bool)
	for _, n := range numbers {
		names["/dev/"+n] = true
	}
	mounts, err := os.ReadFile(filepath.Join(s.proc, "self/mountinfo"))
	if err != nil {
		return fmt.Errorf("what is mounted: %w", err)
	}
	for l := range strings.Lines(string(mounts)) { // proc_pid_mountinfo(5)
		f := strings.Fields(l)
		if len(f) < 5 {
			continue
		}
		source := ""
		for i, x := range f {
			if x == "-" && i+2 < len(f) {
				source = f[i+2] // btrfs has a device number of its own
			}
		}
		if n, ok := numbers[f[2]]; ok || names[source] {
			if !ok {
				n = filepath.Base(source)
			}
			return fmt.Errorf("%s is in use: %s is mounted at %s; unmount it if that is the card (umount %s)", path, n, f[4], f[4])
		}
	}
	swaps, err := os.ReadFile(filepath.Join(s.proc, "swaps"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("what is swapped to: %w", err)
	}
	for l := range strings.Lines(string(swaps)) {
		if f := strings.Fields(l); len(f) > 0 && names[f[0]] {
			return fmt.Errorf("%s is in use: %s is swap space", path, f[0])
		}
	}
	return nil
}

func read(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// openDevice opens a disk exclusively: the kernel refuses if it is mounted, and
// refuses to mount it meanwhile (open(2), O_EXCL).
func openDevice(t Target) (*os.File, error) {
	f, err := os.OpenFile(t.Path, os.O_RDWR|os.O_EXCL, 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: writing to a disk takes root (sudo)", err)
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("%w: something uses it", err)
	}
	return f, err
}

// forget drops what the kernel has in memory of a file that is synced, so that
// it is read from the card.
func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }

// reread asks the kernel to look at the partition table again; on a file, or if
// somebody is faster, it doesn't matter.
func reread(f *os.File) { _, _ = unix.IoctlRetInt(int(f.Fd()), unix.BLKRRPART) }
