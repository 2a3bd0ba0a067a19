// Package simsysfs builds small sysfs trees in a directory, of the shape that
// the kernel gives the real one: devices under devices/, links to them from
// class/ and bus/. The --sim bench and the tests of the families probe them
// like any other.
//
// Device nodes are empty files: they can be listed, not driven.
package simsysfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"farhand/device/sysfs"
)

// Tree is a tree being built. The first failure sticks: ask Err once at the end.
type Tree struct {
	FS  sysfs.FS
	err error
}

// New begins a tree in an existing directory.
func New(dir string) *Tree {
	t := &Tree{FS: sysfs.FS{SysRoot: filepath.Join(dir, "sys"), DevRoot: filepath.Join(dir, "dev")}}
	for _, d := range []string{"bus/usb/devices", "bus/gpio/devices", "class/tty", "class/gpio", "class/i2c-dev", "class/spidev", "class/usbmisc"} {
		t.mkdir(t.FS.Dir(d))
	}
	t.mkdir(t.FS.DevRoot)
	return t
}

// Err is the first failure.
func (t *Tree) Err() error { return t.err }

func (t *Tree) note(err error) {
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("building a simulated sysfs: %w", err)
	}
}

func (t *Tree) mkdir(dir string) { t.note(os.MkdirAll(dir, 0o755)) }

// Dir makes a directory below sys with attributes in it.
func (t *Tree) Dir(rel string, attrs map[string]string) {
	dir := t.FS.Dir(rel)
	t.mkdir(dir)
	for name, value := range attrs {
		t.note(os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o644))
	}
}

// Link makes from, below sys, lead to to, below sys, by a relative link.
func (t *Tree) Link(from, to string) {
	path := t.FS.Dir(from)
	t.mkdir(filepath.Dir(path))
	rel, err := filepath.Rel(filepath.Dir(path), t.FS.Dir(to))
	if err == nil {
		err = os.Symlink(rel, path)
	}
	if !errors.Is(err, os.ErrExist) {
		t.note(err)
	}
}

// Node makes a device node, below dev, that can be listed.
func (t *Tree) Node(rel string) {
	path := t.FS.Node(rel)
	t.mkdir(filepath.Dir(path))
	t.note(os.WriteFile(path, nil, 0o600))
}

// NodeLink makes a device node, below dev, that leads to a real one.
func (t *Tree) NodeLink(rel, target string) {
	path := t.FS.Node(rel)
	t.mkdir(filepath.Dir(path))
	t.note(os.Symlink(target, path))
}

// Remove takes away what is below sys or dev under this path, with everything
// in it, and the links that lead there.
func (t *Tree) Remove(path string) {
	t.note(os.RemoveAll(path))
	for _, pattern := range []string{"class/*/*", "bus/*/devices/*"} {
		links, err := filepath.Glob(t.FS.Dir(pattern))
		t.note(err)
		for _, l := range links {
			if sysfs.Real(l) == "" {
				t.note(os.Remove(l))
			}
		}
	}
}

// Driver binds a device to a driver of a bus.
func (t *Tree) Driver(dev, bus, driver string) {
	t.mkdir(t.FS.Dir("bus/" + bus + "/drivers/" + driver))
	t.Link(dev+"/driver", "bus/"+bus+"/drivers/"+driver)
	t.Subsystem(dev, "bus/"+bus)
}

// Subsystem says what a device belongs to.
func (t *Tree) Subsystem(dev, subsystem string) {
	t.mkdir(t.FS.Dir(subsystem))
	t.Link(dev+"/subsystem", subsystem)
}

// usbHost is where all of a tree's USB devices hang: a Pi 4's controller.
const usbHost = "devices/platform/scb/fd500000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0/usb1"

// USB describes a USB device.
type USB struct {
	Path         string // where it is plugged in, such as 1-1.2
	Num          int    // its number on the bus
	VID, PID     string
	Class        string // two hex digits
	Serial       string // raw; "" for none
	Manufacturer string
	Product      string
	Interfaces   []Interface
}

// Interface is one interface of a USB device.
type Interface struct {
	Class  string // two hex digits
	Driver string
	TTYs   []string // the ports of it, by name: ttyUSB0
	LP     string   // the printer port of it: lp0
	CDC    bool     // the tty belongs to the interface itself, as with cdc_acm
}

