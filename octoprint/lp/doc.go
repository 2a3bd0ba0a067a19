// Package lp is the kernel's face of USB printer-class ports, /dev/usb/lp*:
// usblp's ioctls and its way of writing, without policy. Sources:
// drivers/usb/class/usblp.c, include/uapi/linux/lp.h, the USB Device Class
// Definition for Printing Devices 1.1, and IEEE 1284-2000 section 7.6 for the
// device id.
//
// usblp lets one file at a time be open. A Port may be used by one goroutine at
// a time; Close may be called from any.
package lp
