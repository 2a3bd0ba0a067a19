package gpio_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"farhand/device"
	"farhand/device/simsysfs"
	"farhand/gpio"
	"farhand/gpio/gpiosim"
	"farhand/gpio/gpiotest"
	"farhand/internal/faketime"
	"farhand/internal/leak"
	"farhand/stream"
	"farhand/wire"
)

const bcm = "gpio:pinctrl-bcm2711"

// rig is a simulated board and a service on it.
type rig struct {
	*gpiotest.Desk
	bench *gpiosim.Bench
	chip  *gpiosim.Chip
	tree  *simsysfs.Tree
}

func newTree(t *testing.T) *simsysfs.Tree {
	t.Helper()
	x := simsysfs.New(t.TempDir())
	x.AddGPIO(simsysfs.GPIO{Number: 0, Hardware: "fe200000.gpio", Label: "pinctrl-bcm2711", Lines: 58, Base: 512})
	x.AddGPIO(simsysfs.GPIO{Number: 1, Hardware: "soc:firmware:gpio", Label: "raspberrypi-exp-gpio", Lines: 8, Base: 570})
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	return x
}

func newRig(t *testing.T, o gpio.ServiceOptions) *rig {
	t.Helper()
	return newRigOn(t, gpiosim.Standard(), newTree(t), o)
}

func newRigOn(t *testing.T, bench *gpiosim.Bench, tree *simsysfs.Tree, o gpio.ServiceOptions) *rig {
	t.Helper()
	o.Open, o.Adopt, o.FS = bench.Open, bench.Adopt, tree.FS
	return &rig{
		Desk:  gpiotest.NewDesk(t, gpio.Driver{FS: tree.FS, Info: noInfo}, o, device.LeaseOptions{Linger: -1}),
		bench: bench, chip: bench.Chip("gpiochip0"), tree: tree,
	}
}

// TestNames is every way to name a line, field case 13 among them: the chip is
// never told by its number alone.
func TestNames(t *testing.T) {
	x := newRig(t, gpio.ServiceOptions{})
	for _, name := range []string{
		`17`, `"17"`, `"GPIO17"`, `"gpio17"`, `"BCM17"`, `"pin 11"`, `"PIN11"`, `"J8:11"`, `"physical 11"`, `" GPIO17 "`,
		`"gpiochip0:17"`, `"/dev/gpiochip0:17"`, `"pinctrl-bcm2711:GPIO17"`, `"pinctrl-bcm2711#17"`, `"gpio:pinctrl-bcm2711#pin 11"`, `"gpio:bcm:17"`,
	} {
		r := x.Do("s", "gpio:bcm", wire.OpGPIOGet, `{"line":`+name+`}`).(wire.GPIOValues)
		if len(r.Lines) != 1 || r.Lines[0].Line != 17 || r.Lines[0].Name != "GPIO17" {
			t.Errorf("%s is %+v", name, r)
		}
	}
	for name, want := range map[string]wire.Code{
		`58`: wire.HardwareNotFound, `"99"`: wire.HardwareNotFound, `"GPIO58"`: wire.HardwareNotFound, `"pin 6"`: wire.HardwareNotFound,
		`"pin 41"`: wire.HardwareNotFound, `"pin"`: wire.HardwareNotFound, `"gpiochip1:3"`: wire.HardwareNotFound, `"::"`: wire.HardwareNotFound,
		`"lamp"`: wire.HardwareNotFound, `-1`: wire.InvalidArgument, `1.5`: wire.InvalidArgument, `[1]`: wire.InvalidArgument, `""`: wire.InvalidArgument,
		`null`: wire.InvalidArgument, `99999999999999999999`: wire.InvalidArgument, `"+17"`: wire.HardwareNotFound,
	} {
		x.Fails(want, "s", bcm, wire.OpGPIOGet, `{"line":`+name+`}`)
	}
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOSet, `{"lines":{"17":1,"GPIO17":0}}`)
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOSet, `{"lines":{"17":2}}`)
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOSet, `{"line":17}`)
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOSet, `{"line":17,"value":1,"deadman_seconds":-1}`)
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOSet, `{"line":17,"value":1,"on_release":"off and on"}`)
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOGet, `{"lines":[`+strings.Repeat("1,", 64)+`2]}`)
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOGet, `{"lines":`)
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOGet, ``)
	// The header is the other chip's.
	x.Fails(wire.HardwareNotFound, "s", "gpio:raspberrypi-exp-gpio", wire.OpGPIOGet, `{"line":"pin 11"}`)
	if v := x.Value("s", "gpio:raspberrypi-exp-gpio", "BT_ON"); v != 0 {
		t.Errorf("BT_ON is %d", v)
	}
	if n := x.chip.OpenRequests(); n != 0 {
		x.Close() // leases end on their own time
		if n = x.chip.OpenRequests(); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	}
}

