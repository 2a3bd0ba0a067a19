package observe

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"farhand/wire"
)

// System looks at how this machine is doing. Its methods are safe for concurrent
// use.
type System struct {
	Root  string      // of /proc and /sys; "/" if empty
	Disks []Directory // whose file systems are of interest
	// Clock says what the clock stands on, Power what the firmware says of the
	// supply; nil: unknown.
	Clock func() string
	Power func() *wire.TopPower
}

// What a Directory is (wire.TopDisk.What).
const (
	DiskRoot  = "root"  // one of the roots
	DiskState = "state" // the daemon's own
)

// Directory is one whose file system is of interest.
type Directory struct {
	What string // DiskRoot or DiskState
	Path string
	Bare bool // the path isn't told
}

// Bounds of what is told, whatever the kernel has.
const (
	maxSensors = 32
	maxName    = 64 // characters of a sensor's name
)

// CPU is the processors' time up to a moment, in ticks of which only ratios
// matter.
type CPU struct{ busy, total uint64 }

// CPU reads the processors' time. It is zero where it can't be read.
func (s System) CPU() CPU {
	for line := range bytes.Lines(s.read("proc/stat")) {
		rest, ok := bytes.CutPrefix(line, []byte("cpu "))
		if !ok {
			continue
		}
		// user nice system idle iowait irq softirq steal; guest time is in user's
		// (proc_stat(5)).
		var c CPU
		for i, field := range strings.Fields(string(rest)) {
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return CPU{}
			}
			if i >= 8 {
				break
			}
			c.total += n
			if i != 3 && i != 4 {
				c.busy += n
			}
		}
		return c
	}
	return CPU{}
}

// Top looks once. before is an earlier look at the processors' time, from which
// on it is told how busy they were; the answer's own is the second value. see
// says which directories are told.
func (s System) Top(before CPU, see func(Directory) bool) (wire.Top, CPU) {
	now := s.CPU()
	t := wire.Top{
		Time: math.Floor(float64(time.Now().UnixMicro())/1e3) / 1e3, Memory: s.memory(), Pressure: s.pressure(),
		Temperatures: s.temperatures(), Disks: s.disks(see), Cgroup: s.cgroup(),
	}
	if s.Clock != nil {
		t.Clock = s.Clock()
	}
	if s.Power != nil {
		t.Power = s.Power()
	}
	if up := strings.Fields(string(s.read("proc/uptime"))); len(up) > 0 {
		t.Uptime = number(up[0])
	}
	if now.total > before.total && before.total > 0 && now.busy >= before.busy {
		busy := math.Round(float64(now.busy-before.busy)/float64(now.total-before.total)*1e3) / 1e3
		t.Busy = &busy
	}
	t.CPUs = s.cpus()
	s.load(&t)
	return t, now
}

func (s System) cpus() int {
	n := 0
	for line := range bytes.Lines(s.read("proc/stat")) {
		if len(line) > 3 && bytes.HasPrefix(line, []byte("cpu")) && line[3] >= '0' && line[3] <= '9' {
			n++
		}
	}
	return n
}

// load reads "0.20 0.18 0.12 1/80 11206" (proc_loadavg(5)).
func (s System) load(t *wire.Top) {
	fields := strings.Fields(string(s.read("proc/loadavg")))
	if len(fields) < 4 {
		return
	}
	for _, f := range fields[:3] {
		v := number(f)
		if v == nil {
			t.Load = nil
			return
		}
		t.Load = append(t.Load, *v)
	}
	if _, all, ok := strings.Cut(fields[3], "/"); ok {
		if n, err := strconv.Atoi(all); err == nil && n >= 0 {
			t.Processes = n
		}
	}
}

func (s System) memory() *wire.TopMemory {
	var m wire.TopMemory
	wanted := map[string]*int64{"MemTotal": &m.Total, "MemAvailable": &m.Available, "SwapTotal": &m.SwapTotal, "SwapFree": &m.SwapFree}
	for line := range bytes.Lines(s.read("proc/meminfo")) {
		name, rest, _ := strings.Cut(string(line), ":")
		to := wanted[name]
		fields := strings.Fields(rest)
		if to == nil || len(fields) == 0 {
			continue
		}
		if kib, err := strconv.ParseInt(fields[0], 10, 64); err == nil && kib >= 0 && kib < math.MaxInt64>>10 {
			*to = kib << 10
		}
	}
	if m.Total == 0 {
		return nil
	}
	return &m
}

