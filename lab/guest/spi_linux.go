package guest

import (
	"path/filepath"
	"strings"
	"testing"
)

// SPIDevice is a real spidev: a bus that the kernel's spi-butterfly makes by
// hand of the lines of a parallel port, which the emulator has with nothing
// connected. So clock, chip select and every check of the kernel's are real,
// and what is read is always the same.
type SPIDevice struct {
	Path string // "/dev/spidev0.1"
	Bus  int
	Chip int
}

// SPI makes the device and takes it away after the test.
func SPI(t testing.TB) SPIDevice {
	t.Helper()
	Module(t, "parport_pc", "")
	Module(t, "spi_butterfly", "")
	sys := waitGlob(t, "the device of spi-butterfly", "/sys/bus/spi/devices/spi*")
	// Its only device is meant for a flash; spidev takes any that it is told to
	// (spi/spidev.rst of the kernel's documents, "driver_override").
	write(t, filepath.Join(sys, "driver_override"), "spidev")
	write(t, "/sys/bus/spi/drivers/spidev/bind", filepath.Base(sys))
	node := waitGlob(t, "a spidev", filepath.Join(sys, "spidev", "spidev*"))
	d := SPIDevice{Path: "/dev/" + filepath.Base(node)}
	WaitNode(t, d.Path)
	bus, chip, _ := strings.Cut(strings.TrimPrefix(filepath.Base(node), "spidev"), ".")
	d.Bus, d.Chip = number(t, bus), number(t, chip)
	return d
}
