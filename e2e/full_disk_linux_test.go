package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/internal/testenv"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// With the state directory's disk full, nothing is done that can't be recorded,
// what becomes of outputs is durable before they are driven, what was opened
// for nobody is given back, and nothing has to be started anew when there is
// room.
func TestEmulatorFullDisk(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.Extensions = wire.Capabilities{wire.HardwareSerial, wire.HardwareGPIO, wire.Streams}
	b := c.bench()
	if err := os.MkdirAll(b.stateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("tmpfs", b.stateDir(), "tmpfs", 0, "size=512k")
	testenv.Need(t, "mount", err == nil, fmt.Sprint("a small tmpfs: ", err))
	t.Cleanup(func() { unix.Unmount(b.stateDir(), unix.MNT_DETACH) })
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(c)
	s, _ := p.open("one")
	other, _ := p.open("other")
	op := func(s *shimtest.Socket, device, op string, args map[string]any) wire.Envelope {
		t.Helper()
		return s.Call(wire.THardwareOp, map[string]any{"device": device, "op": op, "args": args})
	}
	const chip = "gpio:pinctrl-bcm2711"
	ballast := filepath.Join(b.stateDir(), "ballast")
	fill := func() {
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
	}
	failure := func(e wire.Envelope) (wire.Error, bool) {
		t.Helper()
		if e.Type != wire.TError {
			return wire.Error{}, false
		}
		got := answer[wire.Error](t, e, wire.TError)
		if got.Code != wire.DiskFull || strings.Contains(string(e.Payload), b.stateDir()) {
			t.Errorf("ERROR %s", e.Payload)
		}
		return got, true
	}

	// The log's last page has room for some records, so each way to fail is met:
	// no intent, no promise, no outcome.
	var refused, promise, outcome int
	for i := range 24 {
		fill()
		for { // until nothing fits but what a page's rest takes
			line := 5 + i%8
			request := op(s, psu, "SERIAL_WRITE", map[string]any{"data": ""})
			if i%2 == 0 {
				request = op(s, chip, "GPIO_SET", map[string]any{"line": line, "value": 1, "on_release": "0"})
			}
			e, failed := failure(request)
			if !failed {
				op(s, chip, "RELEASE", map[string]any{"line": line})
				continue
			}
			switch {
			case e.Details["done"] == true:
				outcome++
			case e.Details["reason"] == "audit_unavailable":
				refused++
			default:
				promise++
			}
			break
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		// Records of different lengths let the next round end elsewhere.
		op(s, chip, "GPIO_GET", map[string]any{"lines": []int{2, 3, 4, 5, 6, 7, 8, 9}[:1+i%8]})
	}
	if refused == 0 || promise == 0 || outcome == 0 {
		t.Error("not each way to fail was met")
	}
	t.Logf("refused %d, not promised %d, done and not recorded %d", refused, promise, outcome)

	// A stream whose opening couldn't be recorded is nobody's, and keeps nothing.
	fill()
	for i := 0; ; i++ {
		e := op(s, psu, "SERIAL_WATCH", nil)
		if _, failed := failure(e); failed {
			break
		}
		opened := answer[wire.HardwareResult](t, e, wire.THardwareResult)
		s.Call(wire.TStreamClose, map[string]any{"stream": opened.Result.(map[string]any)["stream"]})
		if i == 100 {
			t.Fatal("the disk never fills")
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	answer[wire.HardwareResult](t, op(other, psu, "SERIAL_WRITE", map[string]any{"data": ""}), wire.THardwareResult)
	answer[wire.HardwareResult](t, op(other, chip, "GPIO_SET", map[string]any{"line": 17, "value": 1}), wire.THardwareResult)
	b.daemon.await(0, "audit log can be written again")
}
