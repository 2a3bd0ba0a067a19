package uapi

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// chipInfo is struct gpiochip_info.
type chipInfo struct {
	name, label [32]byte
	lines       uint32
}

// getChipInfo is GPIO_GET_CHIPINFO_IOCTL: _IOR(0xB4, 0x01, struct gpiochip_info).
const getChipInfo = 2<<30 | unsafe.Sizeof(chipInfo{})<<16 | 0xb4<<8 | 0x01

// ChipInfo asks a chip for its name, label and number of lines. It requests no
// line.
func ChipInfo(node string) (Chip, error) {
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Chip{}, fmt.Errorf("opening %s: %w", node, err)
	}
	defer unix.Close(fd)
	var info chipInfo
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getChipInfo, uintptr(unsafe.Pointer(&info))); e != 0 {
		return Chip{}, fmt.Errorf("asking %s what it is: %w", node, e)
	}
	return Chip{Name: unix.ByteSliceToString(info.name[:]), Label: unix.ByteSliceToString(info.label[:]), Lines: int(info.lines)}, nil
}
