package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"farhand/wire"
)

func observeTools() []tool {
	return []tool{
		define("machine_status", "How a machine is doing",
			"Says how a machine is doing now: processor, load, memory, temperatures, power supply (under-voltage, throttling), disks and its clock. What the machine can't tell is absent.",
			reads, wire.Observe, machineStatus),
		define("read_logs", "Read a machine's logs",
			"Reads the machine's journal: the newest entries, the oldest of them first, by unit, urgency and time; with wait_seconds also what is written during that time.",
			reads, wire.Observe, readLogs),
	}
}

type statusFound struct {
	Time         string             `json:"time" jsonschema:"RFC 3339, UTC, by the machine's clock"`
	Clock        string             `json:"clock,omitempty" jsonschema:"what that stands on: synchronized, or why it may be wrong"`
	Uptime       *float64           `json:"uptime_seconds,omitempty"`
	CPUs         int                `json:"processors,omitempty"`
	Busy         *float64           `json:"cpu_busy_percent,omitempty" jsonschema:"of all processors together"`
	Load         []float64          `json:"load,omitempty" jsonschema:"of the last 1, 5 and 15 minutes"`
	Processes    int                `json:"processes,omitempty"`
	MemoryTotal  *int64             `json:"memory_total_bytes,omitempty"`
	MemoryFree   *int64             `json:"memory_available_bytes,omitempty" jsonschema:"what programs can still have"`
	SwapTotal    *int64             `json:"swap_total_bytes,omitempty"`
	SwapFree     *int64             `json:"swap_free_bytes,omitempty"`
	Pressure     map[string]float64 `json:"pressure_percent,omitempty" jsonschema:"of the last 10 s, how long something waited for cpu, memory or io"`
	Temperatures []sensorFound      `json:"temperatures,omitempty"`
	Power        *powerFound        `json:"power,omitempty" jsonschema:"what a Raspberry Pi says of its supply"`
	Disks        []diskFound        `json:"disks,omitempty"`
}

type sensorFound struct {
	Name    string  `json:"name"`
	Celsius float64 `json:"celsius"`
}

type powerFound struct {
	Text         string `json:"text" jsonschema:"in words; ok if all is well"`
	UnderVoltage bool   `json:"under_voltage_now"`
	Bits         uint32 `json:"bits" jsonschema:"as vcgencmd get_throttled shows them"`
}

type diskFound struct {
	Where    string `json:"where" jsonschema:"a directory that can be reached, or state: the daemon's own"`
	Total    int64  `json:"total_bytes"`
	Free     int64  `json:"free_bytes"`
	ReadOnly bool   `json:"read_only,omitempty"`
	Fault    string `json:"fault,omitempty" jsonschema:"why nothing is known of it"`
}

func machineStatus(ctx context.Context, c *call, in onMachine) (statusFound, string, error) {
	ses, err := c.session(ctx, in.Machine, "")
	if err != nil {
		return statusFound{}, "", err
	}
	t, err := ses.Top(ctx)
	if err != nil {
		return statusFound{}, "", err
	}
	out := statusFound{
		Time: moment(t.Time), Clock: t.Clock, Uptime: t.Uptime, CPUs: t.CPUs, Load: t.Load, Processes: t.Processes,
	}
	if t.Busy != nil {
		busy := 100 * *t.Busy
		out.Busy = &busy
	}
	if m := t.Memory; m != nil {
		out.MemoryTotal, out.MemoryFree, out.SwapTotal, out.SwapFree = &m.Total, &m.Available, &m.SwapTotal, &m.SwapFree
	}
	for of, share := range t.Pressure {
		if out.Pressure == nil {
			out.Pressure = make(map[string]float64)
		}
		out.Pressure[of] = 100 * share
	}
	for _, x := range t.Temperatures {
		out.Temperatures = append(out.Temperatures, sensorFound(x))
	}
	if p := t.Power; p != nil {
		out.Power = &powerFound{p.Text, p.Weak, p.Bits}
	}
	for _, d := range t.Disks {
		where := d.Path
		if where == "" {
			where = d.What
		}
		out.Disks = append(out.Disks, diskFound{where, d.Total, d.Free, d.ReadOnly, d.Fault})
	}
	return out, out.text(), nil
}

