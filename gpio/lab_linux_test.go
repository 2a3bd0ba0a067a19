package gpio_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"farhand/device"
	"farhand/gpio"
	"farhand/gpio/gpiotest"
	"farhand/gpio/uapi"
	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/lab/guest"
	"farhand/wire"
)

// labLabel is a chip's that the driver doesn't take for a board's.
const labLabel = "farhand-lab"

// labChip makes a chip of the kernel's gpio-sim with sixteen lines that are named
// as a board's.
func labChip(t *testing.T) *guest.Chip {
	names := map[int]string{}
	for i := range 16 {
		names[i] = fmt.Sprintf("GPIO%d", i)
	}
	return guest.GPIOSim(t, guest.Bank{Label: labLabel, Lines: 16, Names: names})
}

func labBench(t *testing.T) gpiotest.Bench {
	c := labChip(t)
	chip, err := gpio.Open(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	return gpiotest.Bench{
		Chip: chip, Label: labLabel, Free: [8]int{0, 1, 2, 3, 4, 5, 6, 7},
		Drive:  func(_ testing.TB, line, level int) { c.Pull(line, pullTo(level)) },
		Level:  func(_ testing.TB, line int) int { return levelOf(c.Value(line)) },
		Vanish: func(testing.TB) { c.Unplug() },
		Adopt:  gpio.Adopt,
	}
}

// oneCPU takes the other processors away for the test. Then the kernel's
// interrupt thread runs before the next edge is made, so that each edge is seen:
// on several, gpio-sim ignores the edges that come while an earlier one of the
// line is being handled, and nobody can count those.
func oneCPU(t *testing.T) {
	others, err := filepath.Glob("/sys/devices/system/cpu/cpu[1-9]*/online")
	if err != nil {
		t.Fatal(err)
	}
	for _, cpu := range others {
		if err := os.WriteFile(cpu, []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(cpu, []byte("1"), 0); err != nil {
				t.Error(err)
			}
		})
	}
	if len(others) == 0 && runtime.NumCPU() > 1 {
		t.Fatal("the other processors can't be taken away")
	}
}

func pullTo(level int) guest.Level {
	if level == 1 {
		return guest.Up
	}
	return guest.Down
}

func levelOf(high bool) int {
	if high {
		return 1
	}
	return 0
}

func TestLabConformance(t *testing.T) {
	testenv.Lab(t)
	oneCPU(t)
	gpiotest.Run(t, labBench)
}

func TestLabService(t *testing.T) {
	testenv.Lab(t)
	gpiotest.RunService(t, func(t *testing.T) gpiotest.ServiceBench {
		return gpiotest.ServiceBench{Bench: labBench(t), Driver: gpio.Driver{}, Device: "gpio:" + labLabel, Open: gpio.Open}
	})
}

// TestLabHeader is a board's label on the kernel's chip: every way to name a
// line.
func TestLabHeader(t *testing.T) {
	testenv.Lab(t)
	names := map[int]string{}
	for i := range 28 {
		names[i] = fmt.Sprintf("GPIO%d", i)
	}
	c := guest.GPIOSim(t, guest.Bank{Label: "pinctrl-bcm2711", Lines: 54, Names: names, Hogs: map[int]guest.Hog{20: {Consumer: "led0", Direction: "output-high"}}})
	d := gpiotest.NewDesk(t, gpio.Driver{}, gpio.ServiceOptions{}, device.LeaseOptions{Linger: -1})
	defer d.Close()
	for _, name := range []string{"17", "GPIO17", "bcm17", "pin 11", "J8:11", c.Name + ":17", "pinctrl-bcm2711:GPIO17", "pinctrl-bcm2711#17"} {
		r := d.Do("s", "gpio:bcm", wire.OpGPIOSet, `{"line":"`+name+`","value":1}`).(wire.GPIOValues)
		if r.Lines[0].Line != 17 || r.Lines[0].Name != "GPIO17" {
			t.Errorf("%s is %+v", name, r.Lines[0])
		}
	}
	if !c.Value(17) {
		t.Error("GPIO17 isn't driven")
	}
	// Field case 15: the kernel's own consumer is named.
	if e := d.Fails(wire.HardwareBusy, "s", "gpio:bcm", wire.OpGPIOSet, `{"line":"pin 38","value":0}`); e.Details["consumer"] != "led0" {
		t.Errorf("%v", e.Details)
	}
	info := d.Do("s", "gpio:bcm", wire.OpGPIOInfo, `{"lines":[17,20],"probe":true}`).(wire.GPIOChip)
	if !info.Header || info.Count != 54 || info.Lines[0].Pin != 11 || info.Lines[1].Available || info.Lines[1].Consumer != "led0" {
		t.Errorf("%+v", info)
	}
}

