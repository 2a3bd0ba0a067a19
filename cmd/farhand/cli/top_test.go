package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"farhand/wire"
)

func TestTopFits(t *testing.T) {
	up, busy, memory, limit, tasks := 86400.5, 0.95, int64(19<<20), int64(200<<20), int64(12)
	full := wire.Top{
		Time: 1712345678.25, Clock: "synchronised", Uptime: &up, CPUs: 4, Busy: &busy, Load: []float64{0.2, 0.18, 0.12},
		Memory: &wire.TopMemory{Total: 900 << 20, Available: 10 << 20, SwapTotal: 1 << 20}, Pressure: map[string]float64{"io": 0.6, "cpu": 0},
		Temperatures: []wire.TopTemperature{{Name: "cpu-thermal", Celsius: 84.2}},
		Power:        &wire.TopPower{Bits: 1, Text: "under-voltage; since the start also: throttled", Weak: true},
		Disks: []wire.TopDisk{
			{What: "state", Total: 30 << 30, Free: 20 << 30}, {What: "root", Path: "/data/work", Total: 30 << 30, Free: 1 << 30, ReadOnly: true},
			{What: "root", Path: "/gone", Fault: "no such file or directory"},
		},
		Cgroup: &wire.TopCgroup{Memory: &memory, MemoryMax: &limit, PIDs: &tasks},
	}
	for _, colour := range []bool{false, true} {
		a := &app{style: style{out: painter(colour), room: func() int { return 40 }}}
		table := a.topTable(full)
		text := table.text(a.style.out, a.style.width())
		for _, want := range []string{"95 % of 4", "0.20 0.18 0.12", "84.2 °C", "under-voltage", "read-only", "no such file", "12 tasks", "waiting for io"} {
			if !colour && !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "waiting for cpu") || strings.Contains(text, "\x1b") != colour {
			t.Errorf("%q", text)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 40 && !colour {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		empty := a.topTable(wire.Top{Time: 1})
		if n := len(empty.rows); n != 1 {
			t.Errorf("of nothing there are %d rows", n)
		}
	}
}
