package hardware

import (
	"slices"
	"strings"
	"testing"
)

func TestBusesAreSortedAndKnown(t *testing.T) {
	var names []string
	for _, b := range Buses() {
		names = append(names, b.Name)
		if found, ok := Find(b.Name); !ok || found.Doc != b.Doc {
			t.Errorf("%s isn't found", b.Name)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("not sorted: %v", names)
	}
	if _, ok := Find("uart9"); ok {
		t.Error("uart9 exists")
	}
}

// section is what the firmware reads of the include file on a model.
func section(include []byte, model string) []string {
	var lines []string
	reads := true
	for line := range strings.Lines(string(include)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "["):
			reads = line == "["+model+"]" || line == "[all]"
		case reads && line != "" && !strings.HasPrefix(line, "#"):
			lines = append(lines, line)
		}
	}
	return lines
}

func TestInclude(t *testing.T) {
	for _, c := range []struct {
		wanted map[string]bool
		model  string
		want   []string
	}{
		{nil, "pi3", []string{"dtoverlay=i2c1-bcm2837", "dtoverlay=spi0-bcm2837"}},
		{nil, "pi02", []string{"dtoverlay=i2c1-bcm2837", "dtoverlay=spi0-bcm2837"}},
		{nil, "pi5", []string{"dtoverlay=i2c1-bcm2712"}},
		{map[string]bool{"i2c1": false, "spi0": false}, "pi4", []string{"dtoverlay=no-i2c1-bcm2711"}},
		{map[string]bool{"i2c1": false}, "pi5", nil},
		{map[string]bool{"uart5": true, "w1": true, "spi0": false}, "pi4", []string{"dtoverlay=i2c1-bcm2711", "dtoverlay=uart5-bcm2711", "dtoverlay=w1-bcm2711"}},
		{map[string]bool{"uart5": true, "spi0": false}, "pi3", []string{"dtoverlay=i2c1-bcm2837"}},
		{map[string]bool{"nonsense": true}, "pi2", nil},
	} {
		got := section(Include(c.wanted), c.model)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v on %s: %q, want %q", c.wanted, c.model, got, c.want)
		}
	}
}

// The firmware reads at most 98 characters of a line of config.txt and its
// includes (Raspberry Pi documentation, config.txt).
func TestIncludeLines(t *testing.T) {
	all := make(map[string]bool)
	for _, b := range Buses() {
		all[b.Name] = true
	}
	none := make(map[string]bool)
	for name := range all {
		none[name] = false
	}
	include := slices.Concat(Include(all), Include(none))
	for line := range strings.Lines(string(include)) {
		if len(line) > 98 {
			t.Errorf("%d characters: %q", len(line), line)
		}
	}
	for _, o := range Overlays() {
		if !strings.Contains(string(include), "dtoverlay="+o+"\n") {
			t.Errorf("overlay %s is never named", o)
		}
	}
}

func TestSoC(t *testing.T) {
	for compatible, want := range map[string]string{
		"raspberrypi,3-model-b\x00brcm,bcm2837\x00": BCM2837,
		"raspberrypi,4-model-b\x00brcm,bcm2711\x00": BCM2711,
		"raspberrypi,5-model-b\x00brcm,bcm2712\x00": BCM2712,
		"linux,dummy-virt\x00":                      "",
		"":                                          "",
	} {
		if got := SoC([]byte(compatible)); got != want {
			t.Errorf("%q: %q, want %q", compatible, got, want)
		}
	}
}

func TestMissing(t *testing.T) {
	wanted := map[string]bool{"uart3": true, "uart2": true, "i2c1": true, "uart4": false}
	if got := Missing(wanted, BCM2837); !slices.Equal(got, []string{"uart2", "uart3"}) {
		t.Errorf("missing: %v", got)
	}
	if got := Missing(wanted, BCM2711); got != nil {
		t.Errorf("missing: %v", got)
	}
}
