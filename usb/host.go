package usb

import (
	"context"

	"farhand/device"
	"farhand/usb/usbfs"
)

// Host is where devices are looked at and opened: the seam between what the
// operations mean and what carries them out.
type Host interface {
	// Look tells what is known of a device without asking it.
	Look(d device.Descriptor) (Look, error)
	// Open opens a device. It claims nothing. The error has a kernel's code in
	// its chain (syscall.Errno): ENOENT without a node, EACCES, ENODEV.
	Open(d device.Descriptor) (Handle, error)
}

// Look is what the system knows of a device.
type Look struct {
	Descriptors []byte  // as the device gave them: see usbfs.Parse
	Active      int     // value of the configuration that is set; 0: none
	SpeedMbps   float64 // 0: not known

	// Strings that the system read when the device was plugged in; empty where
	// there is none, or it couldn't be read.
	Manufacturer, Product, Serial, Configuration string

	Interfaces map[int]LookInterface // of the active configuration, by number
}

// LookInterface is what the system knows of an interface.
type LookInterface struct {
	Driver    string // that has it; empty: none
	Name      string // string of the current setting
	Alternate int    // the setting that is current
}

// Handle is an open device. Its errors have a kernel's code in their chain. It
// may be used from several goroutines at once.
type Handle interface {
	// Gone says whether the device was unplugged.
	Gone() bool
	// LongTransfers says whether one transfer may be of any length; otherwise
	// of up to 16 KiB.
	LongTransfers() bool
	// Driver names what has an interface: "usbfs" for a program, empty for
	// nothing.
	Driver(iface int) (string, error)
	// Claim takes an interface; EBUSY if anything has it.
	Claim(iface int) error
	// DetachAndClaim takes it away from a driver of the kernel; EBUSY if a
	// program has it.
	DetachAndClaim(iface int) error
	// Release gives a claimed interface back and cancels what is under way on it.
	Release(iface int) error
	// Attach lets the kernel's drivers have an interface that nothing has.
	Attach(iface int) error
	SetInterface(iface, alternate int) error
	SetConfiguration(value int) error
	ClearHalt(endpoint byte) error
	// Reset resets the device, and ends all claims. ENODEV if another device
	// comes of it.
	Reset() error
	// Submit begins a transfer: see usbfs.File.Submit. What is under way on one
	// endpoint ends in the order in which it was begun.
	Submit(kind usbfs.Kind, endpoint byte, data []byte, zero bool) (Transfer, error)
	// Close cancels what is under way, waits for it, and gives all back. It may
	// be repeated.
	Close() error
}

// Transfer is a transfer under way: see usbfs.Transfer.
type Transfer interface {
	// Wait waits for the end and answers how many bytes went over. If ctx is
	// done first the transfer is cancelled, and the error is ctx's cause.
	Wait(ctx context.Context) (int, error)
	// Cancel ends it early. Wait must be called all the same.
	Cancel()
}
