package serialio_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/device"
	"farhand/device/simsysfs"
	"farhand/serialio"
	"farhand/wire"
)

// pretend runs a program under another name, with a terminal as its input if
// there is one.
func pretend(t *testing.T, name string, terminal *os.File) {
	t.Helper()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(cat, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), link)
	if terminal != nil {
		cmd.Stdin = terminal
	} else if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil { // it returns when the program runs
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
}

// TestMeddlers is field cases 9 and 10: programs that are known to take ports
// or to talk to them are named when a USB port is opened, and when it vanishes.
func TestMeddlers(t *testing.T) {
	b := newBench(t)
	reg := device.NewRegistry(device.Options{Families: []device.Family{b.family()}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := device.NewLeases(device.LeaseOptions{Linger: -1})
	t.Cleanup(func() { leases.Close() })
	d := device.NewDispatcher(reg, leases, nil)
	write := func() (wire.SerialWritten, error) {
		res, _, err := d.Do(t.Context(), device.Caller{Session: "s"}, wire.HardwareOp{Device: benchID, Op: wire.OpSerialWrite, Args: []byte(`{"data":"eA=="}`)})
		if err != nil {
			return wire.SerialWritten{}, err
		}
		return res.Result.(wire.SerialWritten), nil
	}
	if w, err := write(); err != nil || w.Opened == nil || len(w.Opened.Warnings) != 0 {
		t.Fatalf("with nobody else: %+v, %v", w, err)
	}
	pretend(t, "brltty", nil)
	pretend(t, "ModemManager", nil)
	w, err := write()
	if err != nil || w.Opened == nil {
		t.Fatalf("with both: %+v, %v", w, err)
	}
	all := strings.Join(w.Opened.Warnings, "\n")
	if len(w.Opened.Warnings) != 2 || !strings.Contains(all, "brltty takes") || !strings.Contains(all, "ID_MM_DEVICE_IGNORE") {
		t.Errorf("the warnings are %q", w.Opened.Warnings)
	}
	if err := leases.Close(); err != nil { // waits until the port is closed
		t.Fatal(err)
	}
	p, err := serialio.Open(b.tree.FS.Node("ttyUSB0"), serialio.DefaultMode())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	b.unplug(t)
	_, err = p.Write(t.Context(), []byte("x"), 0)
	if hint, _ := wire.AsError(err).Details["hint"].(string); !strings.Contains(hint, "brltty") {
		t.Errorf("when it has vanished a write answers %v %v", err, wire.AsError(err).Details)
	}
}

// TestModemManagerHasIt is field case 10: the program that has a port open is
// named, with what to do about it.
func TestModemManagerHasIt(t *testing.T) {
	_, node := ptyNode(t)
	terminal, err := os.OpenFile(node, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	pretend(t, "ModemManager", terminal)
	terminal.Close()
	_, err = serialio.Open(node, serialio.DefaultMode())
	e := wire.AsError(err)
	holder, _ := e.Details["holder"].(string)
	hint, _ := e.Details["hint"].(string)
	if e.Code != wire.HardwareBusy || !strings.Contains(holder, "(ModemManager)") || !strings.Contains(hint, "systemctl") {
		t.Errorf("opening it answers %v %v", err, e.Details)
	}
}

// TestListingOpensNothing is field case 3: what stands for the ports of a
// machine are FIFOs, which would hold up whoever opened them.
func TestListingOpensNothing(t *testing.T) {
	x := simsysfs.New(t.TempDir())
	x.AddUSB(bridge("1-1.2", 4, "0403", "6001", "A", usbSerial("ftdi_sio", "ttyUSB0")))
	x.AddUART("ttyS0", "serial8250", "serial8250", "", "")
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ttyUSB0", "ttyS0"} {
		node := x.FS.Node(name)
		if err := os.Remove(node); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(node, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := serialio.Driver{FS: x.FS}.Probe(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("%d ports, %v", len(all), err)
	}
}
