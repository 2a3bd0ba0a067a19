package gpiotest

import (
	"errors"
	"path/filepath"
	"strconv"
	"testing"

	"farhand/device"
	"farhand/gpio"
	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/stream"
	"farhand/wire"
)

// ServiceBench is a Bench whose chip a driver finds.
type ServiceBench struct {
	Bench
	Driver device.Driver
	Device string // the chip's id
	Open   func(node string) (gpio.Chip, error)
	// Kill is the end of the process that has the chip's lines; nil if closing
	// the desk's service comes to the same.
	Kill func()
}

// RunService runs the suite of the operations, each case on a bench of its own.
func RunService(t *testing.T, open func(t *testing.T) ServiceBench) {
	for _, c := range []struct {
		name string
		test func(*testing.T, ServiceBench)
	}{
		{"SetAndGet", testSetAndGet},
		{"SetMany", testSetMany},
		{"Hold", testHold},
		{"OnRelease", testOnRelease},
		{"Configure", testConfigure},
		{"BusySession", testBusySession},
		{"BusyProgram", testBusyProgram},
		{"Watch", testWatch},
		{"WatchSeveral", testWatchSeveral},
		{"WatchAndUse", testWatchAndUse},
		{"SoftwarePWM", testSoftwarePWM},
		{"Restart", testRestart},
		{"RestartAfterCrash", testRestartAfterCrash},
		{"RestartOfAShare", testRestartOfAShare},
		{"VanishWhileWatching", testVanishWhileWatching},
	} {
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			b := open(t)
			defer b.Chip.Close()
			c.test(t, b)
		})
	}
}

func (b ServiceBench) desk(t *testing.T, o gpio.ServiceOptions) *Desk {
	t.Helper()
	o.Open, o.Adopt = b.Open, b.Adopt
	return NewDesk(t, b.Driver, o, device.LeaseOptions{Linger: -1})
}

// l is a free line's number as text.
func (b ServiceBench) l(i int) string { return strconv.Itoa(b.Free[i]) }

func testSetAndGet(t *testing.T, b ServiceBench) {
	d := b.desk(t, gpio.ServiceOptions{})
	for _, v := range []int{1, 0, 1} {
		r := d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":`+strconv.Itoa(v)+`}`, b.l(0))).(wire.GPIOValues)
		if r.Value == nil || *r.Value != v || !r.Atomic || len(r.Lines) != 1 || r.Lines[0].Line != b.Free[0] {
			t.Errorf("GPIO_SET answers %+v", r)
		}
		b.sees(t, b.Free[0], v)
		if got := d.Value("s", b.Device, b.l(0)); got != v {
			t.Errorf("GPIO_GET answers %d, want %d", got, v)
		}
	}
	b.Drive(t, b.Free[1], 1)
	if got := d.Value("s", b.Device, b.l(1)); got != 1 {
		t.Errorf("an input reads %d", got)
	}
	d.Close()
	if i := b.line(t, b.Free[1]); i.Used {
		t.Errorf("after GPIO_GET the line is %+v", i)
	}
}

func testSetMany(t *testing.T, b ServiceBench) {
	d := b.desk(t, gpio.ServiceOptions{})
	r := d.Do("s", b.Device, wire.OpGPIOSet, args(`{"lines":{"%s":1,"%s":0,"%s":"high"}}`, b.l(0), b.l(1), b.l(2))).(wire.GPIOValues)
	if !r.Atomic || r.Value != nil || len(r.Lines) != 3 {
		t.Errorf("%+v", r)
	}
	for i, want := range []int{1, 0, 1} {
		b.sees(t, b.Free[i], want)
	}
	if r = d.Do("s", b.Device, wire.OpGPIOSet, args(`{"lines":[%s,%s,%s],"value":0}`, b.l(0), b.l(1), b.l(2))).(wire.GPIOValues); !r.Atomic {
		t.Errorf("%+v", r)
	}
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(3)))
	// One of another request.
	if r = d.Do("s", b.Device, wire.OpGPIOSet, args(`{"lines":{"%s":1,"%s":0}}`, b.l(0), b.l(3))).(wire.GPIOValues); r.Atomic {
		t.Errorf("lines of two requests: %+v", r)
	}
	b.sees(t, b.Free[0], 1)
	b.sees(t, b.Free[1], 0)
	b.sees(t, b.Free[3], 0)
	if r = d.Do("s", b.Device, wire.OpGPIOGet, args(`{"lines":[%s,%s]}`, b.l(0), b.l(1))).(wire.GPIOValues); !r.Atomic || r.Lines[0].Value != 1 || r.Lines[1].Value != 0 {
		t.Errorf("%+v", r)
	}
}

