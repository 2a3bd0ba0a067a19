package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) gpioInfo() *cobra.Command {
	var probe bool
	cmd := &cobra.Command{
		Use:   "info [MACHINE] [DEVICE] [LINE...]",
		Short: "List lines: how each is set, and who has it",
		Long: `info describes the lines of a chip, or those named. It takes none of them. --probe
also finds out which lines can tell edges, by taking each free input for a moment.`,
		Example: "  farhand gpio info pi\n  farhand gpio info pi gpio:pinctrl-rp1 GPIO17 --json",
		Args:    between(0, 3+wire.MaxGPIOLines, "[MACHINE] [DEVICE] [LINE...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := lineWords(args, isLine)
			if err != nil {
				return err
			}
			request := wire.GPIOInfo{Probe: probe}
			if len(w.rest) > 0 {
				request.GPIOSelect = names(w.rest)
			}
			return a.onDevice(cmd, "gpio", w, false, func(ctx context.Context, at spot) error {
				chip, err := at.session.GPIOInfo(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(chip)
				}
				return a.printChip(chip)
			})
		},
		ValidArgsFunction: a.completeLine(""),
	}
	cmd.Flags().BoolVar(&probe, "probe", false, "find out which lines can tell edges")
	return cmd
}

func (a *app) printChip(chip wire.GPIOChip) error {
	a.note("%s", clean(strings.Join(nonEmpty([]string{chip.Board, chip.Label, chip.Chip, strconv.Itoa(chip.Count) + " lines"}), ", ")))
	t := table{head: []string{"LINE", "NAME", "PIN", "DIRECTION", "SET", "USED BY"}}
	for _, l := range chip.Lines {
		pin := ""
		if l.Pin > 0 {
			pin = strconv.Itoa(l.Pin)
		}
		by := cell{"free", a.style.out.green}
		if user := lineUser(l); user != "" {
			by = cell{user, a.style.out.dim}
		}
		t.add(plain(strconv.Itoa(l.Line)), plain(dash(l.Name)), plain(dash(pin)), plain(l.Direction), plain(dash(lineSettings(l))), by)
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

// lineUser is who has a line; empty if nobody. The daemon itself is nobody.
func lineUser(l wire.GPIOLineInfo) string {
	switch {
	case l.Holder != "":
		return shortIDs([]string{l.Holder})[0]
	case l.Held:
		return "nobody, kept as it is"
	case !l.Available:
		return first(l.Consumer, "the kernel")
	}
	return ""
}

// lineSettings says what is not as it usually is.
func lineSettings(l wire.GPIOLineInfo) string {
	var list []string
	add := func(s string) {
		if s != "" {
			list = append(list, s)
		}
	}
	if l.Function != "gpio" {
		add(l.Function)
	}
	if l.Pull != "" && l.Pull != "as_is" {
		add("pull " + l.Pull)
	}
	if l.Drive != "" && l.Drive != "push_pull" {
		add(l.Drive)
	}
	if l.ActiveLow {
		add("active low")
	}
	if l.DebounceUS > 0 {
		add("debounce " + inTime(float64(l.DebounceUS)*1e3))
	}
	if l.Edge != "" && l.Edge != "none" {
		add("edges: " + l.Edge)
	}
	if l.PWM != "" {
		add("PWM by " + l.PWM)
	}
	if l.OnRelease != "" && l.OnRelease != wire.GPIOHold {
		add("then " + string(l.OnRelease))
	}
	if l.Edges != nil && !*l.Edges {
		add("tells no edges")
	}
	return strings.Join(list, ", ")
}
