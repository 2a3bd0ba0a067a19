package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"farhand/client"
	"farhand/client/clienttest"
	"farhand/stream"
	"farhand/wire"
)

// source scripts a machine on which every HARDWARE_OP opens a stream.
func source(t *testing.T, r *clienttest.Relay, o stream.Options) <-chan *stream.Stream {
	t.Helper()
	opened := make(chan *stream.Stream, 4)
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type != wire.THardwareOp {
				return "", nil, clienttest.ErrPass
			}
			s, err := r.Streams.Open(o)
			if err != nil {
				return "", nil, err
			}
			opened <- s
			return wire.THardwareResult, wire.HardwareResult{Device: "gpio:x", Generation: 1, Result: wire.Opened{Stream: s.ID()}}, nil
		}
	})
	return opened
}

func watch(t *testing.T, s *client.Session, credit int) *client.Stream {
	t.Helper()
	args, _ := json.Marshal(map[string]int{"credit": credit})
	st, res, err := s.Watch(t.Context(), wire.HardwareOp{Device: "gpio:x", Op: "X_WATCH", Args: args})
	if err != nil {
		t.Fatal(err)
	}
	if res.Device != "gpio:x" || st.ID() == "" {
		t.Fatalf("%+v, stream %q", res, st.ID())
	}
	return st
}

func next(t *testing.T, st *client.Stream) client.Chunk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := st.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v (%v)", err, st.Trouble())
	}
	return c
}

// drain reads a stream of bytes to its end and checks that offsets are without a
// gap that isn't told. It returns the data and how much was lost.
func drain(t *testing.T, st *client.Stream) (data []byte, lost int64, end *wire.StreamEnd) {
	t.Helper()
	at := int64(0)
	for end == nil {
		c := next(t, st)
		if c.Lost != nil {
			if c.Lost.From != at || c.Lost.To != c.Offset {
				t.Fatalf("at %d: lost %+v before %d", at, c.Lost, c.Offset)
			}
			lost += c.Lost.To - c.Lost.From
			at = c.Offset
		}
		if c.Offset != at {
			t.Fatalf("offset %d, want %d", c.Offset, at)
		}
		data, at, end = append(data, c.Data...), at+int64(len(c.Data)), c.End
	}
	if _, err := st.Next(t.Context()); err != io.EOF {
		t.Fatalf("after the end: %v", err)
	}
	return data, lost, end
}

// Bytes arrive whole and in order, many times as many as there is credit for.
func TestStream(t *testing.T) {
	r, c := setup(t)
	const credit = 64 << 10
	opened := source(t, r, stream.Options{Credit: credit, Ring: 2 << 20})
	st := watch(t, open(t, c), credit)
	s := <-opened
	want := make([]byte, 2<<20)
	rand.Read(want)
	code := 3
	if _, err := s.Write(want); err != nil {
		t.Fatal(err)
	}
	s.End("exited", &code)
	got, lost, end := drain(t, st)
	if !bytes.Equal(got, want) || lost != 0 || end.Reason != "exited" || *end.ExitCode != 3 {
		t.Fatalf("%d of %d bytes, %d lost, %+v", len(got), len(want), lost, end)
	}
	if n := count(r.Calls(), "STREAM_CREDIT"); n < 10 || n > 200 {
		t.Errorf("%d frames of credit for %d windows", n, len(want)/credit)
	}
	if slices.Contains(r.Calls(), "STREAM_ATTACH") {
		t.Error("it was attached again without need")
	}
	if err := st.Close(t.Context()); err != nil || slices.Contains(r.Calls(), "STREAM_CLOSE") {
		t.Errorf("closing what had ended: %v", err)
	}
}

// A consumer that doesn't read gets no more than its credit ahead.
func TestStreamConsumerIsSlow(t *testing.T) {
	r, c := setup(t)
	const credit = 64 << 10
	opened := source(t, r, stream.Options{Credit: credit, Ring: 1 << 20})
	s := open(t, c)
	st := watch(t, s, credit)
	src := <-opened
	if _, err := src.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	next(t, st) // it flows
	if _, err := s.Stat(t.Context(), ".", true); err != nil {
		t.Fatal(err) // and holds up nobody
	}
	if sent := r.Streams.List()[0].Sent; sent > credit+wire.StreamDataMax {
		t.Errorf("%d bytes were sent to a consumer that read one piece", sent)
	}
	src.End("x", nil)
	if got, lost, _ := drainFrom(t, st); got+lost == 0 {
		t.Error("nothing more came")
	}
}

