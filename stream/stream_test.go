package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/leak"
	"farhand/wire"
)

// outlet is a receiver's socket.
type outlet struct {
	id     string
	ctx    context.Context
	frames chan wire.StreamData
	ids    chan string
}

func newOutlet(t *testing.T, id string) *outlet {
	return &outlet{id: id, ctx: t.Context(), frames: make(chan wire.StreamData, 1000), ids: make(chan string, 1000)}
}

func (o *outlet) Request() string { return o.id }

func (o *outlet) Context() context.Context { return o.ctx }

func (o *outlet) Send(ctx context.Context, id string, d wire.StreamData) error {
	select {
	case o.frames <- d:
		o.ids <- id
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func open(t *testing.T, h *Hub, o Options) *Stream {
	t.Helper()
	s, err := h.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var alice = Owner{Session: "s", Holder: "alice", Owner: "owner"}

func from(n int64) *int64 { return &n }

func TestBytesFlowAsFarAsCreditReaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{})
		defer h.Close()
		s := open(t, h, Options{Owner: alice, Credit: 4})
		s.Write([]byte("hello"))
		o := newOutlet(t, "r1")
		h.Begin(s.ID(), o)
		synctest.Wait()
		if d := <-o.frames; string(d.Data) != "hell" || d.Offset != 0 || d.Stream != s.ID() || d.Lost != nil || d.End != nil {
			t.Errorf("%+v", d)
		}
		if id := <-o.ids; id != "r1/1" {
			t.Errorf("the first frame's id is %q", id)
		}
		synctest.Wait()
		if len(o.frames) != 0 {
			t.Errorf("%d frames without credit", len(o.frames))
		}
		h.Credit(wire.StreamCredit{Stream: s.ID(), Bytes: 10}, Owner{Session: "another", Holder: "mallory", Owner: "owner"})
		h.Credit(wire.StreamCredit{Stream: s.ID(), Bytes: -5}, alice)
		h.Credit(wire.StreamCredit{Stream: "none", Bytes: 10}, alice)
		synctest.Wait()
		if len(o.frames) != 0 {
			t.Error("credit of a stranger counts")
		}
		h.Credit(wire.StreamCredit{Stream: s.ID(), Bytes: 10}, alice)
		if d := <-o.frames; string(d.Data) != "o" || d.Offset != 4 {
			t.Errorf("%+v", d)
		}
		code := 3
		s.End("exited", &code)
		s.End("again", nil)
		if d := <-o.frames; d.End == nil || d.End.Reason != "exited" || *d.End.ExitCode != 3 || d.Offset != 5 {
			t.Errorf("%+v", d)
		}
		if _, err := s.Write([]byte("x")); err == nil {
			t.Error("written after the end")
		}
		<-s.Done()
	})
}

func TestEndWaitsForCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{})
		defer h.Close()
		s := open(t, h, Options{Owner: alice, Credit: 1})
		s.Write([]byte("ab"))
		s.End("done", nil)
		o := newOutlet(t, "r")
		h.Begin(s.ID(), o)
		synctest.Wait()
		if d := <-o.frames; string(d.Data) != "a" || d.End != nil {
			t.Errorf("%+v", d)
		}
		h.Credit(wire.StreamCredit{Stream: s.ID(), Bytes: 1}, alice)
		if d := <-o.frames; string(d.Data) != "b" || d.End == nil { // the last data and the end are one frame
			t.Errorf("%+v", d)
		}
	})
}

func TestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{})
		defer h.Close()
		s := open(t, h, Options{Owner: alice, Records: true, Credit: 1000, Ring: 64 << 10})
		for i := range 3 {
			if err := s.Record(map[string]int{"n": i}); err != nil {
				t.Error(err)
			}
		}
		s.Skip(5)
		s.Skip(0)
		s.Record("after")
		if err := s.Record(strings.Repeat("x", wire.StreamDataMax)); err == nil {
			t.Error("a record larger than a frame was taken")
		}
		if err := s.Record(func() {}); err == nil {
			t.Error("what has no JSON was taken")
		}
		o := newOutlet(t, "r")
		h.Begin(s.ID(), o)
		synctest.Wait()
		d := <-o.frames
		if d.Offset != 0 || len(d.Records) != 3 || string(d.Records[2]) != `{"n":2}` {
			t.Errorf("%+v", d)
		}
		d = <-o.frames
		if d.Offset != 8 || len(d.Records) != 1 || *d.Lost != (wire.StreamGap{From: 3, To: 8}) {
			t.Errorf("%+v", d)
		}
		d = <-o.frames // the large one is lost, and nothing comes after it yet
		if d.Offset != 10 || len(d.Records) != 0 || d.Lost == nil || *d.Lost != (wire.StreamGap{From: 9, To: 10}) {
			t.Errorf("%+v %+v", d, d.Lost)
		}
		if s.Next() != 10 {
			t.Errorf("next is %d", s.Next())
		}
	})
}

func TestAttachReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{})
		defer h.Close()
		s := open(t, h, Options{Owner: alice, Ring: 8})
		first := newOutlet(t, "r1")
		h.Begin(s.ID(), first)
		s.Write([]byte("0123"))
		synctest.Wait()
		s.Write([]byte("456789ab")) // the ring has 456789ab by now
		synctest.Wait()

		again := newOutlet(t, "r2")
		a, flow, err := h.Attach(wire.StreamAttach{Stream: s.ID(), From: from(2)}, alice, again)
		if err != nil || a != (wire.StreamAttached{Stream: s.ID(), Oldest: 4, Next: 12}) {
			t.Fatalf("%+v, %v", a, err)
		}
		s.Write([]byte("c"))
		synctest.Wait()
		if n := len(first.frames); n != 2 { // as much as it had before
			t.Errorf("the first receiver got %d frames", n)
		}
		if len(again.frames) != 0 {
			t.Error("a frame before the answer")
		}
		flow()
		synctest.Wait()
		d := <-again.frames
		if string(d.Data) != "56789abc" || d.Offset != 5 || *d.Lost != (wire.StreamGap{From: 2, To: 5}) {
			t.Errorf("%+v %v", d, d.Lost)
		}
		if id := <-again.ids; id != "r2/1" {
			t.Errorf("id %q", id)
		}

		s.End("done", nil)
		late := newOutlet(t, "r3")
		a, flow, err = h.Attach(wire.StreamAttach{Stream: s.ID()}, alice, late) // from the oldest there is
		if err != nil || a.Oldest != 5 || a.Next != 13 {
			t.Fatalf("%+v, %v", a, err)
		}
		flow()
		if d := <-late.frames; string(d.Data) != "56789abc" || d.End == nil {
			t.Errorf("%+v", d)
		}
		for _, r := range []wire.StreamAttach{
			{Stream: s.ID(), From: from(14)}, {Stream: s.ID(), From: from(-1)}, {Stream: s.ID(), Credit: -1},
			{Stream: s.ID(), Credit: wire.MaxStreamCredit + 1},
		} {
			field := "credit"
			if r.From != nil {
				field = "from"
			}
			if _, _, err := h.Attach(r, alice, late); !errors.Is(err, wire.InvalidArgument) || wire.AsError(err).Details["field"] != field {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}

func TestWhoseStream(t *testing.T) {
	h := NewHub(HubOptions{})
	defer h.Close()
	s := open(t, h, Options{Owner: alice})
	control := open(t, h, Options{})
	for name, c := range map[string]struct {
		stream *Stream
		by     Owner
		may    bool
	}{
		"same session":           {s, Owner{Session: "s"}, true},
		"same holder":            {s, Owner{Session: "t", Holder: "alice", Owner: "owner"}, true},
		"the owner's own login":  {s, Owner{Session: "t", Holder: "owner", Owner: "owner"}, true},
		"another holder":         {s, Owner{Session: "t", Holder: "bob", Owner: "owner"}, false},
		"nobody":                 {s, Owner{Session: "t"}, false},
		"control":                {s, Owner{}, false},
		"control's own":          {control, Owner{}, true},
		"control's, by a holder": {control, Owner{Session: "t", Holder: "bob", Owner: "owner"}, false},
		"control's, by no one":   {control, Owner{Session: "t"}, false},
	} {
		_, _, err := h.Attach(wire.StreamAttach{Stream: c.stream.ID()}, c.by, newOutlet(t, "r"))
		if (err == nil) != c.may || err != nil && !errors.Is(err, wire.StreamNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.CloseStream(s.ID(), Owner{Session: "t", Holder: "bob", Owner: "owner"})
	if s.Info().Ended != "" {
		t.Error("closed by a stranger")
	}
	h.CloseStream(s.ID(), alice)
	h.CloseStream(s.ID(), alice)
	if s.Info().Ended != ReasonClosed {
		t.Errorf("%+v", s.Info())
	}
	if _, _, err := h.Attach(wire.StreamAttach{Stream: s.ID()}, alice, newOutlet(t, "r")); !errors.Is(err, wire.StreamNotFound) {
		t.Errorf("a closed stream is still there: %v", err)
	}
}

func TestEndedStreamsAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Info
		h := NewHub(HubOptions{Retain: time.Minute, Idle: time.Hour, OnEnd: func(i Info) { told = append(told, i) }})
		defer h.Close()
		s := open(t, h, Options{Owner: alice, Device: "gpio:x", Op: "GPIO_WATCH"})
		s.Write([]byte("abc"))
		s.End(ReasonGone, nil)
		if len(told) != 1 || told[0].Ended != ReasonGone || told[0].Device != "gpio:x" || told[0].Next != 3 || told[0].Sent != 0 {
			t.Errorf("told %+v", told)
		}
		try := func() error {
			_, _, err := h.Attach(wire.StreamAttach{Stream: s.ID()}, alice, newOutlet(t, "r"))
			return err
		}
		<-time.After(59 * time.Second)
		if err := try(); err != nil {
			t.Error(err)
		}
		<-time.After(2 * time.Second)
		if err := try(); !errors.Is(err, wire.StreamNotFound) {
			t.Error(err)
		}
	})
}

func TestUntendedStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{Idle: time.Minute})
		defer h.Close()
		s := open(t, h, Options{Owner: alice})
		for range 3 {
			<-time.After(50 * time.Second)
			h.Credit(wire.StreamCredit{Stream: s.ID()}, alice) // nothing but a sign of life
		}
		<-time.After(59 * time.Second)
		synctest.Wait()
		if i := s.Info(); i.Ended != "" {
			t.Errorf("ended although it was tended: %+v", i)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if i := s.Info(); i.Ended != ReasonIdle {
			t.Errorf("%+v", i)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	h := NewHub(HubOptions{Memory: 4 * DefaultRing})
	defer h.Close()
	var all []*Stream
	for range 3 {
		all = append(all, open(t, h, Options{Owner: alice}))
	}
	all = append(all, open(t, h, Options{Owner: Owner{Session: "t", Holder: "bob"}}))
	if _, err := h.Open(Options{Owner: alice}); !errors.Is(err, wire.ShimOverloaded) {
		t.Fatalf("a fifth stream: %v", err)
	}
	all[0].Write(make([]byte, 2*DefaultRing))
	all[0].End("done", nil)
	fifth := open(t, h, Options{Owner: Owner{Session: "u", Holder: "carol"}}) // the ended one makes room
	if _, _, err := h.Attach(wire.StreamAttach{Stream: all[0].ID()}, alice, newOutlet(t, "r")); !errors.Is(err, wire.StreamNotFound) {
		t.Errorf("the ended stream is still kept: %v", err)
	}
	if n := len(h.List()); n != 4 {
		t.Errorf("%d streams", n)
	}
	if n := h.EndWhere("enough", func(i Info) bool { return i.ID != fifth.ID() }); n != 3 {
		t.Errorf("%d ended", n)
	}
}

// However many take as much as they can, there is some for who comes next; and what
// was given back, or was there before a restart, counts as if it had never been taken.
func TestMemoryIsShared(t *testing.T) {
	h := NewHub(HubOptions{})
	defer h.Close()
	as := func(name string) Owner { return Owner{Session: "of " + name, Holder: name, Owner: "owner"} }
	// fill opens as many as there are to be had.
	fill := func(by Owner) (all []*Stream) {
		t.Helper()
		for {
			s, err := h.Open(Options{Owner: by})
			if errors.Is(err, wire.ShimOverloaded) {
				if wire.AsError(err).Details["hint"] == nil {
					t.Errorf("%v says nothing of what to do", err)
				}
				return all
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
	}
	first := fill(as("a"))
	second := fill(as("b"))
	nobody := fill(Owner{Session: "a platform's"}) // which says of nobody who he is
	if len(first) != 112 || len(second) != 14 || len(nobody) != 1 {
		t.Errorf("of 128 three have %d, %d, %d", len(first), len(second), len(nobody))
	}
	if x, err := h.Share(DefaultRing, as("c")); err != nil {
		t.Errorf("who comes then finds nothing: %v", err)
	} else {
		x.End("done", nil)
	}
	if _, err := h.Share(DefaultRing, as("a")); !errors.Is(err, wire.ShimOverloaded) {
		t.Errorf("more than a share: %v", err)
	}
	again, err := h.ShareAgain(DefaultRing, as("a"))
	if err != nil {
		t.Fatalf("one of before a restart: %v", err)
	}
	again.End("done", nil)
	for _, s := range slices.Concat(first, second, nobody) {
		s.End("done", nil)
	}
	if n := len(fill(as("a"))); n != 112 {
		t.Errorf("when all is given back one has %d", n)
	}
}

func TestALostReceiverLeavesTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		h := NewHub(HubOptions{})
		defer h.Close()
		s := open(t, h, Options{Owner: alice})
		o := newOutlet(t, "r")
		var cut context.CancelFunc
		o.ctx, cut = context.WithCancel(t.Context())
		h.Begin(s.ID(), o)
		cut()
		synctest.Wait()
		s.Write([]byte("while away"))
		if s.Info().Ended != "" {
			t.Error("the stream ended with its receiver's socket")
		}
		o2 := newOutlet(t, "r2")
		_, flow, err := h.Attach(wire.StreamAttach{Stream: s.ID(), From: from(0)}, alice, o2)
		if err != nil {
			t.Fatal(err)
		}
		flow()
		if d := <-o2.frames; string(d.Data) != "while away" {
			t.Errorf("%+v", d)
		}
	})
}

