package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"farhand/provision/request"
)

// hardwareWatchdog is what the hardware's watchdog really runs with, on a machine
// without the appliance's helper; nil if there is none. WantedS is 0, since nobody
// here knows what the owner wants. The files below /sys/class/watchdog are for
// everybody to read (Linux, Documentation/ABI/testing/sysfs-class-watchdog).
func hardwareWatchdog(sys string) *request.Watchdog {
	dir := filepath.Join(sys, "class/watchdog/watchdog0")
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return ""
		}
		return string(bytes.TrimSpace(b))
	}
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	w := request.Watchdog{Identity: read("identity")}
	if read("state") == "active" {
		w.EffectiveS, _ = strconv.Atoi(read("timeout")) // 0: not known to run
	}
	return &w
}
