package bussim

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"syscall"
	"unsafe"

	"farhand/bus/i2cdev"
	"farhand/device/sysfs"
)

// Chip is a chip on a simulated I2C bus. Its methods are called with the bus's
// lock: one at a time.
type Chip interface {
	// Write is a message to the chip. It answers whether all of it was
	// acknowledged. An empty one only asks whether it is there.
	Write(data []byte) bool
	// Read is a message from the chip, which fills data.
	Read(data []byte) bool
}

// I2C is a simulated I2C bus.
type I2C struct {
	Chips  map[uint16]Chip
	Kernel map[uint16]string // addresses that a kernel driver has, with its name
	// Funcs is what the adapter can do; 0 means what the emulation of SMBus in
	// the kernel makes of a plain I2C adapter.
	Funcs i2cdev.Func
	// MaxMessage is the most bytes of a message, for adapters with such a quirk;
	// 0 means the kernel's own limit.
	MaxMessage int
}

// emulated is I2C_FUNC_I2C with I2C_FUNC_SMBUS_EMUL_ALL but checksums and the
// block process call.
const emulated = i2cdev.FuncI2C | i2cdev.FuncQuick | i2cdev.FuncReadByte | i2cdev.FuncWriteByte |
	i2cdev.FuncReadByteData | i2cdev.FuncWriteByteData | i2cdev.FuncReadWordData | i2cdev.FuncWriteWordData |
	i2cdev.FuncProcCall | i2cdev.FuncReadBlock | i2cdev.FuncWriteBlock | i2cdev.FuncReadI2CBlock | i2cdev.FuncWriteI2CBlock

// StubFuncs is what the kernel's i2c-stub can do, as it is loaded by default.
const StubFuncs = i2cdev.FuncQuick | i2cdev.FuncReadByte | i2cdev.FuncWriteByte | i2cdev.FuncReadByteData | i2cdev.FuncWriteByteData |
	i2cdev.FuncReadWordData | i2cdev.FuncWriteWordData | i2cdev.FuncReadI2CBlock | i2cdev.FuncWriteI2CBlock

// AddI2C adds a bus: /dev/i2c-N of the bench's tree.
func (b *Bench) AddI2C(number int, bus I2C) error {
	if bus.Funcs == 0 {
		bus.Funcs = emulated
	}
	name := fmt.Sprintf("i2c-%d", number)
	s := &i2cBus{I2C: bus}
	s.bus = newBus(name, s, func() error {
		b.tree.AddI2C(number, i2cHardware, "bcm2835 (i2c@7e804000)")
		return b.tree.Err()
	})
	s.bus.gone = syscall.EIO // as bridges on USB do: i2c-dev has no word of its own for it
	if err := b.add(s.bus); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for addr, driver := range bus.Kernel {
		adapter, err := filepath.Rel(sysfs.Real(b.tree.FS.Dir("")), sysfs.Real(filepath.Join(b.tree.FS.Dir("class/i2c-dev"), name, "device")))
		if err != nil {
			return err
		}
		client := fmt.Sprintf("%d-%04x", number, addr)
		b.tree.Dir(filepath.Join(adapter, client), map[string]string{"name": driver})
		b.tree.Driver(filepath.Join(adapter, client), "i2c", driver)
		b.tree.Link("bus/i2c/devices/"+client, filepath.Join(adapter, client))
	}
	return b.tree.Err()
}

func newBus(name string, kind kind, add func() error) *bus {
	return &bus{name: name, kind: kind, add: add}
}

type i2cBus struct {
	I2C
	bus *bus
}

// control and transact are i2cdev_ioctl of drivers/i2c/i2c-dev.c.
func (s *i2cBus) control(o *opened, req uint32, arg request) (bool, error) {
	switch req {
	case i2cdev.Slave:
		if arg.value > 0x7f {
			return true, syscall.EINVAL
		}
		if _, claimed := s.Kernel[uint16(arg.value)]; claimed {
			return true, syscall.EBUSY
		}
		o.addr = uint16(arg.value)
	case i2cdev.Funcs:
		*(*uint64)(arg.arg) = uint64(s.Funcs)
	default:
		return false, nil
	}
	return true, nil
}

func (s *i2cBus) transact(o *opened, req uint32, arg request) (int, error) {
	switch req {
	case i2cdev.RdWr:
		return s.rdwr((*i2cdev.RdWrData)(arg.arg))
	case i2cdev.SMBus:
		return 0, s.smbus(o.addr, (*i2cdev.SMBusData)(arg.arg))
	}
	return 0, syscall.ENOTTY
}

