package wire

// Figures of capability observe. They are the extension's own.
const (
	LogLinesDefault = 100     // entries that LOGS_REQUEST begins with unless it says otherwise
	MaxLogLines     = 100_000 // and at most
	MaxLogMessage   = 16 << 10
	// MaxPacedCredit bounds the credit of streams whose source waits for the
	// receiver: it is also what the device keeps for it.
	MaxPacedCredit = 1 << 20

	MinTopInterval = 0.5  // seconds between two records of TOP_REQUEST
	MaxTopInterval = 3600 // at most
)

// LogsRequest is LOGS_REQUEST.payload: the machine's journal, the oldest first.
type LogsRequest struct {
	// Unit is a systemd unit, or a pattern of some (*, ?, [abc]); what has no suffix is a
	// service. Empty is everything.
	Unit string `json:"unit,omitempty"`
	// Lines is how many of the newest entries come first: 0 to MaxLogLines. Absent
	// it is LogLinesDefault, or with Since MaxLogLines.
	Lines *int `json:"lines,omitempty"`
	// Since leaves out what is older; seconds since 1970.
	Since *float64 `json:"since,omitempty"`
	// Priority leaves out what is less urgent: 0 (emergency) to 7 (debug), syslog(3).
	Priority *int `json:"priority,omitempty"`
	Follow   bool `json:"follow,omitempty"` // then goes on with what comes
	Credit   int  `json:"credit,omitempty"` // at most MaxPacedCredit
}

// LogsResponse is LOGS_RESPONSE.payload. The stream is of LogRecords, none of
// which is lost: the device waits for its receiver.
type LogsResponse struct {
	Opened
}

// LogRecord is one entry of the journal. What it doesn't say is absent.
type LogRecord struct {
	TimeUS     int64  `json:"time_us"` // since 1970, by the machine's clock
	Unit       string `json:"unit,omitempty"`
	Identifier string `json:"identifier,omitempty"` // the program's name
	PID        int    `json:"pid,omitempty"`
	Priority   *int   `json:"priority,omitempty"` // 0 to 7
	Message    string `json:"message"`            // as it was written, several lines perhaps
	Truncated  bool   `json:"truncated,omitempty"`
	// Error, in the last record before the stream's end, is why reading failed.
	Error string `json:"error,omitempty"`
}

// TopRequest is TOP_REQUEST.payload: how the machine is doing.
type TopRequest struct {
	// Interval asks for a stream of the same after so many seconds each,
	// MinTopInterval to MaxTopInterval; 0 for none.
	Interval float64 `json:"interval_seconds,omitempty"`
	Credit   int     `json:"credit,omitempty"`
}

// TopResponse is TOP_RESPONSE.payload. With an interval there is a stream, of Tops.
type TopResponse struct {
	Top
	Stream string `json:"stream,omitempty"`
}

// OpenedStream is the id of the stream, if there is one.
func (r TopResponse) OpenedStream() string { return r.Stream }

// Top is how a machine is doing at one moment. What it doesn't tell is absent.
type Top struct {
	Time   float64  `json:"time"`             // seconds since 1970, by the machine's clock
	Clock  string   `json:"clock,omitempty"`  // what that stands on, as MachineFacts.ClockState
	Uptime *float64 `json:"uptime,omitempty"` // seconds

	CPUs      int        `json:"cpus,omitempty"`
	Busy      *float64   `json:"cpu_busy,omitempty"` // share of all processors' time since the look before, 0 to 1
	Load      []float64  `json:"load,omitempty"`     // of the last 1, 5 and 15 minutes
	Processes int        `json:"processes,omitempty"`
	Memory    *TopMemory `json:"memory,omitempty"`
	// Pressure is the share of the last 10 s, 0 to 1, in which something waited for
	// cpu, memory or io.
	Pressure     map[string]float64 `json:"pressure,omitempty"`
	Temperatures []TopTemperature   `json:"temperatures,omitempty"`
	Power        *TopPower          `json:"power,omitempty"`
	Disks        []TopDisk          `json:"disks,omitempty"`
	Cgroup       *TopCgroup         `json:"cgroup,omitempty"`
}

// TopMemory is the machine's memory in bytes.
type TopMemory struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available"` // what programs can still have
	SwapTotal int64 `json:"swap_total"`
	SwapFree  int64 `json:"swap_free"`
}

// TopTemperature is one sensor, in degrees Celsius.
type TopTemperature struct {
	Name    string  `json:"name"`
	Celsius float64 `json:"celsius"`
}

// TopPower is what the board's firmware says of its supply.
type TopPower struct {
	// Bits are those of "vcgencmd get_throttled": 0x1 under-voltage, 0x2 clock
	// capped, 0x4 throttled, 0x8 too warm; the same times 0x10000 since the start.
	Bits uint32 `json:"bits"`
	Text string `json:"text"` // in words; "ok"
	Weak bool   `json:"weak"` // under-voltage now
}

// TopDisk is the file system below a directory, in bytes.
type TopDisk struct {
	What     string `json:"what"` // root: one of the roots; state: the daemon's own
	Path     string `json:"path,omitempty"`
	Total    int64  `json:"total"`
	Free     int64  `json:"free"` // for the daemon
	ReadOnly bool   `json:"read_only,omitempty"`
	Fault    string `json:"fault,omitempty"` // why nothing is known
}

// TopCgroup is what the daemon and all that it started uses, as its control
// group accounts for it.
type TopCgroup struct {
	Memory    *int64   `json:"memory,omitempty"`     // bytes
	MemoryMax *int64   `json:"memory_max,omitempty"` // absent: no limit
	CPU       *float64 `json:"cpu_seconds,omitempty"`
	PIDs      *int64   `json:"pids,omitempty"`
	PIDsMax   *int64   `json:"pids_max,omitempty"`
}