// pressure reads lines such as "some avg10=1.53 avg60=..." (PSI,
// Documentation/accounting/psi.rst).
func (s System) pressure() map[string]float64 {
	var out map[string]float64
	for _, of := range []string{"cpu", "memory", "io"} {
		_, rest, ok := strings.Cut(string(s.read("proc/pressure/"+of)), "some avg10=")
		if !ok {
			continue
		}
		text, _, _ := strings.Cut(rest, " ")
		if percent := number(text); percent != nil {
			if out == nil {
				out = make(map[string]float64)
			}
			out[of] = math.Round(*percent*100) / 1e4
		}
	}
	return out
}

// temperatures are the kernel's thermal zones, or the hwmon sensors where there
// are none.
func (s System) temperatures() []wire.TopTemperature {
	var out []wire.TopTemperature
	add := func(name string, file string) {
		text := strings.TrimSpace(string(s.readAt(file)))
		milli, err := strconv.ParseInt(text, 10, 32)
		if err != nil || len(out) == maxSensors || milli < -273_150 {
			return
		}
		out = append(out, wire.TopTemperature{Name: wire.Clean(name, maxName), Celsius: float64(milli) / 1e3})
	}
	zones, _ := filepath.Glob(s.path("sys/class/thermal/thermal_zone*")) // the pattern is well-formed, as below
	for _, zone := range zones {
		add(strings.TrimSpace(string(s.readAt(filepath.Join(zone, "type")))), filepath.Join(zone, "temp"))
	}
	if len(out) > 0 {
		return out
	}
	inputs, _ := filepath.Glob(s.path("sys/class/hwmon/hwmon*/temp*_input"))
	for _, input := range inputs {
		name := strings.TrimSpace(string(s.readAt(filepath.Join(filepath.Dir(input), "name"))))
		if label := strings.TrimSpace(string(s.readAt(strings.TrimSuffix(input, "_input") + "_label"))); label != "" {
			name += " " + label
		}
		add(name, input)
	}
	return out
}

func (s System) disks(see func(Directory) bool) []wire.TopDisk {
	var out []wire.TopDisk
	for _, d := range s.Disks {
		if !see(d) {
			continue
		}
		x := wire.TopDisk{What: d.What}
		if !d.Bare {
			x.Path = d.Path
		}
		if err := statfs(d.Path, &x); err != nil {
			x.Fault = err.Error()
		}
		out = append(out, x)
	}
	return out
}

// cgroup reads the control group of this process (version 2,
// Documentation/admin-guide/cgroup-v2.rst); nil where there is none.
func (s System) cgroup() *wire.TopCgroup {
	var group string
	for line := range bytes.Lines(s.read("proc/self/cgroup")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::"); ok {
			group = path
		}
	}
	if group == "" {
		return nil
	}
	dir := filepath.Join("sys/fs/cgroup", filepath.Clean("/"+group))
	c := wire.TopCgroup{
		Memory: s.integer(dir + "/memory.current"), MemoryMax: s.integer(dir + "/memory.max"),
		PIDs: s.integer(dir + "/pids.current"), PIDsMax: s.integer(dir + "/pids.max"),
	}
	lines := bufio.NewScanner(bytes.NewReader(s.read(dir + "/cpu.stat")))
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "usage_usec "); ok {
			if us := number(text); us != nil {
				seconds := *us / 1e6
				c.CPU = &seconds
			}
		}
	}
	if c == (wire.TopCgroup{}) {
		return nil
	}
	return &c
}

// integer is a file that holds a number; nil for "max" and all else.
func (s System) integer(name string) *int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(string(s.read(name))), 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

func number(text string) *float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return nil
	}
	return &v
}

func (s System) path(name string) string {
	if s.Root == "" {
		return "/" + name
	}
	return filepath.Join(s.Root, name)
}

func (s System) read(name string) []byte { return s.readAt(s.path(name)) }

// readAt is a file of the kernel; nil if it can't be read.
func (s System) readAt(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return b
}
