package bustest

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"

	"farhand/bus"
	"farhand/device"
	"farhand/internal/leak"
	"farhand/wire"
)

// SPI is a chip select under test without a chip: what comes in is known from
// what goes out.
type SPI struct {
	Family  device.Family
	ID      string
	BufSize int // the driver's
	// Echo is what comes in while a byte goes out: the same with a wire from MOSI
	// to MISO, always one value with nothing connected.
	Echo func(out byte) byte
	// Modes are the clock modes to be tried. (Others may be worse than refused:
	// Linux 7.3 dies of them on a controller that can't do them, spi-butterfly.)
	Modes []int
	// NoSelect says whether the controller can leave the chip select alone; if
	// not, the suite asserts that this is said.
	NoSelect bool
	// Flash is a chip select with a NOR flash that may be erased; empty if there
	// is none.
	Flash string

	// What only a simulated bus can do; nil otherwise.
	Inject         func(err syscall.Errno, times int)
	Stall          func() (waiting <-chan struct{}, release func())
	Unplug, Replug func()
}

// RunSPI runs the suite; open makes a fresh chip select for each case and cleans
// up after itself with t.Cleanup.
func RunSPI(t *testing.T, open func(t testing.TB) SPI) {
	can := open(t) // only asked what it can do
	for _, c := range []struct {
		name    string
		run     func(*testing.T, *rig, SPI)
		applies func(SPI) bool
	}{
		{"Loopback", testLoopback, nil},
		{"Segments", testSegments, nil},
		{"BufSize", testBufSize, nil},
		{"RefusedArguments", testSPIRefusals, nil},
		{"Lease", testSPILease, nil},
		{"Flash", testFlash, func(s SPI) bool { return s.Flash != "" }},
		{"Faults", testSPIFaults, func(s SPI) bool { return s.Inject != nil }},
		{"GiveUp", testSPIGiveUp, func(s SPI) bool { return s.Stall != nil }},
		{"Unplug", testSPIUnplug, func(s SPI) bool { return s.Unplug != nil }},
	} {
		if c.applies != nil && !c.applies(can) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			s := open(t)
			c.run(t, newRig(t, s.Family, s.ID), s)
		})
	}
}

func (r *rig) spi(t *testing.T, a wire.SPITransfer) wire.SPITransferred {
	t.Helper()
	return do[wire.SPITransferred](t, r, wire.OpSPITransfer, a)
}

// pattern is n bytes of which every value occurs and none repeats soon.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// echo is what comes in while data go out.
func (s SPI) echo(data []byte) []byte {
	in := make([]byte, len(data))
	for i, b := range data {
		in[i] = s.Echo(b)
	}
	return in
}

func testLoopback(t *testing.T, r *rig, s SPI) {
	data := pattern(300)
	back := s.echo(data)
	for _, a := range []wire.SPITransfer{
		{Write: data, FullDuplex: true}, {Write: data, FullDuplex: true, SpeedHz: 1_000_000},
		{Write: data, Read: len(data), FullDuplex: true}, {Write: data, FullDuplex: true, LSBFirst: true},
		{Segments: []wire.SPISegment{{Write: data, Read: len(data)}}},
	} {
		if res := r.spi(t, a); !bytes.Equal(res.Data, back) || res.BytesWritten != len(data) || res.Pieces != 0 {
			t.Errorf("%d bytes came back, %d written, %d pieces", len(res.Data), res.BytesWritten, res.Pieces)
		}
	}
	for _, mode := range s.Modes {
		if res := r.spi(t, wire.SPITransfer{Write: data, FullDuplex: true, Mode: mode}); !bytes.Equal(res.Data, back) {
			t.Errorf("in mode %d % x comes back", mode, res.Data[:8])
		}
	}
	if !s.NoSelect {
		r.fails(t, wire.OpSPITransfer, wire.SPITransfer{Write: data, CS: wire.SPICSNone}, wire.FeatureNotSupported)
	}
	if res := r.spi(t, wire.SPITransfer{Write: data}); len(res.Data) != 0 || res.BytesWritten != len(data) || res.SpeedHz != bus.DefaultSPISpeed {
		t.Errorf("a write answers %+v", res)
	}
	if res := r.spi(t, wire.SPITransfer{Write: []byte{0xff}, Read: 4}); !bytes.Equal(res.Data, s.echo(make([]byte, 4))) || res.BytesWritten != 1 {
		t.Errorf("while reading zeros go out: %+v", res)
	}
}

