package bus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"farhand/bus/i2cdev"
	"farhand/bus/ioctl"
	"farhand/wire"
)

// Limits of I2C.
const (
	MaxI2CMessage  = i2cdev.MaxMessage  // bytes of one segment; an adapter may take less
	MaxI2CSegments = i2cdev.MaxMessages // of one transaction
)

// I2CBus is an opened I2C bus. Its methods may be used from several goroutines;
// transactions run one after the other.
type I2CBus struct {
	node  string
	owner func(addr uint16) string
	funcs i2cdev.Func
	bus   i2cdev.Bus
	turn  turn
}

// OpenI2C opens a bus. open is ioctl.Open, or what stands in for it; owner names
// the kernel driver that has an address, empty if that isn't known.
func OpenI2C(node string, open func(string) (ioctl.Node, error), owner func(addr uint16) string) (*I2CBus, error) {
	n, err := open(node)
	if err != nil {
		return nil, openError(node, err)
	}
	b := &I2CBus{node: node, owner: owner, bus: i2cdev.Bus{Node: n}, turn: newTurn()}
	if b.funcs, err = b.bus.Funcs(); err != nil {
		return nil, errors.Join(openError(node, err), n.Close())
	}
	return b, nil
}

// Close waits for the transaction that runs and closes the bus. It may be
// repeated.
func (b *I2CBus) Close() error {
	if !b.turn.close() {
		return nil
	}
	if err := b.bus.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", b.node, err)
	}
	return nil
}

// Transfer is one transaction. If ctx ends it answers at once, and messages are
// not to be used again. The kernel's refusal of an address that a driver has is
// HARDWARE_BUSY; what a transfer fails with is in i2cError.
func (b *I2CBus) Transfer(ctx context.Context, addr uint16, messages []i2cdev.Message) error {
	if b.funcs&i2cdev.FuncI2C == 0 {
		return unsupported("i2c_transfer", "%s does SMBus transactions only", b.node).With("hint", "use I2C_SMBUS")
	}
	err := b.turn.run(ctx, func() error {
		// I2C_RDWR itself doesn't look at whose the address is.
		if err := b.claim(addr); err != nil {
			return err
		}
		return b.bus.Transfer(addr, messages)
	})
	return b.failed(addr, err)
}

// claim selects the address unless a kernel driver has it.
func (b *I2CBus) claim(addr uint16) error {
	err := b.bus.Select(addr)
	if errors.Is(err, syscall.EBUSY) {
		return b.busy(addr)
	}
	return err
}

func (b *I2CBus) busy(addr uint16) error {
	driver := "a kernel driver"
	if name := b.owner(addr); name != "" {
		driver = "the kernel driver " + name
	}
	return wire.Errorf(wire.HardwareBusy, "%s belongs to %s", wire.I2CAddress(addr), driver).
		With("holder", driver).With("consumer", b.owner(addr)).With("part", wire.I2CAddress(addr).String()).
		With("hint", "use what that driver offers, or unbind it (remove its overlay) to use the chip directly")
}

func (b *I2CBus) failed(addr uint16, err error) error {
	if err == nil {
		return nil
	}
	return i2cError(b.node, wire.I2CAddress(addr).String(), err)
}

// Call is one SMBus transaction.
type Call struct {
	Protocol string // as wire.I2CSMBus has it
	Command  uint8
	Value    uint16
	Data     []byte // to write; 1 to 32 bytes
	Length   int    // of read_i2c_block; 1 to 32
	PEC      bool
}

// protocol is what the kernel calls one of wire's protocols.
type protocol struct {
	need i2cdev.Func
	size uint32
	read bool
}

