// Package uapi is the kernel's GPIO character device without policy: ioctl
// numbers and structs of linux/gpio.h.
package uapi

// Chip is what a chip says about itself.
type Chip struct {
	Name  string // gpiochipN
	Label string
	Lines int
}
