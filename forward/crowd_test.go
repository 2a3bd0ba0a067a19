package forward

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"farhand/stream"
	"farhand/wire"
)

// taker takes all that comes and gives credit for it.
type taker struct {
	r  *rig
	by stream.Owner
}

func (taker) Request() string            { return "r" }
func (x taker) Context() context.Context { return x.r.t.Context() }
func (x taker) Send(_ context.Context, _ string, d wire.StreamData) error {
	n := 0
	for _, raw := range d.Records {
		n += len(raw)
	}
	x.r.hub.Credit(wire.StreamCredit{Stream: d.Stream, Bytes: n}, x.by)
	return nil
}

// TestCrowd is four sessions that open connections, send and close while grants are
// revoked, until the service is closed under them: nothing hangs, each connection
// that was opened tells its end, and no session is held.
func TestCrowd(t *testing.T) {
	r := newRig(t, echo)
	var opened, held atomic.Int64
	hold := func() func() {
		held.Add(1)
		return func() { held.Add(-1) }
	}
	var crowd sync.WaitGroup
	for n := range 4 {
		by := stream.Owner{Session: fmt.Sprint("s", n)}
		crowd.Go(func() {
			seed := rand.New(rand.NewPCG(uint64(n), 1))
			mine := []string{"none"}
			next := make(map[string]int64)
			for i := range 80 {
				if n == 0 && i == 70 {
					r.Service.Close()
				}
				id := mine[seed.IntN(len(mine))]
				var err error
				switch seed.IntN(6) {
				case 0, 1:
					var o wire.ForwardOpened
					if o, err = r.Open(wire.ForwardOpen{Host: "127.0.0.1", Port: r.port}, by, hold); err == nil {
						opened.Add(1)
						mine = append(mine, o.Stream)
						r.hub.Begin(o.Stream, taker{r, by})
					}
				case 2, 3:
					var taken wire.ForwardTaken
					if taken, err = r.Data(wire.ForwardData{Stream: id, Offset: next[id], Data: make([]byte, seed.IntN(5000)), EOF: seed.IntN(8) == 0}, by); err == nil {
						next[id] = taken.Next
					}
				case 4:
					r.hub.CloseStream(id, by)
				case 5:
					r.hub.EndWhere(stream.ReasonGrantRevoked, func(i stream.Info) bool { return i.Session == by.Session && seed.IntN(4) == 0 })
				}
				switch {
				case err == nil, errors.Is(err, wire.StreamNotFound), errors.Is(err, wire.InvalidArgument), errors.Is(err, wire.ShimOverloaded):
				case errors.Is(err, wire.InternalError) && r.Service.ctx.Err() != nil:
				default:
					t.Error(err)
				}
			}
		})
	}
	crowd.Wait()
	r.Service.Close()
	if n := held.Load(); n != 0 {
		t.Errorf("%d holds are left", n)
	}
	if n := len(r.ended); int64(n) != opened.Load() {
		t.Errorf("%d connections were opened and %d have ended", opened.Load(), n)
	}
}
