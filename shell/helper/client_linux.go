package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"farhand/shell"
	"farhand/wire"
)

const (
	// connectPatience bounds the way to the helper: the service manager may just
	// be starting it.
	connectPatience = 5 * time.Second
	// startPatience bounds a start, on a busy machine.
	startPatience = 10 * time.Second
	// answerPatience bounds the small messages after that. A helper that hangs
	// mustn't take more of a session's time.
	answerPatience = 2 * time.Second
)

// Client asks a helper for programs. It is a shell.Runner and safe for concurrent
// use. A helper that isn't there is looked for anew with each program.
type Client struct{ socket string }

var (
	_ shell.Runner   = (*Client)(nil)
	_ shell.Portable = (*process)(nil)
)

// NewClient is for the helper at this socket. Nothing is connected yet.
func NewClient(socket string) *Client { return &Client{socket} }

// Close implements shell.Runner. There is nothing to close: each program has its
// own connection.
func (c *Client) Close() error { return nil }

// Info asks the helper who it is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return Info{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerPatience)); err != nil {
		return Info{}, fmt.Errorf("exec helper: %w", err)
	}
	if _, err := conn.Write(message(ask, nil)); err != nil {
		return Info{}, c.unreachable(err)
	}
	k, body, err := readMessage(conn, maxMessage)
	var i Info
	if err == nil && k == info {
		err = json.Unmarshal(body, &i)
	} else if err == nil {
		err = errMalformed
	}
	if err != nil {
		return Info{}, c.unreachable(err)
	}
	return i, nil
}

func (c *Client) dial(ctx context.Context) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return conn.(*net.UnixConn), nil // what this network gives
}

// unreachable says on the wire that there is nobody to run commands.
func (c *Client) unreachable(err error) error {
	return fmt.Errorf("exec helper at %s: %w: %w", c.socket, err,
		wire.Errorf(wire.InternalError, "what runs commands on this machine can't be reached").
			With("reason", "exec_helper_unreachable").With("hint", "look at: systemctl status farhand-exec.service"))
}

