package serialio

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"farhand/device"
	"farhand/stream"
	"farhand/wire"
)

// MaxWatches is how many SERIAL_WATCH streams one port may have.
const MaxWatches = 4

// ReasonShared ends a stream because another process takes the port's bytes.
const ReasonShared = "port_shared"

// state is what a lease has: its port, and the goroutines that feed streams
// from it. Only who has the lease's turn touches it, and its end.
type state struct {
	port *Port         // nil after it failed
	mode Mode          // how it was set last
	wait time.Duration // of reads that name no time

	lease  context.Context
	ctx    context.Context // ends with the lease, or drop
	cancel context.CancelCauseFunc
	pumps  sync.WaitGroup
	open   atomic.Int32 // how many pumps run
}

func newState(l *device.Lease) *state {
	s := &state{lease: l.Context()}
	s.ctx, s.cancel = context.WithCancelCause(s.lease)
	return s
}

func (s *state) followed() bool { return s.open.Load() > 0 }

// drop closes a port that is of no use any more, and ends its streams.
func (s *state) drop(why error) {
	s.cancel(why)
	s.pumps.Wait()
	if s.port != nil {
		_ = s.port.Close() // there is nothing to lose
		s.port = nil
	}
	s.ctx, s.cancel = context.WithCancelCause(s.lease)
}

// Close ends the streams and closes the port.
func (s *state) Close() error {
	s.cancel(context.Canceled)
	s.pumps.Wait()
	if s.port == nil {
		return nil
	}
	return s.port.Close()
}

func (o *operation) watch(a wire.SerialWatch) (wire.SerialWatching, error) {
	if a.From != nil && *a.From < 0 {
		return wire.SerialWatching{}, invalid("from", "must not be negative")
	}
	p, err := o.port(a.Mode)
	if err != nil {
		return wire.SerialWatching{}, err
	}
	s := o.r.Lease.State().(*state)
	if s.open.Load() >= MaxWatches {
		return wire.SerialWatching{}, wire.Errorf(wire.ShimOverloaded, "%s is watched %d times already", p.node, MaxWatches).
			With("hint", "close a stream with STREAM_CLOSE, or attach to one with STREAM_ATTACH")
	}
	oldest, next := p.Offsets()
	w := wire.SerialWatching{Start: next, Offset: next, Oldest: oldest, Port: o.opened}
	if a.From != nil {
		w.Start = *a.From
	}
	if w.Start > next {
		return wire.SerialWatching{}, invalid("from", "must be at most %d, not %d: the port was opened anew since, or nothing of that has come yet", next, w.Start).
			With("oldest", oldest).With("next", next)
	}
	st, err := o.r.OpenStream(stream.Options{Credit: a.Credit})
	if err != nil {
		return wire.SerialWatching{}, err
	}
	w.Stream = st.ID()
	s.follow(p, st, w.Start, o.r.Lease.Keep(st.Done()))
	return w, nil
}

// follow feeds a stream with what the port receives from an offset on, until
// one of the two or the lease ends.
func (s *state) follow(p *Port, st *stream.Stream, from int64, done func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.open.Add(1)
	s.pumps.Go(func() {
		defer done()
		defer s.open.Add(-1)
		defer cancel()
		err := pump(ctx, p, st, from)
		st.End(endReason(err), nil)
	})
	s.pumps.Go(func() {
		defer cancel()
		select {
		case <-st.Done():
		case <-ctx.Done():
		}
	})
}

// gather is how long bytes come together before they are handed on, after the
// first: a frame for each byte that trickles in would cost more than it says.
const gather = 5 * time.Millisecond

// pump answers why it ended.
func pump(ctx context.Context, p *Port, st *stream.Stream, at int64) error {
	b := make([]byte, 4*chunk)
	pause := time.NewTimer(gather)
	defer pause.Stop()
	hand := func(ctx context.Context) (more bool, err error) {
		n, lost, err := p.Follow(ctx, at, b)
		st.Skip(lost)
		at += lost + int64(n)
		if n > 0 {
			_, _ = st.Write(b[:n]) // that it has ended is seen by ctx
		}
		return n == len(b), err
	}
	for {
		more, err := hand(ctx)
		if err != nil {
			break
		}
		if more {
			continue
		}
		pause.Reset(gather)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	// What came before the end belongs to it.
	for _, next := p.Offsets(); at < next; {
		if _, err := hand(context.Background()); err != nil {
			break
		}
	}
	if err := p.Failed(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func endReason(err error) string {
	if wire.AsError(err).Details["reason"] == ReasonShared {
		return ReasonShared
	}
	return stream.Reason(err)
}
