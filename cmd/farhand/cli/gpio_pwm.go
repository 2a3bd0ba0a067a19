package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

type pwmFlags struct {
	frequency, period, duty, pulse, mode string
	stop                                 bool
	lines                                lineFlags
	end                                  endFlags
}

func (a *app) gpioPWM() *cobra.Command {
	var f pwmFlags
	cmd := &cobra.Command{
		Use:   "pwm [MACHINE] [DEVICE] LINE",
		Short: "Make a square wave on a line",
		Long: `pwm makes a square wave on a line: by the board's PWM where it is switched to that
line, otherwise by software, whose edges are late by some microseconds; the answer says
which, and how late. What is left out stays as it is on a line that has a wave
already.

It goes on after this, until --stop, farhand release or some idle minutes; then the
line is 0 unless --on-release says otherwise. --stay stays and gives it back at the
end.`,
		Example: `  farhand gpio pwm pi GPIO18 --frequency 1kHz --duty 25%
  farhand gpio pwm pi GPIO18 --period 20ms --pulse 1.5ms --deadman 2s --stay
  farhand gpio pwm pi GPIO18 --duty 40%
  farhand gpio pwm pi GPIO18 --stop`,
		Args: between(1, 4, "[MACHINE] [DEVICE] LINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := lineWords(args, isLine)
			if err != nil {
				return err
			}
			if len(w.rest) != 1 {
				return usage("name one LINE, such as GPIO18")
			}
			request, err := f.request(w.rest[0])
			if err != nil {
				return err
			}
			return a.onDevice(cmd, "gpio", w, true, func(ctx context.Context, at spot) error {
				return a.runPWM(ctx, at, request, f.end.stay && !f.stop)
			})
		},
		ValidArgsFunction: a.completeLine(""),
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.frequency, "frequency", "f", "", "periods a second: 50, 1kHz")
	flags.StringVar(&f.period, "period", "", "or the `DURATION` of one: 20ms")
	flags.StringVarP(&f.duty, "duty", "d", "", "part of it that is high: 25% or 0.25")
	flags.StringVar(&f.pulse, "pulse", "", "or the `DURATION` that it is high: 1.5ms")
	flags.StringVar(&f.mode, "mode", "", "auto, hardware or software (default auto)")
	choices(cmd, "mode", "auto", "hardware", "software")
	flags.BoolVar(&f.stop, "stop", false, "end it and drive the line to 0")
	f.lines.cmd = cmd
	flags.BoolVar(&f.lines.low, "active-low", false, "the duty is the time at the low level")
	f.end.add(cmd, "0")
	cmd.MarkFlagsMutuallyExclusive("frequency", "period")
	cmd.MarkFlagsMutuallyExclusive("duty", "pulse")
	for _, other := range []string{"frequency", "period", "duty", "pulse", "stay"} {
		cmd.MarkFlagsMutuallyExclusive("stop", other)
	}
	return cmd
}

func (f *pwmFlags) request(line string) (wire.GPIOPWM, error) {
	r := wire.GPIOPWM{Line: wire.GPIOLine(line), Mode: f.mode, Stop: f.stop, ActiveLow: f.lines.activeLow()}
	var err error
	if r.GPIOEnd, err = f.end.end(); err != nil {
		return r, err
	}
	if f.frequency != "" {
		hz, err := hertz(f.frequency)
		if err != nil {
			return r, usage("--frequency %q is not a frequency such as 50 or 1kHz", f.frequency)
		}
		r.FrequencyHz = &hz
	}
	if r.PeriodNS, err = nanoseconds("period", f.period); err != nil {
		return r, err
	}
	if r.DutyNS, err = nanoseconds("pulse", f.pulse); err != nil {
		return r, err
	}
	if f.duty != "" {
		text, percent := strings.CutSuffix(f.duty, "%")
		d, err := strconv.ParseFloat(text, 64)
		if percent {
			d /= 100
		}
		if err != nil || !(d >= 0 && d <= 1) {
			return r, usage("--duty %q is not a part such as 25%% or 0.25", f.duty)
		}
		r.Duty = &d
	}
	return r, nil
}

// hertz reads 50, 50Hz, 1kHz, 1.5M.
func hertz(s string) (float64, error) {
	text := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), "hz")
	unit := 1.0
	if n, ok := strings.CutSuffix(text, "k"); ok {
		text, unit = n, 1e3
	} else if n, ok := strings.CutSuffix(text, "m"); ok {
		text, unit = n, 1e6
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err == nil && (v <= 0 || !finite(v*unit)) {
		err = strconv.ErrRange
	}
	return v * unit, err
}

func nanoseconds(flag, value string) (*int64, error) {
	if value == "" {
		return nil, nil
	}
	d, err := duration(value)
	if err != nil || d < 0 {
		return nil, usage("--%s %q is not a duration such as 20ms", flag, value)
	}
	ns := d.Nanoseconds()
	return &ns, nil
}

func (a *app) runPWM(ctx context.Context, at spot, request wire.GPIOPWM, stay bool) error {
	state, err := at.session.GPIOPWM(ctx, at.device, request, at.hold)
	if err != nil {
		return err
	}
	if err := a.printPWM(state); err != nil || !stay {
		return err
	}
	line := []wire.GPIOValue{{Line: state.Line, Name: state.Name}}
	return a.stay(ctx, at, line, request.GPIOEnd, func(wire.GPIOValues) error { return nil })
}

func (a *app) printPWM(s wire.GPIOPWMState) error {
	if a.json {
		return a.line(s)
	}
	name := clean(lineLabel(s.Line, s.Name))
	if !s.Running {
		a.tell("%s has no PWM.", name)
		return nil
	}
	kind := s.Kind
	if s.Chip != "" {
		kind += ", " + s.Chip
		if s.Channel != nil {
			kind += " channel " + strconv.Itoa(*s.Channel)
		}
	}
	var t table
	row := func(what, value string) { t.add(plain(what), plain(value)) }
	row("line", name)
	row("made by", kind)
	row("frequency", fmt.Sprintf("%s (%s)", inHertz(s.FrequencyHz), inTime(float64(s.PeriodNS))))
	row("duty", fmt.Sprintf("%.4g %% (%s)", s.Duty*100, inTime(float64(s.DutyNS))))
	if j := s.Jitter; j != nil {
		row("edges late by", fmt.Sprintf("half of them less than %.4g µs, 99 of 100 less than %.4g µs, all less than %.4g µs", j.P50US, j.P99US, j.MaxUS))
	}
	row("when given back", string(s.OnRelease))
	if err := t.write(a.env.Stdout, a.style.out, a.style.width()); err != nil {
		return err
	}
	if s.Reason != "" {
		a.note("Not by hardware: %s", clean(s.Reason))
	}
	if s.Hint != "" {
		a.note("  %s", clean(s.Hint))
	}
	return nil
}

func inHertz(f float64) string {
	switch {
	case f >= 1e6:
		return fmt.Sprintf("%.6g MHz", f/1e6)
	case f >= 1e3:
		return fmt.Sprintf("%.6g kHz", f/1e3)
	}
	return fmt.Sprintf("%.6g Hz", f)
}

func inTime(ns float64) string {
	switch {
	case ns >= 1e9:
		return fmt.Sprintf("%.6g s", ns/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%.6g ms", ns/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%.6g µs", ns/1e3)
	}
	return fmt.Sprintf("%.6g ns", ns)
}
