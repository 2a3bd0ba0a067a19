package usb

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/usb/usbfs"
)

// System is this machine: sysfs and usbfs.
type System struct{}

var _ Host = System{}

// Look reads a device's directory in sysfs.
func (System) Look(d device.Descriptor) (Look, error) {
	raw, err := readDescriptors(d.SysPath)
	if err != nil {
		return Look{}, fmt.Errorf("looking at %s: %w", d.ID, err)
	}
	attr := func(name string) string { return sysfs.Attr(d.SysPath, name) }
	l := Look{
		Descriptors: raw, Active: number(attr("bConfigurationValue")),
		Manufacturer: attr("manufacturer"), Product: attr("product"), Serial: attr("serial"), Configuration: attr("configuration"),
		Interfaces: make(map[int]LookInterface),
	}
	if mbps, err := strconv.ParseFloat(attr("speed"), 64); err == nil {
		l.SpeedMbps = mbps
	}
	for _, dir := range (sysfs.USBDevice{Dir: d.SysPath}).Interfaces() {
		n, err := strconv.ParseUint(sysfs.Attr(dir, "bInterfaceNumber"), 16, 8)
		if err != nil {
			continue // unplugged while we look
		}
		l.Interfaces[int(n)] = LookInterface{
			Driver: sysfs.LinkName(dir, "driver"), Name: sysfs.Attr(dir, "interface"),
			Alternate: number(sysfs.Attr(dir, "bAlternateSetting")),
		}
	}
	return l, nil
}

// number is a decimal attribute, which may be padded or empty.
func number(s string) int {
	var n int
	if _, err := fmt.Sscan(s, &n); err != nil {
		return 0
	}
	return n
}

func readDescriptors(dir string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, "descriptors"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, usbfs.MaxDescriptors))
}