func TestNothingOpensOnAClosedHub(t *testing.T) {
	h := NewHub(HubOptions{})
	s := open(t, h, Options{Owner: alice})
	h.Close()
	if s.Info().Ended != ReasonStopping {
		t.Errorf("%+v", s.Info())
	}
	if _, err := h.Open(Options{}); err == nil {
		t.Error("opened")
	}
	h.Begin(s.ID(), newOutlet(t, "r"))
}

// TestNothingIsLostUnsaid writes, skips and reattaches at random, and adds up
// what a receiver gets: every byte is there or in a gap.
func TestNothingIsLostUnsaid(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			h := NewHub(HubOptions{})
			defer h.Close()
			records := seed%2 == 1
			s := open(t, h, Options{Owner: alice, Records: records, Ring: 1 + r.IntN(3*wire.StreamDataMax), Credit: 1 + r.IntN(100)})
			o := newOutlet(t, "0")
			h.Begin(s.ID(), o)
			var got int64
			drain := func() {
				for {
					synctest.Wait()
					select {
					case d := <-o.frames:
						got = check(t, s, d, got, records)
					default:
						return
					}
				}
			}
			for i := range 100 {
				switch r.IntN(6) {
				case 0, 1:
					write(s, r.IntN(wire.StreamDataMax/4), records)
				case 2:
					write(s, r.IntN(50), records)
				case 3:
					s.Skip(int64(r.IntN(20)))
				case 4:
					h.Credit(wire.StreamCredit{Stream: s.ID(), Bytes: r.IntN(100000)}, alice)
				case 5:
					drain()
					o = newOutlet(t, fmt.Sprint(i))
					_, flow, err := h.Attach(wire.StreamAttach{Stream: s.ID(), From: &got, Credit: 1 + r.IntN(1000)}, alice, o)
					if err != nil {
						t.Fatal(err)
					}
					flow()
				}
				if s.ring.held > s.opts.Ring && len(s.ring.pieces) > 1 {
					t.Fatalf("the ring holds %d of %d bytes", s.ring.held, s.opts.Ring)
				}
			}
			h.Credit(wire.StreamCredit{Stream: s.ID(), Bytes: wire.MaxStreamCredit}, alice)
			s.End("done", nil)
			drain()
			if got != s.Next() {
				t.Errorf("seed %d: %d of %d arrived or were said to be lost", seed, got, s.Next())
			}
		})
	}
}

