package daemon

import (
	"strings"
	"testing"
	"time"

	"farhand/daemon/board"
	"farhand/daemon/clock"
	"farhand/provision/request"
)

// TestDoctorOnTheMachine: field cases 50 and 51 (a watchdog that doesn't run, or
// longer than wanted), 59 (a bootloader that is too old for slots), 72 (a disk
// that takes nothing), 74 (a weak supply), 77 (the clock) and 82 (no country).
func TestDoctorOnTheMachine(t *testing.T) {
	old := uint32(time.Date(2022, 4, 26, 0, 0, 0, 0, time.UTC).Unix())
	var tooOld, silent MachineStatus
	tooOld.setBoot(board.Boot{Slot: "a", SlotSource: "bootloader", BuildTimestamp: &old})
	silent.setBoot(board.Boot{Slot: "a", SlotSource: "default"})
	dog := func(effective int) *request.Watchdog { return &request.Watchdog{WantedS: 15, EffectiveS: effective} }
	for _, c := range []struct {
		machine MachineStatus
		about   string
		level   Level // empty: nothing is said
		words   string
	}{
		{MachineStatus{ClockState: clock.Floor}, "time", Warn, "floor"},
		{MachineStatus{ClockState: clock.Synchronised}, "time", OK, "synchronised"},
		{MachineStatus{ClockState: clock.Unsynchronised}, "time", Info, "nobody"},
		{MachineStatus{Power: "under-voltage", WeakPower: true}, "power", Warn, "under-voltage"},
		{MachineStatus{Power: "ok now; since the start: under-voltage"}, "power", Info, "since the start"},
		{MachineStatus{Power: "ok"}, "power", OK, "ok"},
		{MachineStatus{}, "power", "", ""},
		{tooOld, "updates", Warn, "2022-04-26 is too old"},
		{silent, "updates", Warn, "doesn't say"},
		{MachineStatus{Slot: "b", Updatable: true}, "updates", OK, "slot b"},
		{MachineStatus{Watchdog: dog(0)}, "watchdog", Fail, "runs with 0 s"},
		{MachineStatus{Watchdog: dog(60)}, "watchdog", Fail, "runs with 60 s"},
		{MachineStatus{Watchdog: dog(15)}, "watchdog", OK, "15 s"},
		{MachineStatus{Wifi: request.WifiNoCountry}, "wifi", Warn, "no country"},
		{MachineStatus{Degraded: "the state disk is read-only"}, "disk", Fail, "read-only"},
	} {
		if c.machine.ClockState == "" {
			c.machine.ClockState = clock.RTC
		}
		var got *Finding
		for _, f := range checkMachine(c.machine) {
			if f.About == c.about {
				got = &f
			}
		}
		switch {
		case got == nil && c.level != "":
			t.Errorf("%+v: nothing about %s", c.machine, c.about)
		case got != nil && (got.Level != c.level || !strings.Contains(got.Found, c.words)):
			t.Errorf("%+v: %+v", c.machine, *got)
		}
	}
}
