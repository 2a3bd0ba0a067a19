package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"farhand/internal/leak"
	"farhand/wire"
)

// taker takes all that is sent and gives credit for some of it.
type taker struct {
	h   *Hub
	by  Owner
	ctx context.Context
}

func (taker) Request() string            { return "r" }
func (o taker) Context() context.Context { return o.ctx }
func (o taker) Send(_ context.Context, _ string, d wire.StreamData) error {
	if d.Offset%3 != 0 {
		o.h.Credit(wire.StreamCredit{Stream: d.Stream, Bytes: len(d.Data) + 2}, o.by)
	}
	return nil
}

// TestCrowd is four sessions that open, write, fetch and end streams of their own
// and of one source, while grants are revoked, until the hub is closed under them:
// nothing hangs, nothing is left, and no receiver counts that is none any more.
func TestCrowd(t *testing.T) {
	leak.Check(t)
	h := NewHub(HubOptions{Memory: 96 << 10})
	x, err := h.Share(1<<10, Owner{})
	if err != nil {
		t.Fatal(err)
	}
	expected := func(err error) bool {
		for _, code := range []wire.Code{wire.StreamNotFound, wire.ShimOverloaded, wire.InvalidArgument, wire.InternalError} {
			if errors.Is(err, code) {
				return true
			}
		}
		return err == nil
	}
	var crowd sync.WaitGroup
	for n := range 4 {
		by := Owner{Session: fmt.Sprint("s", n), Holder: "alice", Owner: "owner"}
		out := taker{h, by, t.Context()}
		crowd.Go(func() {
			seed := rand.New(rand.NewPCG(uint64(n), 1))
			var mine []*Stream
			for i := range 300 {
				var err error
				var s *Stream
				if len(mine) > 0 {
					s = mine[seed.IntN(len(mine))]
				}
				switch op := seed.IntN(10); {
				case n == 0 && i == 250:
					x.End(ReasonDone, nil)
				case n == 1 && i == 280:
					h.Close()
				case op == 0 || s == nil:
					if s, err = h.Open(Options{Owner: by, Records: seed.IntN(2) == 0, Credit: 1 + seed.IntN(100), Ring: 4 << 10}); err == nil {
						mine = append(mine, s)
						h.Begin(s.ID(), out)
					}
				case op == 1 || op == 2:
					if s, err = x.View(Options{Owner: by, Credit: 1 + seed.IntN(100)}, x.Oldest()); err == nil {
						mine = append(mine, s)
						h.Begin(s.ID(), out)
					}
				case op == 3:
					h.EndWhere(ReasonGrantRevoked, func(Info) bool { return true })
				case op == 4:
					h.CloseStream(s.ID(), by)
				case op == 5:
					s.End(ReasonGone, nil)
				case op == 6:
					var flow func()
					if _, flow, err = h.Attach(wire.StreamAttach{Stream: s.ID(), Credit: 50}, by, out); err == nil {
						flow()
					}
				case op == 7 && n == 0:
					_, _ = fmt.Fprint(x, "what all of them see\n") // refused after the end
				default:
					switch { // refused after the end
					case s.kind == view:
					case s.opts.Records:
						_ = s.Record("one record")
					default:
						_, _ = s.Write(make([]byte, seed.IntN(5000)))
						s.Skip(int64(seed.IntN(3)))
					}
				}
				if !expected(err) {
					t.Error(err)
				}
			}
		})
	}
	crowd.Wait()
	h.Close()
	if n := x.Views(); n != 0 {
		t.Errorf("%d views of what has ended", n)
	}
}

// A view whose grant is revoked in the moment in which it is made is none: it would
// hold up the source for ever.
func TestViewThatEndsAtOnce(t *testing.T) {
	h := NewHub(HubOptions{})
	defer h.Close()
	x, err := h.Share(1<<10, Owner{})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var revoking sync.WaitGroup
	revoking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				h.EndWhere(ReasonGrantRevoked, func(i Info) bool { return i.Session == alice.Session })
			}
		}
	})
	for range 500 {
		if _, err := x.View(Options{Owner: alice}, 0); err != nil && !errors.Is(err, wire.ShimOverloaded) {
			t.Error(err)
		}
	}
	close(stop)
	revoking.Wait()
	h.EndWhere(ReasonGrantRevoked, func(Info) bool { return true })
	if n := x.Views(); n != 0 {
		t.Errorf("%d views are left", n)
	}
}