// write writes what tells its own offset.
func write(s *Stream, n int, records bool) {
	if records {
		s.Record(map[string]any{"at": s.Next(), "pad": strings.Repeat("x", n)})
		return
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte((s.Next() + int64(i)) % 251)
	}
	s.Write(b)
}

// check verifies a frame that is to begin at from, and returns what comes next.
func check(t *testing.T, s *Stream, d wire.StreamData, from int64, records bool) int64 {
	t.Helper()
	if d.Lost != nil {
		if d.Lost.From != from || d.Lost.To != d.Offset || d.Lost.To <= d.Lost.From {
			t.Fatalf("lost %+v before %d, after %d", *d.Lost, d.Offset, from)
		}
		from = d.Offset
	}
	if d.Offset != from {
		t.Fatalf("frame at %d, want %d", d.Offset, from)
	}
	if size := len(d.Data) + len(bytes.Join(asBytes(d.Records), nil)); size > wire.StreamDataMax {
		t.Fatalf("a frame of %d bytes", size)
	}
	for i, b := range d.Data {
		if b != byte((from+int64(i))%251) {
			t.Fatalf("byte %d is %d", from+int64(i), b)
		}
	}
	for i, raw := range d.Records {
		var rec struct{ At int64 }
		json.Unmarshal(raw, &rec)
		if rec.At != from+int64(i) {
			t.Fatalf("record %d is %d", from+int64(i), rec.At)
		}
	}
	return from + int64(len(d.Data)) + int64(len(d.Records))
}

func asBytes(records []json.RawMessage) [][]byte {
	var all [][]byte
	for _, r := range records {
		all = append(all, r)
	}
	return all
}

func TestReasons(t *testing.T) {
	for want, cause := range map[string]error{
		ReasonReleased:     context.Canceled,
		ReasonGone:         fmt.Errorf("op: %w", wire.Errorf(wire.DeviceGone, "pulled")),
		ReasonGrantRevoked: wire.Errorf(wire.HardwareNotGranted, "no").With("reason", "grant_revoked"),
		ReasonSessionEnded: fmt.Errorf("op: %w", Cause(wire.HardwareTransferFailed, ReasonSessionEnded, "gone")),
		ReasonDeadman:      Cause(wire.HardwareTransferFailed, ReasonDeadman, "silent"),
		ReasonFailed:       wire.Errorf(wire.HardwareTransferFailed, "EIO").With("reason", "something of a driver"),
	} {
		if got := Reason(cause); got != want {
			t.Errorf("%v is %q, want %q", cause, got, want)
		}
	}
}