// TestValues sets lines by lists of levels.
func TestValues(t *testing.T) {
	x := newRig(t, gpio.ServiceOptions{})
	for args, want := range map[string][]int{
		`{"lines":[5,6],"values":[1,0]}`:                           {1, 0},
		`{"lines":[{"line":5,"value":0},{"line":6,"value":true}]}`: {0, 1},
	} {
		x.Do("s", bcm, wire.OpGPIOSet, args)
		if got := []int{x.chip.Level(5), x.chip.Level(6)}; !slices.Equal(got, want) {
			t.Errorf("%s leaves %v", args, got)
		}
	}
	for _, args := range []string{`{"lines":[5,6],"values":[1]}`, `{"lines":{"5":1},"values":[1]}`, `{"line":5,"value":1,"values":[1]}`, `{"values":[1]}`, `{"lines":[5],"values":[]}`} {
		x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOSet, args)
	}
	r := x.Do("s", bcm, wire.OpGPIOConfigure, `{"lines":[6],"direction":"out","drive":"Open-Drain","pull":"pull-up"}`).(wire.GPIOConfigured)
	if r.Lines[0].Drive != "open_drain" || r.Lines[0].Pull != "up" {
		t.Errorf("%+v", r)
	}
}

func TestAmbiguousName(t *testing.T) {
	chip := gpiosim.New("gpiochip0", "pinctrl-bcm2711", []string{"LED", "LED", "0", "x"})
	x := newRigOn(t, gpiosim.NewBench(chip), newTree(t), gpio.ServiceOptions{})
	e := x.Fails(wire.HardwareAmbiguous, "s", bcm, wire.OpGPIOGet, `{"line":"led"}`)
	if c, _ := e.Details["candidates"].([]string); !slices.Equal(c, []string{"0", "1"}) {
		t.Errorf("candidates %v", e.Details)
	}
	x.Fails(wire.HardwareAmbiguous, "s", bcm, wire.OpGPIOGet, `{"line":"0"}`) // line 0, or line 2 whose name is 0
	if r := x.Do("s", bcm, wire.OpGPIOGet, `{"line":"X"}`).(wire.GPIOValues); r.Lines[0].Line != 3 {
		t.Errorf("%+v", r)
	}
}

// TestGlitch: whatever is claimed, taken over or set together, no line has a
// level that nobody asked for.
func TestGlitch(t *testing.T) {
	x := newRig(t, gpio.ServiceOptions{})
	x.chip.Drive(5, 1) // a pull-up outside
	x.chip.Drive(6, 1)
	x.Do("a", bcm, wire.OpGPIOConfigure, `{"lines":[5,6],"direction":"out"}`)
	x.Do("a", bcm, wire.OpGPIOSet, `{"lines":{"5":0,"6":1}}`)
	x.Do("a", bcm, wire.OpRelease, `{}`)
	before := x.chip.Requests()
	x.Do("b", bcm, wire.OpGPIOSet, `{"lines":{"5":0,"6":1}}`)
	x.Do("b", bcm, wire.OpGPIOSet, `{"line":6,"value":0}`)
	if n := x.chip.Requests(); n != before {
		t.Errorf("taking over made %d new requests", n-before)
	}
	for line, want := range map[int][]int{5: {0, 1, 0}, 6: {0, 1, 0}} {
		if got := x.chip.History(line); !slices.Equal(got, want) {
			t.Errorf("line %d was %v, want %v", line, got, want)
		}
	}
}

func TestActuators(t *testing.T) {
	x := newRig(t, gpio.ServiceOptions{Actuators: []string{"gpio:*#GPIO5", "gpio:pinctrl-bcm2711#pin 11", bcm + "#6"}})
	for _, line := range []int{5, 17, 6} {
		x.Do("s", bcm, wire.OpGPIOSet, fmt.Sprintf(`{"line":%d,"value":1}`, line))
	}
	r := x.Do("s", bcm, wire.OpGPIOConfigure, `{"line":5,"direction":"out"}`).(wire.GPIOConfigured)
	if r.Lines[0].OnRelease != wire.GPIOLow || r.Lines[0].Value != 1 {
		t.Errorf("%+v", r)
	}
	x.Do("s", bcm, wire.OpGPIOSet, `{"line":7,"value":1}`)
	x.Do("s", bcm, wire.OpRelease, `{}`)
	for line, want := range map[int]int{5: 0, 17: 0, 6: 0, 7: 1} {
		if got := x.chip.Level(line); got != want {
			t.Errorf("after RELEASE line %d is %d, want %d", line, got, want)
		}
	}
}

