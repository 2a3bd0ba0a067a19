package cluster

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"farhand/internal/leak"
	"farhand/internal/natstest"
)

// TestCrowd is four who dial, write and close between two instances while one of
// these seems to come and go, until both leave: nothing hangs, no connection is
// left, and who is there is told by one goroutine at a time, coming and going in
// turn.
func TestCrowd(t *testing.T) {
	leak.Check(t)
	url := natstest.Start(t).URL
	a, b := join(t, url), join(t, url)
	var telling sync.Mutex
	there := map[string]bool{b.ID(): a.Alive(b.ID())}
	a.OnChange(func(id string, alive bool) {
		if !telling.TryLock() {
			t.Error("two are told at once")
			return
		}
		defer telling.Unlock()
		if id == b.ID() && there[id] == alive {
			t.Errorf("told %t twice", alive)
		}
		there[id] = alive
	})
	var served, crowd sync.WaitGroup
	l := b.Listener()
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // to its end, whichever that is
			})
		}
	})
	for n := range 4 {
		crowd.Go(func() {
			seed := rand.New(rand.NewPCG(uint64(n), 1))
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				c, err := a.Dial(ctx, b.ID())
				cancel()
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				p := make([]byte, seed.IntN(100_000))
				if _, err := c.Write(p); err == nil && seed.IntN(2) == 0 {
					_, err = io.ReadFull(c, p)
					if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
				}
				c.Close()
			}
		})
	}
	for range 2 {
		crowd.Go(func() {
			for range 40 {
				a.gone(b.ID())
				a.heard(&nats.Msg{Data: []byte("beat " + b.ID())})
			}
		})
	}
	crowd.Wait()
	for _, n := range []*Node{b, a} {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	l.Close()
	served.Wait()
	for _, n := range []*Node{a, b} {
		n.mu.Lock()
		if left := len(n.conns); left != 0 {
			t.Errorf("%d connections are left", left)
		}
		n.mu.Unlock()
	}
}
