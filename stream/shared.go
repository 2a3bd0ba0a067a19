package stream

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"time"

	"farhand/wire"
)

// Shared is one sequence of bytes that several receivers have, each by a stream
// of its own, a view, at its own pace: what a terminal shows. The views share one
// ring. One goroutine may write at a time; the rest is safe for concurrent use.
type Shared struct{ s *Stream }

// Share makes a Shared whose ring keeps so many bytes (0: DefaultRing). It counts
// as a stream of that size, by's; its views cost nothing more.
func (h *Hub) Share(size int, by Owner) (*Shared, error) {
	return h.share(Options{Owner: by, Ring: cmp.Or(size, DefaultRing)})
}

// ShareAgain is Share for what an earlier process shared and what goes on in this
// one: it had its part of the memory then, whatever is by's now.
func (h *Hub) ShareAgain(size int, by Owner) (*Shared, error) {
	return h.share(Options{Owner: by, Ring: cmp.Or(size, DefaultRing), again: true})
}

func (h *Hub) share(o Options) (*Shared, error) {
	s := h.newStream(o, share, newSource(o))
	if err := h.add(s); err != nil {
		return nil, err
	}
	return &Shared{s}, nil
}

// maxViews is how many receivers one Shared has at most: each costs a little, and
// is asked for whether it goes on whenever something is written.
const maxViews = 64

// tending is how long a receiver counts as there after a sign of it. They give one
// each 30 s.
const tending = 90 * time.Second

// View makes a stream of what is written, from an offset on. It may be opened
// after the end, too, and then has what the ring still holds. The options' Ring
// and Records don't count. It ends with its source or, alone, when its receiver
// closes it or isn't heard of; then it is forgotten at once. Where there are many
// already, the one that wasn't heard of for the longest gives way, or if all are
// there it is SHIM_OVERLOADED.
func (x *Shared) View(o Options, from int64) (*Stream, error) {
	credit, err := validCredit(o.Credit)
	if err != nil {
		return nil, err
	}
	if err := x.makeRoom(); err != nil {
		return nil, err
	}
	o.Ring, o.Records, o.Credit, o.from = 0, false, credit, from
	v := x.s.hub.newStream(o, view, x.s.source)
	if err := x.s.hub.add(v); err != nil {
		return nil, err
	}
	x.s.mu.Lock()
	v.had = x.s.ring.before(from)
	end := x.s.end
	if end == nil && v.end == nil { // a revoked grant may have ended it already
		x.s.streams = append(x.s.streams, v)
	}
	x.s.mu.Unlock()
	if end != nil {
		v.End(end.Reason, end.ExitCode)
	}
	return v, nil
}

// makeRoom ends the view that nobody tends, if there are too many.
func (x *Shared) makeRoom() error {
	var oldest *Stream
	n := 0
	x.s.mu.Lock()
	for _, v := range x.s.streams {
		if v.kind != view {
			continue
		}
		if n++; oldest == nil || v.tended.Before(oldest.tended) {
			oldest = v
		}
	}
	gone := n >= maxViews && time.Since(oldest.tended) > tending
	x.s.mu.Unlock()
	switch {
	case gone:
		oldest.End(ReasonIdle, nil)
	case n >= maxViews:
		return wire.Errorf(wire.ShimOverloaded, "%d receivers have it already", n).With("hint", "close some of their streams with STREAM_CLOSE")
	}
	return nil
}

// stalls is how long a receiver may hold up the others without a sign that it
// goes on.
const stalls = 5 * time.Second

// Room waits, as that of a Stream, until n bytes more push nothing out of the
// ring that a receiver may still ask for. Receivers who took nothing for 5 s while
// they were waited for don't count any more, until they do, unless none is left:
// then the furthest of them counts. Without a receiver there is always room.
func (x *Shared) Room(ctx context.Context, n int) error {
	var late *time.Timer
	var begun time.Time
	for {
		x.s.mu.Lock()
		ok := x.room(n)
		x.s.mu.Unlock()
		if ok {
			return nil
		}
		if late == nil {
			late, begun = time.NewTimer(stalls), time.Now()
			defer late.Stop()
		}
		select {
		case <-x.s.source.room:
		case <-late.C:
			x.s.mu.Lock()
			x.stalled(n, begun)
			x.s.mu.Unlock()
			begun = time.Now()
			late.Reset(stalls)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// room is called with mu.
func (x *Shared) room(n int) bool {
	furthest, last, views, going := int64(0), int64(math.MaxInt64), false, false
	for _, v := range x.s.streams {
		if v.kind != view {
			continue
		}
		views, furthest = true, max(furthest, v.had)
		if !v.stalled {
			going, last = true, min(last, v.had)
		}
	}
	if !going {
		last = furthest
	}
	return !views || x.fits(n, last)
}

// fits says whether n bytes more leave what comes after had. Called with mu.
func (x *Shared) fits(n int, had int64) bool {
	return x.s.ring.total-had+int64(n) <= int64(x.s.ring.size)
}

// stalled marks those that took nothing since they are waited for. Called with mu.
func (x *Shared) stalled(n int, since time.Time) {
	for _, v := range x.s.streams {
		if v.kind == view && !x.fits(n, v.had) && v.gained.Before(since) {
			v.stalled = true
		}
	}
}

// Write adds bytes. It never waits, as that of a Stream.
func (x *Shared) Write(p []byte) (int, error) { return x.s.Write(p) }

// Skip says that n bytes are not there: they came before this Shared was made.
func (x *Shared) Skip(n int64) { x.s.Skip(n) }

// Forget drops what was written and what is written from now on: receivers are told
// of a gap.
func (x *Shared) Forget() {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.mute = true
	x.s.ring.clear()
	for _, v := range x.s.streams {
		v.had = x.s.ring.total // nothing is kept for it
	}
	x.s.wake()
	x.s.gain()
}

// End ends it and all its views. Only the first call counts.
func (x *Shared) End(reason string, exitCode *int) {
	x.s.End(reason, exitCode)
	x.s.mu.Lock()
	views := slices.Clone(x.s.streams)
	x.s.mu.Unlock()
	for _, v := range views {
		v.End(reason, exitCode)
	}
}

// Oldest is the first offset that can still be had, Next that of what comes next.
func (x *Shared) Oldest() int64 {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	return x.s.ring.oldest()
}

// Next is the offset that the next byte will have.
func (x *Shared) Next() int64 { return x.s.Next() }

// Line is the first offset from which a screen can be drawn: the oldest byte if
// it is the first that there was, else what follows the first line break.
func (x *Shared) Line() int64 {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.s.ring.oldest() == 0 {
		return 0
	}
	return x.s.ring.line()
}

// Views is how many receivers there are.
func (x *Shared) Views() int {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	n := 0
	for _, v := range x.s.streams {
		if v.kind == view {
			n++
		}
	}
	return n
}

// sourceEnded says whether a view is over because all is.
func (s *Stream) sourceEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.streams, func(x *Stream) bool { return x.kind == share })
}

var _ io.Writer = (*Shared)(nil)
