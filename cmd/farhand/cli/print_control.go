package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) printTemp() *cobra.Command {
	var request wire.PrinterTemperature
	var deadman string
	cmd := &cobra.Command{
		Use:   "temp [MACHINE] [PRINTER] HEATER=CELSIUS...",
		Short: "Set what heaters are to reach",
		Long: `temp sets targets: tool0, tool1 and so on, bed, chamber; 0 or off is off. When this
login gives the printer back (farhand release, or some idle minutes) its heaters are
switched off, unless a job runs or --on-release hold was said.`,
		Example: "  farhand print temp pi prusa tool0=210 bed=60\n  farhand print temp pi tool0=off bed=off",
		Args:    between(1, 16, "[MACHINE] [PRINTER] HEATER=CELSIUS..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := split("printer", args, 0, isHeater).exact("printer", isHeater)
			if len(w.rest) == 0 {
				return usage("name at least one HEATER=CELSIUS, such as bed=60")
			}
			request.Targets = make(map[string]float64)
			for _, arg := range w.rest {
				name, text, ok := strings.Cut(arg, "=")
				if text == "off" {
					text = "0"
				}
				v, err := strconv.ParseFloat(strings.TrimSuffix(text, "C"), 64)
				if !ok || err != nil || !finite(v) || name == "" {
					return usage("%q is not HEATER=CELSIUS, such as tool0=210", arg)
				}
				request.Targets[name] = v
			}
			silent, err := seconds("deadman", deadman)
			if err != nil {
				return err
			}
			if silent != nil {
				request.DeadmanSeconds = *silent
			}
			return a.printer(cmd, w, false, func(ctx context.Context, at spot) error {
				set, err := at.session.PrinterTemperature(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(set)
				}
				var t table
				for _, name := range heaterNames(set.Targets) {
					target := "off"
					if v := set.Targets[name]; v > 0 {
						target = fmt.Sprintf("%g °C", v)
					}
					t.add(plain(name), plain(target))
				}
				return t.write(a.env.Stdout, a.style.out, a.style.width())
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
	cmd.Flags().StringVar(&request.OnRelease, "on-release", "", "what becomes of these heaters when the printer is given back: off or hold (default off)")
	choices(cmd, "on-release", "off", "hold")
	cmd.Flags().StringVar(&deadman, "deadman", "", "give it back if nothing is heard from this login for this `DURATION`")
	return cmd
}

func isHeater(s string) bool { return strings.Contains(s, "=") }

func heaterNames(targets map[string]float64) []string {
	all := make(map[string]wire.PrinterHeat, len(targets))
	for name := range targets {
		all[name] = wire.PrinterHeat{}
	}
	return heaters(all)
}

func (a *app) printMove() *cobra.Command {
	var (
		home     string
		absolute bool
		by       [3]float64
		speed    float64
	)
	cmd := &cobra.Command{
		Use:   "move [MACHINE] [PRINTER]",
		Short: "Home or move the head",
		Long: `move homes axes, or moves the head by so many mm; with --to the numbers are coordinates.
It answers when the printer has taken the command: the head may still be on its way.`,
		Example: "  farhand print move pi prusa --home all\n  farhand print move pi prusa --z 10\n  farhand print move pi prusa --to --x 100 --y 100 --speed 3000",
		Args:    between(0, 2, "[MACHINE] [PRINTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := wire.PrinterMove{Absolute: absolute}
			if home != "" {
				request.Home = strings.FieldsFunc(strings.ToLower(home), func(r rune) bool { return r == ',' || r == ' ' })
				if len(request.Home) == 1 && len(home) <= 3 && home != "all" {
					request.Home = strings.Split(strings.ToLower(home), "")
				}
			}
			given := cmd.Flags().Changed
			for i, to := range []**float64{&request.X, &request.Y, &request.Z} {
				if given([]string{"x", "y", "z"}[i]) {
					*to = &by[i]
				}
			}
			if given("speed") {
				request.Speed = &speed
			}
			moves := request.X != nil || request.Y != nil || request.Z != nil
			if moves == (len(request.Home) > 0) {
				return usage("either --home or some of --x, --y and --z")
			}
			return a.printer(cmd, split("printer", args, 0, nil), false, func(ctx context.Context, at spot) error {
				done, err := at.session.PrinterMove(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				return a.done(done)
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
	flags := cmd.Flags()
	flags.StringVar(&home, "home", "", "home these `AXES`: all, xy, z")
	flags.Var((*decimal)(&by[0]), "x", "mm")
	flags.Var((*decimal)(&by[1]), "y", "mm")
	flags.Var((*decimal)(&by[2]), "z", "mm")
	flags.BoolVar(&absolute, "to", false, "the numbers are coordinates, not distances")
	flags.Var((*decimal)(&speed), "speed", "mm a minute (default: the slowest axis' own)")
	return cmd
}

func (a *app) printGCode() *cobra.Command {
	var (
		form    byteForm
		raw     bool
		timeout string
	)
	cmd := &cobra.Command{
		Use:   "gcode [MACHINE] [PRINTER] LINE...",
		Short: "Send G-code, or bytes to a USB printer port",
		Long: `gcode sends lines of G-code; - reads them from standard input. What the printer says to
them shows in farhand print watch --log. --bytes sends DATA to a USB printer port.`,
		Example: "  farhand print gcode pi prusa G28 'G1 X10 F3000'\n  farhand print gcode pi printer:usb-04b8:0202 --bytes @label.bin",
		Args:    between(1, 510, "[MACHINE] [PRINTER] LINE..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := split("printer", args, 1, isGCode).exact("printer", isGCode)
			var request wire.PrinterCommand
			var err error
			if request.TimeoutSeconds, err = seconds("timeout", timeout); err != nil {
				return err
			}
			if raw {
				request.Data, err = form.bytes(a, w.rest)
			} else {
				request.GCode, err = a.gcode(w.rest)
			}
			if err != nil {
				return err
			}
			return a.printer(cmd, w, false, func(ctx context.Context, at spot) error {
				done, err := at.session.PrinterCommand(ctx, at.device, request, at.hold)
				if err != nil {
					return err
				}
				return a.done(done)
			})
		},
		ValidArgsFunction: a.completeDevice("printer"),
	}
	form.addIn(cmd)
	cmd.Flags().BoolVar(&raw, "bytes", false, "LINE is DATA: hexadecimal, @FILE, - or, with --text, text")
	cmd.Flags().StringVar(&timeout, "timeout", "", "`DURATION` that a USB port may take (default 10s)")
	return cmd
}

// isGCode says whether an argument can be a line of G-code, so that the machine
// before it may be left out.
func isGCode(s string) bool {
	if s == "-" || strings.ContainsAny(s, " ") {
		return true
	}
	return len(s) > 1 && strings.Contains("GMTgmt", s[:1]) && s[1] >= '0' && s[1] <= '9'
}

// gcode reads lines, from standard input for -.
func (a *app) gcode(args []string) (wire.GCode, error) {
	if len(args) != 1 || args[0] != "-" {
		return args, nil
	}
	b, err := readData(a.env.Stdin, "standard input")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n")
	lines = slices.DeleteFunc(lines, func(s string) bool { return strings.TrimSpace(s) == "" })
	if len(lines) == 0 {
		return nil, usage("standard input has no lines")
	}
	return lines, nil
}
