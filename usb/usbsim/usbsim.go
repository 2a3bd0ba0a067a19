// Package usbsim is a bench of simulated USB devices. It is a driver and a
// usb.Host like the real ones: endpoints with packets and halts, interfaces with
// kernel drivers that come back, strings that may be missing, and every fault
// that the field has shown, to be injected.
package usbsim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"

	"farhand/device"
	"farhand/usb"
	"farhand/wire"
)

// Model is one device of a bench.
type Model struct {
	// Name is what Unplug and the faults call it, and its serial number.
	Name         string
	VID, PID     uint16
	Manufacturer string
	Product      string
	// Interfaces are those of its one configuration.
	Interfaces []Interface
	// New makes what answers; it is called at each plug.
	New func() Gadget
}

// Interface is one setting of an interface of a model. Number and alternate
// setting are as in its descriptor.
type Interface struct {
	Number, Alternate         byte
	Class, SubClass, Protocol byte
	Endpoints                 []Endpoint
	// Driver is the kernel's driver that binds it. Interfaces in a row with the
	// same driver belong together: it binds them with the first, and lets go of
	// them all.
	Driver    string
	HIDReport int // bytes of its report descriptor, if it is a HID interface
}

// Endpoint is an endpoint of an interface.
type Endpoint struct {
	Address   byte
	Interrupt bool // else bulk
	MaxPacket int
}

// Gadget is what a device does. Its methods are called with the device locked.
type Gadget interface {
	// Control answers a request that isn't a standard one. data is what was
	// sent; the result is what is read. nil and EPIPE stall.
	Control(p *Port, s Setup, data []byte) ([]byte, error)
	// Out takes a packet or several that came to an endpoint; false: not now.
	Out(p *Port, endpoint byte, data []byte) bool
}

// Source is a Gadget that makes data when it is asked for.
type Source interface {
	// Ask is called when a transfer waits and nothing is there for it.
	Ask(p *Port, endpoint byte)
}

// Setup is the setup packet of a control transfer (USB 2.0, 9.3).
type Setup struct {
	RequestType, Request byte
	Value, Index         uint16
	Length               int
}

// Bench is a set of devices. It may be used from several goroutines.
type Bench struct {
	log *slog.Logger

	mu      sync.Mutex
	models  []Model
	faults  map[string]*faults // by name; they outlast a replug
	plugged map[string]*Port
	plugs   map[string]int
	changed func()
	closed  bool
}

var (
	_ device.Driver = (*Bench)(nil)
	_ usb.Host      = (*Bench)(nil)
)

// New makes a bench with every model plugged in. Close it when done. log may be
// nil.
func New(models []Model, log *slog.Logger) *Bench {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Bench{
		log: log, models: slices.Clone(models), faults: make(map[string]*faults),
		plugged: make(map[string]*Port), plugs: make(map[string]int),
	}
	for _, m := range models {
		b.faults[m.Name] = newFaults()
		b.plug(m)
	}
	return b
}

// ID is the id of the model with this name.
func (b *Bench) ID(name string) string {
	for _, m := range b.models {
		if m.Name == name {
			return m.id()
		}
	}
	return ""
}

func (m Model) model() string { return fmt.Sprintf("usb:%04x:%04x", m.VID, m.PID) }
func (m Model) id() string    { return m.model() + "-" + device.IDPart(m.Name) }

// Type is "usb".
func (*Bench) Type() string { return device.USB }

// Probe lists what is plugged in.
func (b *Bench) Probe(ctx context.Context) ([]device.Descriptor, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []device.Descriptor
	for _, m := range b.models {
		p := b.plugged[m.Name]
		if p == nil {
			continue
		}
		drivers, class := p.summary()
		all = append(all, device.Descriptor{
			HardwareDevice: wire.HardwareDevice{
				Type: device.USB, ID: m.id(), Desc: strings.TrimSpace(m.Manufacturer + " " + m.Product),
				VID: fmt.Sprintf("%04x", m.VID), PID: fmt.Sprintf("%04x", m.PID),
				Manufacturer: m.Manufacturer, Product: m.Product, SerialNumber: m.Name,
				DeviceClass: class, Driver: strings.Join(drivers, ","),
				Aliases: []string{m.model()}, Available: true,
			},
			Instance: fmt.Sprint(b.plugs[m.Name]),
		})
	}
	return all, nil
}

// OnChange has hook called after each plug and unplug, since the kernel reports
// none. The hook must not call the bench.
func (b *Bench) OnChange(hook func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = hook
}

// plug is called with mu, or before anybody else knows b.
func (b *Bench) plug(m Model) {
	b.plugs[m.Name]++
	b.plugged[m.Name] = newPort(m, b.faults[m.Name])
	b.log.Debug("simulated USB device", "device", m.id())
}

// Replug plugs a device in, if it isn't.
func (b *Bench) Replug(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.models, func(m Model) bool { return m.Name == name })
	switch {
	case b.closed:
		return fs.ErrClosed
	case i < 0:
		return fmt.Errorf("no simulated USB device %q", name)
	case b.plugged[name] != nil:
		return nil
	}
	b.plug(b.models[i])
	if b.changed != nil {
		b.changed()
	}
	return nil
}

// Unplug takes a device away, whoever uses it.
func (b *Bench) Unplug(name string) {
	b.mu.Lock()
	p, changed := b.plugged[name], b.changed
	delete(b.plugged, name)
	b.mu.Unlock()
	if p == nil {
		return
	}
	p.pull()
	if changed != nil {
		changed()
	}
}

// Close unplugs everything. It may be repeated.
func (b *Bench) Close() error {
	b.mu.Lock()
	b.closed = true
	names := make([]string, 0, len(b.plugged))
	for name := range b.plugged {
		names = append(names, name)
	}
	b.mu.Unlock()
	for _, name := range names {
		b.Unplug(name)
	}
	return nil
}

// Port is the device that is plugged in under a name; nil: none.
func (b *Bench) Port(name string) *Port {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plugged[name]
}

func (b *Bench) find(d device.Descriptor) *Port {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.models {
		if m.id() == d.ID && fmt.Sprint(b.plugs[m.Name]) == d.Instance {
			return b.plugged[m.Name]
		}
	}
	return nil
}

// Look tells what the system would know of a device.
func (b *Bench) Look(d device.Descriptor) (usb.Look, error) {
	p := b.find(d)
	if p == nil {
		return usb.Look{}, fmt.Errorf("looking at %s: %w", d.ID, fs.ErrNotExist)
	}
	return p.look(), nil
}

// Open opens a device.
func (b *Bench) Open(d device.Descriptor) (usb.Handle, error) {
	p := b.find(d)
	if p == nil {
		return nil, fmt.Errorf("opening %s: %w", d.ID, syscall.ENODEV)
	}
	h, err := p.open()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", d.ID, err)
	}
	return h, nil
}

// isStall says whether a gadget's answer is a stall.
func isStall(data []byte, err error) bool {
	return errors.Is(err, syscall.EPIPE) || data == nil && err == nil
}
