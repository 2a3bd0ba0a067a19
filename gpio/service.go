package gpio

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"

	"farhand/device"
	"farhand/device/sysfs"
	"farhand/internal/fnmatch"
	"farhand/wire"
)

// Consumer is what the kernel says about who uses our lines.
const Consumer = "farhand"

// FDStore keeps descriptors beyond the life of this process, as systemd does.
type FDStore interface {
	// Put keeps a copy of the descriptor under a name.
	Put(name string, fd uintptr) error
	// Remove lets go of it; that there is none isn't an error.
	Remove(name string) error
}

// ServiceOptions are what a Service works with. The zero value is this machine,
// with nothing kept beyond the process.
type ServiceOptions struct {
	Open  func(node string) (Chip, error)   // nil: the function Open
	Adopt func(f *os.File) (Request, error) // nil: the function Adopt
	FS    sysfs.FS                          // where PWM and pin functions are looked up
	Probe device.Driver                     // finds chips for Recover; nil: Driver{FS: FS}
	// Ledger remembers what becomes of outputs, for the next start; nil: nothing.
	Ledger *Ledger
	// Store keeps the requests of outputs that hold their level; nil: nothing.
	Store FDStore
	// Restored are the descriptors that an earlier process has left in Store. The
	// Service takes those whose names begin with StorePrefix.
	Restored map[string]*os.File
	// Actuators are the outputs that are off unless somebody uses them, as
	// Python-fnmatch globs over device#line: "gpio:pinctrl-bcm2711#17",
	// "gpio:*#GPIO17".
	Actuators []string
	Log       *slog.Logger
}

// Service serves the operations on lines of GPIO chips.
//
// A line has one holder at a time; to set it, configure it, watch it or run a
// PWM on it keeps it. When the lease ends, what its on_release says is done:
// a line that holds its level stays requested from the kernel, and the next
// session takes it over as it is.
//
// All lines that are claimed by one operation belong to one request of the
// kernel and can then be read and set in one call; lines that were claimed by
// different operations can't.
type Service struct {
	o         ServiceOptions
	actuators []fnmatch.Pattern
	ops       map[string]device.Effect

	mu     sync.Mutex
	closed bool
	boards map[string]*board // by device id
}

var _ device.Parted = (*Service)(nil)