// Dir is the device's directory below sys.
func (u USB) Dir() string {
	dir := usbHost
	bus, ports, _ := strings.Cut(u.Path, "-")
	walked := bus + "-"
	for i, p := range strings.Split(ports, ".") {
		if i > 0 {
			walked += "."
		}
		walked += p
		dir += "/" + walked
	}
	return dir
}

// AddUSB plugs a device in.
func (t *Tree) AddUSB(u USB) {
	dir := u.Dir()
	attrs := map[string]string{
		"idVendor": u.VID, "idProduct": u.PID, "bDeviceClass": u.Class,
		"busnum": strings.Split(u.Path, "-")[0], "devnum": strconv.Itoa(u.Num),
	}
	for name, value := range map[string]string{"serial": u.Serial, "manufacturer": u.Manufacturer, "product": u.Product} {
		if value != "" {
			attrs[name] = value
		}
	}
	t.Dir(dir, attrs)
	t.Driver(dir, "usb", "usb")
	t.Link("bus/usb/devices/"+u.Path, dir)
	t.Node(fmt.Sprintf("bus/usb/%03s/%03d", attrs["busnum"], u.Num))
	for i, f := range u.Interfaces {
		t.addInterface(u, i, f)
	}
}

func (t *Tree) addInterface(u USB, number int, f Interface) {
	name := fmt.Sprintf("%s:1.%d", u.Path, number)
	dir := u.Dir() + "/" + name
	t.Dir(dir, map[string]string{"bInterfaceClass": f.Class, "bInterfaceNumber": fmt.Sprintf("%02d", number)})
	t.Link("bus/usb/devices/"+name, dir)
	if f.Driver != "" {
		t.Driver(dir, "usb", f.Driver)
	}
	for i, tty := range f.TTYs {
		owner := dir
		if !f.CDC { // usb-serial puts a port between
			owner = dir + "/" + tty
			t.Dir(owner, map[string]string{"port_number": strconv.Itoa(i)})
			t.Driver(owner, "usb-serial", f.Driver)
		}
		t.AddTTY(tty, owner, nil)
	}
	if f.LP != "" {
		lp := dir + "/usbmisc/" + f.LP
		t.Dir(lp, nil)
		t.Link(lp+"/device", dir)
		t.Link("class/usbmisc/"+f.LP, lp)
		t.Node("usb/" + f.LP)
	}
}

// AddTTY adds a terminal that belongs to a device.
func (t *Tree) AddTTY(name, owner string, attrs map[string]string) {
	dir := owner + "/tty/" + name
	t.Dir(dir, attrs)
	t.Link(dir+"/device", owner)
	t.Link("class/tty/"+name, dir)
	if _, err := os.Lstat(t.FS.Node(name)); errors.Is(err, os.ErrNotExist) {
		t.Node(name)
	}
}

// AddUART adds an on-board port. alias is its name in the device tree
// (serial0), or empty; ofNode its path there, or empty on a PC.
func (t *Tree) AddUART(tty, hardware, driver, ofNode, alias string) {
	dir := "devices/platform/soc/" + hardware
	t.Dir(dir, nil)
	t.Driver(dir, "amba", driver)
	if ofNode != "" {
		t.Dir("firmware/devicetree/base"+ofNode, nil)
		t.Link(dir+"/of_node", "firmware/devicetree/base"+ofNode)
	}
	if alias != "" {
		t.mkdir(t.FS.Dir("firmware/devicetree/base/aliases"))
		t.note(os.WriteFile(t.FS.Dir("firmware/devicetree/base/aliases/"+alias), []byte(ofNode+"\x00"), 0o644))
	}
	ctrl, port := dir+"/"+hardware+":0", dir+"/"+hardware+":0/"+hardware+":0.0"
	t.Dir(port, nil)
	t.Driver(ctrl, "serial-base", "ctrl")
	t.Driver(port, "serial-base", "port")
	t.AddTTY(tty, port, map[string]string{"type": "32", "console": "N"})
}

// GPIO describes a GPIO chip.
type GPIO struct {
	Number   int    // N of gpiochipN
	Hardware string // what it belongs to: fe200000.gpio
	Label    string
	Lines    int
	Base     int  // in the old class
	NoClass  bool // the kernel was built without the old class
}

