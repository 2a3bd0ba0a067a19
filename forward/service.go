package forward

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"farhand/stream"
	"farhand/wire"
)

// Bounds of a Service.
const (
	MaxConnections = 96 // of the machine
	MaxPerSession  = 64
	// dialTime bounds finding an address and connecting to it.
	dialTime = 10 * time.Second
)

// Ended is what a connection was.
type Ended struct {
	Session  string
	Stream   string
	Target   string // as it was asked for
	Address  string // what it was connected to; empty: it wasn't
	Reason   string // of the stream's end
	Sent     int64  // bytes that the target got
	Received int64  // bytes that came from it
	Took     time.Duration
}

// Service makes connections. It is safe for concurrent use.
type Service struct {
	allow   Allow
	streams *stream.Hub
	onEnd   func(Ended)
	names   Resolver
	dial    func(ctx context.Context, address netip.AddrPort) (*net.TCPConn, error)
	own     func() []netip.Addr
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	conns map[string]*connection // by their streams
}

// New makes a service for these targets. onEnd is told of each connection that
// has ended.
func New(allow Allow, streams *stream.Hub, onEnd func(Ended)) *Service {
	s := &Service{
		allow: allow, streams: streams, onEnd: onEnd, names: net.DefaultResolver, dial: dialTCP, own: ownAddresses,
		conns: make(map[string]*connection),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func dialTCP(ctx context.Context, address netip.AddrPort) (*net.TCPConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// Close ends all connections and waits for them.
func (s *Service) Close() error {
	s.mu.Lock() // or one that Open has admitted would begin after the wait
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// Target is what a request asks for, as it is recorded; the error refuses it.
func (s *Service) Target(r wire.ForwardOpen) (string, error) {
	t, err := s.allow.target(r)
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// Open begins a connection for by, which ends with its stream. hold is called once
// there is one, and what it returns when it has ended. Whether the connection
// comes about is told by the stream.
func (s *Service) Open(r wire.ForwardOpen, by stream.Owner, hold func() func()) (wire.ForwardOpened, error) {
	t, err := s.allow.target(r)
	if err != nil {
		return wire.ForwardOpened{}, err
	}
	if r.Credit > wire.MaxPacedCredit {
		return wire.ForwardOpened{}, invalid("credit", "must be 0 to %d bytes, not %d", wire.MaxPacedCredit, r.Credit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return wire.ForwardOpened{}, wire.Errorf(wire.InternalError, "the daemon is stopping")
	}
	mine := 0
	for _, c := range s.conns {
		if c.by.Session == by.Session {
			mine++
		}
	}
	if len(s.conns) >= MaxConnections || mine >= MaxPerSession {
		return wire.ForwardOpened{}, wire.Errorf(wire.ShimOverloaded, "%d connections are forwarded already, %d of them for this session", len(s.conns), mine).
			With("hint", "close some of them first")
	}
	st, err := s.streams.Open(stream.Options{
		Owner: by, Records: true, Credit: r.Credit, Ring: max(r.Credit, stream.DefaultRing),
		Op: string(wire.TForwardOpen), Capability: wire.Forward,
	})
	if err != nil {
		return wire.ForwardOpened{}, err
	}
	c := newConnection(s, st, t, by)
	s.conns[st.ID()] = c
	release := hold()
	s.running.Go(func() {
		defer release()
		ended := c.run(s.ctx)
		s.mu.Lock()
		delete(s.conns, st.ID())
		s.mu.Unlock()
		s.onEnd(ended)
	})
	return wire.ForwardOpened{Opened: wire.Opened{Stream: st.ID()}, Limit: wire.ForwardWindow}, nil
}

// Data takes bytes for a connection's target. It waits for nothing.
func (s *Service) Data(r wire.ForwardData, by stream.Owner) (wire.ForwardTaken, error) {
	if len(r.Data) > wire.MaxForwardData {
		return wire.ForwardTaken{}, invalid("data", "must be at most %d bytes, not %d", wire.MaxForwardData, len(r.Data))
	}
	if r.Offset < 0 {
		return wire.ForwardTaken{}, invalid("offset", "must not be negative")
	}
	s.mu.Lock()
	c := s.conns[r.Stream]
	s.mu.Unlock()
	if c == nil || !c.by.May(by) {
		return wire.ForwardTaken{}, wire.Errorf(wire.StreamNotFound, "no such connection, or it is somebody else's").With("stream", wire.Clean(r.Stream, 64))
	}
	return c.take(r)
}

// connect resolves and dials a target: the first address that answers.
func (s *Service) connect(ctx context.Context, t target) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addresses, err := s.allow.addresses(ctx, t, s.names, s.own)
	if err != nil {
		return nil, err
	}
	var failed error
	for i, ip := range addresses {
		// Each gets its share of the time that is left.
		deadline, _ := ctx.Deadline()
		each, done := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addresses)-i))
		tcp, err := s.dial(each, netip.AddrPortFrom(ip, t.port))
		done()
		switch {
		case err != nil:
			failed = err
		case tcp.LocalAddr().String() == tcp.RemoteAddr().String():
			tcp.Close() // nobody listens there, and the kernel connected the port with itself
			failed = errors.New("nothing listens there")
		case s.allow.away && sameHost(tcp.LocalAddr(), tcp.RemoteAddr()): // whatever list of addresses says
			tcp.Close()
			return nil, ownAddress(t)
		default:
			return tcp, nil
		}
	}
	return nil, unreachable(t, dialFailure(failed), failed)
}

// sameHost says whether both ends of a connection have one address: the kernel
// takes the target's for the sender's where that is the machine itself.
func sameHost(a, b net.Addr) bool {
	x, ok := a.(*net.TCPAddr)
	y, ok2 := b.(*net.TCPAddr)
	return ok && ok2 && x.IP.Equal(y.IP)
}
