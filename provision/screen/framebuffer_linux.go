package screen

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of linux/fb.h.
const (
	fbioGetVScreenInfo = 0x4600
	fbioGetFScreenInfo = 0x4602
)

// Kinds of a framebuffer's memory (linux/fb.h).
const (
	fbTypePackedPixels = 0
	fbVisualTrueColor  = 2
)

// fbBitfield is struct fb_bitfield.
type fbBitfield struct {
	offset, length, msbRight uint32
}

// fbVarScreenInfo is struct fb_var_screeninfo, 160 bytes.
type fbVarScreenInfo struct {
	xres, yres                uint32
	xresVirtual, yresVirtual  uint32
	xoffset, yoffset          uint32
	bitsPerPixel, grayscale   uint32
	red, green, blue, transp  fbBitfield
	nonstd, activate          uint32
	heightMM, widthMM         uint32
	accelFlags                uint32
	pixclock                  uint32
	left, right, upper, lower uint32
	hsyncLen, vsyncLen        uint32
	sync, vmode               uint32
	rotate, colorspace        uint32
	_                         [4]uint32
}

// fbFixScreenInfo is struct fb_fix_screeninfo, 80 bytes where a long has 8.
type fbFixScreenInfo struct {
	id                             [16]byte
	smemStart                      uintptr
	smemLen, kind, kindAux, visual uint32
	xpanstep, ypanstep, ywrapstep  uint16
	lineLength                     uint32
	mmioStart                      uintptr
	mmioLen, accel                 uint32
	capabilities                   uint16
	_                              [2]uint16
}

// framebuffer asks an open framebuffer how it keeps its pixels.
func framebuffer(f *os.File) (format, error) {
	var v fbVarScreenInfo
	var x fbFixScreenInfo
	if err := ioctl(f, fbioGetVScreenInfo, unsafe.Pointer(&v)); err != nil {
		return format{}, fmt.Errorf("%s: FBIOGET_VSCREENINFO: %w", f.Name(), err)
	}
	if err := ioctl(f, fbioGetFScreenInfo, unsafe.Pointer(&x)); err != nil {
		return format{}, fmt.Errorf("%s: FBIOGET_FSCREENINFO: %w", f.Name(), err)
	}
	if x.kind != fbTypePackedPixels || x.visual != fbVisualTrueColor {
		return format{}, fmt.Errorf("%s: %w: type %d, visual %d", f.Name(), errFormat, x.kind, x.visual)
	}
	part := func(b fbBitfield) field { return field{int(b.offset), int(b.length)} }
	return format{
		width: int(v.xres), height: int(v.yres),
		x: int(v.xoffset), y: int(v.yoffset),
		stride: int(x.lineLength), bits: int(v.bitsPerPixel),
		red: part(v.red), green: part(v.green), blue: part(v.blue), alpha: part(v.transp),
		length: int(x.smemLen),
	}, nil
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	if err := conn.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
	}); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// windowSize is how many columns and rows a terminal has.
func windowSize(f *os.File) (cols, rows int, ok bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	var size *unix.Winsize
	if cerr := conn.Control(func(fd uintptr) {
		size, err = unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	}); cerr != nil || err != nil || size.Col == 0 || size.Row == 0 {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}

// openDevice opens a device or terminal for writing without waiting for it and
// without becoming its session's leader.
func openDevice(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}