// testHold: a lamp stays on, and the next session takes it over as it is.
func testHold(t *testing.T, b ServiceBench) {
	d := b.desk(t, gpio.ServiceOptions{})
	d.Do("a", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(0)))
	d.Do("a", b.Device, wire.OpRelease, `{}`)
	b.sees(t, b.Free[0], 1)
	if i := b.line(t, b.Free[0]); !i.Used || i.Consumer != gpio.Consumer {
		t.Errorf("the line that holds its level is %+v", i)
	}
	if got := d.Value("b", b.Device, b.l(0)); got != 1 {
		t.Errorf("the next session reads %d", got)
	}
	b.sees(t, b.Free[0], 1)
	d.Do("b", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(0)))
	b.sees(t, b.Free[0], 1)
	d.Do("b", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":0,"on_release":1}`, b.l(0)))
	b.sees(t, b.Free[0], 0)
	d.Do("b", b.Device, wire.OpRelease, `{}`)
	b.sees(t, b.Free[0], 1)
}

func testOnRelease(t *testing.T, b ServiceBench) {
	d := b.desk(t, gpio.ServiceOptions{})
	for _, c := range []struct {
		args string
		want int // after; -1: an input
	}{
		{`{"line":%s,"value":1,"on_release":0}`, 0},
		{`{"line":%s,"value":0,"on_release":"high"}`, 1},
		{`{"line":%s,"value":1,"on_release":"hold"}`, 1},
		{`{"line":%s,"value":1,"on_release":"input"}`, -1},
	} {
		d.Do("s", b.Device, wire.OpGPIOSet, args(c.args, b.l(0)))
		d.Do("s", b.Device, wire.OpRelease, `{"line":`+b.l(0)+`}`)
		i := b.line(t, b.Free[0])
		if c.want < 0 {
			if i.Used || i.Direction != gpio.In {
				t.Errorf("%s: the line is %+v", c.args, i)
			}
			continue
		}
		b.sees(t, b.Free[0], c.want)
		if !i.Used {
			t.Errorf("%s: the line is %+v", c.args, i)
		}
	}
	// After active_low 0 is the high level.
	d.Do("s", b.Device, wire.OpGPIOConfigure, args(`{"line":%s,"direction":"out","active_low":true,"initial_value":1,"on_release":0}`, b.l(1)))
	b.sees(t, b.Free[1], 0)
	d.Do("s", b.Device, wire.OpRelease, `{}`)
	b.sees(t, b.Free[1], 1)
}

