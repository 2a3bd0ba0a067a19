package observe

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"farhand/stream"
	"farhand/wire"
)

// Bounds of a Service.
const (
	// MaxReaders is how many journals may be read at once: each is a process.
	MaxReaders = 8
	// MaxTops is how many streams of Top there may be.
	MaxTops = 16
	// firstLook is between the two looks at the processors of a single Top.
	firstLook = 200 * time.Millisecond
)

// Service answers TOP_REQUEST and LOGS_REQUEST. It is safe for concurrent use.
type Service struct {
	system  System
	journal Journal
	streams *stream.Hub
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc

	mu            sync.Mutex
	readers, tops int
	pumps         sync.WaitGroup
}

// New makes a service whose streams are the hub's.
func New(system System, journal Journal, streams *stream.Hub) *Service {
	s := &Service{system: system, journal: journal, streams: streams}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends what feeds streams, and them.
func (s *Service) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.pumps.Wait()
	return nil
}

// take counts one more, unless there are most already. Close waits until it is
// given back.
func (s *Service) take(n *int, most int, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return wire.Errorf(wire.InternalError, "the daemon is stopping")
	}
	if *n >= most {
		return wire.Errorf(wire.ShimOverloaded, "%s %d times already", what, most).With("hint", "close a stream with STREAM_CLOSE")
	}
	*n++
	s.pumps.Add(1)
	return nil
}

func (s *Service) give(n *int) {
	defer s.pumps.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	*n--
}

// Logs opens a stream of the journal for by. It ends with reason done, or failed.
// hold is called when the stream is open, and what it returns when it has ended.
func (s *Service) Logs(r wire.LogsRequest, by stream.Owner, hold func() func()) (wire.LogsResponse, error) {
	if r.Credit > wire.MaxPacedCredit {
		return wire.LogsResponse{}, invalid("credit", "must be 0 to %d bytes, not %d", wire.MaxPacedCredit, r.Credit)
	}
	if err := s.take(&s.readers, MaxReaders, "the journal is read"); err != nil {
		return wire.LogsResponse{}, err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	rd, err := s.journal.Open(ctx, r)
	if err != nil {
		cancel()
		s.give(&s.readers)
		return wire.LogsResponse{}, err
	}
	st, err := s.streams.Open(stream.Options{
		Owner: by, Records: true, Credit: r.Credit, Ring: max(r.Credit, stream.DefaultRing),
		Op: string(wire.TLogsRequest), Capability: wire.Observe,
	})
	if err != nil {
		cancel()
		rd.Close()
		s.give(&s.readers)
		return wire.LogsResponse{}, err
	}
	release := hold()
	s.pumps.Go(func() {
		defer cancel()
		select {
		case <-st.Done():
		case <-ctx.Done():
		}
	})
	s.pumps.Go(func() {
		defer cancel()
		defer s.give(&s.readers)
		defer release()
		err := readInto(ctx, rd, st)
		if err == nil && ctx.Err() == nil {
			err = rd.Wait()
		} else {
			rd.Close()
		}
		switch {
		case s.ctx.Err() != nil:
			st.End(stream.ReasonStopping, nil)
			return
		case err != nil && ctx.Err() == nil:
			_ = st.Record(wire.LogRecord{TimeUS: time.Now().UnixMicro(), Error: wire.Clean(err.Error(), maxIdentifier)})
			st.End(stream.ReasonFailed, nil)
			return
		}
		st.End(stream.ReasonDone, nil)
	})
	return wire.LogsResponse{Opened: wire.Opened{Stream: st.ID()}}, nil
}

// readInto copies the journal into a stream, as fast as its receiver takes it.
func readInto(ctx context.Context, rd *Reader, st *stream.Stream) error {
	for {
		rec, lost, err := rd.Next()
		st.Skip(lost)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := encode(rec)
		if err != nil {
			return err
		}
		if err := st.Room(ctx, len(b)); err != nil {
			return nil // the stream has ended
		}
		if err := st.Record(b); err != nil {
			return nil
		}
	}
}

// Top looks at the machine, for a stream of by's too if that is asked for. Only
// those directories are told that see lets through.
func (s *Service) Top(ctx context.Context, r wire.TopRequest, by stream.Owner, hold func() func(), see func(Directory) bool) (wire.TopResponse, error) {
	if r.Interval != 0 && !(r.Interval >= wire.MinTopInterval && r.Interval <= wire.MaxTopInterval) {
		return wire.TopResponse{}, invalid("interval_seconds", "must be 0, or %g to %d, not %g", wire.MinTopInterval, wire.MaxTopInterval, r.Interval)
	}
	before := s.system.CPU()
	wait := time.NewTimer(firstLook)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return wire.TopResponse{}, context.Cause(ctx)
	}
	var answer wire.TopResponse
	answer.Top, before = s.system.Top(before, see)
	if r.Interval == 0 {
		return answer, nil
	}
	if err := s.take(&s.tops, MaxTops, "the machine is watched"); err != nil {
		return wire.TopResponse{}, err
	}
	st, err := s.streams.Open(stream.Options{
		Owner: by, Records: true, Credit: r.Credit, Op: string(wire.TTopRequest), Capability: wire.Observe,
	})
	if err != nil {
		s.give(&s.tops)
		return wire.TopResponse{}, err
	}
	release := hold()
	s.pumps.Go(func() {
		defer s.give(&s.tops)
		defer release()
		s.tell(st, before, see, time.Duration(r.Interval*float64(time.Second)))
	})
	answer.Stream = st.ID()
	return answer, nil
}

// tell writes how the machine is doing into a stream until that ends.
func (s *Service) tell(st *stream.Stream, before CPU, see func(Directory) bool, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-st.Done():
			return
		case <-s.ctx.Done():
			st.End(stream.ReasonStopping, nil)
			return
		}
		var t wire.Top
		t, before = s.system.Top(before, see)
		if st.Record(t) != nil {
			return
		}
	}
}
