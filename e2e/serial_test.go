package e2e

import (
	"strings"
	"testing"

	"farhand/serialio/serialsim"
	"farhand/wire"
)

// The serial verbs against the simulated instruments, which are real ttys.
func TestSerial(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,hardware_serial,hardware_gpio")

	t.Run("list", func(t *testing.T) {
		list := parse[wire.HardwareListResponse](t, b.owner.must("serial", "list", "--json"))
		found := make(map[string]wire.HardwareDevice)
		for _, d := range list.Devices {
			found[d.ID] = d
			if d.Type != "serial" {
				t.Errorf("%s is of type %s", d.ID, d.Type)
			}
		}
		for _, id := range []string{psu, echo} {
			if d := found[id]; !d.Available || !strings.HasPrefix(d.Port, "/dev/pts/") || d.Generation != 1 {
				t.Errorf("%s is %+v", id, d)
			}
		}
		// Of other families only what was allowed is listed.
		all := parse[wire.HardwareListResponse](t, b.owner.must("devices", "--json"))
		for _, d := range all.Devices {
			if d.Type != "serial" && d.Type != "gpio" {
				t.Errorf("%s is listed, whose family isn't allowed", d.ID)
			}
			if d.Type == "gpio" && !d.Available {
				t.Errorf("%s: %q", d.ID, d.Reason)
			}
		}
		if got := b.owner.must("devices", "--type", "gpio"); !strings.Contains(got, "gpio:pinctrl-bcm2711") || strings.Contains(got, psu) {
			t.Errorf("devices --type gpio says\n%s", got)
		}
	})

	t.Run("transact", func(t *testing.T) {
		if got := b.owner.must("serial", "transact", psu, `*IDN?\n`, "--until", `\n`); got != serialsim.Identity+"\n" {
			t.Errorf("*IDN? is answered with %q", got)
		}
		b.owner.must("serial", "write", "bench", psu, `VOLT 3.3;OUTP ON\n`)
		if got := b.owner.must("serial", "transact", "bench", psu, `MEAS:VOLT?\n`, "--until", `\n`); got != "+3.300000E+00\n" {
			t.Errorf("MEAS:VOLT? is answered with %q", got)
		}
		got := parse[wire.SerialData](t, b.owner.must("serial", "transact", psu, `DATA? 20000\n`, "--size", "20008", "--timeout", "20s", "--json"))
		if got.StopReason != "size" || got.BytesReturned != 20008 || got.TimedOut || !strings.HasPrefix(string(got.Data), "#520000abc") {
			t.Errorf("a block is %q, %d bytes, stopped by %s", got.Data[:min(20, len(got.Data))], got.BytesReturned, got.StopReason)
		}
		r := b.owner.run("serial", "transact", psu, `VOLT 1\n`, "--until", `\n`, "--timeout", "300ms")
		if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "did not come") {
			t.Errorf("a question without an answer gives %+v", r)
		}
		r = b.owner.run("serial", "transact", psu, `VOLT 1\n`, "--until", `\n`, "--timeout", "300ms", "--json")
		if got := parse[wire.SerialData](t, r.stdout); r.code != 1 || !got.TimedOut || got.StopReason != "timeout" {
			t.Errorf("--json gives %+v", r)
		}
		// By another name of the same port.
		port := ""
		for _, d := range parse[wire.HardwareListResponse](t, b.owner.must("serial", "list", "--json")).Devices {
			if d.ID == psu {
				port = d.Port
			}
		}
		if got := b.owner.must("serial", "transact", port, `*OPC?\n`, "--until", `\n`); got != "1\n" {
			t.Errorf("by %s *OPC? is answered with %q", port, got)
		}
	})

	t.Run("bytes", func(t *testing.T) {
		if got := b.owner.must("serial", "transact", echo, `a\x00\xff\r\n\\`, "--size", "6"); got != "a\x00\xff\r\n\\" {
			t.Errorf("the echo of escapes is %q", got)
		}
		if got := b.owner.must("serial", "transact", echo, "00 ff:7f", "--hex", "--size", "3"); got != "00ff7f\n" {
			t.Errorf("the echo of hex is %q", got)
		}
		if got := b.owner.must("serial", "transact", echo, `\n`, "--raw", "--size", "2"); got != `\n` {
			t.Errorf("the echo of raw is %q", got)
		}
		if r := b.owner.feed("from a pipe", "serial", "transact", echo, "-", "--size", "11"); r.stdout != "from a pipe" {
			t.Errorf("the echo of stdin is %+v", r)
		}
		b.owner.fails(2, "USAGE", "serial", "write", echo, `\q`)
		b.owner.fails(2, "USAGE", "serial", "write", echo, "abc", "--hex")
	})

	t.Run("write and read", func(t *testing.T) {
		b.owner.must("serial", "write", echo, "held over", "--hold", "--drain")
		if got := b.owner.must("serial", "read", echo, "--size", "9", "--hold"); got != "held over" {
			t.Errorf("read says %q", got)
		}
		if got := b.owner.must("serial", "read", echo, "--timeout", "100ms"); got != "" {
			t.Errorf("reading nothing says %q", got)
		}
		b.owner.must("serial", "release", echo)
		written := parse[wire.SerialWritten](t, b.owner.must("serial", "write", echo, "five5", "--json"))
		if written.BytesWritten != 5 {
			t.Errorf("write --json says %+v", written)
		}
		// What comes back a moment later is still there to be read.
		if got := b.owner.must("serial", "read", echo, "--size", "5"); got != "five5" {
			t.Errorf("read after write says %q", got)
		}
	})

	t.Run("modes", func(t *testing.T) {
		for _, mode := range [][]string{{"--baud", "9600", "--parity", "even", "--stopbits", "2", "--bytesize", "7"}, {"--baud", "250000"}, {"--rtscts"}, {"--xonxoff"}} {
			args := append([]string{"serial", "transact", echo, "mode", "--size", "4"}, mode...)
			if got := b.owner.must(args...); got != "mode" {
				t.Errorf("%q is answered with %q", mode, got)
			}
		}
		for _, mode := range [][]string{{"--baud", "0"}, {"--bytesize", "9"}, {"--parity", "odd-ish"}, {"--stopbits", "3"}} {
			b.owner.fails(1, wire.InvalidArgument, append([]string{"serial", "read", echo, "--timeout", "10ms"}, mode...)...)
		}
	})

	t.Run("control", func(t *testing.T) {
		// A pty has no modem lines.
		e := b.owner.fails(1, wire.FeatureNotSupported, "serial", "control", echo, "--dtr", "off")
		if e.Details["device"] != echo {
			t.Errorf("details %v", e.Details)
		}
		b.owner.fails(2, "USAGE", "serial", "control", echo, "--dtr", "maybe")
	})

	t.Run("lease", func(t *testing.T) {
		agent := b.with(b.newToken("agent"))
		b.owner.must("serial", "write", psu, `*CLS\n`, "--hold")
		e := agent.fails(1, wire.HardwareBusy, "serial", "transact", psu, `*IDN?\n`, "--until", `\n`)
		if e.Details["holder"] == nil || e.Details["holder"] == "" {
			t.Errorf("details %v", e.Details)
		}
		agent.must("serial", "release", psu) // gives back what is its own: nothing
		agent.fails(1, wire.HardwareBusy, "serial", "read", psu)
		b.owner.must("serial", "release", psu)
		if got := agent.must("serial", "transact", psu, `*IDN?\n`, "--until", `\n`); got != serialsim.Identity+"\n" {
			t.Errorf("after the release it says %q", got)
		}
		// A session that ends gives back what it holds.
		agent.must("serial", "write", psu, `*CLS\n`, "--hold")
		b.owner.fails(1, wire.HardwareBusy, "serial", "read", psu)
		for _, s := range parse[struct {
			Sessions []struct {
				ID string `json:"session_id"`
			} `json:"sessions"`
		}](t, agent.must("sessions", "--json")).Sessions {
			agent.must("sessions", "close", s.ID)
		}
		if got := b.owner.must("serial", "transact", psu, `*IDN?\n`, "--until", `\n`); got != serialsim.Identity+"\n" {
			t.Errorf("after the end of the holder's session it says %q", got)
		}
	})

	t.Run("failures", func(t *testing.T) {
		b.owner.fails(1, wire.HardwareNotFound, "serial", "read", "serial:nothing")
		e := b.owner.fails(1, wire.FeatureNotSupported, "serial", "read", "gpio:pinctrl-bcm2711")
		if e.Details["op"] != "SERIAL_READ" {
			t.Errorf("details %v", e.Details)
		}
	})

	log := string(b.read(b.stateDir() + "/audit.log"))
	if strings.Contains(log, "held over") || strings.Contains(log, "IDN") {
		t.Error("the record has serial data")
	}
	n := 0
	for _, x := range b.records() {
		if x.Op == "HARDWARE_OP" && x.Details["device"] == psu && x.Details["op"] == "SERIAL_TRANSACT" && x.Details["bytes_in"] == float64(len(serialsim.Identity)+1) && x.Details["bytes_out"] == 6.0 {
			n++
		}
	}
	if n < 2 {
		t.Errorf("%d records of *IDN? with its bytes", n)
	}
	b.wholeAudit()
}
