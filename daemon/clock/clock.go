// Package clock says how far this machine's clock can be trusted. A board
// without a battery starts with the date at which its image was built or that it
// last saved, and certificates seem to lie in the future until the network's
// time has come: the daemon waits for that a bounded time, takes a hint from the
// host that it trusts anyhow, and reports which of them its clock stands on.
package clock

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// State is what the clock stands on.
type State string

// The states, the best first.
const (
	Synchronised State = "synchronised" // the network's time came
	Hint         State = "hint"         // moved forward to the date of a host that was trusted already
	RTC          State = "rtc"          // a clock with a battery, and no network time yet
	Saved        State = "saved"        // not before the time that was saved last
	Floor        State = "floor"        // not before the image was built
	Unset        State = "unset"        // nothing at all: 1970
	// Unsynchronised is a clock that somebody set who doesn't say so, as on
	// machines that aren't appliances.
	Unsynchronised State = "unsynchronised"
)

// Trusted says whether a certificate that seems not to be valid yet can't be
// blamed on this clock.
func (s State) Trusted() bool { return s == Synchronised || s == RTC }

const (
	// stampFile is touched by systemd-timesyncd(8) with its first answer.
	stampFile = "run/systemd/timesync/synchronized"
	// timesyncDir is there while systemd-timesyncd runs (RuntimeDirectory=).
	timesyncDir = "run/systemd/timesync"
	// bootFile is where the initramfs tells, as key=value lines, what it did;
	// its key clock is floor, saved or rtc.
	bootFile = "run/farhand/slot"
	// hintFile is there once provision moved the clock to a hint.
	hintFile = "run/farhand/clock-hint"
	// rtcFile is 1 if the kernel set the clock from this device
	// (Documentation/ABI/testing/sysfs-class-rtc).
	rtcFile = "sys/class/rtc/rtc0/hctosys"
)

// built is a moment after which every Farhand was built: a clock before it is
// wrong.
var built = time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)

// poll is how often Wait looks.
const poll = 250 * time.Millisecond

// Clock looks at the clock of this machine. The zero value is ready to use. Its
// methods are safe for concurrent use.
type Clock struct {
	Root string // of /run and /sys; "/" if empty
	// Kernel says whether the kernel's clock is disciplined; nil: adjtimex(2).
	Kernel func() (bool, error)
}

// State looks what the clock stands on now.
func (c Clock) State() State {
	if c.synchronised() {
		return Synchronised
	}
	if c.exists(hintFile) {
		return Hint
	}
	switch s := c.booted(); s {
	case RTC, Saved, Floor:
		return s
	}
	switch {
	case time.Now().Before(built):
		return Unset
	case c.read(rtcFile) == "1":
		return RTC
	}
	return Unsynchronised
}

// Wait waits until the network's time has come, at most for the given time, and
// only where that can be expected: the clock is none to trust, and
// systemd-timesyncd runs. It returns the state then.
func (c Clock) Wait(ctx context.Context, most time.Duration) State {
	s := c.State()
	if s.Trusted() || !c.exists(timesyncDir) {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return c.State()
		case <-tick.C:
		}
		if c.synchronised() {
			return Synchronised
		}
	}
}

func (c Clock) synchronised() bool {
	kernel := c.Kernel
	if kernel == nil {
		kernel = disciplined
	}
	if ok, err := kernel(); err == nil && ok {
		return true
	}
	return c.exists(stampFile)
}

// booted is what the initramfs said of the clock.
func (c Clock) booted() State {
	for line := range strings.Lines(c.read(bootFile)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "clock="); ok {
			return State(value)
		}
	}
	return ""
}

func (c Clock) path(name string) string {
	if c.Root == "" {
		return "/" + name
	}
	return filepath.Join(c.Root, name)
}

func (c Clock) exists(name string) bool {
	_, err := os.Stat(c.path(name))
	return !errors.Is(err, os.ErrNotExist) && err == nil
}

// read is a small file without the space around it; empty if there is none.
func (c Clock) read(name string) string {
	b, err := os.ReadFile(c.path(name))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}
