package cli

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) gpio() *cobra.Command {
	g := group("gpio", "Read, drive and watch the GPIO lines of a machine",
		a.gpioGet(), a.gpioSet(), a.gpioWatch(), a.gpioPWM(), a.gpioInfo(), a.gpioPinout())
	g.Long = `gpio works on single lines, whoever has the others. A LINE is named by its BCM number
(GPIO17), its pin on the header ("pin 11" or pin11), its number on the chip (17) or
the name that the kernel has for it; with a chip in front (gpiochip1:4) it is a line
of that chip.

DEVICE is the chip: left out, it is the one with the Raspberry Pi's header, or the
only one. MACHINE may be left out too, with a single machine and lines that are no
plain names.`
	g.Example = `  farhand gpio pinout pi
  farhand gpio get pi GPIO17 pin 13
  farhand gpio set pi GPIO17=on pin22=off
  farhand gpio watch pi GPIO27 --pull up --edge falling
  farhand gpio pwm pi GPIO18 --frequency 1kHz --duty 25%`
	return g
}

// lineName is what can only be a line, so that a machine before it may be left
// out.
var lineName = regexp.MustCompile(`^(?i:(gpio|bcm|pin ?|j8:)?\d+|pin|(gpiochip\d+|pinctrl-[^:]+):.+)$`)

func isLine(s string) bool {
	name, _, _ := strings.Cut(s, "=")
	return lineName.MatchString(strings.TrimSpace(name))
}

// isAssignment says whether an argument is LINE=LEVEL.
func isAssignment(s string) bool { return strings.Contains(s, "=") || isLine(s) }

// chipLine is a line with the chip that it is on: gpiochip0:17, or a label such
// as pinctrl-bcm2711:GPIO17.
var chipLine = regexp.MustCompile(`^(gpiochip\d+|pinctrl-[^:]+):(.+)$`)

// lineWords splits the arguments of a gpio verb. The chip of chip:line is the
// device, unless one is named: then the machine knows whether they are the same.
func lineWords(args []string, isOwn func(string) bool) (words, error) {
	w := split("gpio", args, 0, isOwn)
	w.rest = joinPins(w.rest)
	if w.device != "" {
		return w, nil
	}
	for i, arg := range w.rest {
		m := chipLine.FindStringSubmatch(arg)
		if m == nil {
			continue
		}
		device := "gpio:" + m[1]
		if w.device != "" && w.device != device {
			return w, usage("%s is a line of another chip than %s: one command is for one chip", arg, w.device)
		}
		w.device, w.rest[i] = device, m[2]
	}
	return w, nil
}

// joinPins makes one line of "pin" and the number after it.
func joinPins(args []string) []string {
	var lines []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if strings.EqualFold(arg, "pin") && i+1 < len(args) {
			i++
			arg += " " + args[i]
		}
		lines = append(lines, arg)
	}
	return lines
}

// names are lines as the wire has them.
func names(lines []string) wire.GPIOSelect {
	var s wire.GPIOSelect
	for _, l := range lines {
		s.Lines.Names = append(s.Lines.Names, wire.GPIOLine(strings.TrimSpace(l)))
	}
	return s
}

// level reads on, off, 1, 0, high, low.
func level(s string) (wire.GPIOLevel, error) {
	var v wire.GPIOLevel
	if err := v.UnmarshalJSON([]byte(s)); err != nil {
		return 0, usage("%q is no level: on or off, 1 or 0, high or low", s)
	}
	return v, nil
}

// assignments reads LINE=LEVEL arguments.
func assignments(args []string) (wire.GPIOSelect, error) {
	var s wire.GPIOSelect
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || strings.TrimSpace(name) == "" {
			return s, usage("%q is not LINE=LEVEL, such as GPIO17=on", arg)
		}
		v, err := level(value)
		if err != nil {
			return s, err
		}
		s.Lines.Names = append(s.Lines.Names, wire.GPIOLine(strings.TrimSpace(name)))
		s.Lines.Levels = append(s.Lines.Levels, v)
	}
	return s, nil
}

