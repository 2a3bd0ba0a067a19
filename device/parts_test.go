package device

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/internal/leak"
	"farhand/stream"
	"farhand/wire"
)

// rack is a Parted service: its arguments are a list of parts. WATCH opens a
// stream and keeps its parts until that ends, HOLD keeps them, NAP waits.
type rack struct {
	states  map[string]*counter
	started chan struct{}
	dead    time.Duration
}

func (*rack) Ops() map[string]Effect {
	return map[string]Effect{"GET": ReadOnly, "HOLD": Mutating, "WATCH": ReadOnly, "NAP": ReadOnly, "DEADMAN": Mutating}
}

func (*rack) Parts(_ context.Context, _ Descriptor, _ string, args json.RawMessage) ([]Part, error) {
	var names []string
	if len(args) > 0 {
		if err := json.Unmarshal(args, &names); err != nil {
			return nil, wire.Errorf(wire.InvalidArgument, "no list")
		}
	}
	var all []Part
	for _, n := range names {
		all = append(all, Part{Key: n, Names: []string{"line " + n}})
	}
	return all, nil
}

func (r *rack) Do(ctx context.Context, q *Request) (any, error) {
	if q.Lease != nil {
		return nil, errors.New("a lease of the whole")
	}
	var keys []string
	for _, l := range q.Parts {
		keys = append(keys, l.Key().Part)
		if l.State() == nil && q.Op != "GET" {
			c := &counter{}
			r.states[l.Key().Part] = c
			l.SetState(c)
		}
	}
	switch q.Op {
	case "NAP":
		r.started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	case "HOLD":
		for _, l := range q.Parts {
			l.Hold()
		}
	case "DEADMAN":
		for _, l := range q.Parts {
			l.Hold()
			l.Deadman(r.dead)
		}
	case "WATCH":
		st, err := q.OpenStream(stream.Options{Records: true})
		if err != nil {
			return nil, err
		}
		for _, l := range q.Parts {
			done := l.Keep(st.Done())
			go func() {
				select {
				case <-l.Context().Done():
					st.End(stream.Reason(context.Cause(l.Context())), nil)
				case <-st.Done():
				}
				done()
			}()
		}
		return wire.Opened{Stream: st.ID()}, nil
	}
	return keys, nil
}

type partHouse struct {
	*Dispatcher
	rack    *rack
	hub     *stream.Hub
	shelf   *shelf
	allowed func(op string, parts []Part) error

	mu          sync.Mutex
	held, ended []string
	last        time.Time
}

// heard notes a frame of the session.
func (h *partHouse) heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

func (h *partHouse) note(list *[]string) func(LeaseInfo) {
	return func(i LeaseInfo) {
		h.mu.Lock()
		defer h.mu.Unlock()
		*list = append(*list, i.Key.String())
	}
}

// over is what leases have ended, in order.
func (h *partHouse) over() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.ended, " ")
}

func newPartHouse(t *testing.T) *partHouse {
	h := &partHouse{shelf: newShelf("gpio"), rack: &rack{states: make(map[string]*counter), started: make(chan struct{})}, hub: stream.NewHub(stream.HubOptions{})}
	h.shelf.put("chip")
	r := NewRegistry(Options{Families: []Family{{Driver: h.shelf, Service: h.rack}}})
	refresh(t, r)
	ls := NewLeases(LeaseOptions{
		Idle:   time.Minute,
		OnHold: h.note(&h.held),
		OnEnd:  h.note(&h.ended),
		LastFrame: func(string) time.Time {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.last
		},
	})
	t.Cleanup(func() {
		h.hub.Close()
		ls.Close()
	})
	h.Dispatcher = NewDispatcher(r, ls, h.hub)
	return h
}

func (h *partHouse) do(t *testing.T, session, op, args string) (any, Trace, error) {
	t.Helper()
	by := Caller{Session: session, Holder: session, Name: session, Streams: true}
	if h.allowed != nil {
		by.Allow = func(_, op string, parts []Part) error { return h.allowed(op, parts) }
	}
	res, tr, err := h.Do(t.Context(), by, wire.HardwareOp{Device: "gpio:chip", Op: op, Args: json.RawMessage(args)})
	return res.Result, tr, err
}

func TestPartsHaveHoldersOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPartHouse(t)
		got, tr, err := h.do(t, "a", "HOLD", `["17","4","17"]`)
		if err != nil || !slices.Equal(got.([]string), []string{"17", "4", "17"}) || !slices.Equal(tr.Parts, []string{"17", "4", "17"}) {
			t.Fatalf("%v, %+v, %v", got, tr, err)
		}
		_, _, err = h.do(t, "b", "GET", `["5","17"]`)
		if e := wire.AsError(err); e.Code != wire.HardwareBusy || e.Details["holder"] != "a" || e.Details["part"] != "17" || e.Details["device"] != "gpio:chip" {
			t.Errorf("%v %v", err, e.Details)
		}
		if _, _, err := h.do(t, "b", "HOLD", `["5"]`); err != nil { // which its failure above has left free
			t.Error(err)
		}
		if _, _, err := h.do(t, "b", "GET", ``); err != nil { // the whole can be looked at
			t.Error(err)
		}
		slices.Sort(h.held)
		if got := strings.Join(h.held, " "); got != "gpio:chip#17 gpio:chip#4 gpio:chip#5" {
			t.Errorf("held: %s", got)
		}
		if _, _, err := h.do(t, "b", wire.OpRelease, `["17"]`); err != nil {
			t.Error(err)
		}
		res, _, err := h.do(t, "a", wire.OpRelease, `["17"]`)
		if err != nil || res != (wire.Released{Released: true}) || h.rack.states["17"].closes() != 1 || h.rack.states["4"].closes() != 0 {
			t.Errorf("%v, %v", res, err)
		}
		if res, _, err = h.do(t, "a", wire.OpRelease, ``); err != nil || res != (wire.Released{Released: true}) || h.rack.states["4"].closes() != 1 {
			t.Errorf("all: %v, %v", res, err)
		}
		if got := h.over(); got != "gpio:chip#17 gpio:chip#4" || h.rack.states["5"].closes() != 0 {
			t.Errorf("ended: %s", got)
		}
		if _, _, err := h.do(t, "a", "GET", `{}`); !errors.Is(err, wire.InvalidArgument) {
			t.Errorf("%v", err)
		}
	})
}

func TestPartsAreAskedFor(t *testing.T) {
	h := newPartHouse(t)
	no := wire.Errorf(wire.HardwareNotGranted, "no")
	h.allowed = func(op string, parts []Part) error {
		for _, p := range parts {
			if p.Key == "17" && slices.Equal(p.Names, []string{"line 17"}) {
				return no
			}
		}
		return nil
	}
	if _, _, err := h.do(t, "a", "GET", `["4","17"]`); !errors.Is(err, wire.HardwareNotGranted) {
		t.Error(err)
	}
	if _, _, err := h.do(t, "a", "GET", `["4"]`); err != nil {
		t.Error(err)
	}
}

// Two sessions that want the same parts in another order don't wait for each
// other for ever.
func TestPartsInAnyOrder(t *testing.T) {
	h := newPartHouse(t)
	done := make(chan error)
	for i, args := range []string{`["1","2","3"]`, `["3","2","1"]`, `["2","3","1"]`} {
		go func() {
			var last error
			for range 300 {
				by := Caller{Session: string(rune('a' + i%2))}
				_, _, err := h.Do(t.Context(), by, wire.HardwareOp{Device: "gpio:chip", Op: "GET", Args: json.RawMessage(args)})
				if err != nil && !errors.Is(err, wire.HardwareBusy) {
					last = err
				}
			}
			done <- last
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestWatchKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		h := newPartHouse(t)
		got, _, err := h.do(t, "a", "WATCH", `["17"]`)
		if err != nil {
			t.Fatal(err)
		}
		id := got.(wire.Opened).Stream
		for range 5 { // its receiver is there, and says nothing else
			faketime.Advance(time.Minute)
			h.hub.Credit(wire.StreamCredit{Stream: id}, stream.Owner{Session: "a"})
		}
		if _, _, err := h.do(t, "b", "GET", `["17"]`); !errors.Is(err, wire.HardwareBusy) {
			t.Errorf("a watched part is free: %v", err)
		}
		if i := h.Leases().List(); len(i) != 1 || !i[0].Held || i[0].Op != "WATCH" || !slices.Equal(i[0].Names, []string{"17", "line 17"}) {
			t.Errorf("%+v", i)
		}
		h.hub.CloseStream(id, stream.Owner{Session: "a"})
		synctest.Wait()
		if _, _, err := h.do(t, "b", "GET", `["17"]`); err != nil {
			t.Errorf("after the end of the stream: %v", err)
		}
		if h.rack.states["17"].closes() != 1 || h.over() != "gpio:chip#17" {
			t.Errorf("ended %s", h.over())
		}

		got, _, _ = h.do(t, "a", "WATCH", `["4"]`)
		h.shelf.take("chip")
		refresh(t, h.Registry())
		synctest.Wait()
		if i := h.hub.List(); len(i) != 0 {
			t.Errorf("%+v", i)
		}
		_, _, err = h.hub.Attach(wire.StreamAttach{Stream: got.(wire.Opened).Stream}, stream.Owner{Session: "a"}, nil)
		if err != nil {
			t.Error(err)
		}
	})
}