// TestDeadman is a client that vanishes: the motor stops, the lamp stays on.
func TestDeadman(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRig(t, gpio.ServiceOptions{})
		x.Do("s", bcm, wire.OpGPIOSet, `{"line":5,"value":1,"on_release":0,"deadman_seconds":2}`)
		x.Do("s", bcm, wire.OpGPIOSet, `{"line":6,"value":1}`)
		faketime.Advance(1900 * time.Millisecond)
		x.Do("s", bcm, wire.OpGPIOSet, `{"line":5,"value":1}`)
		faketime.Advance(1900 * time.Millisecond)
		if x.chip.Level(5) != 1 {
			t.Error("the motor stopped although it was set again")
		}
		faketime.Advance(200 * time.Millisecond)
		if x.chip.Level(5) != 0 || x.chip.Level(6) != 1 {
			t.Errorf("the motor is %d, the lamp %d", x.chip.Level(5), x.chip.Level(6))
		}
		faketime.Advance(device.DefaultIdle)
		if x.chip.Level(6) != 1 {
			t.Error("the lamp went out with its idle lease")
		}
		x.Do("t", bcm, wire.OpGPIOSet, `{"line":6,"value":0}`) // it is free
		x.Close()
	})
}

// TestLost is field case 16: what the kernel forgot is counted, and followed by
// how the line is.
func TestLost(t *testing.T) {
	leak.Check(t)
	x := newRig(t, gpio.ServiceOptions{})
	w := x.Watch("s", bcm, `{"lines":[5,6]}`)
	const sent = 5000
	x.chip.Burst(5, sent)
	x.chip.Drive(6, 1)
	var delivered, lost int64
	levels := map[int]int{}
	for delivered+lost < sent || len(levels) < 2 {
		switch r, ok := w.Next(); {
		case !ok:
			t.Fatal("the stream has ended")
		case r.Kind == wire.GPIOLost:
			lost += r.Lost
		case r.Kind == wire.GPIOState && !r.Repaired:
			levels[r.Line] = int(*r.Level)
		case r.Line == 5:
			delivered++
		}
	}
	if delivered+lost != sent || lost < sent-1024-256 || levels[5] != 0 {
		t.Errorf("%d delivered, %d lost, levels %v", delivered, lost, levels)
	}
	x.Close()
}

// TestSlowPoll is field case 19: an edge that the hardware never told.
func TestSlowPoll(t *testing.T) {
	leak.Check(t)
	x := newRig(t, gpio.ServiceOptions{})
	w := x.Watch("s", bcm, `{"line":5,"poll_seconds":0.01}`)
	x.chip.Drive(5, 1)
	w.Edge()
	x.chip.Slip(5, 0)
	r, ok := w.Next()
	if !ok || r.Kind != wire.GPIOState || !r.Repaired || r.Level == nil || *r.Level != 0 {
		t.Errorf("%+v", r)
	}
	x.chip.Drive(5, 1)
	if r := w.Edge(); r.Edge != "rising" {
		t.Errorf("%+v", r)
	}
	x.Fails(wire.InvalidArgument, "t", bcm, wire.OpGPIOWatch, `{"line":6,"poll_seconds":0.001}`)
	x.Close()
}

// TestNoInterrupt is field case 22: the line is said, the others are not
// affected, and it can be polled.
func TestNoInterrupt(t *testing.T) {
	leak.Check(t)
	x := newRig(t, gpio.ServiceOptions{})
	x.chip.NoEdges(6)
	e := x.Fails(wire.FeatureNotSupported, "s", bcm, wire.OpGPIOWatch, `{"lines":[5,6]}`)
	if e.Details["os_error"] != "ENXIO" || e.Details["hint"] == nil || !strings.Contains(e.Message, "line 6") {
		t.Errorf("%v %v", e, e.Details)
	}
	w := x.Watch("s", bcm, `{"lines":[5,6],"poll_seconds":0.01}`)
	if !slices.Equal(w.Polled, []int{6}) {
		t.Errorf("polled are %v", w.Polled)
	}
	x.chip.Drive(5, 1)
	if r := w.Edge(); r.Line != 5 {
		t.Errorf("%+v", r)
	}
	x.chip.Drive(6, 1)
	if r, _ := w.Next(); r.Line != 6 || r.Kind != wire.GPIOState || *r.Level != 1 || r.Repaired {
		t.Errorf("%+v", r)
	}
	info := x.Do("t", bcm, wire.OpGPIOInfo, `{"probe":true}`).(wire.GPIOChip)
	if l := info.Lines[7]; l.Edges == nil || !*l.Edges {
		t.Errorf("%+v", l)
	}
	if l := info.Lines[5]; l.Edges != nil || l.Available || l.Holder != "session s" || l.Consumer != gpio.Consumer {
		t.Errorf("%+v", l)
	}
	x.Do("s", bcm, wire.OpRelease, `{}`)
	x.Do("s", bcm, wire.OpGPIOGet, `{"line":6}`) // waits until the lease has ended
	x.Close()
}

