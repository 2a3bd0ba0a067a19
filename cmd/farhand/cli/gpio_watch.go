package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) gpioWatch() *cobra.Command {
	var (
		lines lineFlags
		until untilFlags
		edge  string
		poll  string
		log   bool
	)
	cmd := &cobra.Command{
		Use:   "watch [MACHINE] [DEVICE] LINE...",
		Short: "Show the edges of lines as they come",
		Long: `watch makes inputs of lines and shows their edges, with the kernel's time of each. On
a terminal it shows the levels in place; --log, and every other output, has a line an
edge. Edges that were lost are counted. It ends with Ctrl-C.`,
		Example: `  farhand gpio watch pi GPIO27 --pull up --debounce 5ms
  farhand gpio watch pi GPIO27 --edge rising --count 1
  farhand gpio watch pi GPIO27 GPIO22 --json --for 1m`,
		Args: between(1, 3+wire.MaxGPIOLines, "[MACHINE] [DEVICE] LINE..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := lineWords(args, isLine)
			if err != nil {
				return err
			}
			if len(w.rest) == 0 {
				return usage("name at least one LINE, such as GPIO17")
			}
			request := wire.GPIOWatch{GPIOSelect: names(w.rest), Edge: edge, Pull: lines.pull, ActiveLow: lines.activeLow()}
			if request.DebounceSeconds, err = seconds("debounce", lines.debounce); err != nil {
				return err
			}
			period, err := seconds("poll", poll)
			if err != nil {
				return err
			}
			if period != nil {
				request.PollSeconds = *period
			}
			return a.onDevice(cmd, "gpio", w, false, func(ctx context.Context, at spot) error {
				return a.runWatch(ctx, at, request, until, log)
			})
		},
		ValidArgsFunction: a.completeLine(""),
	}
	lines.add(cmd)
	lines.addDebounce(cmd)
	until.add(cmd, "records")
	flags := cmd.Flags()
	flags.StringVar(&edge, "edge", "both", "rising, falling or both")
	choices(cmd, "edge", "rising", "falling", "both")
	flags.StringVar(&poll, "poll", "", "look at the levels every `DURATION` too, and tell what no edge has told")
	flags.BoolVar(&log, "log", false, "a line an edge, on a terminal too")
	return cmd
}

func (a *app) runWatch(ctx context.Context, at spot, request wire.GPIOWatch, until untilFlags, log bool) error {
	bounded, cancel, err := until.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	st, opened, err := at.session.GPIOWatch(ctx, at.device, request)
	if err != nil {
		return err
	}
	for _, n := range opened.Polled { // before anything is drawn in place
		a.note("line %d has no interrupt: its edges are found by looking at it.", n)
	}
	w := watching{opened: opened}
	if log || !a.style.outTTY {
		if !a.json {
			for _, l := range opened.Lines {
				a.tell("%s is %d", clean(lineLabel(l.Line, l.Name)), l.Value)
			}
		}
		w.record = records(a, until.count, a.printEdge)
	} else {
		view := &edgeView{a: a, live: live{a: a}}
		for _, l := range opened.Lines {
			view.lines = append(view.lines, edgeLine{GPIOValue: l})
		}
		view.draw()
		w.record, w.redraw, w.view = records(a, until.count, view.take), view.draw, &view.live
	}
	return a.follow(bounded, st, w)
}

// printEdge writes a record on a line.
func (a *app) printEdge(r wire.GPIORecord) error {
	a.tell("%-*s  %-8s  %s", len(momentForm), moment(r.Time), clean(lineLabel(r.Line, r.Name)), clean(edgeText(r)))
	return a.outErr
}

func edgeText(r wire.GPIORecord) string {
	value := "?"
	if r.Level != nil {
		value = strconv.Itoa(int(*r.Level))
	}
	switch r.Kind {
	case wire.GPIOEdge:
		return fmt.Sprintf("%-7s  %s", r.Edge, value)
	case wire.GPIOLost:
		return fmt.Sprintf("%d edges were lost", r.Lost)
	case wire.GPIOState:
		if r.Repaired {
			return "is " + value + " (no edge had told it)"
		}
		return "is " + value
	case wire.GPIOError:
		if r.Error != nil {
			return "failed: " + r.Error.Error()
		}
	}
	return r.Kind
}

// moment is a time to the microsecond, as the kernel's own are good for.
func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(momentForm)
}

const momentForm = "2006-01-02 15:04:05.000000Z"

// edgeView shows lines in place.
type edgeView struct {
	a     *app
	live  live
	lines []edgeLine
}

type edgeLine struct {
	wire.GPIOValue
	edges, lost int64
	last        string
	at          *time.Time
}

func (v *edgeView) take(r wire.GPIORecord) error {
	i := slices.IndexFunc(v.lines, func(l edgeLine) bool { return l.Line == r.Line })
	if i < 0 {
		return v.a.printEdge(r)
	}
	l := &v.lines[i]
	if r.Level != nil {
		l.Value = int(*r.Level)
	}
	switch r.Kind {
	case wire.GPIOEdge:
		l.edges++
		l.last, l.at = r.Edge, r.Time
	case wire.GPIOLost:
		l.lost += r.Lost
	case wire.GPIOError:
		l.last, l.at = edgeText(r), r.Time
	}
	return nil
}

func (v *edgeView) draw() {
	t := table{head: []string{"LINE", "NAME", "LEVEL", "EDGES", "LOST", "LAST", "AT"}}
	for _, l := range v.lines {
		lost := cell{"0", v.a.style.out.dim}
		if l.lost > 0 {
			lost = cell{strconv.FormatInt(l.lost, 10), v.a.style.out.red}
		}
		t.add(plain(strconv.Itoa(l.Line)), plain(dash(l.Name)), v.a.levelCell(l.Value), plain(strconv.FormatInt(l.edges, 10)), lost,
			plain(dash(l.last)), plain(moment(l.at)))
	}
	v.live.draw(t)
}
