// Package termios is the kernel's face of a serial line, without policy:
// termios2 with any bit rate (Linux 2.6.20 and later), modem lines, break,
// queues, exclusive use, and making pseudo-terminals. Every function takes the
// descriptor of an open terminal and answers the kernel's own error.
package termios

// The modem lines, as bits of Modem and SetModem (TIOCM_* of
// asm-generic/termios.h, the same on amd64 and arm64).
const (
	DTR = 0x002
	RTS = 0x004
	CTS = 0x020
	DCD = 0x040
	RI  = 0x080
	DSR = 0x100
)
