package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/stream"
	"farhand/wire"
)

var alice = stream.Owner{Session: "s"}

// rig is a service and its hub, with a server that serve plays.
type rig struct {
	*Service
	t     *testing.T
	hub   *stream.Hub
	port  int
	ended chan Ended
}

func newRig(t *testing.T, serve func(*net.TCPConn)) *rig {
	t.Helper()
	leak.Check(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	allow, err := ParseAllow([]string{"127.0.0.1:*"})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, hub: stream.NewHub(stream.HubOptions{}), port: l.Addr().(*net.TCPAddr).Port, ended: make(chan Ended, 1000)}
	r.Service = New(allow, r.hub, func(e Ended) { r.ended <- e })
	t.Cleanup(func() {
		r.Service.Close()
		r.hub.Close()
		l.Close()
		served.Wait()
	})
	return r
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, struct{ io.Reader }{c}) }

// far is the operator's end of a connection.
type far struct {
	r      *rig
	id     string
	frames chan wire.StreamData
	next   int64
}

func (f *far) Request() string          { return "r" }
func (f *far) Context() context.Context { return f.r.t.Context() }
func (f *far) Send(_ context.Context, _ string, d wire.StreamData) error {
	f.frames <- d
	return nil
}

func (r *rig) dial() *far {
	r.t.Helper()
	o, err := r.Open(wire.ForwardOpen{Host: "127.0.0.1", Port: r.port}, alice, func() func() { return func() {} })
	if err != nil {
		r.t.Fatal(err)
	}
	f := &far{r: r, id: o.Stream, frames: make(chan wire.StreamData, 4096)}
	r.hub.Begin(o.Stream, f)
	return f
}

// send sends bytes as fast as they are taken, each piece twice.
func (f *far) send(b []byte, eof bool) {
	f.r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for sent := false; !sent; {
		part := b[:min(len(b), wire.MaxForwardData)]
		last := len(part) == len(b)
		for range 2 {
			got, err := f.r.Data(wire.ForwardData{Stream: f.id, Offset: f.next, Data: bytes.Clone(part), EOF: eof && last}, alice)
			if err != nil {
				f.r.t.Error(err)
				return
			}
			if got.Next == f.next+int64(len(part)) {
				sent = last
			}
		}
		if got, _ := f.r.Data(wire.ForwardData{Stream: f.id, Offset: f.next + int64(len(part))}, alice); got.Next == f.next+int64(len(part)) {
			f.next, b = got.Next, b[len(part):]
		} else if sent = false; time.Now().After(deadline) {
			f.r.t.Error("the target takes nothing")
			return
		}
	}
}

// receive receives to the end, giving credit.
func (f *far) receive() (got []byte, first wire.ForwardRecord, eof bool, reason string) {
	f.r.t.Helper()
	n := 0
	for {
		select {
		case d := <-f.frames:
			if d.Lost != nil {
				f.r.t.Errorf("lost %+v", *d.Lost)
			}
			size := 0
			for _, raw := range d.Records {
				size += len(raw)
				var rec wire.ForwardRecord
				if err := json.Unmarshal(raw, &rec); err != nil {
					f.r.t.Fatal(err)
				}
				if n++; n == 1 {
					first = rec
				}
				got, eof = append(got, rec.Data...), eof || rec.EOF
			}
			f.r.hub.Credit(wire.StreamCredit{Stream: f.id, Bytes: size}, alice)
			if d.End != nil {
				return got, first, eof, d.End.Reason
			}
		case <-time.After(time.Minute):
			f.r.t.Fatal("no end")
		}
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b) // never fails
	return b
}

