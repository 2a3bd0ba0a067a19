// Package gpiotest is the conformance suite of GPIO chips: what the methods'
// comments promise, seen from both ends of a line. The simulated chip and the
// kernel's own simulator pass the same cases.
package gpiotest

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"farhand/gpio"
	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/wire"
)

// patience bounds every wait of the suite.
const patience = 10 * time.Second

// Bench is a chip with at least eight free lines, and the world outside it.
type Bench struct {
	Chip  gpio.Chip
	Label string
	// Free are eight lines that nobody uses, not wired to each other.
	Free [8]int
	// Drive has the world drive a line to a level.
	Drive func(t testing.TB, line, level int)
	// Level is a line's level as the world sees it.
	Level func(t testing.TB, line int) int
	// Vanish unplugs the chip; nil if it can't be.
	Vanish func(t testing.TB)
	// Adopt makes a Request of a descriptor.
	Adopt func(*os.File) (gpio.Request, error)
}

// Run runs the suite, each case on a bench of its own.
func Run(t *testing.T, open func(t *testing.T) Bench) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Bench)
	}{
		{"Info", testInfo},
		{"AsIs", testAsIs},
		{"Output", testOutput},
		{"Input", testInput},
		{"ActiveLow", testActiveLow},
		{"Pull", testPull},
		{"OpenDrain", testOpenDrain},
		{"Many", testMany},
		{"Mixed", testMixed},
		{"Reconfigure", testReconfigure},
		{"Busy", testBusy},
		{"BadCombination", testBadCombination},
		{"NoSuchLine", testNoSuchLine},
		{"Edges", testEdges},
		{"EdgesOfSeveral", testEdgesOfSeveral},
		{"OneEdge", testOneEdge},
		{"Overflow", testOverflow},
		{"Debounce", testDebounce},
		{"Deadline", testDeadline},
		{"CloseWhileReading", testCloseWhileReading},
		{"AfterClose", testAfterClose},
		{"Descriptor", testDescriptor},
		{"Vanish", testVanish},
	} {
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			b := open(t)
			defer b.Chip.Close()
			c.test(t, b)
		})
	}
}

func (b Bench) request(t *testing.T, o gpio.Options, lines ...gpio.LineConfig) gpio.Request {
	t.Helper()
	if o.Consumer == "" {
		o.Consumer = "gpiotest"
	}
	r, err := b.Chip.Request(lines, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func get(t *testing.T, r gpio.Request, mask, want uint64) {
	t.Helper()
	if got, err := r.Get(mask); got != want || err != nil {
		t.Errorf("lines %b read as %b, %v, want %b", mask, got, err, want)
	}
}

func set(t *testing.T, r gpio.Request, mask, bits uint64) {
	t.Helper()
	if err := r.Set(mask, bits); err != nil {
		t.Error(err)
	}
}

func (b Bench) sees(t *testing.T, line, want int) {
	t.Helper()
	if got := b.Level(t, line); got != want {
		t.Errorf("the world sees line %d at %d, want %d", line, got, want)
	}
}

func (b Bench) line(t *testing.T, offset int) gpio.LineInfo {
	t.Helper()
	i, err := b.Chip.Line(offset)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func testInfo(t *testing.T, b Bench) {
	i, err := b.Chip.Info()
	if err != nil || i.Label != b.Label || i.Lines < 8 || i.Name == "" {
		t.Errorf("%+v, %v", i, err)
	}
	l := b.line(t, b.Free[0])
	if l.Used || l.Consumer != "" || l.Direction != gpio.In || l.Offset != b.Free[0] {
		t.Errorf("a free line is %+v", l)
	}
	r := b.request(t, gpio.Options{Consumer: "a-very-long-name-of-a-consumer-of-lines"},
		gpio.LineConfig{Offset: b.Free[0], Direction: gpio.Out, ActiveLow: true})
	l = b.line(t, b.Free[0])
	if !l.Used || l.Consumer == "" || l.Direction != gpio.Out || !l.ActiveLow {
		t.Errorf("a requested line is %+v", l)
	}
	r.Close()
	if l = b.line(t, b.Free[0]); l.Used {
		t.Errorf("after Close it is %+v", l)
	}
}

func testAsIs(t *testing.T, b Bench) {
	b.Drive(t, b.Free[0], 1)
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0]})
	get(t, r, 1, 1)
	b.Drive(t, b.Free[0], 0)
	get(t, r, 1, 0)
	if err := r.Set(1, 1); !errors.Is(err, syscall.EPERM) {
		t.Errorf("setting an input: %v", err)
	}
}

