package terminal

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"farhand/stream"
	"farhand/wire"
)

// Defaults of Options.
const (
	DefaultMax = 16
	// DefaultRetain is for who comes late: a link may be lost for hours.
	DefaultRetain = 24 * time.Hour
)

// maxEnded bounds the ended terminals that are still listed.
const maxEnded = 256

// Files are a program's own ends of what it reads and writes.
type Files struct {
	In, Out, Err *os.File
	Terminal     bool // they are one terminal, which is to be the controlling one
}

// Program is what runs on a terminal. Reap is called once, last.
type Program interface {
	// Exited is closed once the program itself has ended.
	Exited() <-chan struct{}
	// Terminate asks it to end, Kill ends it with all that it started and waits
	// for that at most so long.
	Terminate()
	Kill(patience time.Duration)
	// Reap is how it ended, negative for a signal. An error says that nobody
	// knows.
	Reap() (exitCode int, err error)
}

// Options are the bounds of a Service and what it needs of others.
type Options struct {
	Hub *stream.Hub
	// Max bounds the terminals that run; 0 means DefaultMax.
	Max int
	// Retain is how long one that has ended is listed, with its exit code; 0 means
	// DefaultRetain. What it wrote is kept as long as the Hub does.
	Retain time.Duration
	// Path is the file that says which terminals there are, for the next start.
	Path string
	// Keep is where what a terminal needs outlives this process; nil: nowhere.
	Keep *Keep
	// Ends, if set, makes our end of a terminal, in place of one of the system's;
	// programs are given no files then. For tests whose clock is their own, which a
	// descriptor doesn't know.
	Ends func() (End, error)
	// OnEnd is told of each that has ended. It may block for a moment.
	OnEnd func(Ended)
	Log   *slog.Logger
}

// Ended says how a terminal ended.
type Ended struct {
	ID, Session string
	Reason      string
	ExitCode    *int
	Lasted      time.Duration
	Written     int64 // bytes that the program wrote
	Typed       int64 // bytes that it was given
}

// Service has the terminals of a machine. It is safe for concurrent use.
type Service struct {
	o       Options
	running sync.WaitGroup
	saving  sync.Mutex // one writes the file

	mu    sync.Mutex
	shut  bool
	all   map[string]*terminal
	order []*terminal // the oldest first
}

// New makes a Service. Terminals that an earlier process left are taken over, or
// listed as ended.
func New(o Options) (*Service, error) {
	o.Max, o.Retain = cmp.Or(o.Max, DefaultMax), cmp.Or(o.Retain, DefaultRetain)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnEnd == nil {
		o.OnEnd = func(Ended) {}
	}
	s := &Service{o: o, all: make(map[string]*terminal)}
	return s, s.recover()
}

// Request is what Open needs to know.
type Request struct {
	wire.TerminalOpen
	Owner stream.Owner
	Cwd   string // as it is told
	Hold  func() (release func())
	// Start starts the program, and says what it is called.
	Start func(Files) (p Program, name string, err error)
}

// Open starts a program. The caller lets the streams flow once the answer has
// left. Errors are SHIM_OVERLOADED, INVALID_ARGUMENT and those of Start.
func (s *Service) Open(r Request) (wire.TerminalOpened, error) {
	var none wire.TerminalOpened
	size, err := sizeOf(r.Columns, r.Rows)
	if err != nil {
		return none, err
	}
	if err := checkCredit(r.Credit); err != nil {
		return none, err
	}
	t := newTerminal(s, r, size)
	if err := s.admit(t); err != nil {
		return none, err
	}
	if err := t.start(r); err != nil {
		return none, err
	}
	opened, err := t.view(r.Owner, wire.TerminalOffsets{}, r.Credit, wire.TTerminalOpen)
	if err != nil { // the hub is closed: so are we in a moment
		t.end(stream.ReasonStopping)
		return none, err
	}
	return opened, nil
}

// Attach adds a viewer. The caller lets the streams flow once the answer has left.
func (s *Service) Attach(r wire.TerminalAttach, by stream.Owner) (wire.TerminalOpened, error) {
	t, err := s.find(r.Terminal, by)
	if err != nil {
		return wire.TerminalOpened{}, err
	}
	if err := checkCredit(r.Credit); err != nil {
		return wire.TerminalOpened{}, err
	}
	if r.From != nil && t.has(*r.From) {
		opened, err := t.view(by, *r.From, r.Credit, wire.TTerminalAttach)
		opened.Resumed = true
		return opened, err
	}
	return t.view(by, t.beginning(), r.Credit, wire.TTerminalAttach)
}

// Input types something.
func (s *Service) Input(ctx context.Context, r wire.TerminalInput, by stream.Owner) (wire.TerminalTaken, error) {
	t, err := s.find(r.Terminal, by)
	if err != nil {
		return wire.TerminalTaken{}, err
	}
	next, err := t.input(ctx, r)
	return wire.TerminalTaken{Next: next}, err
}

// First says whether the input would be the first of its writer: the one that is
// worth a record.
func (s *Service) First(r wire.TerminalInput) bool {
	s.mu.Lock()
	t := s.all[r.Terminal]
	s.mu.Unlock()
	return t != nil && !t.knows(r.Writer)
}

