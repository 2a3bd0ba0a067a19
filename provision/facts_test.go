package provision

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"farhand/provision/preseed"
	"farhand/provision/request"
)

// Field cases 50 to 52: what the watchdog really runs with is told beside what
// it was told to.
func TestWatchdog(t *testing.T) {
	m := newMachine(t)
	if w := m.watchdog(); w != nil {
		t.Errorf("%+v without a device", w)
	}
	m.write("/sys/class/watchdog/watchdog0/identity", "Broadcom BCM2835 Watchdog timer\n")
	m.write("/sys/class/watchdog/watchdog0/timeout", "15\n")
	m.write("/sys/class/watchdog/watchdog0/state", "inactive\n")
	if w := m.watchdog(); w.EffectiveS != 0 || w.WantedS != 15 {
		t.Errorf("%+v", w)
	}
	m.write("/sys/class/watchdog/watchdog0/state", "active\n")
	if w := m.watchdog(); w.EffectiveS != 15 || !strings.HasPrefix(w.Identity, "Broadcom") {
		t.Errorf("%+v", w)
	}
}

// Field case 59: the slot is what runs, the bootloader's age is told.
func TestBootloaderAndSlot(t *testing.T) {
	m := newMachine(t)
	if b := m.bootloader(); b != (request.Bootloader{}) {
		t.Errorf("%+v without one", b)
	}
	for name, value := range map[string]string{"partition": "\x00\x00\x00\x03", "tryboot": "\x00\x00\x00\x01", "build-timestamp": "\x65\x00\x00\x00", "capabilities": "\x00"} {
		m.write("/proc/device-tree/chosen/bootloader/"+name, value)
	}
	b := m.bootloader()
	if *b.Partition != 3 || *b.Tryboot != 1 || *b.BuildTimestamp != 0x65000000 || b.Capabilities != nil {
		t.Errorf("%+v", b)
	}
	f := m.facts(store{}, bootReport{Degraded: "x", Report: []preseed.Item{{Item: "a"}}})
	if f.Slot != "a" || f.SlotSource != "bootloader" || f.Degraded != "x" || len(f.Report) != 1 {
		t.Errorf("%+v", f)
	}
}

// Field case 82: a radio without its country is off, and that is what is said.
func TestRadio(t *testing.T) {
	m := newMachine(t)
	network := preseed.Settings{Wifi: &preseed.Wifi{SSID: []byte{0xff, 'a'}, PSK: strings.Repeat("0", 64)}}
	if f := m.wifi(network); f.State != request.WifiNone {
		t.Errorf("%+v without a radio", f)
	}
	m.write("/sys/class/ieee80211/phy0/", "")
	for name, value := range map[string]string{"type": "wlan\n", "soft": "0\n", "hard": "0\n"} {
		m.write("/sys/class/rfkill/rfkill1/"+name, value)
	}
	m.write("/sys/class/rfkill/rfkill0/type", "bluetooth\n")
	m.write("/sys/class/rfkill/rfkill0/soft", "1\n")
	soft := func() string { return strings.TrimSpace(m.file("/sys/class/rfkill/rfkill1/soft")) }

	if f := m.wifi(preseed.Settings{}); f.State != request.WifiOff {
		t.Errorf("%+v without a network", f)
	}
	if err := m.radio(network); err != nil || soft() != "1" {
		t.Errorf("soft %s, %v", soft(), err)
	}
	if f := m.wifi(network); f.State != request.WifiNoCountry || f.SSIDHex != "ff61" {
		t.Errorf("%+v without a country", f)
	}
	network.Country = "DE"
	if f := m.wifi(network); f.State != request.WifiBlocked {
		t.Errorf("%+v behind a switch", f)
	}
	if err := m.radio(network); err != nil || soft() != "0" {
		t.Errorf("soft %s, %v", soft(), err)
	}
	if f := m.wifi(network); f.State != request.WifiReady || f.Country != "DE" {
		t.Errorf("%+v", f)
	}
	network.Wifi.PSK = ""
	if f := m.wifi(network); f.State != request.WifiOpen {
		t.Errorf("%+v", f)
	}
	if got := m.file("/sys/class/rfkill/rfkill0/soft"); got != "1\n" {
		t.Error("another radio was switched")
	}
}

// Field case 77: a hint moves the clock forward, within bounds, and not once it
// is right.
func TestClockHint(t *testing.T) {
	m := newMachine(t)
	m.boot()
	srv := m.server()
	hint := func(d time.Duration) error {
		return srv.SetClockHint(t.Context(), request.ClockHint{Unix: m.clock.now.Add(d).Unix()})
	}
	for _, d := range []time.Duration{0, -time.Hour, 11 * 365 * 24 * time.Hour, 1 << 62} {
		if err := hint(d); !errors.Is(err, request.Refused) {
			t.Errorf("%v: %v", d, err)
		}
	}
	start := m.clock.now
	for n := range maxHints {
		srv = m.server() // one that leaves when idle doesn't forget
		if n == 1 {
			if err := hint(maxAhead); !errors.Is(err, request.Refused) {
				t.Errorf("hints that add up: %v", err)
			}
		}
		if err := hint(time.Hour); err != nil {
			t.Error(err)
		}
		m.clock.now = start.Add(time.Duration(n+1) * time.Hour)
	}
	srv = m.server()
	if err := hint(time.Hour); !errors.Is(err, request.Refused) {
		t.Errorf("one too many: %v", err)
	}
	if len(m.clock.set) != maxHints {
		t.Errorf("set to %v", m.clock.set)
	}
	m.clock.sync = true
	if err := os.Remove(m.path(hintFile)); err != nil {
		t.Fatal(err)
	}
	if err := hint(time.Hour); !errors.Is(err, request.Refused) {
		t.Errorf("synchronised: %v", err)
	}
}

// Field case 77: the time is kept once an hour while it is known to be right.
func TestTimeIsKept(t *testing.T) {
	m := newMachine(t)
	m.boot()
	kept := func() time.Time {
		t.Helper()
		if err := m.keepTime(); err != nil {
			t.Fatal(err)
		}
		return time.Unix(m.clockFloor(), 0).UTC()
	}
	if got := kept(); got.Unix() != 0 {
		t.Errorf("kept %v, which nobody knows to be right", got)
	}
	start := m.clock.now
	m.clock.sync = true
	if got := kept(); !got.Equal(start) {
		t.Errorf("kept %v", got)
	}
	m.clock.now = start.Add(keepEvery - time.Second)
	if got := kept(); !got.Equal(start) {
		t.Errorf("kept again: %v", got)
	}
	m.clock.now = start.Add(keepEvery)
	if got := kept(); !got.Equal(m.clock.now) {
		t.Errorf("kept %v", got)
	}
	if info, err := os.Stat(m.path(clockFile)); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
}