func TestEcho(t *testing.T) {
	r := newRig(t, echo)
	f := r.dial()
	want := random(3 << 20)
	go f.send(want, true)
	got, first, eof, reason := f.receive()
	if !bytes.Equal(got, want) || first.Connected == "" || !eof || reason != stream.ReasonDone {
		t.Errorf("%d of %d bytes, %+v, %v, %s", len(got), len(want), first, eof, reason)
	}
	e := <-r.ended
	if e.Sent != int64(len(want)) || e.Received != int64(len(want)) || e.Address == "" || e.Reason != stream.ReasonDone || e.Session != "s" {
		t.Errorf("%+v", e)
	}
	if _, err := r.Data(wire.ForwardData{Stream: f.id}, alice); !errors.Is(err, wire.StreamNotFound) {
		t.Errorf("after the end: %v", err)
	}
}

// The target ends first, and takes what comes afterwards.
func TestHalfClose(t *testing.T) {
	rest := make(chan string, 1)
	r := newRig(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "bye")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		rest <- string(b)
	})
	f := r.dial()
	for seen := false; !seen; {
		for _, raw := range (<-f.frames).Records {
			seen = seen || bytes.Contains(raw, []byte(`"eof":true`))
		}
	}
	f.send([]byte("and after that"), true)
	if got := <-rest; got != "and after that" {
		t.Errorf("the target got %q", got)
	}
	if e := <-r.ended; e.Reason != stream.ReasonDone {
		t.Errorf("%+v", e)
	}
}

// One side breaks off, and the other is told by a reset.
func TestReset(t *testing.T) {
	r := newRig(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	})
	f := r.dial()
	f.send([]byte("x"), false)
	if _, _, eof, reason := f.receive(); eof || reason != ReasonReset {
		t.Errorf("%v %s", eof, reason)
	}

	broken := make(chan error, 1)
	r = newRig(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, struct{ io.Reader }{c})
		broken <- err
	})
	f = r.dial()
	<-f.frames // it is connected
	f.send([]byte("x"), false)
	r.hub.CloseStream(f.id, alice)
	if err := <-broken; err == nil {
		t.Error("the target saw an orderly end")
	}
	if e := <-r.ended; e.Reason != stream.ReasonClosed {
		t.Errorf("%+v", e)
	}
}

// A target that takes nothing holds up its own connection, within bounds.
func TestStuck(t *testing.T) {
	release := make(chan struct{})
	var first sync.Once
	r := newRig(t, func(c *net.TCPConn) {
		stuck := false
		first.Do(func() { stuck = true })
		if stuck {
			<-release
			return
		}
		echo(c)
	})
	stuck := r.dial()
	if d := <-stuck.frames; len(d.Records) != 1 {
		t.Fatalf("%+v", d)
	}
	taken := int64(0)
	for piece := make([]byte, wire.MaxForwardData); ; {
		got, err := r.Data(wire.ForwardData{Stream: stuck.id, Offset: taken, Data: piece}, alice)
		if err != nil {
			t.Fatal(err)
		}
		if got.Next == taken && got.Limit-got.Next < int64(len(piece)) {
			// What the kernel takes of it is bounded, too: wait until that is full.
			if again, _ := r.Data(wire.ForwardData{Stream: stuck.id, Offset: taken}, alice); again.Limit == got.Limit && full(r, stuck.id) {
				break
			}
		}
		taken = got.Next
		if taken > 64<<20 {
			t.Fatal("the target takes nothing, and everything is taken for it")
		}
	}
	var all sync.WaitGroup
	for range 20 {
		f := r.dial()
		want := random(200 << 10)
		all.Go(func() { f.send(want, true) })
		all.Go(func() {
			if got, _, _, reason := f.receive(); !bytes.Equal(got, want) || reason != stream.ReasonDone {
				t.Errorf("beside a stuck one: %d of %d bytes, %s", len(got), len(want), reason)
			}
		})
	}
	all.Wait()
	close(release)
}

