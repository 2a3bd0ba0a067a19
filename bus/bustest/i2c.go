package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"farhand/bus"
	"farhand/bus/i2cdev"
	"farhand/device"
	"farhand/internal/leak"
	"farhand/wire"
)

// I2C is a bus under test.
type I2C struct {
	Family device.Family
	ID     string
	// Memory are two chips that keep 256 bytes under addresses of one byte and
	// take 8 of them at a time.
	Memory [2]uint16
	Empty  uint16 // an address where nothing is
	Kernel uint16 // an address that the kernel driver Driver has
	Driver string
	// Transfers says whether the adapter does plain transfers; if not, the suite
	// asserts that this is said.
	Transfers bool
	// Gauge is a chip that speaks the whole of SMBus; 0 if there is none.
	Gauge uint16

	// What only a simulated bus can do; nil otherwise.
	Inject         func(addr uint16, err syscall.Errno, times int)
	Stall          func() (waiting <-chan struct{}, release func())
	Unplug, Replug func()
}

// RunI2C runs the suite; open makes a fresh bus for each case and cleans up
// after itself with t.Cleanup.
func RunI2C(t *testing.T, open func(t testing.TB) I2C) {
	can := open(t) // only asked what it can do
	for _, c := range []struct {
		name    string
		run     func(*testing.T, *rig, I2C)
		applies func(I2C) bool
	}{
		{"Registers", testRegisters, nil},
		{"SMBusBlocks", testBlocks, nil},
		{"Quick", testQuick, nil},
		{"NotThere", testNotThere, nil},
		{"Scan", testScan, nil},
		{"KernelHasIt", testKernel, nil},
		{"TwoSessionsTwoChips", testTwoSessions, nil},
		{"AtOnce", testAtOnce, nil},
		{"RefusedArguments", testI2CRefusals, nil},
		{"Counted", testCounted, nil},
		{"NoPlainTransfers", testNoTransfers, func(b I2C) bool { return !b.Transfers }},
		{"Transfer", testTransfer, func(b I2C) bool { return b.Transfers }},
		{"WholeTransactions", testWhole, func(b I2C) bool { return b.Transfers }},
		{"Gauge", testGauge, func(b I2C) bool { return b.Gauge != 0 }},
		{"Faults", testFaults, func(b I2C) bool { return b.Inject != nil }},
		{"NeverTwice", testNeverTwice, func(b I2C) bool { return b.Inject != nil }},
		{"DeadBus", testDeadBus, func(b I2C) bool { return b.Inject != nil }},
		{"GiveUp", testGiveUp, func(b I2C) bool { return b.Stall != nil }},
		{"Unplug", testI2CUnplug, func(b I2C) bool { return b.Unplug != nil }},
	} {
		if c.applies != nil && !c.applies(can) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			b := open(t)
			c.run(t, newRig(t, b.Family, b.ID), b)
		})
	}
}

func smbus(addr uint16, protocol string, command, value int) wire.I2CSMBus {
	a := wire.I2CSMBus{Address: wire.I2CAddress(addr), Protocol: protocol}
	if command >= 0 {
		a.Command = &command
	}
	if value >= 0 {
		a.Value = &value
	}
	return a
}

func (r *rig) value(t *testing.T, a wire.I2CSMBus) int {
	t.Helper()
	res := do[wire.I2CSMBusResult](t, r, wire.OpI2CSMBus, a)
	if res.Value == nil || res.Address != a.Address || res.Protocol != a.Protocol {
		t.Fatalf("%+v answers %+v", a, res)
	}
	return *res.Value
}

func (r *rig) write(t *testing.T, a wire.I2CSMBus) {
	t.Helper()
	if res := do[wire.I2CSMBusResult](t, r, wire.OpI2CSMBus, a); res.Value != nil || res.Data != nil {
		t.Errorf("%+v answers %+v", a, res)
	}
}