// Start implements shell.Runner. The error is a *wire.Error with details.reason
// exec_helper_unreachable if nobody is there, and shell.ErrLost if the helper ended
// when it had the request and hadn't answered: whether the program ran is unknown.
func (c *Client) Start(ctx context.Context, spec shell.Spec) (shell.Process, error) {
	first, files, err := encodeSpec(spec)
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	p, err := c.start(ctx, conn, first, files)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// encodeSpec is a spec as the first message and its descriptors.
func encodeSpec(spec shell.Spec) (first []byte, files []int, err error) {
	r := request{path: spec.Path, argv: spec.Argv, env: spec.Env}
	for _, f := range []struct {
		file *os.File
		flag byte
	}{{spec.Dir, withDir}, {spec.Stdin, withStdin}, {spec.Stdout, withStdout}, {spec.Stderr, withStderr}} {
		if f.file != nil {
			r.flags |= f.flag
			files = append(files, int(f.file.Fd()))
		}
	}
	if spec.Terminal {
		r.flags |= withTerminal
	}
	body, err := r.encode()
	if err != nil {
		return nil, nil, err
	}
	return message(start, body), files, nil
}

func (c *Client) start(ctx context.Context, conn *net.UnixConn, first []byte, files []int) (*process, error) {
	if err := conn.SetDeadline(time.Now().Add(startPatience)); err != nil {
		return nil, fmt.Errorf("exec helper: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// A helper that refuses doesn't read it all, and what it says counts more than
	// that it can't be written to any more.
	_, writeErr := send(conn, first, files)
	k, body, err := readMessage(conn, maxMessage)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && writeErr == nil && !errors.Is(err, os.ErrDeadlineExceeded):
		// It had everything, and may have started the program before it ended.
		return nil, fmt.Errorf("exec helper at %s: %w: %w", c.socket, err, shell.ErrLost)
	case err != nil:
		return nil, c.unreachable(errors.Join(writeErr, err))
	case k == failed:
		return nil, parseFailure(body)
	case k != started:
		return nil, c.unreachable(errMalformed)
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, c.unreachable(err)
	}
	return follow(conn), nil
}

func follow(conn *net.UnixConn) *process {
	p := &process{conn: conn, exited: make(chan struct{}), killed: make(chan struct{}), over: make(chan struct{})}
	go p.listen()
	return p
}

// Adopt goes on with a program that another process started, and takes over the
// descriptor that it gave for it.
func (c *Client) Adopt(f *os.File) (shell.Process, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("exec helper: a program that was left: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("exec helper: a program that was left: not a connection to the helper")
	}
	p := follow(unixConn)
	p.tell(message(again, nil)) // a helper that is gone has ended the program: see listen
	return p, nil
}

// Descriptor implements shell.Portable: the connection is the program.
func (p *process) Descriptor(do func(fd uintptr) error) error {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("exec helper: %w", err)
	}
	var done error
	if err := raw.Control(func(fd uintptr) { done = do(fd) }); err != nil {
		return fmt.Errorf("exec helper: %w", err)
	}
	return done
}

// Leave implements shell.Portable.
func (p *process) Leave() {
	p.conn.Close()
	<-p.over
}

// send writes a message whose first byte carries descriptors.
func send(conn *net.UnixConn, b []byte, files []int) (int, error) {
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	n, _, err := conn.WriteMsgUnix(b[:min(len(b), 64<<10)], rights, nil)
	if err != nil || n == len(b) {
		return n, err
	}
	more, err := conn.Write(b[n:])
	return n + more, err
}

// process is a program that the helper started.
type process struct {
	conn *net.UnixConn

	exited chan struct{} // closed when the leader has ended, or nobody can tell any more
	killed chan struct{} // closed when a kill is done
	over   chan struct{} // closed when nothing more is heard

	mu     sync.Mutex
	status *shell.Status // once it was told
	err    error         // why it can't be known
	reaped bool
}

// listen takes what the helper says, until the connection ends.
func (p *process) listen() {
	defer close(p.over)
	hasExited := sync.OnceFunc(func() { close(p.exited) })
	isKilled := sync.OnceFunc(func() { close(p.killed) })
	defer hasExited()
	for {
		k, body, err := readMessage(p.conn, maxMessage)
		if err != nil {
			return
		}
		switch k {
		case exited:
			hasExited()
		case killed:
			isKilled()
		case ended:
			if values, err := parseNumbers(body, 2); err == nil {
				p.settle(&shell.Status{Code: values[0], Signal: unix.Signal(values[1])}, nil)
			}
			return
		case failed:
			p.settle(nil, parseFailure(body))
			return
		default:
			return
		}
	}
}

func (p *process) settle(s *shell.Status, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.err = s, err
}

// EndsWithin implements shell.Process.
func (p *process) EndsWithin(d time.Duration) bool { return within(p.exited, d) }

func within(c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// Exited implements shell.Process.
func (p *process) Exited() <-chan struct{} { return p.exited }

// Terminate implements shell.Process.
func (p *process) Terminate() { p.tell(message(terminate, nil)) }

// Kill implements shell.Process.
func (p *process) Kill(patience time.Duration) {
	if !p.tell(numbers(kill, int(patience.Milliseconds()))) {
		return
	}
	timer := time.NewTimer(patience + answerPatience)
	defer timer.Stop()
	select {
	case <-p.killed:
	case <-p.over:
	case <-timer.C:
	}
}

// tell says whether a message has left. One that can't leave finds no helper.
func (p *process) tell(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped || p.conn.SetWriteDeadline(time.Now().Add(answerPatience)) != nil {
		return false
	}
	_, err := p.conn.Write(b)
	return err == nil
}

// Reap implements shell.Process.
func (p *process) Reap() (shell.Status, error) {
	p.tell(message(reap, nil))
	within(p.over, answerPatience)
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	p.conn.Close()
	<-p.over
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.status != nil:
		return *p.status, nil
	case p.err != nil:
		return shell.Status{}, p.err
	}
	return shell.Status{}, fmt.Errorf("exec helper: %w", shell.ErrLost)
}