func testConfigure(t *testing.T, b ServiceBench) {
	d := b.desk(t, gpio.ServiceOptions{})
	r := d.Do("s", b.Device, wire.OpGPIOConfigure, args(`{"line":%s,"pull":"up","debounce_us":500}`, b.l(2))).(wire.GPIOConfigured)
	if len(r.Lines) != 1 || r.Lines[0].Direction != "in" || r.Lines[0].Pull != "up" || r.Lines[0].DebounceUS != 500 || r.Lines[0].OnRelease != "" {
		t.Errorf("%+v", r)
	}
	if i := b.line(t, b.Free[2]); i.Pull != gpio.PullUp {
		t.Errorf("the line is %+v", i)
	}
	d.Fails(wire.InvalidArgument, "s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(2)))
	// What isn't said stays.
	r = d.Do("s", b.Device, wire.OpGPIOConfigure, args(`{"line":%s,"active_low":true}`, b.l(2))).(wire.GPIOConfigured)
	if r.Lines[0].Pull != "up" || !r.Lines[0].ActiveLow || r.Lines[0].DebounceUS != 500 {
		t.Errorf("%+v", r)
	}
	// An output begins with the level that the line has.
	b.Drive(t, b.Free[3], 1)
	r = d.Do("s", b.Device, wire.OpGPIOConfigure, args(`{"lines":[%s,%s],"direction":"out"}`, b.l(3), b.l(4))).(wire.GPIOConfigured)
	if !r.Atomic || r.Lines[0].Value != 1 || r.Lines[0].OnRelease != wire.GPIOHold || r.Lines[0].Drive != "push_pull" {
		t.Errorf("%+v", r)
	}
	b.sees(t, b.Free[3], 1)
	d.Do("s", b.Device, wire.OpRelease, `{}`)
	if i := b.line(t, b.Free[2]); i.Used {
		t.Errorf("after RELEASE the input is %+v", i)
	}
	b.sees(t, b.Free[3], 1)
}

func testBusySession(t *testing.T, b ServiceBench) {
	d := b.desk(t, gpio.ServiceOptions{})
	d.Do("a", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(0)))
	if e := d.Fails(wire.HardwareBusy, "b", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":0}`, b.l(0))); e.Details["holder"] != "session a" {
		t.Errorf("%v", e.Details)
	}
	b.sees(t, b.Free[0], 1)
	d.Do("b", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(1))) // another line is free
}

