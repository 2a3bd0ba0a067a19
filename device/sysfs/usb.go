package sysfs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"farhand/device"
)

// USBDevice is a device on the bus, with the strings as it reports them.
type USBDevice struct {
	Dir  string // real path in sysfs
	Path string // where it is plugged in: bus, then ports, such as 1-1.2
	VID  string // four hex digits, lower case
	PID  string
	// Class is bDeviceClass, two hex digits; 00 means that each interface has
	// its own.
	Class        string
	Serial       string
	Manufacturer string
	Product      string
	Bus, Num     string // decimal, as in /dev/bus/usb
	instance     string // of Dir
	unique       bool   // no other device has the same vid, pid and serial
}

// usbDevice is the form of a device's name in /sys/bus/usb/devices; interfaces
// have a colon, root hubs are called usbN.
var usbDevice = regexp.MustCompile(`^[0-9]+-[0-9]+(\.[0-9]+)*$`)

// hex4 is how the kernel prints vid and pid.
var hex4 = regexp.MustCompile(`^[0-9a-f]{4}$`)

// USB lists the devices on all buses, by name, without root hubs.
func (f FS) USB() ([]USBDevice, error) {
	names, err := f.List("bus/usb/devices")
	if err != nil {
		return nil, err
	}
	var all []USBDevice
	count := make(map[string]int)
	for _, name := range names {
		if !usbDevice.MatchString(name) {
			continue
		}
		dir := Real(filepath.Join(f.Dir("bus/usb/devices"), name))
		if dir == "" {
			continue // unplugged while we look
		}
		d := USBDevice{
			Dir: dir, Path: name, instance: Instance(dir),
			PID:          strings.ToLower(Attr(dir, "idProduct")),
			Class:        strings.ToLower(Attr(dir, "bDeviceClass")),
			Serial:       Attr(dir, "serial"),
			Manufacturer: Attr(dir, "manufacturer"),
			Product:      Attr(dir, "product"),
			Bus:          Attr(dir, "busnum"),
			Num:          Attr(dir, "devnum"),
		}
		// Of a device that is going away the kernel removes this one before the
		// serial number and what else makes an id: read last, it says that all
		// was there.
		d.VID = strings.ToLower(Attr(dir, "idVendor"))
		if !hex4.MatchString(d.VID) || !hex4.MatchString(d.PID) {
			continue
		}
		count[d.likeness()]++
		all = append(all, d)
	}
	for i := range all {
		all[i].unique = count[all[i].likeness()] == 1
	}
	return all, nil
}

func (d USBDevice) likeness() string { return d.VID + ":" + d.PID + "-" + device.IDPart(d.Serial) }

// Model is vid:pid.
func (d USBDevice) Model() string { return d.VID + ":" + d.PID }

// ID is vid:pid-SERIAL where the serial number tells this device from others,
// else vid:pid@PATH.
func (d USBDevice) ID() string {
	if d.HasSerial() && d.unique {
		return d.likeness()
	}
	return d.ByPath()
}

// ByPath is vid:pid@PATH: what is plugged in where.
func (d USBDevice) ByPath() string { return d.Model() + "@" + d.Path }

// BySerial is vid:pid-SERIAL, also where several devices have that; empty
// without a usable serial number.
func (d USBDevice) BySerial() string {
	if !d.HasSerial() {
		return ""
	}
	return d.likeness()
}

// HasSerial says whether the serial number is one that a maker would give once.
func (d USBDevice) HasSerial() bool { return device.UsableSerial(d.Serial) }

// Instance differs with each enumeration.
func (d USBDevice) Instance() string { return d.instance + "/" + d.Bus + "." + d.Num }

// Describe names the device for a person, from what strings there are.
func (d USBDevice) Describe() string {
	maker, product := device.Clean(d.Manufacturer), device.Clean(d.Product)
	switch {
	case product == "" && maker == "":
		return "USB device " + d.Model()
	case product == "":
		return maker + " device " + d.Model()
	}
	if first, _, _ := strings.Cut(maker, " "); strings.HasPrefix(strings.ToLower(product), strings.ToLower(first)) {
		return product // Arduino (www.arduino.cc), Arduino Uno
	}
	return maker + " " + product
}

// Interfaces are the directories of the device's interfaces, sorted.
func (d USBDevice) Interfaces() []string {
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return nil // unplugged while we look
	}
	var dirs []string
	for _, e := range entries {
		if _, number, ok := strings.Cut(e.Name(), ":"); ok && interfaceNumber.MatchString(number) {
			dirs = append(dirs, filepath.Join(d.Dir, e.Name()))
		}
	}
	return dirs
}

// Above finds the USB device and the interface that a directory of sysfs lies
// in, among devices. The interface is named as after the colon of its
// directory: configuration and number, such as 1.0; empty if dir is the device.
func (f FS) Above(dir string, devices []USBDevice) (dev USBDevice, iface string, found bool) {
	f.Parents(dir, func(dir string) bool {
		for _, d := range devices {
			if d.Dir == dir {
				dev, found = d, true
				return true
			}
		}
		if _, after, ok := strings.Cut(filepath.Base(dir), ":"); ok && iface == "" && interfaceNumber.MatchString(after) {
			iface = after
		}
		return false
	})
	if !found {
		iface = ""
	}
	return dev, iface, found
}

// interfaceNumber is configuration.interface.
var interfaceNumber = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)
