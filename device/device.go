package device

import (
	"context"

	"farhand/wire"
)

// The types of devices, as they stand in HELLO.hardware_devices.
const (
	Serial  = "serial"
	USB     = "usb"
	GPIO    = "gpio"
	I2C     = "i2c"
	SPI     = "spi"
	Printer = "printer"
)

// NoDriverYet is the reason of a device whose family can be listed but not
// used.
const NoDriverYet = "no driver yet"

// Descriptor is one device as a driver sees it: what goes over the wire, and
// what it takes to open it, which doesn't.
type Descriptor struct {
	wire.HardwareDevice // Generation is the Registry's to fill

	// Node is the path to open: empty if there is none. It may differ from
	// Port, which is what a person knows the device by.
	Node string
	// SysPath is the device's directory in sysfs: empty for a simulated one.
	SysPath string
	// Instance differs between two appearances of a device with the same id.
	// It shows a replug that happened between two probes.
	Instance string
}

// Driver finds the devices of one family.
type Driver interface {
	// Type is the type of every device that Probe returns.
	Type() string
	// Probe lists the devices that are present now. It reads sysfs alone and
	// opens no device, is cheap enough to be repeated at every change, and
	// answers ctx's error once ctx is done. That a part of sysfs is missing
	// is no error: then there are no devices. What could be found is returned
	// beside an error.
	Probe(ctx context.Context) ([]Descriptor, error)
}

// Family is a driver and what serves the devices that it finds. Without a
// Service they are listed as unavailable, with NoDriverYet as the reason.
type Family struct {
	Driver  Driver
	Service Service
}
