package shim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"farhand/link"
	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// gate serves FILE_LIST: each call waits for a token of its path.
type gate struct {
	mu      sync.Mutex
	started chan string
	open    map[string]chan struct{}
	running atomic.Int32
	most    atomic.Int32
}

func newGate() *gate {
	return &gate{started: make(chan string, 1000), open: make(map[string]chan struct{})}
}

func (g *gate) door(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[name] == nil {
		g.open[name] = make(chan struct{})
	}
	return g.open[name]
}

func (g *gate) handle(ctx context.Context, _ *shim.Call, req wire.FileList) (any, error) {
	n := g.running.Add(1)
	defer g.running.Add(-1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
	g.started <- req.Path
	select {
	case <-g.door(req.Path):
		return wire.FileListResponse{Entries: []wire.FileEntry{}}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// gated is a rig whose FILE_LIST waits at a gate.
func gated(t *testing.T) (*rig, *gate) { return gatedOn(newRig(t)) }

func gatedOn(r *rig) (*rig, *gate) {
	g := newGate()
	table := r.table()
	table[wire.TFileList] = shim.Method{Handle: shim.Unary(g.handle), Lane: func(c *shim.Call) string {
		var req wire.FileList
		if wire.Decode(c.Payload, &req) != nil || !strings.HasPrefix(req.Path, "lane") {
			return ""
		}
		lane, _, _ := strings.Cut(req.Path, "/")
		return lane
	}}
	r.serve(table)
	return r, g
}

// TestOverloadQuick: calls that were expected to be quick and aren't change
// nothing: the socket is read on, whoever waits.
func TestOverloadQuick(t *testing.T) { testOverload(t, true) }

// TestOverload: the fifth request is refused at once, pending_capacity counts
// down to nothing, PING works all the while, and the answer that ends the full
// state is followed by STATUS.
func TestOverload(t *testing.T) { testOverload(t, false) }

func testOverload(t *testing.T, quick bool) {
	r, g := gated(t)
	if quick {
		open := r.cfg.Open
		r.cfg.Open = func(ctx context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
			table, c, err := open(ctx, s)
			for typ, m := range table {
				m.Quick = true
				table[typ] = m
			}
			return table, c, err
		}
	}
	control := r.start()
	data, _ := r.data(control, "s")
	var ids []string
	for i := range 4 {
		ids = append(ids, data.Request(wire.TFileList, wire.FileList{Path: strconv.Itoa(i)}))
		<-g.started
	}
	e := data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
	if d := wantError(t, e, wire.ShimOverloaded); d["max_concurrent"] != 4.0 || *e.PendingCapacity != 0 {
		t.Errorf("details %v, capacity %d", d, *e.PendingCapacity)
	}
	// Refusals of any kind don't count, and full comes before every other gate.
	wantError(t, data.Call("NEVER_HEARD_OF", nil), wire.ShimOverloaded)
	wantError(t, data.Call(wire.TExecuteCommand, nil), wire.ShimOverloaded)
	if e := data.Call(wire.TPing, nil); e.PendingCapacity != nil {
		t.Error("PONG with pending_capacity")
	}
	control.Call(wire.TPing, nil) // full is per socket
	decodeTo[wire.DirectoryListResponse](t, control.Call(wire.TDirectoryListRequest, nil), wire.TDirectoryListResponse)

	close(g.door("2"))
	if e := data.Wait(ids[2]); *e.PendingCapacity != 1 {
		t.Errorf("capacity %d after the first of four", *e.PendingCapacity)
	}
	status := <-data.Status
	if s := decodeTo[wire.Status](t, status, wire.TStatus); s.InFlight != 3 || s.MaxConcurrent != 4 || *status.PendingCapacity != 1 {
		t.Errorf("STATUS %+v, capacity %d", s, *status.PendingCapacity)
	}
	for _, i := range []int{0, 1, 3} {
		close(g.door(strconv.Itoa(i)))
		data.Wait(ids[i])
	}
	if e := data.Call(wire.TFileStat, wire.FileStat{Path: "x"}); *e.PendingCapacity != 4 {
		t.Errorf("capacity %d when idle", *e.PendingCapacity)
	}
	select {
	case s := <-data.Status:
		t.Errorf("another STATUS: %s", s.Payload)
	default:
	}
}

// TestCancel: a request that its sender cancels ends and is answered so, also one
// that waits for its turn; of one that is over, or without the grant, nothing
// happens.
func TestCancel(t *testing.T) {
	r, g := gated(t)
	r.platform.Extensions = wire.Capabilities{wire.Cancel}
	control := r.start()
	data, _ := r.data(control, "s")
	first := data.Request(wire.TFileList, wire.FileList{Path: "lane/1"})
	<-g.started
	queued := data.Request(wire.TFileList, wire.FileList{Path: "lane/2"})
	data.Cancel(queued)
	wantError(t, data.Wait(queued), wire.Cancelled)
	data.Cancel(first)
	if d := wantError(t, data.Wait(first), wire.Cancelled); d["op"] != string(wire.TFileList) {
		t.Errorf("details %v", d)
	}
	data.Cancel(first)
	data.Cancel("never heard of")
	if e := data.Call(wire.TFileStat, wire.FileStat{Path: "x"}); *e.PendingCapacity != 4 {
		t.Errorf("capacity %d when idle", *e.PendingCapacity)
	}

	other, g := gated(t)
	data, _ = other.data(other.start(), "s")
	kept := data.Request(wire.TFileList, wire.FileList{Path: "kept"})
	<-g.started
	data.Cancel(kept)
	data.Call(wire.TPing, nil)
	close(g.door("kept"))
	decodeTo[wire.FileListResponse](t, data.Wait(kept), wire.TFileListResponse)
}

// TestSaturation: hundreds of requests over an overloaded socket; every one gets
// one answer, and the last word about capacity is never zero.
func TestSaturation(t *testing.T) {
	r, g := gated(t)
	r.platform.MaxConcurrent = 2
	control := r.start()
	data, _ := r.data(control, "s")
	for _, path := range []string{"a", "b"} {
		close(g.door(path))
	}
	go func() {
		for range g.started {
		}
	}()
	var ids []string
	for i := range 500 {
		ids = append(ids, data.Request(wire.TFileList, wire.FileList{Path: []string{"a", "b"}[i%2]}))
	}
	overloaded := 0
	for _, id := range ids {
		if e := data.Wait(id); e.Type == wire.TError {
			wantError(t, e, wire.ShimOverloaded)
			overloaded++
		}
	}
	data.Call(wire.TPing, nil)
	t.Logf("%d of 500 refused, %d STATUS", overloaded, len(data.Status))
	if g.most.Load() > 2 {
		t.Errorf("%d at once", g.most.Load())
	}
	if e := data.Call(wire.TFileStat, wire.FileStat{Path: "x"}); *e.PendingCapacity != 2 {
		t.Errorf("capacity %d when idle", *e.PendingCapacity)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.started)
}

// TestBurst: thousands of requests at once cost neither the socket nor an answer,
// however far the writer falls behind the reader.
func TestBurst(t *testing.T) {
	r, g := gated(t)
	control := r.start()
	s, _ := r.data(control, "s1")
	var waiting []string
	for range 4 {
		waiting = append(waiting, s.Request(wire.TFileList, wire.FileList{Path: "burst"}))
		<-g.started
	}
	var ids []string
	for i := range 5000 {
		if i%2 == 0 {
			ids = append(ids, s.Request(wire.TPing, nil))
		} else {
			ids = append(ids, s.Request(wire.TFileList, wire.FileList{Path: "burst"}))
		}
	}
	for i, id := range ids {
		if e := s.Wait(id); e.Type != []wire.Type{wire.TPong, wire.TError}[i%2] {
			t.Fatalf("request %d got %s %s", i, e.Type, e.Payload)
		}
	}
	close(g.door("burst"))
	for _, id := range waiting {
		s.Wait(id)
	}
}

// TestMachineWide: the bound over all sockets makes requests wait and never
// shows as capacity.
func TestMachineWide(t *testing.T) {
	r, g := gated(t)
	r.cfg.MachineWide = 3
	control := r.start()
	one, _ := r.data(control, "one")
	two, _ := r.data(control, "two")
	var ids []string
	for i := range 3 {
		ids = append(ids, one.Request(wire.TFileList, wire.FileList{Path: fmt.Sprint("one", i)}))
		<-g.started
	}
	waiting := two.Request(wire.TFileStat, wire.FileStat{Path: "x"})
	two.Silent(waiting)
	e := two.Call("NEVER_HEARD_OF", nil)
	if *e.PendingCapacity != 3 {
		t.Errorf("capacity %d with one of four waiting", *e.PendingCapacity)
	}
	decodeTo[wire.DirectoryListResponse](t, control.Call(wire.TDirectoryListRequest, nil), wire.TDirectoryListResponse) // control isn't bounded
	close(g.door("one1"))
	one.Wait(ids[1])
	decodeTo[wire.FileStatResponse](t, two.Wait(waiting), wire.TFileStatResponse)
	close(g.door("one0"))
	close(g.door("one2"))
	one.Wait(ids[0])
	one.Wait(ids[2])
}

// TestLanes: calls of one lane run in the order of the wire, one at a time;
// others pass them.
func TestLanes(t *testing.T) {
	r, g := gated(t)
	r.cfg.Limits.MaxConcurrent = 100
	r.platform.MaxConcurrent = 100
	r.cfg.MachineWide = 2 // fewer slots than calls that wait in lanes
	control := r.start()
	data, _ := r.data(control, "s")
	var ids []string
	var want []string
	for i := range 20 {
		path := fmt.Sprintf("lane/%02d", i)
		want = append(want, path)
		close(g.door(path))
		if i == 0 {
			g.mu.Lock()
			g.open[path] = make(chan struct{})
			g.mu.Unlock()
		}
		ids = append(ids, data.Request(wire.TFileList, wire.FileList{Path: path}))
	}
	got := []string{<-g.started}
	data.Call(wire.TFileStat, wire.FileStat{Path: "x"}) // not behind the lane
	close(g.door(want[0]))
	for range 19 {
		got = append(got, <-g.started)
	}
	for _, id := range ids {
		data.Wait(id)
	}
	if !slices.Equal(got, want) {
		t.Errorf("order %v", got)
	}
	if g.most.Load() != 1 {
		t.Errorf("%d of one lane at once", g.most.Load())
	}
}

// TestDuplicateID: a second request with an id that is outstanding is dropped, so
// that there are never two terminal frames for one id.
func TestDuplicateID(t *testing.T) {
	r, g := gated(t)
	control := r.start()
	data, _ := r.data(control, "s")
	id := data.Request(wire.TFileList, wire.FileList{Path: "a"})
	<-g.started
	for _, frame := range []string{
		`{"type":"FILE_STAT","id":"` + id + `","payload":{"path":"x"}}`,
		`{"type":"FILE_STAT","id":"` + id + `","payload":7}`,
		`{"type":"PING","id":"` + id + `","payload":{}}`,
		`{"type":"NEVER_HEARD_OF","id":"` + id + `","payload":{}}`,
		`{"type":"FILE_STAT","id":"` + id + `","payload":{`,
	} {
		data.Raw([]byte(frame))
	}
	data.Silent(id)
	close(g.door("a"))
	decodeTo[wire.FileListResponse](t, data.Wait(id), wire.TFileListResponse)
	data.Call(wire.TPing, nil)
	// Afterwards the id may be used again.
	data.Expect(id, wire.TFileStatResponse)
	data.Raw([]byte(`{"type":"FILE_STAT","id":"` + id + `","payload":{"path":"x"}}`))
	data.Wait(id)
}

// TestLostSocketCancels: when the socket is gone the calls end, and their answers
// never appear on the next socket.
func TestLostSocketCancels(t *testing.T) {
	r, g := gated(t)
	control := r.start()
	data, b := r.data(control, "s")
	data.Request(wire.TFileList, wire.FileList{Path: "a"})
	<-g.started
	data.Drop()
	<-data.Gone()
	var again *shimtest.Socket
	for again == nil {
		control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "s", RootGrant: b.RootGrant})
		select {
		case again = <-r.platform.Arrivals():
		default:
		}
	}
	if n := g.running.Load(); n != 0 {
		t.Errorf("%d calls of the lost socket still run", n)
	}
	again.Call(wire.TFileStat, wire.FileStat{Path: "x"})
}

// TestDetachAnswersWhatItCancels: calls in flight get an ERROR before the socket
// closes.
func TestDetachAnswersWhatItCancels(t *testing.T) {
	r, g := gated(t)
	control := r.start()
	data, _ := r.data(control, "s")
	id := data.Request(wire.TFileList, wire.FileList{Path: "a"})
	<-g.started
	decodeTo[wire.Ack](t, control.Call(wire.TDetachSession, wire.DetachSession{SessionID: "s"}), wire.TAck)
	wantError(t, data.Wait(id), wire.InternalError)
	if code, _ := data.Ended(); code != 1000 {
		t.Errorf("closed with %d", code)
	}
}

// TestRevokedInFlight: after SESSION_REVOKED not even the answers of what runs.
func TestRevokedInFlight(t *testing.T) {
	r, g := gated(t)
	control := r.start()
	data, _ := r.data(control, "s")
	data.Request(wire.TFileList, wire.FileList{Path: "a"})
	<-g.started
	data.Revoke(wire.ReasonUserRevoked)
	if code, _ := data.Ended(); code != 4428 {
		t.Errorf("closed with %d", code)
	}
	control.Call(wire.TPing, nil)
}

// TestEmit: chunks come in order and before the answer, and none after it.
func TestEmit(t *testing.T) {
	r := newRig(t)
	var late *shim.Call
	var lateMu sync.Mutex
	table := r.table()
	stop := "stop"
	table[wire.TLocalLLMCompletion] = shim.Method{Handle: shim.Unary(func(_ context.Context, c *shim.Call, req wire.LocalLLMCompletion) (any, error) {
		lateMu.Lock()
		late = c
		lateMu.Unlock()
		for i := range 100 {
			if err := c.Emit(wire.TLocalLLMCompletionChunk, wire.LocalLLMChunk{Delta: strconv.Itoa(i)}); err != nil {
				return nil, err
			}
		}
		if req.Model == "broken" {
			return nil, wire.Errorf(wire.LocalLLMFailed, "broke off")
		}
		if err := c.Emit(wire.THardwareResult, nil); !errors.Is(err, link.ErrRefused) {
			return nil, fmt.Errorf("emitted what was not granted: %w", err)
		}
		return wire.LocalLLMResponse{FinishReason: stop}, nil
	})}
	r.serve(table)
	control := r.start()
	data, _ := r.data(control, "s")
	for model, last := range map[string]wire.Type{"good": wire.TLocalLLMCompletionResponse, "broken": wire.TError} {
		id := data.Request(wire.TLocalLLMCompletion, wire.LocalLLMCompletion{Model: model})
		for i := range 100 {
			e := data.Wait(id)
			if c := decodeTo[wire.LocalLLMChunk](t, e, wire.TLocalLLMCompletionChunk); c.Delta != strconv.Itoa(i) || e.PendingCapacity != nil {
				t.Fatalf("chunk %d: %s, capacity %v", i, e.Payload, e.PendingCapacity)
			}
		}
		if e := data.Wait(id); e.Type != last {
			t.Errorf("%s ended with %s %s", model, e.Type, e.Payload)
		}
		lateMu.Lock()
		if err := late.Emit(wire.TLocalLLMCompletionChunk, wire.LocalLLMChunk{}); err == nil {
			t.Error("a chunk after the answer")
		}
		lateMu.Unlock()
	}
	data.Call(wire.TPing, nil)
}

// TestRefusedAnswer: a handler whose answer isn't allowed on the socket still
// leaves one.
func TestRefusedAnswer(t *testing.T) {
	r := newRig(t)
	table := r.table()
	table[wire.TFileStat] = shim.Method{Handle: func(context.Context, *shim.Call) (any, error) { return make(chan int), nil }}
	r.serve(table)
	control := r.start()
	data, _ := r.data(control, "s")
	wantError(t, data.Call(wire.TFileStat, wire.FileStat{}), wire.InternalError)
	if e := data.Call(wire.TPing, nil); e.Type != wire.TPong {
		t.Error(e.Type)
	}
}

// TestBigAnswer: what doesn't fit a message is FILE_TOO_LARGE, with the slot free.
func TestBigAnswer(t *testing.T) {
	r := newRig(t)
	table := r.table()
	table[wire.TFileRead] = shim.Method{Handle: func(context.Context, *shim.Call) (any, error) {
		return &wire.FileContents{Content: make([]byte, 13<<20), Encoding: wire.EncodingBase64}, nil
	}}
	r.serve(table)
	control := r.start()
	data, _ := r.data(control, "s")
	e := data.Call(wire.TFileRead, wire.FileRead{})
	if d := wantError(t, e, wire.FileTooLarge); d["attempted_bytes"] == nil || *e.PendingCapacity != 4 {
		t.Errorf("details %v", d)
	}
}