func testRegisters(t *testing.T, r *rig, b I2C) {
	m := b.Memory[0]
	r.write(t, smbus(m, wire.SMBusWriteByteData, 0x10, 0xa5))
	if v := r.value(t, smbus(m, wire.SMBusReadByteData, 0x10, -1)); v != 0xa5 {
		t.Errorf("register 0x10 holds %#x", v)
	}
	do[wire.I2CSMBusResult](t, r, wire.OpI2CSMBus, smbus(m, "Write-Word-Data", 0x20, 0xbeef)) // as people write it
	if v := r.value(t, smbus(m, wire.SMBusReadWordData, 0x20, -1)); v != 0xbeef {
		t.Errorf("the word at 0x20 is %#x", v)
	}
	if v := r.value(t, smbus(m, wire.SMBusReadByteData, 0x20, -1)); v != 0xef {
		t.Errorf("the low byte of a word comes first: %#x", v)
	}
	// write_byte sets the address of the next read_byte, by value or command.
	r.write(t, smbus(m, wire.SMBusWriteByte, -1, 0x10))
	if v := r.value(t, smbus(m, wire.SMBusReadByte, -1, -1)); v != 0xa5 {
		t.Errorf("read_byte at 0x10 answers %#x", v)
	}
	r.write(t, smbus(m, wire.SMBusWriteByte, 0x20, -1))
	if v := r.value(t, smbus(m, wire.SMBusReadByte, -1, -1)); v != 0xef {
		t.Errorf("read_byte at 0x20 answers %#x", v)
	}
}

func testBlocks(t *testing.T, r *rig, b I2C) {
	want := []byte{1, 0, 0xff, 0x7f, 5, 6, 7, 8}
	w := smbus(b.Memory[0], wire.SMBusWriteI2CBlock, 0x40, -1)
	w.Data = want
	r.write(t, w)
	read := smbus(b.Memory[0], wire.SMBusReadI2CBlock, 0x40, -1)
	read.Length = len(want)
	if res := do[wire.I2CSMBusResult](t, r, wire.OpI2CSMBus, read); !slices.Equal(res.Data, want) {
		t.Errorf("wrote % x, read % x", want, res.Data)
	}
	read.Length = 0
	if res := do[wire.I2CSMBusResult](t, r, wire.OpI2CSMBus, read); len(res.Data) != i2cdev.BlockMax || !slices.Equal(res.Data[:8], want) {
		t.Errorf("a block without a length is % x", res.Data)
	}
}

func testQuick(t *testing.T, r *rig, b I2C) {
	r.write(t, smbus(b.Memory[0], wire.SMBusQuick, -1, -1))
	e := r.fails(t, wire.OpI2CSMBus, smbus(b.Empty, wire.SMBusQuick, -1, -1), wire.HardwareTransferFailed)
	if e.Details["reason"] != bus.ReasonNack {
		t.Errorf("an empty address answers %v", e.Details)
	}
}

func testNotThere(t *testing.T, r *rig, b I2C) {
	e := r.fails(t, wire.OpI2CSMBus, smbus(b.Empty, wire.SMBusReadByteData, 0, -1), wire.HardwareTransferFailed)
	if e.Details["reason"] != bus.ReasonNack || e.Details["hint"] == nil || e.Details["os_error"] == nil || e.Details["device"] != b.ID {
		t.Errorf("an empty address answers %v", e.Details)
	}
	r.value(t, smbus(b.Memory[0], wire.SMBusReadByteData, 0, -1)) // the bus works on
}

