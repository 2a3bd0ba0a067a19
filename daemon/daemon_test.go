package daemon

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"farhand/config"
	"farhand/device"
)

// counted is a session that counts how often it is held.
type counted struct {
	held int
	last time.Time
}

func (c *counted) Hold() func() { c.held++; return func() { c.held-- } }

func (c *counted) LastFrame() time.Time { return c.last }

func (c *counted) openFile(context.Context, string) (io.ReadCloser, int64, error) {
	return nil, 0, io.ErrUnexpectedEOF
}

func TestSessionsAreHeldWhileTheyHold(t *testing.T) {
	var l live
	a, b := &counted{last: time.Now()}, &counted{}
	l.add("a", a)
	l.add("b", b)
	lease := func(session, id, part string) device.LeaseInfo {
		return device.LeaseInfo{Key: device.Key{Device: id, Part: part}, Holder: device.Holder{Session: session}}
	}
	l.held(lease("a", "gpio:x", "17"))
	l.held(lease("a", "gpio:x", "17")) // held once, however often it is said
	l.held(lease("a", "gpio:x", "18"))
	l.held(lease("b", "serial:z", ""))
	l.held(lease("nobody", "serial:z", ""))
	if a.held != 2 || b.held != 1 {
		t.Errorf("held %d and %d times, want 2 and 1", a.held, b.held)
	}
	l.ended(lease("a", "gpio:x", "17"))
	l.ended(lease("a", "gpio:x", "17"))
	l.ended(lease("c", "serial:z", ""))
	if a.held != 1 || b.held != 1 {
		t.Errorf("held %d and %d times, want 1 and 1", a.held, b.held)
	}
	if l.lastFrame("a") != a.last || !l.lastFrame("c").IsZero() {
		t.Error("a session's last frame is another's")
	}
	l.remove("a", b) // an older session's end
	if l.lastFrame("a") != a.last {
		t.Error("a session was forgotten for another's end")
	}
	l.remove("a", a)
	l.ended(lease("a", "gpio:x", "18"))
	l.ended(lease("b", "serial:z", ""))
	if a.held+b.held != 0 || len(l.release) != 0 {
		t.Errorf("held %d times, %d remembered, want none", a.held+b.held, len(l.release))
	}
}

// A Raspberry Pi has the ids that the bench shows. With --sim they are the
// bench's, so that nothing real is driven by mistake.
func TestTheBenchStandsBeforeTheMachine(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	d := &services{log: log}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	o := Options{Config: config.Config{StateDir: t.TempDir(), Sim: true}, Log: log}
	bench, err := d.openBench(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	simulated := len(bench.Families())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d.closers = nil
	families, err := d.openFamilies(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	devices := device.NewRegistry(device.Options{Families: families[:simulated]})
	if err := devices.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"gpio:pinctrl-bcm2711", "i2c:1", "serial:sim-echo", "usb:1209:0001-SIM-ECHO", "printer:sim-i3"} {
		if _, err := devices.Resolve(id); err != nil {
			t.Errorf("among the first %d families: %v", simulated, err)
		}
	}
}

// TestOtherBoardsOutputs: field case 79, what a board held when its card was
// cloned is nothing to do to the wires of another.
func TestOtherBoardsOutputs(t *testing.T) {
	const ledger = `{"version":1,"outputs":[]}`
	for _, changed := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "gpio.json")
		if err := os.WriteFile(path, []byte(ledger), 0o600); err != nil {
			t.Fatal(err)
		}
		d := &services{log: slog.New(slog.DiscardHandler)}
		d.identity.Changed = changed
		if d.openLedger(Options{Config: config.Config{StateDir: dir}}, "gpio.json") == nil {
			t.Error("no ledger")
		}
		_, err := os.Stat(path)
		_, aside := os.Stat(path + ".other-board")
		if os.IsNotExist(err) != changed || os.IsNotExist(aside) == changed {
			t.Errorf("changed %v: in place %v, set aside %v", changed, err, aside)
		}
	}
}
