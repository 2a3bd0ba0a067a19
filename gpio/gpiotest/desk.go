package gpiotest

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"farhand/device"
	"farhand/gpio"
	"farhand/stream"
	"farhand/wire"
)

// Desk is a gpio.Service at work: with leases, streams and a dispatcher, as in
// the daemon.
type Desk struct {
	Service *gpio.Service
	Leases  *device.Leases
	Hub     *stream.Hub

	t    testing.TB
	disp *device.Dispatcher
	once sync.Once
}

// NewDesk makes a desk. Close it, or let the test's end do so.
func NewDesk(t testing.TB, driver device.Driver, o gpio.ServiceOptions, l device.LeaseOptions) *Desk {
	t.Helper()
	o.Probe = driver
	d := &Desk{t: t, Service: gpio.NewService(o), Leases: device.NewLeases(l), Hub: stream.NewHub(stream.HubOptions{})}
	if err := d.Service.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: driver, Service: d.Service}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.disp = device.NewDispatcher(reg, d.Leases, d.Hub)
	t.Cleanup(d.Close)
	return d
}

// Close ends the leases and closes everything, as the daemon does when it stops.
func (d *Desk) Close() {
	d.once.Do(func() {
		for _, err := range []error{d.Leases.Close(), d.Service.Close(), d.Hub.Close()} {
			if err != nil {
				d.t.Error(err)
			}
		}
	})
}

// Try runs one operation.
func (d *Desk) Try(session, dev, op, args string) (any, error) {
	r, _, err := d.disp.Do(context.Background(), device.Caller{Session: session, Name: "session " + session, Streams: true},
		wire.HardwareOp{Device: dev, Op: op, Args: json.RawMessage(args)})
	return r.Result, err
}

// Do runs one that must succeed.
func (d *Desk) Do(session, dev, op, args string) any {
	d.t.Helper()
	r, err := d.Try(session, dev, op, args)
	if err != nil {
		d.t.Fatalf("%s %s: %v %v", op, args, err, wire.AsError(err).Details)
	}
	return r
}

// Fails runs one that must fail with a code, and answers the error.
func (d *Desk) Fails(code wire.Code, session, dev, op, args string) *wire.Error {
	d.t.Helper()
	r, err := d.Try(session, dev, op, args)
	if wire.CodeOf(err) != code {
		d.t.Errorf("%s %s: %+v, %v, want %s", op, args, r, err, code)
		return &wire.Error{}
	}
	return wire.AsError(err)
}

// Value reads a line.
func (d *Desk) Value(session, dev, line string) int {
	d.t.Helper()
	v := d.Do(session, dev, wire.OpGPIOGet, `{"line":"`+line+`"}`).(wire.GPIOValues)
	if v.Value == nil {
		d.t.Fatal("a reading without a value")
	}
	return *v.Value
}

// Gap is the kind of a record that stands for those that the stream's ring has
// lost, since they came faster than they were received. Lost is how many.
const Gap = "gap"

// Watching is an open GPIO_WATCH.
type Watching struct {
	wire.GPIOWatching
	t      testing.TB
	frames chan wire.StreamData
	ctx    context.Context
	cancel context.CancelFunc
	ready  []wire.GPIORecord
	end    string
}

// Watch opens a stream and receives it.
func (d *Desk) Watch(session, dev, args string) *Watching {
	d.t.Helper()
	w := &Watching{GPIOWatching: d.Do(session, dev, wire.OpGPIOWatch, args).(wire.GPIOWatching), t: d.t, frames: make(chan wire.StreamData, 64)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	d.t.Cleanup(w.cancel)
	d.Hub.Begin(w.Stream, w)
	return w
}

// Request is the id of the request that opened it.
func (w *Watching) Request() string { return "r" }

// Context ends when nobody receives any more.
func (w *Watching) Context() context.Context { return w.ctx }

// Send takes a frame.
func (w *Watching) Send(ctx context.Context, _ string, d wire.StreamData) error {
	select {
	case w.frames <- d:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next is the next record; ok is false at the end of the stream.
func (w *Watching) Next() (r wire.GPIORecord, ok bool) {
	w.t.Helper()
	patient := time.After(patience)
	for len(w.ready) == 0 {
		if w.end != "" {
			return r, false
		}
		select {
		case f := <-w.frames:
			w.add(f)
		case <-patient:
			w.t.Fatal("no record has come")
		}
	}
	r, w.ready = w.ready[0], w.ready[1:]
	return r, true
}

func (w *Watching) add(f wire.StreamData) {
	w.t.Helper()
	if f.Lost != nil {
		w.ready = append(w.ready, wire.GPIORecord{Kind: Gap, Lost: f.Lost.To - f.Lost.From})
	}
	for _, raw := range f.Records {
		var r wire.GPIORecord
		if err := json.Unmarshal(raw, &r); err != nil {
			w.t.Errorf("record %s: %v", raw, err)
		}
		w.ready = append(w.ready, r)
	}
	if f.End != nil {
		w.end = f.End.Reason
	}
}

// Edge is the next record, which must be an edge.
func (w *Watching) Edge() wire.GPIORecord {
	w.t.Helper()
	r, ok := w.Next()
	if !ok || r.Kind != wire.GPIOEdge {
		w.t.Fatalf("got %+v, %v, want an edge", r, ok)
	}
	return r
}

// End reads up to the end and answers its reason, with the records before it.
func (w *Watching) End() (string, []wire.GPIORecord) {
	w.t.Helper()
	var all []wire.GPIORecord
	for {
		r, ok := w.Next()
		if !ok {
			return w.end, all
		}
		all = append(all, r)
	}
}

// Shelf is a gpio.FDStore that keeps copies of descriptors.
type Shelf struct {
	mu    sync.Mutex
	files map[string]*os.File
}

// Put keeps a copy.
func (s *Shelf) Put(name string, fd uintptr) error {
	own, err := syscall.Dup(int(fd))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = make(map[string]*os.File)
	}
	if old := s.files[name]; old != nil {
		old.Close()
	}
	s.files[name] = os.NewFile(uintptr(own), name)
	return nil
}

// Remove closes it.
func (s *Shelf) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[name]; f != nil {
		delete(s.files, name)
		return f.Close()
	}
	return nil
}

// Copies are copies of what there is: what a new process finds.
func (s *Shelf) Copies(t testing.TB) map[string]*os.File {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*os.File)
	for name, f := range s.files {
		own, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = os.NewFile(uintptr(own), name)
	}
	return all
}

// Files are what there is.
func (s *Shelf) Files() []*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*os.File
	for _, f := range s.files {
		all = append(all, f)
	}
	return all
}

// Close closes what there is.
func (s *Shelf) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.files {
		f.Close()
		delete(s.files, name)
	}
}

// args writes arguments with lines put in for %s, in order.
func args(format string, lines ...string) string {
	for _, l := range lines {
		format = strings.Replace(format, "%s", l, 1)
	}
	return format
}
