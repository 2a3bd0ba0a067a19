package board

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func fixture(t *testing.T, files ...string) Board {
	t.Helper()
	root := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(root, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Board{Root: root}
}

func cell(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

func day(year int, month time.Month, day int) string {
	return cell(uint32(time.Date(year, month, day, 12, 0, 0, 0, time.UTC).Unix()))
}

// TestUpdatable: field case 59, a bootloader that is too old for slots is told
// from one that isn't, and the slot is what the running system came from, not a
// guess.
func TestUpdatable(t *testing.T) {
	const (
		slot = "slot=b\nsource=bootloader\n"
		dir  = bootloaderDir + "/"
	)
	pi := func(soc string) []string {
		return []string{"proc/device-tree/compatible", "raspberrypi,some\x00brcm," + soc + "\x00"}
	}
	for _, c := range []struct {
		name  string
		files []string
		ok    bool
		why   string
	}{
		{"new", append(pi("bcm2711"), slotFile, slot, dir+"build-timestamp", day(2023, 1, 11)), true, ""},
		{"the first that can", append(pi("bcm2711"), slotFile, slot, dir+"build-timestamp", day(2022, 12, 1)), true, ""},
		{"too old", append(pi("bcm2711"), slotFile, slot, dir+"build-timestamp", day(2022, 4, 26)), false, "2022-04-26 is too old"},
		{"silent", append(pi("bcm2712"), slotFile, slot), false, "doesn't tell its age"},
		{"malformed", append(pi("bcm2712"), slotFile, slot, dir+"build-timestamp", "12"), false, "doesn't tell its age"},
		{"firmware on the card", append(pi("bcm2837"), slotFile, slot), true, ""},
		{"slot not told", append(pi("bcm2711"), slotFile, "slot=a\nsource=default\n", dir+"build-timestamp", day(2025, 1, 1)), false, "from which slot"},
		{"GRUB", []string{slotFile, "slot=b\nsource=cmdline\n"}, true, ""},
		{"an ordinary system", pi("bcm2711"), false, "no second slot"},
	} {
		boot := fixture(t, c.files...).Boot()
		ok, why := boot.Updatable()
		if ok != c.ok || !strings.Contains(why, c.why) || (why == "") != ok {
			t.Errorf("%s: %v, %q", c.name, ok, why)
		}
	}
}

func TestBoot(t *testing.T) {
	b := fixture(t, slotFile, "slot=b\nsource=bootloader\nclock=saved\n",
		bootloaderDir+"/partition", cell(3), bootloaderDir+"/tryboot", cell(1), bootloaderDir+"/capabilities", cell(0x7f)).Boot()
	if b.Slot != "b" || b.SlotSource != "bootloader" || *b.Partition != 3 || *b.Tryboot != 1 || *b.Capabilities != 0x7f || b.BuildTimestamp != nil || !b.Built().IsZero() {
		t.Errorf("%+v", b)
	}
	if empty := fixture(t).Boot(); empty != (Boot{}) {
		t.Errorf("a machine that says nothing: %+v", empty)
	}
}

// TestPower: field case 74, a weak supply is seen where each kernel shows it.
func TestPower(t *testing.T) {
	const hwmon = "sys/class/hwmon/hwmon1/"
	for _, c := range []struct {
		name  string
		files []string
		want  Power
		known bool
	}{
		{"Raspberry Pi's kernel", []string{"sys/devices/platform/soc/soc:firmware/get_throttled", "50005\n"}, 0x50005, true},
		{"mainline, fine", []string{hwmon + "name", "rpi_volt\n", hwmon + "in0_lcrit_alarm", "0\n"}, 0, true},
		{"mainline, weak", []string{hwmon + "name", "rpi_volt\n", hwmon + "in0_lcrit_alarm", "1\n"}, 0x10001, true},
		{"another sensor", []string{hwmon + "name", "cpu_thermal\n", hwmon + "in0_lcrit_alarm", "1\n"}, 0, false},
		{"no device", []string{"dev/vcio", "not a device"}, 0, false},
		{"nothing", nil, 0, false},
	} {
		got, known := fixture(t, c.files...).Power()
		if got != c.want || known != c.known {
			t.Errorf("%s: %#x, %v", c.name, uint32(got), known)
		}
	}
}

func TestPowerInWords(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
		weak bool
	}{
		{"throttled=0x0", "ok", false},
		{"0x50005", "under-voltage, throttled", true},
		{"0x50000\n", "ok now; since the start: under-voltage, throttled", false},
		{"0xe0002", "clock capped; since the start also: throttled, too warm", false},
		{"0x10008", "too warm; since the start also: under-voltage", false},
	} {
		p, err := ParsePower(c.text)
		if err != nil || p.String() != c.want || p.Weak() != c.weak {
			t.Errorf("%q: %q, %v, %v", c.text, p, p.Weak(), err)
		}
	}
	for _, bad := range []string{"", "throttled=", "0x", "sixteen", "0x100000000"} {
		if p, err := ParsePower(bad); err == nil {
			t.Errorf("%q is %v", bad, p)
		}
	}
}

func FuzzPower(f *testing.F) {
	for _, s := range []string{"throttled=0x50005", "0x0", "50000\n", "", "0xfffffffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePower(s)
		if err != nil {
			return
		}
		if text := p.String(); text == "" || (text == "ok") != (p&Known == 0) || p.Weak() != strings.HasPrefix(text, "under-voltage") {
			t.Errorf("%#x is %q", uint32(p), text)
		}
	})
}