func testOutput(t *testing.T, b Bench) {
	for _, first := range []int{0, 1} {
		r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.Out, Value: first})
		b.sees(t, b.Free[0], first)
		for _, v := range []uint64{1, 0, 1, 1, 0} {
			set(t, r, 1, v)
			b.sees(t, b.Free[0], int(v))
			get(t, r, 1, v)
		}
		r.Close()
	}
}

func testInput(t *testing.T, b Bench) {
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.In})
	for _, v := range []int{1, 0, 1} {
		b.Drive(t, b.Free[0], v)
		get(t, r, 1, uint64(v))
	}
}

func testActiveLow(t *testing.T, b Bench) {
	r := b.request(t, gpio.Options{},
		gpio.LineConfig{Offset: b.Free[0], Direction: gpio.Out, Value: 1, ActiveLow: true},
		gpio.LineConfig{Offset: b.Free[1], Direction: gpio.In, ActiveLow: true})
	b.sees(t, b.Free[0], 0)
	set(t, r, 1, 0)
	b.sees(t, b.Free[0], 1)
	b.Drive(t, b.Free[1], 1)
	get(t, r, 0b10, 0)
	b.Drive(t, b.Free[1], 0)
	get(t, r, 0b10, 0b10)
}

func testPull(t *testing.T, b Bench) {
	for _, p := range []gpio.Pull{gpio.PullUp, gpio.PullDown, gpio.PullNone} {
		r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[2], Direction: gpio.In, Pull: p})
		if l := b.line(t, b.Free[2]); l.Pull != p {
			t.Errorf("the pull is %d, want %d", l.Pull, p)
		}
		if p != gpio.PullNone {
			want := uint64(0)
			if p == gpio.PullUp {
				want = 1
			}
			get(t, r, 1, want)
		}
		r.Close()
	}
}

func testOpenDrain(t *testing.T, b Bench) {
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.Out, Value: 0, Drive: gpio.OpenDrain})
	if l := b.line(t, b.Free[0]); l.Drive != gpio.OpenDrain {
		t.Errorf("the drive is %d", l.Drive)
	}
	b.sees(t, b.Free[0], 0)
	r.Close()
}

func testMany(t *testing.T, b Bench) {
	var lines []gpio.LineConfig
	for i, o := range b.Free {
		lines = append(lines, gpio.LineConfig{Offset: o, Direction: gpio.Out, Value: i & 1})
	}
	r := b.request(t, gpio.Options{}, lines...)
	get(t, r, 0xff, 0b10101010)
	set(t, r, 0xff, 0b11001010)
	get(t, r, 0xff, 0b11001010)
	set(t, r, 0b00001111, 0b11110101) // only what is in the mask
	get(t, r, 0xff, 0b11000101)
	for i, o := range b.Free {
		b.sees(t, o, 0b11000101>>i&1)
	}
}

func testMixed(t *testing.T, b Bench) {
	b.Drive(t, b.Free[1], 1)
	r := b.request(t, gpio.Options{},
		gpio.LineConfig{Offset: b.Free[0], Direction: gpio.Out, Value: 1},
		gpio.LineConfig{Offset: b.Free[1], Direction: gpio.In},
		gpio.LineConfig{Offset: b.Free[2], Direction: gpio.Out, ActiveLow: true},
		gpio.LineConfig{Offset: b.Free[3], Direction: gpio.In, Debounce: 2 * time.Millisecond})
	get(t, r, 0b111, 0b011)
	b.sees(t, b.Free[2], 1)
	if l := b.line(t, b.Free[3]); l.Debounce != 2*time.Millisecond {
		t.Errorf("the debounce is %v", l.Debounce)
	}
	if err := r.Set(0b11, 0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("setting an input among outputs: %v", err)
	}
}

