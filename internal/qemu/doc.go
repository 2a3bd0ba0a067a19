// Package qemu runs the emulator QEMU: it starts the program with sockets on
// which somebody listens already, so that no byte of the guest is lost, and
// speaks its control protocol QMP.
package qemu