// TestAsynchronousFailure is field case 23: it is on the stream, and ends it.
func TestAsynchronousFailure(t *testing.T) {
	leak.Check(t)
	x := newRig(t, gpio.ServiceOptions{})
	w := x.Watch("s", bcm, `{"lines":[5,6]}`)
	x.chip.Fail(syscall.EIO)
	why, records := w.End()
	if why != stream.ReasonFailed || len(records) != 1 || records[0].Kind != wire.GPIOError ||
		records[0].Error.Code != wire.HardwareTransferFailed || records[0].Error.Details["os_error"] != "EIO" {
		t.Errorf("it ended with %q, %+v", why, records)
	}
	for op, args := range map[string]string{wire.OpGPIOSet: `{"line":7,"value":1}`, wire.OpGPIOGet: `{"line":7}`} {
		e := x.Fails(wire.HardwareOpenFailed, "s", bcm, op, args)
		if e.Details["os_error"] != "EIO" || e.Details["device"] != bcm || e.Details["op"] != op {
			t.Errorf("%s: %v", op, e.Details)
		}
	}
	x.chip.Fail(nil)
	x.Do("s", bcm, wire.OpGPIOSet, `{"line":7,"value":1}`)
	x.chip.Fail(syscall.EIO)
	if e := x.Fails(wire.HardwareTransferFailed, "s", bcm, wire.OpGPIOSet, `{"line":7,"value":0}`); e.Details["os_error"] != "EIO" {
		t.Errorf("%v", e.Details)
	}
	x.chip.Fail(nil)
	x.Close()
}

// TestReplug is a chip that goes and comes back: what hangs on it ends, and the
// pending on_release of its lines is applied when it is back.
func TestReplug(t *testing.T) {
	leak.Check(t)
	ledger, err := gpio.OpenLedger(filepath.Join(t.TempDir(), "outputs"))
	if err != nil {
		t.Fatal(err)
	}
	x := newRig(t, gpio.ServiceOptions{Ledger: ledger})
	x.Do("s", bcm, wire.OpGPIOSet, `{"line":5,"value":1,"on_release":1}`)
	x.Do("s", bcm, wire.OpGPIOSet, `{"line":6,"value":1}`)
	x.chip.Vanish()
	x.Fails(wire.DeviceGone, "s", bcm, wire.OpGPIOSet, `{"line":5,"value":0}`)
	x.Do("s", bcm, wire.OpRelease, `{}`)
	if x.chip.Level(5) != 0 {
		t.Error("a chip that is gone drives a line")
	}
	x.chip.Return()
	x.Do("t", bcm, wire.OpGPIOGet, `{"line":7}`)
	if x.chip.Level(5) != 1 || x.chip.Level(6) != 0 {
		t.Errorf("after the return line 5 is %d, line 6 %d", x.chip.Level(5), x.chip.Level(6))
	}
	x.Do("t", bcm, wire.OpGPIOSet, `{"line":5,"value":0}`)
	x.Close()
	if n := x.chip.OpenRequests(); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}