// endFlags say what becomes of outputs in the end.
type endFlags struct {
	release, deadman string
	stay             bool
}

func (f *endFlags) add(cmd *cobra.Command, normally string) {
	flags := cmd.Flags()
	flags.StringVar(&f.release, "on-release", "", "what becomes of the line when it is given back: hold, input, 0 or 1 (default "+normally+")")
	choices(cmd, "on-release", "hold", "input", "0", "1")
	flags.StringVar(&f.deadman, "deadman", "", "give it back if nothing is heard from this login for this `DURATION`; 0 takes that away")
	flags.BoolVar(&f.stay, "stay", false, "stay until interrupted, then give the lines back")
}

func (f *endFlags) end() (wire.GPIOEnd, error) {
	var e wire.GPIOEnd
	if f.release != "" {
		if err := e.OnRelease.UnmarshalJSON([]byte(f.release)); err != nil {
			return e, usage("--on-release is hold, input, 0 or 1, not %q", f.release)
		}
	}
	var err error
	e.DeadmanSeconds, err = seconds("deadman", f.deadman)
	return e, err
}

// lineFlags say how lines are, beside their levels.
type lineFlags struct {
	pull, drive, debounce string
	low                   bool
	cmd                   *cobra.Command
}

func (f *lineFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.StringVar(&f.pull, "pull", "", "pull resistor: up, down, none (default: as it is)")
	choices(cmd, "pull", "up", "down", "none")
	flags.BoolVar(&f.low, "active-low", false, "1 is the low level; =false undoes it")
}

func (f *lineFlags) addDrive(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.drive, "drive", "", "push_pull, open_drain or open_source (default: as it is, at first push_pull)")
	choices(cmd, "drive", "push_pull", "open_drain", "open_source")
}

func (f *lineFlags) addDebounce(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.debounce, "debounce", "", "a level counts once it was stable for this `DURATION`")
}

// activeLow is the flag as the wire has it: nil if it wasn't given.
func (f *lineFlags) activeLow() *bool {
	if !f.cmd.Flags().Changed("active-low") {
		return nil
	}
	return &f.low
}

// given says whether any of them was.
func (f *lineFlags) given() bool {
	return f.pull != "" || f.drive != "" || f.debounce != "" || f.activeLow() != nil
}

// configuration is what they ask for.
func (f *lineFlags) configuration(s wire.GPIOSelect, direction string) (wire.GPIOConfigure, error) {
	c := wire.GPIOConfigure{GPIOSelect: s, Direction: direction, Pull: f.pull, Drive: strings.ReplaceAll(f.drive, "-", "_"), ActiveLow: f.activeLow()}
	var err error
	c.DebounceSeconds, err = seconds("debounce", f.debounce)
	return c, err
}

// lineLabel is a line for people.
func lineLabel(number int, name string) string {
	if name == "" {
		return "line " + strconv.Itoa(number)
	}
	return name
}

// printLevels shows the levels of lines.
func (a *app) printLevels(v wire.GPIOValues, brief bool) error {
	switch {
	case a.json:
		return a.printJSON(v)
	case brief:
		for _, l := range v.Lines {
			a.printf("%d\n", l.Value)
		}
		return nil
	}
	t := a.levels(v.Lines)
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

func (a *app) levels(lines []wire.GPIOValue) table {
	t := table{head: []string{"LINE", "NAME", "LEVEL"}}
	for _, l := range lines {
		t.add(plain(strconv.Itoa(l.Line)), plain(dash(l.Name)), a.levelCell(l.Value))
	}
	return t
}

func (a *app) levelCell(v int) cell {
	if v == 0 {
		return cell{"0", a.style.out.dim}
	}
	return cell{strconv.Itoa(v), a.style.out.green}
}
