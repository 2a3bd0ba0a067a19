package device

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"farhand/wire"
)

// shelf is a driver of devices that exist in memory.
type shelf struct {
	mu      sync.Mutex
	typ     string
	on      map[string]Descriptor
	plugs   int
	err     error
	panics  bool
	probes  int
	blocked chan struct{} // Probe waits for it to be closed, if not nil
}

func newShelf(typ string) *shelf { return &shelf{typ: typ, on: make(map[string]Descriptor)} }

func (s *shelf) Type() string { return s.typ }

func (s *shelf) Probe(ctx context.Context) ([]Descriptor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes++
	if s.panics {
		panic("a bug")
	}
	if s.blocked != nil {
		select {
		case <-s.blocked:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	var all []Descriptor
	for _, d := range s.on {
		all = append(all, d)
	}
	return all, nil
}

// put plugs a device in, or in again.
func (s *shelf) put(name string, aliases ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plugs++
	id := s.typ + ":" + name
	s.on[id] = Descriptor{
		HardwareDevice: wire.HardwareDevice{Type: s.typ, ID: id, Desc: name, Aliases: aliases, Available: true},
		Instance:       time.Duration(s.plugs).String(),
	}
}

func (s *shelf) take(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.on, s.typ+":"+name)
}

func (s *shelf) set(change func(*shelf)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// counter is a state that knows how often it was closed.
type counter struct {
	mu     sync.Mutex
	closed int
}

func (c *counter) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return nil
}

func (c *counter) closes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// desk is a service: WAIT waits for its context or to be let go, FAIL fails,
// GONE finds the device gone, PANIC panics, NOP does nothing.
type desk struct {
	started chan string // the session's name for it, if not nil
	goOn    chan struct{}
	state   func() io.Closer
}

func (d *desk) Ops() map[string]Effect {
	return map[string]Effect{"WAIT": Mutating, "FAIL": Mutating, "GONE": Mutating, "PANIC": Mutating, "NOP": ReadOnly}
}

var errBroken = errors.New("broken")

func (d *desk) Do(ctx context.Context, r *Request) (any, error) {
	l := r.Lease
	if d.state != nil && l.State() == nil {
		l.SetState(d.state())
	}
	r.Trace.BytesOut += len(r.Args)
	switch r.Op {
	case "WAIT":
		if d.started != nil {
			d.started <- l.Holder().Session
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-d.goOn:
		}
	case "FAIL":
		return nil, errBroken
	case "PANIC":
		panic("a bug")
	case "GONE":
		return nil, wire.Errorf(wire.DeviceGone, "pulled")
	}
	return r.Device.ID, nil
}

func refresh(t *testing.T, r *Registry) {
	t.Helper()
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}
