package usbfs

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Structures and numbers of include/uapi/linux/usbdevice_fs.h.

type urb struct {
	kind        uint8
	endpoint    uint8
	status      int32
	flags       uint32
	buffer      unsafe.Pointer
	length      int32
	actual      int32
	startFrame  int32
	packets     int32
	errors      int32
	signal      uint32
	userContext uintptr
}

const maxDriverName = 255 // USBDEVFS_MAXDRIVERNAME

type getDriver struct {
	iface  uint32
	driver [maxDriverName + 1]byte
}

type disconnectClaim struct {
	iface  uint32
	flags  uint32
	driver [maxDriverName + 1]byte
}

type setInterface struct{ iface, alternate uint32 }

type driverIoctl struct {
	iface int32
	code  int32
	data  unsafe.Pointer
}

// The kinds of URBs (USBDEVFS_URB_TYPE_*).
const (
	urbInterrupt = 1
	urbControl   = 2
	urbBulk      = 3
)

// Flags of a URB and of USBDEVFS_DISCONNECT_CLAIM, and capabilities.
const (
	urbZeroPacket    = 0x40 // USBDEVFS_URB_ZERO_PACKET
	claimExceptNamed = 0x02 // USBDEVFS_DISCONNECT_CLAIM_EXCEPT_DRIVER

	capScatterGather = 0x08 // USBDEVFS_CAP_BULK_SCATTER_GATHER
)

// The parts of a request number (asm-generic/ioctl.h, which amd64 and arm64
// use): direction in bits 30 and 31, size from 16, the letter from 8.
const (
	write = 1
	read  = 2
)

func request(dir, number, size uintptr) uintptr { return dir<<30 | size<<16 | 'U'<<8 | number }

var (
	reqSetInterface     = request(read, 4, unsafe.Sizeof(setInterface{}))
	reqSetConfiguration = request(read, 5, 4)
	reqGetDriver        = request(write, 8, unsafe.Sizeof(getDriver{}))
	reqSubmit           = request(read, 10, unsafe.Sizeof(urb{}))
	reqDiscard          = request(0, 11, 0)
	reqReapNoDelay      = request(write, 13, unsafe.Sizeof(uintptr(0)))
	reqClaim            = request(read, 15, 4)
	reqRelease          = request(read, 16, 4)
	reqDriver           = request(read|write, 18, unsafe.Sizeof(driverIoctl{}))
	reqReset            = request(0, 20, 0)
	reqClearHalt        = request(read, 21, 4)
	reqConnect          = request(0, 23, 0)
	reqCapabilities     = request(read, 26, 4)
	reqDisconnectClaim  = request(read, 27, unsafe.Sizeof(disconnectClaim{}))
)

// ioctl makes a request again if a signal has cut it short.
func ioctl(fd, req uintptr, arg unsafe.Pointer) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, req, uintptr(arg))
		runtime.KeepAlive(arg)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
