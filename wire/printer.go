package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The operations of printers. A USB printer-class port has PRINTER_STATUS and
// PRINTER_COMMAND; an OctoPrint server, or Moonraker in its place, has them all
// as far as it offers them.
const (
	OpPrinterStatus      = "PRINTER_STATUS"      // no args
	OpPrinterFiles       = "PRINTER_FILES"       // list, select, delete
	OpPrinterUpload      = "PRINTER_UPLOAD"      // a file of the device to the printer; opens a stream
	OpPrinterJob         = "PRINTER_JOB"         // start, pause, resume, cancel
	OpPrinterTemperature = "PRINTER_TEMPERATURE" // targets of the heaters
	OpPrinterCommand     = "PRINTER_COMMAND"     // G-code, or raw bytes to a USB port
	OpPrinterMove        = "PRINTER_MOVE"        // home or jog
	OpPrinterWatch       = "PRINTER_WATCH"       // what happens; opens a stream
	OpPrinterJoin        = "PRINTER_JOIN"        // asks the owner for an API key; opens a stream
)

// The states of a printer.
const (
	PrinterReady      = "ready"      // connected and idle
	PrinterPrinting   = "printing"   // also while it finishes
	PrinterPausing    = "pausing"    // on its way to paused
	PrinterPaused     = "paused"     // a job waits to be resumed or cancelled
	PrinterCancelling = "cancelling" // on its way to ready
	PrinterConnecting = "connecting" // the server is looking for its printer
	PrinterOffline    = "offline"    // the server answers, its printer is not connected
	PrinterError      = "error"      // see PrinterStatus.Error
	// PrinterNeedsFirmwareRestart is a firmware that has shut itself down
	// (Klipper after an emergency stop). It stays so until somebody sends
	// FIRMWARE_RESTART with PRINTER_COMMAND; nothing does by itself.
	PrinterNeedsFirmwareRestart = "needs_firmware_restart"
	PrinterUnknown              = "unknown" // a state that we have no word for, see PrinterStatus.Text
)

// PrinterStatus is the result of PRINTER_STATUS.
type PrinterStatus struct {
	State string `json:"state"`
	Text  string `json:"text,omitempty"`  // the state in the server's own words
	Error string `json:"error,omitempty"` // what is wrong, if the printer says it
	Hint  string `json:"hint,omitempty"`  // what to do about it

	Server       *PrinterServer         `json:"server,omitempty"` // absent for a USB port
	Temperatures map[string]PrinterHeat `json:"temperatures,omitempty"`
	Job          *PrinterJobState       `json:"job,omitempty"`
	Storage      *bool                  `json:"storage_ready,omitempty"` // the printer's own card; null: unknown
	Port         *PrinterPort           `json:"port,omitempty"`          // a USB port only
}

// PrinterServer is what answers for a printer.
type PrinterServer struct {
	Kind    string `json:"kind"`              // octoprint, moonraker
	Version string `json:"version,omitempty"` // of the server, "1.11.4"
	API     string `json:"api"`               // the shape that is spoken: "1" or "2"
	Text    string `json:"text,omitempty"`
}

// PrinterHeat is one heater or sensor, in °C: tool0 and on, bed, chamber.
type PrinterHeat struct {
	Actual *float64 `json:"actual"` // null: not measured yet
	Target *float64 `json:"target"` // 0 is off; null: none is set, or it can't be set
	Offset float64  `json:"offset,omitempty"`
}

