package guest

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"farhand/lab/proto"
)

// Adapter is the emulator's USB serial adapter, an FT232BM (0403:6001) on a USB
// 3 controller. The host plugs it in and out.
type Adapter struct {
	t      testing.TB
	serial string
	in     bool
	real   string // the folder that Sysfs is a link to: it goes last

	// Far is the other end of its line. Deadlines work on it.
	Far *os.File

	Sysfs string // "/sys/bus/usb/devices/1-1"
	Name  string // "1-1"
}

// FTDI plugs the adapter in, with that serial number or, if it is "", with the
// emulator's own. It goes after the test. There is one at a time.
func FTDI(t testing.TB, serial string) *Adapter {
	t.Helper()
	far, err := os.OpenFile(filepath.Join("/dev/virtio-ports", proto.WirePort), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := &Adapter{t: t, serial: serial, Far: far}
	t.Cleanup(func() {
		a.Unplug()
		far.Close()
	})
	a.Plug()
	return a
}

// Plug plugs it in, if it is out, and waits until the host has configured it.
func (a *Adapter) Plug() {
	a.t.Helper()
	if a.in {
		return
	}
	request(a.t, proto.Request{Do: proto.PlugFTDI, Serial: a.serial})
	a.in = true
	WaitFor(a.t, "the adapter", func() bool {
		vendors, err := filepath.Glob("/sys/bus/usb/devices/*/idVendor")
		if err != nil {
			a.t.Fatal(err)
		}
		for _, v := range vendors {
			// FTDI's number; the root hubs are the only others beside gadgets.
			if b, err := os.ReadFile(v); err == nil && string(b) == "0403\n" && isEmulated(v) {
				a.Sysfs = filepath.Dir(v)
				a.Name = filepath.Base(a.Sysfs)
				a.real, _ = filepath.EvalSymlinks(a.Sysfs) // "" if it is gone again
				return exists(filepath.Join(a.Sysfs, a.Name+":1.0"))
			}
		}
		return false
	})
}

// isEmulated tells the emulator's devices from gadgets, which may call
// themselves anything.
func isEmulated(sysfs string) bool {
	real, err := filepath.EvalSymlinks(sysfs)
	if err != nil {
		return false
	}
	pci, err := filepath.Match("/sys/devices/pci*/*/usb*/*/idVendor", real)
	return err == nil && pci
}

// Unplug pulls it out, whoever uses it.
func (a *Adapter) Unplug() {
	a.t.Helper()
	if !a.in {
		return
	}
	request(a.t, proto.Request{Do: proto.UnplugFTDI})
	a.in = false
	WaitFor(a.t, a.Sysfs+" to vanish", func() bool { return !exists(a.Sysfs) && (a.real == "" || !exists(a.real)) })
}

// TTY is the adapter's port: "/dev/ttyUSB0". It waits for it.
func (a *Adapter) TTY() string {
	a.t.Helper()
	return nodeOf(a.t, waitGlob(a.t, "the adapter's port", filepath.Join(a.Sysfs, a.Name+":1.0", "ttyUSB*", "tty", "*")))
}

// request asks something of the host and waits for its answer.
func request(t testing.TB, r proto.Request) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join("/dev/virtio-ports", proto.RequestPort), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(r); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(f).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s: %v", r.Do, err)
	}
	var a proto.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatalf("%s: %v", r.Do, err)
	}
	if a.Error != "" {
		t.Fatalf("%s: %s", r.Do, a.Error)
	}
}
