// Package bus is the families of I2C and SPI: their buses as the kernel's
// i2c-dev and spidev modules offer them.
//
// A bus is known by its number. Unlike others it is no accident of discovery:
// the device tree gives it (i2c1, spi0), and every guide for a board names it.
//
// An I2C bus is used chip by chip: its parts are addresses, each with a holder
// of its own, so two sessions may use two chips of one bus. A transaction is one
// call to the kernel, which lets no other come between, from here or from
// another program. An address that a kernel driver has is refused with the
// driver's name, and nothing here can force it. An SPI chip select is one
// device.
//
// Nothing is ever sent twice. A chip that didn't acknowledge may have taken part
// of what was written, and only the caller knows whether to write it again.
//
// An adapter behind a USB bridge isn't gone for the kernel before every open file
// of it is closed: the thread that handles hubs waits for that. A lease ends, and
// closes its file, as soon as the kernel says that the device is being removed.
//
// An opened bus is an i2c.BusCloser, and an opened chip select an
// spi.PortCloser, of periph.io, so that periph's device drivers and test doubles
// work on them. The two buses of periph's own host/sysfs aren't used: they give
// the kernel addresses of variables on the goroutine's stack as plain numbers,
// which are stale if the stack grows before the call; what the kernel answers
// comes back as text instead of an errno; a transaction has at most two messages,
// an SPI segment neither speed nor delay, and a chip select no polarity; and the
// paths are fixed. So i2cdev and spidev are faces of our own.
package bus