func testReconfigure(t *testing.T, b Bench) {
	a, z := gpio.LineConfig{Offset: b.Free[0], Direction: gpio.Out, Value: 1}, gpio.LineConfig{Offset: b.Free[1], Direction: gpio.Out, Value: 1}
	r := b.request(t, gpio.Options{}, a, z)
	z.Direction, z.Value = gpio.In, 0
	if err := r.Configure([]gpio.LineConfig{a, z}); err != nil {
		t.Fatal(err)
	}
	b.sees(t, b.Free[0], 1)
	for _, v := range []int{1, 0} {
		b.Drive(t, b.Free[1], v)
		get(t, r, 0b10, uint64(v)<<1)
	}
	z.Direction, z.Value = gpio.Out, 1
	if err := r.Configure([]gpio.LineConfig{a, z}); err != nil {
		t.Fatal(err)
	}
	b.sees(t, b.Free[1], 1)
	if err := r.Configure([]gpio.LineConfig{{Offset: a.Offset, Edges: gpio.Rising, Direction: gpio.Out}, z}); !errors.Is(err, wire.InvalidArgument) {
		t.Errorf("edges of an output: %v", err)
	}
	get(t, r, 0b11, 0b11) // as before
}

// testBusy is field case 15.
func testBusy(t *testing.T, b Bench) {
	first := b.request(t, gpio.Options{Consumer: "somebody"}, gpio.LineConfig{Offset: b.Free[1], Direction: gpio.Out, Value: 1})
	_, err := b.Chip.Request([]gpio.LineConfig{{Offset: b.Free[0], Direction: gpio.Out}, {Offset: b.Free[1], Direction: gpio.Out}}, gpio.Options{Consumer: "another"})
	if !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second request: %v", err)
	}
	if l := b.line(t, b.Free[1]); !l.Used || l.Consumer != "somebody" {
		t.Errorf("the busy line is %+v", l)
	}
	if l := b.line(t, b.Free[0]); l.Used {
		t.Errorf("the request that failed has kept %+v", l)
	}
	b.sees(t, b.Free[1], 1)
	first.Close()
	b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[1], Direction: gpio.In})
}

// testBadCombination is field case 18.
func testBadCombination(t *testing.T, b Bench) {
	for field, c := range map[string]gpio.LineConfig{
		"edge":             {Direction: gpio.Out, Edges: gpio.BothEdges},
		"debounce_seconds": {Direction: gpio.Out, Debounce: time.Millisecond},
		"drive":            {Direction: gpio.In, Drive: gpio.OpenDrain},
		"pull":             {Pull: gpio.PullUp},
		"initial_value":    {Direction: gpio.Out, Value: 2},
	} {
		c.Offset = b.Free[0]
		_, err := b.Chip.Request([]gpio.LineConfig{c}, gpio.Options{})
		if e := wire.AsError(err); e.Code != wire.InvalidArgument || e.Details["field"] != field || e.Details["line"] != b.Free[0] {
			t.Errorf("%s: %v %v", field, err, e.Details)
		}
	}
}

func testNoSuchLine(t *testing.T, b Bench) {
	i, err := b.Chip.Info()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Chip.Line(i.Lines); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Line: %v", err)
	}
	for _, lines := range [][]gpio.LineConfig{nil, {{Offset: i.Lines}}, make([]gpio.LineConfig, gpio.MaxLines+1)} {
		if _, err := b.Chip.Request(lines, gpio.Options{}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("requesting %d lines: %v", len(lines), err)
		}
	}
}

