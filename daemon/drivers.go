package daemon

import (
	"log/slog"

	"farhand/bus"
	"farhand/config"
	"farhand/device"
	"farhand/gpio"
	"farhand/octoprint"
	"farhand/serialio"
	"farhand/sim"
	"farhand/usb"
)

// families lists every driver. A family without a service is listed and can't
// be used yet.
func families() []device.Family {
	return []device.Family{
		{Driver: serialio.Driver{}, Service: serialio.Service{}},
		{Driver: usb.Driver{}},
		{Driver: gpio.Driver{}},
		{Driver: bus.I2C{}, Service: bus.I2CService{}},
		{Driver: bus.SPI{}, Service: bus.SPIService{}},
		{Driver: octoprint.Driver{}},
	}
}

// newRegistry makes the registry of this machine's devices and, with a bench,
// of the simulated ones.
func newRegistry(c config.Config, bench *sim.Bench, log *slog.Logger) *device.Registry {
	all := families()
	if bench != nil {
		all = append(all, bench.Families()...)
	}
	return device.NewRegistry(device.Options{Families: all, Allow: c.HardwareAllow, Deny: c.HardwareDeny, Log: log})
}
