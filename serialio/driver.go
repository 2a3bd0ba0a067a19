package serialio

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/wire"
)

// Driver finds serial ports in /sys/class/tty. The zero value looks at this
// machine.
type Driver struct {
	FS sysfs.FS
}

var _ device.Driver = Driver{}

// Type is "serial".
func (Driver) Type() string { return device.Serial }

// Probe lists the ports that a device stands behind; consoles, pseudo-terminals
// and the kernel's unused 8250 slots have none.
func (d Driver) Probe(ctx context.Context) ([]device.Descriptor, error) {
	names, err := d.FS.List("class/tty")
	if err != nil {
		return nil, err
	}
	usb, err := d.FS.USB()
	if err != nil {
		return nil, err
	}
	links := d.links()
	var all []device.Descriptor
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		class := filepath.Join(d.FS.Dir("class/tty"), name)
		dir := sysfs.Real(filepath.Join(class, "device"))
		if dir == "" || sysfs.Attr(class, "type") == "0" { // PORT_UNKNOWN: nothing found there
			continue
		}
		p := d.describe(name, class, dir)
		if p.Instance == "" {
			continue // unplugged while we look
		}
		if dev, iface, ok := d.FS.Above(dir, usb); ok {
			onUSB(&p, dev, iface, dir)
		} else {
			d.onBoard(&p, name, dir)
		}
		p.Aliases = append(p.Aliases, links[name]...)
		all = append(all, p)
	}
	return all, nil
}

func (d Driver) describe(name, class, dir string) device.Descriptor {
	real := sysfs.Real(class)
	p := device.Descriptor{
		HardwareDevice: wire.HardwareDevice{
			Type: device.Serial, Port: "/dev/" + name, Driver: sysfs.LinkName(dir, "driver"),
			Aliases: []string{"/dev/" + name, "serial:" + name},
		},
		Node: d.FS.Node(name), SysPath: real, Instance: sysfs.Instance(real),
	}
	p.Available, p.Reason = sysfs.Access(p.Node)
	if sysfs.Attr(class, "console") == "Y" {
		p.Available, p.Reason = false, "it is the system console: take it off the kernel's command line to use it"
	}
	return p
}

// onUSB fills what the USB device behind a port says. The first interface is
// what the device is known by; further ones, and further ports of one
// interface, add where they are.
func onUSB(p *device.Descriptor, dev sysfs.USBDevice, iface, dir string) {
	p.VID, p.PID = dev.VID, dev.PID
	p.Manufacturer, p.Product, p.SerialNumber = dev.Manufacturer, dev.Product, dev.Serial
	p.Desc = dev.Describe()
	p.Instance += "/" + dev.Instance()
	port := ""
	// usb-serial numbers the ports of an interface; a driver with one port has 0.
	if n := sysfs.Attr(dir, "port_number"); n != "" && n != "0" {
		port = "-port" + device.IDPart(n)
	}
	byPath := "serial:usb-" + dev.ByPath() + ":" + iface + port
	place := port
	if iface != "" && iface != "1.0" {
		place = ":" + iface + port
	}
	p.ID = byPath
	if serial := dev.BySerial(); serial != "" {
		bySerial := "serial:usb-" + serial + place
		if dev.ID() == serial {
			p.ID = bySerial
		}
		p.Aliases = append(p.Aliases, bySerial, "serial:usb-"+serial)
	}
	p.Aliases = append(p.Aliases, byPath, "serial:"+dev.Model())
	if place != "" {
		p.Desc += ", interface " + iface + port
	}
}

// onBoard names a port that is part of the board or of a card. Its tty name is
// stable where the board says it (a device tree alias) or the address does (PC
// ports); else the name of the hardware is: an address on the bus.
func (d Driver) onBoard(p *device.Descriptor, name, dir string) {
	hw := hardwareOf(d.FS, dir)
	hwName := filepath.Base(hw)
	byHardware := "serial:" + device.IDPart(hwName)
	p.Aliases = append(p.Aliases, byHardware)
	p.Desc = "Serial port " + name + " (" + hwName + ")"
	p.ID = "serial:" + device.IDPart(name)
	if node := sysfs.Real(filepath.Join(hw, "of_node")); node != "" && !d.hasAlias(node) || sysfs.LinkName(hw, "subsystem") == "pci" {
		p.ID = byHardware
		if n := sysfs.Attr(dir, "port_number"); n != "" && n != "0" {
			p.ID += "-port" + device.IDPart(n)
		}
	}
	if drv := sysfs.LinkName(hw, "driver"); drv != "" {
		p.Driver = drv
	}
}

// hardwareOf climbs from a tty's device over the layers that newer kernels put
// between it and the hardware (serial-base: port and controller).
func hardwareOf(fs sysfs.FS, dir string) string {
	hw := dir
	fs.Parents(dir, func(d string) bool {
		hw = d
		return sysfs.LinkName(d, "subsystem") != "serial-base"
	})
	return hw
}

// hasAlias says whether the device tree numbers this node: /aliases/serialN
// holds its path.
func (d Driver) hasAlias(node string) bool {
	base := sysfs.Real(d.FS.Dir("firmware/devicetree/base"))
	aliases := d.FS.Dir("firmware/devicetree/base/aliases")
	entries, err := os.ReadDir(aliases)
	if err != nil || base == "" {
		return false
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "serial") && !strings.HasPrefix(e.Name(), "uart") {
			continue
		}
		if path := strings.TrimRight(sysfs.Attr(aliases, e.Name()), "\x00"); path != "" && filepath.Join(base, path) == node {
			return true
		}
	}
	return false
}

// links are the names that udev gives ports, by the node they lead to.
func (d Driver) links() map[string][]string {
	links := make(map[string][]string)
	add := func(rel string) {
		target, err := os.Readlink(d.FS.Node(rel))
		if err == nil {
			name := filepath.Base(target)
			links[name] = append(links[name], "/dev/"+rel)
		}
	}
	for _, dir := range []string{"serial/by-id", "serial/by-path"} {
		entries, err := os.ReadDir(d.FS.Node(dir))
		if err != nil {
			continue // no udev, or no ports
		}
		for _, e := range entries {
			add(dir + "/" + e.Name())
		}
	}
	add("serial0") // Raspberry Pi: the port on the header
	add("serial1")
	return links
}
