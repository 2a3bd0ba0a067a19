// Package serialio is the family of serial ports: on-board UARTs, USB bridges
// and CDC ACM devices, found in sysfs and driven through a pollable file, so
// that every wait has an end and Close unblocks both ways.
//
// A port has one user: an in-process lease above this package, flock against
// other careful programs, and TIOCEXCL against the rest (root excepted).
//
// Opening a port raises DTR and RTS inside the kernel, which resets many
// boards once; HUPCL is cleared, so that they stay up when the port is closed
// and the next open changes nothing.
//
// A Port may be read by one goroutine and written by another at a time; Close
// may be called from any.
package serialio
