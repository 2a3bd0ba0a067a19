package daemon

import (
	"context"

	"farhand/audit"
	"farhand/daemon/board"
	"farhand/daemon/clock"
	"farhand/observe"
	"farhand/shim"
	"farhand/stream"
	"farhand/wire"
)

// defaultPath is where programs are looked for if the environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

func (d *services) openObserve(_ context.Context, o Options) error {
	if !o.Config.ObserveEnabled {
		return nil
	}
	disks := []observe.Directory{{What: observe.DiskState, Path: o.Config.StateDir, Bare: true}}
	for _, root := range o.Config.Roots {
		disks = append(disks, observe.Directory{What: observe.DiskRoot, Path: root})
	}
	path := getenv(o.Environ, "PATH")
	if path == "" {
		path = defaultPath
	}
	system := observe.System{
		Disks: disks,
		Clock: func() string { return string(clock.Clock{}.State()) },
		Power: func() *wire.TopPower {
			power, known := o.power()
			if !known {
				return nil
			}
			return &wire.TopPower{Bits: uint32(power & board.Known), Text: power.String(), Weak: power.Weak()}
		},
	}
	d.observe = observe.New(system, observe.Journal{Program: "journalctl", Path: path}, d.streams)
	d.closers = append(d.closers, d.observe)
	return nil
}

func (s *session) top(ctx context.Context, c *shim.Call, r wire.TopRequest) (any, error) {
	if r.Interval != 0 {
		if err := needStreams(c); err != nil {
			return nil, err
		}
	}
	return s.observed(c, func() (any, string, []audit.Field, error) {
		answer, err := s.d.observe.Top(ctx, r, caller(c), s.Hold, func(d observe.Directory) bool {
			return d.What != observe.DiskRoot || s.Policy().Root(d.Path) == nil
		})
		return answer, answer.Stream, []audit.Field{audit.Float("interval_seconds", r.Interval), audit.String("stream", answer.Stream)}, err
	})
}

func (s *session) logs(_ context.Context, c *shim.Call, r wire.LogsRequest) (any, error) {
	if err := s.d.noLogs(); err != nil {
		return nil, err
	}
	if err := needStreams(c); err != nil {
		return nil, err
	}
	return s.observed(c, func() (any, string, []audit.Field, error) {
		answer, err := s.d.observe.Logs(r, caller(c), s.Hold)
		return answer, answer.Stream, []audit.Field{
			audit.String("unit", wire.Clean(r.Unit, maxAuditedUnit)), audit.IntOrNull("lines", r.Lines), audit.Bool("follow", r.Follow), audit.String("stream", answer.Stream),
		}, err
	})
}

// maxAuditedUnit bounds what a request adds to the record, in characters.
const maxAuditedUnit = 256

// observed runs what may open a stream, which flows once that is recorded.
func (s *session) observed(c *shim.Call, f func() (any, string, []audit.Field, error)) (any, error) {
	var opened string
	answer, err := look(s, c, "", func() (any, []audit.Field, error) {
		answer, id, details, err := f()
		opened = id
		return answer, details, err
	})
	switch {
	case err == nil:
		s.d.begin(c, answer)
	case opened != "": // nobody learns its name
		s.d.streams.EndWhere(stream.ReasonFailed, func(i stream.Info) bool { return i.ID == opened })
	}
	return answer, err
}

// needStreams refuses what opens a stream where none may be sent.
func needStreams(c *shim.Call) error {
	if c.Granted().Has(wire.Streams) {
		return nil
	}
	return wire.Errorf(wire.CapabilityNotGranted, "%s opens a stream, and streams were not granted here", c.Type).
		With("capability", string(wire.Streams)).With("required_capability", string(wire.Streams))
}
