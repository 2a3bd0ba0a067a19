package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"farhand/client"
	"farhand/wire"
)

// refusedBy does an operation that one ceiling has to refuse.
func (u user) refusedBy(ceiling, op, args string) {
	u.t.Helper()
	e := u.refused(wire.HardwareNotGranted, chip, op, args)
	if e.Details["ceiling"] != ceiling || e.Details["device"] != chip || e.Details["op"] != op {
		u.t.Errorf("%s %s: details %v, want the ceiling %s", op, args, e.Details, ceiling)
	}
}

// Each ceiling down to lines and operations, the lowest wins, and a refusal says
// which it was.
func TestLineCeilings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables += "[hardware]\ndeny = [\"i2c:*\"]\nallow = [\"gpio:pinctrl-*;lines=GPIO?,GPIO[12]?\", \"gpio:rasp*\", \"serial:*\", \"i2c:*\", \"spi:*;ops=SPI_NOTHING\"]\n"
	b.claim(everything)
	// GPIO17 and its partner, the whole of GPIO2x, and a pin of the header.
	b.owner.must("grants", "bench", "--device", chip+";lines=GPIO17,27,GPIO2?,pin 29", "--device", "gpio:*;lines=22;ops=GPIO_GET")
	b.owner.must("grants", "bench", "--add-device", "serial:*")
	own := b.user("")
	for _, line := range []string{"17", `"GPIO17"`, `"pin 11"`, "27", "23", "5"} {
		own.do(chip, wire.OpGPIOGet, fmt.Sprintf(`{"line":%s}`, line))
	}
	own.refusedBy("approval", wire.OpGPIOGet, `{"line":6}`)
	own.refusedBy("approval", wire.OpGPIOSet, `{"lines":{"17":1,"6":1}}`)
	own.refusedBy("approval", wire.OpGPIOSet, `{"lines":[6,17],"value":1}`)
	// RELEASE gives back and is never refused; what is looked at as a whole is.
	own.do(chip, wire.OpRelease, `{"line":6}`)
	own.do(chip, wire.OpGPIOInfo, `{}`)
	own.refused(wire.HardwareNotFound, "i2c:1", wire.OpI2CScan, `{}`)
	// The machine's own configuration comes first.
	own.refusedBy("config", wire.OpGPIOGet, `{"line":40}`)
	if e := own.refused(wire.HardwareNotGranted, "spi:0.0", wire.OpSPITransfer, `{"read":1}`); e.Details["ceiling"] != "config" {
		t.Errorf("details %v", e.Details)
	}
	if e := own.refused(wire.HardwareNotGranted, "gpio:raspberrypi-exp-gpio", wire.OpGPIOGet, `{"line":0}`); e.Details["ceiling"] != "approval" {
		t.Errorf("details %v", e.Details)
	}

	token := b.newToken("reader", "--device", "gpio:*;lines=GPIO*;ops=GPIO_GET,GPIO_WATCH")
	reader := b.user(token)
	reader.do(chip, wire.OpGPIOGet, `{"line":"pin 11"}`)
	reader.refusedBy("token", wire.OpGPIOSet, `{"line":17,"value":1}`)
	reader.refusedBy("approval", wire.OpGPIOGet, `{"line":6}`) // the first that refuses
	reader.refusedBy("token", wire.OpGPIOPWM, `{"line":17,"frequency_hz":1,"duty":0}`)

	ops, lines := []string{wire.OpGPIOGet}, []string{"27"}
	at := b.place()
	at.Devices = []wire.DeviceGrant{{Pattern: "gpio:*", Lines: &lines, Ops: &ops}}
	narrow := b.userAt(token, at)
	narrow.do(chip, wire.OpGPIOGet, `{"line":27}`)
	narrow.refusedBy("session", wire.OpGPIOGet, `{"line":17}`)
	narrow.refusedBy("session", wire.OpGPIOWatch, `{"line":27}`)
	narrow.refusedBy("token", wire.OpGPIOSet, `{"line":27,"value":0}`)

	// The relay shows what comes of it.
	g, err := b.sdk().Grants(t.Context(), "bench")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(g.Effective.Devices, func(d client.DeviceReach) bool { return d.ID == chip })
	if i < 0 || !g.Effective.Devices[i].Allowed || len(g.Effective.Devices[i].Bounds) != 1 || len(g.Effective.Devices[i].Bounds[0]) != 2 {
		t.Errorf("%+v", g.Effective.Devices)
	}
	if shown := b.owner.must("grants", "bench"); !strings.Contains(shown, "GPIO17") || !strings.Contains(shown, "reader") {
		t.Errorf("grants shows\n%s", shown)
	}
}

