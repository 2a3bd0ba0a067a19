// Package uapi is the kernel's GPIO character device without policy: ioctl
// numbers and structs of version 2 in linux/gpio.h (Linux 5.10 and later), one
// method for each ioctl. Failures are the kernel's own, wrapped with what was
// tried: errors.Is(err, syscall.EBUSY) holds for a line that is in use.
//
// A Lines is a pollable file: its Read waits in the runtime's poller, obeys a
// deadline and is ended by Close. All methods may be called concurrently.
package uapi

// Chip is what a chip says about itself.
type Chip struct {
	Name  string // gpiochipN
	Label string
	Lines int
}

// Flags are GPIO_V2_LINE_FLAG_*.
type Flags uint64

// The flags of a line, of enum gpio_v2_line_flag.
const (
	Used Flags = 1 << iota // only reported
	ActiveLow
	Input
	Output
	EdgeRising
	EdgeFalling
	OpenDrain
	OpenSource
	PullUp
	PullDown
	BiasDisabled
	EventClockRealtime
	EventClockHTE
)

// Limits of linux/gpio.h.
const (
	MaxLines       = 64            // GPIO_V2_LINES_MAX: lines of one request
	MaxAttrs       = 10            // GPIO_V2_LINE_NUM_ATTRS_MAX: attributes of one configuration
	MaxEventBuffer = MaxLines * 16 // events that the kernel keeps for one request, at most
	nameSize       = 32            // GPIO_MAX_NAME_SIZE, with the 0 at the end
)

// The attributes of a line, of enum gpio_v2_line_attr_id.
const (
	AttrFlags    = 1 // Value is Flags
	AttrValues   = 2 // Value has the level of each line in Mask
	AttrDebounce = 3 // Value is microseconds
)

// Attr is something that a configuration says about some of its lines. Bit i of
// Mask is the request's line i.
type Attr struct {
	ID    uint32
	Value uint64
	Mask  uint64
}

// Config is struct gpio_v2_line_config: Flags are those of the lines that no
// attribute gives others.
type Config struct {
	Flags Flags
	Attrs []Attr // at most MaxAttrs
}

// Request asks for lines, of one chip.
type Request struct {
	Offsets     []uint32 // at most MaxLines
	Consumer    string   // who uses them, for others to see; cut at 31 bytes
	Config      Config
	EventBuffer int // events to keep; 0 means 16 for each line
}

// LineInfo is struct gpio_v2_line_info.
type LineInfo struct {
	Offset     uint32
	Name       string
	Consumer   string
	Flags      Flags
	DebounceUS uint32
}

// The kinds of Event, of enum gpio_v2_line_event_id.
const (
	RisingEdge  = 1
	FallingEdge = 2
)

// Event is struct gpio_v2_line_event, as the kernel lays it out.
type Event struct {
	TimestampNS uint64 // CLOCK_MONOTONIC unless the flags chose another clock
	ID          uint32 // RisingEdge, FallingEdge
	Offset      uint32
	Seq         uint32 // of the request's events
	LineSeq     uint32 // of the line's events
	_           [6]uint32
}

// The types of InfoChange, of enum gpio_v2_line_changed_type.
const (
	LineRequested    = 1
	LineReleased     = 2
	LineReconfigured = 3
)

// InfoChange is struct gpio_v2_line_info_changed.
type InfoChange struct {
	Info        LineInfo
	TimestampNS uint64 // CLOCK_MONOTONIC
	Type        uint32
}