func protocols() map[string]protocol {
	return map[string]protocol{
		wire.SMBusQuick:         {i2cdev.FuncQuick, i2cdev.SizeQuick, false},
		wire.SMBusReadByte:      {i2cdev.FuncReadByte, i2cdev.SizeByte, true},
		wire.SMBusWriteByte:     {i2cdev.FuncWriteByte, i2cdev.SizeByte, false},
		wire.SMBusReadByteData:  {i2cdev.FuncReadByteData, i2cdev.SizeByteData, true},
		wire.SMBusWriteByteData: {i2cdev.FuncWriteByteData, i2cdev.SizeByteData, false},
		wire.SMBusReadWordData:  {i2cdev.FuncReadWordData, i2cdev.SizeWordData, true},
		wire.SMBusWriteWordData: {i2cdev.FuncWriteWordData, i2cdev.SizeWordData, false},
		wire.SMBusProcessCall:   {i2cdev.FuncProcCall, i2cdev.SizeProcCall, false},
		wire.SMBusReadBlock:     {i2cdev.FuncReadBlock, i2cdev.SizeBlockData, true},
		wire.SMBusWriteBlock:    {i2cdev.FuncWriteBlock, i2cdev.SizeBlockData, false},
		wire.SMBusReadI2CBlock:  {i2cdev.FuncReadI2CBlock, i2cdev.SizeI2CBlock, true},
		wire.SMBusWriteI2CBlock: {i2cdev.FuncWriteI2CBlock, i2cdev.SizeI2CBlock, false},
	}
}

// Answer is what an SMBus transaction brings.
type Answer struct {
	Value uint16 // of a byte or a word
	Data  []byte // of a block
}

// SMBus runs one SMBus transaction.
func (b *I2CBus) SMBus(ctx context.Context, addr uint16, c Call) (Answer, error) {
	p, ok := protocols()[c.Protocol]
	if !ok {
		return Answer{}, invalid("protocol", "%q isn't known", c.Protocol)
	}
	if b.funcs&p.need == 0 {
		return Answer{}, unsupported("i2c_smbus_"+c.Protocol, "the adapter of %s has no %s", b.node, c.Protocol).
			With("hint", "I2C_TRANSFER may do the same byte by byte")
	}
	if c.PEC && b.funcs&i2cdev.FuncPEC == 0 {
		return Answer{}, unsupported("i2c_smbus_pec", "the adapter of %s has no checksums (PEC)", b.node)
	}
	block := fill(c, p)
	err := b.turn.run(ctx, func() error {
		if err := b.claim(addr); err != nil {
			return err
		}
		if b.funcs&i2cdev.FuncPEC != 0 { // what an earlier call set stays with the file
			if err := b.bus.SetPEC(c.PEC); err != nil {
				return err
			}
		}
		read := p.read || c.Protocol == wire.SMBusQuick && c.Value != 0
		return b.bus.SMBus(read, c.Command, p.size, block)
	})
	if err != nil {
		return Answer{}, b.failed(addr, err)
	}
	return collect(c, p, block)
}

// fill is the union that the kernel reads, and writes. nil for a quick one.
func fill(c Call, p protocol) *i2cdev.Block {
	block := new(i2cdev.Block)
	switch p.size {
	case i2cdev.SizeQuick:
		return nil
	case i2cdev.SizeByteData:
		block[0] = byte(c.Value)
	case i2cdev.SizeWordData, i2cdev.SizeProcCall:
		binary.NativeEndian.PutUint16(block[:], c.Value)
	case i2cdev.SizeBlockData, i2cdev.SizeI2CBlock:
		if p.read {
			block[0] = byte(c.Length)
			break
		}
		block[0] = byte(len(c.Data))
		copy(block[1:], c.Data)
	}
	return block
}

// collect takes the answer from the union.
func collect(c Call, p protocol, block *i2cdev.Block) (Answer, error) {
	switch {
	case p.size == i2cdev.SizeProcCall:
		return Answer{Value: binary.NativeEndian.Uint16(block[:])}, nil
	case !p.read:
		return Answer{}, nil
	case p.size == i2cdev.SizeWordData:
		return Answer{Value: binary.NativeEndian.Uint16(block[:])}, nil
	case p.size == i2cdev.SizeBlockData, p.size == i2cdev.SizeI2CBlock:
		n := int(block[0])
		if n > i2cdev.BlockMax { // no adapter's driver lets that pass
			return Answer{}, wire.Errorf(wire.HardwareTransferFailed, "a block of %d bytes came, SMBus allows %d", n, i2cdev.BlockMax).
				With("reason", ReasonBus).With("protocol", c.Protocol)
		}
		return Answer{Data: block[1 : 1+n : 1+n]}, nil
	}
	return Answer{Value: uint16(block[0])}, nil
}