// PrinterJobState is the job that runs, waits or was last selected.
type PrinterJobState struct {
	State string `json:"state"`
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`

	File     string `json:"file,omitempty"` // the path within its location; empty: none is selected
	Display  string `json:"display,omitempty"`
	Location string `json:"location,omitempty"` // local, printer
	Size     *int64 `json:"size,omitempty"`     // bytes

	Completion       *float64 `json:"completion"` // percent, 0 to 100
	FilePosition     *int64   `json:"file_position,omitempty"`
	Seconds          *float64 `json:"seconds,omitempty"`
	SecondsLeft      *float64 `json:"seconds_left,omitempty"`
	SecondsEstimated *float64 `json:"seconds_estimated,omitempty"`
}

// PrinterPort is what a USB printer-class port says about itself.
type PrinterPort struct {
	// DeviceID is the IEEE 1284 device id with its keys brought to their short
	// forms: MFG, MDL, CMD, CLS, DES, SN and whatever else there is. Empty if
	// the printer doesn't tell.
	DeviceID map[string]string `json:"device_id,omitempty"`
	Online   bool              `json:"online"`    // selected
	PaperOut bool              `json:"paper_out"` // paper empty
	Fault    bool              `json:"fault"`     // some other error
}

// The locations of files. PrinterStorage is the printer's own card, which
// OctoPrint 1.x calls sdcard; both names are understood.
const (
	PrinterLocal   = "local"
	PrinterStorage = "printer"
)

// PrinterFiles is the args of PRINTER_FILES.
type PrinterFiles struct {
	Action   string `json:"action,omitempty"`   // list (default), select, delete
	Location string `json:"location,omitempty"` // local (default), printer (or sdcard); list: empty is all
	Path     string `json:"path,omitempty"`     // select, delete: the file; list: a folder
	// Recursive lists what lies in folders as well.
	Recursive bool `json:"recursive,omitempty"`
	// Print starts the job with the selection.
	Print bool `json:"print,omitempty"`
}

// PrinterFileList is the result of PRINTER_FILES with list: the files by
// location and path, folders before what lies in them.
type PrinterFileList struct {
	Files     []PrinterFile `json:"files"`
	Truncated bool          `json:"truncated,omitempty"`
	FreeBytes *int64        `json:"free_bytes,omitempty"` // of local; rounded as OctoPrint 1.x prints it
}

// PrinterFile is one file or folder.
type PrinterFile struct {
	Location string `json:"location"`
	Path     string `json:"path"`
	Display  string `json:"display,omitempty"` // with the letters that the path lost; empty if equal
	Type     string `json:"type"`              // machinecode, model, folder, …
	Size     *int64 `json:"size,omitempty"`    // bytes
	Date     int64  `json:"date,omitempty"`    // Unix time of the upload
	// EstimatedSeconds is the server's estimate of the printing time.
	EstimatedSeconds *float64 `json:"estimated_seconds,omitempty"`
	// SentName is the name that an earlier PRINTER_UPLOAD of this machine asked
	// for, where the server took another.
	SentName string `json:"sent_name,omitempty"`
}

// PrinterFileDone is the result of PRINTER_FILES with select or delete.
type PrinterFileDone struct {
	Location string `json:"location"`
	Path     string `json:"path"`
	// Job is the job as it is after a selection that prints.
	Job *PrinterJobState `json:"job,omitempty"`
	// Confirmed says that the server answered with a conflict and that its job
	// shows the operation to have happened all the same.
	Confirmed bool `json:"confirmed_by_job,omitempty"`
}

// PrinterUpload is the args of PRINTER_UPLOAD.
type PrinterUpload struct {
	Path     string `json:"path"`               // on the device, below the session's root
	Name     string `json:"name,omitempty"`     // default: the last element of path
	Folder   string `json:"folder,omitempty"`   // on the printer, must exist or is made by the server
	Location string `json:"location,omitempty"` // local (default), printer
	Select   bool   `json:"select,omitempty"`
	Print    bool   `json:"print,omitempty"` // implies select
	Credit   int    `json:"credit,omitempty"`
}

// PrinterUploading is the result of PRINTER_UPLOAD: a stream of PrinterProgress.
type PrinterUploading struct {
	Opened
	Size int64 `json:"size"` // bytes to be sent
}

// PrinterProgress is a record of an upload's stream. The last one has Result or
// Error; between them there are at most four a second.
type PrinterProgress struct {
	Sent   int64            `json:"sent"` // bytes of the file
	Size   int64            `json:"size"`
	Retry  string           `json:"retry,omitempty"` // it begins anew under this name
	Result *PrinterUploaded `json:"result,omitempty"`
	Error  *Error           `json:"error,omitempty"`
}

// PrinterUploaded is how an upload ended.
type PrinterUploaded struct {
	Location string `json:"location"`
	Path     string `json:"path"` // as the server calls it: use this one from now on
	Display  string `json:"display,omitempty"`
	SentName string `json:"sent_name"` // as it was asked for
	// Renamed says that the server's path isn't the name that was asked for.
	Renamed bool `json:"renamed,omitempty"`
	// Transliterated is the name that was sent after the server had refused the
	// first; empty if it took it.
	Transliterated string `json:"transliterated,omitempty"`
	Selected       bool   `json:"selected"`
	Printing       bool   `json:"printing"`
	// Confirmed says that the server answered with a conflict and that its job
	// shows the file to be printing all the same.
	Confirmed bool `json:"confirmed_by_job,omitempty"`
}

// PrinterJob is the args of PRINTER_JOB.
type PrinterJob struct {
	Action string `json:"action"` // start, pause, resume, cancel, restart
}

// PrinterJobDone is the result of PRINTER_JOB.
type PrinterJobDone struct {
	Job PrinterJobState `json:"job"` // as it is afterwards
	// Confirmed says that the server answered with a conflict and that its job
	// was already as asked.
	Confirmed bool `json:"confirmed_by_job,omitempty"`
}

// What becomes of a heater when the lease that set it ends.
const (
	HeaterOff  = "off"  // it is switched off, unless a job runs or waits: default
	HeaterHold = "hold" // it keeps its target
)

// PrinterTemperature is the args of PRINTER_TEMPERATURE. The targets stand in
// it by name, {"tool0": 210, "bed": 60}, or below targets; both are read.
// To set a target above 0 keeps the lease.
type PrinterTemperature struct {
	// Targets are in °C by heater: tool0 and on, bed, chamber; 0 is off. The
	// limits are 0 to 500.
	Targets map[string]float64 `json:"targets"`
	// OnRelease says what becomes of these heaters when the lease ends: off
	// (default) or hold.
	OnRelease string `json:"on_release,omitempty"`
	// DeadmanSeconds, 1 to 3600, ends the lease if nothing was heard from the
	// session for so long. Absent: the grace of a lost link.
	DeadmanSeconds float64 `json:"deadman_seconds,omitempty"`
}

// UnmarshalJSON reads targets by name as well.
func (t *PrinterTemperature) UnmarshalJSON(b []byte) error {
	type plain PrinterTemperature
	if err := json.Unmarshal(b, (*plain)(t)); err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return err
	}
	for name, raw := range keys {
		if name != "bed" && name != "chamber" && !strings.HasPrefix(name, "tool") {
			continue
		}
		var target *float64
		if err := json.Unmarshal(raw, &target); err != nil {
			return fmt.Errorf("%s must be a number", Clean(name, 16))
		}
		if target == nil {
			continue
		}
		if t.Targets == nil {
			t.Targets = make(map[string]float64)
		}
		t.Targets[name] = *target
	}
	return nil
}

// PrinterTargets is the result of PRINTER_TEMPERATURE: what was set.
type PrinterTargets struct {
	Targets   map[string]float64 `json:"targets"`
	OnRelease string             `json:"on_release"`
}

// PrinterCommand is the args of PRINTER_COMMAND.
type PrinterCommand struct {
	// GCode are lines of G-code, or one string of them. At most 500 lines of 256
	// bytes. OctoPrint doesn't answer with what the printer says; PRINTER_WATCH
	// with log shows it.
	GCode GCode `json:"gcode,omitempty"`
	// Data are raw bytes for a USB port, base64, at most 1 MiB.
	Data []byte `json:"data,omitempty"`
	// TimeoutSeconds is how long the port may take, 0 to 25, default 10.
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
}

// GCode is a list of lines; it also reads one string with newlines.
type GCode []string

// UnmarshalJSON reads a string or an array of strings.
func (g *GCode) UnmarshalJSON(b []byte) error {
	var lines []string
	if json.Unmarshal(b, &lines) == nil {
		*g = lines
		return nil
	}
	var text string
	if json.Unmarshal(b, &text) != nil {
		return errors.New("gcode must be a string or an array of strings")
	}
	*g = strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	return nil
}

// PrinterCommanded is the result of PRINTER_COMMAND.
type PrinterCommanded struct {
	Lines        int `json:"lines,omitempty"`         // of G-code that the server took
	BytesWritten int `json:"bytes_written,omitempty"` // to a USB port
}

// PrinterMove is the args of PRINTER_MOVE: home or jog, not both.
type PrinterMove struct {
	// Home lists the axes to be homed: x, y, z; ["all"] or "all" is all three.
	Home Axes `json:"home,omitempty"`

	X *float64 `json:"x,omitempty"` // mm, relative unless Absolute
	Y *float64 `json:"y,omitempty"`
	Z *float64 `json:"z,omitempty"`
	// Absolute makes x, y and z coordinates.
	Absolute bool `json:"absolute,omitempty"`
	// Speed is in mm/min, above 0; absent: the slowest of the axes' own.
	Speed *float64 `json:"speed,omitempty"`
}

// Axes is a list of axes; it also reads one string, "all" or "xy".
type Axes []string

// UnmarshalJSON reads a string or an array of strings.
func (a *Axes) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) != nil {
		var text string
		if json.Unmarshal(b, &text) != nil {
			return errors.New("home must be a list of axes")
		}
		if list = strings.Split(text, ""); strings.EqualFold(text, "all") {
			list = []string{"all"}
		}
	}
	*a = list
	return nil
}

// PrinterMoved is the result of PRINTER_MOVE: the server has taken the command;
// the head may still be on its way.
type PrinterMoved struct {
	Accepted bool `json:"accepted"`
}

// PrinterWatch is the args of PRINTER_WATCH.
type PrinterWatch struct {
	// IntervalSeconds is the least time between two records with the state, 0.5
	// to 60, default 1. Events come at once.
	IntervalSeconds float64 `json:"interval_seconds,omitempty"`
	// Log adds what the server and its printer say to each other.
	Log    bool `json:"log,omitempty"`
	Credit int  `json:"credit,omitempty"`
}

// PrinterWatching is the result of PRINTER_WATCH: a stream of PrinterEvent.
type PrinterWatching struct {
	Opened
	// Push says whether the server sends by itself; otherwise it is asked.
	Push bool `json:"push"`
}

// The types of PrinterEvent.
const (
	PrinterEventState = "state" // Status, and Log if there are lines
	PrinterEventEvent = "event" // Name and Payload, as the server has them
	PrinterEventLost  = "lost"  // the server can't be heard: Error; it is tried again
	PrinterEventBack  = "back"  // it can be heard again
)

// PrinterEvent is a record of a printer's stream.
type PrinterEvent struct {
	Type string  `json:"type"`
	Time float64 `json:"time"` // Unix time, by the device's clock

	Status  *PrinterStatus  `json:"status,omitempty"`
	Log     []string        `json:"log,omitempty"`
	Name    string          `json:"name,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// PrinterJoin is the args of PRINTER_JOIN.
type PrinterJoin struct {
	User   string `json:"user,omitempty"` // the one on the server who is to decide; absent: any
	Credit int    `json:"credit,omitempty"`
}

// PrinterJoining is the result of PRINTER_JOIN: a stream of PrinterJoinEvent.
// The request lasts until the owner has decided on the server, at most ten
// minutes.
type PrinterJoining struct {
	Opened
	// Dialog is the page to decide on, from OctoPrint 1.8.0; empty: the
	// server's own page shows the question.
	Dialog string `json:"dialog,omitempty"`
	Hint   string `json:"hint"`
}

// The decisions of PrinterJoinEvent.
const (
	JoinWaiting = "waiting"
	JoinGranted = "granted" // the key is stored on the device
	JoinDenied  = "denied"  // or nobody decided in time: the server doesn't say which
	JoinFailed  = "failed"  // see Error
)

// PrinterJoinEvent is a record of the stream of PRINTER_JOIN; the last one is
// not waiting.
type PrinterJoinEvent struct {
	Decision string `json:"decision"`
	Error    *Error `json:"error,omitempty"`
}
