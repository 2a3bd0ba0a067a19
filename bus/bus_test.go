package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"periph.io/x/conn/v3/i2c/i2ctest"
	"periph.io/x/conn/v3/physic"
	"periph.io/x/conn/v3/spi"
	"periph.io/x/conn/v3/spi/spitest"

	"farhand/bus"
	"farhand/bus/bussim"
	"farhand/bus/i2cdev"
	"farhand/bus/ioctl"
	"farhand/bus/spidev"
	"farhand/device"
	"farhand/device/simsysfs"
	"farhand/internal/leak"
	"farhand/wire"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is an empty simulated bench.
func bench(t testing.TB) (*bussim.Bench, *simsysfs.Tree) {
	t.Helper()
	x := simsysfs.New(t.TempDir())
	check(t, x.Err())
	return bussim.New(x.FS), x
}

func nobody(uint16) string { return "" }

func openI2C(t testing.TB, o bussim.I2C) *bus.I2CBus {
	t.Helper()
	b, x := bench(t)
	check(t, b.AddI2C(1, o))
	p, err := bus.OpenI2C(x.FS.Node("i2c-1"), b.Open, nobody)
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

func openSPI(t testing.TB, o bussim.SPI) *bus.SPIDevice {
	t.Helper()
	b, x := bench(t)
	check(t, b.AddSPI(0, 0, o))
	buf := o.BufSize
	if buf == 0 {
		buf = spidev.DefaultBufSize
	}
	d, err := bus.OpenSPI(x.FS.Node("spidev0.0"), b.Open, buf)
	check(t, err)
	t.Cleanup(func() { check(t, d.Close()) })
	return d
}

func TestOpenFailures(t *testing.T) {
	leak.Check(t)
	dir := t.TempDir()
	plain, fifo := filepath.Join(dir, "plain"), filepath.Join(dir, "fifo")
	check(t, os.WriteFile(plain, nil, 0o600))
	check(t, unix.Mkfifo(fifo, 0o600))
	for node, want := range map[string]wire.Code{
		plain: wire.HardwareOpenFailed, fifo: wire.HardwareOpenFailed, dir: wire.HardwareOpenFailed, os.DevNull: wire.HardwareOpenFailed,
		filepath.Join(dir, "none"): wire.DeviceGone, "/dev/i2c\x00": wire.HardwareOpenFailed,
	} {
		_, err := bus.OpenI2C(node, ioctl.Open, nobody)
		if e := wire.AsError(err); e.Code != want || e.Details["os_error"] == nil {
			t.Errorf("opening %q as I2C answers %v %v, want %s", node, err, e.Details, want)
		}
		_, err = bus.OpenSPI(node, ioctl.Open, 4096)
		if e := wire.AsError(err); e.Code != want || e.Details["os_error"] == nil {
			t.Errorf("opening %q as SPI answers %v %v, want %s", node, err, e.Details, want)
		}
	}
	refuse := func(errno syscall.Errno) func(string) (ioctl.Node, error) {
		return func(path string) (ioctl.Node, error) {
			return nil, &os.PathError{Op: "open", Path: path, Err: errno}
		}
	}
	for errno, want := range map[syscall.Errno]wire.Code{
		syscall.EACCES: wire.HardwareOpenFailed, syscall.EBUSY: wire.HardwareBusy, syscall.ENXIO: wire.DeviceGone, syscall.EMFILE: wire.HardwareOpenFailed,
	} {
		if _, err := bus.OpenSPI("/dev/spidev0.0", refuse(errno), 4096); wire.CodeOf(err) != want {
			t.Errorf("%v answers %v", errno, err)
		}
	}
}

// TestQuirk is field case 26: an adapter behind USB takes short messages only,
// and says no more than that it can't.
func TestQuirk(t *testing.T) {
	p := openI2C(t, bussim.I2C{Chips: map[uint16]bussim.Chip{0x50: bussim.NewEEPROM()}, MaxMessage: 32})
	read := func(n int) error {
		return p.Transfer(t.Context(), 0x50, []i2cdev.Message{{Data: []byte{0}}, {Read: true, Data: make([]byte, n)}})
	}
	if err := read(32); err != nil {
		t.Error(err)
	}
	e := wire.AsError(read(33))
	if e.Code != wire.FeatureNotSupported || e.Details["hint"] == nil || e.Details["os_error"] != "EOPNOTSUPP" {
		t.Errorf("a message that is too long answers %v %v", e, e.Details)
	}
}

// TestScanMethods: a method that the adapter lacks is refused by name, and auto
// takes what there is.
func TestScanMethods(t *testing.T) {
	for _, c := range []struct {
		funcs         i2cdev.Func
		auto, q, read bool
	}{
		{i2cdev.FuncI2C | i2cdev.FuncQuick, true, true, false},
		{i2cdev.FuncI2C | i2cdev.FuncReadByte, true, false, true},
		{i2cdev.FuncI2C, false, false, false},
	} {
		p := openI2C(t, bussim.I2C{Chips: map[uint16]bussim.Chip{0x50: bussim.NewEEPROM(), 0x0b: bussim.NewGauge()}, Funcs: c.funcs})
		for method, works := range map[string]bool{wire.I2CScanAuto: c.auto, wire.I2CScanQuick: c.q, wire.I2CScanRead: c.read} {
			found, err := p.Scan(t.Context(), 0x08, 0x77, method)
			if works && (err != nil || len(found) != 2) || !works && wire.CodeOf(err) != wire.FeatureNotSupported {
				t.Errorf("funcs %#x, method %s: %v, %v", c.funcs, method, found, err)
			}
		}
	}
}

// noWrite fails the test if it is written to.
type noWrite struct{ t *testing.T }

func (n noWrite) Write([]byte) bool {
	n.t.Error("a scan wrote to an address where EEPROMs live")
	return true
}
func (noWrite) Read([]byte) bool { return true }

// TestScanIsCareful is field case 27 too: where EEPROMs live a scan only reads.
func TestScanIsCareful(t *testing.T) {
	chips := make(map[uint16]bussim.Chip)
	for addr := uint16(0x08); addr <= 0x77; addr++ {
		chips[addr] = bussim.NewGauge()
		if addr>>3 == 0x30>>3 || addr>>4 == 0x5 {
			chips[addr] = noWrite{t}
		}
	}
	p := openI2C(t, bussim.I2C{Chips: chips})
	if found, err := p.Scan(t.Context(), 0x08, 0x77, wire.I2CScanAuto); err != nil || len(found) != len(chips) {
		t.Errorf("found %d of %d, %v", len(found), len(chips), err)
	}
}

func TestScanGivenUp(t *testing.T) {
	p := openI2C(t, bussim.I2C{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := wire.Errorf(wire.HardwareTransferFailed, "released")
	cancel(why)
	if _, err := p.Scan(ctx, 0x08, 0x77, wire.I2CScanAuto); !errors.Is(err, error(why)) {
		t.Errorf("a scan that was given up answers %v", err)
	}
}

func TestClose(t *testing.T) {
	leak.Check(t)
	b, x := bench(t)
	check(t, b.AddI2C(1, bussim.I2C{Chips: map[uint16]bussim.Chip{0x50: bussim.NewEEPROM()}}))
	p, err := bus.OpenI2C(x.FS.Node("i2c-1"), b.Open, nobody)
	check(t, err)
	waiting, release, err := b.Stall("i2c-1")
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- p.Transfer(ctx, 0x50, []i2cdev.Message{{Read: true, Data: make([]byte, 1)}}) }()
	<-waiting
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the transfer answers %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	select {
	case <-closed:
		t.Error("Close doesn't wait for what the kernel still does")
	default:
	}
	release()
	if err := errors.Join(<-closed, p.Close()); err != nil {
		t.Error(err)
	}
	if err := p.Tx(0x50, nil, make([]byte, 1)); wire.CodeOf(err) != wire.HardwareTransferFailed {
		t.Errorf("after Close a transfer answers %v", err)
	}
}

// TestModes: what the controller can't do is said, and what it can reaches it.
func TestModes(t *testing.T) {
	send := func(d *bus.SPIDevice, s bus.SPISettings) ([]byte, error) {
		s.SpeedHz, s.Bits = 1_000_000, 8
		in := make([]byte, 2)
		_, err := d.Transfer(t.Context(), s, []spidev.Segment{{Tx: []byte{0x01, 0xf0}, Rx: in}})
		return in, err
	}
	plain := openSPI(t, bussim.SPI{Chip: bussim.Wire{}, Modes: spidev.CPOL})
	for _, s := range []bus.SPISettings{{Mode: 1}, {NoCS: true}, {CSHigh: true}, {ThreeWire: true}} {
		if _, err := send(plain, s); wire.CodeOf(err) != wire.FeatureNotSupported {
			t.Errorf("%+v answers %v", s, err)
		}
	}
	for _, s := range []bus.SPISettings{{Mode: 2}, {LSBFirst: true}, {LSBFirst: true, Mode: 2}, {}} { // bits are turned round here
		if in, err := send(plain, s); err != nil || !slices.Equal(in, []byte{0x01, 0xf0}) {
			t.Errorf("%+v answers % x, %v", s, in, err)
		}
	}
	able := openSPI(t, bussim.SPI{Chip: bussim.Wire{}, Modes: spidev.CPOL | spidev.CPHA | spidev.LSBFirst | spidev.CSHigh})
	for _, s := range []bus.SPISettings{{CSHigh: true, LSBFirst: true, Mode: 3}, {}} {
		if in, err := send(able, s); err != nil || !slices.Equal(in, []byte{0x01, 0xf0}) {
			t.Errorf("%+v answers % x, %v", s, in, err)
		}
	}
	line := openSPI(t, bussim.SPI{Chip: bussim.Wire{}, GPIOSelect: true})
	_, err := send(line, bus.SPISettings{CSHigh: true})
	if e := wire.AsError(err); e.Code != wire.FeatureNotSupported || e.Details["feature"] != "spi_cs_high" {
		t.Errorf("a chip select that is a GPIO line answers %v %v", err, e.Details)
	}
	if _, err := send(line, bus.SPISettings{}); err != nil {
		t.Error(err)
	}
}

// echoBits is a chip that answers what it gets turned round, so that the order
// of bits shows.
type echoBits struct{ bussim.Wire }

func (echoBits) Exchange(in byte) byte { return in >> 4 }

func TestLSBFirst(t *testing.T) {
	for _, modes := range []uint32{spidev.LSBFirst, spidev.CPOL} { // by the controller, by us
		d := openSPI(t, bussim.SPI{Chip: echoBits{}, Modes: modes})
		in, out := make([]byte, 1), []byte{0x0f} // 0xf0 on the wire, 0x0f back, 0xf0 here
		_, err := d.Transfer(t.Context(), bus.SPISettings{LSBFirst: true, SpeedHz: 1e6, Bits: 8}, []spidev.Segment{{Tx: out, Rx: in}})
		if err != nil || in[0] != 0xf0 || out[0] != 0x0f {
			t.Errorf("modes %#x: %#x comes back, %#x was sent, %v", modes, in, out, err)
		}
	}
}

// TestSegmentsAsAsked looks at what a controller is told of each segment.
func TestSegmentsAsAsked(t *testing.T) {
	var got [][]spidev.Transfer
	d := openSPI(t, bussim.SPI{Chip: bussim.Wire{}, Bits: 16, BufSize: 512, Transfers: func(m []spidev.Transfer) { got = append(got, m) }})
	done, err := d.Transfer(t.Context(), bus.SPISettings{SpeedHz: 200_000_000, Bits: 8, Split: true}, []spidev.Segment{
		{Tx: make([]byte, 100), DelayUsecs: 7, CSChange: true},
		{Rx: make([]byte, 400), SpeedHz: 1000_000, BitsPerWord: 16, CSChange: true},
		{Tx: make([]byte, 1000), DelayUsecs: 9, CSChange: true},
	})
	if err != nil || done.Pieces != 4 || done.Sent != 1100 || done.SpeedHz != 125_000_000 {
		t.Errorf("%+v, %v", done, err)
	}
	type seg struct {
		len, speed uint32
		delay      uint16
		bits, cs   uint8
	}
	var have [][]seg
	for _, m := range got {
		var piece []seg
		for _, s := range m {
			piece = append(piece, seg{s.Len, s.SpeedHz, s.DelayUsecs, s.BitsPerWord, s.CSChange})
		}
		have = append(have, piece)
	}
	const fast = 125_000_000 // what the device tree allows
	want := [][]seg{
		{{100, fast, 7, 8, 0}},      // would stay selected at the end of a message
		{{400, 1000_000, 0, 16, 0}}, // fits into one, so it isn't cut
		{{512, fast, 0, 8, 0}},
		{{488, fast, 9, 8, 1}}, // the last one stays selected, as asked
	}
	if !slices.EqualFunc(have, want, slices.Equal) {
		t.Errorf("sent %v, want %v", have, want)
	}
}

func TestPartial(t *testing.T) {
	b, x := bench(t)
	check(t, b.AddSPI(0, 0, bussim.SPI{Chip: bussim.Wire{}, BufSize: 128, Transfers: func(m []spidev.Transfer) {
		if m[0].Len < 128 { // the last piece
			check(t, b.Inject("spidev0.0", bussim.Fault{Err: syscall.EIO, Times: 1}))
		}
	}}))
	d, err := bus.OpenSPI(x.FS.Node("spidev0.0"), b.Open, 128)
	check(t, err)
	defer d.Close()
	_, err = d.Transfer(t.Context(), bus.SPISettings{SpeedHz: 1e6, Bits: 8, Split: true}, []spidev.Segment{{Tx: make([]byte, 300)}})
	if e := wire.AsError(err); e.Code != wire.HardwareTransferFailed || e.Details["bytes_partial"] != 256 {
		t.Errorf("a transfer that fails at its end answers %v %v", err, e.Details)
	}
}

// pec is a node whose adapter has checksums; it notes whether they are on.
type pec struct {
	ioctl.Node
	on []uintptr
}

func (p *pec) Set(req uint32, value uintptr) error {
	if req == i2cdev.PEC {
		p.on = append(p.on, value)
		return nil
	}
	return p.Node.Set(req, value)
}

func TestPEC(t *testing.T) {
	b, x := bench(t)
	check(t, b.AddI2C(1, bussim.I2C{Chips: map[uint16]bussim.Chip{0x50: bussim.NewEEPROM()}, Funcs: bussim.StubFuncs | i2cdev.FuncPEC}))
	var n *pec
	p, err := bus.OpenI2C(x.FS.Node("i2c-1"), func(node string) (ioctl.Node, error) {
		inner, err := b.Open(node)
		n = &pec{Node: inner}
		return n, err
	}, nobody)
	check(t, err)
	defer p.Close()
	for _, on := range []bool{true, false} { // it stays with the file, so it is said each time
		_, err := p.SMBus(t.Context(), 0x50, bus.Call{Protocol: wire.SMBusReadByteData, PEC: on})
		check(t, err)
	}
	if !slices.Equal(n.on, []uintptr{1, 0}) {
		t.Errorf("checksums were set to %v", n.on)
	}
}

// TestPeriph: periph's device drivers and doubles see an opened bus as one of
// theirs.
func TestPeriph(t *testing.T) {
	p := openI2C(t, bussim.I2C{Chips: map[uint16]bussim.Chip{0x50: bussim.NewEEPROM()}})
	rec := &i2ctest.Record{Bus: p}
	got := make([]byte, 2)
	if err := errors.Join(rec.Tx(0x50, []byte{0x10, 1, 2}, nil), rec.Tx(0x50, []byte{0x10}, got), rec.Tx(0x50, nil, nil)); err != nil {
		t.Fatal(err)
	}
	if len(rec.Ops) != 3 || !slices.Equal(got, []byte{1, 2}) || !slices.Equal(rec.Ops[1].R, got) || p.String() == "" {
		t.Errorf("recorded %+v", rec.Ops)
	}
	if err := p.Tx(0x2a, []byte{1}, nil); wire.CodeOf(err) != wire.HardwareTransferFailed {
		t.Errorf("an empty address answers %v", err)
	}
	if err := p.SetSpeed(100 * physic.KiloHertz); wire.CodeOf(err) != wire.FeatureNotSupported {
		t.Errorf("SetSpeed answers %v", err)
	}

	d := openSPI(t, bussim.SPI{Chip: bussim.NewFlash()})
	srec := &spitest.Record{Port: d}
	check(t, d.LimitSpeed(10*physic.MegaHertz))
	c, err := srec.Connect(20*physic.MegaHertz, spi.Mode0, 8)
	check(t, err)
	in := make([]byte, 4)
	if err := c.Tx([]byte{0x9f, 0, 0, 0}, in); err != nil || !slices.Equal(in[1:], []byte{0xef, 0x40, 0x14}) {
		t.Errorf("the flash says % x, %v", in, err)
	}
	direct, err := d.Connect(0, spi.Mode3, 8)
	check(t, err)
	id := make([]byte, 3)
	err = direct.TxPackets([]spi.Packet{{W: []byte{0x9f}, KeepCS: true}, {R: id}})
	if err != nil || !slices.Equal(id, in[1:]) {
		t.Errorf("in two packets it says % x, %v", id, err)
	}
	err = direct.TxPackets([]spi.Packet{{W: []byte{0x9f}}, {R: id}}) // deselected in between
	if err != nil || !slices.Equal(id, []byte{0xff, 0xff, 0xff}) {
		t.Errorf("deselected in between it says % x, %v", id, err)
	}
	if _, err := d.Connect(physic.MegaHertz, spi.Mode(1<<10), 8); wire.CodeOf(err) != wire.InvalidArgument {
		t.Errorf("an unknown mode answers %v", err)
	}
	if err := direct.TxPackets([]spi.Packet{{W: in, R: id}}); wire.CodeOf(err) != wire.InvalidArgument {
		t.Errorf("a lopsided packet answers %v", err)
	}
}

// FuzzOperations gives the services any arguments: what comes back is an answer
// or an error with a code, and the bus works on.
func FuzzOperations(f *testing.F) {
	ops := []string{wire.OpI2CTransfer, wire.OpI2CSMBus, wire.OpI2CScan, wire.OpRelease, wire.OpSPITransfer}
	for i, args := range []string{
		`{"address":"0x50","write":[0],"read":4}`, `{"address":80,"protocol":"read_i2c_block","command":0,"length":4}`,
		`{"first":"0x50","last":"0x51","method":"read"}`, `{"address":"50h"}`, `{"write":"nw==","read":3,"mode":3,"bits":8,"split":true}`,
	} {
		f.Add(byte(i), []byte(args))
	}
	f.Add(byte(0), []byte(`{"address":80,"segments":[{"write":[1]},{"read":2}],"force":true}`))
	f.Add(byte(1), []byte(`{"address":80,"protocol":"write_block","command":1,"data":[1,2],"pec":true}`))
	f.Add(byte(4), []byte(`{"segments":[{"write":[1,2],"read":2,"bits":16,"cs_change":true,"delay_us":1,"speed_hz":5}],"cs":"none","lsb_first":true}`))

	b, x := bench(f)
	check(f, b.AddI2C(1, bussim.I2C{Chips: map[uint16]bussim.Chip{0x50: bussim.NewEEPROM(), 0x51: bussim.NewGauge(), 0x76: bussim.NewBME280()}}))
	check(f, b.AddSPI(0, 0, bussim.SPI{Chip: bussim.NewFlash()}))
	reg := device.NewRegistry(device.Options{Families: []device.Family{
		{Driver: bus.I2C{FS: x.FS}, Service: bus.I2CService{FS: x.FS, Open: b.Open}},
		{Driver: bus.SPI{FS: x.FS}, Service: bus.SPIService{FS: x.FS, Open: b.Open}},
	}})
	check(f, reg.Refresh(f.Context()))
	leases := device.NewLeases(device.LeaseOptions{})
	f.Cleanup(func() { leases.Close() })
	disp := device.NewDispatcher(reg, leases, nil)
	f.Fuzz(func(t *testing.T, which byte, args []byte) {
		op := wire.HardwareOp{Device: "i2c:1", Op: ops[int(which)%len(ops)], Args: json.RawMessage(args)}
		if op.Op == wire.OpSPITransfer {
			op.Device = "spi:0.0"
		}
		res, _, err := disp.Do(t.Context(), device.Caller{Session: "s"}, op)
		if err != nil && wire.CodeOf(err) == wire.InternalError {
			t.Errorf("%s %s: %v", op.Op, args, err)
		}
		if err == nil {
			if _, err := json.Marshal(res); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestShutdown: spidev says that a device is gone before its node goes.
func TestShutdown(t *testing.T) {
	b, x := bench(t)
	check(t, b.AddSPI(0, 0, bussim.SPI{Chip: bussim.Wire{}}))
	check(t, b.Inject("spidev0.0", bussim.Fault{Err: syscall.ESHUTDOWN}))
	d, err := bus.OpenSPI(x.FS.Node("spidev0.0"), b.Open, spidev.DefaultBufSize)
	check(t, err)
	defer d.Close()
	_, err = d.Transfer(t.Context(), bus.SPISettings{SpeedHz: 1e6, Bits: 8}, []spidev.Segment{{Tx: []byte{1}}})
	if wire.CodeOf(err) != wire.DeviceGone {
		t.Errorf("a transfer answers %v", err)
	}
}
