package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/client"
	"farhand/internal/version"
	"farhand/wire"
)

// Config says what a Server stands on.
type Config struct {
	// Client is asked for everything. It stays the caller's, and must not be
	// closed before the Server.
	Client *client.Client
	Log    *slog.Logger // nil: nothing is logged
	// LocalRoot is a directory of this computer that agents may copy files into and
	// out of, and nothing else of it; nil: none. It stays the caller's.
	LocalRoot *os.Root
	// ReadOnly leaves out every tool that changes something.
	ReadOnly bool
	// Look is how often the Server looks whether something else was granted; 0 is
	// 15 s. A refusal has it look at once.
	Look time.Duration
	// Instance, if set, is what the ids of HTTP sessions begin with, before a dot:
	// it says where a session is.
	Instance string
	// Heartbeat is how often a call that goes on says so to a client that asked
	// for progress; 0 is 5 s.
	Heartbeat time.Duration
}

// Server answers agents for one token, any number of them at once. Safe for
// concurrent use.
type Server struct {
	client    *client.Client
	log       *slog.Logger
	localRoot *os.Root
	readOnly  bool
	heartbeat time.Duration
	mcp       *mcp.Server

	wake chan struct{} // has the watcher look now
	stop context.CancelFunc
	done sync.WaitGroup

	looking sync.Mutex // one look at a time
	reach   reach      // under looking: what the tools there are were made of

	mu       sync.Mutex
	sessions map[place]*client.Session
	screens  map[string]*screen // terminals that are followed, by id
	toldOf   map[string]int64   // how much was told of others
	closed   bool
}

// instructions are what a model is told of the server before anything else.
const instructions = `Farhand reaches machines (a Raspberry Pi or another Linux box) and what is wired to them.
Begin with list_machines and list_devices: their answers hold the names and ids that the other tools take.
"machine" may be left out while there is only one machine, and "device" while the machine has only one of that kind.
Paths are absolute or relative to the machine's first root. A failure says what to do next.`

// New makes a Server. It asks the relay once, for what the token may do, and
// fails if it gets no answer; afterwards it asks again from time to time, until
// Close.
func New(ctx context.Context, cfg Config) (*Server, error) {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		client: cfg.Client, log: log, localRoot: cfg.LocalRoot, readOnly: cfg.ReadOnly, heartbeat: cfg.Heartbeat,
		wake: make(chan struct{}, 1), sessions: make(map[place]*client.Session), screens: make(map[string]*screen), toldOf: make(map[string]int64),
	}
	if s.heartbeat <= 0 {
		s.heartbeat = heartbeat
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "farhand", Title: "Farhand", Version: version.String()}, &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       log,
		PageSize:     1000, // all of them: there are fewer than a hundred tools
		Capabilities: &mcp.ServerCapabilities{
			Tools:     &mcp.ToolCapabilities{ListChanged: true},
			Resources: &mcp.ResourceCapabilities{ListChanged: true},
		},
		CompletionHandler: s.complete,
		GetSessionID:      sessionIDs(cfg.Instance),
	})
	s.addTemplates()
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	every := cfg.Look
	if every <= 0 {
		every = 15 * time.Second
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.done.Go(func() { s.watch(watching, every) })
	return s, nil
}

// sessionIDs makes ids of sessions that say at which instance they are.
func sessionIDs(instance string) func() string {
	if instance == "" {
		return rand.Text
	}
	return func() string { return instance + "." + rand.Text() }
}

// Run answers one client until it goes away or ctx ends.
func (s *Server) Run(ctx context.Context, t mcp.Transport) error { return s.mcp.Run(ctx, t) }

// Close ends what New started. Sessions and terminals on machines stay: they are
// the token's, and end by themselves. Idempotent.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	s.closed = true
	for _, sc := range s.screens {
		sc.stop()
	}
	s.mu.Unlock()
	s.done.Wait()
	return nil
}

// endSessions ends what goes on with every client.
func (s *Server) endSessions() {
	for one := range s.mcp.Sessions() {
		_ = one.Close() // the client is gone, or learns of it
	}
}

// look has the watcher look soon.
func (s *Server) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// watch keeps the tools true.
func (s *Server) watch(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.leaveUntended(now)
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		err := s.refresh(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, wire.AuthFailed): // expired or revoked: there is nothing left to serve
			s.endSessions()
		default:
			s.log.Debug("what is granted isn't known", "err", err.Error())
		}
	}
}

// reach is what decides about tools and resources.
type reach struct {
	known        bool
	capabilities map[wire.Capability]bool // granted on some machine
	machines     []string                 // names
}

// refresh asks what is granted and adds and takes away tools and resources
// accordingly, of which the clients are told.
func (s *Server) refresh(ctx context.Context) error {
	s.looking.Lock()
	defer s.looking.Unlock()
	who, err := s.client.Whoami(ctx)
	if err != nil {
		return fmt.Errorf("asking what may be done: %w", err)
	}
	machines, err := s.client.Machines(ctx)
	if err != nil {
		return fmt.Errorf("asking for the machines: %w", err)
	}
	now := reach{known: true, capabilities: make(map[wire.Capability]bool)}
	for _, m := range machines {
		now.machines = append(now.machines, m.Name)
		for _, c := range granted(m, who.Ceiling) {
			now.capabilities[c] = true
		}
	}
	slices.Sort(now.machines)
	s.become(now)
	return nil
}

// granted is what can be used of a machine: what it offers and neither its owner
// nor the token forbids.
func granted(m client.Machine, token *wire.Ceiling) wire.Capabilities {
	out := wire.Capabilities{}
	holds := func(c *wire.Ceiling, x wire.Capability) bool {
		return c == nil || c.Capabilities == nil || slices.Contains(*c.Capabilities, x)
	}
	for _, c := range m.Capabilities {
		if d := c.Owned(); (c.Approvable() || c == wire.Privacy) && holds(&m.Approval, d) && holds(token, d) {
			out = append(out, c)
		}
	}
	return out
}

// become makes the tools those of now. Called with looking held.
func (s *Server) become(now reach) {
	var gone []string
	var come []tool
	for _, t := range tools() {
		if s.readOnly && !t.Annotations.ReadOnlyHint || t.here && s.localRoot == nil {
			continue
		}
		had := s.reach.known && s.reach.has(t.needs)
		switch has := now.has(t.needs); {
		case has && !had:
			come = append(come, t)
		case had && !has:
			gone = append(gone, t.Name)
		}
	}
	// A client may ask in between: what isn't allowed any more goes first.
	if len(gone) > 0 {
		s.mcp.RemoveTools(gone...)
	}
	for _, t := range come {
		s.mcp.AddTool(t.Tool, t.do(s))
	}
	s.becomeResources(now.machines)
	if s.reach.known && !maps.Equal(s.reach.capabilities, now.capabilities) {
		s.log.Info("other tools now", "capabilities", len(now.capabilities))
	}
	s.reach = now
}

func (r reach) has(c wire.Capability) bool {
	switch c {
	case "":
		return true
	case wire.HardwareFamily:
		for x := range r.capabilities {
			if x.IsHardware() {
				return true
			}
		}
		return false
	}
	return r.capabilities[c]
}

// tools are all there are, in the order in which a reader wants to meet them.
func tools() []tool {
	return slices.Concat(
		machineTools(), eventTools(), observeTools(), fileTools(), transferTools(), commandTools(), terminalTools(), gpioTools(), busTools(), serialTools(), usbTools(), printerTools(), modelTools(), privateTools(),
	)
}
