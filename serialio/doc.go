// Package serialio is the family of serial ports: on-board UARTs, USB bridges
// and CDC ACM devices, found in sysfs and driven through a pollable file, so
// that every wait has an end and Close unblocks both ways.
//
// A port has one user: an in-process lease above this package, flock against
// other careful programs, and TIOCEXCL against the rest (root excepted).
//
// Opening a port raises DTR and RTS inside the kernel, which resets many
// boards once; HUPCL is cleared, so that they stay up when the port is closed
// and the next open changes nothing. What is wanted instead is chosen at each
// open (Reset), and what may have happened is said (Port.Opened).
//
// An open port receives all the time, into a ring: what came while nobody read
// is there for the next Read, and any number of followers see the same bytes,
// each from the offset that it asks for. What the ring has lost is said as a
// number of bytes. So a slow reader never holds up the port.
//
// All methods of a Port are safe for concurrent use: reads take turns, and so
// do writes. Close ends all that waits, and waits for it.
package serialio
