package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) printWatch() *cobra.Command {
	var (
		request wire.PrinterWatch
		until   untilFlags
		period  string
	)
	cmd := &cobra.Command{
		Use:   "watch [MACHINE] [PRINTER]",
		Short: "Show how a printer is while it changes",
		Long: `watch shows a printer's state, temperatures and job; on a terminal in place, otherwise
a line each time something has changed. --log adds what server and printer say to each
other. It ends with Ctrl-C.`,
		Example: "  farhand print watch pi prusa\n  farhand print watch pi prusa --log --json",
		Args:    between(0, 2, "[MACHINE] [PRINTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			every, err := seconds("interval", period)
			if err != nil {
				return err
			}
			if every != nil {
				request.IntervalSeconds = *every
			}
			return a.printer(cmd, split("printer", args, 0, nil), false, func(ctx context.Context, at spot) error {
				bounded, cancel, err := until.bound(ctx)
				if err != nil {
					return err
				}
				defer cancel()
				st, opened, err := at.session.PrinterWatch(ctx, at.device, request)
				if err != nil {
					return err
				}
				view := &printerView{a: a, live: live{a: a}}
				return a.follow(bounded, st, watching{opened: opened, record: records(a, until.count, view.take), redraw: view.draw, view: &view.live})
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
	cmd.Flags().BoolVar(&request.Log, "log", false, "with what server and printer say to each other")
	cmd.Flags().StringVar(&period, "interval", "", "least `DURATION` between two looks (default 1s)")
	until.add(cmd, "records")
	return cmd
}

// printerView shows a printer in place, or line by line.
type printerView struct {
	a      *app
	live   live
	status *wire.PrinterStatus
	last   string
}

func (v *printerView) take(e wire.PrinterEvent) error {
	for _, l := range e.Log {
		v.above("%s  %s", unixMoment(e.Time), clean(l))
	}
	switch e.Type {
	case wire.PrinterEventEvent:
		v.above("%s  %s", unixMoment(e.Time), clean(e.Name))
	case wire.PrinterEventLost:
		why := ""
		if e.Error != nil {
			why = ": " + e.Error.Error()
		}
		v.above("%s  the server can't be heard%s", unixMoment(e.Time), clean(why))
	case wire.PrinterEventBack:
		v.above("%s  the server is back", unixMoment(e.Time))
	}
	if e.Status == nil {
		return v.a.outErr
	}
	v.status = e.Status
	if text := statusLine(*e.Status); !v.a.style.outTTY && text != v.last {
		v.last = text
		v.a.tell("%s  %s", unixMoment(e.Time), clean(text))
	}
	return v.a.outErr
}

// above prints a line that stays; what is drawn in place comes after it.
func (v *printerView) above(format string, args ...any) {
	v.live.gone()
	v.a.tell(format, args...)
}

func (v *printerView) draw() {
	if v.status != nil && v.a.style.outTTY {
		v.live.draw(v.a.statusTable(*v.status))
	}
}

// statusLine is a printer's state on one line.
func statusLine(s wire.PrinterStatus) string {
	text := s.State
	if s.Error != "" {
		text += " (" + s.Error + ")"
	}
	for _, name := range heaters(s.Temperatures) {
		text += "  " + name + " " + heat(s.Temperatures[name])
	}
	if j := s.Job; j != nil && j.File != "" {
		text += "  " + first(j.Display, j.File) + " " + progressText(*j)
	}
	return text
}

func (a *app) printJoin() *cobra.Command {
	var request wire.PrinterJoin
	cmd := &cobra.Command{
		Use:   "join [MACHINE] [PRINTER]",
		Short: "Ask the printer's server for a key",
		Long: `join asks the server of a printer for a key, which somebody has to grant on the server's
own page. The machine keeps it; it is never shown here.`,
		Example: "  farhand print join pi prusa",
		Args:    between(0, 2, "[MACHINE] [PRINTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.printer(cmd, split("printer", args, 0, nil), false, func(ctx context.Context, at spot) error {
				return a.runJoin(ctx, at, request)
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
	cmd.Flags().StringVar(&request.User, "user", "", "the `USER` of the server who is to decide (default: any)")
	return cmd
}

func (a *app) runJoin(ctx context.Context, at spot, request wire.PrinterJoin) error {
	st, opened, err := at.session.PrinterJoin(ctx, at.device, request)
	if err != nil {
		return err
	}
	if opened.Dialog != "" {
		a.note("Decide on %s", clean(opened.Dialog))
	}
	a.note("%s", clean(first(opened.Hint, "Allow it on the page of the printer's server.")))
	var last wire.PrinterJoinEvent
	err = a.follow(ctx, st, watching{opened: opened, task: true, record: func(raw json.RawMessage) error {
		if err := json.Unmarshal(raw, &last); err != nil {
			return wire.Errorf(wire.InternalError, "a record of the stream can't be read: %v", err)
		}
		if last.Decision == wire.JoinWaiting {
			return nil
		}
		return errEnough
	}})
	switch {
	case err != nil:
		return err
	case last.Error != nil:
		return last.Error
	case last.Decision != wire.JoinGranted:
		a.note("It was not granted: somebody refused it, or nobody decided in time.")
		return exitStatus(exitFailed)
	case !a.json:
		a.tell("The machine may use the printer now.")
	}
	return nil
}
