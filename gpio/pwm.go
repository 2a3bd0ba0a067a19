package gpio

import (
	"context"
	"errors"
	"math"
	"time"

	"farhand/wire"
)

// Limits of a PWM.
const (
	MinPeriod         = 20 * time.Nanosecond   // 50 MHz, of hardware
	MinSoftwarePeriod = 500 * time.Microsecond // 2 kHz: beyond, the jitter is a good part of the period
	MaxPeriod         = 10 * time.Second
)

// wave is a square wave.
type wave struct {
	period time.Duration
	high   time.Duration // 0 to period: for so long the line is at 1, after ActiveLow
}

// pwm is a PWM that runs on a line.
type pwm interface {
	// set changes the wave without a break.
	set(w wave) error
	// halt ends it with the line at 0, after ActiveLow.
	halt() error
	// independent says whether it goes on without this process.
	independent() bool
	// tell fills in what there is to tell.
	tell(s *wire.GPIOPWMState)
	wave() wave
}

// endPWM ends the PWM of a line. It is called with b.mu.
func (b *board) endPWM(offset int) error {
	l := &b.lines[offset]
	if l.pwm == nil {
		return nil
	}
	err := l.pwm.halt()
	if l.pwm.independent() { // it isn't an output of the chip
		l.release = ""
		err = errors.Join(err, b.s.o.Ledger.Remove(b.id, offset))
	}
	l.pwm = nil
	if err != nil {
		return failure(wire.HardwareTransferFailed, "ending the PWM of "+b.call(offset), err)
	}
	return nil
}

// pwm starts, changes, describes or ends a PWM.
func (x *operation) pwm() (any, error) {
	a, err := decodeArgs[wire.GPIOPWM](x.r.Args)
	if err != nil {
		return nil, err
	}
	if len(x.lines) != 1 {
		return nil, invalid("line", "must be one: a PWM is of one line")
	}
	switch a.Mode {
	case "", "auto", "hardware", "software":
	default:
		return nil, invalid("mode", "must be auto, hardware or software")
	}
	dead, err := deadman(a.GPIOEnd)
	if err != nil {
		return nil, err
	}
	s, err := x.runPWM(a, dead)
	if err != nil {
		return nil, err
	}
	if soft, ok := s.pwm.(*softPWM); ok {
		soft.sample(x.ctx)
		soft.tell(&s.state)
	}
	return s.state, nil
}

// pwmAnswer is the answer of GPIO_PWM, before its jitter was measured.
type pwmAnswer struct {
	pwm   pwm
	state wire.GPIOPWMState
}

func (x *operation) runPWM(a wire.GPIOPWM, dead *time.Duration) (pwmAnswer, error) {
	b, o := x.b, x.lines[0]
	if err := b.enter(); err != nil {
		return pwmAnswer{}, err
	}
	defer b.mu.Unlock()
	l := &b.lines[o]
	answer := pwmAnswer{state: wire.GPIOPWMState{Line: o, Name: b.names.lines[o].kernel}}
	if a.Stop {
		return answer, b.endPWM(o) // the line is an output at 0 then
	}
	if err := b.unwatched(o); err != nil {
		return answer, err
	}
	var before *wave
	if l.pwm != nil {
		w := l.pwm.wave()
		before = &w
	}
	w, err := waveOf(a, before)
	if err != nil {
		return answer, err
	}
	same := l.pwm != nil && (a.Mode == "" || a.Mode == "auto" || (a.Mode == "hardware") == l.pwm.independent()) &&
		a.ActiveLow == nil && a.OnRelease == ""
	if same {
		err = l.pwm.set(w)
	} else {
		err = x.beginPWM(a, w, &answer.state)
	}
	if err != nil {
		return answer, failure(wire.HardwareTransferFailed, "the PWM of "+b.call(o), err)
	}
	x.hold(dead)
	answer.pwm = l.pwm
	answer.state.Running, answer.state.OnRelease = true, l.release
	l.pwm.tell(&answer.state)
	return answer, nil
}

// beginPWM starts one. What it refuses changes nothing: a PWM that runs goes on.
// It is called with b.mu.
func (x *operation) beginPWM(a wire.GPIOPWM, w wave, s *wire.GPIOPWMState) error {
	b, o := x.b, x.lines[0]
	l := &b.lines[o]
	if l.input {
		return wire.Errorf(wire.InvalidArgument, "%s was configured as an input", b.call(o)).With("line", o).
			With("hint", `GPIO_CONFIGURE with direction "out" first`)
	}
	p := a.OnRelease
	if p == "" {
		p = wire.GPIOLow
	}
	low := l.config.ActiveLow
	if a.ActiveLow != nil {
		low = *a.ActiveLow
	}
	ch, err := x.choosePWM(a.Mode, w, p, s)
	if err != nil {
		return err
	}
	if err := b.endPWM(o); err != nil {
		return err
	}
	if ch != nil {
		return x.beginHardware(*ch, w, p, low)
	}
	return x.beginSoftware(w, p, low)
}

// choosePWM is the channel that is to do it, nil for software, which s then says
// the reason of. It is called with b.mu.
func (x *operation) choosePWM(mode string, w wave, p wire.GPIORelease, s *wire.GPIOPWMState) (*pwmChannel, error) {
	b, o := x.b, x.lines[0]
	if mode == "software" {
		s.Reason = "software was asked for"
	} else {
		ch, why := b.findPWM(o)
		switch {
		case why == nil:
			return &ch, x.hardwareFits(p)
		case mode == "hardware":
			return nil, wire.Errorf(wire.FeatureNotSupported, "%s has no hardware PWM: %s", b.call(o), why.reason).
				With("line", o).With("feature", "hardware_pwm").With("reason", why.reason).With("hint", why.hint)
		}
		s.Reason, s.Hint = why.reason, why.hint
	}
	if p == wire.GPIOHold {
		return nil, invalid("on_release", "can't be hold for a software PWM, which ends with its lease").With("hint", "0, 1 or input")
	}
	return nil, softwareFits(w)
}

func (x *operation) hardwareFits(p wire.GPIORelease) error {
	if p != wire.GPIOLow && p != wire.GPIOHold {
		return invalid("on_release", "of a hardware PWM must be 0 (it ends) or hold (it goes on)")
	}
	o := x.lines[0]
	if cl := x.b.lines[o].claim; cl != nil && len(cl.offsets) > 1 {
		return wire.Errorf(wire.InvalidArgument, "%s belongs to a request with other lines", x.b.call(o)).With("line", o).
			With("hint", "RELEASE those lines first")
	}
	return nil
}

func softwareFits(w wave) error {
	if w.period < MinSoftwarePeriod {
		return invalid("frequency_hz", "must be at most %g for a software PWM", 1/MinSoftwarePeriod.Seconds())
	}
	return nil
}

func (x *operation) beginHardware(ch pwmChannel, w wave, p wire.GPIORelease, low bool) error {
	b, o := x.b, x.lines[0]
	if cl := b.lines[o].claim; cl != nil {
		b.unclaim(cl) // the pin is the PWM's
	}
	e := Entry{Device: b.id, Line: o, OnRelease: p, ActiveLow: low, Drive: drives[PushPull], Pull: pulls[PullAsIs], PWM: ch.device, Channel: ch.channel}
	if err := b.s.o.Ledger.Put(e); err != nil {
		return err
	}
	h, err := startHardware(x.ctx, ch, w, low)
	if err != nil {
		return errors.Join(ch.failure(err), b.s.o.Ledger.Remove(b.id, o))
	}
	b.lines[o].pwm, b.lines[o].release = h, p
	return nil
}

func (x *operation) beginSoftware(w wave, p wire.GPIORelease, low bool) error {
	b, o := x.b, x.lines[0]
	b.loosen(x.lines)
	c := b.lines[o].config
	c.Direction, c.Edges, c.Debounce, c.Value, c.ActiveLow = Out, 0, 0, 0, low
	if err := b.promise([]LineConfig{c}, p); err != nil {
		return err
	}
	if err := b.settle([]LineConfig{c}); err != nil {
		b.regret([]LineConfig{c})
		return err
	}
	b.unstore(b.lines[o].claim)
	b.lines[o].pwm = startSoftware(b.lines[o].claim, b.lines[o].bit, w)
	return nil
}

// waveOf is the wave that the arguments describe; before is what runs.
func waveOf(a wire.GPIOPWM, before *wave) (wave, error) {
	var w wave
	share := -1.0
	if before != nil {
		w = *before
		share = float64(w.high) / float64(w.period)
	}
	switch {
	case a.FrequencyHz != nil && a.PeriodNS != nil:
		return w, invalid("period_ns", "can't stand beside frequency_hz")
	case a.FrequencyHz != nil:
		f := *a.FrequencyHz
		if math.IsNaN(f) || f < 1/MaxPeriod.Seconds() || f > 1/MinPeriod.Seconds() {
			return w, invalid("frequency_hz", "must be %g to %g", 1/MaxPeriod.Seconds(), 1/MinPeriod.Seconds())
		}
		w.period = time.Duration(math.Round(1e9 / f))
	case a.PeriodNS != nil:
		if *a.PeriodNS < int64(MinPeriod) || *a.PeriodNS > int64(MaxPeriod) {
			return w, invalid("period_ns", "must be %d to %d", int64(MinPeriod), int64(MaxPeriod))
		}
		w.period = time.Duration(*a.PeriodNS)
	case before == nil:
		return w, invalid("frequency_hz", "must be given, or period_ns")
	}
	switch {
	case a.Duty != nil && a.DutyNS != nil:
		return w, invalid("duty_ns", "can't stand beside duty")
	case a.DutyNS != nil:
		if *a.DutyNS < 0 || *a.DutyNS > int64(w.period) {
			return w, invalid("duty_ns", "must be 0 to the period, %d", int64(w.period))
		}
		w.high = time.Duration(*a.DutyNS)
		return w, nil
	case a.Duty != nil:
		share = *a.Duty
	case before == nil:
		return w, invalid("duty", "must be given, 0 to 1, or duty_ns")
	}
	if math.IsNaN(share) || share < 0 || share > 1 {
		return w, invalid("duty", "must be 0 to 1")
	}
	w.high = time.Duration(math.Round(share * float64(w.period)))
	return w, nil
}

func (w wave) tell(s *wire.GPIOPWMState) {
	s.PeriodNS, s.DutyNS = int64(w.period), int64(w.high)
	s.FrequencyHz = 1e9 / float64(w.period)
	s.Duty = float64(w.high) / float64(w.period)
}

// sampling is how long the jitter is measured before the answer.
const sampling = 200 * time.Millisecond

// sample waits until there is a jitter to tell.
func (p *softPWM) sample(ctx context.Context) {
	t := time.NewTimer(min(sampling, max(20*time.Millisecond, 20*p.wave().period)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-p.done:
	}
}
