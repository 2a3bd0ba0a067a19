// Package cluster joins the instances of one relay: who is there, and
// connections between any two of them, over NATS core.
//
// A Node is one instance. It says that it is there once a second and takes those
// as gone that said nothing for five, or that NATS has no subscription of. Its
// connections are net.Conns, so that instances speak to each other in HTTP and
// WebSockets, as everybody else speaks to them: bytes in order, with flow
// control, cut into messages that any NATS server takes.
//
// NATS core may lose messages. A connection that misses one is reset, never
// continued with a hole in it; and when a node loses its servers all its
// connections are reset at once. What was under way on them is then in doubt,
// and it is for those who use them to say so.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// ErrGone says that there is no such instance (any more).
var ErrGone = errors.New("the instance is gone")

const (
	beat    = time.Second     // between two signs of life
	silence = 5 * time.Second // without one, until an instance counts as gone

	// maxConns bounds the connections of a node, so also its memory: each buffers
	// at most one window.
	maxConns = 1 << 15
	// backlog is how many connections may wait to be accepted.
	backlog = 256
	// drainTime is for what was written before Close.
	drainTime = 2 * time.Second
)

// Options say who a Node is.
type Options struct {
	// Name is that of the cluster: instances of other names on the same NATS
	// servers don't see each other. One token of a subject.
	Name string
	Log  *slog.Logger // nil: nothing is logged
}

// Node is one instance. All methods are safe for concurrent use.
type Node struct {
	nc   *nats.Conn
	id   string
	pre  string // of all subjects
	log  *slog.Logger
	subs []*nats.Subscription
	done sync.WaitGroup
	stop chan struct{}

	accepted chan *conn

	// telling is held while what is known of who is there changes, until that was
	// told: what happens in between would be told before it.
	telling sync.Mutex

	mu     sync.Mutex
	closed bool
	peers  map[string]time.Time // when each was heard of last, ourselves included
	conns  map[string]*conn
	change func(id string, alive bool)
}

// Join makes a Node. The connection stays the caller's; it should be one that
// reconnects for ever, see Connect.
func Join(nc *nats.Conn, o Options) (*Node, error) {
	n := &Node{nc: nc, id: nuid.Next(), pre: "farhand." + o.Name + ".", log: o.Log, stop: make(chan struct{}),
		accepted: make(chan *conn, backlog), peers: make(map[string]time.Time), conns: make(map[string]*conn)}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.peers[n.id] = time.Now()
	for subject, f := range map[string]nats.MsgHandler{
		n.pre + "beat":              n.heard,
		n.pre + "to." + n.id + ".>": n.receive,
	} {
		sub, err := nc.Subscribe(subject, f)
		if err == nil {
			// What waits here is bounded by the windows of the connections.
			err = sub.SetPendingLimits(-1, -1)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("joining the cluster: %w", err), n.Close())
		}
		n.subs = append(n.subs, sub)
	}
	if err := nc.FlushTimeout(silence); err != nil {
		return nil, errors.Join(fmt.Errorf("joining the cluster: %w", err), n.Close())
	}
	n.say("hello")
	n.done.Go(n.live)
	return n, nil
}

