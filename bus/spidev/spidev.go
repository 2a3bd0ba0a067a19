package spidev

import (
	"runtime"
	"syscall"
	"unsafe"

	"farhand/bus/ioctl"
)

// Bits of the mode, from linux/spi/spi.h.
const (
	CPHA      = 1 << 0
	CPOL      = 1 << 1
	CSHigh    = 1 << 2
	LSBFirst  = 1 << 3
	ThreeWire = 1 << 4
	NoCS      = 1 << 6
)

// MaxTransfers is how many transfers one message can have: the request encodes
// the size of them all in 14 bits (SPI_MSGSIZE).
const MaxTransfers = 1<<14/int(unsafe.Sizeof(Transfer{})) - 1

// DefaultBufSize is the bufsiz of a spidev module that was loaded without one.
const DefaultBufSize = 4096

const magic = 'k' // SPI_IOC_MAGIC

// Transfer is struct spi_ioc_transfer.
type Transfer struct {
	Tx, Rx      uint64 // addresses; 0: zeros go out, what comes in is dropped
	Len         uint32
	SpeedHz     uint32
	DelayUsecs  uint16
	BitsPerWord uint8
	CSChange    uint8
	TxNBits     uint8
	RxNBits     uint8
	WordDelay   uint8
	Pad         uint8
}

// The requests, from linux/spi/spidev.h.

// Message is SPI_IOC_MESSAGE(n).
func Message(n int) uint32 { return ioctl.Write(magic, 0, uintptr(n)*unsafe.Sizeof(Transfer{})) }

// GetMode is SPI_IOC_RD_MODE32.
func GetMode() uint32 { return ioctl.Read(magic, 5, 4) }

// SetMode is SPI_IOC_WR_MODE32.
func SetMode() uint32 { return ioctl.Write(magic, 5, 4) }

// GetMaxSpeed is SPI_IOC_RD_MAX_SPEED_HZ.
func GetMaxSpeed() uint32 { return ioctl.Read(magic, 4, 4) }

// Segment is one transfer of a message. If both are there Tx and Rx have one
// length, and are sent and filled at once.
type Segment struct {
	Tx, Rx      []byte
	SpeedHz     uint32
	BitsPerWord uint8
	DelayUsecs  uint16 // µs after it
	CSChange    bool   // deselect after it; after the last one: stay selected
}

// Len is how many bytes the segment takes.
func (s Segment) Len() int { return max(len(s.Tx), len(s.Rx)) }

// Device is an opened chip select.
type Device struct{ Node ioctl.Node }

// Mode is the mode that is set.
func (d Device) Mode() (uint32, error) { return d.get(GetMode()) }

// MaxSpeed is the fastest clock, in Hz, that the device tree or a program
// before allowed.
func (d Device) MaxSpeed() (uint32, error) { return d.get(GetMaxSpeed()) }

func (d Device) get(req uint32) (uint32, error) {
	var v uint32
	_, err := d.Node.Call(req, unsafe.Pointer(&v))
	return v, err
}

// SetMode sets the mode. EINVAL says that the controller can't do it. A chip
// select that is a GPIO line keeps its polarity whatever CSHigh says; Mode then
// doesn't show it.
func (d Device) SetMode(mode uint32) error {
	_, err := d.Node.Call(SetMode(), unsafe.Pointer(&mode))
	return err
}

// Transfer is one message: the segments one after the other, the chip selected
// from the first on. EMSGSIZE says that they are longer than bufsiz.
func (d Device) Transfer(segments []Segment) error {
	if len(segments) == 0 || len(segments) > MaxTransfers {
		return syscall.EINVAL
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	transfers := make([]Transfer, len(segments))
	total := 0
	for i, s := range segments {
		if len(s.Tx) > 0 && len(s.Rx) > 0 && len(s.Tx) != len(s.Rx) {
			return syscall.EINVAL
		}
		t := &transfers[i]
		*t = Transfer{Len: uint32(s.Len()), SpeedHz: s.SpeedHz, BitsPerWord: s.BitsPerWord, DelayUsecs: s.DelayUsecs}
		if s.CSChange {
			t.CSChange = 1
		}
		t.Tx, t.Rx = address(&pin, s.Tx), address(&pin, s.Rx)
		total += s.Len()
	}
	n, err := d.Node.Call(Message(len(transfers)), unsafe.Pointer(&transfers[0]))
	if err == nil && n != total {
		return syscall.EIO // the controller's driver stopped early and kept the reason to itself
	}
	return err
}

// address pins a buffer, since the kernel is told where it is by a number.
func address(pin *runtime.Pinner, b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	pin.Pin(&b[0])
	return uint64(uintptr(unsafe.Pointer(&b[0])))
}

// Close closes the node.
func (d Device) Close() error { return d.Node.Close() }
