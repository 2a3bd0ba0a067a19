package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"farhand/bus"
	"farhand/device"
	"farhand/gpio"
	"farhand/internal/version"
	"farhand/octoprint"
	"farhand/octoprint/discover"
	"farhand/serialio"
	"farhand/sim"
	"farhand/systemd"
	"farhand/usb"
)

// openFamilies lists every driver with what serves its devices, and has done
// what an earlier life of the daemon owes the world.
func (d *services) openFamilies(ctx context.Context, o Options) ([]device.Family, error) {
	lines, err := d.openLines(ctx, o)
	if err != nil {
		return nil, err
	}
	printers, err := d.openPrinters(ctx, o)
	if err != nil {
		return nil, err
	}
	families := []device.Family{
		{Driver: serialio.Driver{}, Service: serialio.Service{}},
		{Driver: usb.Driver{}, Service: usb.NewService(usb.System{}, o.Log)},
		{Driver: gpio.Driver{}, Service: lines},
		{Driver: bus.I2C{}, Service: bus.I2CService{}},
		{Driver: bus.SPI{}, Service: bus.SPIService{}},
		{Driver: printers, Service: printers},
		{Driver: octoprint.Driver{}, Service: octoprint.PortService{}},
	}
	if !o.Config.Sim {
		return families, nil
	}
	bench, err := d.openBench(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("simulated bench: %w", err)
	}
	// First, so that an id that both have is the bench's: who asks for a bench must
	// not drive a real line by the name that the bench shows.
	return append(bench.Families(), families...), nil
}

// openLines is the service of GPIO lines. Outputs that an earlier life has left
// are as their on_release says before it returns.
func (d *services) openLines(ctx context.Context, o Options) (*gpio.Service, error) {
	s := gpio.NewService(gpio.ServiceOptions{
		Ledger: d.openLedger(o, "gpio.json"), Store: store(o), Restored: d.restored, Actuators: o.Config.Actuators, Log: o.Log,
	})
	d.closers = append(d.closers, s)
	d.recoverLines(ctx, s)
	return s, nil
}

// openLedger opens a ledger of outputs. One that is damaged is put aside and
// told: a machine that can't be reached any more is worse than a lamp that stays.
func (d *services) openLedger(o Options, name string) *gpio.Ledger {
	path := filepath.Join(o.Config.StateDir, name)
	if d.identity.Changed { // what another board held says nothing about the wires of this one
		if err := os.Rename(path, path+".other-board"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.log.Error("the other board's outputs can't be set aside", "error", err)
			return nil
		}
	}
	ledger, err := gpio.OpenLedger(path)
	if err != nil {
		d.log.Error("what became of the outputs of an earlier start is not known", "error", err)
	}
	return ledger
}

// recoverLines does what an earlier life has left undone, as far as it can be.
func (d *services) recoverLines(ctx context.Context, s *gpio.Service) {
	if err := s.Recover(ctx); err != nil {
		d.log.Error("an output of an earlier start could not be given back as it should", "error", err)
	}
}

// store is the service manager's, or nil where none started us.
func store(o Options) gpio.FDStore {
	if s := systemd.NewStore(getenv(o.Environ, "NOTIFY_SOCKET")); s != nil {
		return s
	}
	return nil
}

// coolTime is how long the start waits for heaters to be switched off that an
// earlier life has left on. A printer that doesn't answer is tried on.
const coolTime = 3 * time.Second

func (d *services) openPrinters(ctx context.Context, o Options) (*octoprint.Servers, error) {
	options := octoprint.Options{
		StateDir: o.Config.StateDir, Files: (*uploads)(&d.live), App: "Farhand on " + o.Config.DisplayName,
		UserAgent: "farhandd/" + version.String(), Log: o.Log,
	}
	for _, p := range o.Config.Printers {
		options.Printers = append(options.Printers, octoprint.Printer{Name: p.Name, URL: p.URL, KeyFile: p.KeyFile})
	}
	if o.Config.PrinterDiscovery {
		options.Browse = discover.Browse
	}
	s, err := octoprint.NewServers(options)
	if err != nil {
		return nil, &ConfigError{fmt.Errorf("hardware.printers: %w", err)}
	}
	d.closers = append(d.closers, s)
	d.changing = append(d.changing, s.OnChange)
	ctx, cancel := context.WithTimeout(ctx, coolTime)
	defer cancel()
	s.Recover(ctx)
	return s, nil
}

func (d *services) openBench(ctx context.Context, o Options) (*sim.Bench, error) {
	b, err := sim.Open(sim.Options{
		Dir: filepath.Join(o.Config.StateDir, "sim"), Files: (*uploads)(&d.live),
		Ledger: d.openLedger(o, "gpio-sim.json"), Store: store(o), Actuators: o.Config.Actuators, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, b)
	d.changing = append(d.changing, b.OnChange)
	d.recoverLines(ctx, b.Lines)
	return b, nil
}

// uploads opens what a session sends to a printer, inside the session's root.
type uploads live

// Open opens a file of a session for reading.
func (u *uploads) Open(ctx context.Context, session, path string) (io.ReadCloser, int64, error) {
	s, err := (*live)(u).find(session)
	if err != nil {
		return nil, 0, err
	}
	return s.openFile(ctx, path)
}
