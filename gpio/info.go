package gpio

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/internal/pinout"
	"farhand/wire"
)

// info describes lines: all, or those that are named.
func (x *operation) info() (any, error) {
	a, err := decodeArgs[wire.GPIOInfo](x.r.Args)
	if err != nil {
		return nil, err
	}
	sel, err := together(a.GPIOSelect)
	if err != nil {
		return nil, err
	}
	b := x.b
	var lines []int
	for _, name := range sel.Names {
		o, err := b.names.find(string(name))
		if err != nil {
			return nil, err
		}
		lines = append(lines, o)
	}
	named := lines != nil
	if !named {
		for o := range b.lines {
			lines = append(lines, o)
		}
	}
	chip := wire.GPIOChip{
		Chip: b.info.Name, Label: device.Clean(b.info.Label), Header: b.names.header, Count: len(b.lines),
		Board: boardName(b.s.o.FS), Lines: make([]wire.GPIOLineInfo, 0, len(lines)),
	}
	functions := b.functions()
	for _, o := range lines {
		l, err := x.describe(o, functions[o], named, a.Probe)
		if err != nil {
			return nil, err
		}
		chip.Lines = append(chip.Lines, l)
	}
	return chip, nil
}

// describe is what is known about one line.
func (x *operation) describe(offset int, function string, more, probe bool) (wire.GPIOLineInfo, error) {
	b := x.b
	if err := b.enter(); err != nil {
		return wire.GPIOLineInfo{}, err
	}
	defer b.mu.Unlock()
	i, err := b.chip.Line(offset)
	if err != nil {
		return wire.GPIOLineInfo{}, failure(wire.HardwareTransferFailed, "asking for "+b.call(offset), err)
	}
	l, n := &b.lines[offset], &b.names.lines[offset]
	info := wire.GPIOLineInfo{
		Line: offset, Name: device.Clean(n.kernel), Pin: n.pin, Direction: directions[i.Direction],
		Consumer: device.Clean(i.Consumer), ActiveLow: i.ActiveLow, Edge: edgeNames[i.Edges],
		Drive: driveWord(i.LineConfig), DebounceUS: i.Debounce.Microseconds(), Function: function, OnRelease: l.release,
	}
	if i.Pull != PullAsIs {
		info.Pull = pulls[i.Pull]
	}
	info.Held = l.kept && l.release == ""
	taken := l.taken()
	mine := !taken || l.use.lease.Holder().Session == x.r.Caller.Session
	info.Available = mine && (!i.Used || l.claim != nil || l.pwm != nil)
	if taken {
		info.Holder = holderName(l.use.lease.Holder())
	}
	if l.pwm != nil {
		info.PWM = "software"
		if l.pwm.independent() {
			info.PWM = "hardware"
		}
	}
	if more {
		info.Functions = functionsOf(b.info.Label, offset)
	}
	if probe && info.Available && l.claim == nil && i.Direction == In {
		can := b.canDetect(offset)
		info.Edges = &can
	}
	return info, nil
}

// taken says whether a session has the line. One that has only read it a moment
// ago leaves it to whoever wants it.
func (l *line) taken() bool {
	return l.use != nil && (l.release != "" || l.pwm != nil || l.use.watcher() != nil || l.use.lease.Held())
}

func holderName(h device.Holder) string {
	for _, s := range []string{h.Name, h.ID, h.Session} {
		if s != "" {
			return s
		}
	}
	return ""
}

// canDetect finds out whether a free input can detect edges. It is called with
// b.mu.
func (b *board) canDetect(offset int) bool {
	r, err := b.chip.Request([]LineConfig{{Offset: offset, Direction: In, Edges: BothEdges}}, Options{Consumer: Consumer})
	if err != nil {
		return false
	}
	return r.Close() == nil
}

// boardName is what the board calls itself, or empty.
func boardName(fs sysfs.FS) string {
	return device.Clean(strings.TrimRight(sysfs.Attr(fs.Dir("firmware/devicetree/base"), "model"), "\x00"))
}

// functionsOf are the functions of a pin of the header: "alt0 PWM0".
func functionsOf(label string, offset int) []string {
	soc, ok := pinout.ByLabel(label)
	if !ok {
		return nil
	}
	var all []string
	for _, f := range pinout.Functions(soc, offset) {
		all = append(all, f.Alt+" "+f.Name)
	}
	return all
}

// maxPinmux bounds what is read of the kernel's list of pin functions.
const maxPinmux = 64 << 10

// functions are what the pins are switched to, by line, as far as debugfs may be
// read: by root. To claim a line switches its pin to GPIO.
func (b *board) functions() map[int]string {
	if b.dir == "" {
		return nil
	}
	root := b.s.o.FS.Dir("kernel/debug/pinctrl")
	for _, name := range []string{filepath.Base(filepath.Dir(b.dir)), filepath.Base(b.dir)} {
		// A controller's directory is its device, with the driver after it on
		// newer kernels: fe200000.gpio-pinctrl-bcm2711.
		matches, err := filepath.Glob(filepath.Join(root, escapeGlob(name)+"*", "pinmux-pins"))
		if err != nil || len(matches) != 1 {
			continue
		}
		if data, err := readSome(matches[0], maxPinmux); err == nil {
			return parsePinmux(data)
		}
	}
	return nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

func readSome(path string, most int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, most)
	n := 0
	for n < most {
		m, err := f.Read(buf[n:])
		n += m
		if err != nil {
			break
		}
	}
	if n == 0 {
		return "", errors.New("empty")
	}
	return string(buf[:n]), nil
}

// parsePinmux reads pinmux-pins (drivers/pinctrl/pinmux.c), a line for each pin:
//
//	pin 14 (gpio14): fe201000.serial (GPIO UNCLAIMED) function alt0 group gpio14
//	pin 14 (gpio14): device fe201000.serial function alt0 group gpio14
//	pin 17 (gpio17): (MUX UNCLAIMED) pinctrl-bcm2711:529
//	pin 17 (gpio17): UNCLAIMED
func parsePinmux(text string) map[int]string {
	all := make(map[int]string)
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "pin ")
		if !ok {
			continue
		}
		number, _, ok := strings.Cut(rest, " ")
		n, isNumber := decimal(number)
		if !ok || !isNumber {
			continue
		}
		_, owner, ok := strings.Cut(rest, "): ")
		if !ok {
			continue
		}
		words := strings.Fields(owner)
		for i := range len(words) - 1 {
			if words[i] == "function" {
				all[n] = device.Clean(words[i+1])
			}
		}
		if all[n] == "" && strings.Contains(owner, "(MUX UNCLAIMED)") && !strings.Contains(owner, "(GPIO UNCLAIMED)") {
			all[n] = "gpio"
		}
	}
	return all
}
