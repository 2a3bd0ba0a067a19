package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"farhand/shell"
)

const (
	// DefaultMaxCommands bounds what runs at once. The daemon's own bounds are
	// lower: requests at work and terminals.
	DefaultMaxCommands = 128
	// requestPatience bounds how long a connection may take to say what it wants.
	requestPatience = 5 * time.Second
	// orphanGrace is how long a command may take to end by itself when its daemon
	// is gone.
	orphanGrace = 500 * time.Millisecond
	// killPatience is how long the dead are then waited for.
	killPatience = 2 * time.Second
	// maxPatience bounds what a kill message asks for.
	maxPatience = 10 * time.Second
)

// Config says whom a Server serves and how.
type Config struct {
	// UIDs are the users that are served, by the socket's own word.
	UIDs []int
	// Runner starts the programs.
	Runner shell.Runner
	// Environ is this process' environment. What tells a program whose it is
	// (HOME, USER, LOGNAME, SHELL) is taken from it where a request says nothing.
	Environ []string
	// MaxCommands bounds the commands at once; 0 means DefaultMaxCommands.
	MaxCommands int
	Info        Info
	Log         *slog.Logger
}

// Server serves commands to the daemon.
type Server struct {
	cfg   Config
	own   []string // the variables that a command gets where its request has none
	slots chan struct{}
	asked chan chan struct{}

	mu       sync.Mutex
	listener *net.UnixListener
}

// NewServer makes a server. Serve serves; the caller closes the Runner after it.
func NewServer(c Config) *Server {
	if c.MaxCommands <= 0 {
		c.MaxCommands = DefaultMaxCommands
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: c, slots: make(chan struct{}, c.MaxCommands), asked: make(chan chan struct{}, 1)}
	for _, pair := range c.Environ {
		switch name, _, _ := strings.Cut(pair, "="); name {
		case "HOME", "USER", "LOGNAME", "SHELL":
			s.own = append(s.own, pair)
		}
	}
	return s
}

// Serve serves until ctx ends or the listener fails. When it returns, no command
// runs any more.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		s.answer(l)
		conn, err := l.AcceptUnix()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue // somebody asked whether we are there
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ECONNABORTED):
			s.cfg.Log.Warn("a connection could not be taken", "err", err)
			pause := time.NewTimer(100 * time.Millisecond)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
			continue
		default:
			return fmt.Errorf("exec helper: accept: %w", err)
		}
		uid, err := peer(conn)
		if err != nil || !slices.Contains(s.cfg.UIDs, uid) {
			s.cfg.Log.Warn("refused to run commands for another user", "uid", uid, "err", err)
			_, _ = conn.Write(failure(errStranger)) // the first bytes never wait for a reader
			conn.Close()
			continue
		}
		all.Go(func() {
			defer conn.Close()
			if err := s.serve(ctx, conn); err != nil {
				s.cfg.Log.Warn("a request for a command", "err", err)
			}
		})
	}
}

// Alive asks the loop that accepts connections whether it still does. The error
// is that of ctx, if it ends first.
func (s *Server) Alive(ctx context.Context) error {
	reply := make(chan struct{})
	select {
	case s.asked <- reply:
	case <-ctx.Done():
		return fmt.Errorf("the helper's accept loop: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	if l != nil {
		if err := l.SetDeadline(time.Now()); err != nil {
			return fmt.Errorf("wake the helper's accept loop: %w", err)
		}
	}
	select {
	case <-reply:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the helper's accept loop: %w", context.Cause(ctx))
	}
}

// answer tells whoever asked that the loop goes round. The deadline that woke it
// is lifted first: one that is set after this belongs to a question that is still
// to come.
func (s *Server) answer(l *net.UnixListener) {
	_ = l.SetDeadline(time.Time{}) // fails only on a closed listener, and then accepting does
	for {
		select {
		case reply := <-s.asked:
			close(reply)
		default:
			return
		}
	}
}

// peer is the user at the other end, as of when it connected (unix(7)).
func peer(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return -1, err
	}
	if credErr != nil {
		return -1, credErr
	}
	return int(cred.Uid), nil
}

// serve is one connection.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) error {
	if err := conn.SetDeadline(time.Now().Add(requestPatience)); err != nil {
		return err
	}
	k, body, files, err := readFirst(conn)
	defer func() { closeAll(files) }()
	if err != nil {
		return err
	}
	if k == ask {
		b, err := json.Marshal(s.cfg.Info)
		if err != nil {
			return err
		}
		_, err = conn.Write(message(info, b))
		return err
	}
	if k != start {
		return errMalformed
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		_, err := conn.Write(failure(errBusy))
		return err
	}
	r, err := parseRequest(body)
	if err == nil && r.files() != len(files) {
		err = fmt.Errorf("%w: %d descriptors, not %d", errMalformed, len(files), r.files())
	}
	if err != nil {
		return err
	}
	p, err := s.start(ctx, r, files)
	closeAll(files)
	files = nil
	if err != nil {
		_, err := conn.Write(failure(err))
		return err
	}
	c := &command{Process: p, conn: conn}
	return c.run(ctx)
}

