package octoprint_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/internal/testenv"
	"farhand/lab/guest"
	"farhand/octoprint"
	"farhand/octoprint/lp"
	"farhand/octoprint/octoprinttest"
	"farhand/wire"
)

// These run in the kernel lab: usblp on a printer-class gadget (f_printer), with
// both ends in the guest.

const (
	labPort   = "printer:usb-1d6b:0104-LABLP1"
	labPortID = "MFG:Farhand;MDL:Lab printer;CMD:ESCPOS;CLS:PRINTER;"
)

var labPorts = device.Family{Driver: octoprint.Driver{}, Service: octoprint.PortService{}}

func labPrinter(t testing.TB) *guest.USB {
	u := guest.Gadget(t, guest.Printer(labPortID), guest.SerialNumber("LABLP1"))
	u.HostNode("usbmisc")
	return u
}

// labFar opens the device's end. The gadget is selected while it is open
// (f_printer.c, printer_open).
func labFar(t testing.TB, u *guest.USB) *os.File {
	t.Helper()
	far, err := os.OpenFile(u.PrinterNode(), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		u.Unplug() // or the kernel waits for what nobody reads any more
		far.Close()
	})
	return far
}

// setLabStatus sets the status byte: GADGET_SET_PRINTER_STATUS of
// linux/usb/g_printer.h, _IOWR('g', 0x22, unsigned char); the kernel takes the
// value itself.
func setLabStatus(t testing.TB, far *os.File, status byte) {
	t.Helper()
	const request = 3<<30 | 1<<16 | 'g'<<8 | 0x22
	conn, err := far.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var errno unix.Errno
	if err := conn.Control(func(fd uintptr) { _, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(status)) }); err != nil || int(errno) < 0 {
		t.Fatal(err, errno)
	}
}

func TestLabPortDriver(t *testing.T) {
	testenv.Lab(t)
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		u := labPrinter(t)
		return devicetest.Bench{
			Family: labPorts, ID: labPort, Op: wire.HardwareOp{Device: labPort, Op: wire.OpPrinterStatus},
			Unplug: u.Unplug, Replug: func() { u.Plug(); u.HostNode("usbmisc") },
		}
	})
}

func labRig(t testing.TB) *octoprinttest.Rig {
	return octoprinttest.NewRig(t, octoprinttest.Bench{Family: labPorts, ID: labPort})
}

func TestLabPortStatus(t *testing.T) {
	testenv.Lab(t)
	u := labPrinter(t)
	far := labFar(t, u)
	r := labRig(t)
	status := func() wire.PrinterStatus {
		return octoprinttest.Must[wire.PrinterStatus](t, r, "s", wire.OpPrinterStatus, nil)
	}
	s := status()
	if s.State != wire.PrinterReady || s.Port.DeviceID["MDL"] != "Lab printer" || s.Port.DeviceID["CMD"] != "ESCPOS" || !s.Port.Online || s.Port.PaperOut {
		t.Errorf("%+v %+v", s, s.Port)
	}
	setLabStatus(t, far, 0x38) // paper empty, selected, no error
	if s := status(); s.State != wire.PrinterError || !s.Port.PaperOut {
		t.Errorf("out of paper: %+v %+v", s, s.Port)
	}
	setLabStatus(t, far, 0x08) // not selected
	if s := status(); s.State != wire.PrinterOffline {
		t.Errorf("not selected: %+v %+v", s, s.Port)
	}
	// usblp lets one program have it; the id is known all the same.
	p, err := lp.Open(u.HostNode("usbmisc"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := lp.Open(u.HostNode("usbmisc")); !errors.Is(err, wire.HardwareBusy) {
		t.Errorf("a second open: %v", err)
	}
	if s := status(); s.State != wire.PrinterUnknown || s.Port.DeviceID["MFG"] != "Farhand" || !strings.Contains(s.Text, "another program") {
		t.Errorf("while another has it: %+v", s)
	}
}

func TestLabPortCommand(t *testing.T) {
	testenv.Lab(t)
	far := labFar(t, labPrinter(t))
	r := labRig(t)
	// More than the gadget keeps. It waits for more after a whole packet (512
	// bytes), so the last must be a short one.
	data := bytes.Repeat([]byte("\x1b@label\n"), 40_001)
	if err := far.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	go func() {
		b := make([]byte, len(data))
		if _, err := io.ReadFull(far, b); err != nil {
			t.Error(err)
		}
		got <- b
	}()
	done := octoprinttest.Must[wire.PrinterCommanded](t, r, "s", wire.OpPrinterCommand, wire.PrinterCommand{Data: data})
	if done.BytesWritten != len(data) || !bytes.Equal(<-got, data) {
		t.Errorf("%+v, or what came is something else", done)
	}
}

// Nobody takes what is printed: the deadline ends it, and says how far it came;
// unplugging ends it at once.
func TestLabPortStalls(t *testing.T) {
	testenv.Lab(t)
	u := labPrinter(t)
	labFar(t, u)
	r := labRig(t)
	data := make([]byte, 1<<20)
	second := 1.0
	e := octoprinttest.Code(t, r, "s", wire.OpPrinterCommand, wire.PrinterCommand{Data: data, TimeoutSeconds: &second}, wire.HardwareTransferFailed)
	if n, ok := e.Details["bytes_partial"].(int); !ok || n <= 0 || n >= len(data) || e.Details["reason"] != "timeout" {
		t.Errorf("details %v", e.Details)
	}
	began := time.Now()
	gone := make(chan *wire.Error)
	started := make(chan struct{})
	go func() {
		long := 20.0
		close(started)
		_, err := r.Do(t, "s", wire.OpPrinterCommand, wire.PrinterCommand{Data: data, TimeoutSeconds: &long})
		gone <- wire.AsError(err)
	}()
	<-started
	guest.WaitFor(t, "the write to begin", func() bool { return len(r.Leases.List()) == 1 })
	u.Unplug()
	if e := <-gone; e == nil || e.Code != wire.DeviceGone {
		t.Errorf("unplugged: %v", e)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("it took %s to notice", d)
	}
}
