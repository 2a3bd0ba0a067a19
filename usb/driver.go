package usb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/wire"
)

// Driver finds USB devices in /sys/bus/usb/devices. The zero value looks at
// this machine.
type Driver struct{ FS sysfs.FS }

var _ device.Driver = Driver{}

// classHub is bDeviceClass of a hub: nothing to talk to.
const classHub = "09"

// Type is "usb".
func (Driver) Type() string { return device.USB }

// Probe lists every device but hubs.
func (d Driver) Probe(ctx context.Context) ([]device.Descriptor, error) {
	usb, err := d.FS.USB()
	if err != nil {
		return nil, err
	}
	var all []device.Descriptor
	for _, dev := range usb {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if dev.Class != classHub {
			all = append(all, d.describe(dev))
		}
	}
	return all, nil
}

func (d Driver) describe(dev sysfs.USBDevice) device.Descriptor {
	drivers, class := interfaces(dev)
	p := device.Descriptor{
		HardwareDevice: wire.HardwareDevice{
			Type: device.USB, ID: "usb:" + dev.ID(), Desc: dev.Describe(),
			VID: dev.VID, PID: dev.PID,
			Manufacturer: dev.Manufacturer, Product: dev.Product, SerialNumber: dev.Serial,
			DeviceClass: class, Driver: strings.Join(drivers, ","),
			Aliases: []string{"usb:" + dev.Model(), "usb:" + dev.ByPath()},
		},
		SysPath: dev.Dir, Instance: dev.Instance(),
	}
	if s := dev.BySerial(); s != "" {
		p.Aliases = append(p.Aliases, "usb:"+s)
	}
	bus, err := strconv.Atoi(dev.Bus)
	num, err2 := strconv.Atoi(dev.Num)
	if err != nil || err2 != nil {
		p.Reason = "the kernel doesn't say which node it has"
		return p
	}
	name := fmt.Sprintf("bus/usb/%03d/%03d", bus, num)
	p.Node = d.FS.Node(name)
	p.Aliases = append(p.Aliases, "/dev/"+name)
	p.Available, p.Reason = sysfs.Access(p.Node)
	return p
}

// interfaces are the kernel drivers that have parts of the device, and its
// class: the one of all its interfaces where the device leaves it to them.
func interfaces(dev sysfs.USBDevice) (drivers []string, class string) {
	class = dev.Class
	var classes []string
	for _, dir := range dev.Interfaces() {
		if drv := sysfs.LinkName(dir, "driver"); drv != "" {
			drivers = append(drivers, drv)
		}
		if c := sysfs.Attr(dir, "bInterfaceClass"); c != "" {
			classes = append(classes, strings.ToLower(c))
		}
	}
	slices.Sort(drivers)
	slices.Sort(classes)
	if classes = slices.Compact(classes); class == "00" && len(classes) == 1 {
		class = classes[0]
	}
	return slices.Compact(drivers), class
}
