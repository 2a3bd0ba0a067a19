// Package badlink is a TCP link that goes wrong when it is told to: it breaks, it
// falls silent while both ends still think that it stands, it crawls, it lets
// nobody through. What it does is done to every connection over it at once, as a
// bad Wi-Fi does.
package badlink

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Link forwards what it accepts to one address. Make it with Listen. Its methods
// are safe for concurrent use.
type Link struct {
	listener net.Listener
	target   string
	pace     pace

	mu    sync.Mutex
	ends  map[*net.TCPConn]bool
	shut  bool
	tasks sync.WaitGroup
}

// Listen listens on address (host:port, port 0 for any) and forwards to target.
func Listen(ctx context.Context, address, target string) (*Link, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, target: target, ends: make(map[*net.TCPConn]bool)}
	l.pace.changed = make(chan struct{})
	l.tasks.Go(l.accept)
	return l, nil
}

// Addr is where it listens.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut resets every connection. New ones are forwarded as before.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.ends {
		_ = c.SetLinger(0) // so that the other end sees a reset, not an end
		c.Close()
	}
}

// Silence lets nothing through and says so to nobody: connections stay open and
// new ones are accepted, as when the peer's network has gone. Bytes are kept back,
// not lost, until Mend.
func (l *Link) Silence() { l.pace.set(0) }

// Crawl lets a connection have so many bytes a second in each direction, until
// Mend.
func (l *Link) Crawl(bytesPerSecond int) { l.pace.set(max(bytesPerSecond, 1)) }

// Mend ends Silence and Crawl.
func (l *Link) Mend() { l.pace.set(unbounded) }

// Close resets every connection, stops listening and waits until all is over.
func (l *Link) Close() error {
	l.mu.Lock()
	l.shut = true
	l.mu.Unlock()
	err := l.listener.Close()
	l.Mend()
	l.Cut()
	l.tasks.Wait()
	return err
}

func (l *Link) accept() {
	for {
		near, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // this one is gone again
		}
		l.tasks.Go(func() { l.forward(near.(*net.TCPConn)) })
	}
}

func (l *Link) forward(near *net.TCPConn) {
	if !l.add(near) {
		return
	}
	defer l.remove(near)
	conn, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = near.SetLinger(0) // refused there: reset here
		return
	}
	far := conn.(*net.TCPConn)
	if !l.add(far) {
		return
	}
	defer l.remove(far)
	var both sync.WaitGroup
	both.Go(func() { l.copy(far, near) })
	both.Go(func() { l.copy(near, far) })
	both.Wait()
}

// copy forwards one direction and, at its end, that end alone: the other may
// still have something to say.
func (l *Link) copy(to, from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf[:l.pace.piece(len(buf))])
		if n > 0 {
			l.pace.wait(n)
			if _, err := to.Write(buf[:n]); err != nil {
				reset(to, from)
				return
			}
		}
		if err != nil {
			var broken *net.OpError
			if errors.As(err, &broken) {
				reset(to, from)
			} else {
				_ = to.CloseWrite()
			}
			return
		}
	}
}

func reset(ends ...*net.TCPConn) {
	for _, c := range ends {
		_ = c.SetLinger(0)
		c.Close()
	}
}

// add takes a connection into care; false, and it is closed, if the link is closed.
func (l *Link) add(c *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		c.Close()
		return false
	}
	l.ends[c] = true
	return true
}

func (l *Link) remove(c *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Close()
	delete(l.ends, c)
}

// pace is how fast bytes go; it may change at any time, for those that wait too.
type pace struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	slow    bool
	rate    int // bytes a second while slow; 0: none at all
}

const unbounded = -1

func (p *pace) set(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow, p.rate = rate != unbounded, rate
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pace) now() (slow bool, rate int, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow, p.rate, p.changed
}

// piece is how much to take at once, so that no wait is longer than 100 ms.
func (p *pace) piece(most int) int {
	if slow, rate, _ := p.now(); slow && rate > 0 {
		return min(most, max(rate/10, 1))
	}
	return most
}

// wait returns when n bytes may go on.
func (p *pace) wait(n int) {
	for {
		slow, rate, changed := p.now()
		switch {
		case !slow:
			return
		case rate == 0:
			<-changed
		default:
			timer := time.NewTimer(time.Duration(n) * time.Second / time.Duration(rate))
			select {
			case <-timer.C:
				return
			case <-changed:
				timer.Stop()
			}
		}
	}
}