// TestBadArguments is field case 18 on the operations: which field is wrong.
func TestBadArguments(t *testing.T) {
	x := newRig(t, gpio.ServiceOptions{})
	for args, field := range map[string]string{
		`{"line":5,"direction":"sideways"}`:                   "direction",
		`{"line":5,"direction":"out","debounce_us":5}`:        "debounce_seconds",
		`{"line":5,"direction":"in","initial_value":1}`:       "initial_value",
		`{"line":5,"direction":"in","on_release":0}`:          "on_release",
		`{"line":5,"direction":"in","drive":"open_drain"}`:    "drive",
		`{"line":5,"pull":"sideways"}`:                        "pull",
		`{"line":5,"bias":"sideways"}`:                        "bias",
		`{"line":5,"drive":"hard","direction":"out"}`:         "drive",
		`{"line":5,"debounce_us":-1}`:                         "debounce_us",
		`{"line":5,"debounce_seconds":61}`:                    "debounce_seconds",
		`{"line":5,"debounce_seconds":1,"debounce_us":1}`:     "debounce_us",
		`{"line":5,"edge":"both"}`:                            "edge",
		`{"lines":{"5":1}}`:                                   "lines",
		`{"line":5,"direction":"out","deadman_seconds":0.01}`: "deadman_seconds",
		`{"line":5,"direction":"out","deadman_seconds":1e9}`:  "deadman_seconds",
		`{"line":5,"active_low":"yes"}`:                       "active_low",
	} {
		if e := x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOConfigure, args); e.Details["field"] != field {
			t.Errorf("%s: %v %v, want %s", args, e, e.Details, field)
		}
	}
	for args, field := range map[string]string{
		`{"line":5}`:                                                  "frequency_hz",
		`{"line":5,"frequency_hz":50}`:                                "duty",
		`{"line":5,"frequency_hz":0,"duty":0.5}`:                      "frequency_hz",
		`{"line":5,"frequency_hz":1e12,"duty":0.5}`:                   "frequency_hz",
		`{"line":5,"frequency_hz":5000,"duty":0.5}`:                   "frequency_hz",
		`{"line":5,"frequency_hz":50,"duty":1.5}`:                     "duty",
		`{"line":5,"period_ns":1000000,"duty_ns":2000000}`:            "duty_ns",
		`{"line":5,"period_ns":1000000,"frequency_hz":5,"duty":1}`:    "period_ns",
		`{"line":5,"frequency_hz":50,"duty":0.5,"mode":"soft"}`:       "mode",
		`{"line":5,"frequency_hz":50,"duty":0.5,"on_release":"hold"}`: "on_release",
		`{"lines":[5,6],"frequency_hz":50,"duty":0.5}`:                "line",
	} {
		if e := x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOPWM, args); e.Details["field"] != field {
			t.Errorf("%s: %v %v, want %s", args, e, e.Details, field)
		}
	}
	x.Close()
	if n := x.chip.OpenRequests(); n != 0 {
		t.Errorf("what was refused has left %d requests", n)
	}
}

// TestLinesTogether: lines of one request that belong to different sessions
// don't get into each other's way.
func TestLinesTogether(t *testing.T) {
	x := newRig(t, gpio.ServiceOptions{})
	x.Do("a", bcm, wire.OpGPIOSet, `{"lines":{"5":1,"6":1,"7":0}}`)
	x.Do("a", bcm, wire.OpRelease, `{"line":6}`)
	x.Do("b", bcm, wire.OpGPIOConfigure, `{"line":6,"direction":"in","pull":"up"}`)
	if x.chip.Level(5) != 1 || x.chip.Level(6) != 1 || x.chip.Level(7) != 0 {
		t.Errorf("levels %d %d %d", x.chip.Level(5), x.chip.Level(6), x.chip.Level(7))
	}
	w := x.Watch("b", bcm, `{"line":6}`)
	x.Do("a", bcm, wire.OpGPIOSet, `{"lines":{"5":0,"7":1}}`)
	x.chip.Drive(6, 0)
	if r := w.Edge(); r.Line != 6 || r.Edge != "falling" {
		t.Errorf("%+v", r)
	}
	x.Do("a", bcm, wire.OpRelease, `{}`)
	if x.chip.Level(5) != 0 || x.chip.Level(7) != 1 {
		t.Errorf("levels %d %d", x.chip.Level(5), x.chip.Level(7))
	}
	x.chip.Drive(6, 1)
	w.Edge()
	x.Do("b", bcm, wire.OpRelease, `{}`)
	if why, _ := w.End(); why != stream.ReasonReleased {
		t.Errorf("it ended with %q", why)
	}
}