// testScan is field case 27: it finds what is there, leaves a kernel's chip
// alone and changes nothing.
func testScan(t *testing.T, r *rig, b I2C) {
	m := b.Memory[0]
	r.write(t, smbus(m, wire.SMBusWriteByteData, 0x33, 0x5a))
	for _, method := range []string{"", wire.I2CScanAuto, wire.I2CScanQuick, wire.I2CScanRead} {
		res := do[wire.I2CScanned](t, r, wire.OpI2CScan, wire.I2CScan{Method: method})
		found := make(map[wire.I2CAddress]wire.I2CFound)
		for _, f := range res.Addresses {
			found[f.Address] = f
		}
		for _, addr := range b.Memory {
			if f := found[wire.I2CAddress(addr)]; f.Status != wire.I2CPresent {
				t.Errorf("scan %q: %#x is %+v", method, addr, f)
			}
		}
		if f := found[wire.I2CAddress(b.Kernel)]; f.Status != wire.I2CKernel || f.Driver != b.Driver {
			t.Errorf("scan %q: the kernel's %#x is %+v", method, b.Kernel, f)
		}
		if f, there := found[wire.I2CAddress(b.Empty)]; there {
			t.Errorf("scan %q: the empty %#x is %+v", method, b.Empty, f)
		}
		if !slices.IsSortedFunc(res.Addresses, func(a, b wire.I2CFound) int { return int(a.Address) - int(b.Address) }) {
			t.Errorf("scan %q is in no order: %v", method, res.Addresses)
		}
	}
	if v := r.value(t, smbus(m, wire.SMBusReadByteData, 0x33, -1)); v != 0x5a {
		t.Errorf("after scanning the register holds %#x", v)
	}
	can := do[wire.I2CScanned](t, r, wire.OpI2CScan, wire.I2CScan{}).Functions
	for function, want := range map[string]bool{"transfer": b.Transfers, "pec": false, wire.SMBusReadByteData: true, wire.SMBusReadBlock: b.Gauge != 0} {
		if slices.Contains(can, function) != want {
			t.Errorf("the adapter can %v", can)
		}
	}
	first := wire.I2CAddress(m)
	res := do[wire.I2CScanned](t, r, wire.OpI2CScan, wire.I2CScan{First: &first, Last: &first})
	if len(res.Addresses) != 1 || res.First != first || res.Last != first {
		t.Errorf("a scan of one address answers %+v", res)
	}
	held := r.op(t, wire.OpI2CSMBus, smbus(m, wire.SMBusQuick, -1, -1))
	held.Hold = true
	if _, _, err := r.run(t.Context(), "b", held); err != nil {
		t.Fatal(err)
	}
	do[wire.I2CScanned](t, r, wire.OpI2CScan, wire.I2CScan{}) // it takes no lease
}

// testKernel: what a kernel driver has is refused with its name, by every
// operation.
func testKernel(t *testing.T, r *rig, b I2C) {
	e := r.fails(t, wire.OpI2CSMBus, smbus(b.Kernel, wire.SMBusReadByteData, 0, -1), wire.HardwareBusy)
	if e.Details["consumer"] != b.Driver || e.Details["part"] != wire.I2CAddress(b.Kernel).String() {
		t.Errorf("busy without saying by whom: %v", e.Details)
	}
	if !b.Transfers {
		return
	}
	for _, force := range []bool{false, true} {
		r.fails(t, wire.OpI2CTransfer, wire.I2CTransfer{Address: wire.I2CAddress(b.Kernel), Read: 1, Force: force}, wire.HardwareBusy)
	}
}

func testTwoSessions(t *testing.T, r *rig, b I2C) {
	hold := func(session string, addr uint16) error {
		op := r.op(t, wire.OpI2CSMBus, smbus(addr, wire.SMBusReadByteData, 0, -1))
		op.Hold = true
		_, _, err := r.run(t.Context(), session, op)
		return err
	}
	if err := errors.Join(hold("a", b.Memory[0]), hold("b", b.Memory[1])); err != nil {
		t.Fatal(err)
	}
	e := wire.AsError(hold("b", b.Memory[0]))
	if e.Code != wire.HardwareBusy || e.Details["holder"] != "holder of a" || e.Details["part"] != wire.I2CAddress(b.Memory[0]).String() {
		t.Errorf("the other's chip answers %v %v", e, e.Details)
	}
	release := r.op(t, wire.OpRelease, map[string]any{"address": fmt.Sprintf("%#x", b.Memory[0])})
	if res, _, err := r.run(t.Context(), "a", release); err != nil || res != (wire.Released{Released: true}) {
		t.Errorf("RELEASE of a chip answers %v, %v", res, err)
	}
	if err := hold("b", b.Memory[0]); err != nil {
		t.Error(err)
	}
	if n := r.leases.Held("b"); n != 2 {
		t.Errorf("the session holds %d chips", n)
	}
	if res, _, err := r.run(t.Context(), "b", r.op(t, wire.OpRelease, struct{}{})); err != nil || res != (wire.Released{Released: true}) || r.leases.Held("b") != 0 {
		t.Errorf("RELEASE of the bus answers %v, %v", res, err)
	}
}

