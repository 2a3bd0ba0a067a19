package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) print() *cobra.Command {
	g := group("print", "Use the 3D printers of a machine",
		a.printStatus(), a.printFiles(), a.printUpload(), a.printStart(),
		a.printJob("pause", "Pause the job"), a.printJob("resume", "Go on with a paused job"), a.printJob("cancel", "End the job"),
		a.printTemp(), a.printMove(), a.printGCode(), a.printWatch(), a.printJoin())
	g.Long = `print works with printers behind OctoPrint or Moonraker, and with USB printer ports.
PRINTER is printer:NAME or NAME as farhand devices shows it, and may be left out where
the machine has one.`
	g.Example = `  farhand print status pi
  farhand print upload pi prusa bracket.gcode --print
  farhand print watch pi prusa
  farhand print temp pi prusa tool0=210 bed=60
  farhand print cancel pi prusa`
	return g
}

// printer runs do on the printer that args name.
func (a *app) printer(cmd *cobra.Command, w words, hold bool, do func(context.Context, spot) error) error {
	return a.onDevice(cmd, "printer", w, hold, do)
}

func (a *app) printStatus() *cobra.Command {
	return &cobra.Command{
		Use:     "status [MACHINE] [PRINTER]",
		Short:   "Show how a printer is: state, temperatures, job",
		Example: "  farhand print status pi prusa",
		Args:    between(0, 2, "[MACHINE] [PRINTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.printer(cmd, split("printer", args, 0, nil), false, func(ctx context.Context, at spot) error {
				s, err := at.session.PrinterStatus(ctx, at.device, at.hold)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(s)
				}
				t := a.statusTable(s)
				return t.write(a.env.Stdout, a.style.out, a.style.width())
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
}

// statusTable is a printer's state for people.
func (a *app) statusTable(s wire.PrinterStatus) table {
	var t table
	row := func(what, value string) {
		if value != "" {
			t.add(plain(what), plain(value))
		}
	}
	state := cell{first(strings.ReplaceAll(s.State, "_", " "), "unknown"), a.style.out.green}
	switch s.State {
	case wire.PrinterError, wire.PrinterNeedsFirmwareRestart:
		state.paint = a.style.out.red
	case wire.PrinterOffline, wire.PrinterUnknown, wire.PrinterConnecting:
		state.paint = a.style.out.dim
	}
	t.add(plain("state"), state)
	if !strings.EqualFold(s.Text, s.State) {
		row("it says", s.Text)
	}
	row("error", s.Error)
	row("hint", s.Hint)
	for _, name := range heaters(s.Temperatures) {
		row(name, heat(s.Temperatures[name]))
	}
	if j := s.Job; j != nil && j.File != "" {
		row("job", first(j.Display, j.File))
		row("progress", progressText(*j))
		row("job error", j.Error)
	}
	if p := s.Port; p != nil {
		row("model", strings.TrimSpace(p.DeviceID["MFG"]+" "+p.DeviceID["MDL"]))
		row("commands", p.DeviceID["CMD"])
		row("online", yesNo(p.Online))
		row("paper out", yesNo(p.PaperOut))
		row("fault", yesNo(p.Fault))
	}
	if v := s.Server; v != nil {
		row("server", strings.TrimSpace(first(v.Text, v.Kind+" "+v.Version)))
	}
	return t
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// heaters are the names in the order in which people think of them.
func heaters(temperatures map[string]wire.PrinterHeat) []string {
	var list []string
	for name := range temperatures {
		list = append(list, name)
	}
	rank := func(name string) string {
		return map[bool]string{true: "0", false: "1"}[strings.HasPrefix(name, "tool")] + name
	}
	slices.SortFunc(list, func(x, y string) int { return strings.Compare(rank(x), rank(y)) })
	return list
}

func heat(h wire.PrinterHeat) string {
	text := "?"
	if h.Actual != nil {
		text = fmt.Sprintf("%.1f °C", *h.Actual)
	}
	switch {
	case h.Target == nil:
	case *h.Target == 0:
		text += ", off"
	default:
		text += fmt.Sprintf(" -> %.0f °C", *h.Target)
	}
	return text
}

func progressText(j wire.PrinterJobState) string {
	var list []string
	if j.Completion != nil {
		list = append(list, fmt.Sprintf("%.1f %%", *j.Completion))
	}
	clock := func(format string, seconds *float64) {
		if seconds != nil && *seconds >= 0 {
			list = append(list, fmt.Sprintf(format, span(time.Duration(*seconds*float64(time.Second)))))
		}
	}
	clock("for %s", j.Seconds)
	clock("%s left", j.SecondsLeft)
	return strings.Join(list, ", ")
}

// printJobState shows a job after something was done with it.
func (a *app) printJobState(j wire.PrinterJobState, confirmed bool) {
	what := strings.ReplaceAll(j.State, "_", " ")
	if j.File != "" {
		what += ": " + first(j.Display, j.File)
	}
	a.tell("%s", clean(what))
	if confirmed {
		a.note("It was so already.")
	}
}

// printJob makes pause, resume and cancel.
func (a *app) printJob(action, short string) *cobra.Command {
	return &cobra.Command{
		Use:     action + " [MACHINE] [PRINTER]",
		Short:   short,
		Example: "  farhand print " + action + " pi prusa",
		Args:    between(0, 2, "[MACHINE] [PRINTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.printer(cmd, split("printer", args, 0, nil), false, func(ctx context.Context, at spot) error {
				return a.runJob(ctx, at, action)
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
}

func (a *app) runJob(ctx context.Context, at spot, action string) error {
	done, err := at.session.PrinterJob(ctx, at.device, wire.PrinterJob{Action: action}, at.hold)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(done)
	}
	a.printJobState(done.Job, done.Confirmed)
	return nil
}

func (a *app) printStart() *cobra.Command {
	var location, file string
	cmd := &cobra.Command{
		Use:   "start [MACHINE] [PRINTER]",
		Short: "Start the selected job, or print a file that the printer has",
		Example: `  farhand print start pi prusa
  farhand print start pi prusa --file bracket.gcode`,
		Args: between(0, 2, "[MACHINE] [PRINTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.printer(cmd, split("printer", args, 0, nil), false, func(ctx context.Context, at spot) error {
				if file == "" {
					return a.runJob(ctx, at, "start")
				}
				return a.runFile(ctx, at, wire.PrinterFiles{Action: "select", Path: file, Location: location, Print: true})
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
	cmd.Flags().StringVar(&file, "file", "", "select this `FILE` of the printer before (farhand print files)")
	addLocation(cmd, &location)
	return cmd
}

func addLocation(cmd *cobra.Command, location *string) {
	cmd.Flags().StringVar(location, "location", "", "local, or printer for its own card (default local)")
	choices(cmd, "location", "local", "printer")
}