func (s *i2cBus) rdwr(d *i2cdev.RdWrData) (int, error) {
	if s.Funcs&i2cdev.FuncI2C == 0 {
		return 0, syscall.EOPNOTSUPP
	}
	if d.NMsgs == 0 || d.NMsgs > i2cdev.MaxMessages {
		return 0, syscall.EINVAL
	}
	msgs := unsafe.Slice((*i2cdev.Msg)(d.Msgs), d.NMsgs)
	for _, m := range msgs {
		switch {
		case m.Len > i2cdev.MaxMessage:
			return 0, syscall.EINVAL
		case s.MaxMessage > 0 && int(m.Len) > s.MaxMessage:
			return 0, syscall.EOPNOTSUPP
		}
	}
	if err := s.bus.transfer(msgs[0].Addr); err != nil {
		return 0, err
	}
	for _, m := range msgs {
		if err := s.message(m.Addr, m.Flags&i2cdev.MessageRead != 0, unsafe.Slice((*byte)(m.Buf), m.Len)); err != nil {
			return 0, err
		}
	}
	return len(msgs), nil
}

// message passes one message to a chip. A missing acknowledgement is what
// i2c-bcm2835 makes of it.
func (s *i2cBus) message(addr uint16, read bool, data []byte) error {
	chip := s.Chips[addr]
	if chip == nil {
		return i2cdev.EREMOTEIO
	}
	acked := false
	if read {
		acked = chip.Read(data)
	} else {
		acked = chip.Write(data)
	}
	if !acked {
		return i2cdev.EREMOTEIO
	}
	return nil
}

// smbus is i2c_smbus_xfer_emulated of drivers/i2c/i2c-core-smbus.c: what SMBus
// makes of plain messages.
func (s *i2cBus) smbus(addr uint16, d *i2cdev.SMBusData) error {
	if d.Data == nil && d.Size != i2cdev.SizeQuick && (d.Size != i2cdev.SizeByte || d.Read == 1) {
		return syscall.EINVAL
	}
	if err := s.bus.transfer(addr); err != nil {
		return err
	}
	block := (*i2cdev.Block)(d.Data)
	read := d.Read == 1
	ask := func(answer []byte) error { // a repeated start between
		if err := s.message(addr, false, []byte{d.Command}); err != nil {
			return err
		}
		return s.message(addr, true, answer)
	}
	send := func(data ...byte) error { return s.message(addr, false, append([]byte{d.Command}, data...)) }
	word := binary.NativeEndian
	switch {
	case d.Size == i2cdev.SizeQuick:
		return s.message(addr, read, nil)
	case d.Size == i2cdev.SizeByte && read:
		return s.message(addr, true, block[:1])
	case d.Size == i2cdev.SizeByte:
		return send()
	case d.Size == i2cdev.SizeByteData && read:
		return ask(block[:1])
	case d.Size == i2cdev.SizeByteData:
		return send(block[0])
	case d.Size == i2cdev.SizeWordData && read:
		return fromWire(block, ask)
	case d.Size == i2cdev.SizeWordData:
		return send(byte(word.Uint16(block[:])), byte(word.Uint16(block[:])>>8))
	case d.Size == i2cdev.SizeProcCall:
		if err := send(byte(word.Uint16(block[:])), byte(word.Uint16(block[:])>>8)); err != nil {
			return err
		}
		return fromWire(block, func(b []byte) error { return s.message(addr, true, b) })
	case d.Size == i2cdev.SizeBlockData && read:
		// The first byte that comes says how many follow.
		var all [1 + i2cdev.BlockMax]byte
		if err := ask(all[:]); err != nil {
			return err
		}
		if all[0] == 0 || all[0] > i2cdev.BlockMax {
			return syscall.EPROTO
		}
		copy(block[:], all[:1+all[0]])
		return nil
	case block[0] == 0 || block[0] > i2cdev.BlockMax:
		return syscall.EINVAL
	case d.Size == i2cdev.SizeBlockData:
		return send(block[:1+block[0]]...)
	case d.Size == i2cdev.SizeI2CBlock && read:
		return ask(block[1 : 1+block[0]])
	case d.Size == i2cdev.SizeI2CBlock:
		return send(block[1 : 1+block[0]]...)
	}
	return syscall.EINVAL
}

// fromWire reads a word, whose low byte comes first, into the machine's order.
func fromWire(block *i2cdev.Block, read func([]byte) error) error {
	var b [2]byte
	if err := read(b[:]); err != nil {
		return err
	}
	binary.NativeEndian.PutUint16(block[:], binary.LittleEndian.Uint16(b[:]))
	return nil
}