// Connect opens a connection to NATS as a Node needs it: it comes back by
// itself, and nothing is kept for later while it is away, since a frame that
// arrives late is worse than one that fails.
func Connect(urls string, log *slog.Logger, options ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(urls, append([]nats.Option{
		nats.Name("farhand-relay"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 250*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(2 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the connection to NATS was lost", "err", err.Error())
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("NATS is back", "server", nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS", "err", err.Error()) }),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to NATS: %w", err)
	}
	return nc, nil
}

// ID names this instance, anew with every start.
func (n *Node) ID() string { return n.id }

// Alive says whether an instance is there as far as is known. For this one's own
// id it says whether the NATS servers are.
func (n *Node) Alive(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.peers[id]
	return ok
}

// Peers are the instances that are there, this one too.
func (n *Node) Peers() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]string, 0, len(n.peers))
	for id := range n.peers {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}

// OnChange has f told when an instance came or went, this one included: then the
// NATS servers did. f is called by one goroutine at a time, in the order in which
// that happened, and must not block or dial.
func (n *Node) OnChange(f func(id string, alive bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change = f
}

// Close says goodbye and resets what is connected.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	conns := n.all("")
	close(n.stop)
	n.mu.Unlock()
	n.say("bye")
	for _, c := range conns {
		c.reset(net.ErrClosed)
	}
	n.done.Wait()
	for _, s := range n.subs {
		_ = s.Unsubscribe() // fails if the connection is closed, and then there is nothing to end
	}
	_ = n.nc.FlushTimeout(drainTime)
	return nil
}

// all are the connections to a peer; "": to all. Called with the lock held.
func (n *Node) all(peer string) []*conn {
	var found []*conn
	for _, c := range n.conns {
		if peer == "" || c.peer == peer {
			found = append(found, c)
		}
	}
	return found
}

func (n *Node) say(word string) {
	_ = n.nc.Publish(n.pre+"beat", []byte(word+" "+n.id)) // lost like any beat may be
}

// live gives signs of life and looks after those of others.
func (n *Node) live() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	lost := n.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer n.nc.RemoveStatusListener(lost)
	for {
		select {
		case <-n.stop:
			return
		case <-lost:
			n.mu.Lock()
			conns := n.all("")
			n.mu.Unlock()
			for _, c := range conns {
				c.reset(ErrGone)
			}
		case now := <-tick.C:
			n.say("beat")
			n.probe()
			n.expire(now)
		}
	}
}

// probe sends those whom we are connected to a message that NATS returns if
// they are gone, which is faster than waiting for their silence.
func (n *Node) probe() {
	n.mu.Lock()
	peers := make(map[string]bool)
	for _, c := range n.conns {
		peers[c.peer] = true
	}
	n.mu.Unlock()
	for id := range peers {
		n.send(id, "probe", nil)
	}
}

func (n *Node) expire(now time.Time) {
	n.mu.Lock()
	var gone []string
	for id, at := range n.peers {
		if now.Sub(at) > silence {
			gone = append(gone, id)
		}
	}
	n.mu.Unlock()
	for _, id := range gone {
		n.gone(id)
	}
}

// heard takes a sign of life.
func (n *Node) heard(m *nats.Msg) {
	word, id, ok := strings.Cut(string(m.Data), " ")
	if !ok || len(id) > 64 {
		return
	}
	if word == "bye" {
		if id != n.id {
			n.gone(id)
		}
		return
	}
	n.telling.Lock()
	defer n.telling.Unlock()
	n.mu.Lock()
	_, known := n.peers[id]
	n.peers[id] = time.Now()
	change := n.change
	closed := n.closed
	n.mu.Unlock()
	if closed {
		return
	}
	if word == "hello" && id != n.id {
		n.say("beat")
	}
	if !known {
		n.log.Info("instance is there", "instance", id, "self", id == n.id)
		if change != nil {
			change(id, true)
		}
	}
}

// gone strikes an instance off and resets the connections to it.
func (n *Node) gone(id string) {
	n.telling.Lock()
	defer n.telling.Unlock()
	n.mu.Lock()
	_, known := n.peers[id]
	delete(n.peers, id)
	conns := n.all(id)
	change := n.change
	n.mu.Unlock()
	for _, c := range conns {
		c.reset(ErrGone)
	}
	if known {
		n.log.Warn("instance is gone", "instance", id, "self", id == n.id)
		if change != nil {
			change(id, false)
		}
	}
}

// send publishes a message of a connection; NATS answers it where we see it if
// nobody is there to receive it.
func (n *Node) send(peer, rest string, data []byte) error {
	return n.nc.PublishMsg(&nats.Msg{Subject: n.pre + "to." + peer + "." + rest, Reply: n.pre + "to." + n.id + ".gone." + peer, Data: data})
}

// receive takes what is addressed to this instance.
func (n *Node) receive(m *nats.Msg) {
	rest := strings.TrimPrefix(m.Subject, n.pre+"to."+n.id+".")
	kind, arg, _ := strings.Cut(rest, ".")
	switch kind {
	case "gone":
		if m.Header.Get("Status") == "503" {
			n.gone(arg)
		}
	case "open":
		n.accept(m)
	case "conn":
		n.mu.Lock()
		c := n.conns[arg]
		n.mu.Unlock()
		if c != nil {
			c.receive(m.Data)
		} else if len(m.Data) > 0 && m.Data[0] == kindData {
			n.refuse(m, arg)
		}
	}
}

// refuse resets a connection that somebody writes to and that isn't here any
// more.
func (n *Node) refuse(m *nats.Msg, id string) {
	peer, us, ok := strings.Cut(strings.TrimPrefix(m.Reply, n.pre+"to."), ".gone.")
	if ok && us == n.id && !strings.ContainsAny(peer, ".*> ") {
		_ = n.send(peer, "conn."+id, header(nil, kindReset, 0))
	}
}

// accept answers who wants to be connected: the body is its id and the id that
// it gave the connection.
func (n *Node) accept(m *nats.Msg) {
	peer, id, ok := strings.Cut(string(m.Data), " ")
	if !ok || len(peer) > 64 || len(id) > 64 || strings.ContainsAny(peer+id, ".*> ") {
		return
	}
	c := newConn(n, peer, id)
	answer := "ok"
	n.mu.Lock()
	switch {
	case n.closed, n.conns[id] != nil, len(n.conns) >= maxConns:
		answer = "full"
	default:
		select {
		case n.accepted <- c:
			n.conns[id] = c
		default:
			answer = "full"
		}
	}
	n.mu.Unlock()
	if m.Respond([]byte(answer)) != nil && answer == "ok" {
		c.reset(ErrGone)
	}
}

// Dial connects to another instance. ErrGone, wrapped, if it isn't there.
func (n *Node) Dial(ctx context.Context, peer string) (net.Conn, error) {
	c := newConn(n, peer, nuid.Next())
	n.mu.Lock()
	if n.closed || len(n.conns) >= maxConns {
		n.mu.Unlock()
		return nil, fmt.Errorf("instance %s: no further connection", peer)
	}
	n.conns[c.id] = c
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	answer, err := n.nc.RequestWithContext(ctx, n.pre+"to."+peer+".open", []byte(n.id+" "+c.id))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		n.gone(peer)
		err = ErrGone
	case err == nil && string(answer.Data) != "ok":
		err = errors.New("it takes no further connection")
	}
	if err != nil {
		c.forget()
		return nil, fmt.Errorf("instance %s: %w", peer, err)
	}
	return c, nil
}

// Listener is where others' connections come in. Closing it leaves the Node.
func (n *Node) Listener() net.Listener { return listener{n, make(chan struct{}), new(sync.Once)} }

type listener struct {
	n      *Node
	closed chan struct{}
	once   *sync.Once
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.n.accepted:
		return c, nil
	case <-l.n.stop:
	case <-l.closed:
	}
	return nil, net.ErrClosed
}

func (l listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l listener) Addr() net.Addr { return addr(l.n.id) }

// addr is the address of an instance.
type addr string

func (addr) Network() string  { return "nats" }
func (a addr) String() string { return string(a) }
