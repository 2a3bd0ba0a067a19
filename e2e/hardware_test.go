package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/client"
	"farhand/wire"
)

// chip is the header of the bench: GPIO17 is wired to GPIO27, GPIO23 to GPIO24.
const chip = "gpio:pinctrl-bcm2711"

// user is a session of somebody, for operations as anybody may send them.
type user struct {
	t *testing.T
	b *bench
	*client.Session
}

// user opens a session with a token: the owner's login if it is empty.
func (b *bench) user(token string) user {
	b.t.Helper()
	if token == "" {
		token = b.owner.secret()
	}
	return b.userAt(token, b.place())
}

func (b *bench) userAt(token string, at client.Place) user {
	b.t.Helper()
	s, err := b.sdkWith(token).Open(b.t.Context(), at)
	if err != nil {
		b.t.Fatal(err)
	}
	return user{b.t, b, s}
}

// on is the same session in a subtest.
func (u user) on(t *testing.T) user {
	u.t = t
	return u
}

// try does an operation.
func (u user) try(device, op, args string) (json.RawMessage, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := u.Hardware(ctx, wire.HardwareOp{Device: device, Op: op, Args: json.RawMessage(args)}, nil)
	return r.Result, err
}

// do is the result of an operation that has to succeed.
func (u user) do(device, op, args string) json.RawMessage {
	u.t.Helper()
	r, err := u.try(device, op, args)
	if err != nil {
		u.t.Fatalf("%s %s %s: %v", op, device, args, err)
	}
	return r
}

// refused does an operation that has to fail with a code.
func (u user) refused(code wire.Code, device, op, args string) *wire.Error {
	u.t.Helper()
	r, err := u.try(device, op, args)
	if wire.CodeOf(err) != code || err == nil {
		u.t.Errorf("%s %s %s: %s %v, want %s", op, device, args, r, err, code)
		return wire.Errorf(code, "not so")
	}
	return wire.AsError(err)
}

// level reads one line.
func (u user) level(line string) int {
	u.t.Helper()
	v := parse[wire.GPIOValues](u.t, string(u.do(chip, wire.OpGPIOGet, fmt.Sprintf(`{"line":%q}`, line))))
	if v.Value == nil {
		u.t.Fatalf("the level of %s is %+v", line, v)
	}
	return *v.Value
}

// records are what comes in a stream, kept until they are asked for.
type records[T any] struct {
	t    *testing.T
	st   *client.Stream
	rest []T
	lost int64 // by gaps
	end  *wire.StreamEnd
}

// watch opens a stream.
func watch[T any](u user, device, op, args string) *records[T] {
	u.t.Helper()
	st, _, err := u.Watch(u.t.Context(), wire.HardwareOp{Device: device, Op: op, Args: json.RawMessage(args)})
	if err != nil {
		u.t.Fatalf("%s %s %s: %v", op, device, args, err)
	}
	return &records[T]{t: u.t, st: st}
}

// next is the next record; none after the end.
func (r *records[T]) next() (T, bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for len(r.rest) == 0 {
		if r.end != nil {
			return *new(T), false
		}
		c, err := r.st.Next(ctx)
		if err != nil {
			r.t.Fatalf("the next record: %v (%v)", err, r.st.Trouble())
		}
		if c.Lost != nil {
			r.lost += c.Lost.To - c.Lost.From
		}
		r.end = c.End
		got, err := client.Decode[T](c)
		if err != nil {
			r.t.Fatal(err)
		}
		r.rest = append(r.rest, got...)
	}
	x := r.rest[0]
	r.rest = r.rest[1:]
	return x, true
}

// must is the next record, which has to come.
func (r *records[T]) must() T {
	r.t.Helper()
	x, ok := r.next()
	if !ok {
		r.t.Fatalf("the stream ended with %+v", r.end)
	}
	return x
}

