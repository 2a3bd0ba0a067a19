package portal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"farhand/provision/preseed"
	"farhand/provision/rescue"
)

// Config is what a Portal needs.
type Config struct {
	// Apply stores a network and the country it is in, so that it is joined as
	// soon as the rescue network ends. Its error is shown to the visitor.
	Apply func(ctx context.Context, w preseed.Wifi, country string) error
	// Entered is called after each Apply without error, and Active whenever a
	// visitor looked at the page. Both must return at once.
	Entered, Active func()
	// Name is the machine's, and Country what is known already; both may be
	// empty.
	Name, Country string
	Logger        *slog.Logger

	// Address is where to listen; the zero value is the rescue network's. The
	// ports are 80 and 53 then, and any free one otherwise.
	Address netip.Addr
	// Visitors is the network whose machines are answered; the zero value is the
	// rescue network.
	Visitors netip.Prefix
	// Root is the directory below which proc is, to name the process that holds
	// a port; empty: /.
	Root string
}

// Portal is a rescue.Portal. Open and Close may be called again and again, from
// one goroutine at a time.
type Portal struct {
	cfg  Config
	log  *slog.Logger
	host string // of our own address, as a browser sends it
	http uint16
	dns  uint16

	mu     sync.Mutex
	visit  rescue.Visit
	tokens tokens
	server *http.Server
	names  net.PacketConn
	work   sync.WaitGroup
	// answering is held for reading by each request, so that Close can wait for
	// them.
	answering sync.RWMutex
}

var _ rescue.Portal = (*Portal)(nil)

// New makes a portal that is closed.
func New(cfg Config) *Portal {
	p := &Portal{cfg: cfg, log: cfg.Logger}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if !p.cfg.Address.IsValid() {
		p.cfg.Address, p.http, p.dns = rescue.Address(), 80, 53
	}
	if !p.cfg.Visitors.IsValid() {
		p.cfg.Visitors = rescue.Prefix()
	}
	if p.cfg.Root == "" {
		p.cfg.Root = "/"
	}
	if p.cfg.Entered == nil {
		p.cfg.Entered = func() {}
	}
	if p.cfg.Active == nil {
		p.cfg.Active = func() {}
	}
	return p
}

// Limits of one visitor and of all together: the page is a few KiB, and an
// access point of a Pi serves a handful of phones.
const (
	maxConns   = 32
	maxHeader  = 8 << 10
	maxForm    = 4 << 10
	ioTimeout  = 10 * time.Second
	idleLimit  = 15 * time.Second
	stopLimit  = 2 * time.Second
	applyLimit = 20 * time.Second
)

// Open begins to answer.
func (p *Portal) Open(ctx context.Context, v rescue.Visit) error {
	if p.server != nil {
		return errors.New("the portal is open already")
	}
	pages, err := p.listenPages(ctx)
	if err != nil {
		return err
	}
	names, err := p.listenNames(ctx)
	if err != nil {
		pages.Close()
		return err
	}
	p.mu.Lock()
	p.visit, p.tokens = v, tokens{}
	p.mu.Unlock()
	p.host = hostOf(netip.MustParseAddrPort(pages.Addr().String()))
	p.names = names
	p.server = &http.Server{
		Handler:           p.guard(p.routes()),
		ReadHeaderTimeout: ioTimeout, ReadTimeout: ioTimeout,
		// Storing what was entered is waited for.
		WriteTimeout: ioTimeout + applyLimit, IdleTimeout: idleLimit,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	server := p.server
	p.work.Go(func() { _ = server.Serve(limit(pages, maxConns)) }) // ends with Close
	p.work.Go(func() { p.answerNames(names) })
	return nil
}

// Close ends the answering; a page that is being sent may be finished.
func (p *Portal) Close() error {
	if p.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close() // a visitor that takes its time; its request's context ends
	}
	p.answering.Lock() // what was begun has ended
	defer p.answering.Unlock()
	_ = p.names.Close()
	p.work.Wait()
	p.server, p.names = nil, nil
	return nil
}

func (p *Portal) listenPages(ctx context.Context) (net.Listener, error) {
	lc := net.ListenConfig{Control: freeBind}
	l, err := lc.Listen(ctx, "tcp4", netip.AddrPortFrom(p.cfg.Address, p.http).String())
	if err != nil {
		return nil, p.listenError("the page", "tcp", p.http, err)
	}
	return l, nil
}

func (p *Portal) listenNames(ctx context.Context) (net.PacketConn, error) {
	lc := net.ListenConfig{Control: freeBind}
	c, err := lc.ListenPacket(ctx, "udp4", netip.AddrPortFrom(p.cfg.Address, p.dns).String())
	if err != nil {
		return nil, p.listenError("the names", "udp", p.dns, err)
	}
	return c, nil
}

// listenError names who holds a port (field case 85).
func (p *Portal) listenError(what, proto string, port uint16, err error) error {
	if holder, held := rescue.Holder(p.cfg.Root, proto, p.cfg.Address, port); held {
		return fmt.Errorf("%s: %s holds port %d: %w", what, holder, port, err)
	}
	return fmt.Errorf("%s: port %d: %w", what, port, err)
}

// hostOf is the Host header for an address: without the port where it is HTTP's
// own.
func hostOf(a netip.AddrPort) string {
	if a.Port() == 80 {
		return a.Addr().String()
	}
	return a.String()
}

// limit bounds how many connections there are at a time; further ones wait to be
// accepted.
func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	free   chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &counted{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