// testAtOnce has several sessions on two chips at once, each with what belongs
// together in one transaction.
func testAtOnce(t *testing.T, r *rig, b I2C) {
	var all sync.WaitGroup
	for i, addr := range b.Memory {
		all.Go(func() {
			session := fmt.Sprint(i)
			for n := range 50 {
				w := smbus(addr, wire.SMBusWriteWordData, 0x10, n<<8|i)
				if _, _, err := r.run(t.Context(), session, r.op(t, wire.OpI2CSMBus, w)); err != nil {
					t.Error(err)
				}
				res, _, err := r.run(t.Context(), session, r.op(t, wire.OpI2CSMBus, smbus(addr, wire.SMBusReadWordData, 0x10, -1)))
				if got, ok := res.(wire.I2CSMBusResult); err != nil || !ok || *got.Value != n<<8|i {
					t.Errorf("session %s round %d: %+v, %v", session, n, res, err)
				}
			}
		})
	}
	all.Wait()
}

func testI2CRefusals(t *testing.T, r *rig, b I2C) {
	m := wire.I2CAddress(b.Memory[0])
	block := smbus(b.Memory[0], wire.SMBusWriteBlock, 1, -1)
	long := smbus(b.Memory[0], wire.SMBusWriteI2CBlock, 1, -1)
	long.Data = make([]byte, 33)
	length := smbus(b.Memory[0], wire.SMBusReadI2CBlock, 1, -1)
	length.Length = 33
	lost := smbus(b.Memory[0], wire.SMBusReadByteData, 1, -1)
	lost.Data = []byte{1}
	for _, a := range []wire.I2CSMBus{
		{Address: m}, {Address: m, Protocol: "poke"}, smbus(b.Memory[0], wire.SMBusReadByteData, -1, -1),
		smbus(b.Memory[0], wire.SMBusReadByteData, 256, -1), smbus(b.Memory[0], wire.SMBusWriteByteData, 1, -1),
		smbus(b.Memory[0], wire.SMBusWriteByteData, 1, 256), smbus(b.Memory[0], wire.SMBusWriteWordData, 1, 65536),
		smbus(b.Memory[0], wire.SMBusReadByteData, 1, 1), smbus(b.Memory[0], wire.SMBusQuick, -1, 2), smbus(b.Memory[0], wire.SMBusWriteByte, -1, -1),
		block, long, length, lost, smbus(0x78, wire.SMBusQuick, -1, -1), smbus(0, wire.SMBusQuick, -1, -1),
	} {
		r.fails(t, wire.OpI2CSMBus, a, wire.InvalidArgument)
	}
	for _, a := range []wire.I2CTransfer{
		{Address: m}, {Address: m, Read: -1}, {Address: m, Read: bus.MaxI2CMessage + 1},
		{Address: m, Write: make([]byte, bus.MaxI2CMessage+1)}, {Address: m, Segments: make([]wire.I2CSegment, 1)},
		{Address: m, Segments: make([]wire.I2CSegment, bus.MaxI2CSegments+1)},
		{Address: m, Read: 1, Segments: []wire.I2CSegment{{Read: 1}}}, {Address: m, Segments: []wire.I2CSegment{{Write: []byte{1}, Read: 1}}},
		{Address: 0x03, Read: 1}, {Address: 0x7c, Read: 1},
	} {
		r.fails(t, wire.OpI2CTransfer, a, wire.InvalidArgument)
	}
	for _, a := range []wire.I2CTransfer{{Address: m, TenBit: true, Read: 1}, {Address: 0x150, Read: 1}} {
		r.fails(t, wire.OpI2CTransfer, a, wire.FeatureNotSupported)
	}
	one, last := wire.I2CAddress(0x01), wire.I2CAddress(0x7f)
	for _, a := range []wire.I2CScan{{First: &one}, {Last: &last}, {First: &m, Last: &one}, {Method: "hard"}} {
		r.fails(t, wire.OpI2CScan, a, wire.InvalidArgument)
	}
	for _, op := range []string{wire.OpI2CSMBus, wire.OpI2CTransfer} {
		r.fails(t, op, map[string]any{"read": 1, "protocol": wire.SMBusQuick}, wire.InvalidArgument)
		r.fails(t, op, map[string]any{"address": "nowhere"}, wire.InvalidArgument)
		r.fails(t, op, map[string]any{"address": "50", "read": 1, "protocol": wire.SMBusQuick}, wire.InvalidArgument) // or 0x32?
	}
	if e := r.fails(t, wire.OpI2CSMBus, withPEC(smbus(b.Memory[0], wire.SMBusReadByteData, 0, -1)), wire.FeatureNotSupported); e.Details["feature"] == nil {
		t.Errorf("checksums are refused without saying so: %v", e.Details)
	}
}

