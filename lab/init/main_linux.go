// Command init is process 1 of the kernel lab's guest: it mounts what Linux
// programs expect, loads modules, runs the test binaries that came with it, and
// powers off. What it sees goes to the host as frames (lab/proto).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"farhand/lab/proto"
)

func main() {
	start := time.Now()
	err := boot()
	if err != nil {
		// Without a results port the console is all there is.
		fmt.Fprintln(os.Stderr, "lab: init:", err)
	} else if err = work(start); err != nil {
		fmt.Fprintln(os.Stderr, "lab: init:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "lab: power off:", err)
	}
}

// mounts are in an order in which each finds its place.
var mounts = []struct{ kind, at string }{
	{"proc", "/proc"},
	{"sysfs", "/sys"},
	{"devtmpfs", "/dev"},
	{"devpts", "/dev/pts"},
	{"tmpfs", "/dev/shm"},
	{"tmpfs", "/tmp"},
	{"tmpfs", "/run"},
	{"debugfs", "/sys/kernel/debug"},
	{"cgroup2", "/sys/fs/cgroup"},
}

func boot() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	if err := os.Chmod("/tmp", 0o777|os.ModeSticky); err != nil {
		return err
	}
	return loopback()
}

// loopback brings the interface lo up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// results is the port to the host. Suites' outputs come from several
// goroutines.
type results struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (r *results) send(f proto.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.out.Encode(f); err != nil {
		fmt.Fprintln(os.Stderr, "lab: results port:", err)
	}
}

func work(start time.Time) error {
	port, err := openPort(proto.ResultsPort)
	if err != nil {
		return err
	}
	defer port.Close()
	r := &results{out: json.NewEncoder(port)}
	if err := suites(r, start); err != nil {
		r.send(proto.Frame{Kind: proto.Failed, Text: err.Error()})
		return err
	}
	r.send(proto.Frame{Kind: proto.Done})
	return nil
}

// openPort finds a virtio-serial port by its name, as udev's link
// /dev/virtio-ports/NAME does, and makes that link for the tests.
func openPort(name string) (*os.File, error) {
	if err := linkPorts(); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join("/dev/virtio-ports", name), os.O_RDWR, 0)
}

func linkPorts() error {
	if err := os.MkdirAll("/dev/virtio-ports", 0o755); err != nil {
		return err
	}
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		link := filepath.Join("/dev/virtio-ports", strings.TrimSpace(string(name)))
		target := filepath.Join("/dev", filepath.Base(filepath.Dir(path)))
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

func suites(r *results, start time.Time) error {
	data, err := os.ReadFile(proto.OrdersPath)
	if err != nil {
		return err
	}
	var orders proto.Orders
	if err := json.Unmarshal(data, &orders); err != nil {
		return fmt.Errorf("%s: %w", proto.OrdersPath, err)
	}
	for _, m := range orders.Modules {
		if err := load(m); err != nil {
			return err
		}
	}
	// configfs is a module.
	if err := unix.Mount("configfs", "/sys/kernel/config", "configfs", 0, ""); err != nil {
		return fmt.Errorf("mounting configfs: %w", err)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	r.send(proto.Frame{Kind: proto.Boot, Text: strings.TrimSpace(string(release)), Seconds: uptime(start)})
	skip, err := skipped()
	if err != nil {
		return err
	}
	for _, s := range orders.Suites[min(skip, len(orders.Suites)):] {
		if !run(r, s, orders) {
			return nil // the next suites get a guest in which nothing is left of it
		}
	}
	return nil
}

// skipped is how many suites the kernel's command line leaves out.
func skipped() (int, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return 0, err
	}
	for word := range strings.FieldsSeq(string(line)) {
		if n, ok := strings.CutPrefix(word, proto.SkipParam+"="); ok {
			return strconv.Atoi(n)
		}
	}
	return 0, nil
}

// leftovers are the devices that a suite should have taken away.
func leftovers() []string {
	var all []string
	for _, pattern := range []string{
		"/sys/kernel/config/gpio-sim/*", "/sys/kernel/config/usb_gadget/*",
		"/sys/module/i2c_stub", "/sys/module/spi_butterfly", "/sys/module/usbtest",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			panic(err) // the pattern is malformed
		}
		all = append(all, found...)
	}
	return all
}

func load(m proto.Module) error {
	f, err := os.Open(m.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), m.Params, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("module %s: %w", m.Name, err)
	}
	return nil
}

// uptime is the time since the kernel started.
func uptime(start time.Time) float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(start).Seconds()
	}
	return time.Duration(ts.Nano()).Seconds()
}

// run runs a suite and says whether it passed and left nothing behind.
func run(r *results, s proto.Suite, orders proto.Orders) bool {
	r.send(proto.Frame{Kind: proto.Start, Suite: s.Name})
	begin := time.Now()
	limit := time.Duration(orders.Seconds) * time.Second
	// The binary's own limit comes first: it prints what hangs.
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Binary, "-test.run", s.Run, "-test.v=test2json", "-test.timeout", limit.String())
	cmd.Dir = s.Dir
	cmd.Env = orders.Env
	out := output{results: r, suite: s.Name}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	f := proto.Frame{Kind: proto.End, Suite: s.Name, Seconds: time.Since(begin).Seconds()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		f.Exit, f.Text = -1, fmt.Sprintf("killed after %v", time.Since(begin).Round(time.Second))
	case errors.As(err, &exit):
		f.Exit, f.Text = exit.ExitCode(), exit.Error()
	case err != nil:
		f.Exit, f.Text = -1, err.Error()
	}
	if left := leftovers(); f.Exit == 0 && len(left) > 0 {
		f.Exit, f.Text = -1, "it left behind "+strings.Join(left, ", ")
	}
	r.send(f)
	return f.Exit == 0
}

// output sends what it is given. exec.Cmd writes from one goroutine, because
// both streams are the same writer.
type output struct {
	results *results
	suite   string
}

func (o output) Write(p []byte) (int, error) {
	o.results.send(proto.Frame{Kind: proto.Output, Suite: o.suite, Output: p})
	return len(p), nil
}
