package mcp

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// patience is how long requests are waited for once no more can come, counted from
// the last answer.
const patience = 30 * time.Second

// Pipes is the transport of a client that writes requests to one pipe and reads
// their answers from another. What was read is answered although the first has
// ended, as printf … | farhand mcp ends it at once: only when no answer came for
// 30 s is what still goes on cancelled. It also ends with the context of Run.
func Pipes(r io.ReadCloser, w io.WriteCloser) mcp.Transport {
	return &pipes{Transport: &mcp.IOTransport{Reader: r, Writer: w}, patience: patience}
}

type pipes struct {
	mcp.Transport
	patience time.Duration
}

func (p *pipes) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := p.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &pipe{Connection: inner, patience: p.patience, open: make(map[jsonrpc.ID]struct{}), changed: make(chan struct{}, 1), closed: make(chan struct{})}
	// Without it an interrupt would wait for every request to end by itself.
	c.stop = context.AfterFunc(ctx, func() { c.Close() })
	return c, nil
}

// pipe is the server's end of a pair of pipes.
type pipe struct {
	mcp.Connection
	patience time.Duration
	stop     func() bool

	mu      sync.Mutex
	open    map[jsonrpc.ID]struct{} // requests that were read and not answered
	broken  bool                    // nobody reads answers any more
	changed chan struct{}           // of open or broken, since it was looked at

	once   sync.Once
	closed chan struct{}
}

// Read gives the end of what comes when there is nothing left to answer: it has the
// connection cancel what goes on.
func (c *pipe) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		if left := c.drain(); left > 0 {
			return nil, fmt.Errorf("%d requests were left unanswered: nothing came of them for %v after the end of what was asked", left, c.patience)
		}
		return nil, err
	}
	if q, ok := m.(*jsonrpc.Request); ok && q.IsCall() && q.Method != "subscriptions/listen" { // which has no end
		c.mu.Lock()
		c.open[q.ID] = struct{}{}
		c.mu.Unlock()
	}
	return m, nil
}

// drain waits for the answers and gives how many won't come.
func (c *pipe) drain() (left int) {
	timer := time.NewTimer(c.patience)
	defer timer.Stop()
	for {
		c.mu.Lock()
		left, broken := len(c.open), c.broken
		c.mu.Unlock()
		if left == 0 || broken {
			return 0
		}
		select {
		case <-c.changed:
			timer.Reset(c.patience)
		case <-c.closed:
			return 0
		case <-timer.C:
			return left
		}
	}
}

func (c *pipe) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	answer, ok := m.(*jsonrpc.Response)
	if !ok && (err == nil || ctx.Err() != nil) {
		return err
	}
	c.mu.Lock()
	if ok {
		delete(c.open, answer.ID)
	}
	c.broken = c.broken || err != nil
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return err
}

func (c *pipe) Close() error {
	c.stop()
	c.once.Do(func() { close(c.closed) })
	return c.Connection.Close()
}
