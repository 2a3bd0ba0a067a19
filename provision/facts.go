package provision

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"farhand/internal/atomicfile"
	"farhand/provision/preseed"
	"farhand/provision/request"
)

// watchdogWanted is what the image tells systemd to set the hardware watchdog
// to, in seconds (RuntimeWatchdogSec; the Pi's counter ends at 15: field case
// 50).
const watchdogWanted = 15

// bootReport is boot.json: what Boot found out, for Serve.
type bootReport struct {
	Report   []preseed.Item `json:"report,omitempty"`
	Degraded string         `json:"degraded,omitempty"`
	Store    string         `json:"store"` // its path

	// What of the daemon's configuration the store doesn't say.
	StateDir     string   `json:"state_dir,omitempty"`
	ClaimKeyFile string   `json:"claim_key_file,omitempty"`
	Roots        []string `json:"roots,omitzero"`
}

// maxReport is how many items are told to the daemon; its line is bounded.
const maxReport = 100

func (b *boot) publish() {
	items := append(append([]preseed.Item{}, b.notes...), b.store.Report...)
	r := bootReport{
		Report: items[:min(len(items), maxReport)], Degraded: b.degraded, Store: b.storePath(),
		StateDir: b.rendered.StateDir, ClaimKeyFile: b.rendered.ClaimKeyFile, Roots: b.rendered.Settings.Farhand.Roots,
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = atomicfile.Write(b.path(bootFile), data, 0o600)
	}
	b.failed("keep the report", err)
}

func (s *System) loadReport() (bootReport, error) {
	b, err := readLimited(s.path(bootFile), maxStore)
	if err != nil {
		return bootReport{}, err
	}
	var r bootReport
	return r, json.Unmarshal(b, &r)
}

// facts are what doesn't hang on what the daemon asked for.
func (s *System) facts(st store, r bootReport) request.Facts {
	slot := s.slot()
	f := request.Facts{
		Slot: slot["slot"], SlotSource: slot["source"],
		ClockFloor: s.clockFloor(), Wifi: s.wifi(st.effective()), Watchdog: s.watchdog(), Bootloader: s.bootloader(),
		Degraded: r.Degraded, Cloned: st.Cloned,
	}
	for _, i := range r.Report {
		f.Report = append(f.Report, request.Item(i))
	}
	return f
}

// slot is what the initramfs left: slot, source, boot and system.
func (s *System) slot() map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(s.read(slotFile)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		m[key] = value
	}
	return m
}

// clockFloor is when the clock was last known to be right, or rather not below.
func (s *System) clockFloor() int64 {
	info, err := os.Stat(s.path(clockFile))
	if err != nil {
		return 0
	}
	return info.ModTime().Unix()
}

// deviceTree is a property of the device tree; nil if it has none.
func (s *System) deviceTree(name string) []byte {
	b, err := os.ReadFile(s.path("/proc/device-tree", name))
	if err != nil {
		return nil
	}
	return b[:min(len(b), 4096)]
}

// bootloader is what the firmware says of itself (Raspberry Pi documentation,
// "chosen/bootloader"): 32-bit numbers, highest byte first.
func (s *System) bootloader() request.Bootloader {
	number := func(name string) *uint32 {
		b := s.deviceTree(filepath.Join("chosen/bootloader", name))
		if len(b) != 4 {
			return nil
		}
		n := binary.BigEndian.Uint32(b)
		return &n
	}
	return request.Bootloader{
		Partition: number("partition"), Tryboot: number("tryboot"),
		BuildTimestamp: number("build-timestamp"), Capabilities: number("capabilities"),
	}
}

// watchdog is what the hardware really runs with (Linux,
// Documentation/ABI/testing/sysfs-class-watchdog).
func (s *System) watchdog() *request.Watchdog {
	const dir = "/sys/class/watchdog/watchdog0"
	if _, err := os.Stat(s.path(dir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	w := request.Watchdog{Identity: s.read(dir + "/identity"), WantedS: watchdogWanted}
	if s.read(dir+"/state") == "active" {
		w.EffectiveS, _ = strconv.Atoi(s.read(dir + "/timeout")) // 0: not known to run
	}
	return &w
}
