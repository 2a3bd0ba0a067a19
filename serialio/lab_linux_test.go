package serialio_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/internal/testenv"
	"farhand/lab/guest"
	"farhand/serialio"
	"farhand/serialio/serialtest"
	"farhand/serialio/termios"
	"farhand/wire"
)

// These run in the kernel lab: a CDC ACM device that the kernel plays itself,
// with both ends in the guest, and the emulator's FT232.

var labFamily = device.Family{Driver: serialio.Driver{}, Service: serialio.Service{}}

const (
	labACM  = "serial:usb-1d6b:0104-LABACM1"
	labFTDI = "serial:usb-0403:6001-FT3X8K2Q"
)

// labACMDevice makes a CDC ACM device, and has the end that its firmware would have.
func labACMDevice(t testing.TB) (*guest.USB, *os.File) {
	u := guest.Gadget(t, guest.ACM(), guest.SerialNumber("LABACM1"))
	far, err := os.OpenFile(u.GadgetTTY(0), os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		u.Unplug() // or the kernel waits for what nobody reads any more
		far.Close()
	})
	makeRaw(t, far)
	u.HostNode("tty")
	return u, far
}

func makeRaw(t testing.TB, f *os.File) {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var opErr error
	if err := conn.Control(func(fd uintptr) { opErr = termios.Raw(int(fd)) }); err != nil || opErr != nil {
		t.Fatal(err, opErr)
	}
}

func TestLabACM(t *testing.T) {
	testenv.Lab(t)
	serialtest.Run(t, func(t testing.TB) serialtest.Line {
		u, far := labACMDevice(t)
		return serialtest.Line{
			Family: labFamily, ID: labACM, Node: u.HostNode("tty"), Far: far, ModemLines: true,
			Unplug: u.Unplug,
			Replug: func() { u.Plug(); u.HostNode("tty") },
		}
	})
}

func TestLabFTDI(t *testing.T) {
	testenv.Lab(t)
	serialtest.Run(t, func(t testing.TB) serialtest.Line {
		a := guest.FTDI(t, "FT3X8K2Q")
		return serialtest.Line{
			Family: labFamily, ID: labFTDI, Node: a.TTY(), Far: newSink(t, a.Far), ModemLines: true,
			Unplug: a.Unplug,
			Replug: func() { a.Plug(); a.TTY() },
		}
	}, "Drain", "OddBaud", "Modes", "ModemLines", "UnplugWhileReading", "UnplugWhileWriting", "Opened", "WatchUnplugged")
}

// sink is the far end of the emulator's adapter. It takes what comes at once:
// the emulator stands still, with all of the guest, while nobody does.
type sink struct {
	f    *os.File
	done chan struct{}

	mu   sync.Mutex
	more *sync.Cond
	data []byte
	err  error
}

func newSink(t testing.TB, f *os.File) *sink {
	s := &sink{f: f, done: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	s.drain(t)
	go s.take()
	t.Cleanup(func() {
		_ = s.f.SetReadDeadline(time.Unix(1, 0))
		<-s.done
	})
	return s
}

// drain throws away what an earlier test has left on the line.
func (s *sink) drain(t testing.TB) {
	t.Helper()
	b := make([]byte, 4096)
	for {
		if err := s.f.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := s.f.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.f.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func (s *sink) take() {
	defer close(s.done)
	b := make([]byte, 4096)
	for {
		n, err := s.f.Read(b)
		s.mu.Lock()
		s.data = append(s.data, b[:n]...)
		s.err = err
		s.more.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *sink) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.data) == 0 && s.err == nil {
		s.more.Wait()
	}
	if len(s.data) == 0 {
		return 0, s.err
	}
	n := copy(b, s.data)
	s.data = s.data[n:]
	return n, nil
}

func (s *sink) Write(b []byte) (int, error) { return s.f.Write(b) }

func TestLabDriver(t *testing.T) {
	testenv.Lab(t)
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		u, _ := labACMDevice(t)
		return devicetest.Bench{
			Family: labFamily, ID: labACM,
			Op:     wire.HardwareOp{Op: wire.OpSerialWrite, Args: []byte(`{"data":"eA=="}`)},
			Unplug: u.Unplug,
			Replug: func() { u.Plug(); u.HostNode("tty") },
		}
	})
}

