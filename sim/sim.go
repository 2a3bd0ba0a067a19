// Package sim is the bench of --sim: a believable board in one process, each
// family of it driven through the real service. Its serial instruments are real
// pseudo-terminals; its GPIO lines are wired together, its buses have a sensor, an
// EEPROM and a flash, its USB device echoes, its 3D printer is a server.
package sim

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"farhand/bus"
	"farhand/bus/bussim"
	"farhand/device"
	"farhand/device/simsysfs"
	"farhand/gpio"
	"farhand/gpio/gpiosim"
	"farhand/gpio/uapi"
	"farhand/octoprint"
	"farhand/octoprint/octosim"
	"farhand/serialio"
	"farhand/serialio/serialsim"
	"farhand/usb"
	"farhand/usb/usbsim"
)

// Bench is a running bench. Close it when done, after the leases on its devices
// have ended. Each part can be unplugged, plugged in and made to fail.
type Bench struct {
	Serial  *serialsim.Bench
	GPIO    *gpiosim.Bench
	Lines   *gpio.Service // on GPIO: its Recover is to be called at the start
	Buses   *bussim.Bench
	USB     *usbsim.Bench
	Printer *octosim.Bench
	Label   *octosim.LabelPrinter

	families []device.Family
	closers  []io.Closer
}

// Options configure a Bench.
type Options struct {
	// Dir holds the bench's sysfs. Open makes it and Close removes it; what an
	// earlier bench left there goes first.
	Dir string
	// Files is what PRINTER_UPLOAD reads; nil: it isn't offered.
	Files octoprint.Files
	// Ledger, Store and Actuators are those of gpio.ServiceOptions. What the store
	// has kept of a bench is of no use to the next one, which is another board.
	Ledger    *gpio.Ledger
	Store     gpio.FDStore
	Actuators []string
	Log       *slog.Logger
}

// removal removes a directory.
type removal string

func (r removal) Close() error { return os.RemoveAll(string(r)) }

// Open makes a bench.
func Open(o Options) (_ *Bench, err error) {
	b := &Bench{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("simulated devices: %w", err)
	}
	b.closers = append(b.closers, removal(o.Dir))
	fs, err := simsysfs.Bench(o.Dir)
	if err != nil {
		return nil, err
	}
	if b.Buses, err = bussim.Standard(fs); err != nil {
		return nil, err
	}
	if b.Serial, err = serialsim.New(serialsim.Standard(), o.Log); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, b.Serial)
	if b.Printer, err = octosim.New(octosim.Options{Files: o.Files, Log: o.Log}); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, b.Printer)
	b.USB = usbsim.New(usbsim.Standard(), o.Log)
	b.closers = append(b.closers, b.USB)
	b.Label = octosim.NewLabelPrinter()
	noNode := func(string) (uapi.Chip, error) { return uapi.Chip{}, os.ErrNotExist }
	lines := gpio.Driver{FS: fs, Info: noNode}
	b.GPIO = gpiosim.Standard()
	b.Lines = gpio.NewService(gpio.ServiceOptions{
		Open: b.GPIO.Open, Adopt: b.GPIO.Adopt, FS: fs, Probe: lines,
		Ledger: o.Ledger, Store: o.Store, Actuators: o.Actuators, Log: o.Log,
	})
	b.closers = append(b.closers, b.Lines)
	b.families = []device.Family{
		{Driver: b.Serial, Service: serialio.Service{}},
		{Driver: lines, Service: b.Lines},
		{Driver: bus.I2C{FS: fs}, Service: bus.I2CService{FS: fs, Open: b.Buses.Open}},
		{Driver: bus.SPI{FS: fs}, Service: bus.SPIService{FS: fs, Open: b.Buses.Open}},
		{Driver: b.USB, Service: usb.NewService(b.USB, o.Log)},
		b.Printer.Family(),
		{Driver: octoprint.Driver{FS: fs}, Service: b.Label.Service()},
	}
	return b, nil
}

// OnChange has hook called after each plug and unplug, since the kernel reports
// none. The hook must not call the bench.
func (b *Bench) OnChange(hook func()) {
	b.Serial.OnChange(hook)
	b.USB.OnChange(hook)
	b.Printer.Servers.OnChange(hook)
}

// Families are the bench's drivers, for a device.Registry, before the real ones.
func (b *Bench) Families() []device.Family { return b.families }

// Close unplugs everything.
func (b *Bench) Close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i].Close())
	}
	return errors.Join(errs...)
}
