package grant

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// identify asks the kernel who the directory is. The file system's names, in
// this order:
//
//  1. its UUID by FS_IOC_GETFSUUID (Linux 6.9: ext4, xfs, btrfs, f2fs, …) or
//     EXT4_IOC_GETFSUUID (Linux 6.0),
//  2. the same by the link to its block device in /dev/disk/by-uuid (FAT and
//     older kernels), where a UUID has the same name as under 1,
//  3. f_fsid of statfs, which on ext4 and btrfs comes from the UUID and in a
//     container or on a network mount is all there is,
//  4. the device number.
//
// Only the last two can change when a disk is plugged in again.
func identify(path string) (identity, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return identity{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var sx unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &sx); err != nil {
		return identity{}, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	var sf unix.Statfs_t
	if err := unix.Fstatfs(fd, &sf); err != nil {
		return identity{}, &os.PathError{Op: "fstatfs", Path: path, Err: err}
	}
	id := identity{
		device: unix.Mkdev(sx.Dev_major, sx.Dev_minor),
		inode:  sx.Ino,
		legacy: sx.Ino,
	}
	if sx.Mask&unix.STATX_BTIME != 0 && (sx.Btime.Sec != 0 || sx.Btime.Nsec != 0) {
		id.birth = fmt.Sprintf("%d.%09d", sx.Btime.Sec, sx.Btime.Nsec)
	}
	if volatileInodes(int64(sf.Type)) {
		id.inode = 0
	}
	uuid, ok := kernelUUID(fd)
	if !ok {
		uuid, ok = linkedUUID("/dev/disk/by-uuid", id.device)
	}
	if ok {
		id.fs = append(id.fs, "uuid:"+uuid)
	}
	if sf.Fsid.Val != [2]int32{} {
		id.fs = append(id.fs, fmt.Sprintf("fsid:%08x%08x", uint32(sf.Fsid.Val[0]), uint32(sf.Fsid.Val[1])))
	}
	id.fs = append(id.fs, fmt.Sprintf("dev:%d", id.device))
	return id, nil
}

// volatileInodes says whether the file system numbers its files anew at each
// mount, as the FAT family does.
func volatileInodes(fsType int64) bool {
	const exfatMagic = 0x2011bab0 // linux/magic.h
	return fsType == unix.MSDOS_SUPER_MAGIC || fsType == exfatMagic
}

// The two calls for a UUID, from linux/fs.h and fs/ext4/ext4.h.
const (
	fsIocGetFSUUID   = 0x80111500 // _IOR(0x15, 0, struct fsuuid2)
	ext4IocGetFSUUID = 0x8008662c // _IOR('f', 44, struct fsuuid)
)

type fsuuid2 struct {
	length uint8
	uuid   [16]byte
}

type ext4fsuuid struct {
	length uint32
	flags  uint32
	uuid   [16]byte
}

func kernelUUID(fd int) (string, bool) {
	var u fsuuid2
	if ioctl(fd, fsIocGetFSUUID, unsafe.Pointer(&u)) == nil && int(u.length) == len(u.uuid) {
		return formatUUID(u.uuid)
	}
	e := ext4fsuuid{length: 16}
	if ioctl(fd, ext4IocGetFSUUID, unsafe.Pointer(&e)) == nil && int(e.length) == len(e.uuid) {
		return formatUUID(e.uuid)
	}
	return "", false
}

func formatUUID(u [16]byte) (string, bool) {
	return hex.EncodeToString(u[:]), u != [16]byte{}
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// linkedUUID finds the link in dir that leads to the block device.
func linkedUUID(dir string, device uint64) (string, bool) {
	if unix.Major(device) == 0 { // no block device behind it
		return "", false
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, e.Name()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && uint64(st.Rdev) == device {
			return strings.ToLower(strings.ReplaceAll(e.Name(), "-", "")), true
		}
	}
	return "", false
}

// accessible says whether we, by the real user id, may read, write and enter it.
func accessible(path string) bool { return unix.Access(path, unix.R_OK|unix.W_OK|unix.X_OK) == nil }
