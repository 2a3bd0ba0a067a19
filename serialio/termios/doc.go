// Package termios is the kernel's face of a serial line, without policy:
// termios2 with any bit rate (Linux 2.6.20 and later), modem lines, break,
// queues, exclusive use, and making pseudo-terminals. Every function takes the
// descriptor of an open terminal and answers the kernel's own error.
package termios
