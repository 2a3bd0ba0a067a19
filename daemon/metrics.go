package daemon

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"farhand/internal/sorted"
	"farhand/internal/version"
	"farhand/wire"
)

// counts are what the daemon counts while it runs, for GET /metrics.
type counts struct {
	connected atomic.Int64 // times that it came online

	mu       sync.Mutex
	requests map[outcome]tally
}

// outcome is a kind of request and how it ended.
type outcome struct {
	what wire.Type
	code wire.Code // empty: well
}

type tally struct {
	n    int64
	took time.Duration
}

// answered counts a request. Types and codes are this program's own: what is
// admitted is in its table.
func (c *counts) answered(what wire.Type, code wire.Code, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests == nil {
		c.requests = make(map[outcome]tally)
	}
	k := outcome{what, code}
	t := c.requests[k]
	t.n++
	t.took += took
	c.requests[k] = t
}

// all are the tallies in a fixed order.
func (c *counts) all() (keys []outcome, tallies map[outcome]tally) {
	c.mu.Lock()
	tallies = maps.Clone(c.requests)
	c.mu.Unlock()
	keys = slices.Collect(maps.Keys(tallies))
	sorted.By(keys, func(a, b outcome) int {
		return strings.Compare(string(a.what)+" "+string(a.code), string(b.what)+" "+string(b.code))
	})
	return keys, tallies
}

// exposition writes Prometheus' text format, version 0.0.4. A client library would
// be a tenth of the whole program.
type exposition struct{ b strings.Builder }

// family begins a metric of the daemon.
func (e *exposition) family(name, kind, help string) {
	fmt.Fprintf(&e.b, "# HELP farhandd_%s %s\n# TYPE farhandd_%s %s\n", name, help, name, kind)
}

// sample is one value of it; labels are names and values in turn.
func (e *exposition) sample(name string, value float64, labels ...string) {
	e.b.WriteString("farhandd_" + name)
	for i := 0; i+1 < len(labels); i += 2 {
		open := ","
		if i == 0 {
			open = "{"
		}
		e.b.WriteString(open + labels[i] + "=" + escaped(labels[i+1]))
	}
	if len(labels) > 0 {
		e.b.WriteByte('}')
	}
	e.b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

// escaped is a label's value in quotes.
func escaped(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "")) + `"`
}

// single is a metric of one value.
func (e *exposition) single(name, kind, help string, value float64) {
	e.family(name, kind, help)
	e.sample(name, value)
}

// writeMetrics is GET /metrics. Nothing in it names a session, a device or what
// went through.
func (d *daemon) writeMetrics(w io.Writer) {
	var e exposition
	s := d.status()
	e.family("info", "gauge", "The program; always 1.")
	e.sample("info", 1, "version", version.String())
	e.single("uptime_seconds", "gauge", "Time since the daemon was started.", s.Uptime)
	e.single("online", "gauge", "1 while the platform is connected.", one(s.State == StateOnline))
	e.single("connections_total", "counter", "Times that the platform was connected to.", float64(d.counts.connected.Load()))

	live := 0
	for _, x := range s.Sessions {
		if x.Live {
			live++
		}
	}
	e.single("sessions", "gauge", "Sessions that there are.", float64(len(s.Sessions)))
	e.single("sessions_live", "gauge", "Sessions whose socket is up.", float64(live))
	d.requestMetrics(&e)

	e.single("streams", "gauge", "Streams that are open.", float64(len(d.streams.List())))
	if d.leases != nil {
		e.single("leases", "gauge", "Devices and lines that are held.", float64(len(d.leases.List())))
	}
	available := 0
	for _, x := range s.Devices {
		if x.Available {
			available++
		}
	}
	e.single("devices", "gauge", "Devices that are there.", float64(len(s.Devices)))
	e.single("devices_available", "gauge", "Devices that can be used.", float64(available))
	e.single("audit_records_total", "counter", "Number of the audit log's newest record.", float64(s.Audit.Seq))
	e.single("audit_bytes", "gauge", "Size of the audit log.", float64(s.Audit.Bytes))
	processMetrics(&e)
	_, _ = io.WriteString(w, e.b.String()) // who asked may be gone
}

func (d *daemon) requestMetrics(e *exposition) {
	if d.shim != nil { // not before the start is over
		running, waiting := d.shim.Load()
		e.single("requests_running", "gauge", "Requests of sessions that are worked on.", float64(running))
		e.single("requests_waiting", "gauge", "Requests that wait for their turn.", float64(waiting))
	}
	keys, tallies := d.counts.all()
	e.family("requests_total", "counter", "Requests that were answered, by type and by the error's code, which is empty for success.")
	for _, k := range keys {
		e.sample("requests_total", float64(tallies[k].n), "type", string(k.what), "code", string(k.code))
	}
	e.family("request_duration_seconds", "summary", "Time from a request's admission to its answer.")
	sums := make(map[wire.Type]tally)
	for k, t := range tallies {
		sum := sums[k.what]
		sums[k.what] = tally{sum.n + t.n, sum.took + t.took}
	}
	for _, what := range slices.Sorted(maps.Keys(sums)) {
		e.sample("request_duration_seconds_sum", sums[what].took.Seconds(), "type", string(what))
		e.sample("request_duration_seconds_count", float64(sums[what].n), "type", string(what))
	}
}

// processMetrics are the figures of this process.
func processMetrics(e *exposition) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(samples)
	e.single("heap_bytes", "gauge", "Memory of live and dead objects.", float64(samples[0].Value.Uint64()))
	e.single("goroutines", "gauge", "Goroutines that there are.", float64(samples[1].Value.Uint64()))
	if b, err := os.ReadFile("/proc/self/statm"); err == nil { // proc_pid_statm(5)
		if fields := strings.Fields(string(b)); len(fields) > 1 {
			if pages, err := strconv.ParseUint(fields[1], 10, 50); err == nil {
				e.single("resident_memory_bytes", "gauge", "Memory of the process that lies in RAM.", float64(pages)*float64(os.Getpagesize()))
			}
		}
	}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		e.single("open_fds", "gauge", "Descriptors that are open.", float64(len(entries)-1)) // one reads the directory
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
