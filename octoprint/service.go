package octoprint

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"farhand/device"
	"farhand/octoprint/rest"
	"farhand/wire"
)

// Limits of the operations.
const (
	maxLines   = 500
	maxLine    = 256 // bytes; firmwares take 96 to 256
	maxCelsius = 500
	maxTravel  = 10_000  // mm
	maxSpeed   = 100_000 // mm/min
	maxUser    = 128
)

// Ops are the nine operations.
func (*Servers) Ops() map[string]device.Effect {
	return map[string]device.Effect{
		wire.OpPrinterStatus:      device.ReadOnly,
		wire.OpPrinterFiles:       device.Mutating, // select, delete
		wire.OpPrinterUpload:      device.Mutating,
		wire.OpPrinterJob:         device.Mutating,
		wire.OpPrinterTemperature: device.Mutating,
		wire.OpPrinterCommand:     device.Mutating,
		wire.OpPrinterMove:        device.Mutating,
		wire.OpPrinterWatch:       device.ReadOnly,
		wire.OpPrinterJoin:        device.Mutating,
	}
}

// Do runs one of them.
func (s *Servers) Do(ctx context.Context, r *device.Request) (any, error) {
	p := s.byID[r.Device.ID]
	if p == nil {
		return nil, wire.Errorf(wire.HardwareNotFound, "%s is not configured", r.Device.ID)
	}
	if !p.client.HasKey() { // the owner may have put it there meanwhile
		if key := p.key(); key != "" {
			p.client.SetKey(key)
			s.notify()
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opTimeout,
		wire.Errorf(wire.HardwareOpenFailed, "the printer's server at %s took longer than %d s", p.client.Origin(), int(opTimeout.Seconds())).With("reason", "timeout"))
	defer cancel()
	o := operation{ctx: ctx, p: p, r: r}
	switch r.Op {
	case wire.OpPrinterStatus:
		return run(&o, o.status)
	case wire.OpPrinterFiles:
		return run(&o, o.files)
	case wire.OpPrinterUpload:
		return run(&o, o.upload)
	case wire.OpPrinterJob:
		return run(&o, o.job)
	case wire.OpPrinterTemperature:
		return run(&o, o.temperature)
	case wire.OpPrinterCommand:
		return run(&o, o.command)
	case wire.OpPrinterMove:
		return run(&o, o.move)
	case wire.OpPrinterWatch:
		return run(&o, o.watch)
	case wire.OpPrinterJoin:
		return run(&o, o.join)
	}
	return nil, noSuchOp(r.Op)
}

func noSuchOp(op string) error {
	return wire.Errorf(wire.FeatureNotSupported, "no operation %q", device.Clean(op)).With("op", device.Clean(op))
}

// operation is one run of one operation.
type operation struct {
	ctx context.Context
	p   *printer
	r   *device.Request
}

// run decodes the arguments, runs fn and says in an error which device and
// operation it was.
func run[A, R any](o *operation, fn func(A) (R, error)) (any, error) {
	a, err := decode[A](o.r.Args)
	if err != nil {
		return nil, tag(err, o.r)
	}
	result, err := fn(a)
	if err != nil {
		return nil, tag(err, o.r)
	}
	return result, nil
}

// tag adds the device and the operation to an error's details.
func tag(err error, r *device.Request) error {
	return wire.AsError(err).With("device", r.Device.ID).With("op", r.Op)
}

func decode[A any](args json.RawMessage) (A, error) {
	var a A
	if len(args) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(args, &a); err != nil {
		return a, device.BadArgs(err, device.Clean(err.Error())) // its own types say which field, and data is for USB ports
	}
	return a, nil
}

func invalid(key, format string, args ...any) error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", key, fmt.Sprintf(format, args...)).With("field", key)
}

type nothing struct{}

func (o *operation) status(nothing) (wire.PrinterStatus, error) { return o.p.client.Status(o.ctx) }

// place checks a location.
func place(loc string) (string, error) {
	switch loc {
	case "", wire.PrinterLocal:
		return wire.PrinterLocal, nil
	case wire.PrinterStorage, "sdcard":
		return wire.PrinterStorage, nil
	}
	return "", invalid("location", "must be local or printer")
}

func (o *operation) files(a wire.PrinterFiles) (any, error) {
	loc, err := place(a.Location)
	if err != nil {
		return nil, err
	}
	if a.Path != "" {
		if _, err := rest.Segments("path", a.Path); err != nil {
			return nil, err
		}
	}
	switch a.Action {
	case "", "list":
		if a.Location == "" && a.Path == "" {
			loc = "" // all
		}
		return o.list(loc, a)
	case "select":
		if a.Path == "" {
			return nil, invalid("path", "must name a file")
		}
		job, confirmed, err := o.p.client.Select(o.ctx, loc, a.Path, a.Print)
		return wire.PrinterFileDone{Location: loc, Path: a.Path, Job: job, Confirmed: confirmed}, err
	case "delete":
		if a.Path == "" {
			return nil, invalid("path", "must name a file")
		}
		if err := o.p.client.Delete(o.ctx, loc, a.Path); err != nil {
			return nil, err
		}
		o.p.change(func(r *record) { r.forget(loc, strings.Trim(a.Path, "/")) })
		return wire.PrinterFileDone{Location: loc, Path: a.Path}, nil
	}
	return nil, invalid("action", "must be list, select or delete")
}

