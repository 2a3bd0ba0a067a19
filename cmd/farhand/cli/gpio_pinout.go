package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/internal/pinout"
	"farhand/wire"
)

func (a *app) gpioPinout() *cobra.Command {
	var (
		board             string
		functions, levels bool
	)
	cmd := &cobra.Command{
		Use:   "pinout [MACHINE] [DEVICE]",
		Short: "Draw the header of a board, with who uses what",
		Long: `pinout draws the 40-pin header of a Raspberry Pi: pin, BCM number, usual function, and
of a MACHINE what each line is just now and who has it. --levels reads the lines that
are free. --board draws a board that need not be there.`,
		Example: `  farhand gpio pinout pi --levels
  farhand gpio pinout --board 'Raspberry Pi 5' --functions`,
		Args: between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if board != "" {
				if len(args) > 0 {
					return usage("either a MACHINE or --board")
				}
				return a.drawBoard(board, functions)
			}
			return a.onDevice(cmd, "gpio", split("gpio", args, 0, nil), false, func(ctx context.Context, at spot) error {
				return a.runPinout(ctx, at, functions, levels)
			})
		},
		ValidArgsFunction: a.completeDevice("gpio"),
	}
	flags := cmd.Flags()
	flags.StringVar(&board, "board", "", "draw this `MODEL`, such as 'Raspberry Pi 4'")
	flags.BoolVar(&functions, "functions", false, "list what each pin can be switched to")
	flags.BoolVar(&levels, "levels", false, "with the levels of the lines that are free")
	cmd.RegisterFlagCompletionFunc("board", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var all []string
		for _, b := range pinout.Boards() {
			all = append(all, b.Name)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// pinNow is a pin with what is known about its line.
type pinNow struct {
	Pin       int               `json:"pin"`
	Kind      pinout.Kind       `json:"kind"`
	Name      string            `json:"name"`
	BCM       *int              `json:"bcm,omitempty"`
	Usual     string            `json:"usual,omitempty"`
	Functions map[string]string `json:"functions,omitempty"`
	Line      *linePin          `json:"line,omitempty"`
}

// linePin is the line behind a pin.
type linePin struct {
	wire.GPIOLineInfo
	Value *int `json:"value,omitempty"` // with --levels
}

// board is a header as it is drawn.
type board struct {
	Board string     `json:"board"`
	SoC   pinout.SoC `json:"soc,omitempty"`
	Chip  string     `json:"chip,omitempty"`
	Label string     `json:"label,omitempty"`
	Pins  []pinNow   `json:"pins"`
}

func headerOf(name string, soc pinout.SoC, functions bool) board {
	b := board{Board: name, SoC: soc}
	for _, p := range pinout.Header() {
		n := pinNow{Pin: p.Number, Kind: p.Kind, Name: p.Name, Usual: p.Usual}
		if p.Kind == pinout.GPIO {
			n.BCM = &p.BCM
			for _, f := range pinout.Functions(soc, p.BCM) {
				if !functions {
					break
				}
				if n.Functions == nil {
					n.Functions = make(map[string]string)
				}
				n.Functions[f.Alt] = f.Name
			}
		}
		b.Pins = append(b.Pins, n)
	}
	return b
}

func (a *app) drawBoard(name string, functions bool) error {
	model, ok := pinout.Model(name)
	if !ok {
		var all []string
		for _, b := range pinout.Boards() {
			all = append(all, b.Name)
		}
		return usage("there is no board %q with this header; there are %s", name, strings.Join(all, ", "))
	}
	return a.printBoard(headerOf(model.Name, model.SoC, functions))
}

func (a *app) runPinout(ctx context.Context, at spot, functions, levels bool) error {
	chip, err := at.session.GPIOInfo(ctx, at.device, wire.GPIOInfo{}, at.hold)
	if err != nil {
		return err
	}
	if !chip.Header {
		if a.json {
			return a.printJSON(chip)
		}
		a.note("No Raspberry Pi header hangs on this chip; these are its lines.")
		return a.printChip(chip)
	}
	soc, _ := pinout.ByLabel(chip.Label)
	b := headerOf(first(chip.Board, "Raspberry Pi"), soc, functions)
	b.Chip, b.Label = chip.Chip, chip.Label
	byLine := make(map[int]*linePin, len(b.Pins))
	for _, l := range chip.Lines {
		byLine[l.Line] = &linePin{GPIOLineInfo: l}
	}
	for i, p := range b.Pins {
		if p.BCM != nil {
			b.Pins[i].Line = byLine[*p.BCM]
		}
	}
	if levels {
		if err := readPins(ctx, at.session, at.device, b.Pins); err != nil {
			return err
		}
	}
	return a.printBoard(b)
}

// readPins reads the lines of a header that are free. One that somebody took
// meanwhile is left out.
func readPins(ctx context.Context, s *client.Session, device string, pins []pinNow) error {
	for _, p := range pins {
		if p.Line == nil || !p.Line.Available || p.Line.PWM != "" {
			continue
		}
		got, err := s.GPIOGet(ctx, device, wire.GPIOGet{GPIOSelect: wire.GPIOSelect{Line: wire.GPIOLine(strconv.Itoa(p.Line.Line))}}, false)
		switch {
		case err == nil:
			p.Line.Value = got.Value
		case errors.Is(err, wire.HardwareBusy), errors.Is(err, wire.HardwareNotGranted):
		default:
			return err
		}
	}
	return nil
}

func (a *app) printBoard(b board) error {
	if a.json {
		return a.printJSON(b)
	}
	a.printf("%s\n\n", a.style.out.bold(clean(b.Board)))
	lines := a.headerLines(b, sideNote)
	wide := func(line string) bool { return a.style.width() > 0 && shown(line) > a.style.width() }
	if !slices.ContainsFunc(lines, wide) {
		a.printf("%s\n", strings.Join(lines, "\n"))
	} else { // what stands beside a pin stands below the header
		a.printf("%s\n\n", strings.Join(a.headerLines(b, func(pinNow) string { return "" }), "\n"))
		var t table
		for _, p := range b.Pins {
			if note := sideNote(p); note != "" {
				t.add(cell{fmt.Sprintf("(%2d)  %s", p.Pin, p.Name), func(s string) string { return a.paintPin(p, s) }}, cell{note, a.style.out.dim})
			}
		}
		if err := t.write(a.env.Stdout, a.style.out, a.style.width()); err != nil {
			return err
		}
	}
	if a.outErr != nil {
		return a.outErr
	}
	return a.printFunctions(b)
}

// headerLines draws a header, two pins a line, with a note beside each.
func (a *app) headerLines(b board, note func(pinNow) string) []string {
	var left, inner int
	for i := 0; i < len(b.Pins); i += 2 {
		left = max(left, utf8.RuneCountInString(note(b.Pins[i])))
		inner = max(inner, utf8.RuneCountInString(b.Pins[i].Name))
	}
	var lines []string
	for i := 0; i+1 < len(b.Pins); i += 2 {
		odd, even := b.Pins[i], b.Pins[i+1]
		line := fmt.Sprintf("  %s  %s %s ", a.style.out.dim(fmt.Sprintf("%*s", left, note(odd))),
			a.paintPin(odd, fmt.Sprintf("%*s  (%2d)", inner, odd.Name, odd.Pin)), a.style.out.dim("|"))
		if beside := note(even); beside != "" {
			line += a.paintPin(even, fmt.Sprintf("(%2d)  %-6s", even.Pin, even.Name)) + "  " + a.style.out.dim(beside)
		} else {
			line += a.paintPin(even, fmt.Sprintf("(%2d)  %s", even.Pin, even.Name))
		}
		lines = append(lines, line)
	}
	return lines
}

// sideNote is what stands beside a pin: what it is used for, its level, who has it.
func sideNote(p pinNow) string {
	var list []string
	if p.Usual != "" {
		list = append(list, p.Usual)
	}
	if l := p.Line; l != nil {
		if l.Direction == "out" {
			list = append(list, "out")
		}
		if set := lineSettings(l.GPIOLineInfo); set != "" {
			list = append(list, set)
		}
		switch user := lineUser(l.GPIOLineInfo); {
		case l.Held && l.Holder == "":
			list = append(list, "kept")
		case user != "":
			list = append(list, "used by "+user)
		}
		if l.Value != nil {
			list = append(list, "= "+strconv.Itoa(*l.Value))
		}
	}
	return clean(strings.Join(list, ", "))
}

func (a *app) paintPin(p pinNow, text string) string {
	switch p.Kind {
	case pinout.Power3:
		return a.style.out.paint("33", text) // yellow
	case pinout.Power5:
		return a.style.out.red(text)
	case pinout.Ground:
		return a.style.out.dim(text)
	}
	if p.Line != nil && !p.Line.Available {
		return a.style.out.blue(text)
	}
	return a.style.out.green(text)
}

// printFunctions lists what pins can be switched to, if that was asked for.
func (a *app) printFunctions(b board) error {
	t := table{head: []string{"PIN", "NAME"}}
	columns := 0
	for _, p := range b.Pins {
		for alt := range p.Functions {
			if n, err := strconv.Atoi(strings.TrimPrefix(alt, "alt")); err == nil {
				columns = max(columns, n+1)
			}
		}
	}
	if columns == 0 {
		return nil
	}
	for n := range columns {
		t.head = append(t.head, "ALT"+strconv.Itoa(n))
	}
	for _, p := range b.Pins {
		if p.BCM == nil {
			continue
		}
		row := []cell{plain(strconv.Itoa(p.Pin)), plain(p.Name)}
		for n := range columns {
			row = append(row, plain(dash(p.Functions["alt"+strconv.Itoa(n)])))
		}
		t.add(row...)
	}
	a.printf("\n")
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

// completeLine completes a machine, a chip and then lines of the header, with
// what a verb puts after each.
func (a *app) completeLine(suffix string) cobra.CompletionFunc {
	devices := a.completeDevice("gpio")
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if suffix != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		var found []string
		if len(args) == 0 || len(args) == 1 && !isAssignment(args[0]) {
			found, _ = devices(cmd, args, typed)
			if len(args) == 0 || len(found) > 0 && typed != "" {
				return found, cobra.ShellCompDirectiveNoFileComp
			}
		}
		for _, p := range pinout.Header() {
			if p.Kind == pinout.GPIO && strings.HasPrefix(p.Name, strings.ToUpper(typed)) {
				found = append(found, p.Name+suffix)
			}
		}
		return found, directive
	}
}
