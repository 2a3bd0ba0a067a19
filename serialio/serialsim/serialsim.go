// Package serialsim is a bench of simulated serial instruments on
// pseudo-terminals. It is a driver like any other: what it lists are real
// terminals, opened, set and read by serialio's own code.
package serialsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"

	"farhand/device"
	"farhand/serialio/termios"
	"farhand/wire"
)

// Instrument is what answers at the far end of a simulated port. Serve runs
// until reading or writing fails, which it does when the port is unplugged.
type Instrument interface {
	Serve(line io.ReadWriter)
}

// Model is one instrument of a bench.
type Model struct {
	Name string // the id is serial:NAME
	Desc string
	New  func() Instrument // called at each plug: an instrument starts afresh
}

// Standard is what --sim has: a board with a console to log in at, a power
// supply that speaks SCPI, and an echo.
func Standard() []Model {
	return []Model{
		{Name: "sim-console", Desc: "Simulated board console", New: func() Instrument { return &Console{} }},
		{Name: "sim-echo", Desc: "Simulated echo", New: func() Instrument { return Echo{} }},
		{Name: "sim-scpi", Desc: "Simulated SCPI power supply", New: func() Instrument { return NewSupply() }},
	}
}

// Bench is a set of instruments. It may be used from several goroutines.
type Bench struct {
	log *slog.Logger

	mu      sync.Mutex
	models  []Model
	changed func()
	plugged map[string]*port
	plugs   map[string]int // how often each was plugged in
	closed  bool
}

// port is one plugged-in instrument.
type port struct {
	master   *os.File
	terminal *os.File // keeps the terminal open between its users
	path     string
	line     *line         // master as the instrument sees it
	done     chan struct{} // closed when the instrument has ended
}

var _ device.Driver = (*Bench)(nil)

// New makes a bench with every model plugged in. Close it when done.
func New(models []Model, log *slog.Logger) (*Bench, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Bench{log: log, models: slices.Clone(models), plugged: make(map[string]*port), plugs: make(map[string]int)}
	for _, m := range models {
		if err := b.Replug(m.Name); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// Type is "serial".
func (*Bench) Type() string { return device.Serial }

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
		all = append(all, device.Descriptor{
			HardwareDevice: wire.HardwareDevice{
				Type: device.Serial, ID: "serial:" + m.Name, Desc: m.Desc, Port: p.path, Driver: "simulated",
				Aliases: []string{p.path}, Available: true,
			},
			Node: p.path, Instance: fmt.Sprint(b.plugs[m.Name]),
		})
	}
	return all, nil
}

// Unplug takes an instrument away: who has its terminal open sees it hung up.
func (b *Bench) Unplug(name string) {
	b.mu.Lock()
	p, changed := b.plugged[name], b.changed
	delete(b.plugged, name)
	b.mu.Unlock()
	if p == nil {
		return
	}
	p.close()
	if changed != nil {
		changed()
	}
}

// OnChange has hook called after each plug and unplug, since the kernel reports
// none. The hook must not call the bench.
func (b *Bench) OnChange(hook func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = hook
}

// Replug plugs an instrument in, if it isn't.
func (b *Bench) Replug(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.models, func(m Model) bool { return m.Name == name })
	switch {
	case b.closed:
		return fs.ErrClosed
	case i < 0:
		return fmt.Errorf("no simulated instrument %q", name)
	case b.plugged[name] != nil:
		return nil
	}
	p, err := plug(b.models[i].New())
	if err != nil {
		return fmt.Errorf("simulated instrument %s: %w", name, err)
	}
	b.plugged[name] = p
	b.plugs[name]++
	b.log.Debug("simulated instrument", "name", name, "terminal", p.path)
	if b.changed != nil {
		b.changed()
	}
	return nil
}

// Close unplugs everything and waits until every instrument has ended.
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

// plug makes a terminal and has the instrument serve it.
func plug(i Instrument) (*port, error) {
	master, path, err := termios.OpenPTY()
	if err != nil {
		return nil, err
	}
	terminal, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err == nil {
		err = raw(terminal)
	}
	if err != nil {
		master.Close()
		if terminal != nil {
			terminal.Close()
		}
		return nil, fmt.Errorf("preparing %s: %w", path, err)
	}
	p := &port{master: master, terminal: terminal, path: path, line: &line{end: master}, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		i.Serve(p.line)
	}()
	return p, nil
}

// raw makes a terminal pass bytes as they are before its first user does, so
// that nothing is echoed back at the instrument.
func raw(terminal *os.File) error {
	conn, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	err = conn.Control(func(fd uintptr) { opErr = termios.Raw(int(fd)) })
	return errors.Join(err, opErr)
}

func (p *port) close() {
	p.master.Close() // hangs the terminal up and ends the instrument
	p.line.unplug()
	p.terminal.Close()
	<-p.done
}
