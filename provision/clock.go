package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"farhand/provision/request"
)

// clockFile's time of change is the floor of the clock at the next start: the
// initramfs sets a clock that is behind it to it (field case 77).
const clockFile = systemData + "/clock"

// Clock is the system's clock.
type Clock interface {
	Now() time.Time
	// Uptime is how long ago the machine started, whatever was set since
	// (CLOCK_BOOTTIME).
	Uptime() time.Duration
	// Synchronised says whether the kernel was told that the clock is right
	// (adjtimex(2), STA_UNSYNC).
	Synchronised() bool
	// Set is clock_settime(2) of CLOCK_REALTIME.
	Set(time.Time) error
}

// hintFile is there from the first hint of this boot on, and holds hints.
const hintFile = runDir + "/clock-hint"

// hints are what was taken since the start. They are kept outside of the
// process: that leaves when it is idle, and a bound that ends with it is none.
type hints struct {
	Taken int `json:"taken"`
	// Latest is the latest time, in seconds since 1970, that is believed. The
	// first hint fixes it, so that several don't add up.
	Latest int64 `json:"latest"`
}

func (s *System) hints() (h hints, err error) {
	b, err := readLimited(s.path(hintFile), 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return hints{}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		return hints{}, fmt.Errorf("read which hints were taken: %w", err)
	}
	return h, nil
}

// keepEvery is how often the time is kept. It bounds how far behind the clock of
// a board without a battery is after a power cut.
const keepEvery = time.Hour

// keepTime notes on the data partition that it is at least now, if that is sure
// and was last noted a while ago.
func (s *System) keepTime() error {
	if !s.Clock.Synchronised() {
		return nil
	}
	now := s.Clock.Now()
	info, err := os.Stat(s.path(clockFile))
	if err == nil && now.Sub(info.ModTime()) < keepEvery {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = s.install(clockFile, nil, 0o644, 0, 0)
	}
	if err == nil {
		err = os.Chtimes(s.path(clockFile), now, now)
	}
	if err != nil {
		return fmt.Errorf("keep the time: %w", err)
	}
	return nil
}

// A hint may come from a relay that lies, so it only ever moves an
// unsynchronised clock forward, a few times a boot, and never further than a
// card can reasonably have lain in a drawer.
const (
	maxHints = 3
	maxAhead = 10 * 365 * 24 * time.Hour
)

// hint sets the clock to what a pinned host said.
func (s *System) hint(h request.ClockHint) error {
	now, then := s.Clock.Now(), time.Unix(h.Unix, 0)
	past, err := s.hints()
	if err != nil {
		return err
	}
	if past.Taken == 0 {
		past.Latest = later(now, time.Unix(s.clockFloor(), 0)).Add(maxAhead).Unix()
	}
	switch {
	case s.Clock.Synchronised():
		return &request.Error{Code: request.Refused, Message: "the clock is synchronised"}
	case past.Taken >= maxHints:
		return &request.Error{Code: request.Refused, Message: fmt.Sprintf("%d hints were taken since the start", past.Taken)}
	case !then.After(now):
		return &request.Error{Code: request.Refused, Message: "the hint is no later than the clock"}
	case h.Unix > past.Latest:
		return &request.Error{Code: request.Refused, Message: "the hint is more than ten years ahead"}
	}
	past.Taken++
	b, err := json.Marshal(past)
	if err == nil {
		// The daemon, too, tells by it what the clock stands on.
		err = s.install(hintFile, b, 0o644, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("note that a hint is taken: %w", err)
	}
	if err := s.Clock.Set(then); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	s.Log.Warn("the clock was set to what the relay says", "from", now.UTC(), "to", then.UTC())
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
