package octoprint

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"time"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/octoprint/lp"
	"farhand/wire"
)

const (
	maxData      = 1 << 20
	defaultWrite = 10 * time.Second
)

// PortService serves the USB printer-class ports: PRINTER_STATUS and
// PRINTER_COMMAND with data. The zero value uses this machine's.
type PortService struct {
	// Open opens a port; nil: lp.Open.
	Open func(node string) (Port, error)
}

// Port is an open port, as lp.Port is one.
type Port interface {
	Status() (lp.Status, error)
	DeviceID() (map[string]string, error)
	Write(ctx context.Context, data []byte, timeout time.Duration) (n int, err error)
	Close() error
}

var _ device.Service = PortService{}

// Ops are the two operations.
func (PortService) Ops() map[string]device.Effect {
	return map[string]device.Effect{wire.OpPrinterStatus: device.ReadOnly, wire.OpPrinterCommand: device.Mutating}
}

// Do runs one of them. The port is open only meanwhile: usblp lets one program
// at a time have it, and others want to print too.
func (s PortService) Do(ctx context.Context, r *device.Request) (any, error) {
	var result any
	var err error
	switch r.Op {
	case wire.OpPrinterStatus:
		result, err = s.status(r)
	case wire.OpPrinterCommand:
		result, err = s.command(ctx, r)
	default:
		return nil, noSuchOp(r.Op)
	}
	if err != nil {
		return nil, tag(err, r)
	}
	return result, nil
}

func (s PortService) open(r *device.Request) (Port, error) {
	if s.Open != nil {
		return s.Open(r.Device.Node)
	}
	return lp.Open(r.Device.Node)
}

func (s PortService) status(r *device.Request) (wire.PrinterStatus, error) {
	if _, err := decode[nothing](r.Args); err != nil {
		return wire.PrinterStatus{}, err
	}
	p, err := s.open(r)
	if errors.Is(err, wire.HardwareBusy) {
		// The kernel asked for the id when the device came.
		if id := lp.ParseID(sysfs.Attr(filepath.Join(r.Device.SysPath, "device"), "ieee1284_id")); len(id) > 0 {
			return wire.PrinterStatus{State: wire.PrinterUnknown, Text: "another program has the port open",
				Port: &wire.PrinterPort{DeviceID: id}, Hint: "stop what uses the printer, such as cupsd"}, nil
		}
	}
	if err != nil {
		return wire.PrinterStatus{}, err
	}
	defer p.Close()
	id, err := p.DeviceID()
	if err != nil && !errors.Is(err, wire.FeatureNotSupported) && !errors.Is(err, wire.HardwareTransferFailed) {
		return wire.PrinterStatus{}, err
	}
	st, err := p.Status()
	if err != nil && (errors.Is(err, wire.DeviceGone) || len(id) == 0) {
		return wire.PrinterStatus{}, err
	}
	port := &wire.PrinterPort{DeviceID: id, Online: st.Online, PaperOut: st.PaperOut, Fault: st.Fault}
	out := wire.PrinterStatus{State: wire.PrinterReady, Port: port}
	switch {
	case err != nil:
		out.State, out.Text = wire.PrinterUnknown, "the printer doesn't tell its status"
	case st.PaperOut:
		out.State, out.Error, out.Hint = wire.PrinterError, "out of paper", "put paper in"
	case !st.Online:
		out.State, out.Hint = wire.PrinterOffline, "switch the printer online"
	case st.Fault:
		out.State, out.Error, out.Hint = wire.PrinterError, "the printer reports an error", "look at the printer"
	}
	return out, nil
}

func (s PortService) command(ctx context.Context, r *device.Request) (wire.PrinterCommanded, error) {
	none := wire.PrinterCommanded{}
	a, err := decode[wire.PrinterCommand](r.Args)
	if err != nil {
		return none, err
	}
	switch {
	case len(a.GCode) > 0:
		return none, invalid("gcode", "is for 3D printers; a port takes data")
	case len(a.Data) == 0 || len(a.Data) > maxData:
		return none, invalid("data", "must have 1 to %d bytes, not %d", maxData, len(a.Data))
	}
	timeout := defaultWrite
	if t := a.TimeoutSeconds; t != nil {
		if math.IsNaN(*t) || *t < 0 || *t > opTimeout.Seconds() {
			return none, invalid("timeout_seconds", "must be 0 to %g", opTimeout.Seconds())
		}
		timeout = time.Duration(*t * float64(time.Second))
	}
	p, err := s.open(r)
	if err != nil {
		return none, err
	}
	defer p.Close()
	n, err := p.Write(ctx, a.Data, timeout)
	r.Trace.BytesOut += n
	return wire.PrinterCommanded{BytesWritten: n}, err
}
