// Package spidev is the kernel's spidev interface: the ioctls of
// /dev/spidevB.C as linux/spi/spidev.h defines them, and no policy. The kernel
// is 4.19 or later.
//
// Mode, word size and speed belong to the chip select, not to the open file:
// every program that has it open shares them.
package spidev
