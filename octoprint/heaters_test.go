package octoprint

import (
	"maps"
	"testing"
)

func TestTargetsOf(t *testing.T) {
	for line, want := range map[string]map[string]float64{
		"M104 S200": {"tool0": 200}, "m109 t1 r210.5": {"tool1": 210.5}, "N12 M140 S60*33 ; bed": {"bed": 60}, "N12 M140 S60 *33": {"bed": 60}, "M104S205T1": {"tool1": 205}, "m104 s 20": {"tool0": 20},
		"M190 S0": {"bed": 0}, "M141 S40": {"chamber": 40}, "M104": {}, "M104 S": {}, "; M104 S200": {}, "G1 X10": {}, "": {}, "N": {}, "M104 S1 S2": {"tool0": 2},
		"M104 T-1 S9": {"tool0": 9}, "SET_HEATER_TEMPERATURE HEATER=extruder TARGET=200": {"tool0": 200},
		"SET_HEATER_TEMPERATURE HEATER=extruder1 TARGET=200": {"tool1": 200}, "SET_HEATER_TEMPERATURE HEATER=heater_bed TARGET=60": {"bed": 60},
		"SET_HEATER_TEMPERATURE HEATER=x": {}, "SET_HEATER_TEMPERATURE HEATER=extruder": {"tool0": 0},
	} {
		if got := targetsOf([]string{line}); !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

func FuzzTargetsOf(f *testing.F) {
	f.Add("M104 T0 S200")
	f.Add("SET_HEATER_TEMPERATURE HEATER=extruder TARGET=1e3")
	f.Fuzz(func(t *testing.T, line string) {
		for name := range targetsOf([]string{line}) {
			if !heaterName.MatchString(name) {
				t.Errorf("%q: %q", line, name)
			}
		}
	})
}
