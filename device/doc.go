// Package device says what a hardware device is and who may use it when.
//
// A Driver probes its own part of sysfs and yields Descriptors; it opens
// nothing. The Registry merges what all drivers see, gives every device a
// generation, resolves names and tells subscribers what came and went. Leases
// give a device to one session at a time. The Dispatcher brings the three
// together: it takes a HARDWARE_OP from name to result.
//
// A device is known by its canonical id, which survives replug, reboot and
// renumbering: it is made of what the hardware says about itself (a usable
// serial number, a GPIO chip's label) or else of where it is plugged in, never
// of a number that the kernel handed out in the order of discovery.
//
// Everything here may be used from several goroutines at once.
package device