func testCounted(t *testing.T, r *rig, b I2C) {
	w := smbus(b.Memory[0], wire.SMBusWriteI2CBlock, 0, -1)
	w.Data = []byte{1, 2, 3}
	_, trace, err := r.run(t.Context(), "a", r.op(t, wire.OpI2CSMBus, w))
	if err != nil || trace.BytesOut != 4 || trace.BytesIn != 0 || trace.Effect != device.Mutating ||
		!slices.Equal(trace.Parts, []string{wire.I2CAddress(b.Memory[0]).String()}) {
		t.Errorf("a block of three bytes is traced as %+v, %v", trace, err)
	}
	_, trace, err = r.run(t.Context(), "a", r.op(t, wire.OpI2CSMBus, smbus(b.Memory[0], wire.SMBusReadWordData, 0, -1)))
	if err != nil || trace.BytesOut != 1 || trace.BytesIn != 2 {
		t.Errorf("a word is traced as %+v, %v", trace, err)
	}
}

func testNoTransfers(t *testing.T, r *rig, b I2C) {
	e := r.fails(t, wire.OpI2CTransfer, wire.I2CTransfer{Address: wire.I2CAddress(b.Memory[0]), Read: 1}, wire.FeatureNotSupported)
	if e.Details["hint"] == nil {
		t.Errorf("no hint at what works: %v", e.Details)
	}
}

func (r *rig) transfer(t *testing.T, a wire.I2CTransfer) wire.I2CTransferred {
	t.Helper()
	return do[wire.I2CTransferred](t, r, wire.OpI2CTransfer, a)
}

func testTransfer(t *testing.T, r *rig, b I2C) {
	m := wire.I2CAddress(b.Memory[0])
	if res := r.transfer(t, wire.I2CTransfer{Address: m, Write: []byte{0x08, 10, 20, 30}}); res.BytesWritten != 4 || len(res.Data) != 0 {
		t.Errorf("a write answers %+v", res)
	}
	if res := r.transfer(t, wire.I2CTransfer{Address: m, Write: []byte{0x08}, Read: 3}); !slices.Equal(res.Data, []byte{10, 20, 30}) || res.BytesWritten != 1 {
		t.Errorf("write-then-read answers %+v", res)
	}
	r.transfer(t, wire.I2CTransfer{Address: m, Write: []byte{0x09}})
	if res := r.transfer(t, wire.I2CTransfer{Address: m, Read: 2}); !slices.Equal(res.Data, []byte{20, 30}) {
		t.Errorf("a read answers %+v", res)
	}
	res := r.transfer(t, wire.I2CTransfer{Address: m, Segments: []wire.I2CSegment{{Write: []byte{0x0a}}, {Read: 1}, {Write: []byte{0x08}}, {Read: 2}}})
	if !slices.Equal(res.Data, []byte{30, 10, 20}) || res.BytesWritten != 2 {
		t.Errorf("segments answer %+v", res)
	}
	if res := r.transfer(t, wire.I2CTransfer{Address: m, Read: bus.MaxI2CMessage}); len(res.Data) != bus.MaxI2CMessage {
		t.Errorf("the longest read answers %d bytes", len(res.Data))
	}
	e := r.fails(t, wire.OpI2CTransfer, wire.I2CTransfer{Address: wire.I2CAddress(b.Empty), Write: []byte{1}}, wire.HardwareTransferFailed)
	if e.Details["reason"] != bus.ReasonNack {
		t.Errorf("an empty address answers %v", e.Details)
	}
}

