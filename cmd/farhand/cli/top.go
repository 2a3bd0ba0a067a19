package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) top() *cobra.Command {
	var (
		interval string
		once     bool
		until    untilFlags
	)
	cmd := &cobra.Command{
		Use:   "top [MACHINE]",
		Short: "Show how a machine is doing",
		Long: `top shows a machine's load, memory, temperatures, supply, disks and clock: on a
terminal again and again in place, until Ctrl-C, otherwise once, unless --interval is
given.`,
		Example: `  farhand top pi
  farhand top pi --once --json
  farhand top pi --interval 10s --for 1h --json > load`,
		Args: between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			every := 2 * time.Second
			if interval != "" {
				d, err := duration(interval)
				if err != nil || d.Seconds() < wire.MinTopInterval || d.Seconds() > wire.MaxTopInterval {
					return usage("--interval takes %g seconds to an hour, such as 5s", wire.MinTopInterval)
				}
				every = d
			}
			if once && interval != "" {
				return usage("--once and --interval are one or the other")
			}
			live := !once && (interval != "" || a.style.outTTY && !a.json)
			if !live && until != (untilFlags{}) {
				return usage("--count and --for go with --interval")
			}
			if err := until.check(); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := a.at(ctx, c, first(args...))
			if err != nil {
				return err
			}
			if live {
				return a.watchTop(ctx, s, every, until)
			}
			return a.showTop(ctx, s)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().StringVar(&interval, "interval", "", "show it again after each `DURATION` (default on a terminal: 2s)")
	cmd.Flags().BoolVar(&once, "once", false, "show it once, on a terminal too")
	until.add(cmd, "looks")
	return cmd
}

func (a *app) showTop(ctx context.Context, s *client.Session) error {
	t, err := s.Top(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(t)
	}
	table := a.topTable(t)
	return table.write(a.env.Stdout, a.style.out, a.style.width())
}

func (a *app) watchTop(ctx context.Context, s *client.Session, every time.Duration, until untilFlags) error {
	st, now, err := s.WatchTop(ctx, every)
	if err != nil {
		return err
	}
	ctx, cancel, err := until.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	view := live{a: a}
	draw := func() {
		if a.style.outTTY {
			view.draw(a.topTable(now))
		}
	}
	tell := func() {
		if !a.style.outTTY {
			a.tell("%s", clean(topLine(now)))
		}
	}
	if !a.json {
		draw()
		tell()
	}
	w := watching{opened: now, ungranted: wire.CapabilityNotGranted, redraw: draw, view: &view, record: records(a, until.count, func(t wire.Top) error {
		now = t
		tell()
		return a.outErr
	})}
	return a.follow(ctx, st, w)
}

// topTable shows everything that a machine tells, a line each.
func (a *app) topTable(t wire.Top) table {
	var out table
	row := func(what, value string, paint func(string) string) {
		out.add(cell{what, a.style.out.dim}, cell{value, paint})
	}
	if t.Uptime != nil {
		row("up", span(time.Duration(*t.Uptime*float64(time.Second))), nil)
	}
	now := clock(t.Time)
	if t.Clock != "" {
		now += " (" + t.Clock + ")"
	}
	row("clock", now, nil)
	if t.Busy != nil {
		text := percent(*t.Busy)
		if t.CPUs > 0 {
			text += fmt.Sprintf(" of %d", t.CPUs)
		}
		row("cpu", text, a.warnAbove(*t.Busy, 0.9))
	}
	if len(t.Load) == 3 {
		row("load", fmt.Sprintf("%.2f %.2f %.2f", t.Load[0], t.Load[1], t.Load[2]), nil)
	}
	if m := t.Memory; m != nil && m.Total > 0 {
		used := 1 - float64(m.Available)/float64(m.Total)
		row("memory", size(m.Total-m.Available)+" of "+size(m.Total), a.warnAbove(used, 0.9))
		if m.SwapTotal > 0 {
			row("swap", size(m.SwapTotal-m.SwapFree)+" of "+size(m.SwapTotal), nil)
		}
	}
	for _, of := range []string{"cpu", "memory", "io"} {
		if p, ok := t.Pressure[of]; ok && p >= 0.01 {
			row("waiting for "+of, percent(p), a.warnAbove(p, 0.5))
		}
	}
	for _, x := range t.Temperatures {
		row(x.Name, fmt.Sprintf("%.1f °C", x.Celsius), a.warnAbove(x.Celsius, 80))
	}
	if t.Power != nil {
		paint := a.style.out.red
		if t.Power.Text == "ok" {
			paint = nil
		}
		row("power", t.Power.Text, paint)
	}
	for _, d := range t.Disks {
		a.diskRow(d, row)
	}
	if g := t.Cgroup; g != nil && g.Memory != nil {
		text := size(*g.Memory)
		if g.MemoryMax != nil {
			text += " of " + size(*g.MemoryMax)
		}
		if g.PIDs != nil {
			text += fmt.Sprintf(", %d tasks", *g.PIDs)
		}
		row("farhandd", text, nil)
	}
	return out
}

func (a *app) diskRow(d wire.TopDisk, row func(what, value string, paint func(string) string)) {
	name := first(d.Path, d.What)
	switch {
	case d.Fault != "":
		row(name, d.Fault, a.style.out.red)
	case d.ReadOnly:
		row(name, "read-only", a.style.out.red)
	case d.Total > 0:
		row(name, size(d.Free)+" free of "+size(d.Total), a.warnAbove(1-float64(d.Free)/float64(d.Total), 0.95))
	}
}

// warnAbove paints what is above a bound.
func (a *app) warnAbove(value, bound float64) func(string) string {
	if value < bound {
		return nil
	}
	return a.style.out.red
}

// topLine is the most of it on one line.
func topLine(t wire.Top) string {
	parts := []string{clock(t.Time)}
	if t.Busy != nil {
		parts = append(parts, "cpu "+percent(*t.Busy))
	}
	if len(t.Load) == 3 {
		parts = append(parts, fmt.Sprintf("load %.2f", t.Load[0]))
	}
	if m := t.Memory; m != nil {
		parts = append(parts, "memory "+size(m.Total-m.Available)+"/"+size(m.Total))
	}
	for _, x := range t.Temperatures {
		parts = append(parts, fmt.Sprintf("%s %.1f °C", x.Name, x.Celsius))
	}
	if t.Power != nil && t.Power.Text != "ok" {
		parts = append(parts, "power: "+t.Power.Text)
	}
	return strings.Join(parts, "  ")
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }
