package termios

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// serialStruct is struct serial_struct of linux/serial.h on 64-bit machines.
type serialStruct struct {
	typ, line     int32
	port          uint32
	irq, flags    int32
	xmitFIFOSize  int32
	customDivisor int32
	baudBase      int32
	closeDelay    uint16
	ioType        int8
	_             int8
	hub6          int32
	closingWait   uint16
	closingWait2  uint16
	_             int32
	iomemBase     uintptr
	iomemRegShift uint16
	_             uint16
	portHigh      uint32
	iomapBase     uint64
}

const (
	closingWaitNone = 65535   // ASYNC_CLOSING_WAIT_NONE: close doesn't wait for output
	lowLatency      = 1 << 13 // ASYNC_LOW_LATENCY of linux/tty_flags.h
)

func getSerial(fd int) (s serialStruct, err error) {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGSERIAL, uintptr(unsafe.Pointer(&s))); e != 0 {
		return s, e
	}
	return s, nil
}

func setSerial(fd int, s *serialStruct) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSSERIAL, uintptr(unsafe.Pointer(s))); e != 0 {
		return e
	}
	return nil
}

// NoClosingWait has the last close drop unsent output instead of waiting for
// it, by default up to 30 s. Drivers without the setting answer ENOTTY, and
// only root may change it.
func NoClosingWait(fd int) error {
	s, err := getSerial(fd)
	if err != nil || s.closingWait == closingWaitNone {
		return err
	}
	s.closingWait = closingWaitNone
	return setSerial(fd, &s)
}

// LowLatency says whether the driver hands on every byte at once. Drivers
// without the setting answer ENOTTY.
func LowLatency(fd int) (bool, error) {
	s, err := getSerial(fd)
	return s.flags&lowLatency != 0, err
}

// SetLowLatency asks for that; not every driver that takes it heeds it, see
// LowLatency. No privilege is needed.
func SetLowLatency(fd int, on bool) error {
	s, err := getSerial(fd)
	if err != nil {
		return err
	}
	s.flags &^= lowLatency
	if on {
		s.flags |= lowLatency
	}
	return setSerial(fd, &s)
}

// The flags of an RS485 (linux/serial.h).
const (
	RS485Enabled      = 1 << 0 // SER_RS485_ENABLED
	RS485RTSOnSend    = 1 << 1 // SER_RS485_RTS_ON_SEND
	RS485RTSAfterSend = 1 << 2 // SER_RS485_RTS_AFTER_SEND
	RS485RXDuringTX   = 1 << 4 // SER_RS485_RX_DURING_TX
	RS485Terminate    = 1 << 5 // SER_RS485_TERMINATE_BUS
)

// RS485 is struct serial_rs485 of linux/serial.h: how a driver switches a
// transceiver. Delays are in milliseconds.
type RS485 struct {
	Flags       uint32
	DelayBefore uint32
	DelayAfter  uint32
	padding     [5]uint32
}

// The requests of asm-generic/ioctls.h.
const (
	tiocgrs485 = 0x542e
	tiocsrs485 = 0x542f
)

// GetRS485 reads it. Drivers without it answer ENOTTY.
func GetRS485(fd int) (r RS485, err error) {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), tiocgrs485, uintptr(unsafe.Pointer(&r))); e != 0 {
		return r, e
	}
	return r, nil
}

// SetRS485 sets it (Linux 3.0) and answers what the kernel made of it: it
// corrects what the driver can't do.
func SetRS485(fd int, r RS485) (RS485, error) {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), tiocsrs485, uintptr(unsafe.Pointer(&r))); e != 0 {
		return r, e
	}
	return r, nil
}