// testWhole has two sessions set a chip's address and read in one transaction
// each, on one bus: nothing comes between the two halves.
func testWhole(t *testing.T, r *rig, b I2C) {
	for i, addr := range b.Memory {
		r.transfer(t, wire.I2CTransfer{Address: wire.I2CAddress(addr), Write: []byte{0, byte(i), 1, 2, 3}})
	}
	var all sync.WaitGroup
	for i, addr := range b.Memory {
		all.Go(func() {
			for n := range 100 {
				a := wire.I2CTransfer{Address: wire.I2CAddress(addr), Write: []byte{byte(n % 4)}, Read: 1}
				want := byte(n % 4)
				if want == 0 {
					want = byte(i)
				}
				res, _, err := r.run(t.Context(), fmt.Sprint(i), r.op(t, wire.OpI2CTransfer, a))
				if got, ok := res.(wire.I2CTransferred); err != nil || !ok || !slices.Equal(got.Data, []byte{want}) {
					t.Errorf("chip %d, cell %d: %+v, %v", i, n%4, res, err)
				}
			}
		})
	}
	all.Wait()
}

func testGauge(t *testing.T, r *rig, b I2C) {
	if v := r.value(t, smbus(b.Gauge, wire.SMBusReadWordData, 0x09, -1)); v < 5000 || v > 20000 {
		t.Errorf("the battery has %d mV", v)
	}
	if v := r.value(t, smbus(b.Gauge, wire.SMBusProcessCall, 0x44, 0x12ff)); v != 0x1300 {
		t.Errorf("the process call answers %#x", v)
	}
	name := smbus(b.Gauge, wire.SMBusWriteBlock, 0x20, -1)
	name.Data = []byte("some maker of gauges, 32 letters")
	r.write(t, name)
	if res := do[wire.I2CSMBusResult](t, r, wire.OpI2CSMBus, smbus(b.Gauge, wire.SMBusReadBlock, 0x20, -1)); !slices.Equal(res.Data, name.Data) {
		t.Errorf("the name is %q", res.Data)
	}
}

// testFaults is field cases 25 and 26: what adapters answer is told apart, with
// what helps.
func testFaults(t *testing.T, r *rig, b I2C) {
	m := wire.I2CAddress(b.Memory[0])
	for _, c := range []struct {
		errno  syscall.Errno
		code   wire.Code
		reason any
		name   string
	}{
		{i2cdev.EREMOTEIO, wire.HardwareTransferFailed, bus.ReasonNack, "EREMOTEIO"},
		{syscall.ENXIO, wire.HardwareTransferFailed, bus.ReasonNack, "ENXIO"},
		{syscall.ENODEV, wire.HardwareTransferFailed, bus.ReasonNack, "ENODEV"},
		{syscall.ETIMEDOUT, wire.HardwareTransferFailed, bus.ReasonTimeout, "ETIMEDOUT"},
		{syscall.EBUSY, wire.HardwareTransferFailed, bus.ReasonTimeout, "EBUSY"},
		{syscall.EAGAIN, wire.HardwareTransferFailed, bus.ReasonArbitration, "EAGAIN"},
		{syscall.EBADMSG, wire.HardwareTransferFailed, bus.ReasonChecksum, "EBADMSG"},
		{syscall.EPROTO, wire.HardwareTransferFailed, bus.ReasonBus, "EPROTO"},
		{syscall.EIO, wire.HardwareTransferFailed, bus.ReasonBus, "EIO"},
		{syscall.EOPNOTSUPP, wire.FeatureNotSupported, nil, "EOPNOTSUPP"},
		{syscall.EINVAL, wire.InvalidArgument, nil, "EINVAL"},
	} {
		b.Inject(b.Memory[0], c.errno, 2)
		for op, args := range map[string]any{
			wire.OpI2CTransfer: wire.I2CTransfer{Address: m, Write: []byte{1, 2}},
			wire.OpI2CSMBus:    smbus(b.Memory[0], wire.SMBusWriteByteData, 1, 2),
		} {
			e := r.fails(t, op, args, c.code)
			if name, _ := e.Details["os_error"].(string); e.Details["reason"] != c.reason || name != c.name {
				t.Errorf("%s with %v answers %v", op, c.errno, e.Details)
			}
			if c.code != wire.InvalidArgument && e.Details["hint"] == nil {
				t.Errorf("%s with %v answers no hint", op, c.errno)
			}
		}
		r.transfer(t, wire.I2CTransfer{Address: m, Read: 1}) // over with the fault
	}
}

