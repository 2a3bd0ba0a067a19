package observe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/wire"
)

// tree writes files below a directory of its own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func all(Directory) bool { return true }

func TestTop(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/stat":                            "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 50 0 25 400 25 0 0 0 0 0\ncpu1 50 0 25 400 25 0 0 0 0 0\nintr 1\n",
		"proc/uptime":                          "3600.25 7000.00\n",
		"proc/loadavg":                         "0.20 0.18 1.12 1/80 11206\n",
		"proc/meminfo":                         "MemTotal:         500 kB\nMemFree:          20 kB\nMemAvailable:     300 kB\nSwapTotal:          0 kB\nSwapFree:           0 kB\n",
		"proc/pressure/io":                     "some avg10=12.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=0\n",
		"proc/self/cgroup":                     "1:name=other:/x\n0::/system.slice/farhandd.service\n",
		"sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
		"sys/class/thermal/thermal_zone0/temp": "48312\n",
		"sys/class/hwmon/hwmon0/name":          "nvme\n",
		"sys/class/hwmon/hwmon0/temp1_input":   "30000\n",
		"sys/fs/cgroup/system.slice/farhandd.service/memory.current": "1048576\n",
		"sys/fs/cgroup/system.slice/farhandd.service/memory.max":     "max\n",
		"sys/fs/cgroup/system.slice/farhandd.service/pids.current":   "7\n",
		"sys/fs/cgroup/system.slice/farhandd.service/cpu.stat":       "usage_usec 2500000\nuser_usec 1\n",
	})
	s := System{
		Root: root, Disks: []Directory{{What: DiskState, Path: root, Bare: true}, {What: DiskRoot, Path: filepath.Join(root, "missing")}, {What: DiskRoot, Path: "/hidden"}},
		Clock: func() string { return "rtc" }, Power: func() *wire.TopPower { return &wire.TopPower{Bits: 1, Text: "under-voltage", Weak: true} },
	}
	got, cpu := s.Top(CPU{busy: 50, total: 500}, func(d Directory) bool { return d.Path != "/hidden" })
	if cpu != (CPU{150, 1000}) {
		t.Errorf("processors %+v", cpu)
	}
	if got.Time < 1e9 || len(got.Disks) != 2 || got.Disks[0].Total <= 0 || got.Disks[0].Free <= 0 || got.Disks[0].Path != "" || got.Disks[1].Fault == "" {
		t.Errorf("%+v", got)
	}
	got.Time, got.Disks = 0, nil
	up, busy, memory, pids, used := 3600.25, 0.2, int64(1<<20), int64(7), 2.5
	want := wire.Top{
		Clock: "rtc", Uptime: &up, CPUs: 2, Busy: &busy, Load: []float64{0.20, 0.18, 1.12}, Processes: 80,
		Memory:       &wire.TopMemory{Total: 500 << 10, Available: 300 << 10},
		Pressure:     map[string]float64{"io": 0.125},
		Temperatures: []wire.TopTemperature{{Name: "cpu-thermal", Celsius: 48.312}},
		Power:        &wire.TopPower{Bits: 1, Text: "under-voltage", Weak: true},
		Cgroup:       &wire.TopCgroup{Memory: &memory, PIDs: &pids, CPU: &used},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A machine that tells nothing, or nonsense, is told of as far as it goes.
func TestTopOfNothing(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"nothing": {"x": ""},
		"nonsense": {
			"proc/stat": "cpu  a b\ncpu", "proc/uptime": "-1", "proc/loadavg": "NaN 1 2 3/4", "proc/meminfo": "MemTotal: 9223372036854775807 kB\nMemTotal\n:",
			"proc/pressure/cpu": "some avg10=Inf", "proc/self/cgroup": "0::/../../..", "sys/class/thermal/thermal_zone0/temp": "hot",
		},
	} {
		got, _ := System{Root: tree(t, files)}.Top(CPU{1, 1}, all)
		got.Time = 0
		if d := cmp.Diff(wire.Top{}, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestSensorsWithoutThermalZones(t *testing.T) {
	root := tree(t, map[string]string{
		"sys/class/hwmon/hwmon0/name": "nvme\n", "sys/class/hwmon/hwmon0/temp1_input": "30000\n", "sys/class/hwmon/hwmon0/temp1_label": "Compo\x1bsite\n",
		"sys/class/hwmon/hwmon1/name": strings.Repeat("n", 300), "sys/class/hwmon/hwmon1/temp1_input": "-5000\n",
	})
	got, _ := System{Root: root}.Top(CPU{}, all)
	want := []wire.TopTemperature{{Name: "nvme Composite", Celsius: 30}, {Name: strings.Repeat("n", maxName), Celsius: -5}}
	if d := cmp.Diff(want, got.Temperatures); d != "" {
		t.Error(d)
	}
}

// TestThisMachine looks at the real one.
func TestThisMachine(t *testing.T) {
	s := System{Disks: []Directory{{What: DiskRoot, Path: t.TempDir()}}}
	got, cpu := s.Top(CPU{}, all)
	if got.CPUs == 0 || len(got.Load) != 3 || got.Memory == nil || got.Uptime == nil || cpu.total == 0 || got.Disks[0].Total == 0 {
		t.Errorf("%+v", got)
	}
}
