package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"farhand/client"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// What a lost link does to leases: nothing to one that is back within the grace,
// the end to one that stays away, and a dead-man counts instead of the grace.
func TestLostLink(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.Extensions = append(wire.Capabilities{wire.Streams}, families...)
	b := c.loggedIn()
	p := b.on(c)
	sockets := make(map[string]*shimtest.Socket)
	for _, name := range []string{"away", "back", "hasty", "patient", "witness"} {
		sockets[name], _ = p.open(name)
	}
	set := func(name, args string) {
		t.Helper()
		answer[wire.HardwareResult](t, hardware(sockets[name], chip, wire.OpGPIOSet, args), wire.THardwareResult)
	}
	set("away", `{"line":17,"value":1,"on_release":0}`)
	set("back", `{"line":23,"value":1,"on_release":0}`)
	set("hasty", `{"line":5,"value":1,"on_release":"input","deadman_seconds":1}`)
	set("patient", `{"line":6,"value":1,"on_release":"input","deadman_seconds":3600}`)
	level := func(line string) int {
		t.Helper()
		v := answer[struct{ Result wire.GPIOValues }](t, hardware(sockets["witness"], chip, wire.OpGPIOGet, `{"line":`+line+`}`), wire.THardwareResult)
		return *v.Result.Value
	}
	var barred atomic.Bool
	barred.Store(true)
	c.Script(func() {
		usual := c.Upgrade
		c.Upgrade = func(r *http.Request) int {
			for _, name := range []string{"away", "hasty", "patient"} {
				if barred.Load() && strings.HasSuffix(r.URL.Path, "/"+name) {
					return http.StatusServiceUnavailable
				}
			}
			return usual(r)
		}
	})
	began := time.Now()
	for _, name := range []string{"away", "back", "hasty", "patient"} {
		sockets[name].Drop()
	}
	back := c.Next()
	if back.Session != "back" {
		t.Fatalf("the socket of %q came", back.Session)
	}
	sockets["back"] = back
	gone := func(line int) func() error {
		return func() error {
			if _, promised := promised(t, b.ledger())[line]; promised {
				return fmt.Errorf("line %d is still promised after %s", line, time.Since(began))
			}
			return nil
		}
	}
	eventually(t, "the dead-man", gone(5))
	if took := time.Since(began); took < 500*time.Millisecond || took > 9*time.Second {
		t.Errorf("a dead-man of 1 s ended a lease after %s", took)
	}
	// Its session keeps it from now on; the rest of the chip is anybody's.
	emRefused(t, hardware(sockets["witness"], chip, wire.OpGPIOGet, `{"line":17}`), wire.HardwareBusy, nil)
	eventually(t, "the end of the grace", func() error {
		if level("27") != 0 {
			return fmt.Errorf("still on after %s", time.Since(began))
		}
		return nil
	})
	if took := time.Since(began); took < 9*time.Second || took > 20*time.Second {
		t.Errorf("a grace of 10 s took %s", took)
	}
	set("witness", `{"line":17,"value":0}`)
	if got := level("24"); got != 1 {
		t.Errorf("who was back in time lost its line: level %d", got)
	}
	set("back", `{"line":23,"value":1}`)
	if promised(t, b.ledger())[6] != wire.GPIOInput {
		t.Error("a dead-man of an hour ended with the grace")
	}
	emRefused(t, hardware(sockets["witness"], chip, wire.OpGPIOGet, `{"line":6}`), wire.HardwareBusy, nil)
	// Back after the grace: a session as before, without what it had.
	barred.Store(false)
	b.mustd("", "resume")
	for range 3 {
		s := c.Next()
		sockets[s.Session] = s
	}
	emRefused(t, hardware(sockets["away"], chip, wire.OpGPIOGet, `{"line":17}`), wire.HardwareBusy, nil)
	set("patient", `{"line":6,"value":0}`)
	set("hasty", `{"line":5,"value":0}`)
}