// addPWM sets up the header's PWM as the overlay pwm-2chan does, under a number
// that says nothing.
func addPWM(t *testing.T, x *simsysfs.Tree, number int, hardware string, pins ...uint32) (channel0 string) {
	t.Helper()
	owner := "devices/platform/soc/" + hardware
	chip := fmt.Sprintf("%s/pwm/pwmchip%d", owner, number)
	x.Dir(chip, map[string]string{"npwm": "2", "export": "", "unexport": ""})
	for n := range 2 {
		x.Dir(fmt.Sprintf("%s/pwm%d", chip, n), map[string]string{"period": "0", "duty_cycle": "0", "enable": "0", "polarity": "normal"})
	}
	x.Link(chip+"/device", owner)
	x.Link(fmt.Sprintf("class/pwm/pwmchip%d", number), chip)
	node := "firmware/devicetree/base/soc/pwm@7e20c000"
	group := "firmware/devicetree/base/soc/gpio@7e200000/pwm_pins"
	x.Dir(node, nil)
	x.Dir(group, nil)
	x.Link(owner+"/of_node", node)
	x.Link("devices/platform/soc/fe200000.gpio/of_node", "firmware/devicetree/base/soc/gpio@7e200000")
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	var list []byte
	for _, p := range pins {
		list = binary.BigEndian.AppendUint32(list, p)
	}
	for path, data := range map[string][]byte{
		node + "/pinctrl-0": {0, 0, 0, 7, 0, 0, 0, 0x0a}, group + "/phandle": {0, 0, 0, 0x0a}, group + "/brcm,pins": list,
	} {
		if err := os.WriteFile(x.FS.Dir(path), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return x.FS.Dir(chip + "/pwm0")
}

func attr(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestHardwarePWM is field case 21: the PWM is found by its device.
func TestHardwarePWM(t *testing.T) {
	tree := newTree(t)
	dir := addPWM(t, tree, 7, "fe20c000.pwm", 18, 19)
	ledger, err := gpio.OpenLedger(filepath.Join(t.TempDir(), "outputs"))
	if err != nil {
		t.Fatal(err)
	}
	x := newRigOn(t, gpiosim.Standard(), tree, gpio.ServiceOptions{Ledger: ledger})
	s := x.Do("s", bcm, wire.OpGPIOPWM, `{"line":"GPIO18","frequency_hz":1000,"duty":0.25}`).(wire.GPIOPWMState)
	if s.Kind != "hardware" || s.Chip != "fe20c000.pwm" || s.Channel == nil || *s.Channel != 0 || s.PeriodNS != 1e6 || s.DutyNS != 250000 || s.Jitter != nil {
		t.Errorf("%+v", s)
	}
	for name, want := range map[string]string{"period": "1000000", "duty_cycle": "250000", "enable": "1", "polarity": "normal"} {
		if got := attr(t, dir, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if n := x.chip.Requests(); n != 0 {
		t.Errorf("the line was requested %d times from the chip", n)
	}
	// Servo: shorter, then only the duty.
	x.Do("s", bcm, wire.OpGPIOPWM, `{"line":18,"period_ns":100000}`)
	s = x.Do("s", bcm, wire.OpGPIOPWM, `{"line":18,"duty":0.5}`).(wire.GPIOPWMState)
	if s.PeriodNS != 100000 || s.DutyNS != 50000 || attr(t, dir, "duty_cycle") != "50000" {
		t.Errorf("%+v", s)
	}
	if e := ledger.Entries(bcm); len(e) != 1 || e[0].PWM != "fe20c000.pwm" || e[0].OnRelease != wire.GPIOLow {
		t.Errorf("the ledger has %+v", e)
	}
	x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOGet, `{"line":18}`)
	x.Do("s", bcm, wire.OpRelease, `{}`)
	if attr(t, dir, "enable") != "0" || attr(t, dir, "duty_cycle") != "0" {
		t.Error("after RELEASE the PWM runs on")
	}
	if e := ledger.Entries(bcm); len(e) != 0 {
		t.Errorf("the ledger has %+v", e)
	}
	// Off is the high level where the wave is inverted: then it isn't disabled.
	x.Do("s", bcm, wire.OpGPIOPWM, `{"line":18,"frequency_hz":1000,"duty":1,"active_low":true}`)
	x.Do("s", bcm, wire.OpRelease, `{}`)
	if attr(t, dir, "enable") != "1" || attr(t, dir, "duty_cycle") != "0" || attr(t, dir, "polarity") != "inversed" {
		t.Error("an inverted PWM is left at its low level")
	}
}

// TestPWMAfterCrash: a heater is off before the daemon is ready again.
func TestPWMAfterCrash(t *testing.T) {
	tree := newTree(t)
	dir := addPWM(t, tree, 0, "fe20c000.pwm", 18)
	path := filepath.Join(t.TempDir(), "outputs")
	ledger, err := gpio.OpenLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	x := newRigOn(t, gpiosim.Standard(), tree, gpio.ServiceOptions{Ledger: ledger})
	x.Do("s", bcm, wire.OpGPIOPWM, `{"line":18,"frequency_hz":1000,"duty":1}`)
	again, err := gpio.OpenLedger(path) // what the next process finds
	if err != nil {
		t.Fatal(err)
	}
	newRigOn(t, gpiosim.Standard(), tree, gpio.ServiceOptions{Ledger: again})
	if attr(t, dir, "enable") != "0" || len(again.Entries("")) != 0 {
		t.Errorf("enable is %s, the ledger has %v", attr(t, dir, "enable"), again.Entries(""))
	}
}

// TestNoHardwarePWM is field case 21: what is missing, and what would give it.
func TestNoHardwarePWM(t *testing.T) {
	tree := newTree(t)
	x := newRigOn(t, gpiosim.Standard(), tree, gpio.ServiceOptions{})
	missing := func(line int, words ...string) {
		t.Helper()
		e := x.Fails(wire.FeatureNotSupported, "s", bcm, wire.OpGPIOPWM, fmt.Sprintf(`{"line":%d,"frequency_hz":100,"duty":0.5,"mode":"hardware"}`, line))
		text := fmt.Sprint(e.Details["reason"], e.Details["hint"])
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("line %d: %q doesn't say %q", line, text, w)
			}
		}
	}
	missing(18, "no PWM is set up", "dtoverlay=pwm,pin=18,func=2", "[all]")
	missing(5, "no PWM reaches", "GPIO18")
	addPWM(t, tree, 2, "fe20c800.pwm", 40, 41) // the one of the audio jack
	missing(18, "isn't set up")
	addPWM(t, tree, 3, "fe20c000.pwm", 12, 13)
	missing(18, "isn't switched to it", "dtoverlay")
	s := x.Do("s", bcm, wire.OpGPIOPWM, `{"line":18,"frequency_hz":200,"duty":0.5}`).(wire.GPIOPWMState)
	if s.Kind != "software" || s.Jitter == nil || !strings.Contains(s.Reason, "isn't switched") || s.Hint == "" {
		t.Errorf("%+v", s)
	}
	x.Close()
	if x.chip.Level(18) != 0 {
		t.Error("the PWM left its line on")
	}
}

// TestInfo has the functions of the pins, field case 20.
func TestInfo(t *testing.T) {
	tree := newTree(t)
	tree.Dir("firmware/devicetree/base", map[string]string{"model": "Raspberry Pi 4 Model B Rev 1.4\x00"})
	tree.Dir("kernel/debug/pinctrl/fe200000.gpio-pinctrl-bcm2711", map[string]string{"pinmux-pins": "Pinmux settings per pin\n" +
		"Format: pin (name): mux_owner|gpio_owner (strict) hog?\n" +
		"pin 14 (gpio14): fe201000.serial (GPIO UNCLAIMED) function alt0 group gpio14\n" +
		"pin 15 (gpio15): device fe201000.serial function alt0 group gpio15\n" +
		"pin 17 (gpio17): (MUX UNCLAIMED) pinctrl-bcm2711:529\n" +
		"pin 18 (gpio18): UNCLAIMED"})
	x := newRigOn(t, gpiosim.Standard(), tree, gpio.ServiceOptions{})
	x.Do("s", bcm, wire.OpGPIOSet, `{"line":17,"value":1}`)
	i := x.Do("t", bcm, wire.OpGPIOInfo, `{}`).(wire.GPIOChip)
	if i.Board != "Raspberry Pi 4 Model B Rev 1.4" || !i.Header || i.Count != 58 || len(i.Lines) != 58 || i.Chip != "gpiochip0" || i.Label != "pinctrl-bcm2711" {
		t.Errorf("%+v", i)
	}
	for line, want := range map[int]string{14: "alt0", 15: "alt0", 17: "gpio", 18: ""} {
		if i.Lines[line].Function != want {
			t.Errorf("line %d is switched to %q, want %q", line, i.Lines[line].Function, want)
		}
	}
	if l := i.Lines[17]; l.Pin != 11 || l.Available || l.Holder != "session s" || l.Direction != "out" || l.OnRelease != wire.GPIOHold {
		t.Errorf("%+v", l)
	}
	if l := i.Lines[42]; l.Available || l.Consumer != "ACT" || l.Pin != 0 { // field case 15
		t.Errorf("%+v", l)
	}
	i = x.Do("t", bcm, wire.OpGPIOInfo, `{"line":"pin 12"}`).(wire.GPIOChip)
	if len(i.Lines) != 1 || !slices.Contains(i.Lines[0].Functions, "alt5 PWM0_0") {
		t.Errorf("%+v", i)
	}
	x.Do("s", bcm, wire.OpRelease, `{}`)
	if l := x.Do("t", bcm, wire.OpGPIOInfo, `{"line":17}`).(wire.GPIOChip).Lines[0]; !l.Held || !l.Available || l.Holder != "" {
		t.Errorf("%+v", l)
	}
}

func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outputs")
	l, err := gpio.OpenLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	a := gpio.Entry{Device: "gpio:a", Line: 3, OnRelease: wire.GPIOLow, ActiveLow: true, Drive: "open_drain", Pull: "up"}
	b := gpio.Entry{Device: "gpio:a", Line: 4, OnRelease: wire.GPIOHold, FD: "farhand-gpio-x", Bit: 1}
	if err := errors.Join(l.Put(a, b), l.Put(a), l.Remove("gpio:b", 3), l.Put(gpio.Entry{Device: "gpio:b", Line: 1, OnRelease: wire.GPIOInput}), l.Remove("gpio:b", 1)); err != nil {
		t.Fatal(err)
	}
	read := func() []gpio.Entry {
		t.Helper()
		l, err := gpio.OpenLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		return l.Entries("")
	}
	if got := read(); !slices.Equal(got, []gpio.Entry{a, b}) {
		t.Errorf("%+v", got)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A process that is killed leaves a temporary file of any length.
	for n := range whole {
		if err := os.WriteFile(path+".tmp-0123456789abcdef", whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got := read(); !slices.Equal(got, []gpio.Entry{a, b}) {
			t.Fatalf("after %d bytes: %+v", n, got)
		}
	}
	// A file that something else has damaged is put aside.
	for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := gpio.OpenLedger(path)
		if err == nil || len(l.Entries("")) != 0 {
			t.Errorf("%d bytes of %d: %v, %+v", n, len(whole), err, l.Entries(""))
		}
		if kept, err := os.ReadFile(path + ".bad"); err != nil || len(kept) != n {
			t.Errorf("the damaged file isn't kept: %v", err)
		}
		if err := l.Put(a); err != nil {
			t.Error(err)
		}
		if got := read(); !slices.Equal(got, []gpio.Entry{a}) {
			t.Errorf("%+v", got)
		}
	}
}

// TestPromiseFirst: an output whose end can't be written down isn't driven.
func TestPromiseFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ledger, err := gpio.OpenLedger(filepath.Join(dir, "outputs"))
	if err != nil {
		t.Fatal(err)
	}
	x := newRig(t, gpio.ServiceOptions{Ledger: ledger})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	x.Fails(wire.HardwareOpenFailed, "s", bcm, wire.OpGPIOSet, `{"line":5,"value":1,"on_release":0}`)
	if x.chip.Level(5) != 0 || x.chip.Requests() != 0 {
		t.Error("the line was driven all the same")
	}
	// The same once more, when it can be: not taken for what stands there already.
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	x.Do("s", bcm, wire.OpGPIOSet, `{"line":5,"value":1,"on_release":0}`)
	again, err := gpio.OpenLedger(filepath.Join(dir, "outputs"))
	if e := again.Entries(bcm); err != nil || len(e) != 1 || e[0].OnRelease != wire.GPIOLow {
		t.Errorf("the ledger has %+v, %v", e, err)
	}
}

// TestRefusedPWM: what is refused leaves the PWM that runs as it is.
func TestRefusedPWM(t *testing.T) {
	x := newRig(t, gpio.ServiceOptions{})
	x.Do("s", bcm, wire.OpGPIOPWM, `{"line":5,"frequency_hz":100,"duty":0.5}`)
	x.Fails(wire.FeatureNotSupported, "s", bcm, wire.OpGPIOPWM, `{"line":5,"mode":"hardware"}`)
	for _, args := range []string{`"mode":"none"`, `"on_release":"hold"`, `"frequency_hz":5000`, `"frequency_hz":5000,"active_low":true`} {
		x.Fails(wire.InvalidArgument, "s", bcm, wire.OpGPIOPWM, `{"line":5,`+args+`}`)
	}
	if s := x.Do("s", bcm, wire.OpGPIOPWM, `{"line":5}`).(wire.GPIOPWMState); !s.Running || s.FrequencyHz != 100 || s.Duty != 0.5 {
		t.Errorf("%+v", s)
	}
}

// TestForgottenDescriptors: what the store has left and nobody knows is let go.
func TestForgottenDescriptors(t *testing.T) {
	leak.Check(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	other, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	shelf := &gpiotest.Shelf{}
	defer shelf.Close()
	name := gpio.StorePrefix + "unknown"
	if err := shelf.Put(name, w.Fd()); err != nil {
		t.Fatal(err)
	}
	x := newRig(t, gpio.ServiceOptions{Store: shelf, Restored: map[string]*os.File{name: r, "somebody-else": other}})
	if len(shelf.Files()) != 0 {
		t.Error("it stays in the store")
	}
	if _, err := r.Read(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("it is still open: %v", err)
	}
	if _, err := other.Stat(); err != nil {
		t.Errorf("one of somebody else was closed: %v", err)
	}
	x.Close()
}

func BenchmarkOperations(b *testing.B) {
	tree := simsysfs.New(b.TempDir())
	tree.AddGPIO(simsysfs.GPIO{Number: 0, Hardware: "fe200000.gpio", Label: "pinctrl-bcm2711", Lines: 58, Base: 512})
	bench := gpiosim.Standard()
	d := gpiotest.NewDesk(b, gpio.Driver{FS: tree.FS, Info: noInfo}, gpio.ServiceOptions{Open: bench.Open, FS: tree.FS}, device.LeaseOptions{})
	d.Do("s", bcm, wire.OpGPIOSet, `{"line":17,"value":1}`)
	for name, c := range map[string][2]string{
		"set":      {wire.OpGPIOSet, `{"line":17,"value":1}`},
		"get":      {wire.OpGPIOGet, `{"line":17}`},
		"get-free": {wire.OpGPIOGet, `{"line":"GPIO5"}`},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Try("s", bcm, c[0], c[1]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
