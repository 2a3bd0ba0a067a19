// Package ioctl is the seam between the faces of i2c-dev and spidev and the
// kernel: a device node that takes requests. A simulated bus stands behind the
// same seam and reads the same structures, so that what is tested there is what
// a kernel gets.
package ioctl

import "unsafe"

// Node is an opened device node.
//
// Failures of the kernel are syscall.Errno. A node is not to be used after
// Close, and Close waits for what runs.
type Node interface {
	// Set runs a request whose argument is a number.
	Set(req uint32, value uintptr) error
	// Call runs a request whose argument is a structure, and answers what the
	// kernel returned. Pointers that stand in the structure as numbers must be
	// pinned by the caller.
	Call(req uint32, arg unsafe.Pointer) (int, error)
	Close() error
}

// The directions of a request, from asm-generic/ioctl.h, which holds for every
// architecture that farhandd is built for.
const (
	dirWrite = 1
	dirRead  = 2
)

// Write is _IOW(kind, number, size).
func Write(kind, number byte, size uintptr) uint32 { return request(dirWrite, kind, number, size) }

// Read is _IOR(kind, number, size).
func Read(kind, number byte, size uintptr) uint32 { return request(dirRead, kind, number, size) }

func request(dir uint32, kind, number byte, size uintptr) uint32 {
	return dir<<30 | uint32(size)<<16 | uint32(kind)<<8 | uint32(number)
}
