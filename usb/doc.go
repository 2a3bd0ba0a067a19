// Package usb is the family of USB devices, on usbfs without libusb. A Driver
// finds what is on the bus in sysfs, without opening anything; a Service
// describes devices and moves data by control, bulk and interrupt transfers,
// through a Host: System on a real machine, usbsim on a bench.
//
// A device has one user at a time. An operation claims the interface that it
// needs; an interface that a driver of the kernel has is left to it, unless the
// caller asks for it to be detached and may. What was detached is attached
// again when the lease ends, and at once when the operation fails. A daemon that
// is killed can't do that: then the device is to be replugged, or its driver
// bound through sysfs. The configuration is never set, but by USB_CONFIGURE.
//
// A Service may be used from several goroutines at once, and so may a Handle.
package usb
