package octoprint

import (
	"context"
	"path/filepath"
	"strings"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/wire"
)

// Driver finds printer-class ports in /sys/class/usbmisc. The zero value looks
// at this machine.
type Driver struct{ FS sysfs.FS }

var _ device.Driver = Driver{}

// Type is "printer".
func (Driver) Type() string { return device.Printer }

// Probe lists the ports: printer:usb-VID:PID-SERIAL, or by where it is plugged
// in.
func (d Driver) Probe(ctx context.Context) ([]device.Descriptor, error) {
	names, err := d.FS.List("class/usbmisc")
	if err != nil {
		return nil, err
	}
	usb, err := d.FS.USB()
	if err != nil {
		return nil, err
	}
	var all []device.Descriptor
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		number, ok := strings.CutPrefix(name, "lp")
		dir := sysfs.Real(filepath.Join(d.FS.Dir("class/usbmisc"), name))
		if !ok || dir == "" || strings.Trim(number, "0123456789") != "" {
			continue
		}
		dev, iface, ok := d.FS.Above(dir, usb)
		if !ok {
			continue // unplugged while we look
		}
		all = append(all, d.describe(name, dir, iface, dev))
	}
	return all, nil
}

func (d Driver) describe(name, dir, iface string, dev sysfs.USBDevice) device.Descriptor {
	place := ""
	if iface != "" && iface != "1.0" { // a second function of the same device
		place = ":" + iface
	}
	p := device.Descriptor{
		HardwareDevice: wire.HardwareDevice{
			Type: device.Printer, ID: "printer:usb-" + dev.ID() + place, Desc: dev.Describe(), Port: "/dev/usb/" + name,
			VID: dev.VID, PID: dev.PID,
			Manufacturer: dev.Manufacturer, Product: dev.Product, SerialNumber: dev.Serial,
			Driver:  "usblp",
			Aliases: []string{"/dev/usb/" + name, "printer:" + name, "printer:" + dev.Model(), "printer:usb-" + dev.ByPath() + place},
		},
		Node: d.FS.Node("usb/" + name), SysPath: dir, Instance: sysfs.Instance(dir) + "/" + dev.Instance(),
	}
	p.Available, p.Reason = sysfs.Access(p.Node)
	return p
}