// NewService makes a Service. Close it when its leases have ended.
func NewService(o ServiceOptions) *Service {
	if o.Open == nil {
		o.Open = Open
	}
	if o.Adopt == nil {
		o.Adopt = Adopt
	}
	if o.Probe == nil {
		o.Probe = Driver{FS: o.FS}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{o: o, boards: make(map[string]*board), ops: map[string]device.Effect{
		wire.OpGPIOGet:       device.ReadOnly,
		wire.OpGPIOInfo:      device.ReadOnly,
		wire.OpGPIOSet:       device.Mutating,
		wire.OpGPIOConfigure: device.Mutating,
		wire.OpGPIOWatch:     device.Mutating, // makes inputs
		wire.OpGPIOPWM:       device.Mutating,
	}}
	for _, a := range o.Actuators {
		s.actuators = append(s.actuators, fnmatch.Compile(a))
	}
	return s
}

// Ops are the six operations.
func (s *Service) Ops() map[string]device.Effect { return s.ops }

// Parts are the lines that the arguments name. GPIO_INFO takes none.
func (s *Service) Parts(_ context.Context, d device.Descriptor, op string, args json.RawMessage) ([]device.Part, error) {
	if op == wire.OpGPIOInfo {
		return nil, nil
	}
	sel, err := selection(args)
	if err != nil {
		return nil, err
	}
	if op == wire.OpRelease && len(sel.Names) == 0 {
		return nil, nil
	}
	if _, known := s.ops[op]; !known && op != wire.OpRelease {
		return nil, nil // the dispatcher says what it thinks of it
	}
	if len(sel.Names) == 0 {
		return nil, invalid("line", "must name a line").With("hint", `"line": 17, "GPIO17" or "pin 11"`)
	}
	b, err := s.board(d)
	if err != nil {
		return nil, err
	}
	parts := make([]device.Part, 0, len(sel.Names))
	var seen uint64Set
	for _, name := range sel.Names {
		o, err := b.names.find(string(name))
		if err != nil {
			return nil, err
		}
		if !seen.add(o) {
			return nil, invalid("lines", "name line %d twice, once as %s", o, name)
		}
		l := &b.names.lines[o]
		parts = append(parts, device.Part{Key: l.key, Names: l.all})
	}
	return parts, nil
}

// uint64Set is a small set of numbers.
type uint64Set struct {
	low  uint64
	rest map[int]bool
}

// add says whether n is new.
func (s *uint64Set) add(n int) bool {
	if n < 64 {
		had := s.low>>n&1 != 0
		s.low |= 1 << n
		return !had
	}
	if s.rest == nil {
		s.rest = make(map[int]bool)
	}
	had := s.rest[n]
	s.rest[n] = true
	return !had
}

// Do runs one operation.
func (s *Service) Do(ctx context.Context, r *device.Request) (any, error) {
	b, err := s.board(r.Device)
	if err != nil {
		return nil, tag(err, r)
	}
	x := &operation{ctx: ctx, s: s, b: b, r: r}
	if r.Op != wire.OpGPIOInfo {
		if err := x.take(); err != nil {
			return nil, tag(err, r)
		}
	}
	var answer any
	switch r.Op {
	case wire.OpGPIOGet:
		answer, err = x.get()
	case wire.OpGPIOSet:
		answer, err = x.set()
	case wire.OpGPIOConfigure:
		answer, err = x.configure()
	case wire.OpGPIOWatch:
		answer, err = x.watch()
	case wire.OpGPIOPWM:
		answer, err = x.pwm()
	case wire.OpGPIOInfo:
		answer, err = x.info()
	default:
		err = wire.Errorf(wire.FeatureNotSupported, "no operation %q", device.Clean(r.Op))
	}
	if err != nil {
		if errors.Is(err, wire.DeviceGone) {
			b.lost()
		}
		return nil, tag(err, r)
	}
	return answer, nil
}

// tag adds the device and the operation to an error's details.
func tag(err error, r *device.Request) error {
	return wire.AsError(err).With("device", r.Device.ID).With("op", device.Clean(r.Op))
}

// operation is one run of one operation.
type operation struct {
	ctx   context.Context
	s     *Service
	b     *board
	r     *device.Request
	lines []int // the numbers of the parts
	uses  []*use
}

// take makes the lines the caller's.
func (x *operation) take() error {
	x.lines = make([]int, len(x.r.Parts))
	x.uses = make([]*use, len(x.r.Parts))
	for i, lease := range x.r.Parts {
		o, ok := decimal(lease.Key().Part)
		if !ok || o >= len(x.b.lines) {
			return wire.Errorf(wire.InternalError, "a lease of line %q, which the chip doesn't have", device.Clean(lease.Key().Part))
		}
		u, _ := lease.State().(*use)
		if u != nil && u.b != x.b { // the chip was replugged in between
			_ = u.Close() // what it had is gone
			u = nil
		}
		if u == nil {
			u = &use{b: x.b, offset: o, lease: lease}
			lease.SetState(u)
			lease.Linger()
			x.b.begin(u)
		}
		x.lines[i], x.uses[i] = o, u
	}
	return nil
}

// board is the open chip of a device.
func (s *Service) board(d device.Descriptor) (*board, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.Errorf(wire.InternalError, "the daemon is stopping")
	}
	b := s.boards[d.ID]
	if b != nil && b.instance == d.Instance && !b.gone.Load() {
		return b, nil
	}
	if b != nil {
		b.close()
		delete(s.boards, d.ID)
	}
	b, err := s.open(d)
	if err != nil {
		return nil, err
	}
	s.boards[d.ID] = b
	return b, nil
}

// Close gives every line back that is still requested. What descriptors the
// FDStore has of them stays there.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for id, b := range s.boards {
		b.close()
		delete(s.boards, id)
	}
	return nil
}