// All streams together have a bound, and so have those of one who opens as many as
// he can: others find room, one more is refused with what to do, and when one is
// closed there is room.
func TestStreamOverload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	c := b.sdk()
	u := b.user("")
	var open []*client.Stream
	var refused error
	for range 200 {
		st, _, err := c.WatchDevices(t.Context(), "bench", "")
		if err != nil {
			refused = err
			break
		}
		open = append(open, st)
	}
	e := wire.AsError(refused)
	if e.Code != wire.ShimOverloaded || e.Details["hint"] == nil || len(open) != 112 { // of 128
		t.Errorf("after %d streams: %v %v", len(open), refused, e.Details)
	}
	var more []*records[wire.GPIORecord]
	for line := range 14 {
		more = append(more, watch[wire.GPIORecord](u, chip, wire.OpGPIOWatch, fmt.Sprintf(`{"line":%d}`, line)))
	}
	// A watch of a device that is refused so leaves its device free.
	if e := u.refused(wire.ShimOverloaded, chip, wire.OpGPIOWatch, `{"line":27}`); e.Details["hint"] == nil {
		t.Errorf("details %v", e.Details)
	}
	u.refused(wire.ShimOverloaded, echo, wire.OpSerialWatch, `{}`)
	u.refused(wire.ShimOverloaded, usbEcho, wire.OpUSBWatch, `{"interface":0,"endpoint":"0x81"}`)
	u.refused(wire.ShimOverloaded, printer, wire.OpPrinterWatch, `{}`)
	other := b.user(b.newToken("agent"))
	other.do(chip, wire.OpGPIOSet, `{"line":27,"value":0,"on_release":"input"}`)
	other.do(echo, wire.OpSerialWrite, `{"data":"AA=="}`)
	other.do(usbEcho, wire.OpUSBSend, `{"interface":0,"endpoint":1,"data":"AA=="}`)
	other.do(printer, wire.OpPrinterMove, `{"home":"all"}`)
	for _, device := range []string{chip, echo, usbEcho, printer} {
		other.do(device, wire.OpRelease, `{}`)
	}
	if err := more[0].st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := watch[wire.GPIORecord](u, chip, wire.OpGPIOWatch, `{"line":27}`)
	u.refused(wire.ShimOverloaded, chip, wire.OpGPIOWatch, `{"line":24}`)
	other.do(chip, wire.OpGPIOSet, `{"line":17,"value":1}`)
	edge(t, w, "rising")
	for _, st := range open {
		if err := st.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	watch[wire.GPIORecord](u, chip, wire.OpGPIOWatch, `{"line":24}`)
	b.wholeAudit()
}

// A daemon that was started anew has no stream of before, and says so.
func TestStreamsOfAnEarlierDaemon(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	u := b.user("")
	w := watch[wire.GPIORecord](u, chip, wire.OpGPIOWatch, `{"line":27}`)
	plug, _, err := b.sdk().WatchDevices(t.Context(), "bench", "")
	if err != nil {
		t.Fatal(err)
	}
	u.do(chip, wire.OpGPIOSet, `{"line":17,"value":1}`)
	edge(t, w, "rising")
	b.daemon.kill()
	b.startDaemon()
	b.daemon.await(0, `^Online`)
	for name, st := range map[string]*client.Stream{"the line's": w.st, "the machine's": plug} {
		for {
			c, err := st.Next(t.Context())
			if err != nil {
				if !errors.Is(err, wire.StreamNotFound) {
					t.Errorf("%s stream ended with %v", name, err)
				}
				break
			}
			if c.End != nil {
				t.Errorf("%s stream ended with %+v", name, c.End)
			}
		}
	}
	w = watch[wire.GPIORecord](u, chip, wire.OpGPIOWatch, `{"line":27}`)
	u.do(chip, wire.OpRelease, `{}`)
	w.ended("released")
}

// A stream has one receiver: who attaches takes it over, and somebody else can't.
func TestStreamReceivers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	agent, stranger, own := b.user(b.newToken("agent")), b.user(b.newToken("stranger")), b.user("")
	w := watch[wire.GPIORecord](agent, chip, wire.OpGPIOWatch, `{"line":27}`)
	own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1}`)
	edge(t, w, "rising")
	if _, _, err := stranger.Attach(t.Context(), w.st.ID(), nil, 0); !errors.Is(err, wire.StreamNotFound) {
		t.Errorf("a stranger attaches: %v", err)
	}
	// The owner's own login may look over an agent's shoulder.
	st, a, err := own.Attach(t.Context(), w.st.ID(), nil, 0)
	if err != nil || a.Next != 1 || a.Oldest != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	mine := &records[wire.GPIORecord]{t: t, st: st}
	edge(t, mine, "rising")
	own.do(chip, wire.OpGPIOSet, `{"line":17,"value":0}`)
	edge(t, mine, "falling")
	st.Detach()
	// And the agent has it back, with what came meanwhile.
	again, _, err := agent.Attach(t.Context(), w.st.ID(), &a.Next, 0)
	if err != nil {
		t.Fatal(err)
	}
	edge(t, &records[wire.GPIORecord]{t: t, st: again}, "falling")
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
	own.do(chip, wire.OpGPIOGet, `{"line":27}`)
}