// full says whether the writer of a connection has waited for its target for a
// while.
func full(r *rig, id string) bool {
	r.mu.Lock()
	c := r.conns[id]
	r.mu.Unlock()
	c.mu.Lock()
	before := c.given
	c.mu.Unlock()
	<-time.After(50 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.given == before
}

// A receiver that takes nothing holds up the target, and loses nothing.
func TestSlowReceiver(t *testing.T) {
	want := random(2 << 20)
	r := newRig(t, func(c *net.TCPConn) { _, _ = c.Write(want) })
	f := r.dial()
	<-time.After(100 * time.Millisecond)
	r.mu.Lock()
	c := r.conns[f.id]
	r.mu.Unlock()
	c.mu.Lock()
	received := c.received
	c.mu.Unlock()
	if received > stream.DefaultRing+piece {
		t.Errorf("%d bytes were read for nobody", received)
	}
	f.send(nil, true)
	if got, _, _, reason := f.receive(); !bytes.Equal(got, want) || reason != stream.ReasonDone {
		t.Errorf("%d of %d bytes, %s", len(got), len(want), reason)
	}
}

func TestNoConnection(t *testing.T) {
	r := newRig(t, echo)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.port = closed.Addr().(*net.TCPAddr).Port
	closed.Close()
	f := r.dial()
	_, first, _, reason := f.receive()
	if first.Error == nil || first.Error.Code != wire.TargetUnreachable || first.Error.Message == "" || reason != stream.ReasonFailed {
		t.Errorf("%+v, %s", first, reason)
	}
	if e := <-r.ended; e.Address != "" || e.Reason != stream.ReasonFailed {
		t.Errorf("%+v", e)
	}
	if _, err := r.Open(wire.ForwardOpen{Host: "127.0.0.2", Port: 80}, alice, nil); !errors.Is(err, wire.TargetNotAllowed) {
		t.Error(err)
	}
	if _, err := r.Open(wire.ForwardOpen{Host: "127.0.0.1", Port: 80, Credit: wire.MaxPacedCredit + 1}, alice, nil); !errors.Is(err, wire.InvalidArgument) {
		t.Error(err)
	}
}

// A target that never answers costs nobody else anything, and ends with its stream.
func TestDialing(t *testing.T) {
	r := newRig(t, echo)
	r.Service.dial = func(ctx context.Context, _ netip.AddrPort) (*net.TCPConn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var all []*far
	for range MaxPerSession {
		all = append(all, r.dial())
	}
	_, err := r.Open(wire.ForwardOpen{Host: "127.0.0.1", Port: r.port}, alice, nil)
	if !errors.Is(err, wire.ShimOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	r.hub.EndWhere(stream.ReasonGrantRevoked, func(stream.Info) bool { return true })
	for range all {
		if e := <-r.ended; e.Reason != stream.ReasonGrantRevoked {
			t.Errorf("%+v", e)
		}
	}
}

func TestForeignData(t *testing.T) {
	r := newRig(t, echo)
	f := r.dial()
	for name, c := range map[string]struct {
		d    wire.ForwardData
		by   stream.Owner
		code wire.Code
	}{
		"somebody else":        {wire.ForwardData{Stream: f.id}, stream.Owner{Session: "other", Holder: "bob"}, wire.StreamNotFound},
		"no connection":        {wire.ForwardData{Stream: "x"}, alice, wire.StreamNotFound},
		"too much":             {wire.ForwardData{Stream: f.id, Data: make([]byte, wire.MaxForwardData+1)}, alice, wire.InvalidArgument},
		"before the beginning": {wire.ForwardData{Stream: f.id, Offset: -1, Data: []byte("x")}, alice, wire.InvalidArgument},
	} {
		if _, err := r.Data(c.d, c.by); wire.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := r.Data(wire.ForwardData{Stream: f.id, Offset: 5, Data: []byte("gap")}, alice); err != nil || got.Next != 0 {
		t.Errorf("after a gap: %+v, %v", got, err)
	}
	f.send([]byte("abc"), true)
	if _, err := r.Data(wire.ForwardData{Stream: f.id, Offset: 3, Data: []byte("d")}, alice); !errors.Is(err, wire.InvalidArgument) {
		t.Errorf("after the end: %v", err)
	}
	if got, _, _, _ := f.receive(); string(got) != "abc" {
		t.Errorf("%q", got)
	}
}
