// Package machine runs the lab's guest: QEMU under plain emulation with a
// kernel, an initramfs and the sockets by which host and guest talk.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"farhand/internal/qemu"
	"farhand/lab/proto"
)

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
	process *qemu.Process
	cancel  context.CancelFunc
	console qemu.Tail
	serving sync.WaitGroup
	ctx     context.Context
}

// names of the sockets, and the chardevs with them.
const (
	results  = "results"
	requests = "requests"
	wire     = "wire" // the guest's end of the adapter's line
	adapter  = "ftdi" // the adapter's end
)

// Start boots the guest. It is for the caller to read Results to its end, then
// to Wait.
func Start(ctx context.Context, o Options) (*Machine, error) {
	program, err := qemu.Find("x86_64")
	if err != nil {
		return nil, fmt.Errorf("the lab: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Limit, ErrLimit)
	m := &Machine{cancel: cancel, ctx: ctx}
	m.console.Also = o.Console
	m.process, err = qemu.Start(ctx, qemu.Options{
		Program: program, Args: arguments(o), Dir: o.Dir, Stdout: &m.console,
		Sockets: []string{results, requests, wire, adapter},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	m.serve()
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
	}
	for name, port := range map[string]string{results: proto.ResultsPort, requests: proto.RequestPort, wire: proto.WirePort} {
		args = append(args, "-device", "virtserialport,chardev="+name+",name="+port)
	}
	return args
}

// serve answers the guest's requests and carries what is on the adapter's line.
func (m *Machine) serve() {
	m.serving.Go(func() { answer(m.ctx, m.process.Conn(requests), m.process.Monitor) })
	for _, pair := range [][2]string{{wire, adapter}, {adapter, wire}} {
		from, to := m.process.Conn(pair[0]), m.process.Conn(pair[1])
		m.serving.Go(func() { _, _ = io.Copy(to, from) }) // ends with either connection
	}
}

// Results is what the guest writes to its results port. It ends with the guest.
func (m *Machine) Results() io.Reader { return m.process.Conn(results) }

// Wait waits until the guest is off. It returns an error if that was not by its
// own will.
func (m *Machine) Wait() error {
	err := m.process.Wait()
	cause := context.Cause(m.ctx)
	m.Close()
	switch {
	case cause != nil:
		return cause
	case err != nil:
		return err
	case strings.Contains(m.console.String(), "Kernel panic"):
		return errors.New("the guest's kernel panicked")
	}
	return nil
}

// Close kills the guest, if it still runs, and frees everything. It may be
// called again.
func (m *Machine) Close() {
	m.cancel()
	m.process.Close()
	m.serving.Wait()
}

// ConsoleTail is the last that the guest's kernel printed.
func (m *Machine) ConsoleTail() string { return m.console.String() }
