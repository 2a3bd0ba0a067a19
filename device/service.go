package device

import (
	"context"
	"encoding/json"
)

// Service serves the operations of one family.
type Service interface {
	// Ops are the operations that there are, each with whether it changes
	// anything in the world. The map is not to be written to.
	Ops() map[string]Effect
	// Do runs one of them on a device that the caller's lease holds. ctx ends
	// when the caller gives up, the lease ends or the device vanishes; Do then
	// returns at once, and what it returns is replaced by the cause. It counts
	// into trace what went out and came in, also when it fails.
	Do(ctx context.Context, d Descriptor, lease *Lease, op string, args json.RawMessage, trace *Trace) (any, error)
}

// Effect says what an operation does to the world.
type Effect uint8

const (
	ReadOnly Effect = iota // looks at the device
	Mutating               // sends to it or changes how it is set
)

// Trace is what an audit record needs to know about an operation. It never
// holds data, only counts.
type Trace struct {
	Device   string // canonical id; empty if the name could not be resolved
	Op       string
	Effect   Effect
	BytesOut int // to the device
	BytesIn  int // from the device
}