func testSegments(t *testing.T, r *rig, s SPI) {
	res := r.spi(t, wire.SPITransfer{SpeedHz: 1_000_000, Segments: []wire.SPISegment{
		{Write: []byte{1, 2}}, {Write: []byte{3, 4}, Read: 2, CSChange: true, DelayUS: 10}, {Read: 2}, {Write: []byte{5}, Read: 1, SpeedHz: 250_000},
	}})
	if !bytes.Equal(res.Data, s.echo([]byte{3, 4, 0, 0, 5})) || res.BytesWritten != 5 || res.SpeedHz != 1_000_000 {
		t.Errorf("segments answer %+v", res)
	}
}

// testBufSize is field case 24: what is longer than the driver's buffer is
// refused with the limit, unless the chip may be deselected between pieces.
func testBufSize(t *testing.T, r *rig, s SPI) {
	data := pattern(3*s.BufSize + 100)
	e := r.fails(t, wire.OpSPITransfer, wire.SPITransfer{Write: data, FullDuplex: true, SpeedHz: 10_000_000}, wire.InvalidArgument)
	if e.Details["limit"] != s.BufSize || e.Details["hint"] == nil {
		t.Errorf("the limit isn't named: %v", e.Details)
	}
	exact := data[:s.BufSize]
	if res := r.spi(t, wire.SPITransfer{Write: exact, FullDuplex: true, SpeedHz: 10_000_000}); !bytes.Equal(res.Data, s.echo(exact)) {
		t.Error("as much as the buffer holds doesn't come back")
	}
	none := wire.SPITransfer{Write: data, FullDuplex: true, CS: wire.SPICSNone, SpeedHz: 10_000_000}
	if !s.NoSelect {
		none.CS, none.Split = wire.SPICSLow, true
	}
	for _, a := range []wire.SPITransfer{
		none,
		{Write: data, FullDuplex: true, Split: true, SpeedHz: 10_000_000},
		{Split: true, SpeedHz: 10_000_000, Segments: []wire.SPISegment{{Write: data[:10], Read: 10}, {Write: data[10:], Read: len(data) - 10}}},
	} {
		if res := r.spi(t, a); !bytes.Equal(res.Data, s.echo(data)) || res.Pieces != 4 || res.BytesWritten != len(data) {
			t.Errorf("in pieces: %d bytes came back, %d written, %d pieces", len(res.Data), res.BytesWritten, res.Pieces)
		}
	}
}

func testSPIRefusals(t *testing.T, r *rig, _ SPI) {
	one := []byte{1}
	for _, a := range []wire.SPITransfer{
		{}, {Read: -1}, {Write: one, Mode: 4}, {Write: one, Mode: -1}, {Write: one, Bits: 33}, {Write: one, Bits: -1},
		{Write: one, SpeedHz: -1}, {Write: one, SpeedHz: 2_000_000_000}, {Write: one, CS: "up"}, {FullDuplex: true},
		{Write: one, Read: 2, FullDuplex: true}, {Write: one, Bits: 9}, {Write: one, Segments: []wire.SPISegment{{Read: 1}}},
		{Segments: make([]wire.SPISegment, 1)}, {Segments: make([]wire.SPISegment, bus.MaxSPISegments+1)},
		{Segments: []wire.SPISegment{{Write: one, Read: 2}}}, {Segments: []wire.SPISegment{{Write: one, DelayUS: 65536}}},
		{Segments: []wire.SPISegment{{Write: one, DelayUS: -1}}}, {Segments: []wire.SPISegment{{Write: one, Read: 1}}, ThreeWire: true},
		{Read: bus.MaxSPITransfer + 1}, {Write: one, SpeedHz: 1, Read: 100}, // 808 s
		{Segments: []wire.SPISegment{{Read: bus.MaxSPITransfer}, {Read: bus.MaxSPITransfer}}},
	} {
		r.fails(t, wire.OpSPITransfer, a, wire.InvalidArgument)
	}
	r.fails(t, wire.OpSPITransfer, map[string]any{"write": "no base64!"}, wire.InvalidArgument)
}

func testSPILease(t *testing.T, r *rig, _ SPI) {
	held := r.op(t, wire.OpSPITransfer, wire.SPITransfer{Write: []byte{1}})
	held.Hold = true
	if _, trace, err := r.run(t.Context(), "a", held); err != nil || trace.BytesOut != 1 {
		t.Fatalf("%+v, %v", trace, err)
	}
	_, _, err := r.run(t.Context(), "b", r.op(t, wire.OpSPITransfer, wire.SPITransfer{Read: 1}))
	if e := wire.AsError(err); e.Code != wire.HardwareBusy || e.Details["holder"] != "holder of a" {
		t.Errorf("the other session is answered %v %v", e, e.Details)
	}
}