// events reads so many edges, or what there is when patience ends.
func events(t *testing.T, r gpio.Request, n int) []gpio.Event {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var all []gpio.Event
	buf := make([]gpio.Event, 64)
	for len(all) < n {
		got, err := r.Read(buf)
		if err != nil {
			t.Fatalf("after %d of %d edges: %v", len(all), n, err)
		}
		all = append(all, buf[:got]...)
	}
	return all
}

// none says that no edge comes.
func none(t *testing.T, r gpio.Request) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buf := make([]gpio.Event, 8)
	if n, err := r.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("there are %d edges more, %+v, %v", n, buf[0], err)
	}
}

func testEdges(t *testing.T, b Bench) {
	b.Drive(t, b.Free[0], 0)
	r := b.request(t, gpio.Options{EventBuffer: 256}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.In, Edges: gpio.BothEdges})
	var last uint64
	for i := range 20 {
		b.Drive(t, b.Free[0], 1-i%2)
		e := events(t, r, 1)[0]
		if e.Offset != b.Free[0] || e.Rising != (i%2 == 0) || e.Seq != uint32(i+1) || e.LineSeq != e.Seq || e.TimestampNS <= last {
			t.Fatalf("edge %d is %+v", i, e)
		}
		last = e.TimestampNS
	}
	none(t, r)
	if err := r.Configure([]gpio.LineConfig{{Offset: b.Free[0], Direction: gpio.In}}); err != nil {
		t.Fatal(err)
	}
	b.Drive(t, b.Free[0], 1)
	none(t, r)
}

func testEdgesOfSeveral(t *testing.T, b Bench) {
	var lines []gpio.LineConfig
	for _, o := range b.Free[:3] {
		b.Drive(t, o, 0)
		lines = append(lines, gpio.LineConfig{Offset: o, Direction: gpio.In, Edges: gpio.BothEdges})
	}
	r := b.request(t, gpio.Options{EventBuffer: 256}, lines...)
	perLine := map[int]uint32{}
	for i := range 12 {
		o := b.Free[i%3]
		b.Drive(t, o, 1-i/3%2)
		e := events(t, r, 1)[0]
		perLine[o]++
		if e.Offset != o || e.Seq != uint32(i+1) || e.LineSeq != perLine[o] {
			t.Fatalf("edge %d is %+v", i, e)
		}
	}
}

func testOneEdge(t *testing.T, b Bench) {
	b.Drive(t, b.Free[0], 0)
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.In, Edges: gpio.Falling, ActiveLow: true})
	for i := range 3 { // the physical level rises: it falls after ActiveLow
		b.Drive(t, b.Free[0], 1)
		if e := events(t, r, 1)[0]; e.Rising || e.Seq != uint32(i+1) {
			t.Errorf("%+v", e)
		}
		b.Drive(t, b.Free[0], 0)
	}
	none(t, r)
}

// testOverflow is field case 16: the oldest are forgotten, and the numbers show
// how many.
func testOverflow(t *testing.T, b Bench) {
	b.Drive(t, b.Free[0], 0)
	r := b.request(t, gpio.Options{EventBuffer: 16}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.In, Edges: gpio.BothEdges})
	const sent = 50
	for i := range sent {
		b.Drive(t, b.Free[0], 1-i%2)
	}
	var got, lost, next uint32 = 0, 0, 1
	for got+lost < sent {
		for _, e := range events(t, r, 1) {
			lost += e.LineSeq - next
			next = e.LineSeq + 1
			got++
		}
	}
	if got+lost != sent || lost == 0 || got < 16 {
		t.Errorf("%d sent, %d delivered, %d lost", sent, got, lost)
	}
	none(t, r)
}

// testDebounce bounces a line for less time than the debounce lasts, however
// long that is on this machine.
func testDebounce(t *testing.T, b Bench) {
	for period := 50 * time.Millisecond; period < patience; period *= 2 {
		b.Drive(t, b.Free[0], 0)
		r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.In, Edges: gpio.BothEdges, Debounce: period})
		began := time.Now()
		for i := range 11 {
			b.Drive(t, b.Free[0], 1-i%2)
		}
		if time.Since(began) > period/2 {
			r.Close()
			continue
		}
		if e := events(t, r, 1)[0]; !e.Rising {
			t.Errorf("%+v", e)
		}
		none(t, r)
		get(t, r, 1, 1)
		return
	}
	t.Error("eleven bounces take for ever")
}

