package root

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Field cases 50, 51 and 52: what the image asks of the hardware watchdog, while
// it runs and while it restarts, is no more than the Pi's can count, which is
// below 16 s (drivers/watchdog/bcm2835_wdt.c); a longer wish leaves some kernels
// without a watchdog, and others restarting for ever.
func TestWatchdogIsWithinTheHardware(t *testing.T) {
	b, err := os.ReadFile("files/etc/systemd/system.conf.d/farhand.conf")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(map[string]int)
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			asked[key], _ = strconv.Atoi(value) // 0: not a plain number of seconds
		}
	}
	for _, key := range []string{"RuntimeWatchdogSec", "RebootWatchdogSec"} {
		if s := asked[key]; s < 5 || s > 15 {
			t.Errorf("%s is %d s, want at most 15", key, s)
		}
	}
}
