// Package board reads what the hardware and its firmware say of themselves and
// what a device far away has to tell its owner: whether its power supply is too
// weak, which slot of the card it started from, and whether its bootloader is new
// enough for updates that can be taken back. Everything is read below an injected
// root; what a machine doesn't tell is absent, never an error.
package board

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Power are the firmware's bits about supply and temperature, as
// "vcgencmd get_throttled" shows them. The lower half is the present, the upper
// half what happened since the board was started.
type Power uint32

// The bits (documentation of Raspberry Pi OS, "get_throttled").
const (
	UnderVoltage Power = 1 << 0 // below 4.63 V
	Capped       Power = 1 << 1 // the clock is limited
	Throttled    Power = 1 << 2
	SoftLimit    Power = 1 << 3 // of the temperature
	everShift          = 16
	Known        Power = 0xf000f // what the words of String cover
)

// ParsePower reads "0x50005" or "throttled=0x50005".
func ParsePower(s string) (Power, error) {
	s = strings.TrimSpace(s)
	s = strings.TrimPrefix(s, "throttled=")
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 32)
	if err != nil {
		return 0, fmt.Errorf("%q are no bits of the firmware", s)
	}
	return Power(n), nil
}

// Weak says whether the supply is too weak right now: nothing that must not be
// interrupted should begin.
func (p Power) Weak() bool { return p&UnderVoltage != 0 }

// String says in words what is wrong, now and since the start; "ok" if nothing
// is.
func (p Power) String() string {
	now, ever := (p & Known).words(), (p >> everShift &^ p & 0xf).words()
	switch {
	case len(now) == 0 && len(ever) == 0:
		return "ok"
	case len(ever) == 0:
		return strings.Join(now, ", ")
	case len(now) == 0:
		return "ok now; since the start: " + strings.Join(ever, ", ")
	}
	return strings.Join(now, ", ") + "; since the start also: " + strings.Join(ever, ", ")
}

func (p Power) words() []string {
	var out []string
	for _, w := range []struct {
		bit  Power
		text string
	}{
		{UnderVoltage, "under-voltage"}, {Capped, "clock capped"}, {Throttled, "throttled"}, {SoftLimit, "too warm"},
	} {
		if p&w.bit != 0 {
			out = append(out, w.text)
		}
	}
	return out
}

// Boot is how the board started.
type Boot struct {
	Slot       string // a or b; empty where there are none
	SlotSource string // bootloader; cmdline, GRUB's of a machine with UEFI; or default where none said
	// Partition, Tryboot, Capabilities and BuildTimestamp are what the
	// bootloader left in the device tree; nil for what it doesn't say.
	Partition      *uint32
	Tryboot        *uint32
	Capabilities   *uint32
	BuildTimestamp *uint32 // seconds since 1970
	// OnCard says that this board's firmware comes from the card itself: there
	// is no older one in an EEPROM.
	OnCard bool
}

// Board looks at this machine. The zero value is ready to use.
type Board struct {
	Root string // of /proc, /sys, /run and /dev; "/" if empty
}

// slotFile is where the initramfs tells which slot it took.
const slotFile = "run/farhand/slot"

// bootloaderDir is where the Raspberry Pi's bootloader leaves what it did, as
// big-endian 32-bit cells ("/chosen/bootloader" of the configuration's
// documentation).
const bootloaderDir = "proc/device-tree/chosen/bootloader"

// Boot reads how the board started.
func (b Board) Boot() Boot {
	boot := Boot{
		Partition: b.cell("partition"), Tryboot: b.cell("tryboot"), Capabilities: b.cell("capabilities"), BuildTimestamp: b.cell("build-timestamp"),
		OnCard: b.compatible("brcm,bcm2837"),
	}
	for line := range strings.Lines(b.text(slotFile)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "slot":
			boot.Slot = value
		case "source":
			boot.SlotSource = value
		}
	}
	return boot
}

// autobootSince is the first bootloader in the default channel that understands
// the headings of autoboot.txt: before, the last boot_partition of the file won,
// whatever heading it stood under.
var autobootSince = time.Date(2022, time.December, 1, 0, 0, 0, 0, time.UTC)

// Updatable says whether an update could be tried on the other slot and taken
// back, and if not, why and what to do.
func (b Boot) Updatable() (ok bool, why string) {
	switch {
	case b.Slot == "":
		return false, "this system has no second slot"
	case b.SlotSource == "cmdline": // GRUB comes with the image, and tries either slot
		return true, ""
	case b.SlotSource != "bootloader":
		return false, "the bootloader doesn't say from which slot it started; update it with rpi-eeprom-update on Raspberry Pi OS"
	case b.OnCard:
		return true, ""
	case b.BuildTimestamp == nil:
		return false, "the bootloader doesn't tell its age; update it with rpi-eeprom-update on Raspberry Pi OS"
	}
	if built := b.Built(); built.Before(autobootSince) {
		return false, fmt.Sprintf("the bootloader of %s is too old to try a slot (%s or later); update it with rpi-eeprom-update on Raspberry Pi OS",
			built.Format(time.DateOnly), autobootSince.Format(time.DateOnly))
	}
	return true, ""
}

// Built is when the bootloader was built; zero if it doesn't say.
func (b Boot) Built() time.Time {
	if b.BuildTimestamp == nil {
		return time.Time{}
	}
	return time.Unix(int64(*b.BuildTimestamp), 0).UTC()
}

// Power reads the firmware's bits; false if this machine has none, or they may
// not be read. Three places have them: the firmware driver's own file and the
// mailbox device in Raspberry Pi's kernel, and in the mainline kernel, for the
// voltage alone, the driver raspberrypi-hwmon, whose alarm stays until it is
// read.
func (b Board) Power() (Power, bool) {
	files, _ := filepath.Glob(b.path("sys/devices/platform/soc*/*firmware/get_throttled"))
	for _, f := range files {
		if p, err := ParsePower(readText(f)); err == nil {
			return p, true
		}
	}
	if p, err := mailboxPower(b.path("dev/vcio")); err == nil {
		return p, true
	}
	names, _ := filepath.Glob(b.path("sys/class/hwmon/hwmon*/name"))
	for _, f := range names {
		if readText(f) != "rpi_volt" {
			continue
		}
		switch readText(filepath.Join(filepath.Dir(f), "in0_lcrit_alarm")) {
		case "0":
			return 0, true
		case "1":
			return UnderVoltage | UnderVoltage<<everShift, true
		}
	}
	return 0, false
}

// cell is one value of the bootloader.
func (b Board) cell(name string) *uint32 {
	raw, err := os.ReadFile(b.path(filepath.Join(bootloaderDir, name)))
	if err != nil || len(raw) != 4 {
		return nil
	}
	v := binary.BigEndian.Uint32(raw)
	return &v
}

// compatible says whether the board names itself compatible to this
// (Devicetree specification, section 2.3.1: strings that end with NUL).
func (b Board) compatible(with string) bool {
	raw, err := os.ReadFile(b.path("proc/device-tree/compatible"))
	if err != nil {
		return false
	}
	for name := range bytes.SplitSeq(raw, []byte{0}) {
		if string(name) == with {
			return true
		}
	}
	return false
}

func (b Board) text(name string) string { return readText(b.path(name)) }

func (b Board) path(name string) string {
	if b.Root == "" {
		return "/" + name
	}
	return filepath.Join(b.Root, name)
}

func readText(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(raw))
}