// start starts what is asked for.
func (s *Server) start(ctx context.Context, r request, files []*os.File) (shell.Process, error) {
	spec := shell.Spec{Argv: r.argv, Path: r.path, Env: s.complete(r.env), Terminal: r.flags&withTerminal != 0}
	for _, f := range []struct {
		flag byte
		to   **os.File
	}{{withDir, &spec.Dir}, {withStdin, &spec.Stdin}, {withStdout, &spec.Stdout}, {withStderr, &spec.Stderr}} {
		if r.flags&f.flag != 0 {
			*f.to, files = files[0], files[1:]
		}
	}
	if spec.Stdout == nil || spec.Stderr == nil || spec.Terminal && spec.Stdin == nil {
		return nil, fmt.Errorf("%w: no stdout, stderr or terminal", errMalformed)
	}
	if spec.Dir != nil {
		own, err := ownView(spec.Dir)
		if err != nil {
			return nil, err
		}
		if own != spec.Dir {
			defer own.Close()
		}
		spec.Dir = own
	}
	return s.cfg.Runner.Start(ctx, spec)
}

// complete adds what tells a program whose it is.
func (s *Server) complete(env []string) []string {
	for _, own := range s.own {
		name, _, _ := strings.Cut(own, "=")
		if !slices.ContainsFunc(env, func(pair string) bool { return strings.HasPrefix(pair, name+"=") }) {
			env = append(env, own)
		}
	}
	return env
}

// command is a command that runs, and the connection that it lives by.
type command struct {
	shell.Process
	conn *net.UnixConn
}

// order is a message of the daemon.
type order struct {
	kind kind
	body []byte
}

// moment is how long the exit is waited for before the connection is read: most
// commands are over in it.
const moment = 2 * time.Millisecond

// run serves the command until it is collected. Whatever else happens, nothing of a
// command that hasn't ended is left.
func (c *command) run(ctx context.Context) error {
	if err := c.say(message(started, nil)); err != nil {
		c.end()
		return err
	}
	if c.EndsWithin(moment) {
		if err := c.say(message(exited, nil)); err != nil {
			c.end()
			return err
		}
	}
	return c.follow(ctx)
}

func (c *command) follow(ctx context.Context) error {
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		c.end()
		return err
	}
	orders := make(chan order)
	var reader sync.WaitGroup
	defer reader.Wait()
	done := make(chan struct{})
	defer close(done)
	defer c.conn.Close() // what ends the reader
	reader.Go(func() {
		defer close(orders)
		for {
			k, body, err := readMessage(c.conn, maxMessage)
			if err != nil {
				return
			}
			select {
			case orders <- order{k, body}:
			case <-done:
				return
			}
		}
	})
	exit := c.Exited()
	for {
		select {
		case <-exit:
			exit = nil
			if err := c.say(message(exited, nil)); err != nil {
				c.end()
				return err
			}
		case o, ok := <-orders:
			if !ok { // the daemon let go of it, or is gone
				c.end()
				return nil
			}
			if o.kind == again && exit != nil { // it runs
				continue
			}
			if over, err := c.obey(o); over || err != nil {
				return err
			}
		case <-ctx.Done():
			c.end()
			return nil
		}
	}
}

// obey does what the daemon says; over says that the command was collected.
func (c *command) obey(o order) (over bool, err error) {
	switch o.kind {
	case again: // it has ended: another daemon asks
		err := c.say(message(exited, nil))
		if err != nil {
			c.end()
		}
		return err != nil, err
	case terminate:
		c.Terminate()
		return false, nil
	case kill:
		ms, err := parseNumbers(o.body, 1)
		if err != nil {
			c.end()
			return true, err
		}
		c.Kill(min(max(time.Duration(ms[0])*time.Millisecond, 0), maxPatience))
		if err := c.say(message(killed, nil)); err != nil {
			c.end()
			return true, err
		}
		return false, nil
	case reap:
		st, err := c.Reap()
		if err != nil {
			return true, c.say(failure(err))
		}
		return true, c.say(status(st))
	}
	c.end()
	return true, fmt.Errorf("%w: %q", errMalformed, byte(o.kind))
}

// end ends a command for which nobody waits any more, with all that it started,
// unless it has ended by itself.
func (c *command) end() {
	select {
	case <-c.Exited():
	default:
		c.Terminate()
		within(c.Exited(), orphanGrace)
		c.Kill(killPatience)
	}
	_, _ = c.Reap() // nobody wants to know
}

// say writes a message. Its length never fills a socket, so that it doesn't wait
// for a daemon that doesn't read.
func (c *command) say(b []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(requestPatience)); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}