func testFlash(t *testing.T, _ *rig, s SPI) {
	r := newRig(t, s.Family, s.Flash)
	if res := r.spi(t, wire.SPITransfer{Write: []byte{0x9f}, Read: 3}); !bytes.Equal(res.Data, []byte{0xef, 0x40, 0x14}) {
		t.Errorf("the flash says it is % x", res.Data)
	}
	if res := r.spi(t, wire.SPITransfer{Write: []byte{0x9f}, Read: 3, Mode: 1}); bytes.Equal(res.Data, []byte{0xef, 0x40, 0x14}) {
		t.Error("the flash answers in a mode that isn't its own")
	}
	status := func() byte { return r.spi(t, wire.SPITransfer{Write: []byte{0x05}, Read: 1}).Data[0] }
	idle := func() {
		t.Helper()
		for range 1000 {
			if status()&1 == 0 {
				return
			}
		}
		t.Fatal("the flash stays busy")
	}
	read := func(n int) []byte {
		return r.spi(t, wire.SPITransfer{Write: []byte{0x03, 0, 0x10, 0}, Read: n}).Data
	}
	page := pattern(256)
	program := append([]byte{0x02, 0, 0x10, 0}, page...)

	// Enabling and the change in one message, deselected in between.
	change := func(what []byte) {
		r.spi(t, wire.SPITransfer{Segments: []wire.SPISegment{{Write: []byte{0x06}, CSChange: true}, {Write: what}}})
		if status()&1 == 0 {
			t.Errorf("after command %#x the flash isn't busy", what[0])
		}
		idle()
	}
	change([]byte{0x20, 0, 0x10, 0})
	r.spi(t, wire.SPITransfer{Write: program}) // not enabled: without effect
	if got := read(256); !bytes.Equal(got, bytes.Repeat([]byte{0xff}, 256)) {
		t.Errorf("erased it holds % x", got[:8])
	}
	change(program)
	if got := read(256); !bytes.Equal(got, page) {
		t.Errorf("programmed it holds % x", got[:8])
	}
	change([]byte{0x02, 0, 0x10, 1, 0xf0})
	if got := read(2); got[1] != 0xf0&page[1] {
		t.Errorf("programmed again it holds %#x: bits only go from 1 to 0", got[1])
	}
}

func testSPIFaults(t *testing.T, r *rig, s SPI) {
	for _, c := range []struct {
		errno syscall.Errno
		code  wire.Code
		name  any
	}{
		{syscall.EIO, wire.HardwareTransferFailed, "EIO"},
		{syscall.ETIMEDOUT, wire.HardwareTransferFailed, "ETIMEDOUT"},
		{syscall.EINVAL, wire.HardwareTransferFailed, "EINVAL"},
		{syscall.EMSGSIZE, wire.InvalidArgument, nil},
	} {
		s.Inject(c.errno, 1)
		e := r.fails(t, wire.OpSPITransfer, wire.SPITransfer{Write: []byte{1}}, c.code)
		if e.Details["os_error"] != c.name || e.Details["hint"] == nil || c.name != nil && e.Details["bytes_partial"] != 0 {
			t.Errorf("%v answers %v", c.errno, e.Details)
		}
		r.spi(t, wire.SPITransfer{Write: []byte{1}})
	}
}

func testSPIGiveUp(t *testing.T, r *rig, s SPI) {
	waiting, release := s.Stall()
	defer release()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	answered := make(chan error, 1)
	go func() {
		_, _, err := r.run(ctx, "a", r.op(t, wire.OpSPITransfer, wire.SPITransfer{Read: 1}))
		answered <- err
	}()
	<-waiting
	cancel(why)
	if err := <-answered; !errors.Is(err, why) {
		t.Errorf("giving up answers %v", err)
	}
	release()
	r.spi(t, wire.SPITransfer{Read: 1})
}

func testSPIUnplug(t *testing.T, r *rig, s SPI) {
	held := r.op(t, wire.OpSPITransfer, wire.SPITransfer{Read: 1})
	held.Hold = true
	if _, _, err := r.run(t.Context(), "a", held); err != nil {
		t.Fatal(err)
	}
	s.Unplug()
	r.fails(t, wire.OpSPITransfer, wire.SPITransfer{Read: 1}, wire.DeviceGone)
	r.fails(t, wire.OpSPITransfer, wire.SPITransfer{Read: 1}, wire.HardwareNotFound)
	s.Replug()
	r.spi(t, wire.SPITransfer{Read: 1})
}
