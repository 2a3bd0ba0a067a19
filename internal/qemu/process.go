package qemu

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options say what to start.
type Options struct {
	Program string   // the emulator's file
	Leading []string // what comes before all arguments; nil unless Program is a loader
	Args    []string // without the monitor and the sockets
	Env     []string // nil: ours
	// Dir is where the sockets are: a short path, at most about 80 bytes, and one
	// for each machine that runs.
	Dir string
	// Sockets are ids of character devices whose other end Conn gives.
	Sockets []string
	Stdout  io.Writer   // may be nil
	Events  func(Event) // see NewMonitor
}

// Process is a running QEMU. It is safe for concurrent use.
type Process struct {
	Monitor *Monitor

	cmd     *exec.Cmd
	cancel  context.CancelFunc
	conns   map[string]net.Conn
	errs    Tail
	done    chan struct{}
	err     error // valid after done
	closing sync.Once
}

// monitorSocket is the id of QEMU's monitor; no device may be called so.
const monitorSocket = "qmp"

// acceptTime is how long QEMU may take until it has opened its sockets.
const acceptTime = 20 * time.Second

// Start starts QEMU and returns when its monitor answers. It is killed when ctx
// ends. Close frees it.
func Start(ctx context.Context, o Options) (*Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{cancel: cancel, conns: make(map[string]net.Conn), done: make(chan struct{})}
	args := append(append([]string(nil), o.Leading...), "-qmp", "unix:"+filepath.Join(o.Dir, monitorSocket))
	args = append(args, o.Args...)
	for _, name := range o.Sockets {
		args = append(args, "-chardev", "socket,id="+name+",path="+filepath.Join(o.Dir, name))
	}
	p.cmd = exec.CommandContext(ctx, o.Program, args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = o.Env, o.Stdout, &p.errs
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.connect(ctx, o); err != nil {
		cancel()
		p.closeConns()
		return nil, err
	}
	m, err := NewMonitor(p.conns[monitorSocket], o.Events)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, p.errs.String())
		p.Close()
		return nil, err
	}
	p.Monitor = m
	return p, nil
}

// connect starts QEMU, which connects to the sockets that wait for it.
func (p *Process) connect(ctx context.Context, o Options) error {
	names := append([]string{monitorSocket}, o.Sockets...)
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			l.Close() // its file goes with it, so that the next machine finds none
		}
	}()
	for _, name := range names {
		l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(o.Dir, name))
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		if u, ok := l.(*net.UnixListener); ok {
			if err := u.SetDeadline(time.Now().Add(acceptTime)); err != nil {
				return err
			}
		}
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
		for _, l := range listeners {
			l.Close() // nobody will connect any more
		}
	}()
	for i, l := range listeners {
		c, err := l.Accept()
		if err != nil {
			p.cancel()
			<-p.done
			return fmt.Errorf("QEMU didn't open its %s socket: %w: %s", names[i], err, p.errs.String())
		}
		p.conns[names[i]] = c
	}
	return nil
}

// Conn is our end of one of Options.Sockets.
func (p *Process) Conn(name string) net.Conn { return p.conns[name] }

// Done is closed when QEMU has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until QEMU has ended and says how: nil if it ended by itself.
func (p *Process) Wait() error {
	<-p.done
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(p.cmd.Path), p.err, p.errs.String())
	}
	return nil
}

// Kill ends QEMU at once, as if its plug were pulled: what it has not yet given
// to the operating system is lost.
func (p *Process) Kill() {
	p.cancel()
	<-p.done
}

// Close kills QEMU, if it still runs, and frees everything. It may be called
// again.
func (p *Process) Close() {
	p.closing.Do(func() {
		p.Kill()
		if p.Monitor != nil {
			p.Monitor.Close()
		}
		p.closeConns()
	})
}

func (p *Process) closeConns() {
	for _, c := range p.conns {
		c.Close()
	}
}

// Find looks for the emulator of an architecture, as QEMU calls it: "x86_64".
func Find(arch string) (string, error) {
	name := "qemu-system-" + arch
	path, err := exec.LookPath(name)
	if err != nil {
		pkg := map[string]string{"x86_64": "qemu-system-x86", "aarch64": "qemu-system-arm"}[arch]
		return "", fmt.Errorf("%w: QEMU is needed (Debian: apt-get install --no-install-recommends %s)", err, pkg)
	}
	return path, nil
}

// Tail keeps the last bytes that were written to it, and passes all on to Also,
// which may be nil. It is safe for concurrent use.
type Tail struct {
	Also io.Writer

	mu  sync.Mutex
	buf []byte
}

// TailSize is how much a Tail keeps, in bytes.
const TailSize = 16 << 10

// Write never fails but by Also.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*TailSize {
		t.buf = append([]byte(nil), t.buf[len(t.buf)-TailSize:]...)
	}
	if t.Also != nil {
		return t.Also.Write(p)
	}
	return len(p), nil
}

// String is the last TailSize bytes without the space around them.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf[max(0, len(t.buf)-TailSize):]))
}