// drainFrom counts what is left of a stream.
func drainFrom(t *testing.T, st *client.Stream) (got, lost int64, end *wire.StreamEnd) {
	t.Helper()
	for end == nil {
		c := next(t, st)
		if c.Lost != nil {
			lost += c.Lost.To - c.Lost.From
		}
		got, end = got+int64(len(c.Data)+len(c.Records)), c.End
	}
	return got, lost, end
}

// A link that is lost again and again costs nothing that the ring still holds.
func TestStreamOverLostLinks(t *testing.T) {
	r, c := setup(t)
	const credit, total = 32 << 10, 1 << 20
	opened := source(t, r, stream.Options{Credit: credit, Ring: total})
	st := watch(t, open(t, c), credit)
	s := <-opened
	want := make([]byte, total)
	rand.Read(want)
	if _, err := s.Write(want); err != nil {
		t.Fatal(err)
	}
	s.End("x", nil)
	var got []byte
	for cuts := 0; ; {
		p := next(t, st)
		if p.Lost != nil || p.Offset != int64(len(got)) {
			t.Fatalf("offset %d after %d bytes, lost %+v", p.Offset, len(got), p.Lost)
		}
		if got = append(got, p.Data...); p.End != nil {
			break
		}
		if cuts < 3 && len(got) > (cuts+1)*total/5 {
			cuts++
			r.Cut()
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatal("what came isn't what was sent")
	}
	if n := count(r.Calls(), "STREAM_ATTACH"); n < 3 || n > 9 {
		t.Errorf("attached %d times after 3 losses", n)
	}
}

// What the ring has lost meanwhile is a gap, and the sum is right.
func TestStreamGap(t *testing.T) {
	r, c := setup(t)
	opened := source(t, r, stream.Options{Ring: 8 << 10})
	st := watch(t, open(t, c), 0)
	s := <-opened
	fmt.Fprint(s, "hello")
	if p := next(t, st); string(p.Data) != "hello" {
		t.Fatalf("%+v", p)
	}
	var hold atomic.Bool
	hold.Store(true)
	tried := make(chan struct{}, 64)
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TStreamAttach && hold.Load() {
				tried <- struct{}{}
				return "", nil, wire.Errorf(wire.MachineUnreachable, "offline")
			}
			return "", nil, clienttest.ErrPass
		}
	})
	r.Cut()
	<-tried
	const lot = 100 << 10
	if _, err := s.Write(make([]byte, lot)); err != nil {
		t.Fatal(err)
	}
	s.Skip(10)
	fmt.Fprint(s, "bye")
	s.End("x", nil)
	<-tried
	if st.Trouble() == nil {
		t.Error("no trouble is told")
	}
	hold.Store(false)
	got, lost, _ := drainFrom(t, st)
	if got+lost != lot+13 || lost < lot-8<<10 || got < 4<<10 {
		t.Fatalf("got %d, lost %d, together %d; want %d", got, lost, got+lost, lot+13)
	}
	if st.Trouble() != nil {
		t.Errorf("it is still said: %v", st.Trouble())
	}
}

// A relay that lost frames says so, and the stream is attached where it stands.
func TestStreamMissed(t *testing.T) {
	r, c := setup(t)
	opened := source(t, r, stream.Options{})
	sess := open(t, c)
	st := watch(t, sess, 0)
	s := <-opened
	fmt.Fprint(s, "a")
	next(t, st)
	thief, stolen := context.WithCancel(t.Context())
	defer stolen()
	_, flow, err := r.Streams.Attach(wire.StreamAttach{Stream: st.ID()}, stream.Owner{}, sink{thief})
	if err != nil {
		t.Fatal(err)
	}
	flow()
	fmt.Fprint(s, "b") // goes elsewhere
	r.Missed("another session")
	r.Missed(sess.Info().ID)
	if p := next(t, st); string(p.Data) != "b" || p.Offset != 1 || p.Lost != nil {
		t.Fatalf("%+v", p)
	}
	if n := count(r.Calls(), "STREAM_ATTACH"); n != 1 {
		t.Errorf("attached %d times", n)
	}
}