// A change of what is allowed counts at once: what runs is cancelled, what is
// held is given back as its on_release says, and streams end.
func TestLineGrantsChange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	own := b.user("")
	agent := b.user(b.newToken("agent"))
	lamp := watch[wire.GPIORecord](agent, chip, wire.OpGPIOWatch, `{"line":27}`)
	pins := watch[wire.GPIORecord](agent, chip, wire.OpGPIOWatch, `{"lines":[24,5]}`)
	bytes, _, err := agent.SerialWatch(t.Context(), echo, wire.SerialWatch{})
	if err != nil {
		t.Fatal(err)
	}
	plug, _, err := b.sdk().WatchDevices(t.Context(), "bench", "")
	if err != nil {
		t.Fatal(err)
	}
	own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1,"on_release":0}`)
	own.do(chip, wire.OpGPIOSet, `{"line":23,"value":1,"on_release":0}`)
	edge(t, lamp, "rising")
	if e := edge(t, pins, "rising"); e.Line != 24 {
		t.Errorf("%+v", e)
	}
	// Held, so that it is free for the session's question.
	if _, err := own.SerialWrite(t.Context(), psu, wire.SerialWrite{}, true); err != nil {
		t.Fatal(err)
	}
	running := make(chan error, 1)
	go func() {
		_, err := own.try(psu, wire.OpSerialTransact, `{"data":"Vk9MVCAxCg==","until":"Cg==","timeout_seconds":25}`) // has no answer
		running <- err
	}()
	eventually(t, "a question that waits", func() error {
		n := 0
		for _, r := range b.records() {
			if r.Details["op"] == wire.OpSerialTransact && r.Details["phase"] == "intent" {
				n++
			}
		}
		if n == 0 {
			return fmt.Errorf("no record of it")
		}
		return nil
	})

	// GPIO17 and the power supply are taken away, and of line 24 the watching.
	b.owner.must("grants", "bench", "--device", "gpio:*;lines=GPIO2[37],pin 29", "--device", "gpio:*;lines=24;ops=GPIO_GET", "--device", echo)
	if err := <-running; wire.CodeOf(err) != wire.HardwareNotGranted {
		t.Errorf("what ran ends with %v", err)
	}
	edge(t, lamp, "falling") // it was its end that was promised
	pins.ended("grant_revoked")
	own.refusedBy("approval", wire.OpGPIOSet, `{"line":17,"value":1}`)
	agent.do(chip, wire.OpGPIOSet, `{"line":5,"value":1}`) // which the watch of 24 had as well
	agent.do(chip, wire.OpGPIOGet, `{"line":24}`)
	agent.refused(wire.HardwareBusy, chip, wire.OpGPIOSet, `{"line":23,"value":0}`) // is still held
	if err := wire.AsError(func() error { _, err := own.try(psu, wire.OpSerialRead, `{}`); return err }()); err.Details["ceiling"] != "approval" {
		t.Errorf("details %v", err.Details)
	}
	own.do(chip, wire.OpGPIOSet, `{"line":23,"value":0}`)

	// The whole family.
	b.owner.must("grants", "bench", "--all-devices", "--remove", "hardware_gpio,hardware_serial")
	lamp.ended("grant_revoked")
	if _, end := upTo(t, bytes, nil, 1); end == nil || end.Reason != "grant_revoked" {
		t.Errorf("it ended with %+v", end)
	}
	if e := own.refused(wire.CapabilityNotGranted, chip, wire.OpGPIOGet, `{"line":23}`); e.Details["ceiling"] != "approval" {
		t.Errorf("details %v", e.Details)
	}
	if err := plug.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// And back.
	b.owner.must("grants", "bench", "--add", "hardware_gpio,hardware_serial")
	own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1}`)
	agent.do(psu, wire.OpSerialRead, `{"timeout_seconds":0.01}`)

	// A token that is revoked takes its session with it.
	other := b.user(b.newToken("short"))
	other.do(chip, wire.OpGPIOSet, `{"line":23,"value":1,"on_release":0}`)
	w := watch[wire.GPIORecord](agent, chip, wire.OpGPIOWatch, `{"line":24}`)
	tokens, err := b.sdk().Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tokens.Tokens {
		if x.Name == "short" {
			if err := b.sdk().RevokeToken(t.Context(), x.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	edge(t, w, "falling")
	b.wholeAudit()
}
