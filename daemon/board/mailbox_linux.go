package board

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// mailboxProperty is IOCTL_MBOX_PROPERTY of Raspberry Pi's kernel
	// (drivers/char/broadcom/vcio.c): _IOWR(100, 0, char *).
	mailboxProperty = 3<<30 | unsafe.Sizeof(uintptr(0))<<16 | 100<<8
	// tagGetThrottled and the layout of the message are those of the mailbox
	// property interface (Raspberry Pi firmware wiki).
	tagGetThrottled = 0x00030046
	answered        = 0x80000000
)

// mailboxPower asks the firmware through /dev/vcio, which the mainline kernel
// doesn't have.
func mailboxPower(path string) (Power, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if info.Mode()&os.ModeCharDevice == 0 {
		return 0, fmt.Errorf("%s is no character device", path)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// Size, request, tag, room for the value, request, value, end.
	message := [7]uint32{7 * 4, 0, tagGetThrottled, 4, 0, 0, 0}
	var pin runtime.Pinner
	pin.Pin(&message)
	defer pin.Unpin()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(mailboxProperty), uintptr(unsafe.Pointer(&message))); errno != 0 {
		return 0, fmt.Errorf("ask the firmware: %w", errno)
	}
	if message[1] != answered {
		return 0, fmt.Errorf("the firmware answered %#x", message[1])
	}
	return Power(message[5]), nil
}