// A machine that can't be reached for a while, over a link that holds: it is
// tried until it can.
func TestStreamMachineAway(t *testing.T) {
	r, c := setup(t)
	opened := source(t, r, stream.Options{})
	sess := open(t, c)
	st := watch(t, sess, 0)
	s := <-opened
	fmt.Fprint(s, "0")
	if p := next(t, st); string(p.Data) != "0" { // by now the client is attached
		t.Fatalf("%+v", p)
	}
	_, flow, err := r.Streams.Attach(wire.StreamAttach{Stream: st.ID()}, stream.Owner{}, sink{t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	flow()
	fmt.Fprint(s, "a")
	var failures atomic.Int32
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TStreamAttach && failures.Add(1) < 3 {
				return "", nil, wire.Errorf(wire.MachineUnreachable, "offline")
			}
			return "", nil, clienttest.ErrPass
		}
	})
	r.Missed(sess.Info().ID)
	if p := next(t, st); string(p.Data) != "a" || failures.Load() != 3 {
		t.Fatalf("%+v after %d attempts", p, failures.Load())
	}
}

// sink takes frames and loses them.
type sink struct{ ctx context.Context }

func (s sink) Request() string                                     { return "sink" }
func (s sink) Context() context.Context                            { return s.ctx }
func (s sink) Send(context.Context, string, wire.StreamData) error { return nil }