func TestWatchNeedsStreams(t *testing.T) {
	h := newPartHouse(t)
	_, _, err := h.Do(t.Context(), Caller{Session: "a"}, wire.HardwareOp{Device: "gpio:chip", Op: "WATCH", Args: []byte(`["1"]`)})
	if e := wire.AsError(err); e.Code != wire.CapabilityNotGranted || e.Details["required_capability"] != "streams" {
		t.Errorf("%v %v", err, e.Details)
	}
	if len(h.Leases().List()) != 0 {
		t.Errorf("the lease is left: %+v", h.Leases().List())
	}
}

func TestDeadman(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newPartHouse(t)
		h.rack.dead = 5 * time.Second
		h.heard()
		h.do(t, "a", "DEADMAN", `["17"]`)
		h.do(t, "a", "HOLD", `["4"]`)
		for range 4 {
			faketime.Advance(4 * time.Second)
			h.heard() // any frame renews it
		}
		h.Leases().ReleaseAfter("a", 10*time.Second) // the link is lost
		faketime.Advance(4 * time.Second)
		if h.over() != "" {
			t.Errorf("ended %s", h.over())
		}
		faketime.Advance(time.Second + time.Millisecond)
		synctest.Wait()
		if h.over() != "gpio:chip#17" || h.rack.states["17"].closes() != 1 {
			t.Errorf("ended %s, want what has a dead-man's time alone", h.over())
		}
		faketime.Advance(5 * time.Second)
		synctest.Wait()
		if h.over() != "gpio:chip#17 gpio:chip#4" {
			t.Errorf("ended %s", h.over())
		}

		h.heard()
		h.do(t, "a", "DEADMAN", `["5"]`) // a longer one outlives the grace
		h.rack.dead = 30 * time.Second
		h.do(t, "a", "DEADMAN", `["5"]`)
		h.Leases().ReleaseAfter("a", 10*time.Second)
		faketime.Advance(29 * time.Second)
		synctest.Wait()
		if h.rack.states["5"].closes() != 0 {
			t.Error("ended by the grace")
		}
		h.Leases().Keep("a")
		h.rack.dead = 0
		h.do(t, "a", "DEADMAN", `["5"]`)
		faketime.Advance(50 * time.Second)
		synctest.Wait()
		if h.rack.states["5"].closes() != 0 {
			t.Error("ended although the dead-man was taken away")
		}
	})
}

func TestReleaseEndsWhatRuns(t *testing.T) {
	h := newPartHouse(t)
	done := make(chan error)
	go func() {
		_, _, err := h.do(t, "a", "NAP", `["1","2"]`)
		done <- err
	}()
	<-h.rack.started
	if had, err := h.Leases().Release(t.Context(), "gpio:chip", "a", "2"); !had || err != nil {
		t.Errorf("%v, %v", had, err)
	}
	if err := <-done; stream.Reason(err) != stream.ReasonReleased {
		t.Error(err)
	}
}
