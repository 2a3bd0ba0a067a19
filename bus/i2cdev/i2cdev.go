package i2cdev

import (
	"runtime"
	"syscall"
	"unsafe"

	"farhand/bus/ioctl"
)

// The requests, from linux/i2c-dev.h.
const (
	Slave = 0x0703 // I2C_SLAVE: EBUSY if a kernel driver has the address
	Funcs = 0x0705 // I2C_FUNCS
	RdWr  = 0x0707 // I2C_RDWR
	PEC   = 0x0708 // I2C_PEC
	SMBus = 0x0720 // I2C_SMBUS
)

// Limits of the kernel.
const (
	MaxMessages = 42   // I2C_RDWR_IOCTL_MAX_MSGS
	MaxMessage  = 8192 // bytes: drivers/i2c/i2c-dev.c refuses more
	BlockMax    = 32   // I2C_SMBUS_BLOCK_MAX
)

// EREMOTEIO is what many adapters answer if nothing acknowledged. The name is
// Linux's alone, so package syscall has it only there.
const EREMOTEIO = syscall.Errno(121)

// MessageRead is I2C_M_RD, the flag of a message that reads.
const MessageRead = 0x0001

// Func is what an adapter can do: I2C_FUNC_* of linux/i2c.h.
type Func uint64

// The functions that matter here.
const (
	FuncI2C           Func = 0x00000001
	Func10Bit         Func = 0x00000002
	FuncPEC           Func = 0x00000008
	FuncQuick         Func = 0x00010000
	FuncReadByte      Func = 0x00020000
	FuncWriteByte     Func = 0x00040000
	FuncReadByteData  Func = 0x00080000
	FuncWriteByteData Func = 0x00100000
	FuncReadWordData  Func = 0x00200000
	FuncWriteWordData Func = 0x00400000
	FuncProcCall      Func = 0x00800000
	FuncReadBlock     Func = 0x01000000
	FuncWriteBlock    Func = 0x02000000
	FuncReadI2CBlock  Func = 0x04000000
	FuncWriteI2CBlock Func = 0x08000000
)

// The transaction types of SMBusData.Size, from linux/i2c.h.
const (
	SizeQuick     = 0
	SizeByte      = 1
	SizeByteData  = 2
	SizeWordData  = 3
	SizeProcCall  = 4
	SizeBlockData = 5
	SizeI2CBlock  = 8
)

// Msg is struct i2c_msg.
type Msg struct {
	Addr  uint16
	Flags uint16
	Len   uint16
	Buf   unsafe.Pointer // may be nil if Len is 0
}

// RdWrData is struct i2c_rdwr_ioctl_data.
type RdWrData struct {
	Msgs  unsafe.Pointer // of Msg
	NMsgs uint32
}

// Block is union i2c_smbus_data: a byte, a word in the machine's order, or a
// length and up to 32 bytes.
type Block [BlockMax + 2]byte

// SMBusData is struct i2c_smbus_ioctl_data.
type SMBusData struct {
	Read    uint8 // I2C_SMBUS_READ is 1
	Command uint8
	Size    uint32
	Data    unsafe.Pointer // of Block
}

// Message is one message of a transaction: Data is filled if Read, else sent.
type Message struct {
	Read bool
	Data []byte
}

// Bus is an opened adapter.
type Bus struct{ Node ioctl.Node }

// Funcs asks what the adapter can do.
func (b Bus) Funcs() (Func, error) {
	// unsigned long: eight bytes on the 64-bit machines that there are builds for.
	var f uint64
	_, err := b.Node.Call(Funcs, unsafe.Pointer(&f))
	return Func(f), err
}

// Select chooses the address of the SMBus calls that follow. EBUSY says that a
// kernel driver has it.
func (b Bus) Select(addr uint16) error { return b.Node.Set(Slave, uintptr(addr)) }

// SetPEC turns the checksums of SMBus calls on or off.
func (b Bus) SetPEC(on bool) error {
	var v uintptr
	if on {
		v = 1
	}
	return b.Node.Set(PEC, v)
}

// Transfer is one transaction: the messages with repeated starts between them,
// then a stop. It goes to any address, also one that a kernel driver has: ask
// with Select first.
func (b Bus) Transfer(addr uint16, messages []Message) error {
	if len(messages) == 0 || len(messages) > MaxMessages {
		return syscall.EINVAL
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	msgs := make([]Msg, len(messages))
	for i, m := range messages {
		if len(m.Data) > MaxMessage {
			return syscall.EINVAL
		}
		msgs[i] = Msg{Addr: addr, Len: uint16(len(m.Data))}
		if m.Read {
			msgs[i].Flags = MessageRead
		}
		if len(m.Data) > 0 {
			pin.Pin(&m.Data[0])
			msgs[i].Buf = unsafe.Pointer(&m.Data[0])
		}
	}
	pin.Pin(&msgs[0])
	arg := &RdWrData{Msgs: unsafe.Pointer(&msgs[0]), NMsgs: uint32(len(msgs))}
	n, err := b.Node.Call(RdWr, unsafe.Pointer(arg))
	if err == nil && n != len(msgs) {
		return syscall.EIO // the adapter's driver stopped early and kept the reason to itself
	}
	return err
}

// SMBus is one SMBus call to the selected address. data is what is sent, and is
// filled with what came; it may be nil for SizeQuick and for a byte to write.
func (b Bus) SMBus(read bool, command uint8, size uint32, data *Block) error {
	arg := &SMBusData{Command: command, Size: size}
	if read {
		arg.Read = 1
	}
	if data != nil {
		var pin runtime.Pinner
		defer pin.Unpin()
		pin.Pin(data)
		arg.Data = unsafe.Pointer(data)
	}
	_, err := b.Node.Call(SMBus, unsafe.Pointer(arg))
	return err
}

// Close closes the node.
func (b Bus) Close() error { return b.Node.Close() }
