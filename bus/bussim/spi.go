package bussim

import (
	"fmt"
	"math/bits"
	"syscall"
	"unsafe"

	"farhand/bus/spidev"
)

// SPIChip is a chip on a simulated chip select. Its methods are called with the
// bus's lock: one at a time.
type SPIChip interface {
	// Select begins a transaction, Deselect ends it.
	Select()
	Deselect()
	// Exchange is a byte each way.
	Exchange(in byte) (out byte)
}

// SPI is a simulated chip select.
type SPI struct {
	Chip SPIChip
	// Modes are the bits that the controller can do; 0 means those of
	// spi-bcm2835: clock phase and polarity, polarity of the chip select, none,
	// and three wires.
	Modes uint32
	// Bits is the most bits of a word; 0 means 8.
	Bits uint8
	// BufSize is the driver's bufsiz; 0 means spidev.DefaultBufSize.
	BufSize int
	// GPIOSelect says that the chip select is a GPIO line, whose polarity can't be
	// chosen.
	GPIOSelect bool
	// Transfers is told of each message as it came, if not nil.
	Transfers func([]spidev.Transfer)
}

const (
	bcm2835Modes = spidev.CPHA | spidev.CPOL | spidev.CSHigh | spidev.NoCS | spidev.ThreeWire
	treeMaxSpeed = 125_000_000 // spi-max-frequency of the nodes that spidev gets on a Pi
)

// AddSPI adds a chip select: /dev/spidevB.C of the bench's tree.
func (b *Bench) AddSPI(number, cs int, o SPI) error {
	if o.Modes == 0 {
		o.Modes = bcm2835Modes
	}
	if o.Bits == 0 {
		o.Bits = 8
	}
	if o.BufSize == 0 {
		o.BufSize = spidev.DefaultBufSize
	}
	s := &spiBus{SPI: o}
	s.bus = newBus(fmt.Sprintf("spidev%d.%d", number, cs), s, func() error {
		b.tree.AddSPI(number, cs, spiHardware)
		return b.tree.Err()
	})
	s.bus.gone = syscall.ESHUTDOWN
	if err := b.add(s.bus); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tree.Dir("module/spidev/parameters", map[string]string{"bufsiz": fmt.Sprint(o.BufSize)})
	return b.tree.Err()
}

type spiBus struct {
	SPI
	bus      *bus
	selected bool // guarded by bus.adapter

	mode uint32 // the device's, whoever has it open; guarded by bus.mu
}

// control and transact are spidev_ioctl of drivers/spi/spidev.c.
func (s *spiBus) control(_ *opened, req uint32, arg request) (bool, error) {
	switch req {
	case spidev.GetMode():
		*(*uint32)(arg.arg) = s.mode
	case spidev.SetMode():
		mode := *(*uint32)(arg.arg)
		if mode&^s.Modes != 0 {
			return true, syscall.EINVAL
		}
		if s.GPIOSelect {
			mode &^= spidev.CSHigh
		}
		s.mode = mode
	case spidev.GetMaxSpeed():
		*(*uint32)(arg.arg) = treeMaxSpeed
	default:
		return false, nil
	}
	return true, nil
}

func (s *spiBus) transact(_ *opened, req uint32, arg request) (int, error) {
	size := int(req >> 16 & (1<<14 - 1))
	n := size / int(unsafe.Sizeof(spidev.Transfer{}))
	if n == 0 || req != spidev.Message(n) {
		return 0, syscall.ENOTTY
	}
	return s.message(unsafe.Slice((*spidev.Transfer)(arg.arg), n))
}

func (s *spiBus) message(transfers []spidev.Transfer) (int, error) {
	if s.Transfers != nil {
		s.Transfers(append([]spidev.Transfer(nil), transfers...))
	}
	total, tx, rx := 0, 0, 0
	for _, t := range transfers {
		total += int(t.Len)
		if t.Tx != 0 {
			tx += int(t.Len)
		}
		if t.Rx != 0 {
			rx += int(t.Len)
		}
		if max(tx, rx) > s.BufSize {
			return 0, syscall.EMSGSIZE
		}
		if t.BitsPerWord > s.Bits {
			return 0, syscall.EINVAL
		}
	}
	if err := s.bus.transfer(0); err != nil {
		return 0, err
	}
	s.bus.mu.Lock()
	mode := s.mode
	s.bus.mu.Unlock()
	for i, t := range transfers {
		s.choose(mode, true)
		s.exchange(mode, at(t.Tx, int(t.Len)), at(t.Rx, int(t.Len)), int(t.Len))
		last := i == len(transfers)-1
		if last != (t.CSChange == 1) {
			s.choose(mode, false)
		}
	}
	return total, nil
}

func (s *spiBus) choose(mode uint32, on bool) {
	if mode&spidev.NoCS != 0 || on == s.selected {
		return
	}
	s.selected = on
	if on {
		s.Chip.Select()
	} else {
		s.Chip.Deselect()
	}
}

// exchange clocks n bytes: zeros where there is nothing to send.
func (s *spiBus) exchange(mode uint32, tx, rx []byte, n int) {
	swap := func(b byte) byte { return b }
	if mode&spidev.LSBFirst != 0 {
		swap = bits.Reverse8
	}
	for i := range n {
		var in byte
		if tx != nil {
			in = swap(tx[i])
		}
		// In modes 1 and 2 data are taken at the edge at which the other changes
		// them: a chip made for 0 and 3 sees each bit late.
		clock := mode & (spidev.CPHA | spidev.CPOL)
		wrong := clock == spidev.CPHA || clock == spidev.CPOL
		if _, wire := s.Chip.(Wire); wrong && !wire {
			in = in<<1 | in>>7
		}
		out := s.Chip.Exchange(in)
		if rx != nil {
			rx[i] = swap(out)
		}
	}
}

// Wire is no chip but a wire from MOSI to MISO.
type Wire struct{}

// Select does nothing.
func (Wire) Select() {}

// Deselect does nothing.
func (Wire) Deselect() {}

// Exchange gives back what comes.
func (Wire) Exchange(in byte) byte { return in }