// testBusyProgram is field case 15.
func testBusyProgram(t *testing.T, b ServiceBench) {
	r := b.request(t, gpio.Options{Consumer: "led0"}, gpio.LineConfig{Offset: b.Free[1], Direction: gpio.Out, Value: 1})
	d := b.desk(t, gpio.ServiceOptions{})
	for op, a := range map[string]string{
		wire.OpGPIOSet: `{"lines":{"%s":0,"%s":0}}`, wire.OpGPIOGet: `{"lines":[%s,%s]}`,
		wire.OpGPIOWatch: `{"lines":[%s,%s]}`, wire.OpGPIOConfigure: `{"lines":[%s,%s],"direction":"out"}`,
	} {
		e := d.Fails(wire.HardwareBusy, "s", b.Device, op, args(a, b.l(0), b.l(1)))
		if e.Details["consumer"] != "led0" || e.Details["holder"] != "led0" || e.Details["line"] != b.Free[1] {
			t.Errorf("%s: %v", op, e.Details)
		}
	}
	b.sees(t, b.Free[1], 1)
	if i := b.line(t, b.Free[0]); i.Used {
		t.Errorf("what failed has kept %+v", i)
	}
	info := d.Do("s", b.Device, wire.OpGPIOInfo, args(`{"lines":[%s,%s]}`, b.l(0), b.l(1))).(wire.GPIOChip)
	if l := info.Lines[1]; l.Available || l.Consumer != "led0" || l.Direction != "out" {
		t.Errorf("%+v", l)
	}
	if l := info.Lines[0]; !l.Available || l.Consumer != "" {
		t.Errorf("%+v", l)
	}
	r.Close()
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"lines":{"%s":0,"%s":0}}`, b.l(0), b.l(1)))
}

func testWatch(t *testing.T, b ServiceBench) {
	b.Drive(t, b.Free[0], 0)
	d := b.desk(t, gpio.ServiceOptions{})
	w := d.Watch("s", b.Device, args(`{"line":%s}`, b.l(0)))
	if len(w.Lines) != 1 || w.Lines[0].Value != 0 || w.Polled != nil {
		t.Errorf("%+v", w.GPIOWatching)
	}
	var last uint64
	for i := range 10 {
		v := 1 - i%2
		b.Drive(t, b.Free[0], v)
		r := w.Edge()
		if r.Line != b.Free[0] || r.Edge != []string{"falling", "rising"}[v] || r.Level == nil || int(*r.Level) != v ||
			r.Seq != uint32(i+1) || r.LineSeq != r.Seq || r.TimestampNS <= last || r.Time == nil {
			t.Fatalf("edge %d is %+v", i, r)
		}
		last = r.TimestampNS
	}
	// The same session may read it meanwhile; to drive it is refused.
	if got := d.Value("s", b.Device, b.l(0)); got != 0 {
		t.Errorf("it reads %d", got)
	}
	d.Fails(wire.InvalidArgument, "s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(0)))
	d.Fails(wire.InvalidArgument, "s", b.Device, wire.OpGPIOWatch, args(`{"line":%s}`, b.l(0)))
	d.Fails(wire.HardwareBusy, "b", b.Device, wire.OpGPIOGet, args(`{"line":%s}`, b.l(0)))
	d.Do("s", b.Device, wire.OpRelease, `{}`)
	if why, rest := w.End(); why != stream.ReasonReleased || len(rest) != 0 {
		t.Errorf("it ended with %q, %+v", why, rest)
	}
	if i := b.line(t, b.Free[0]); i.Used {
		t.Errorf("after RELEASE the line is %+v", i)
	}
}

func testWatchSeveral(t *testing.T, b ServiceBench) {
	for _, o := range b.Free[:3] {
		b.Drive(t, o, 0)
	}
	d := b.desk(t, gpio.ServiceOptions{})
	w := d.Watch("s", b.Device, args(`{"lines":[%s,%s,%s],"edge":"rising"}`, b.l(0), b.l(1), b.l(2)))
	for i := range 6 {
		o := b.Free[i%3]
		b.Drive(t, o, 1)
		if r := w.Edge(); r.Line != o || r.Seq != uint32(i+1) || r.LineSeq != uint32(i/3+1) || r.Edge != "rising" {
			t.Fatalf("edge %d is %+v", i, r)
		}
		b.Drive(t, o, 0)
	}
	// One of the lines is given back: then the watch can't go on.
	d.Do("s", b.Device, wire.OpRelease, args(`{"line":%s}`, b.l(1)))
	if why, _ := w.End(); why != stream.ReasonReleased {
		t.Errorf("it ended with %q", why)
	}
}

func testWatchAndUse(t *testing.T, b ServiceBench) {
	d := b.desk(t, gpio.ServiceOptions{})
	d.Do("s", b.Device, wire.OpGPIOConfigure, args(`{"line":%s,"direction":"out","initial_value":1}`, b.l(0)))
	d.Fails(wire.InvalidArgument, "s", b.Device, wire.OpGPIOWatch, args(`{"line":%s}`, b.l(0)))
	// Configured first, the pull stays with the watch.
	d.Do("s", b.Device, wire.OpGPIOConfigure, args(`{"line":%s,"pull":"up"}`, b.l(1)))
	w := d.Watch("s", b.Device, args(`{"line":%s}`, b.l(1)))
	if i := b.line(t, b.Free[1]); i.Pull != gpio.PullUp || i.Edges != gpio.BothEdges {
		t.Errorf("the line is %+v", i)
	}
	d.Hub.CloseStream(w.Stream, stream.Owner{Session: "s"})
	// The lease is still there, and can be used otherwise.
	d.Do("s", b.Device, wire.OpGPIOConfigure, args(`{"line":%s,"direction":"out","initial_value":1}`, b.l(1)))
	b.sees(t, b.Free[1], 1)
}

func testSoftwarePWM(t *testing.T, b ServiceBench) {
	d := b.desk(t, gpio.ServiceOptions{})
	s := d.Do("s", b.Device, wire.OpGPIOPWM, args(`{"line":%s,"frequency_hz":500,"duty":0.25,"mode":"software"}`, b.l(0))).(wire.GPIOPWMState)
	if !s.Running || s.Kind != "software" || s.PeriodNS != 2e6 || s.DutyNS != 5e5 || s.Jitter == nil || s.Jitter.Edges == 0 ||
		s.Jitter.P50US < 0 || s.Jitter.MaxUS < s.Jitter.P50US || s.OnRelease != wire.GPIOLow {
		t.Errorf("%+v %+v", s, s.Jitter)
	}
	t.Logf("figure: jitter of a software PWM at 500 Hz: %+v", *s.Jitter)
	s = d.Do("s", b.Device, wire.OpGPIOPWM, args(`{"line":%s,"duty":1}`, b.l(0))).(wire.GPIOPWMState)
	if !s.Running || s.PeriodNS != 2e6 || s.Duty != 1 {
		t.Errorf("%+v", s)
	}
	b.sees(t, b.Free[0], 1)
	d.Do("s", b.Device, wire.OpRelease, `{}`)
	b.sees(t, b.Free[0], 0) // off, although nobody said so
	d.Do("s", b.Device, wire.OpGPIOPWM, args(`{"line":%s,"period_ns":2000000,"duty_ns":1000000,"mode":"software"}`, b.l(0)))
	if s = d.Do("s", b.Device, wire.OpGPIOPWM, args(`{"line":%s,"stop":true}`, b.l(0))).(wire.GPIOPWMState); s.Running {
		t.Errorf("%+v", s)
	}
	b.sees(t, b.Free[0], 0)
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(0)))
	b.sees(t, b.Free[0], 1)
}

func (b ServiceBench) ledger(t *testing.T, path string) *gpio.Ledger {
	t.Helper()
	l, err := gpio.OpenLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (b ServiceBench) kill(d *Desk) {
	if b.Kill != nil {
		b.Kill()
		return
	}
	_ = d.Service.Close() // before the leases end: no policy is applied
}

// testRestart is a daemon that stops as it should: lines keep what was promised.
func testRestart(t *testing.T, b ServiceBench) {
	path := filepath.Join(t.TempDir(), "outputs.json")
	shelf := &Shelf{}
	defer shelf.Close()
	d := b.desk(t, gpio.ServiceOptions{Ledger: b.ledger(t, path), Store: shelf})
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(0)))
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1,"on_release":0}`, b.l(1)))
	d.Close()
	b.kill(d)
	b.sees(t, b.Free[0], 1)
	b.sees(t, b.Free[1], 0)
	again := b.desk(t, gpio.ServiceOptions{Ledger: b.ledger(t, path), Store: shelf, Restored: shelf.Copies(t)})
	if got := again.Value("n", b.Device, b.l(0)); got != 1 {
		t.Errorf("after the restart it reads %d", got)
	}
	again.Do("n", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":0}`, b.l(0)))
	b.sees(t, b.Free[0], 0)
}