// TestLabIdentity is field cases 5, 6 and 7 on real devices: no serial number,
// one that is no good, and several ports of one device.
func TestLabIdentity(t *testing.T) {
	testenv.Lab(t)
	ids := func() []string {
		all, err := serialio.Driver{}.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, d := range all {
			if d.VID == "1d6b" {
				ids = append(ids, d.ID)
			}
		}
		slices.Sort(ids)
		return ids
	}
	for name, serial := range map[string]guest.Option{
		"none": guest.NoStrings(), "zeros": guest.SerialNumber("000000000000"),
	} {
		t.Run(name, func(t *testing.T) {
			first := guest.Gadget(t, guest.ACM(), serial, guest.Controller(0))
			second := guest.Gadget(t, guest.ACM(), serial, guest.Controller(1))
			first.HostNode("tty")
			second.HostNode("tty")
			want := []string{"serial:usb-1d6b:0104@" + first.Name + ":1.0", "serial:usb-1d6b:0104@" + second.Name + ":1.0"}
			slices.Sort(want)
			if got := ids(); !slices.Equal(got, want) {
				t.Errorf("the ids are %q, want %q", got, want)
			}
			// Unplugged both and plugged in the other way round, each keeps its own.
			first.Unplug()
			second.Unplug()
			second.Plug()
			first.Plug()
			first.HostNode("tty")
			second.HostNode("tty")
			if got := ids(); !slices.Equal(got, want) {
				t.Errorf("after a replug the ids are %q, want %q", got, want)
			}
		})
	}
	t.Run("two ports", func(t *testing.T) {
		u := guest.Gadget(t, guest.ACM(), guest.ACM(), guest.SerialNumber("LABTWO"))
		u.HostNode("tty")
		nodes := filepath.Join(u.Sysfs, u.Name+":1.2", "tty", "*")
		guest.WaitFor(t, "the second port", func() bool { got, err := filepath.Glob(nodes); return err == nil && len(got) == 1 })
		want := []string{"serial:usb-1d6b:0104-LABTWO", "serial:usb-1d6b:0104-LABTWO:1.2"}
		if got := ids(); !slices.Equal(got, want) {
			t.Errorf("the ids are %q, want %q", got, want)
		}
	})
}

// TestLabLines has the far end see what a port does to its lines. The adapter's
// own inputs are what the emulator says of a line without modem control.
func TestLabLines(t *testing.T) {
	testenv.Lab(t)
	a := guest.FTDI(t, "FT3X8K2Q")
	p, err := serialio.Open(a.TTY(), serialio.DefaultMode())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	bits, err := p.Modem()
	if err != nil || bits&termios.CTS == 0 || bits&termios.DSR == 0 || bits&termios.RI != 0 {
		t.Errorf("the lines are %#x, %v", bits, err)
	}
	if err := p.Break(t.Context(), 10*time.Millisecond); err != nil {
		t.Error(err)
	}
	// Field case 4: what no constant of termios has is set, as near as the chip's
	// divisor comes to it, and read back.
	for _, baud := range []int{250000, 50000, 12345} {
		m := serialio.DefaultMode()
		m.BaudRate = baud
		if err := p.SetMode(m); err != nil {
			t.Errorf("%d bit/s: %v", baud, err)
		}
		if got := p.Baud(); got < baud*98/100 || got > baud*102/100 {
			t.Errorf("asked for %d bit/s, got %d", baud, got)
		}
	}
	// ftdi_sio knows low latency, and the port is left as it was found.
	m := serialio.DefaultMode()
	m.LowLatency = true
	if err := p.SetMode(m); err != nil || !p.LowLatency() {
		t.Errorf("low latency: %v, %v", p.LowLatency(), err)
	}
	timer := filepath.Join("/sys/class/tty", filepath.Base(a.TTY()), "device/latency_timer")
	if b, err := os.ReadFile(timer); err != nil || strings.TrimSpace(string(b)) != "1" {
		t.Errorf("the latency timer is %q, %v, want 1 ms", b, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(a.TTY(), os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) {
		if low, err := termios.LowLatency(int(fd)); err != nil || low {
			t.Errorf("after the close low latency is %v, %v", low, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLabListingOpensNothing is field case 3: a probe must not touch a port,
// and closing one with output that nobody takes must not take long.
func TestLabListingOpensNothing(t *testing.T) {
	testenv.Lab(t)
	u, _ := labACMDevice(t)
	p, err := serialio.Open(u.HostNode("tty"), serialio.DefaultMode())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(t.Context(), make([]byte, 1<<20), 200*time.Millisecond); err == nil {
		t.Error("a megabyte was taken that nobody reads")
	}
	began := time.Now()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("closing a port with output that nobody takes took %v", took)
	}
	if _, err := (serialio.Driver{}).Probe(t.Context()); err != nil {
		t.Error(err)
	}
}