func testDeadline(t *testing.T, b Bench) {
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.In, Edges: gpio.BothEdges})
	none(t, r)
	if err := r.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	failed := reading(r)
	if err := r.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := within(t, failed); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read whose deadline comes answers %v", err)
	}
}

func reading(r gpio.Request) <-chan error {
	failed := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		_, err := r.Read(make([]gpio.Event, 1))
		failed <- err
	}()
	<-started
	return failed
}

func within(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		t.Fatal("it didn't end")
		return nil
	}
}

// testCloseWhileReading is field case 17.
func testCloseWhileReading(t *testing.T, b Bench) {
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.In, Edges: gpio.BothEdges})
	failed := reading(r)
	done := make(chan error, 1)
	go func() { done <- r.Close() }()
	if err := within(t, done); err != nil {
		t.Error(err)
	}
	if err := within(t, failed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the read answers %v", err)
	}
}

func testAfterClose(t *testing.T, b Bench) {
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.Out})
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	_, gerr := r.Get(1)
	_, rerr := r.Read(make([]gpio.Event, 1))
	for what, err := range map[string]error{
		"Get": gerr, "Set": r.Set(1, 1), "Configure": r.Configure([]gpio.LineConfig{{Offset: b.Free[0]}}), "Read": rerr,
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if err := errors.Join(b.Chip.Close(), b.Chip.Close()); err != nil {
		t.Error(err)
	}
	_, lerr := b.Chip.Line(0)
	_, qerr := b.Chip.Request([]gpio.LineConfig{{Offset: b.Free[0]}}, gpio.Options{})
	for what, err := range map[string]error{"Line": lerr, "Request": qerr} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after Close of the chip: %v", what, err)
		}
	}
}

// testDescriptor is what a restart of the daemon does.
func testDescriptor(t *testing.T, b Bench) {
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.Out, Value: 1})
	k, ok := r.(gpio.Keeper)
	if !ok {
		t.Fatalf("%T can't be kept", r)
	}
	var f *os.File
	if err := k.Descriptor(func(fd uintptr) error {
		own, err := syscall.Dup(int(fd))
		f = os.NewFile(uintptr(own), "kept")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	again, err := b.Adopt(f)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	b.sees(t, b.Free[0], 1)
	get(t, again, 1, 1)
	set(t, again, 1, 0)
	b.sees(t, b.Free[0], 0)
}

// NoInterrupt is field case 22, with a line of the bench that has no interrupt.
func NoInterrupt(t *testing.T, b Bench, line int) {
	_, err := b.Chip.Request([]gpio.LineConfig{{Offset: line, Direction: gpio.In, Edges: gpio.Rising}}, gpio.Options{})
	if !errors.Is(err, syscall.ENXIO) {
		t.Errorf("edges without an interrupt: %v", err)
	}
	r := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: line, Direction: gpio.In})
	get(t, r, 1, uint64(b.Level(t, line)))
}

func testVanish(t *testing.T, b Bench) {
	testenv.Need(t, "unplug", b.Vanish != nil, "this chip can't be unplugged")
	in := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[0], Direction: gpio.In, Edges: gpio.BothEdges})
	out := b.request(t, gpio.Options{}, gpio.LineConfig{Offset: b.Free[1], Direction: gpio.Out})
	failed := reading(in)
	b.Vanish(t)
	if err := within(t, failed); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("the read answers %v", err)
	}
	_, gerr := in.Get(1)
	_, lerr := b.Chip.Line(b.Free[0])
	for what, err := range map[string]error{"Get": gerr, "Set": out.Set(1, 1), "Line": lerr} {
		if !errors.Is(err, syscall.ENODEV) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