// testRestartAfterCrash is one that is killed with outputs driven: those that
// hold are taken over as they are, the others are off before it is ready.
func testRestartAfterCrash(t *testing.T, b ServiceBench) {
	path := filepath.Join(t.TempDir(), "outputs.json")
	shelf := &Shelf{}
	defer shelf.Close()
	d := b.desk(t, gpio.ServiceOptions{Ledger: b.ledger(t, path), Store: shelf})
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"lines":{"%s":1,"%s":0}}`, b.l(0), b.l(4)))          // a lamp
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1,"on_release":0}`, b.l(1)))       // a motor
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":0,"on_release":1}`, b.l(2)))       // a lock
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1,"on_release":"input"}`, b.l(3))) // a bus
	d.Do("s", b.Device, wire.OpGPIOPWM, args(`{"line":%s,"frequency_hz":100,"duty":1,"mode":"software"}`, b.l(5)))
	if n := len(shelf.Files()); n != 1 {
		t.Errorf("%d requests are kept, want the lamp's", n)
	}
	b.kill(d)
	b.sees(t, b.Free[0], 1)
	again := b.desk(t, gpio.ServiceOptions{Ledger: b.ledger(t, path), Store: shelf, Restored: shelf.Copies(t)})
	for i, want := range map[int]int{0: 1, 4: 0, 1: 0, 2: 1, 5: 0} {
		b.sees(t, b.Free[i], want)
		if l := b.line(t, b.Free[i]); !l.Used || l.Direction != gpio.Out {
			t.Errorf("line %d is %+v", b.Free[i], l)
		}
	}
	if l := b.line(t, b.Free[3]); l.Used || l.Direction != gpio.In {
		t.Errorf("line %d is %+v", b.Free[3], l)
	}
	// The lamp's two lines are still one request.
	if r := again.Do("n", b.Device, wire.OpGPIOSet, args(`{"lines":{"%s":0,"%s":1}}`, b.l(0), b.l(4))).(wire.GPIOValues); !r.Atomic {
		t.Errorf("%+v", r)
	}
	b.sees(t, b.Free[0], 0)
	b.sees(t, b.Free[4], 1)
}

// testRestartOfAShare: of a request with several lines one was given back, and
// the next process still knows the others.
func testRestartOfAShare(t *testing.T, b ServiceBench) {
	path := filepath.Join(t.TempDir(), "outputs.json")
	shelf := &Shelf{}
	defer shelf.Close()
	d := b.desk(t, gpio.ServiceOptions{Ledger: b.ledger(t, path), Store: shelf})
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"lines":{"%s":0,"%s":1,"%s":1}}`, b.l(0), b.l(1), b.l(2)))
	d.Do("s", b.Device, wire.OpGPIOConfigure, args(`{"line":%s,"direction":"in"}`, b.l(0)))
	d.Do("s", b.Device, wire.OpRelease, `{"line":`+b.l(0)+`}`)
	b.kill(d)
	b.sees(t, b.Free[1], 1)
	again := b.desk(t, gpio.ServiceOptions{Ledger: b.ledger(t, path), Store: shelf, Restored: shelf.Copies(t)})
	b.sees(t, b.Free[1], 1)
	again.Do("n", b.Device, wire.OpGPIOSet, args(`{"lines":{"%s":0,"%s":1}}`, b.l(1), b.l(2)))
	b.sees(t, b.Free[1], 0)
	b.sees(t, b.Free[2], 1)
	if l := b.line(t, b.Free[0]); l.Direction != gpio.In {
		t.Errorf("the line that was given back is %+v", l)
	}
}

func testVanishWhileWatching(t *testing.T, b ServiceBench) {
	testenv.Need(t, "unplug", b.Vanish != nil, "this chip can't be unplugged")
	d := b.desk(t, gpio.ServiceOptions{})
	w := d.Watch("s", b.Device, args(`{"line":%s}`, b.l(0)))
	d.Do("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":1}`, b.l(1)))
	b.Vanish(t)
	// Field case 23: what goes wrong in the background is on the stream.
	why, records := w.End()
	if why != stream.ReasonGone || len(records) != 1 || records[0].Kind != wire.GPIOError || records[0].Error.Code != wire.DeviceGone {
		t.Errorf("it ended with %q, %+v", why, records)
	}
	_, err := d.Try("s", b.Device, wire.OpGPIOSet, args(`{"line":%s,"value":0}`, b.l(1)))
	if !errors.Is(err, wire.DeviceGone) && !errors.Is(err, wire.HardwareNotFound) {
		t.Errorf("GPIO_SET answers %v", err)
	}
}
