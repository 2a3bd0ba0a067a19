// Package gpio is the family of GPIO chips, on the kernel's character device
// of version 2 (Linux 5.10 and later).
//
// A chip is known by its label (pinctrl-bcm2711), never by its number, which
// has moved between kernels. Where the label isn't in sysfs, because the kernel
// was built without the old GPIO class, Probe asks the character device for it;
// that claims no line and changes nothing.
package gpio