// text is the most of it in a few lines.
func (s statusFound) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %s", s.Time)
	if s.Uptime != nil {
		fmt.Fprintf(&b, ", up %.0f s", *s.Uptime)
	}
	if s.Busy != nil {
		fmt.Fprintf(&b, "\ncpu %.0f %% busy", *s.Busy)
	}
	if len(s.Load) > 0 {
		fmt.Fprintf(&b, "\nload %.2f on %d processors", s.Load[0], s.CPUs)
	}
	if s.MemoryTotal != nil {
		fmt.Fprintf(&b, "\nmemory: %d of %d bytes available", *s.MemoryFree, *s.MemoryTotal)
	}
	for _, t := range s.Temperatures {
		fmt.Fprintf(&b, "\n%s: %.1f °C", t.Name, t.Celsius)
	}
	if s.Power != nil {
		fmt.Fprintf(&b, "\npower: %s", s.Power.Text)
	}
	for _, d := range s.Disks {
		switch {
		case d.Fault != "":
			fmt.Fprintf(&b, "\n%s: %s", d.Where, d.Fault)
		case d.ReadOnly:
			fmt.Fprintf(&b, "\n%s: read-only", d.Where)
		default:
			fmt.Fprintf(&b, "\n%s: %d of %d bytes free", d.Where, d.Free, d.Total)
		}
	}
	return b.String()
}

// priorities are the urgencies of the journal (syslog(3)) by their numbers.
var priorities = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

const (
	// maxEntry is how much of one entry is told, maxLog how much of all together.
	maxEntry = 4 << 10
	maxLog   = 128 << 10
	// logLimit bounds reading what is there already.
	logLimit = 60 // s
)

type logsAsked struct {
	onMachine
	Unit        string  `json:"unit,omitempty" jsonschema:"only this unit of systemd, or those that fit a pattern: ssh, getty@*"`
	Priority    string  `json:"priority,omitempty" jsonschema:"only what is as urgent as this, or more" enum:"emerg,alert,crit,err,warning,notice,info,debug"`
	Since       string  `json:"since,omitempty" jsonschema:"only what is no older than this time, RFC 3339; next_since of an earlier answer goes on there"`
	Lines       int     `json:"lines,omitempty" jsonschema:"how many of the newest entries" default:"100" range:"0..1000"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" jsonschema:"then wait so long for what is written" range:"0..600"`
	Until       string  `json:"until,omitempty" jsonschema:"with wait_seconds: wait no longer once this regular expression (RE2) occurs in an entry, also in one that is there already"`
}

type logsFound struct {
	Entries   []logEntry `json:"entries"`
	Matched   bool       `json:"matched,omitempty" jsonschema:"until occurred"`
	Truncated bool       `json:"truncated,omitempty" jsonschema:"older entries are left out, since it is too much text: ask for fewer lines, a unit or a priority"`
	NextSince string     `json:"next_since,omitempty" jsonschema:"just after the last entry: as since it goes on there"`
}

