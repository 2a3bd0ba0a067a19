package gpio

import (
	"cmp"
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/gpio/uapi"
	"farhand/internal/sorted"
	"farhand/wire"
)

// Driver finds GPIO chips in /sys/bus/gpio/devices. The zero value looks at
// this machine.
type Driver struct {
	FS sysfs.FS
	// Info reads a chip's label and number of lines from its node where sysfs
	// doesn't have them. nil means uapi.ChipInfo.
	Info func(node string) (uapi.Chip, error)
}

var _ device.Driver = Driver{}

// Type is "gpio".
func (Driver) Type() string { return device.GPIO }

// chip is what Probe learns of one chip.
type chip struct {
	name   string // gpiochipN
	dir    string // real path in sysfs
	parent string // the name of the hardware that it belongs to
	label  string
	lines  int
}

// Probe lists the chips. Two with the same label are told apart by the
// hardware that they belong to.
func (d Driver) Probe(ctx context.Context) ([]device.Descriptor, error) {
	chips, err := d.chips(ctx)
	if err != nil {
		return nil, err
	}
	labels := make(map[string]int)
	for _, c := range chips {
		labels[c.label]++
	}
	var all []device.Descriptor
	for _, c := range chips {
		all = append(all, d.describe(c, labels[c.label] == 1))
	}
	return all, nil
}

func (d Driver) chips(ctx context.Context) ([]chip, error) {
	names, err := d.FS.List("bus/gpio/devices")
	if err != nil {
		return nil, err
	}
	classes, err := d.classes()
	if err != nil {
		return nil, err
	}
	var chips []chip
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		dir := sysfs.Real(filepath.Join(d.FS.Dir("bus/gpio/devices"), name))
		if dir == "" || !strings.HasPrefix(name, "gpiochip") {
			continue
		}
		chips = append(chips, chip{name: name, dir: dir, parent: filepath.Base(filepath.Dir(dir))})
	}
	sorted.By(chips, func(a, b chip) int {
		return cmp.Or(cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
	})
	for i := range chips {
		d.fill(&chips[i], chips, classes)
	}
	return chips, nil
}

// class is a chip as the old GPIO class shows it: by the hardware that it
// belongs to, with the number of its first line for a name.
type class struct {
	base  int
	label string
	lines int
}

// classes reads /sys/class/gpio, by the real path of the hardware's directory,
// each in the order of the bases.
func (d Driver) classes() (map[string][]class, error) {
	names, err := d.FS.List("class/gpio")
	if err != nil {
		return nil, err
	}
	classes := make(map[string][]class)
	for _, name := range names {
		dir := sysfs.Real(filepath.Join(d.FS.Dir("class/gpio"), name))
		owner := sysfs.Real(filepath.Join(dir, "device"))
		if dir == "" || owner == "" || !strings.HasPrefix(name, "gpiochip") {
			continue
		}
		lines, err := strconv.Atoi(sysfs.Attr(dir, "ngpio"))
		if err != nil {
			continue
		}
		base, err := strconv.Atoi(sysfs.Attr(dir, "base"))
		if err != nil {
			continue
		}
		classes[owner] = append(classes[owner], class{base, sysfs.Attr(dir, "label"), lines})
	}
	for _, cs := range classes {
		sorted.By(cs, func(a, b class) int { return cmp.Compare(a.base, b.base) })
	}
	return classes, nil
}

// fill finds a chip's label and lines: in the old class where exactly one entry
// belongs to this chip or to its hardware, else from the node.
func (d Driver) fill(c *chip, all []chip, classes map[string][]class) {
	owner := filepath.Dir(c.dir)
	siblings := 0
	for _, other := range all {
		if filepath.Dir(other.dir) == owner {
			siblings++
		}
	}
	found := classes[c.dir]
	if len(found) == 0 && siblings == 1 {
		found = classes[owner]
	}
	if len(found) == 1 {
		c.label, c.lines = found[0].label, found[0].lines
		return
	}
	info := d.Info
	if info == nil {
		info = uapi.ChipInfo
	}
	// Without the right to open the node the hardware's name has to do.
	if i, err := info(d.FS.Node(c.name)); err == nil {
		c.label, c.lines = i.Label, i.Lines
	}
}

func (d Driver) describe(c chip, unique bool) device.Descriptor {
	p := device.Descriptor{
		HardwareDevice: wire.HardwareDevice{
			Type: device.GPIO, Chip: "/dev/" + c.name, Lines: c.lines,
			Driver:  sysfs.LinkName(filepath.Dir(c.dir), "driver"),
			Aliases: []string{"/dev/" + c.name, "gpio:" + c.name, c.name},
		},
		Node: d.FS.Node(c.name), SysPath: c.dir, Instance: sysfs.Instance(c.dir),
	}
	p.Available, p.Reason = sysfs.Access(p.Node)
	label, parent := device.IDPart(c.label), device.IDPart(c.parent)
	switch {
	case label == "":
		p.ID = "gpio:" + parent
		p.Desc = "GPIO chip of " + c.parent
	case unique:
		p.ID = "gpio:" + label
		p.Desc = "GPIO chip " + c.label
	default:
		p.ID = "gpio:" + label + "@" + parent
		p.Desc = "GPIO chip " + c.label + " of " + c.parent
		p.Aliases = append(p.Aliases, "gpio:"+label)
	}
	if header(c.label) {
		p.Desc += " (Raspberry Pi header)"
		p.Aliases = append(p.Aliases, "gpio:bcm")
	}
	return p
}

// header says whether a label is that of the chip with a Raspberry Pi's
// header: up to the Pi 3, the Pi 4, the Pi 5.
func header(label string) bool {
	switch label {
	case "pinctrl-bcm2835", "pinctrl-bcm2711", "pinctrl-rp1":
		return true
	}
	return false
}
