package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"farhand/provision/request"
)

// Field cases 50, 51 and 52: what counts is what the hardware runs with, not what it
// was told.
func TestHardwareWatchdog(t *testing.T) {
	sys := t.TempDir()
	if w := hardwareWatchdog(sys); w != nil {
		t.Errorf("%+v where there is none", w)
	}
	dir := filepath.Join(sys, "class/watchdog/watchdog0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("identity", "Broadcom BCM2835 Watchdog timer\n")
	write("timeout", "15\n")
	write("state", "inactive\n")
	if w := hardwareWatchdog(sys); w == nil || w.EffectiveS != 0 || w.Identity != "Broadcom BCM2835 Watchdog timer" {
		t.Errorf("%+v", w)
	}
	write("state", "active\n")
	if w := hardwareWatchdog(sys); w == nil || w.EffectiveS != 15 {
		t.Errorf("%+v", w)
	}
	for _, c := range []struct {
		w    request.Watchdog
		want Level
	}{
		{request.Watchdog{WantedS: 15, EffectiveS: 15}, OK}, {request.Watchdog{WantedS: 15}, Fail}, {request.Watchdog{WantedS: 15, EffectiveS: 60}, Fail},
		{request.Watchdog{EffectiveS: 10}, OK}, {request.Watchdog{}, Info},
	} {
		found := false
		for _, f := range checkMachine(MachineStatus{Watchdog: &c.w}) {
			if f.About == "watchdog" {
				found = true
				if f.Level != c.want {
					t.Errorf("%+v: %+v, want %s", c.w, f, c.want)
				}
			}
		}
		if !found {
			t.Errorf("%+v: nothing said", c.w)
		}
	}
}
