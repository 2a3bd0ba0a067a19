// Package usbfs speaks to USB devices through the kernel's device nodes
// /dev/bus/usb/BBB/DDD, without libusb: descriptors as the kernel keeps them,
// interfaces claimed and released, transfers as URBs that can be cancelled. It
// has no policy: it does what it is told, and errors are the kernel's
// (syscall.Errno), wrapped with what and which.
//
// The interface is that of include/uapi/linux/usbdevice_fs.h. It needs a Linux
// that reaps what was under way when a device was unplugged
// (USBDEVFS_CAP_REAP_AFTER_DISCONNECT): any since 4.0.
// Descriptors are those of USB 2.0 chapter 9, USB 3.2 chapter 9 and HID 1.11.
//
// A File may be used from several goroutines at once. What is under way on one
// endpoint ends in the order in which it was begun.
package usbfs
