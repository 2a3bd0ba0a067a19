// Package octoprinttest is the conformance suite of printers that a server
// stands before: the simulated one, and real servers.
package octoprinttest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"time"

	"farhand/device"
	"farhand/stream"
	"farhand/wire"
)

// Bench is one printer to be tested: connected, idle, and with a key.
type Bench struct {
	Family device.Family
	ID     string
	// Files is what the family's Files are made of.
	Files *Files
	// NoSelect: files can't be selected without being printed (Moonraker).
	NoSelect bool
	// NoRename: the server keeps the names that it is sent (Moonraker).
	NoRename bool
}

// patience bounds every wait of the suite.
const patience = 15 * time.Second

// Files are files of the device in memory. It is an octoprint.Files.
type Files struct {
	mu    sync.Mutex
	files map[string][]byte
	opens int
}

// Put stores a file.
func (f *Files) Put(path string, content []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files == nil {
		f.files = make(map[string][]byte)
	}
	f.files[path] = content
}

// Opens is how many files were opened so far.
func (f *Files) Opens() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opens
}

// Open opens a file for a session that has a name.
func (f *Files) Open(_ context.Context, session, path string) (io.ReadCloser, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.files[path]
	if !ok || session == "" {
		return nil, 0, wire.Errorf(wire.PathNotFound, "no file %s", path).With("path", path)
	}
	f.opens++
	return io.NopCloser(bytes.NewReader(content)), int64(len(content)), nil
}

// Rig is a bench with everything that a daemon puts around it.
type Rig struct {
	Bench
	Dispatcher *device.Dispatcher
	Leases     *device.Leases
	Streams    *stream.Hub
}

// NewRig makes a rig; it is closed after the test, before what the bench
// registered with t.Cleanup earlier.
func NewRig(t testing.TB, b Bench) *Rig {
	t.Helper()
	reg := device.NewRegistry(device.Options{Families: []device.Family{b.Family}})
	r := &Rig{Bench: b, Leases: device.NewLeases(device.LeaseOptions{}), Streams: stream.NewHub(stream.HubOptions{Idle: time.Hour})}
	r.Dispatcher = device.NewDispatcher(reg, r.Leases, r.Streams)
	t.Cleanup(func() {
		r.Leases.Close()
		r.Streams.Close()
	})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// Do runs an operation for a session.
func (r *Rig) Do(t testing.TB, session, op string, args any) (any, error) {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	caller := device.Caller{Session: session, Holder: "h", Owner: "o", Name: "holder of " + session, Streams: true}
	res, _, err := r.Dispatcher.Do(ctx, caller, wire.HardwareOp{Device: r.ID, Op: op, Args: raw})
	return res.Result, err
}

// Must is Do for what has to succeed with a result of type T.
func Must[T any](t testing.TB, r *Rig, session, op string, args any) T {
	t.Helper()
	res, err := r.Do(t, session, op, args)
	if err != nil {
		t.Fatalf("%s %+v: %v (%v)", op, args, err, wire.AsError(err).Details)
	}
	v, ok := res.(T)
	if !ok {
		t.Fatalf("%s answers a %T", op, res)
	}
	return v
}

// Code runs what must fail and is the error.
func Code(t testing.TB, r *Rig, session, op string, args any, want wire.Code) *wire.Error {
	t.Helper()
	res, err := r.Do(t, session, op, args)
	if err == nil {
		t.Fatalf("%s %+v succeeds: %+v, want %s", op, args, res, want)
	}
	e := wire.AsError(err)
	if e.Code != want {
		t.Fatalf("%s %+v: %s %v (%v), want %s", op, args, e.Code, err, e.Details, want)
	}
	return e
}

// Records receives a stream of records. It is a stream.Outlet.
type Records struct {
	t      testing.TB
	ctx    context.Context
	frames chan wire.StreamData
	queue  []json.RawMessage
	end    *wire.StreamEnd
}

// Listen receives the stream that an operation opened.
func (r *Rig) Listen(t testing.TB, id string) *Records {
	t.Helper()
	rec := &Records{t: t, ctx: t.Context(), frames: make(chan wire.StreamData, 4096)}
	r.Streams.Begin(id, rec)
	return rec
}

// Request is the id of no request.
func (r *Records) Request() string { return "test" }

// Context ends with the test.
func (r *Records) Context() context.Context { return r.ctx }

// Send takes a frame.
func (r *Records) Send(ctx context.Context, _ string, d wire.StreamData) error {
	select {
	case r.frames <- d:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// more waits for the next frame.
func (r *Records) more() bool {
	r.t.Helper()
	if r.end != nil {
		return false
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case d := <-r.frames:
		r.queue = append(r.queue, d.Records...)
		r.end = d.End
	case <-timer.C:
		r.t.Fatal("nothing came of the stream")
	}
	return true
}

// Until is the first record that is wanted, with those before it left behind. A
// stream that ends before fails the test.
func Until[T any](t testing.TB, r *Records, wanted func(T) bool) T {
	t.Helper()
	for {
		for len(r.queue) > 0 {
			var v T
			if err := json.Unmarshal(r.queue[0], &v); err != nil {
				t.Fatalf("a record that can't be read: %v", err)
			}
			r.queue = r.queue[1:]
			if wanted(v) {
				return v
			}
		}
		if !r.more() {
			t.Fatalf("the stream ended (%s) without what was waited for", r.end.Reason)
		}
	}
}

// All reads the records up to the end.
func All[T any](t testing.TB, r *Records, each func(T)) {
	t.Helper()
	for {
		for _, raw := range r.queue {
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatalf("a record that can't be read: %v", err)
			}
			each(v)
		}
		r.queue = nil
		if !r.more() {
			return
		}
	}
}

// End waits for the end of the stream and is its reason.
func (r *Records) End() string {
	r.t.Helper()
	for r.more() {
	}
	return r.end.Reason
}

// Upload sends a file and waits for the last record.
func (r *Rig) Upload(t testing.TB, session string, a wire.PrinterUpload) (wire.PrinterProgress, string) {
	t.Helper()
	up := Must[wire.PrinterUploading](t, r, session, wire.OpPrinterUpload, a)
	rec := r.Listen(t, up.Stream)
	last := Until(t, rec, func(p wire.PrinterProgress) bool { return p.Result != nil || p.Error != nil })
	return last, rec.End()
}
