package gpio

import (
	"strconv"
	"strings"

	"farhand/internal/pinout"
	"farhand/wire"
)

// nameTable knows the lines of a chip by all their names.
type nameTable struct {
	chips  []string         // names of the chip itself, lower case
	byName map[string][]int // lower case
	lines  []lineNames
	header bool // a Raspberry Pi's header hangs on it
}

// lineNames is what one line is called.
type lineNames struct {
	kernel string   // empty: the kernel has no name for it
	key    string   // its number
	all    []string // what a grant or hardware.actuators may call it
	pin    int      // on the header; 0: none
}

// newNameTable takes the kernel's names, in the order of the lines.
func newNameTable(chips []string, label string, kernel []string) *nameTable {
	t := &nameTable{byName: make(map[string][]int), lines: make([]lineNames, len(kernel)), header: header(label)}
	for _, c := range chips {
		t.chips = append(t.chips, strings.ToLower(c))
	}
	for o, name := range kernel {
		l := &t.lines[o]
		l.kernel, l.key = name, strconv.Itoa(o)
		t.name(o, name)
		if !t.header {
			continue
		}
		// On these chips a line's number is the BCM number.
		t.name(o, "GPIO"+l.key)
		t.name(o, "BCM"+l.key)
		if pin, ok := pinout.ByBCM(o); ok {
			l.pin = pin.Number
			t.name(o, "pin "+strconv.Itoa(pin.Number))
			t.name(o, "J8:"+strconv.Itoa(pin.Number))
		}
	}
	return t
}

// name adds a name of a line.
func (t *nameTable) name(offset int, name string) {
	if name == "" {
		return
	}
	key := strings.ToLower(name)
	for _, o := range t.byName[key] {
		if o == offset {
			return
		}
	}
	t.byName[key] = append(t.byName[key], offset)
	t.lines[offset].all = append(t.lines[offset].all, name)
}

// find is the number of the line that a caller means.
func (t *nameTable) find(name string) (int, error) {
	if n, ok := decimal(name); ok && n < len(t.lines) && len(t.byName[name]) == 0 {
		return n, nil // most callers
	}
	return t.search(name, strings.ToLower(strings.TrimSpace(name)))
}

func (t *nameTable) search(asked, name string) (int, error) {
	found := t.byName[name]
	n, isNumber := decimal(name)
	if isNumber && n < len(t.lines) && !(len(found) == 1 && found[0] == n) {
		found = append([]int{n}, found...)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return 0, t.ambiguous(asked, found)
	case isNumber:
		return 0, wire.Errorf(wire.HardwareNotFound, "there is no line %d: the chip's lines are 0 to %d", n, len(t.lines)-1).With("line", n)
	}
	if pin, ok := headerPin(name); ok {
		return t.pin(pin)
	}
	if chip, rest, ok := cutChip(name); ok {
		for _, c := range t.chips {
			if c == chip {
				return t.search(asked, rest)
			}
		}
		return 0, wire.Errorf(wire.HardwareNotFound, "line %q is of another chip than the device", wire.Clean(asked, maxName)).
			With("line", wire.Clean(asked, maxName)).With("hint", "name that chip as the device")
	}
	return 0, wire.Errorf(wire.HardwareNotFound, "there is no line %q", wire.Clean(asked, maxName)).
		With("line", wire.Clean(asked, maxName)).With("hint", "GPIO_INFO lists the lines; a header pin is written \"pin 11\"")
}

// maxName is how much of a name is repeated in an error.
const maxName = 64

func (t *nameTable) ambiguous(asked string, found []int) error {
	candidates := make([]string, len(found))
	for i, o := range found {
		candidates[i] = t.lines[o].key
	}
	return wire.Errorf(wire.HardwareAmbiguous, "%q fits lines %s", wire.Clean(asked, maxName), strings.Join(candidates, " and ")).
		With("candidates", candidates).With("line", wire.Clean(asked, maxName)).With("hint", "name the line by its number on the chip, with the chip in front: \""+t.chips[0]+":"+candidates[0]+"\"")
}

// pin is the line of a pin of the header.
func (t *nameTable) pin(n int) (int, error) {
	pin, ok := pinout.ByNumber(n)
	switch {
	case !t.header:
		return 0, wire.Errorf(wire.HardwareNotFound, "this chip has no Raspberry Pi header, so there is no pin %d", n).With("pin", n)
	case !ok:
		return 0, wire.Errorf(wire.HardwareNotFound, "there is no pin %d: the header has 1 to 40", n).With("pin", n)
	case pin.Kind != pinout.GPIO:
		return 0, wire.Errorf(wire.HardwareNotFound, "pin %d is %s, no line", n, pin.Name).With("pin", n)
	case pin.BCM >= len(t.lines):
		return 0, wire.Errorf(wire.HardwareNotFound, "pin %d is %s, which this chip doesn't have", n, pin.Name).With("pin", n)
	}
	return pin.BCM, nil
}

// headerPin reads "pin 11", "pin11", "j8:11", "j8-11" and "physical 11".
func headerPin(name string) (int, bool) {
	for _, prefix := range []string{"pin", "physical", "j8"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return decimal(strings.TrimLeft(rest, " :-_#"))
		}
	}
	return 0, false
}

// cutChip splits "gpiochip0:17" and "pinctrl-bcm2711#17" at the last separator.
func cutChip(name string) (chip, line string, ok bool) {
	i := strings.LastIndexAny(name, ":#")
	if i <= 0 || i == len(name)-1 {
		return "", "", false
	}
	return name[:i], strings.TrimSpace(name[i+1:]), true
}

// decimal reads a number as a line or pin may have; Atoi would take signs.
func decimal(s string) (int, bool) {
	if len(s) == 0 || len(s) > 6 {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}
