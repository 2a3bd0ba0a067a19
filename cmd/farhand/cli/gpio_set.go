package cli

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) gpioSet() *cobra.Command {
	var (
		lines lineFlags
		end   endFlags
	)
	cmd := &cobra.Command{
		Use:   "set [MACHINE] [DEVICE] LINE=LEVEL...",
		Short: "Drive lines to levels",
		Long: `set makes lines outputs, if they are none yet, and drives them, several at once. A
LEVEL is on or off, 1 or 0, high or low.

This login keeps the lines until farhand release, or some idle minutes. Then they
stay as they are unless --on-release says otherwise: a lamp stays on. For a motor say
--on-release 0 --deadman 2s --stay: then it stops when this command is interrupted,
and also when it, the network or this computer dies.`,
		Example: `  farhand gpio set pi GPIO17=on
  farhand gpio set pi pin 11=1 pin 13=0
  farhand gpio set pi GPIO23=on --on-release 0 --deadman 2s --stay
  farhand gpio set pi GPIO4=low --drive open-drain --pull up`,
		Args: between(1, 3+2*wire.MaxGPIOLines, "[MACHINE] [DEVICE] LINE=LEVEL..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := lineWords(args, isAssignment)
			if err != nil {
				return err
			}
			if w = w.exact("gpio", isAssignment); len(w.rest) == 0 {
				return usage("name at least one LINE=LEVEL, such as GPIO17=on")
			}
			set := wire.GPIOSet{}
			if set.GPIOSelect, err = assignments(w.rest); err != nil {
				return err
			}
			if set.GPIOEnd, err = end.end(); err != nil {
				return err
			}
			if _, err := lines.configuration(set.GPIOSelect, "out"); err != nil {
				return err
			}
			return a.onDevice(cmd, "gpio", w, true, func(ctx context.Context, at spot) error {
				return a.runSet(ctx, at, set, &lines, end.stay)
			})
		},
		ValidArgsFunction: a.completeLine("="),
	}
	lines.add(cmd)
	lines.addDrive(cmd)
	end.add(cmd, "hold")
	return cmd
}

func (a *app) runSet(ctx context.Context, at spot, set wire.GPIOSet, lines *lineFlags, stay bool) error {
	if lines.given() {
		if err := configureOutputs(ctx, at, set, lines); err != nil {
			return err
		}
	}
	done, err := at.session.GPIOSet(ctx, at.device, set, at.hold)
	if err != nil {
		return err
	}
	if !stay {
		return a.printLevels(done, false)
	}
	return a.stay(ctx, at, done.Lines, set.GPIOEnd, a.showLevels(done))
}

// configureOutputs makes outputs of lines, with the levels that they are to have
// from their first moment on.
func configureOutputs(ctx context.Context, at spot, set wire.GPIOSet, lines *lineFlags) error {
	for _, first := range []wire.GPIOLevel{0, 1} {
		var some wire.GPIOSelect
		for i, name := range set.Lines.Names {
			if set.Lines.Levels[i] == first {
				some.Lines.Names = append(some.Lines.Names, name)
			}
		}
		if some.Lines.Names == nil {
			continue
		}
		c, err := lines.configuration(some, "out")
		if err != nil {
			return err
		}
		c.InitialValue, c.GPIOEnd = &first, set.GPIOEnd
		if _, err := at.session.GPIOConfigure(ctx, at.device, c, true); err != nil {
			return err
		}
	}
	return nil
}

// idleRenewal is how often a line that is kept is asked for, well below the 300 s
// after which an idle lease ends and often enough to show what it is.
const (
	idleRenewal  = 2 * time.Second
	leastRenewal = 20 * time.Millisecond
)

// stay keeps lines until it is interrupted, and then gives them back. Reading
// them is a frame of the session, which puts off a deadman, and an operation,
// which puts off the end of an idle lease.
func (a *app) stay(ctx context.Context, at spot, lines []wire.GPIOValue, end wire.GPIOEnd, show func(wire.GPIOValues) error) error {
	kept := make([]wire.GPIOLine, len(lines))
	for i, l := range lines {
		kept[i] = wire.GPIOLine(strconv.Itoa(l.Line))
	}
	every := idleRenewal
	if d := end.DeadmanSeconds; d != nil && *d > 0 {
		every = min(every, time.Duration(*d/4*float64(time.Second)))
	}
	tick := time.NewTicker(max(every, leastRenewal))
	defer tick.Stop()
	look := wire.GPIOGet{GPIOSelect: wire.GPIOSelect{Lines: wire.GPIOLines{Names: kept}}}
	looks := time.NewTicker(resized)
	defer looks.Stop()
	now := wire.GPIOValues{Lines: lines}
	var err error
	for err == nil {
		select {
		case <-looks.C:
			err = show(now)
		case <-tick.C:
			if now, err = at.session.GPIOGet(ctx, at.device, look, true); err == nil {
				err = show(now)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	a.belowInterrupt(ctx)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if _, failed := at.session.ReleaseLines(bounded, at.device, kept...); ctx.Err() != nil {
		return failed // the interrupt is how this ends
	}
	return err
}

// showLevels shows levels, and then again whenever they have changed; on a
// terminal in place.
func (a *app) showLevels(begin wire.GPIOValues) func(wire.GPIOValues) error {
	view := live{a: a}
	var last []wire.GPIOValue
	show := func(v wire.GPIOValues) error {
		if slices.Equal(last, v.Lines) && !view.stale() {
			return nil
		}
		last = v.Lines
		switch {
		case a.json:
			return a.line(v)
		case a.style.outTTY:
			view.draw(a.levels(v.Lines))
			return a.outErr
		}
		return a.printLevels(v, false)
	}
	if err := show(begin); err != nil {
		return func(wire.GPIOValues) error { return err }
	}
	return show
}