// Resize sets the size of a terminal.
func (s *Service) Resize(r wire.TerminalResize, by stream.Owner) error {
	t, err := s.find(r.Terminal, by)
	if err != nil {
		return err
	}
	if r.Columns == 0 || r.Rows == 0 {
		return invalid("columns", "columns and rows must be 1 to %d", wire.MaxTerminalSide)
	}
	size, err := sizeOf(r.Columns, r.Rows)
	if err != nil {
		return err
	}
	return t.resize(size, r.Force)
}

// List is every terminal that by may attach.
func (s *Service) List(by stream.Owner) []wire.TerminalInfo {
	infos := []wire.TerminalInfo{}
	for _, t := range s.terminals() {
		if t.owner.May(by) && t.started() {
			infos = append(infos, t.info())
		}
	}
	return infos
}

// CloseTerminal ends a terminal and waits for that.
func (s *Service) CloseTerminal(ctx context.Context, id string, by stream.Owner) error {
	t, err := s.find(id, by)
	if err != nil {
		return err
	}
	t.end(stream.ReasonClosed)
	return t.wait(ctx)
}

// EndSession ends the terminals of a session, or of all ("").
func (s *Service) EndSession(session, reason string) {
	for _, t := range s.terminals() {
		if session == "" || t.owner.Session == session {
			t.end(reason)
		}
	}
}

// Discard ends all terminals and forgets what they wrote, and what those wrote that
// have ended: nobody gets it any more.
func (s *Service) Discard(reason string) {
	for _, t := range s.terminals() {
		t.discard(reason)
	}
}

// Hold holds a session, which is there again, for each of its terminals.
func (s *Service) Hold(session string, hold func() (release func())) {
	for _, t := range s.terminals() {
		if t.owner.Session == session {
			t.hold(hold)
		}
	}
}

// Running is how many terminals run.
func (s *Service) Running() int {
	n := 0
	for _, t := range s.terminals() {
		if t.ended() == nil {
			n++
		}
	}
	return n
}

// Leave ends all terminals, those apart that outlive this process, which it lets
// go of. Nothing is opened any more.
func (s *Service) Leave() {
	s.mu.Lock()
	s.shut = true
	s.mu.Unlock()
	for _, t := range s.terminals() {
		t.leave()
	}
	s.running.Wait()
}

// Close is Leave.
func (s *Service) Close() error {
	s.Leave()
	return nil
}

// terminals are all that are listed; those whose time has come go.
func (s *Service) terminals() []*terminal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	return slices.Clone(s.order)
}

// prune forgets what ended long ago. Called with mu.
func (s *Service) prune() {
	over := 0
	for _, t := range slices.Backward(s.order) {
		e := t.ended()
		if e == nil {
			continue
		}
		if over++; over > maxEnded || time.Since(e.At) > s.o.Retain {
			s.forget(t)
		}
	}
}

// forget is called with mu.
func (s *Service) forget(t *terminal) {
	delete(s.all, t.id)
	s.order = slices.DeleteFunc(s.order, func(x *terminal) bool { return x == t })
}

// drop takes out one that was admitted and didn't start.
func (s *Service) drop(t *terminal) {
	defer s.running.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(t)
}

// admit lists a new terminal, if there is room for it. From here on it is waited
// for, until it is dropped or has run.
func (s *Service) admit(t *terminal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	if s.shut {
		return wire.Errorf(wire.InternalError, "the daemon is stopping")
	}
	n := 0
	for _, x := range s.order {
		if x.ended() == nil {
			n++
		}
	}
	if n >= s.o.Max {
		return wire.Errorf(wire.ShimOverloaded, "%d terminals are open already", n).
			With("max_terminals", s.o.Max).With("hint", "look at farhand terminals, and close what is not needed")
	}
	s.all[t.id] = t
	s.order = append(s.order, t)
	s.running.Add(1)
	return nil
}

// find is the terminal with this id if by may have it and it was started.
func (s *Service) find(id string, by stream.Owner) (*terminal, error) {
	s.mu.Lock()
	s.prune()
	t := s.all[id]
	s.mu.Unlock()
	if t == nil || !t.owner.May(by) || !t.started() {
		return nil, wire.Errorf(wire.TerminalNotFound, "no such terminal, or it is somebody else's").
			With("terminal", id[:min(len(id), 64)]).With("hint", "farhand terminals lists them")
	}
	return t, nil
}

// newID is a terminal's name: 128 random bits in hex.
func newID() string {
	var random [16]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	return hex.EncodeToString(random[:])
}

func checkCredit(n int) error {
	if n < 0 || n > wire.MaxTerminalRoom {
		return invalid("credit", "credit must be 0 to %d bytes, not %d", wire.MaxTerminalRoom, n)
	}
	return nil
}

// size is that of a terminal in characters.
type size struct{ columns, rows int }

func sizeOf(columns, rows int) (size, error) {
	z := size{cmp.Or(columns, wire.DefaultColumns), cmp.Or(rows, wire.DefaultRows)}
	if z.columns < 1 || z.columns > wire.MaxTerminalSide || z.rows < 1 || z.rows > wire.MaxTerminalSide {
		return z, invalid("columns", "columns and rows must be 1 to %d, not %d by %d", wire.MaxTerminalSide, columns, rows)
	}
	return z, nil
}

func invalid(field, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.InvalidArgument, format, args...).With("field", field)
}
