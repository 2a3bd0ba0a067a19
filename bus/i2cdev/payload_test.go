package i2cdev_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"farhand/bus/i2cdev"
)

// node notes what the kernel would be given, byte for byte.
type node struct {
	set  map[uint32]uintptr
	call func(req uint32, arg unsafe.Pointer) int
}

func (n node) Set(req uint32, value uintptr) error {
	n.set[req] = value
	return nil
}
func (n node) Close() error                                     { return nil }
func (n node) Call(req uint32, arg unsafe.Pointer) (int, error) { return n.call(req, arg), nil }

func memory(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }

// TestTransferLayout compares with struct i2c_rdwr_ioctl_data and struct i2c_msg
// of linux/i2c-dev.h and linux/i2c.h on a machine of 64 bits.
func TestTransferLayout(t *testing.T) {
	w, r := []byte{0xf7}, make([]byte, 3)
	n := node{call: func(req uint32, arg unsafe.Pointer) int {
		if req != 0x0707 {
			t.Errorf("the request is %#x", req)
		}
		head := memory(arg, 16)
		if count := binary.NativeEndian.Uint32(head[8:]); count != 2 {
			t.Fatalf("%d messages", count)
		}
		msgs := memory(*(*unsafe.Pointer)(arg), 32)
		ne := binary.NativeEndian
		at := func(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
		var want []byte
		for _, m := range []struct {
			flags uint16
			buf   []byte
		}{{0, w}, {1, r}} {
			want = ne.AppendUint16(want, 0x76)
			want = ne.AppendUint16(want, m.flags)
			want = ne.AppendUint16(want, uint16(len(m.buf)))
			want = ne.AppendUint16(want, 0) // nothing: the pointer is aligned
			want = ne.AppendUint64(want, at(m.buf))
		}
		if !slices.Equal(msgs, want) {
			t.Errorf("the messages are\n% x, want\n% x", msgs, want)
		}
		copy(r, "abc")
		return 2
	}}
	err := i2cdev.Bus{Node: n}.Transfer(0x76, []i2cdev.Message{{Data: w}, {Read: true, Data: r}})
	if err != nil || string(r) != "abc" {
		t.Errorf("%q, %v", r, err)
	}
}

// TestSMBusLayout compares with struct i2c_smbus_ioctl_data.
func TestSMBusLayout(t *testing.T) {
	block := &i2cdev.Block{3, 1, 2, 3}
	n := node{set: make(map[uint32]uintptr), call: func(req uint32, arg unsafe.Pointer) int {
		b := memory(arg, 16)
		if req != 0x0720 || b[0] != 1 || b[1] != 0x42 || binary.NativeEndian.Uint32(b[4:]) != 8 ||
			binary.NativeEndian.Uint64(b[8:]) != uint64(uintptr(unsafe.Pointer(block))) {
			t.Errorf("request %#x with % x", req, b)
		}
		return 0
	}}
	bus := i2cdev.Bus{Node: n}
	if err := errors.Join(bus.Select(0x50), bus.SetPEC(true), bus.SMBus(true, 0x42, i2cdev.SizeI2CBlock, block)); err != nil {
		t.Error(err)
	}
	if n.set[0x0703] != 0x50 || n.set[0x0708] != 1 {
		t.Errorf("set %v", n.set)
	}
	if unsafe.Sizeof(*block) != 34 {
		t.Errorf("the union takes %d bytes", unsafe.Sizeof(*block))
	}
}

func TestTransferRefuses(t *testing.T) {
	bus := i2cdev.Bus{Node: node{call: func(uint32, unsafe.Pointer) int { return 1 }}}
	for _, m := range [][]i2cdev.Message{nil, make([]i2cdev.Message, i2cdev.MaxMessages+1), {{Data: make([]byte, i2cdev.MaxMessage+1)}}} {
		if err := bus.Transfer(1, m); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d messages answer %v", len(m), err)
		}
	}
	if err := bus.Transfer(1, make([]i2cdev.Message, 2)); !errors.Is(err, syscall.EIO) {
		t.Errorf("a transaction that stopped early answers %v", err)
	}
}
