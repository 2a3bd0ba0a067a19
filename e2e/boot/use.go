package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"farhand/e2e/boot/guest"
)

// commands runs some, as the user who may do nothing else.
func (d *device) commands(ctx context.Context) error {
	out, err := d.sh(ctx, "id -un; id -Gn; pwd; umask; ls /dev/gpiochip* | head -1; cat /run/farhand/config.toml /data/farhand/config.toml 2>&1 || true")
	if err != nil {
		return err
	}
	f := strings.Split(out, "\n")
	if len(f) < 4 || f[0] != "operator" || f[2] != "/data/work" || !strings.HasSuffix(f[3], "7") {
		return fmt.Errorf("commands run as\n%s", out)
	}
	for _, group := range strings.Fields(f[1]) {
		if group != "operator" && group != "work" {
			return fmt.Errorf("commands run in the groups %s", f[1])
		}
	}
	if strings.Contains(out, "relay") && strings.Contains(out, "state_dir") {
		return errors.New("commands can read the daemon's configuration")
	}
	// Who is ended by a closed pipe elsewhere is so here: else a loop goes on for ever.
	if out, err = d.sh(ctx, "grep SigIgn /proc/self/status"); err != nil || !strings.HasSuffix(out, "0000000000000000") {
		return unlike(err, "commands start with signals ignored: %s", out)
	}
	out, err = d.sh(ctx, "exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		return fmt.Errorf("a command that exits with 3 is told as %q, %v", out, err)
	}
	if out, err = d.root(ctx, "id -u"); err != nil || out != "0" {
		return unlike(err, "sudo, which this card allows, makes commands %q", out)
	}
	return nil
}

// files goes there and back.
func (d *device) files(ctx context.Context) error {
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data) // never fails
	here, back := filepath.Join(d.dir, "here"), filepath.Join(d.dir, "back")
	if err := os.WriteFile(here, data, 0o600); err != nil {
		return err
	}
	if _, err := d.bench.farhand(ctx, "put", here, d.host+":there"); err != nil {
		return err
	}
	if out, err := d.bench.farhand(ctx, "ls", d.host+":"); err != nil || !strings.Contains(out, "there") {
		return unlike(err, "ls says %q", out)
	}
	if _, err := d.bench.farhand(ctx, "get", d.host+":there", back); err != nil {
		return err
	}
	if got, err := os.ReadFile(back); err != nil || string(got) != string(data) {
		return unlike(err, "the file comes back with %d bytes of %d, others than before", len(got), len(data))
	}
	// What the daemon wrote is the commands' too.
	sum, err := d.sh(ctx, "sha256sum <there; stat -c %U:%G:%a there; echo more >>there; rm there")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(sum, fmt.Sprintf("%x", sha256.Sum256(data))) || !strings.Contains(sum, "farhand:work:660") {
		return fmt.Errorf("a command sees the file as %s", sum)
	}
	return nil
}

// lines of a chip that the guest's kernel simulates.
func (d *device) lines(ctx context.Context) error {
	if _, err := d.root(ctx, `modprobe gpio-sim
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
c=/sys/kernel/config/gpio-sim/bench; mkdir $c $c/bank0; echo bench >$c/bank0/label; echo 8 >$c/bank0/num_lines; echo 1 >$c/live`); err != nil {
		return err
	}
	if err := d.poll(ctx, time.Second, "the chip isn't there", func() (bool, error) {
		out, err := d.farhand(ctx, 1, "devices")
		return strings.Contains(out, "gpio:bench"), err
	}); err != nil {
		return err
	}
	sim := "/sys/devices/platform/gpio-sim.0/gpiochip*/sim_gpio"
	for _, level := range []string{"1", "0", "1"} {
		if _, err := d.farhand(ctx, 2, "gpio", "set", "gpio:bench", "2="+level); err != nil {
			return err
		}
		if out, err := d.root(ctx, "cat "+sim+"2/value"); err != nil || out != level {
			return unlike(err, "a line set to %s is %q", level, out)
		}
		if out, err := d.farhand(ctx, 2, "gpio", "get", "gpio:bench", "2", "--brief"); err != nil || strings.TrimSpace(out) != level {
			return unlike(err, "a line set to %s reads %q", level, out)
		}
	}
	for _, pull := range []string{"up", "down"} {
		if _, err := d.root(ctx, "echo pull-"+pull+" >$(echo "+sim+"5/pull)"); err != nil {
			return err
		}
		want := map[string]string{"up": "1", "down": "0"}[pull]
		if out, err := d.farhand(ctx, 2, "gpio", "get", "gpio:bench", "5", "--brief"); err != nil || strings.TrimSpace(out) != want {
			return unlike(err, "a line that is pulled %s reads %q", pull, out)
		}
	}
	return nil
}

// adapter is an FTDI serial adapter whose far end says everything back.
type adapter struct {
	*device
	far sync.WaitGroup
}

