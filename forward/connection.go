package forward

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"farhand/stream"
	"farhand/wire"
)

// ReasonReset is the end of a connection that its target broke off.
const ReasonReset = "reset"

const (
	// piece is how much is read of a target at once: as base64 it fits into a frame.
	piece = 16 << 10
	// slack is what the stream keeps room for beside data: records of limits.
	slack = 1 << 10
)

// connection is one connection and its stream.
type connection struct {
	service *Service
	st      *stream.Stream
	target  target
	by      stream.Owner
	began   time.Time
	news    chan struct{} // there is something for the target

	writing sync.Mutex // the stream is written by both directions

	mu       sync.Mutex
	queue    [][]byte // for the target
	next     int64    // offset of what comes next from the operator
	given    int64    // so much of that the target took
	told     int64    // the limit that was told last
	eof      bool     // the operator sends no more
	received int64
}

func newConnection(s *Service, st *stream.Stream, t target, by stream.Owner) *connection {
	return &connection{service: s, st: st, target: t, by: by, began: time.Now(), news: make(chan struct{}, 1), told: wire.ForwardWindow}
}

// run connects and carries bytes until both ends have no more, or one breaks off.
func (c *connection) run(ctx context.Context) Ended {
	ctx, cancel := context.WithCancel(ctx)
	var ending sync.WaitGroup
	defer ending.Wait()
	defer cancel()
	ending.Go(func() {
		select {
		case <-c.st.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	ended := Ended{Session: c.by.Session, Stream: c.st.ID(), Target: c.target.String()}
	tcp, err := c.service.connect(ctx, c.target)
	if err == nil {
		ended.Address = tcp.RemoteAddr().String()
		err = c.record(ctx, wire.ForwardRecord{Connected: ended.Address, Limit: wire.ForwardWindow})
		if err == nil {
			err = c.carry(ctx, tcp)
		}
		if err != nil {
			_ = tcp.SetLinger(0) // also if nothing was carried yet
		}
		tcp.Close()
	} else {
		_ = c.record(ctx, wire.ForwardRecord{Error: wire.AsError(err)})
	}
	c.end(ctx, ended.Address != "", err)
	ended.Reason = c.st.Info().Ended
	ended.Took = time.Since(c.began)
	c.mu.Lock()
	defer c.mu.Unlock()
	ended.Sent, ended.Received = c.given, c.received
	return ended
}

// end ends the stream, unless that is why everything ended.
func (c *connection) end(ctx context.Context, connected bool, err error) {
	switch {
	case c.service.ctx.Err() != nil:
		c.st.End(stream.ReasonStopping, nil)
	case err == nil:
		c.st.End(stream.ReasonDone, nil)
	case connected && ctx.Err() == nil:
		c.st.End(ReasonReset, nil)
	default:
		c.st.End(stream.ReasonFailed, nil)
	}
}

// carry carries bytes both ways. A direction that fails takes the other with it,
// and the target is told by a reset.
func (c *connection) carry(ctx context.Context, tcp *net.TCPConn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		_ = tcp.SetLinger(0) // it is closed at once, with a reset
		tcp.Close()
	})
	defer stop()
	var both sync.WaitGroup
	direction := func(f func(context.Context, *net.TCPConn) error) {
		both.Go(func() {
			if err := f(ctx, tcp); err != nil {
				cancel(err)
			}
		})
	}
	direction(c.receive)
	direction(c.give)
	both.Wait()
	return context.Cause(ctx)
}

// receive copies what the target sends into the stream, as fast as that is
// received at the far end.
func (c *connection) receive(ctx context.Context, tcp *net.TCPConn) error {
	b := make([]byte, piece)
	for {
		n, err := tcp.Read(b)
		if n > 0 {
			c.mu.Lock()
			c.received += int64(n)
			c.mu.Unlock()
			if err := c.record(ctx, wire.ForwardRecord{Data: b[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return c.record(ctx, wire.ForwardRecord{EOF: true})
		case err != nil:
			return err
		}
	}
}

// give writes to the target what came for it.
func (c *connection) give(ctx context.Context, tcp *net.TCPConn) error {
	for {
		c.mu.Lock()
		queue, eof := c.queue, c.eof
		c.queue = nil
		c.mu.Unlock()
		for _, b := range queue {
			if _, err := tcp.Write(b); err != nil {
				return err
			}
			c.taken(len(b))
		}
		if len(queue) > 0 {
			continue
		}
		if eof {
			return tcp.CloseWrite()
		}
		select {
		case <-c.news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// taken notes that the target took n bytes, and tells the limit when it has moved
// far enough. If there is no room for that now, the next FORWARD_TAKEN has it.
func (c *connection) taken(n int) {
	c.mu.Lock()
	c.given += int64(n)
	limit := c.given + wire.ForwardWindow
	due := limit-c.told >= wire.ForwardWindow/4
	c.mu.Unlock()
	if !due {
		return
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.st.Fits(slack/4) && c.st.Record(wire.ForwardRecord{Limit: limit}) == nil {
		c.mu.Lock()
		c.told = limit
		c.mu.Unlock()
	}
}

// take takes what the operator sends, as far as it follows on what was taken and
// the limit allows.
func (c *connection) take(r wire.ForwardData) (wire.ForwardTaken, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.given + wire.ForwardWindow
	end := r.Offset + int64(len(r.Data))
	switch {
	case c.eof && (end > c.next || r.EOF && end != c.next):
		return wire.ForwardTaken{}, invalid("offset", "must not go beyond the end at %d", c.next)
	case r.Offset > c.next, end > limit, end < c.next:
		// Something before it is missing, it is too early, or it came once more.
	default:
		if fresh := r.Data[c.next-r.Offset:]; len(fresh) > 0 {
			c.queue = append(c.queue, fresh)
		}
		c.next, c.eof = end, c.eof || r.EOF
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
	c.told = max(c.told, limit)
	return wire.ForwardTaken{Next: c.next, Limit: limit}, nil
}

// record writes a record into the stream once nothing is lost by it.
func (c *connection) record(ctx context.Context, r wire.ForwardRecord) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for {
		if err := c.st.Room(ctx, len(b)+slack); err != nil {
			return err
		}
		c.writing.Lock()
		if c.st.Fits(len(b) + slack) {
			err := c.st.Record(json.RawMessage(b))
			c.writing.Unlock()
			return err
		}
		c.writing.Unlock()
	}
}

// dialFailure says in words why nothing could be connected to.
func dialFailure(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no way to it"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "it doesn't answer"
	}
	return "the connection failed"
}
