// Package machine runs the lab's guest: QEMU under plain emulation with a
// kernel, an initramfs and the sockets by which host and guest talk.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"farhand/lab/proto"
)

// Program is the emulator.
const Program = "qemu-system-x86_64"

// Options say what to boot.
type Options struct {
	Kernel, Initramfs string
	Skip              int           // suites that an earlier guest has run
	Dir               string        // for sockets: a short path, at most about 80 bytes
	Limit             time.Duration // the guest is killed after it
	Console           io.Writer     // gets what the guest's kernel prints; may be nil
}

// ErrLimit says that the guest took longer than its limit.
var ErrLimit = errors.New("the guest took too long and was killed")

// Machine is a running guest.
type Machine struct {
	cmd     *exec.Cmd
	cancel  context.CancelFunc
	console tail
	errs    tail
	wires   map[string]net.Conn
	serving sync.WaitGroup
	ctx     context.Context
}

// names of the sockets, and the chardevs with them.
const (
	qmpSocket  = "qmp"
	results    = "results"
	requests   = "requests"
	wire       = "wire" // the guest's end of the adapter's line
	adapter    = "ftdi" // the adapter's end
	acceptTime = 20 * time.Second
)

// Start boots the guest. It is for the caller to read Results to its end, then
// to Wait.
func Start(ctx context.Context, o Options) (*Machine, error) {
	path, err := exec.LookPath(Program)
	if err != nil {
		return nil, fmt.Errorf("%w: the lab needs QEMU (Debian: apt-get install --no-install-recommends qemu-system-x86)", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Limit, ErrLimit)
	m := &Machine{cancel: cancel, wires: make(map[string]net.Conn), ctx: ctx}
	m.console.also = o.Console
	m.cmd = exec.CommandContext(ctx, path, arguments(o)...)
	m.cmd.Stdout, m.cmd.Stderr = &m.console, &m.errs
	m.cmd.WaitDelay = 5 * time.Second
	if err := m.connect(o.Dir); err != nil {
		m.Close()
		return nil, err
	}
	if err := m.serve(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// arguments of QEMU. Every device is named: the machine has no other.
func arguments(o Options) []string {
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "768",
		"-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", o.Kernel, "-initrd", o.Initramfs,
		// panic=-1 with -no-reboot ends QEMU at a panic.
		"-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 oops=panic nokaslr mitigations=off random.trust_cpu=on %s=%d", proto.SkipParam, o.Skip),
		"-serial", "stdio",
		// A parallel port with nothing on it: spi-butterfly makes an SPI bus of it.
		"-chardev", "null,id=nothing", "-device", "isa-parallel,chardev=nothing",
		"-device", "qemu-xhci,id=usb",
		"-device", "virtio-serial-pci",
		"-qmp", "unix:" + filepath.Join(o.Dir, qmpSocket),
	}
	for _, name := range []string{results, requests, wire, adapter} {
		args = append(args, "-chardev", "socket,id="+name+",path="+filepath.Join(o.Dir, name))
	}
	for name, port := range map[string]string{results: proto.ResultsPort, requests: proto.RequestPort, wire: proto.WirePort} {
		args = append(args, "-device", "virtserialport,chardev="+name+",name="+port)
	}
	return args
}

// connect starts QEMU, which connects to the sockets that wait for it: so no
// byte of the guest can come before somebody reads it.
func (m *Machine) connect(dir string) error {
	names := []string{qmpSocket, results, requests, wire, adapter}
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	for _, name := range names {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if u, ok := l.(*net.UnixListener); ok {
			if err := u.SetDeadline(time.Now().Add(acceptTime)); err != nil {
				return err
			}
		}
		listeners = append(listeners, l)
	}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	for i, l := range listeners {
		// The socket's file goes with the listener, so the next guest finds none.
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("QEMU didn't open its %s socket: %w: %s", names[i], err, m.errs.String())
		}
		m.wires[names[i]] = c
	}
	return nil
}

// serve answers the guest's requests and carries what is on the adapter's line.
func (m *Machine) serve() error {
	q, err := newMonitor(m.wires[qmpSocket])
	if err != nil {
		return err
	}
	m.serving.Go(func() { answer(m.wires[requests], q) })
	for _, pair := range [][2]string{{wire, adapter}, {adapter, wire}} {
		from, to := m.wires[pair[0]], m.wires[pair[1]]
		m.serving.Go(func() { _, _ = io.Copy(to, from) }) // ends with either connection
	}
	return nil
}

// Results is what the guest writes to its results port. It ends with the guest.
func (m *Machine) Results() io.Reader { return m.wires[results] }

// Wait waits until the guest is off. It returns an error if that was not by its
// own will.
func (m *Machine) Wait() error {
	err := m.cmd.Wait()
	cause := context.Cause(m.ctx)
	m.Close()
	switch {
	case cause != nil:
		return cause
	case err != nil:
		return fmt.Errorf("%s: %w: %s", Program, err, m.errs.String())
	case strings.Contains(m.console.String(), "Kernel panic"):
		return errors.New("the guest's kernel panicked")
	}
	return nil
}

// Close kills the guest, if it still runs, and frees everything. It may be
// called again.
func (m *Machine) Close() {
	m.cancel()
	if m.cmd.Process != nil && m.cmd.ProcessState == nil {
		_ = m.cmd.Wait() // it was killed
	}
	for _, c := range m.wires {
		c.Close()
	}
	m.serving.Wait()
}

// ConsoleTail is the last that the guest's kernel printed.
func (m *Machine) ConsoleTail() string { return m.console.String() }

// tail keeps the last bytes that were written to it.
type tail struct {
	mu   sync.Mutex
	buf  []byte
	also io.Writer
}

const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailSize {
		t.buf = append([]byte(nil), t.buf[len(t.buf)-tailSize:]...)
	}
	if t.also != nil {
		return t.also.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf[max(0, len(t.buf)-tailSize):]))
}