const (
	adapterSocket = "ftdi"
	adapterID     = "adapter"
	adapterDevice = "serial:usb-0403:6001-BENCH1"
)

// plug adds it to the board that is on.
func (a *adapter) plug(ctx context.Context) error {
	args := map[string]any{"driver": "usb-serial", "id": adapterID, "chardev": adapterSocket, "serial": "BENCH1", "always-plugged": true, "bus": "usb.0"}
	if a.kind == guest.Pi3B {
		args["bus"], args["port"] = "usb-bus.0", "1.2" // beside the network, on the hub
	}
	if err := a.m.Plug(ctx, args); err != nil {
		return err
	}
	return a.listed(ctx, true)
}

// listed waits until the device is there, or isn't.
func (a *adapter) listed(ctx context.Context, want bool) error {
	return a.poll(ctx, time.Second, fmt.Sprintf("that %s is there should be %v", adapterDevice, want), func() (bool, error) {
		out, err := a.device.farhand(ctx, 1, "devices", "--type", "serial")
		return strings.Contains(out, adapterDevice) == want, err
	})
}

// echo sends lines and has them back.
func (a *adapter) echo(ctx context.Context) error {
	conn := a.m.Conn(adapterSocket)
	a.far.Go(func() {
		for in := bufio.NewReader(conn); ; { // ends with the machine
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := io.WriteString(conn, "far "+line); err != nil {
				return
			}
		}
	})
	if err := a.plug(ctx); err != nil {
		return err
	}
	for i := range 3 {
		word := "hello" + strconv.Itoa(i)
		out, err := a.device.farhand(ctx, 2, "serial", "transact", adapterDevice, word+`\n`, "--until", `\n`, "--timeout", "25s")
		if err != nil || strings.TrimSpace(out) != "far "+word {
			return unlike(err, "the far end says %q", out)
		}
	}
	return nil
}

// unplugged takes it away while somebody reads from it, and brings it back.
func (a *adapter) unplugged(ctx context.Context) error {
	reading := make(chan error, 1)
	go func() {
		_, err := a.device.farhand(ctx, 2, "serial", "watch", adapterDevice, "--for", "10m")
		reading <- err
	}()
	// Whether the watch has begun can't be seen from here; that it ends counts.
	if err := a.m.Unplug(ctx, adapterID); err != nil {
		return err
	}
	if err := a.listed(ctx, false); err != nil {
		return err
	}
	select {
	case err := <-reading:
		if err == nil {
			return errors.New("who watched a port that was unplugged is told of an orderly end")
		}
	case <-ctx.Done():
		return fmt.Errorf("who watched a port that was unplugged is told nothing: %w", context.Cause(ctx))
	}
	return a.plug(ctx)
}

// daemonState is what systemd knows of the daemon.
func (d *device) daemonState(ctx context.Context) (pid string, restarts int, err error) {
	out, err := d.sh(ctx, "systemctl show -P MainPID farhandd; systemctl show -P NRestarts farhandd")
	if err != nil {
		return "", 0, err
	}
	f := strings.Fields(out)
	if len(f) != 2 || f[0] == "0" {
		return "", 0, fmt.Errorf("systemd says of the daemon: %q", out)
	}
	restarts, err = strconv.Atoi(f[1])
	return f[0], restarts, err
}

// killed ends the daemon the hard way: it is there again at once.
func (d *device) killed(ctx context.Context) error {
	return d.signalled(ctx, "KILL", "signal", 30*time.Second)
}

// hung stops the daemon: systemd's watchdog ends it, and it is there again.
func (d *device) hung(ctx context.Context) error {
	return d.signalled(ctx, "STOP", "watchdog", 90*time.Second)
}

// signalled sends the daemon a signal a moment later, since the daemon itself
// carries the command that does so, and waits until systemd has started another.
func (d *device) signalled(ctx context.Context, signal, result string, within time.Duration) error {
	pid, before, err := d.daemonState(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if _, err := d.root(ctx, "systemd-run --quiet --collect --on-active=1s --timer-property=AccuracySec=100ms kill -"+signal+" "+pid); err != nil {
		return err
	}
	within = d.patient(within)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("after %s", within))
	defer cancel()
	if err := d.poll(ctx, time.Second, "the daemon was not started again", func() (bool, error) {
		now, after, err := d.daemonState(ctx)
		return err == nil && now != pid && after == before+1, err
	}); err != nil {
		return err
	}
	d.report.measure(fmt.Sprintf("%v: a daemon that got SIG%s is online again after", d.kind, signal), time.Since(start).Seconds()-1, "s", 0)
	out, err := d.root(ctx, "journalctl -b -u farhandd -o cat --no-pager | grep -c \"Failed with result '"+result+"'\" || true")
	if err != nil {
		return err
	}
	if out == "0" {
		return fmt.Errorf("systemd's journal doesn't say that the daemon ended by %s", result)
	}
	return nil
}
