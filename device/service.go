package device

import (
	"context"
	"encoding/json"

	"farhand/stream"
	"farhand/wire"
)

// Service serves the operations of one family.
type Service interface {
	// Ops are the operations that there are, each with whether it changes
	// anything in the world. The map is not to be written to.
	Ops() map[string]Effect
	// Do runs one of them on a device that the request's lease holds. ctx ends
	// when the caller gives up, the lease ends or the device vanishes; Do then
	// returns at once, and what it returns is replaced by the cause. It counts
	// into r.Trace what went out and came in, also when it fails.
	Do(ctx context.Context, r *Request) (any, error)
}

// Parted is a Service whose devices are used part by part, each with a holder of
// its own: the lines of a GPIO chip, the addresses of a bus.
type Parted interface {
	Service
	// Parts names the parts that an operation needs. None means that it takes no
	// lease: it only looks at the whole. Of RELEASE, none means every part that
	// the session has.
	Parts(ctx context.Context, d Descriptor, op string, args json.RawMessage) ([]Part, error)
}

// Part is one part of a device.
type Part struct {
	Key   string   // canonical: the number of the line
	Names []string // what else a grant may call it
}

// names are all of them: none for a whole device.
func (p Part) names() []string {
	if p.Key == "" {
		return nil
	}
	return append([]string{p.Key}, p.Names...)
}

// Request is one operation as its service sees it.
type Request struct {
	Device Descriptor
	Op     string
	Args   json.RawMessage
	Hold   bool     // the caller wants to keep the device
	Lease  *Lease   // nil for a Parted service
	Parts  []*Lease // of a Parted service: one for each part, in the order in which Parts named them
	Caller Caller
	Trace  *Trace

	streams *stream.Hub
}

// OpenStream makes a stream of the caller's that begins to flow once the answer
// has left: the result must carry its id (wire.Opened). Without the streams
// capability it is CAPABILITY_NOT_GRANTED.
func (r *Request) OpenStream(o stream.Options) (*stream.Stream, error) {
	if r.streams == nil || !r.Caller.Streams {
		return nil, wire.Errorf(wire.CapabilityNotGranted, "%s needs streams, which were not granted here", r.Op).
			With("capability", string(wire.Streams)).With("required_capability", string(wire.Streams)).With("op", r.Op)
	}
	o.Device, o.Op = r.Device.ID, r.Op
	o.Owner = stream.Owner{Session: r.Caller.Session, Holder: r.Caller.Holder, Owner: r.Caller.Owner}
	return r.streams.Open(o)
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
	Parts    []string
	Op       string
	Effect   Effect
	BytesOut int // to the device
	BytesIn  int // from the device
}
