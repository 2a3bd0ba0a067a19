package shim

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"farhand/audit"
	"farhand/grant"
	"farhand/link"
	"farhand/wire"
)

// Config is what a Shim needs. Fields without a stated default are required.
type Config struct {
	// ControlURL is the control socket, such as
	// wss://relay.example/ws/local-executor; data sockets lie below it.
	ControlURL string
	// Dial opens a socket with the bearer token; *link.DialError is how an
	// HTTP refusal is told. The socket must be a device's (DialOptions.Device).
	Dial func(ctx context.Context, url, token string) (*link.Conn, error)
	// Tokens gives access tokens.
	Tokens Tokens
	// LoginNeeded says that an error of Tokens can't be helped by waiting.
	LoginNeeded func(error) bool

	// Hello makes the payload of a HELLO with everything that the machine has;
	// the shim sees to protocol_version, allowed_root, directory_browse, lists
	// that are never null, and the size. root is empty for the control socket.
	// It runs while the socket is being opened and should take less than a second.
	Hello func(ctx context.Context, channel wire.Channel, root string) (wire.Hello, error)
	// Open makes the services of a session that is about to start: what its
	// requests may call, and what is closed when it ended. The context ends
	// with the session.
	Open func(ctx context.Context, s *Session) (Table, io.Closer, error)
	// Control holds further requests for the control socket.
	Control Table

	// Bindings remembers which root a session has (*grant.Store).
	Bindings Bindings
	// Audit is the log (*audit.Log). What can't be recorded isn't done.
	Audit Recorder
	// Ceiling is what the configuration allows at most.
	Ceiling wire.Ceiling

	// Roots are the directories offered for browsing, and no others.
	Roots []string
	// Forbidden says why a directory may never be a root; nil allows all.
	Forbidden func(path string) error

	// Facts are what STATUS tells of the machine, nil if nothing; they must be at
	// hand. Without it nothing is told.
	Facts func() *wire.MachineFacts

	// Limits are this machine's own; the platform can only lower them.
	Limits Limits
	// MachineWide is how many requests of all data sockets run at once: 16 by
	// default. The others wait.
	MachineWide int

	// OnState is told of every change of the connection. It must not block.
	OnState func(Status)
	// Answered is told of each admitted request that got its answer, of the code of
	// its error (empty for success) and how long that took. It must not block.
	Answered func(t wire.Type, code wire.Code, took time.Duration)
	Log      *slog.Logger
}

// Tokens gives access tokens. Safe for concurrent use.
type Tokens interface {
	// Token is the current access token, renewed if it is about to expire.
	Token(ctx context.Context) (string, error)
	// Rejected is called after HTTP 401 or close 4401 with the token that was
	// used, and gives another one: the stored one if it differs, else a renewed.
	Rejected(ctx context.Context, token string) (string, error)
	// Expiry is when the current token expires; zero if unknown.
	Expiry() time.Time
}

// Bindings remembers the roots of sessions, durably. Safe for concurrent use.
type Bindings interface {
	// Attach makes a binding with the next revision (1 for an unknown session).
	Attach(session, root string) (wire.SessionBinding, error)
	// Restore checks a grant against its signature, the highest revision known
	// and the filesystem, and remembers it.
	Restore(session, grant string) (wire.SessionBinding, error)
	// Activate is the binding of an attached session at this revision, checked
	// against the filesystem once more.
	Activate(session string, revision int) (wire.SessionBinding, error)
	// Lookup is the binding of a session that was attached or restored.
	Lookup(session string) (wire.SessionBinding, bool)
	// Detach forgets the binding, but not its revision. An unknown session is
	// no error.
	Detach(session string) error
}

// Recorder is the audit log.
type Recorder interface {
	Append(audit.Entry) error
	AppendSync(context.Context, audit.Entry) error
	// Head is the newest record that survives a power cut: what is told to
	// the platform must never be lost by one.
	Head() wire.Anchor
	Size() int64
}

// Limits bound what a session may do.
type Limits struct {
	MaxConcurrent  int           // requests outstanding on one socket
	MaxFileSize    int64         // bytes of one read or write
	CommandTimeout time.Duration // of one command
}

const (
	defaultMachineWide = 16
	// maxLive and the times are those of the reference shim.
	maxLive       = 8
	idleLimit     = 600 * time.Second
	reapEvery     = 30 * time.Second
	healthyAfter  = 60 * time.Second // a connection up so long resets the backoff
	slowRetry     = 15 * time.Minute // after repeated refusals that only a person can end
	slowJitter    = 5 * time.Minute
	refusalsUntil = 3 // refusals in a row before the slow retry
)

// Bounds of stopping. DETACH_SESSION has 5 s on the AutoGPT platform; the first
// two and a socket's own close (2.5 s) stay below that together.
const (
	answerWait  = 500 * time.Millisecond // for calls to answer when they are cancelled
	detachWait  = 4 * time.Second
	handlerWait = 5 * time.Second // for handlers after their socket is gone
	stopWait    = 10 * time.Second
)

func (c Config) check() (Config, error) {
	switch {
	case c.ControlURL == "" || c.Dial == nil || c.Tokens == nil:
		return c, errors.New("shim: ControlURL, Dial and Tokens are required")
	case c.Hello == nil || c.Open == nil || c.Bindings == nil || c.Audit == nil:
		return c, errors.New("shim: Hello, Open, Bindings and Audit are required")
	}
	if c.LoginNeeded == nil {
		c.LoginNeeded = func(err error) bool { return errors.Is(err, ErrLoginNeeded) }
	}
	if c.Forbidden == nil {
		c.Forbidden = func(string) error { return nil }
	}
	if c.Facts == nil {
		c.Facts = func() *wire.MachineFacts { return nil }
	}
	if c.OnState == nil {
		c.OnState = func(Status) {}
	}
	if c.Answered == nil {
		c.Answered = func(wire.Type, wire.Code, time.Duration) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MachineWide <= 0 {
		c.MachineWide = defaultMachineWide
	}
	if c.Limits.MaxConcurrent <= 0 {
		c.Limits.MaxConcurrent = wire.DefaultMaxConcurrent
	}
	if c.Limits.MaxFileSize <= 0 {
		c.Limits.MaxFileSize = wire.DefaultMaxFileSize
	}
	if c.Limits.CommandTimeout <= 0 {
		c.Limits.CommandTimeout = wire.DefaultCommandTimeout
	}
	return c, nil
}

// policy is the four ceilings under a grant set.
func (c *Config) policy(set wire.GrantSet) *grant.Policy {
	return &grant.Policy{Config: c.Ceiling, Set: set}
}
