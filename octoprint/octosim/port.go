package octosim

import (
	"context"
	"sync"
	"time"

	"farhand/device"
	"farhand/octoprint"
	"farhand/octoprint/lp"
	"farhand/wire"
)

// keep is how much of what was printed a LabelPrinter remembers.
const keep = 64 << 10

// LabelPrinter is a USB printer-class port in memory: the one of the bench's
// label printer. Its Open is for octoprint.PortService.
type LabelPrinter struct {
	mu      sync.Mutex
	busy    bool
	gone    bool
	paper   bool // is out
	offline bool
	mute    bool
	stall   int // bytes until it takes no more; below 0: never
	printed []byte
	total   int
}

// NewLabelPrinter makes a printer that is online and has paper.
func NewLabelPrinter() *LabelPrinter { return &LabelPrinter{stall: -1} }

// PortFaults is what is wrong with a port.
type PortFaults struct {
	Unplugged bool
	Busy      bool // another program has it open
	PaperOut  bool
	Offline   bool
	Mute      bool // it tells neither id nor status
	// StallAfter makes it take no more after so many bytes; 0: it takes all.
	StallAfter int
}

// Set replaces the faults.
func (l *LabelPrinter) Set(f PortFaults) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.gone, l.paper, l.offline, l.mute, l.stall = f.Busy, f.Unplugged, f.PaperOut, f.Offline, f.Mute, -1
	if f.StallAfter > 0 {
		l.stall = l.total + f.StallAfter
	}
}

// Printed is what came last, at most 64 KiB of it, and how many bytes ever.
func (l *LabelPrinter) Printed() ([]byte, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]byte(nil), l.printed...), l.total
}

// Service serves the port.
func (l *LabelPrinter) Service() device.Service { return octoprint.PortService{Open: l.Open} }

// Open opens the port, for one at a time, as usblp does.
func (l *LabelPrinter) Open(node string) (octoprint.Port, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone:
		return nil, l.unplugged()
	case l.busy:
		return nil, wire.Errorf(wire.HardwareBusy, "another program has %s open", node).With("consumer", "another program")
	}
	l.busy = true
	return &labelPort{l: l}, nil
}

func (*LabelPrinter) unplugged() error {
	return wire.Errorf(wire.DeviceGone, "the simulated port was unplugged")
}

type labelPort struct {
	l    *LabelPrinter
	once sync.Once
}

func (p *labelPort) Close() error {
	p.once.Do(func() {
		p.l.mu.Lock()
		defer p.l.mu.Unlock()
		p.l.busy = false
	})
	return nil
}

func (p *labelPort) DeviceID() (map[string]string, error) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	switch {
	case p.l.gone:
		return nil, p.l.unplugged()
	case p.l.mute:
		return nil, wire.Errorf(wire.FeatureNotSupported, "the simulated port doesn't tell its device id").With("feature", "device id")
	}
	return lp.ParseID("MANUFACTURER:Brother;COMMAND SET:PT-CBP;MODEL:QL-700;CLASS:PRINTER;SERN:000M6Z401370;"), nil
}

func (p *labelPort) Status() (lp.Status, error) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	switch {
	case p.l.gone:
		return lp.Status{}, p.l.unplugged()
	case p.l.mute:
		return lp.Status{}, wire.Errorf(wire.FeatureNotSupported, "the simulated port doesn't tell its status").With("feature", "status")
	}
	return lp.Status{Online: !p.l.offline, PaperOut: p.l.paper, Fault: p.l.paper}, nil
}

// Write takes what the printer takes; one that has stalled lets it wait.
func (p *labelPort) Write(ctx context.Context, data []byte, timeout time.Duration) (int, error) {
	n, err := p.l.take(data)
	if err != nil || n == len(data) {
		return n, err
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-t.C:
		return n, wire.Errorf(wire.HardwareTransferFailed, "the printer took %d bytes and no more in time", n).With("bytes_partial", n).With("reason", "timeout")
	case <-ctx.Done():
		return n, context.Cause(ctx)
	}
}

func (l *LabelPrinter) take(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return 0, l.unplugged()
	}
	n := len(data)
	if l.stall >= 0 {
		n = min(n, max(0, l.stall-l.total))
	}
	l.total += n
	l.printed = append(l.printed, data[:n]...)
	l.printed = l.printed[max(0, len(l.printed)-keep):]
	return n, nil
}
