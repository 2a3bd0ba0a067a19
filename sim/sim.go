// Package sim is the bench of --sim: serial instruments on pseudo-terminals,
// driven by the real code, and a small sysfs whose other devices the real
// drivers list.
package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"farhand/bus"
	"farhand/bus/bussim"
	"farhand/device"
	"farhand/device/simsysfs"
	"farhand/gpio"
	"farhand/gpio/uapi"
	"farhand/octoprint"
	"farhand/serialio"
	"farhand/serialio/serialsim"
	"farhand/usb"
)

// Bench is a running bench. Close it when done.
type Bench struct {
	// Serial has the instruments, to be unplugged and plugged in.
	Serial *serialsim.Bench
	// Buses has the I2C and SPI buses, to be unplugged, plugged in and made to fail.
	Buses *bussim.Bench

	dir      string
	families []device.Family
}

// Open makes a bench. It keeps its sysfs in dir, which it makes and Close
// removes; what an earlier bench left there goes first.
func Open(dir string, log *slog.Logger) (*Bench, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("simulated devices: %w", err)
	}
	fs, err := simsysfs.Bench(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	buses, err := bussim.Standard(fs)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	instruments, err := serialsim.New(serialsim.Standard(), log)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	noNode := func(string) (uapi.Chip, error) { return uapi.Chip{}, os.ErrNotExist }
	return &Bench{Serial: instruments, Buses: buses, dir: dir, families: []device.Family{
		{Driver: instruments, Service: serialio.Service{}},
		{Driver: gpio.Driver{FS: fs, Info: noNode}},
		{Driver: bus.I2C{FS: fs}, Service: bus.I2CService{FS: fs, Open: buses.Open}},
		{Driver: bus.SPI{FS: fs}, Service: bus.SPIService{FS: fs, Open: buses.Open}},
		{Driver: usb.Driver{FS: fs}},
		{Driver: octoprint.Driver{FS: fs}},
	}}, nil
}

// Families are the bench's drivers, for a device.Registry, after the real ones.
func (b *Bench) Families() []device.Family { return b.families }

// Close unplugs everything.
func (b *Bench) Close() error { return errors.Join(b.Serial.Close(), os.RemoveAll(b.dir)) }
