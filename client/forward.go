package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"farhand/wire"
)

// Tunnel is a TCP connection that the machine makes, as a stream of bytes in each
// direction. It outlives a lost link, up to the 300 s that the device waits for
// its receiver. Read and Write may be called at the same time, each by one
// goroutine.
type Tunnel struct {
	session *Session
	st      *Stream
	remote  string
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	in      *io.PipeReader
	pumped  chan struct{}

	writing sync.Mutex // Write and CloseWrite
	next    int64      // offset of what is sent next

	mu    sync.Mutex
	limit int64         // offset up to which the device takes
	moved chan struct{} // the limit moved
}

// unmoved is how long a Write waits to be told that there is room before it asks:
// what tells it lies behind what Read hasn't read yet.
const unmoved = 500 * time.Millisecond

// Dial has the machine connect to a TCP port of a host, which its configuration
// must allow (forward.allow); the session needs the capability forward. Close the
// Tunnel when done. TARGET_NOT_ALLOWED and TARGET_UNREACHABLE say why there is none.
func (s *Session) Dial(ctx context.Context, host string, port int) (*Tunnel, error) {
	var out wire.ForwardOpened
	r := request{method: method(wire.TForwardOpen), payload: wire.ForwardOpen{Host: host, Port: port}}
	st, err := open(ctx, s.client.sock, s.do, s.at, r, &out, func(payload []byte) (string, int64, int) {
		var answer wire.ForwardOpened
		_ = wire.Decode(payload, &answer)
		return answer.Stream, 0, 0
	})
	if err != nil {
		return nil, err
	}
	first, err := st.Next(ctx)
	if err != nil {
		st.abandon(ctx)
		return nil, err
	}
	records, err := Decode[wire.ForwardRecord](first)
	if err == nil && (len(records) == 0 || records[0].Connected == "") {
		err = wire.Errorf(wire.TargetUnreachable, "%s, port %d: the connection ended before it began", host, port)
		if len(records) > 0 && records[0].Error != nil {
			err = records[0].Error
		}
	}
	if err != nil {
		st.abandon(ctx)
		return nil, err
	}
	t := &Tunnel{session: s, st: st, remote: records[0].Connected, limit: out.Limit, moved: make(chan struct{}, 1), pumped: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var to *io.PipeWriter
	t.in, to = io.Pipe()
	go func() {
		defer close(t.pumped)
		to.CloseWithError(t.pump(to, Chunk{Records: first.Records[1:], Offset: first.Offset + 1, End: first.End}))
	}()
	return t, nil
}

// abandon closes a stream that nobody wants.
func (st *Stream) abandon(ctx context.Context) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = st.Close(bounded)
}

// Remote is the address that the machine connected to.
func (t *Tunnel) Remote() string { return t.remote }

// Read reads what the target sent; io.EOF after the last of it. A connection that
// was broken off is syscall.ECONNRESET.
func (t *Tunnel) Read(p []byte) (int, error) { return t.in.Read(p) }

// pump hands on what comes until it is over.
func (t *Tunnel) pump(to *io.PipeWriter, c Chunk) error {
	eof := false
	for {
		if c.Lost != nil {
			return fmt.Errorf("bytes from %s are lost: %w", t.remote, syscall.ECONNRESET)
		}
		for _, raw := range c.Records {
			var r wire.ForwardRecord
			if err := json.Unmarshal(raw, &r); err != nil {
				return unreadable(err)
			}
			t.allow(r.Limit)
			if len(r.Data) > 0 {
				if _, err := to.Write(r.Data); err != nil {
					return err // closed on this side
				}
			}
			if r.EOF {
				eof = true
				to.Close()
			}
		}
		if c.End != nil {
			if c.End.Reason == "done" || eof && c.End.Reason == "closed" {
				return io.EOF
			}
			return fmt.Errorf("the connection to %s has ended (%s): %w", t.remote, c.End.Reason, syscall.ECONNRESET)
		}
		var err error
		if c, err = t.st.Next(t.ctx); err != nil {
			return fmt.Errorf("the connection to %s is lost (%w): %w", t.remote, err, syscall.ECONNRESET)
		}
	}
}

// allow notes a limit.
func (t *Tunnel) allow(limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if limit > t.limit {
		t.limit = limit
		select {
		case t.moved <- struct{}{}:
		default:
		}
	}
}

// room is how many bytes may be sent now, waiting until there are some.
func (t *Tunnel) room() (int64, error) {
	ask := time.NewTimer(unmoved)
	defer ask.Stop()
	for {
		t.mu.Lock()
		room := t.limit - t.next
		t.mu.Unlock()
		if room > 0 {
			return room, nil
		}
		select {
		case <-t.moved:
		case <-ask.C:
			if err := t.send(nil, false); err != nil {
				return 0, err
			}
			ask.Reset(unmoved)
		case <-t.pumped:
			return 0, syscall.EPIPE
		case <-t.ctx.Done():
			return 0, io.ErrClosedPipe
		}
	}
}

// Write sends bytes to the target. It returns when the device has taken them,
// which it does no faster than the target.
func (t *Tunnel) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	done := 0
	for done < len(p) {
		room, err := t.room()
		if err != nil {
			return done, err
		}
		part := p[done:min(len(p), done+int(min(room, wire.MaxForwardData)))]
		if err := t.send(part, false); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// CloseWrite tells the target that nothing more comes. Reading goes on.
func (t *Tunnel) CloseWrite() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.send(nil, true)
}

// send sends one piece until the device has it: it takes what it had already only
// once. Called with writing.
func (t *Tunnel) send(part []byte, eof bool) error {
	end := t.next + int64(len(part))
	var again attempts
	for {
		var out wire.ForwardTaken
		err := t.session.do(t.ctx, request{method: method(wire.TForwardData), payload: wire.ForwardData{
			Stream: t.st.ID(), Offset: t.next, Data: part, EOF: eof,
		}}, &out)
		switch {
		case err == nil && out.Next == end:
			t.next = end
			t.allow(out.Limit)
			return nil
		case err == nil:
			return wire.Errorf(wire.InternalError, "the device took %d of %d bytes", out.Next, end)
		case t.ctx.Err() != nil:
			return io.ErrClosedPipe
		case errors.Is(err, wire.StreamNotFound):
			return fmt.Errorf("the connection to %s has ended: %w", t.remote, syscall.EPIPE)
		case !passing(err):
			return err
		}
		if !again.wait(t.ctx, t.next) {
			return io.ErrClosedPipe
		}
	}
}

// Close breaks the connection off, unless both sides have ended it. Idempotent.
func (t *Tunnel) Close() error {
	t.cancel()
	t.in.Close()
	bounded, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := t.st.Close(bounded)
	<-t.pumped
	return err
}

// MayDial says whether this session may connect to anything at all; the error says
// who forbids it.
func (s *Session) MayDial(ctx context.Context) error {
	err := s.do(ctx, request{method: method(wire.TForwardData), payload: wire.ForwardData{}}, new(wire.ForwardTaken))
	if errors.Is(err, wire.StreamNotFound) { // as it must be of a connection without a name
		return nil
	}
	return err
}