// ended reads to the end, which has to be of a reason.
func (r *records[T]) ended(reason string) {
	r.t.Helper()
	for {
		if _, ok := r.next(); !ok {
			break
		}
	}
	if r.end.Reason != reason {
		r.t.Errorf("the stream ended with %+v, want %s", r.end, reason)
	}
}

// edge checks the next record of a line's stream.
func edge(t *testing.T, r *records[wire.GPIORecord], want string) wire.GPIORecord {
	t.Helper()
	e := r.must()
	if e.Kind != wire.GPIOEdge || e.Edge != want {
		t.Fatalf("%+v, want a %s edge", e, want)
	}
	return e
}

// Lines through the wire: by every name, many at once, with what the others see.
func TestGPIO(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	own, other := b.user(""), b.user(b.newToken("agent"))

	t.Run("names", func(t *testing.T) {
		own, other := own.on(t), other.on(t)
		for i, name := range []string{`17`, `"17"`, `"GPIO17"`, `"gpio17"`, `"BCM17"`, `"pin 11"`, `"J8:11"`, `"gpiochip0:17"`, `"pinctrl-bcm2711:GPIO17"`} {
			v := parse[wire.GPIOValues](t, string(own.do(chip, wire.OpGPIOSet, fmt.Sprintf(`{"line":%s,"value":%d}`, name, (i+1)%2))))
			if v.Value == nil || *v.Value != (i+1)%2 || v.Lines[0].Line != 17 || v.Lines[0].Name != "GPIO17" || !v.Atomic {
				t.Errorf("%s: %+v", name, v)
			}
			if got := other.level("GPIO27"); got != (i+1)%2 {
				t.Errorf("by %s: GPIO27 is %d", name, got)
			}
		}
		for device, args := range map[string]string{"gpio:bcm": `{"line":"pin 13"}`, "/dev/gpiochip0": `{"line":"BCM27"}`, "gpio:gpiochip0": `{"lines":[27]}`} {
			if v := parse[wire.GPIOValues](t, string(other.do(device, wire.OpGPIOGet, args))); *v.Value != 1 || v.Lines[0].Line != 27 {
				t.Errorf("%s %s: %+v", device, args, v)
			}
		}
		own.do(chip, wire.OpGPIOSet, `{"line":17,"value":0,"on_release":"input"}`)
		own.do(chip, wire.OpRelease, `{}`)
	})

	t.Run("many at once", func(t *testing.T) {
		own, other := own.on(t), other.on(t)
		v := parse[wire.GPIOValues](t, string(own.do(chip, wire.OpGPIOSet, `{"lines":{"17":1,"GPIO23":0,"pin 29":1},"on_release":"input"}`)))
		if !v.Atomic || len(v.Lines) != 3 || v.Lines[2].Line != 5 || v.Value != nil {
			t.Errorf("%+v", v)
		}
		w := watch[wire.GPIORecord](other, chip, wire.OpGPIOWatch, `{"lines":["GPIO27","GPIO24"]}`)
		v = parse[wire.GPIOValues](t, string(own.do(chip, wire.OpGPIOSet, `{"lines":{"17":0,"GPIO23":"high","pin 29":false}}`)))
		if !v.Atomic {
			t.Errorf("%+v", v)
		}
		got := []string{}
		var last wire.GPIORecord
		for range 2 {
			r := w.must()
			got = append(got, fmt.Sprintf("%d %s %d", r.Line, r.Edge, *r.Level))
			if r.Kind != wire.GPIOEdge || r.TimestampNS < last.TimestampNS || r.Seq != last.Seq+1 || r.LineSeq != 1 || r.Time == nil || time.Since(*r.Time).Abs() > time.Minute {
				t.Errorf("%+v after %+v", r, last)
			}
			last = r
		}
		if slices.Sort(got); !slices.Equal(got, []string{"24 rising 1", "27 falling 0"}) {
			t.Errorf("%q", got)
		}
		// One of them can't be had: none changes.
		before := fmt.Sprint(other.level("GPIO24"))
		if e := own.refused(wire.HardwareBusy, chip, wire.OpGPIOSet, `{"lines":{"23":0,"42":1}}`); e.Details["consumer"] != "ACT" || e.Details["hint"] == nil {
			t.Errorf("details %v", e.Details)
		}
		if got := fmt.Sprint(other.level("GPIO24")); got != before {
			t.Errorf("half of a set was done: GPIO24 is %s", got)
		}
		own.refused(wire.InvalidArgument, chip, wire.OpGPIOSet, `{"lines":{"17":1,"GPIO17":0}}`)
		own.refused(wire.HardwareNotFound, chip, wire.OpGPIOSet, `{"lines":{"17":1,"GPIO99":0}}`)
		own.refused(wire.HardwareNotFound, chip, wire.OpGPIOSet, `{"line":"pin 1","value":1}`)
		if err := w.st.Close(t.Context()); err != nil {
			t.Error(err)
		}
		own.do(chip, wire.OpRelease, `{}`)
	})

	t.Run("watch", func(t *testing.T) {
		own, other := own.on(t), other.on(t)
		own.do(chip, wire.OpGPIOSet, `{"line":17,"value":0}`)
		w := watch[wire.GPIORecord](other, chip, wire.OpGPIOWatch, `{"line":27,"edge":"rising"}`)
		for range 20 {
			own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1}`)
			own.do(chip, wire.OpGPIOSet, `{"line":17,"value":0}`)
		}
		var last wire.GPIORecord
		for range 20 {
			r := edge(t, w, "rising")
			if r.TimestampNS <= last.TimestampNS || last.Seq > 0 && (r.LineSeq != last.LineSeq+1 || r.Seq != last.Seq+1) || r.Name != "GPIO27" {
				t.Fatalf("%+v after %+v", r, last)
			}
			last = r
		}
		// What is watched is read by its session, and set by nobody.
		if got := other.level("27"); got != 0 {
			t.Errorf("level %d", got)
		}
		other.refused(wire.InvalidArgument, chip, wire.OpGPIOSet, `{"line":27,"value":1}`)
		own.refused(wire.HardwareBusy, chip, wire.OpGPIOSet, `{"line":27,"value":1}`)
		other.do(chip, wire.OpRelease, `{"line":27}`)
		w.ended("released")
		own.do(chip, wire.OpGPIOGet, `{"line":27}`)
		own.do(chip, wire.OpRelease, `{}`)
	})

	t.Run("lost", func(t *testing.T) {
		own, other := own.on(t), other.on(t)
		// With so little credit the stream keeps what it can, and says what it
		// can't: what comes and what is lost add up.
		own.do(chip, wire.OpGPIOSet, `{"line":17,"value":0}`)
		// The words of a stream that nobody reads stay on the device.
		id := parse[wire.Opened](t, string(other.do(chip, wire.OpGPIOWatch, `{"line":27,"credit":1}`))).Stream
		own.do(chip, wire.OpGPIOPWM, `{"line":17,"frequency_hz":1000,"duty":0.5,"mode":"software"}`)
		var a wire.StreamAttached
		eventually(t, "more edges than a stream keeps", func() error {
			st, at, err := other.Attach(t.Context(), id, nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			st.Detach()
			if a = at; a.Oldest == 0 {
				return fmt.Errorf("%+v", a)
			}
			return nil
		})
		own.do(chip, wire.OpGPIOPWM, `{"line":17,"stop":true}`)
		zero := int64(0)
		st, a, err := other.Attach(t.Context(), id, &zero, 0)
		if err != nil || a.Oldest == 0 {
			t.Fatalf("%+v, %v", a, err)
		}
		w := &records[wire.GPIORecord]{t: t, st: st}
		n, kernel := int64(0), int64(0)
		for n+w.lost < a.Next {
			r := w.must()
			n++
			if r.Kind == wire.GPIOLost {
				kernel += r.Lost
			}
		}
		if w.lost < a.Oldest || n < 100 {
			t.Errorf("%d records came, %d were lost on the way (%d before), of %+v", n, w.lost, kernel, a)
		}
		other.do(chip, wire.OpRelease, `{}`)
		own.do(chip, wire.OpRelease, `{}`)
	})

	t.Run("PWM", func(t *testing.T) {
		own, other := own.on(t), other.on(t)
		w := watch[wire.GPIORecord](other, chip, wire.OpGPIOWatch, `{"line":24}`)
		p := parse[wire.GPIOPWMState](t, string(own.do(chip, wire.OpGPIOPWM, `{"line":23,"frequency_hz":50,"duty":0.25}`)))
		if !p.Running || p.Kind != "software" || p.Reason == "" || p.FrequencyHz != 50 || p.Duty != 0.25 || p.Jitter == nil || p.OnRelease != "0" {
			t.Errorf("%+v", p)
		}
		for range 3 {
			edge(t, w, "rising")
			edge(t, w, "falling")
		}
		p = parse[wire.GPIOPWMState](t, string(own.do(chip, wire.OpGPIOPWM, `{"line":"GPIO23","duty":1}`)))
		if p.Duty != 1 || p.FrequencyHz != 50 {
			t.Errorf("%+v", p)
		}
		own.refused(wire.FeatureNotSupported, chip, wire.OpGPIOPWM, `{"line":23,"frequency_hz":50,"duty":0.5,"mode":"hardware"}`)
		own.do(chip, wire.OpRelease, `{"line":23}`)
		if got := other.level("24"); got != 0 {
			t.Errorf("after the release of a PWM its line is at %d", got)
		}
		other.do(chip, wire.OpRelease, `{}`)
	})

	t.Run("holders", func(t *testing.T) {
		own, other := own.on(t), other.on(t)
		own.do(chip, wire.OpGPIOSet, `{"lines":{"5":1,"6":0}}`)
		for _, op := range []string{wire.OpGPIOSet, wire.OpGPIOPWM, wire.OpGPIOWatch, wire.OpGPIOGet, wire.OpGPIOConfigure} {
			args := map[string]string{wire.OpGPIOSet: `{"line":"pin 29","value":0}`, wire.OpGPIOPWM: `{"line":5,"frequency_hz":1,"duty":0}`}[op]
			if args == "" {
				args = `{"lines":[22,5]}`
			}
			e := other.refused(wire.HardwareBusy, chip, op, args)
			if e.Details["holder"] == nil || e.Details["holder"] == "" || e.Details["part"] != "5" || e.Details["device"] != chip {
				t.Errorf("%s: details %v", op, e.Details)
			}
		}
		other.do(chip, wire.OpGPIOSet, `{"line":22,"value":1}`)
		if r := parse[wire.Released](t, string(other.do(chip, wire.OpRelease, `{"line":5}`))); r.Released {
			t.Error("it gave back what another has")
		}
		own.do(chip, wire.OpRelease, `{"lines":["GPIO5"]}`)
		other.do(chip, wire.OpGPIOSet, `{"line":5,"value":1}`) // and takes it over
		own.refused(wire.HardwareBusy, chip, wire.OpGPIOSet, `{"line":5,"value":0}`)
		other.refused(wire.HardwareBusy, chip, wire.OpGPIOSet, `{"line":6,"value":0}`)
		info := parse[wire.GPIOChip](t, string(own.do(chip, wire.OpGPIOInfo, `{"lines":[5,6,42]}`)))
		if l := info.Lines; l[0].Available || l[0].Holder == "" || !l[1].Available || l[2].Consumer != "ACT" || l[2].Available {
			t.Errorf("%+v", info.Lines)
		}
		own.do(chip, wire.OpRelease, `{}`)
		other.do(chip, wire.OpRelease, `{}`)
	})

	b.wholeAudit()
	n := 0
	for _, r := range b.records() {
		for _, field := range []string{"args", "value", "data", "result"} {
			if _, there := r.Details[field]; there && strings.HasPrefix(r.Op, "HARDWARE") {
				t.Errorf("a record has the %s of an operation: %+v", field, r)
			}
		}
		if r.Op == "HARDWARE_OP" && r.Details["op"] == wire.OpGPIOSet && fmt.Sprint(r.Details["lines"]) == "[17 23 5]" {
			n++
		}
	}
	if n < 2 {
		t.Errorf("%d records of a set of three lines", n)
	}
}

// leased is a bench whose leases are soon idle, with two users of it.
func leased(t *testing.T, idle string) (b *bench, own, other user) {
	t.Helper()
	b = newBench(t)
	b.tables += "[hardware]\nlease_idle_seconds = " + idle + "\nactuators = [\"gpio:*#GPIO23\"]\n"
	b.claim(everything)
	return b, b.user(""), b.user(b.newToken("agent"))
}

// What becomes of outputs when a lease ends, for each way in which it can.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	b, own, other := leased(t, "1")
	lamp := watch[wire.GPIORecord](other, chip, wire.OpGPIOWatch, `{"line":27}`)
	motor := watch[wire.GPIORecord](other, chip, wire.OpGPIOWatch, `{"line":24}`)

	// Idle: what is to go off does, and a plain output stays as it is.
	began := time.Now()
	own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1}`)
	own.do(chip, wire.OpGPIOSet, `{"line":23,"value":1}`) // an actuator by the configuration
	edge(t, lamp, "rising")
	edge(t, motor, "rising")
	edge(t, motor, "falling")
	if took := time.Since(began); took < time.Second {
		t.Errorf("an idle lease ended after %s", took)
	}
	eventually(t, "the end of the lamp's lease", func() error {
		info := parse[wire.GPIOChip](t, string(own.do(chip, wire.OpGPIOInfo, `{"lines":[17,23]}`)))
		if l := info.Lines; l[0].Holder != "" || !l[0].Held || l[1].Holder != "" {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	// Watching is no idleness.
	own.refused(wire.HardwareBusy, chip, wire.OpGPIOGet, `{"line":27}`)
	own.refused(wire.HardwareBusy, chip, wire.OpGPIOGet, `{"line":24}`)
	// The next holder has the lamp without a flicker.
	third := b.user(b.newToken("third"))
	third.do(chip, wire.OpGPIOSet, `{"line":17,"value":1}`)
	third.do(chip, wire.OpGPIOSet, `{"line":17,"value":0}`)
	if e := edge(t, lamp, "falling"); e.LineSeq != 2 {
		t.Errorf("the lamp flickered: %+v", e)
	}

	// RELEASE: of each kind.
	third.do(chip, wire.OpGPIOSet, `{"line":17,"value":1,"on_release":0}`)
	edge(t, lamp, "rising")
	third.do(chip, wire.OpRelease, `{"line":"GPIO17"}`)
	edge(t, lamp, "falling")
	own.do(chip, wire.OpGPIOSet, `{"line":17,"value":0,"on_release":"high"}`)
	own.do(chip, wire.OpRelease, `{}`)
	edge(t, lamp, "rising")
	own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1,"on_release":"input"}`)
	own.do(chip, wire.OpRelease, `{}`)
	edge(t, lamp, "falling") // nobody drives the wire any more
	if l := parse[wire.GPIOChip](t, string(own.do(chip, wire.OpGPIOInfo, `{"line":17}`))).Lines[0]; l.Direction != "in" || l.Consumer != "" || l.Held {
		t.Errorf("%+v", l)
	}

	// The end of a session, from either side.
	third.do(chip, wire.OpGPIOSet, `{"line":23,"value":1}`)
	third.do(chip, wire.OpGPIOPWM, `{"line":17,"frequency_hz":0.5,"duty":1,"mode":"software"}`)
	edge(t, motor, "rising")
	edge(t, lamp, "rising")
	if err := third.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	edge(t, motor, "falling")
	edge(t, lamp, "falling")

	// A machine is revoked: nobody is left to ask.
	own.do(chip, wire.OpGPIOSet, `{"lines":{"17":1,"23":1},"on_release":"input"}`)
	if err := b.sdk().Revoke(t.Context(), "bench"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing promised for a line", func() error {
		if got := b.ledger(); strings.Contains(got, `"line":17`) || strings.Contains(got, `"line":23`) {
			return errors.New(got)
		}
		return nil
	})
}

// ledger is what the daemon has promised for outputs, as it stands on the disk.
func (b *bench) ledger() string { return string(b.read(b.stateDir() + "/gpio-sim.json")) }

// The dead-man of an output: silence for its time is the end, any frame of the
// session is a sign of life. Whether a session was silent can only be told where
// this machine gets round to its pings in time, so a round in which it didn't is
// done once more.
func TestDeadman(t *testing.T) {
	t.Parallel()
	const deadman = time.Second // and wall clocks are read a moment apart:
	const blur = 20 * time.Millisecond
	_, own, other := leased(t, "300")
	w := watch[wire.GPIORecord](other, chip, wire.OpGPIOWatch, `{"lines":[27,24]}`)
	own.do(chip, wire.OpGPIOSet, `{"line":5,"value":1,"on_release":"input"}`)
	inTime(t, func() bool {
		last := time.Now() // no later than the daemon last heard of the session
		own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1,"on_release":0,"deadman_seconds":1}`)
		longest := time.Duration(0) // no shorter than its longest silence
		again := time.NewTicker(200 * time.Millisecond)
		defer again.Stop()
		for began := time.Now(); time.Since(began) < 5*deadman/2; <-again.C {
			sent := time.Now()
			if _, err := own.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			longest, last = max(longest, time.Since(last)), sent
		}
		edge(t, w, "rising")
		off := edge(t, w, "falling")
		if longest >= deadman {
			return false
		}
		if silent := off.Time.Sub(last); silent < deadman-blur || silent > patience {
			t.Errorf("a dead-man of 1 s went off %s after the last frame", silent)
		}
		return true
	})
	// Only that line, and its session can have it again.
	other.refused(wire.HardwareBusy, chip, wire.OpGPIOGet, `{"line":5}`)
	inTime(t, func() bool {
		began := time.Now()
		own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1,"on_release":0,"deadman_seconds":1}`)
		own.do(chip, wire.OpGPIOConfigure, `{"line":17,"direction":"out","deadman_seconds":0}`) // and takes it away
		if time.Since(began) < deadman {
			edge(t, w, "rising")
			return true
		}
		// It may have gone off in between, or not.
		own.do(chip, wire.OpGPIOSet, `{"line":17,"value":0,"on_release":0}`)
		edge(t, w, "rising")
		edge(t, w, "falling")
		return false
	})
	// That of the other line counts from the same frames, and longer.
	own.do(chip, wire.OpGPIOSet, `{"line":23,"value":1,"on_release":0,"deadman_seconds":1.5}`)
	if e := edge(t, w, "rising"); e.Line != 24 {
		t.Errorf("%+v", e)
	}
	if e := edge(t, w, "falling"); e.Line != 24 {
		t.Errorf("a dead-man that was taken away went off: %+v", e)
	}
	if got := other.level("27"); got != 1 {
		t.Errorf("level %d", got)
	}
}

// inTime does something again until this machine was fast enough for it to say
// something, which it says itself.
func inTime(t *testing.T, do func() (judged bool)) {
	t.Helper()
	for range 20 {
		if do() {
			return
		}
	}
	t.Fatal("this machine was too slow each time")
}
