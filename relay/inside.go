package relay

import (
	"context"
	"net"
	"sync"
)

// Dialer opens a connection.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// inside is a listener within the process: what is dialled is accepted, and nobody
// else can reach it.
type inside struct {
	arriving chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newInside() *inside {
	return &inside{arriving: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *inside) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	var err error
	select {
	case l.arriving <- theirs:
		return ours, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	ours.Close()
	theirs.Close()
	return nil, err
}

// Accept implements net.Listener.
func (l *inside) Accept() (net.Conn, error) {
	select {
	case c := <-l.arriving:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Idempotent.
func (l *inside) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *inside) Addr() net.Addr { return insideAddr{} }

type insideAddr struct{}

func (insideAddr) Network() string { return "inside" }
func (insideAddr) String() string  { return "inside" }