// Streams that ended empty cost next to nothing, but a session can make very many.
func TestEndedStreamsAreFew(t *testing.T) {
	h := NewHub(HubOptions{})
	defer h.Close()
	first := open(t, h, Options{Owner: alice})
	first.End("done", nil)
	for range maxPast {
		open(t, h, Options{Owner: alice}).End("done", nil)
	}
	if n := len(h.all()); n != maxPast {
		t.Errorf("%d streams are kept, want %d", n, maxPast)
	}
	if _, _, err := h.Attach(wire.StreamAttach{Stream: first.ID()}, alice, newOutlet(t, "r")); !errors.Is(err, wire.StreamNotFound) {
		t.Errorf("the oldest is still there: %v", err)
	}
}

func TestARefusedAttachTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{})
		defer h.Close()
		s := open(t, h, Options{Owner: alice})
		o := newOutlet(t, "r1")
		h.Begin(s.ID(), o)
		if _, _, err := h.Attach(wire.StreamAttach{Stream: s.ID(), From: from(5)}, alice, newOutlet(t, "r2")); !errors.Is(err, wire.InvalidArgument) {
			t.Fatal(err)
		}
		s.Write([]byte("hello"))
		synctest.Wait()
		if len(o.frames) != 1 {
			t.Error("the receiver gets no more after a request that was refused")
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{})
		defer h.Close()
		o := newOutlet(t, "r")
		s := open(t, h, Options{Owner: alice})
		h.Begin(s.ID(), o)
		s.Write([]byte("last words"))
		stuck := open(t, h, Options{Owner: alice, Credit: 1})
		h.Begin(stuck.ID(), newOutlet(t, "stuck"))
		stuck.Write([]byte("ab"))
		open(t, h, Options{Owner: alice}).End(ReasonStopping, nil) // nobody receives it
		s.End(ReasonStopping, nil)
		h.Drain(t.Context())
		var got string
		for range 3 {
			select {
			case d := <-o.frames:
				got += string(d.Data)
				if d.End != nil {
					got += "."
				}
			default:
			}
		}
		if got != "last words." {
			t.Errorf("drained, and sent was %q", got)
		}
		stuck.End(ReasonStopping, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h.Drain(ctx)
		if ctx.Err() == nil {
			t.Error("what waits for credit counts as sent")
		}
	})
}

func TestRoomLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{})
		defer h.Close()
		s := open(t, h, Options{Owner: alice, Ring: 8, Credit: 4})
		waited := make(chan error, 1)
		room := func(n int) bool {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			go func() { waited <- s.Room(ctx, n) }()
			return <-waited == nil
		}
		if !room(8) || !room(100) { // more than the ring is all at once, and says so by its gap
			t.Fatal("an empty stream has no room")
		}
		s.Write([]byte("01234567"))
		if room(1) {
			t.Fatal("what nobody received yet may be pushed out")
		}
		first := newOutlet(t, "r1")
		h.Begin(s.ID(), first)
		synctest.Wait()
		if room(1) {
			t.Fatal("what was sent counts as received")
		}
		h.Credit(wire.StreamCredit{Stream: s.ID(), Bytes: 3}, alice)
		if !room(3) || room(4) {
			t.Fatal("the room isn't what credit was given for")
		}
		s.Write([]byte("89a"))

		// Attached again further back than its credit said, the receiver finds it all.
		again := newOutlet(t, "r2")
		_, flow, err := h.Attach(wire.StreamAttach{Stream: s.ID(), From: from(5)}, alice, again)
		if err != nil {
			t.Fatal(err)
		}
		flow()
		synctest.Wait()
		if d := <-again.frames; string(d.Data) != "56789a" || d.Lost != nil {
			t.Errorf("%+v", d)
		}
		if !room(2) || room(3) {
			t.Error("the room isn't what was attached behind")
		}
		go func() { waited <- s.Room(t.Context(), 3) }()
		synctest.Wait()
		s.End(ReasonClosed, nil)
		if err := <-waited; err == nil {
			t.Error("room in a stream that has ended")
		}
	})
}
