package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"farhand/daemon"
	"farhand/daemon/clock"
	"farhand/provision/request"
	"farhand/wire"
)

func invoke(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), env{args: args, environ: []string{"HOME=" + t.TempDir()}, stdin: strings.NewReader(""), stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

// The keys of the configuration fill a screen: they stand where somebody looks
// for them and not under every verb.
func TestHelp(t *testing.T) {
	for _, c := range []struct {
		args []string
		keys bool
	}{{[]string{"--help"}, true}, {[]string{"run", "--help"}, true}, {[]string{"status", "--help"}, false}, {[]string{"audit", "tail", "--help"}, false}} {
		code, out, _ := invoke(t, c.args...)
		if code != exitOK || strings.Contains(out, "--limits-max-concurrent") != c.keys || !strings.Contains(out, "--config file") {
			t.Errorf("%q: exit %d:\n%s", c.args, code, out)
		}
	}
}

func TestStatusSaysHowToStart(t *testing.T) {
	file := t.TempDir() + "/none.toml"
	if code, _, errs := invoke(t, "status", "--state-dir", t.TempDir()); code != exitFailed || !strings.Contains(errs, "start it with: farhandd run") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, _, errs := invoke(t, "status", "--config", file); code != exitConfig {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestDoctorWithoutADaemon(t *testing.T) {
	root := t.TempDir()
	code, out, errs := invoke(t, "doctor", "--state-dir", t.TempDir(), "--sim", "--platform-url", "http://127.0.0.1:1", "--roots", root)
	if code != exitFailed || !strings.Contains(out, "start it with: farhandd run") || !strings.Contains(out, "and the simulated bench once the daemon runs") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestPrintStatus(t *testing.T) {
	var out bytes.Buffer
	if err := printStatus(&out, daemon.Status{State: daemon.StateOnline, Since: time.Now(), Capabilities: wire.Capabilities{wire.Files, wire.Shell}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "  files, shell\n") {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	old := time.Date(2022, 4, 26, 0, 0, 0, 0, time.UTC)
	machine := daemon.MachineStatus{
		ClockState: clock.Saved, MDNSName: "farhand-a1b2c32.local", Addresses: []string{"192.0.2.7"}, Power: "under-voltage", Wifi: request.WifiNoCountry,
		Slot: "b", SlotSource: "bootloader", Bootloader: &old, NotUpdatable: "the bootloader of 2022-04-26 is too old", NewBoard: true,
		Watchdog:    &request.Watchdog{Identity: "Broadcom BCM2835 Watchdog timer", WantedS: 15, EffectiveS: 15},
		Provisioned: []request.Item{{Item: "hostname", Outcome: request.OutcomeApplied}, {Item: "wlan.country", Outcome: request.OutcomeRefused, Why: "no such country"}},
	}
	if err := printStatus(&out, daemon.Status{State: daemon.StateConnecting, Since: time.Now(), Machine: machine}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"farhand-a1b2c32.local", "192.0.2.7", "saved", "under-voltage", "blocked (no country)", "b (by bootloader)", "2022-04-26 is too old",
		"after 15 s", "another than before", "wlan.country: refused: no such country",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q isn't in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "hostname") {
		t.Errorf("what was applied is told:\n%s", out.String())
	}
}
