package spidev_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"farhand/bus/spidev"
)

// node notes what the kernel would be given, byte for byte.
type node struct {
	req uint32
	got []byte
	ret int
}

func (n *node) Set(uint32, uintptr) error { return syscall.ENOTTY }
func (n *node) Close() error              { return nil }

func (n *node) Call(req uint32, arg unsafe.Pointer) (int, error) {
	n.req = req
	n.got = slices.Clone(unsafe.Slice((*byte)(arg), int(req>>16&0x3fff)))
	return n.ret, nil
}

// TestTransferLayout compares with struct spi_ioc_transfer as
// linux/spi/spidev.h lays it out: 32 bytes, the same on every machine.
func TestTransferLayout(t *testing.T) {
	tx, rx := []byte{1, 2, 3}, make([]byte, 3)
	n := &node{ret: 7}
	err := spidev.Device{Node: n}.Transfer([]spidev.Segment{
		{Tx: tx, Rx: rx, SpeedHz: 0x01020304, BitsPerWord: 8, DelayUsecs: 0x1234, CSChange: true},
		{Rx: make([]byte, 4)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n.req != 0x40406b00 { // SPI_IOC_MESSAGE(2)
		t.Errorf("the request is %#x", n.req)
	}
	le := binary.LittleEndian
	at := func(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
	want := le.AppendUint64(nil, at(tx))
	want = le.AppendUint64(want, at(rx))
	want = le.AppendUint32(want, 3)
	want = le.AppendUint32(want, 0x01020304)
	want = le.AppendUint16(want, 0x1234)
	want = append(want, 8, 1, 0, 0, 0, 0)
	if !slices.Equal(n.got[:32], want) {
		t.Errorf("the first transfer is\n% x, want\n% x", n.got[:32], want)
	}
	if second := n.got[32:]; le.Uint64(second) != 0 || le.Uint64(second[8:]) == 0 || le.Uint32(second[16:]) != 4 {
		t.Errorf("the second transfer is % x", second)
	}
}

func TestRequests(t *testing.T) {
	for got, want := range map[uint32]uint32{
		spidev.Message(1):    0x40206b00,
		spidev.GetMode():     0x80046b05,
		spidev.SetMode():     0x40046b05,
		spidev.GetMaxSpeed(): 0x80046b04,
	} {
		if got != want {
			t.Errorf("request %#x, want %#x", got, want)
		}
	}
	n := &node{}
	if err := (spidev.Device{Node: n}).SetMode(spidev.CPOL | spidev.NoCS); err != nil || !slices.Equal(n.got, []byte{0x42, 0, 0, 0}) {
		t.Errorf("the mode is % x, %v", n.got, err)
	}
}

func TestTransferRefuses(t *testing.T) {
	d := spidev.Device{Node: &node{ret: 1}}
	for _, s := range [][]spidev.Segment{nil, make([]spidev.Segment, spidev.MaxTransfers+1), {{Tx: make([]byte, 2), Rx: make([]byte, 1)}}} {
		if err := d.Transfer(s); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d segments answer %v", len(s), err)
		}
	}
	if err := d.Transfer([]spidev.Segment{{Tx: make([]byte, 2)}}); !errors.Is(err, syscall.EIO) {
		t.Errorf("a transfer that stopped early answers %v", err)
	}
}
