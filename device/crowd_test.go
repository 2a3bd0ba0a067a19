package device

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/wire"
)

// visitor is a state that is closed once, and a moment of use by one at a time.
type visitor struct {
	t    *testing.T
	room *sync.Mutex // of the device: nobody else has it
	once sync.Once
}

func (v *visitor) Close() error {
	again := true
	v.once.Do(func() { again = false })
	if again {
		v.t.Error("closed twice")
		return nil
	}
	v.room.Unlock()
	return nil
}

// crowdDesk serves USE.
type crowdDesk struct {
	t     *testing.T
	rooms map[string]*sync.Mutex

	mu    sync.Mutex
	holds int
	uses  int
	keeps sync.WaitGroup
}

func (d *crowdDesk) Ops() map[string]Effect { return map[string]Effect{"USE": Mutating} }

func (d *crowdDesk) held(LeaseInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds++
}

func (d *crowdDesk) ended(LeaseInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds--
}

func (d *crowdDesk) Do(ctx context.Context, r *Request) (any, error) {
	if r.Lease.State() == nil {
		room := d.rooms[r.Device.ID]
		if !room.TryLock() {
			d.t.Error("a device has two states")
			return nil, errBroken
		}
		r.Lease.SetState(&visitor{t: d.t, room: room})
	}
	d.mu.Lock()
	d.uses++
	kind := d.uses % 7
	d.mu.Unlock()
	switch kind {
	case 0:
		r.Lease.Linger()
	case 1:
		r.Lease.Hold()
	case 2:
		r.Lease.Deadman(time.Microsecond)
	case 3, 4:
		over := make(chan struct{})
		done := r.Lease.Keep(over)
		d.keeps.Go(func() { // a stream
			close(over)
			runtime.Gosched()
			done()
		})
	case 5:
		return nil, wire.Errorf(wire.DeviceGone, "pulled")
	}
	return nil, ctx.Err()
}

// TestCrowd is four sessions that use, hold and release two devices while these are
// unplugged and come back, links are lost and sessions end, until the leases are
// closed under them: a device has one state at a time, and nothing is left.
func TestCrowd(t *testing.T) {
	leak.Check(t)
	shelf := newShelf("serial")
	var rooms [2]sync.Mutex
	work := &crowdDesk{t: t, rooms: map[string]*sync.Mutex{"serial:a": &rooms[0], "serial:b": &rooms[1]}}
	shelf.put("a", "alias")
	shelf.put("b")
	r := NewRegistry(Options{Families: []Family{{Driver: shelf, Service: work}}})
	refresh(t, r)
	ls := NewLeases(LeaseOptions{
		Idle: time.Millisecond, Linger: time.Millisecond,
		OnHold: work.held, OnEnd: work.ended,
		LastFrame: func(string) time.Time { return time.Now() },
	})
	d := NewDispatcher(r, ls, nil)
	expected := func(err error) bool {
		for _, code := range []wire.Code{wire.DeviceGone, wire.HardwareBusy, wire.HardwareNotFound, wire.HardwareTransferFailed, wire.InternalError} {
			if errors.Is(err, code) {
				return true
			}
		}
		return err == nil
	}
	var crowd sync.WaitGroup
	for n := range 4 {
		session := fmt.Sprint("s", n%3) // two callers are one session's
		crowd.Go(func() {
			seed := rand.New(rand.NewPCG(uint64(n), 1))
			for i := range 150 {
				if n == 0 && i == 140 {
					ls.Close()
				}
				op := wire.HardwareOp{Device: []string{"alias", "serial:b"}[seed.IntN(2)], Op: "USE", Hold: seed.IntN(3) == 0}
				var err error
				switch seed.IntN(8) {
				case 0:
					op.Op = wire.OpRelease
					_, _, err = d.Do(t.Context(), Caller{Session: session}, op)
				case 1:
					err = ls.ReleaseAll(t.Context(), session)
				case 2:
					ls.ReleaseAfter(session, time.Microsecond)
				case 3:
					ls.Keep(session)
				default:
					_, _, err = d.Do(t.Context(), Caller{Session: session}, op)
				}
				if !expected(err) {
					t.Error(err)
				}
			}
		})
	}
	crowd.Go(func() {
		for i := range 60 {
			name := []string{"a", "b"}[i%2]
			shelf.take(name)
			refresh(t, r)
			shelf.put(name, map[string][]string{"a": {"alias"}}[name]...)
			refresh(t, r)
		}
	})
	crowd.Wait()
	ls.Close()
	work.keeps.Wait()
	work.mu.Lock()
	defer work.mu.Unlock()
	if len(ls.List()) != 0 || work.holds != 0 {
		t.Errorf("%+v, %d holds", ls.List(), work.holds)
	}
}