// testNeverTwice is the other half of field case 25: what failed once isn't sent
// again by itself, whatever the failure is.
func testNeverTwice(t *testing.T, r *rig, b I2C) {
	m := wire.I2CAddress(b.Memory[0])
	r.transfer(t, wire.I2CTransfer{Address: m, Write: []byte{0, 1}})
	for _, errno := range []syscall.Errno{syscall.EAGAIN, i2cdev.EREMOTEIO, syscall.ETIMEDOUT, syscall.EINTR} {
		b.Inject(b.Memory[0], errno, 1)
		r.fails(t, wire.OpI2CTransfer, wire.I2CTransfer{Address: m, Write: []byte{0, 2}}, wire.HardwareTransferFailed)
		if res := r.transfer(t, wire.I2CTransfer{Address: m, Write: []byte{0}, Read: 1}); res.Data[0] != 1 {
			t.Fatalf("after %v the cell holds %d", errno, res.Data[0])
		}
	}
}

// testDeadBus: a scan of a bus whose lines are held low doesn't wait for every
// address.
func testDeadBus(t *testing.T, r *rig, b I2C) {
	b.Inject(0, syscall.ETIMEDOUT, 5)
	e := r.fails(t, wire.OpI2CScan, wire.I2CScan{}, wire.HardwareTransferFailed)
	if e.Details["reason"] != bus.ReasonTimeout {
		t.Errorf("a dead bus answers %v", e.Details)
	}
	b.Inject(0, syscall.EIO, 2) // other failures are no answer either, and no end
	if res := do[wire.I2CScanned](t, r, wire.OpI2CScan, wire.I2CScan{}); len(res.Addresses) < 2 {
		t.Errorf("with two timeouts left the scan finds %v", res.Addresses)
	}
	for _, addr := range []uint16{0x20, 0x22, 0x24, 0x26} { // chips that hang, not the bus
		b.Inject(addr, syscall.ETIMEDOUT, 1)
	}
	do[wire.I2CScanned](t, r, wire.OpI2CScan, wire.I2CScan{})
}

// testGiveUp: a caller who gives up is let go while the kernel still waits, and
// the bus works afterwards.
func testGiveUp(t *testing.T, r *rig, b I2C) {
	waiting, release := b.Stall()
	defer release()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	answered := make(chan error, 1)
	go func() {
		_, _, err := r.run(ctx, "a", r.op(t, wire.OpI2CTransfer, wire.I2CTransfer{Address: wire.I2CAddress(b.Memory[0]), Read: 1}))
		answered <- err
	}()
	<-waiting
	cancel(why)
	if err := <-answered; !errors.Is(err, why) {
		t.Errorf("giving up answers %v", err)
	}
	release()
	r.transfer(t, wire.I2CTransfer{Address: wire.I2CAddress(b.Memory[0]), Read: 1})
}

func testI2CUnplug(t *testing.T, r *rig, b I2C) {
	held := r.op(t, wire.OpI2CSMBus, smbus(b.Memory[0], wire.SMBusQuick, -1, -1))
	held.Hold = true
	if _, _, err := r.run(t.Context(), "a", held); err != nil {
		t.Fatal(err)
	}
	b.Unplug()
	r.fails(t, wire.OpI2CSMBus, smbus(b.Memory[0], wire.SMBusQuick, -1, -1), wire.DeviceGone)
	r.fails(t, wire.OpI2CScan, wire.I2CScan{}, wire.HardwareNotFound)
	b.Replug()
	r.write(t, smbus(b.Memory[0], wire.SMBusQuick, -1, -1))
}

func withPEC(a wire.I2CSMBus) wire.I2CSMBus {
	a.PEC = true
	return a
}