// TestLabBurst is 10 000 edges as fast as this machine makes them, field case
// 16: each is delivered, or counted as lost.
func TestLabBurst(t *testing.T) {
	testenv.Lab(t)
	oneCPU(t)
	leak.Check(t)
	c := labChip(t)
	d := gpiotest.NewDesk(t, gpio.Driver{}, gpio.ServiceOptions{}, device.LeaseOptions{})
	defer d.Close()
	w := d.Watch("s", "gpio:"+labLabel, `{"line":0,"credit":16777216}`)
	f, err := os.OpenFile(c.PullFile(0), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const sent = 10000
	began := time.Now()
	pulls := [2]string{string(guest.Up), string(guest.Down)}
	for i := range sent {
		if _, err := f.WriteAt([]byte(pulls[i%2]), 0); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	// What was lost is either counted by a record, or lies in a gap of the
	// stream, whose ring keeps 256 KiB for a receiver that is slower.
	var delivered, lost, unread, told, gap int64
	for next := uint32(1); next <= sent; {
		r, ok := w.Next()
		if !ok {
			t.Fatalf("the stream ended after edge %d", next-1)
		}
		switch r.Kind {
		case wire.GPIOLost:
			told += r.Lost
		case gpiotest.Gap:
			gap += r.Lost
		case wire.GPIOEdge:
			missing := int64(r.LineSeq - next)
			switch {
			case gap > 0: // some of it may have been lost before, with the record that says so
				unread += missing
			case missing != told:
				t.Errorf("before edge %d %d are missing, %d are said to be lost", r.LineSeq, missing, told)
			default:
				lost += missing
			}
			delivered++
			told, gap, next = 0, 0, r.LineSeq+1
		}
	}
	if delivered+lost+unread != sent {
		t.Errorf("%d sent, %d delivered, %d lost, %d not read in time", sent, delivered, lost, unread)
	}
	t.Logf("figure: %d edges at %.0f/s: %d delivered, %d counted as lost by the kernel, %d by the stream", sent, sent/took.Seconds(), delivered, lost, unread)
}

// TestLabToggle compares a line that is driven by the driver with a loop of bare
// ioctls, in turn, and says the ratio.
func TestLabToggle(t *testing.T) {
	testenv.Lab(t)
	c := labChip(t)
	chip, err := gpio.Open(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer chip.Close()
	ours, err := chip.Request([]gpio.LineConfig{{Offset: 0, Direction: gpio.Out}}, gpio.Options{Consumer: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	bare, err := chip.Request([]gpio.LineConfig{{Offset: 1, Direction: gpio.Out}}, gpio.Options{Consumer: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	const round = 2000
	driven := func() time.Duration {
		began := time.Now()
		for i := range round {
			if err := ours.Set(1, uint64(i&1)); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(began)
	}
	looped := func() (took time.Duration) {
		k := bare.(gpio.Keeper)
		if err := k.Descriptor(func(fd uintptr) error {
			began := time.Now()
			defer func() { took = time.Since(began) }()
			return toggle(fd, round)
		}); err != nil {
			t.Fatal(err)
		}
		return took
	}
	var ratios []float64
	driven()
	looped()
	for range 15 {
		a, b := driven(), looped()
		ratios = append(ratios, float64(b)/float64(a))
	}
	slices.Sort(ratios)
	ratio := ratios[len(ratios)/2]
	verdict := "ok"
	if ratio < 0.8 {
		verdict = "short"
	}
	t.Logf("figure: bar gpio_toggle %.2f 0.8 %s", ratio, verdict)
}

// toggle is the bare loop: GPIO_V2_LINE_SET_VALUES_IOCTL.
func toggle(fd uintptr, n int) error {
	v := struct{ bits, mask uint64 }{mask: 1}
	for i := range n {
		v.bits = uint64(i & 1)
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, 0xc010b40f, uintptr(unsafe.Pointer(&v))); e != 0 {
			return e
		}
	}
	return nil
}

// TestLabChanges is what the kernel tells about lines that others take.
func TestLabChanges(t *testing.T) {
	testenv.Lab(t)
	c := labChip(t)
	f, err := uapi.Open(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if i, err := f.WatchLine(3); err != nil || i.Name != "GPIO3" {
		t.Fatalf("%+v, %v", i, err)
	}
	if _, err := f.WatchLine(3); err == nil {
		t.Error("a line may be watched twice")
	}
	l, err := f.Request(uapi.Request{Offsets: []uint32{3}, Consumer: "me", Config: uapi.Config{Flags: uapi.Input}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetConfig(uapi.Config{Flags: uapi.Input | uapi.PullUp}); err != nil {
		t.Error(err)
	}
	l.Close()
	var got []uint32
	for len(got) < 3 {
		buf := make([]uapi.InfoChange, 8)
		n, err := f.ReadChanges(buf)
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range buf[:n] {
			if ch.Info.Offset != 3 || ch.TimestampNS == 0 {
				t.Errorf("%+v", ch)
			}
			got = append(got, ch.Type)
		}
	}
	if want := []uint32{uapi.LineRequested, uapi.LineReconfigured, uapi.LineReleased}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := f.UnwatchLine(3); err != nil {
		t.Error(err)
	}
}