// AddGPIO adds a chip.
func (t *Tree) AddGPIO(g GPIO) {
	owner := "devices/platform/soc/" + g.Hardware
	chip := fmt.Sprintf("%s/gpiochip%d", owner, g.Number)
	t.Dir(chip, nil)
	t.Driver(owner, "platform", "pinctrl")
	t.Link(fmt.Sprintf("bus/gpio/devices/gpiochip%d", g.Number), chip)
	t.Node(fmt.Sprintf("gpiochip%d", g.Number))
	if g.NoClass {
		return
	}
	class := fmt.Sprintf("%s/gpio/gpiochip%d", owner, g.Base)
	t.Dir(class, map[string]string{"label": g.Label, "ngpio": strconv.Itoa(g.Lines), "base": strconv.Itoa(g.Base)})
	t.Link(class+"/device", owner)
	t.Link(fmt.Sprintf("class/gpio/gpiochip%d", g.Base), class)
}

// AddI2C adds a bus.
func (t *Tree) AddI2C(number int, hardware, name string) {
	owner := "devices/platform/soc/" + hardware
	adapter := fmt.Sprintf("%s/i2c-%d", owner, number)
	dev := fmt.Sprintf("%s/i2c-dev/i2c-%d", adapter, number)
	t.Dir(adapter, map[string]string{"name": name})
	t.Driver(owner, "platform", "i2c-bcm2835")
	t.Dir(dev, map[string]string{"name": name})
	t.Link(dev+"/device", adapter)
	t.Link(fmt.Sprintf("class/i2c-dev/i2c-%d", number), dev)
	t.Node(fmt.Sprintf("i2c-%d", number))
}

// AddSPI adds a chip select of a bus.
func (t *Tree) AddSPI(bus, cs int, hardware string) {
	slave := fmt.Sprintf("devices/platform/soc/%s/spi_master/spi%d/spi%d.%d", hardware, bus, bus, cs)
	dev := fmt.Sprintf("%s/spidev/spidev%d.%d", slave, bus, cs)
	t.Dir(slave, nil)
	t.Driver(slave, "spi", "spidev")
	t.Dir(dev, nil)
	t.Link(dev+"/device", slave)
	t.Link(fmt.Sprintf("class/spidev/spidev%d.%d", bus, cs), dev)
	t.Node(fmt.Sprintf("spidev%d.%d", bus, cs))
}

// Bench builds what the --sim bench shows beside its serial instruments: a
// Raspberry Pi 4 with an Arduino, an FTDI cable and a label printer on its hub.
func Bench(dir string) (sysfs.FS, error) {
	t := New(dir)
	t.AddUSB(USB{Path: "1-1", Num: 2, VID: "2109", PID: "3431", Class: "09", Product: "USB2.0 Hub",
		Interfaces: []Interface{{Class: "09", Driver: "hub"}}})
	t.AddUSB(USB{Path: "1-1.1", Num: 3, VID: "2341", PID: "0043", Class: "02", Serial: "95530343834351A0B091",
		Manufacturer: "Arduino (www.arduino.cc)", Product: "Arduino Uno",
		Interfaces: []Interface{{Class: "02", Driver: "cdc_acm"}, {Class: "0a", Driver: "cdc_acm"}}})
	t.AddUSB(USB{Path: "1-1.2", Num: 4, VID: "0403", PID: "6001", Class: "00", Serial: "FT3X8K2Q",
		Manufacturer: "FTDI", Product: "FT232R USB UART",
		Interfaces: []Interface{{Class: "ff", Driver: "ftdi_sio"}}})
	t.AddUSB(USB{Path: "1-1.3", Num: 5, VID: "04f9", PID: "2042", Class: "00", Serial: "000M6Z401370",
		Manufacturer: "Brother", Product: "QL-700",
		Interfaces: []Interface{{Class: "07", Driver: "usblp", LP: "lp0"}}})
	t.AddGPIO(GPIO{Number: 0, Hardware: "fe200000.gpio", Label: "pinctrl-bcm2711", Lines: 58, Base: 512})
	t.AddGPIO(GPIO{Number: 1, Hardware: "soc:firmware:gpio", Label: "raspberrypi-exp-gpio", Lines: 8, Base: 570})
	t.AddI2C(1, "fe804000.i2c", "bcm2835 (i2c@7e804000)")
	t.AddSPI(0, 0, "fe204000.spi")
	t.AddSPI(0, 1, "fe204000.spi")
	return t.FS, t.Err()
}
