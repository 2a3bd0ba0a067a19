// Package stream holds what a device has to tell while nobody may be listening:
// bytes of a port, edges of a line, reports of a USB device. A [Stream] keeps
// the newest part in a ring, under offsets that never start again, and a [Hub]
// sends it to whoever is attached, as far as their credit reaches. A receiver
// that was away asks for what it lacks by offset; what the ring has lost by then
// is told as an explicit gap.
//
// Writers never wait for receivers. All methods are safe for concurrent use.
package stream