type logEntry struct {
	Time      string `json:"time" jsonschema:"RFC 3339, UTC, by the machine's clock"`
	Unit      string `json:"unit,omitempty"`
	Program   string `json:"program,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Priority  string `json:"priority,omitempty"`
	Message   string `json:"message"`
	Truncated bool   `json:"truncated,omitempty" jsonschema:"the message is longer"`
}

func readLogs(ctx context.Context, c *call, in logsAsked) (logsFound, string, error) {
	out := logsFound{Entries: []logEntry{}}
	ask := wire.LogsRequest{Unit: in.Unit, Lines: &in.Lines, Follow: in.WaitSeconds > 0}
	if n := slices.Index(priorities, in.Priority); n >= 0 {
		ask.Priority = &n
	}
	if in.Since != "" {
		t, err := time.Parse(time.RFC3339, in.Since)
		if err != nil || t.Unix() < 0 {
			return out, "", wire.Errorf(wire.InvalidArgument, "since must be a time such as 2030-01-31T12:00:00Z").With("field", "since")
		}
		at := float64(t.UnixMicro()) / 1e6
		ask.Since = &at
	}
	var until *regexp.Regexp
	switch {
	case in.Until == "":
	case in.WaitSeconds == 0:
		return out, "", wire.Errorf(wire.InvalidArgument, "until goes with wait_seconds").With("field", "until")
	default:
		var err error
		if until, err = regexp.Compile(in.Until); err != nil {
			return out, "", wire.Errorf(wire.InvalidArgument, "until: %v", err).With("field", "until")
		}
	}
	ses, err := c.session(ctx, in.Machine, "")
	if err != nil {
		return out, "", err
	}
	st, err := ses.Logs(ctx, ask)
	if err != nil {
		return out, "", err
	}
	defer c.closeStream(ctx, st)
	limit := in.WaitSeconds
	if !ask.Follow {
		limit = logLimit
	}
	held, last := 0, int64(0)
	ended, err := follow(ctx, st, limit, func(raw json.RawMessage) (bool, error) {
		var r wire.LogRecord
		if err := json.Unmarshal(raw, &r); err != nil {
			return false, err
		}
		if r.Error != "" {
			return false, wire.Errorf(wire.InternalError, "the machine can't read its journal: %s", r.Error)
		}
		last = r.TimeUS
		e := entryOf(r)
		out.Entries = append(out.Entries, e)
		for held += len(e.Message); held > maxLog && len(out.Entries) > 1; out.Truncated = true {
			held -= len(out.Entries[0].Message)
			out.Entries = out.Entries[1:]
		}
		c.progress(ctx, float64(len(out.Entries)), 0, "entries read")
		out.Matched = until != nil && until.MatchString(r.Message)
		return out.Matched, nil
	})
	if err == nil && !ask.Follow && ended == "timeout" {
		err = wire.Errorf(wire.RequestTimeout, "reading the journal took longer than %d s", logLimit)
	}
	if err != nil {
		return out, "", err
	}
	if len(out.Entries) > 0 {
		out.NextSince = time.UnixMicro(last + 1).UTC().Format(time.RFC3339Nano)
	}
	return out, out.text(until != nil), nil
}

func entryOf(r wire.LogRecord) logEntry {
	e := logEntry{
		Time: time.UnixMicro(r.TimeUS).UTC().Format(time.RFC3339Nano), Unit: r.Unit, Program: r.Identifier, PID: r.PID,
		Message: strings.ToValidUTF8(r.Message, "\uFFFD"), Truncated: r.Truncated,
	}
	if r.Priority != nil && *r.Priority >= 0 && *r.Priority < len(priorities) {
		e.Priority = priorities[*r.Priority]
	}
	if len(e.Message) > maxEntry {
		cut := maxEntry
		for !utf8.RuneStart(e.Message[cut]) {
			cut--
		}
		e.Message, e.Truncated = e.Message[:cut], true
	}
	return e
}

func (l logsFound) text(until bool) string {
	var b strings.Builder
	if l.Truncated {
		b.WriteString("[older entries are left out]\n")
	}
	for _, e := range l.Entries {
		from := e.Program
		if from == "" {
			from = e.Unit
		}
		fmt.Fprintf(&b, "%s %s: %s\n", e.Time, from, plain(e.Message))
	}
	switch {
	case until && !l.Matched:
		b.WriteString("[until didn't occur]\n")
	case len(l.Entries) == 0:
		b.WriteString("no entries\n")
	}
	return b.String()
}