// A frame before which something is missing isn't taken: the stream is attached
// again, and the missing comes first.
func TestStreamNoticesTheGap(t *testing.T) {
	r, c := setup(t)
	opened := source(t, r, stream.Options{})
	st := watch(t, open(t, c), 0)
	s := <-opened
	fmt.Fprint(s, "a")
	next(t, st)
	_, flow, err := r.Streams.Attach(wire.StreamAttach{Stream: st.ID()}, stream.Owner{}, sink{t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	flow()
	fmt.Fprint(s, "bc")
	r.Push(wire.StreamData{Stream: st.ID(), Offset: 3, Data: []byte("d")})
	fmt.Fprint(s, "d")
	s.End("x", nil)
	if got, lost, _ := drainFrom(t, st); got != 3 || lost != 0 {
		t.Fatalf("got %d, lost %d", got, lost)
	}
}

// The device no longer has the stream: that is the end, and an error.
func TestStreamUnknown(t *testing.T) {
	r, c := setup(t)
	opened := source(t, r, stream.Options{})
	st := watch(t, open(t, c), 0)
	s := <-opened
	fmt.Fprint(s, "last words")
	until(t, "sent", func() bool { return r.Streams.List()[0].Sent > 0 })
	r.Streams.CloseStream(st.ID(), stream.Owner{})
	r.Cut()
	if p := next(t, st); string(p.Data) != "last words" { // what had come is still read
		t.Fatalf("%+v", p)
	}
	if _, err := st.Next(t.Context()); !errors.Is(err, wire.StreamNotFound) {
		t.Fatalf("%v, want STREAM_NOT_FOUND", err)
	}
}

func TestStreamCloseAndDetach(t *testing.T) {
	r, c := setup(t)
	opened := source(t, r, stream.Options{})
	s := open(t, c)
	ctx := t.Context()
	st := watch(t, s, 0)
	src := <-opened
	if err := st.Close(ctx); err != nil {
		t.Fatal(err)
	}
	<-src.Done()
	if _, err := st.Next(ctx); err == nil || err == io.EOF {
		t.Errorf("Next after Close: %v", err)
	}
	st.Close(ctx)

	st = watch(t, s, 0)
	src = <-opened
	fmt.Fprint(src, "abc")
	next(t, st)
	st.Detach()
	st.Detach()
	fmt.Fprint(src, "def")
	from := int64(3)
	st, at, err := s.Attach(ctx, src.ID(), &from, 0)
	if err != nil || at.Oldest != 0 || at.Next != 6 {
		t.Fatalf("Attach = %+v, %v", at, err)
	}
	if p := next(t, st); p.Offset != 3 || string(p.Data) != "def" {
		t.Fatalf("%+v", p)
	}
	again, _, err := s.Attach(ctx, src.ID(), nil, 0) // by the same client: the first ends
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(ctx); err == nil {
		t.Error("two receive one stream")
	}
	if p := next(t, again); p.Offset != 0 || string(p.Data) != "abcdef" {
		t.Fatalf("%+v", p)
	}
	if _, _, err := s.Attach(ctx, strings.Repeat("0", 32), nil, 0); !errors.Is(err, wire.StreamNotFound) {
		t.Errorf("%v, want STREAM_NOT_FOUND", err)
	}
	c.Close()
	if _, err := again.Next(ctx); err == nil {
		t.Error("a stream outlived its client")
	}
}

// A stream on which nothing comes is tended: credit of no bytes, and after a
// longer silence STREAM_ATTACH, which finds out whether it is still there.
func TestStreamIsTended(t *testing.T) {
	r, c := setup(t)
	client.TendStreams(c, 5*time.Millisecond, 20*time.Millisecond)
	opened := source(t, r, stream.Options{})
	st := watch(t, open(t, c), 0)
	src := <-opened
	until(t, "tended", func() bool {
		calls := r.Calls()
		return count(calls, "STREAM_CREDIT") > 0 && count(calls, "STREAM_ATTACH") > 0
	})
	if got, want := r.Body("STREAM_CREDIT"), fmt.Sprintf(`{"stream":%q,"bytes":0}`, st.ID()); got != want {
		t.Errorf("credit was %s, want %s", got, want)
	}
	if got, want := r.Body("STREAM_ATTACH"), fmt.Sprintf(`{"stream":%q,"from":0,"credit":%d}`, st.ID(), wire.StreamCreditDefault); got != want {
		t.Errorf("attached by %s, want %s", got, want)
	}
	fmt.Fprint(src, "x")
	if p := next(t, st); string(p.Data) != "x" {
		t.Fatalf("%+v", p)
	}
}

func TestWatchFailures(t *testing.T) {
	r, c := setup(t)
	s := open(t, c)
	if _, _, err := s.Watch(t.Context(), wire.HardwareOp{Device: "nope", Op: "X"}); !errors.Is(err, wire.HardwareNotFound) {
		t.Errorf("%v, want HARDWARE_NOT_FOUND", err)
	}
	if _, _, err := s.Watch(t.Context(), wire.HardwareOp{Device: clienttest.SerialID, Op: wire.OpRelease}); !errors.Is(err, wire.InternalError) {
		t.Errorf("an answer without a stream: %v", err)
	}
	var half *stream.Stream // of an answer that can be read in part only
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type != wire.THardwareOp {
				return "", nil, clienttest.ErrPass
			}
			var err error
			half, err = r.Streams.Open(stream.Options{})
			return wire.THardwareResult, map[string]any{"device": 7, "result": wire.Opened{Stream: half.ID()}}, err
		}
	})
	if _, _, err := s.Watch(t.Context(), wire.HardwareOp{Device: "x", Op: "X"}); !errors.Is(err, wire.InternalError) {
		t.Errorf("%v, want INTERNAL_ERROR", err)
	}
	<-half.Done() // it was closed
	ctx, cancel := context.WithCancel(t.Context())
	r.Change(func() {
		r.Handle = func(wire.Envelope) (wire.Type, any, error) { cancel(); return "", nil, nil }
	})
	if _, _, err := s.Watch(ctx, wire.HardwareOp{Device: "x", Op: "X"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	r.Change(func() { r.Handle = nil })
	if _, err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWatchDevices(t *testing.T) {
	r, c := setup(t)
	st, list, err := c.WatchDevices(t.Context(), "pi", "")
	if err != nil || len(list.Devices) != 2 || list.Stream != st.ID() {
		t.Fatalf("%+v, %v", list, err)
	}
	r.Plug(wire.HardwareRemoved, list.Devices[0])
	r.Plug(wire.HardwareAdded, list.Devices[0])
	var got []wire.HardwareEvent
	for len(got) < 2 {
		events, err := client.Decode[wire.HardwareEvent](next(t, st))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, events...)
	}
	if got[0].Event != wire.HardwareRemoved || got[1].Event != wire.HardwareAdded || got[1].Device.ID != clienttest.SerialID {
		t.Fatalf("%+v", got)
	}
	r.Missed("") // of the machine
	until(t, "attached again", func() bool { return slices.Contains(r.Calls(), "STREAM_ATTACH") })
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.WatchDevices(t.Context(), "mars", "serial"); !errors.Is(err, wire.MachineNotAttached) {
		t.Errorf("%v, want MACHINE_NOT_ATTACHED", err)
	}
}

func TestDecode(t *testing.T) {
	got, err := client.Decode[int](client.Chunk{Records: []json.RawMessage{[]byte("1"), []byte("null"), []byte("3")}})
	if err != nil || fmt.Sprint(got) != "[1 3]" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = client.Decode[int](client.Chunk{Offset: 7, Records: []json.RawMessage{[]byte("1"), []byte(`"x"`)}}); err == nil || !strings.Contains(err.Error(), "record 8") || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// until polls a condition that nothing announces.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not in time", what)
		}
	}
}