// list lists files, with the names that they were sent under.
func (o *operation) list(loc string, a wire.PrinterFiles) (wire.PrinterFileList, error) {
	list, err := o.p.client.Files(o.ctx, loc, a.Path, a.Recursive)
	if err != nil {
		return list, err
	}
	sent := make(map[[2]string]string)
	for _, n := range o.p.record().Sent {
		sent[[2]string{n.Location, n.Path}] = n.Name
	}
	for i, f := range list.Files {
		list.Files[i].SentName = sent[[2]string{f.Location, f.Path}]
	}
	return list, nil
}

func (o *operation) job(a wire.PrinterJob) (wire.PrinterJobDone, error) {
	switch a.Action {
	case rest.Start, rest.Pause, rest.Resume, rest.Cancel, rest.Restart:
	default:
		return wire.PrinterJobDone{}, invalid("action", "must be start, pause, resume, cancel or restart")
	}
	job, confirmed, err := o.p.client.JobCommand(o.ctx, a.Action)
	return wire.PrinterJobDone{Job: job, Confirmed: confirmed}, err
}

func (o *operation) command(a wire.PrinterCommand) (wire.PrinterCommanded, error) {
	if len(a.Data) > 0 {
		return wire.PrinterCommanded{}, invalid("data", "is for USB ports; this printer takes gcode")
	}
	lines, bytes, err := checkLines(a.GCode)
	if err != nil {
		return wire.PrinterCommanded{}, err
	}
	if _, err := o.p.client.Identify(o.ctx); err != nil {
		return wire.PrinterCommanded{}, err
	}
	// A heater is a heater, however it is switched on.
	targets := targetsOf(lines)
	if err := o.heat(targets, wire.HeaterOff, 0, func() error { return o.p.client.GCode(o.ctx, lines) }); err != nil {
		return wire.PrinterCommanded{}, err
	}
	o.r.Trace.BytesOut += bytes
	return wire.PrinterCommanded{Lines: len(lines)}, nil
}

// checkLines takes empty lines out.
func checkLines(code []string) (lines []string, bytes int, err error) {
	for _, l := range code {
		l = strings.TrimSpace(l)
		switch {
		case l == "":
			continue
		case len(l) > maxLine:
			return nil, 0, invalid("gcode", "may have lines of at most %d bytes", maxLine)
		case strings.ContainsFunc(l, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == '\ufffd' }):
			return nil, 0, invalid("gcode", "must not hold control characters")
		}
		lines = append(lines, l)
		bytes += len(l) + 1
	}
	if len(lines) == 0 || len(lines) > maxLines {
		return nil, 0, invalid("gcode", "must have 1 to %d lines, not %d", maxLines, len(lines))
	}
	return lines, bytes, nil
}

func (o *operation) move(a wire.PrinterMove) (wire.PrinterMoved, error) {
	axes := make(map[string]float64)
	for axis, mm := range map[string]*float64{"x": a.X, "y": a.Y, "z": a.Z} {
		if mm == nil {
			continue
		}
		if math.IsNaN(*mm) || math.Abs(*mm) > maxTravel {
			return wire.PrinterMoved{}, invalid(axis, "must be a distance in mm")
		}
		axes[axis] = *mm
	}
	if (len(a.Home) > 0) == (len(axes) > 0) {
		return wire.PrinterMoved{}, invalid("home", "or x, y and z must be given, and not both")
	}
	home, err := checkAxes(a.Home)
	if err != nil {
		return wire.PrinterMoved{}, err
	}
	speed := 0.0
	if a.Speed != nil {
		if speed = *a.Speed; !(speed >= 1 && speed <= maxSpeed) {
			return wire.PrinterMoved{}, invalid("speed", "must be 1 to %d mm/min", maxSpeed)
		}
	}
	if _, err := o.p.client.Identify(o.ctx); err != nil {
		return wire.PrinterMoved{}, err
	}
	if len(home) > 0 {
		err = o.p.client.Home(o.ctx, home)
	} else {
		err = o.p.client.Jog(o.ctx, axes, a.Absolute, speed)
	}
	return wire.PrinterMoved{Accepted: err == nil}, err
}

func checkAxes(axes []string) ([]string, error) {
	var home []string
	for _, a := range axes {
		a = strings.ToLower(a)
		switch {
		case a == "all":
			return []string{"x", "y", "z"}, nil
		case a != "x" && a != "y" && a != "z":
			return nil, invalid("home", "may hold x, y and z")
		case !slices.Contains(home, a):
			home = append(home, a)
		}
	}
	slices.Sort(home)
	return home, nil
}

// record is what is known of the printer.
func (p *printer) record() record { return p.own.store.get(p.Name, p.URL.String()) }

// change changes it. That it can't be kept is no reason to undo what happened.
func (p *printer) change(fn func(*record)) {
	if err := p.own.store.change(p.Name, p.URL.String(), fn); err != nil {
		p.log.Error("what is known of the printer can't be kept", "error", err)
	}
}
