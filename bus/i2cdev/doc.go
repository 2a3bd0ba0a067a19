// Package i2cdev is the kernel's i2c-dev interface: the ioctls of /dev/i2c-N as
// linux/i2c-dev.h and linux/i2c.h define them, and no policy. It has the plain
// transfers (I2C_RDWR) and those of SMBus (I2C_SMBUS), which not every adapter
// has both of; Funcs says. The kernel is 4.19 or later.
//
// The kernel serialises transactions on an adapter, also between several open
// files of it. The address that SMBus calls go to belongs to the open file: one
// Bus is used by one caller at a time.
package i2cdev
