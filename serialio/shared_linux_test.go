package serialio_test

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/testenv"
	"farhand/serialio"
	"farhand/serialio/termios"
	"farhand/wire"
)

func ptyNode(t *testing.T) (master *os.File, node string) {
	t.Helper()
	master, node, err := termios.OpenPTY()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	return master, node
}

// TestAnotherProcessHasIt is a program that opened the port first and is not
// careful about locks.
func TestAnotherProcessHasIt(t *testing.T) {
	_, node := ptyNode(t)
	terminal, err := os.OpenFile(node, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "cat")
	cmd.Stdin = terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	_, err = serialio.Open(node, serialio.DefaultMode())
	e := wire.AsError(err)
	if holder, _ := e.Details["holder"].(string); e.Code != wire.HardwareBusy || !strings.Contains(holder, "(cat)") {
		t.Errorf("opening it answers %v %v", err, e.Details)
	}
}

// TestWhileCommandsStart opens a port while programs are started, which have
// our descriptors until they are executed.
func TestWhileCommandsStart(t *testing.T) {
	_, node := ptyNode(t)
	stop := make(chan struct{})
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run() // how it ends doesn't matter
				}
			}
		})
	}
	for range 100 {
		p, err := serialio.Open(node, serialio.DefaultMode())
		if err != nil {
			t.Error(err)
			break
		}
		p.Close()
	}
	close(stop)
	starting.Wait()
}

// TestAnotherProcessReads is one that comes later, as root, and makes reads not
// wait: then a read answers nothing without anything being gone.
func TestAnotherProcessReads(t *testing.T) {
	testenv.Need(t, "root", os.Geteuid() == 0, "only root may open a terminal that is in exclusive use")
	_, node := ptyNode(t)
	p, err := serialio.Open(node, serialio.DefaultMode())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	other, err := unix.Open(node, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	tio, err := termios.Get(other)
	if err != nil {
		t.Fatal(err)
	}
	tio.Cc[unix.VMIN] = 0
	if err := termios.Set(other, tio); err != nil {
		t.Fatal(err)
	}
	_, err = p.Read(t.Context(), serialio.ReadOptions{Size: 1, Timeout: 10 * time.Second})
	if e := wire.AsError(err); e.Code != wire.HardwareTransferFailed || e.Details["reason"] != "port_shared" {
		t.Errorf("the read answers %v %v", err, e.Details)
	}
}

func TestNotAPort(t *testing.T) {
	dir := t.TempDir()
	plain := dir + "/file"
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]wire.Code{
		plain:          wire.HardwareOpenFailed,
		os.DevNull:     wire.HardwareOpenFailed,
		dir:            wire.HardwareOpenFailed,
		dir + "/none":  wire.DeviceGone,
		"/dev/tty\x00": wire.HardwareOpenFailed,
	} {
		p, err := serialio.Open(node, serialio.DefaultMode())
		if err == nil {
			p.Close()
		}
		if wire.CodeOf(err) != want {
			t.Errorf("opening %q answers %v, want %s", node, err, want)
		}
	}
	fifo := dir + "/fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serialio.Open(fifo, serialio.DefaultMode()); wire.CodeOf(err) != wire.HardwareOpenFailed {
		t.Errorf("opening a FIFO answers %v", err)
	}
}

// TestHangupStaysOff is what keeps a board from being reset at every open.
func TestHangupStaysOff(t *testing.T) {
	_, node := ptyNode(t)
	keep, err := unix.Open(node, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(keep)
	p, err := serialio.Open(node, serialio.DefaultMode())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tio, err := termios.Get(keep)
	if err != nil {
		t.Fatal(err)
	}
	if tio.Cflag&unix.HUPCL != 0 || tio.Cflag&unix.CLOCAL == 0 {
		t.Errorf("c_cflag is %#o", tio.Cflag)
	}
}
