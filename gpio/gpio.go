package gpio

import (
	"time"

	"farhand/wire"
)

// MaxLines is how many lines one request may have.
const MaxLines = wire.MaxGPIOLines

// Direction of a line.
type Direction uint8

// The directions. A line that is requested as it is can be read, and nothing
// about it changes.
const (
	AsIs Direction = iota
	In
	Out
)

// Pull is a pull resistor.
type Pull uint8

// The pulls.
const (
	PullAsIs Pull = iota
	PullUp
	PullDown
	PullNone
)

// Drive is how an output drives.
type Drive uint8

// The drives.
const (
	PushPull Drive = iota
	OpenDrain
	OpenSource
)

// Edges is which edges are reported, as a set.
type Edges uint8

// The edges.
const (
	Rising Edges = 1 << iota
	Falling
	BothEdges = Rising | Falling
)

// MaxDebounce is the longest debounce period. It is ours: the kernel's is 71
// minutes (32 bits of microseconds).
const MaxDebounce = time.Minute

// LineConfig is how one line of a request is set. Levels, edges and events are
// logical: after ActiveLow.
type LineConfig struct {
	Offset    int
	Direction Direction
	Value     int // an output's level, 0 or 1
	Pull      Pull
	Drive     Drive
	ActiveLow bool
	Edges     Edges
	Debounce  time.Duration // of an input; whole microseconds
}

// Validate refuses what the kernel would refuse with a bare EINVAL, and says
// which field it is: INVALID_ARGUMENT with details.field.
func (c LineConfig) Validate() error {
	bad := func(field, format string, args ...any) *wire.Error {
		return wire.Errorf(wire.InvalidArgument, "line %d: "+format, append([]any{c.Offset}, args...)...).
			With("field", field).With("line", c.Offset)
	}
	switch {
	case c.Value != 0 && c.Value != 1:
		return bad("initial_value", "a level is 0 or 1, not %d", c.Value)
	case c.Edges != 0 && c.Direction != In:
		return bad("edge", "edges can be detected on an input only").With("hint", `direction must be "in"`)
	case c.Debounce != 0 && c.Direction != In:
		return bad("debounce_seconds", "only an input can be debounced")
	case c.Debounce < 0 || c.Debounce > MaxDebounce:
		return bad("debounce_seconds", "must be 0 to %g", MaxDebounce.Seconds())
	case c.Drive != PushPull && c.Direction != Out:
		return bad("drive", "only an output has a drive")
	case c.Pull != PullAsIs && c.Direction == AsIs:
		return bad("pull", "a pull needs a direction")
	}
	return nil
}

// Options are what a request is made with.
type Options struct {
	Consumer string // who uses the lines, for others to see
	// EventBuffer is how many edges are kept until they are read; beyond that
	// the oldest are forgotten. 0 means 16 for each line; the most is 1024.
	EventBuffer int
}

// ChipInfo is what a chip says about itself.
type ChipInfo struct {
	Name  string // gpiochip0
	Label string // pinctrl-bcm2711
	Lines int
}

// LineInfo is how a line is, and who uses it.
type LineInfo struct {
	LineConfig
	Name     string // empty: it has none
	Used     bool   // by whomever, the kernel included
	Consumer string
}

// Event is an edge.
type Event struct {
	Offset      int
	Rising      bool
	TimestampNS uint64 // CLOCK_MONOTONIC
	Seq         uint32 // counts the request's edges from 1
	LineSeq     uint32 // counts the line's edges from 1
}

// Chip is an open chip. Its methods may be called concurrently. Failures are
// the kernel's own, wrapped: errors.Is(err, syscall.EBUSY) for a line that is in
// use, ENXIO for one without interrupts that was asked for edges, ENODEV for a
// chip that has gone; INVALID_ARGUMENT is what LineConfig.Validate says.
type Chip interface {
	Info() (ChipInfo, error)
	Line(offset int) (LineInfo, error)
	// Request takes lines for ourselves until Close; others can't have them, and
	// nothing is taken if one can't be had. An output is never driven to any
	// other level than its Value.
	Request(lines []LineConfig, o Options) (Request, error)
	// Close may be repeated. Requests stay.
	Close() error
}

// Request is lines that are ours. Bit i of a mask is the i-th of the lines that
// were requested. Its methods may be called concurrently, and fail with
// os.ErrClosed after Close.
type Request interface {
	// Get reads the levels of the lines in mask. An output reads as what it
	// drives, or as what the line really is.
	Get(mask uint64) (uint64, error)
	// Set drives the lines in mask, which must be outputs, in one call.
	Set(mask, bits uint64) error
	// Configure sets all the lines anew, in the order of the request.
	Configure(lines []LineConfig) error
	// Read waits for edges and answers those that there are, at most len(to). It
	// ends with os.ErrDeadlineExceeded at the deadline.
	Read(to []Event) (int, error)
	// SetReadDeadline ends Read at a time, also one that waits already; the zero
	// time ends none.
	SetReadDeadline(t time.Time) error
	// Close gives the lines back. It may be repeated.
	Close() error
}

// Keeper is a Request that can be kept beyond the life of this process by
// whoever keeps its descriptor.
type Keeper interface {
	Request
	// Descriptor calls use with the descriptor, which is valid until it returns.
	Descriptor(use func(fd uintptr) error) error
}
