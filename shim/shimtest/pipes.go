package shimtest

import (
	"context"
	"net"
	"sync"
)

// pipes is a listener whose connections stay inside the process, so that a
// bubble of testing/synctest sees through them.
type pipes struct {
	offered chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newPipes() *pipes {
	return &pipes{offered: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept, Close and Addr make it a net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.offered:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "platform.test:80" }

// Dial connects to a platform made by NewInMemory; it fits link.DialOptions.NetDial.
func (p *Platform) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.pipes.offered <- theirs:
		return ours, nil
	case <-p.pipes.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
