package rest

import (
	"encoding/json"
	"math"
	"strings"

	"farhand/wire"
)

// Flags are OctoPrint's (docs: datamodel, "Printer State"). resuming and
// finishing are in its answers, not in that document.
type Flags struct {
	Operational   bool `json:"operational"`
	Paused        bool `json:"paused"`
	Printing      bool `json:"printing"`
	Pausing       bool `json:"pausing"`
	Cancelling    bool `json:"cancelling"`
	Resuming      bool `json:"resuming"`
	Finishing     bool `json:"finishing"`
	Error         bool `json:"error"`
	Ready         bool `json:"ready"`
	ClosedOrError bool `json:"closedOrError"`
}

// stateOf brings a state to one of ours. The words are English whatever the
// server's language (docs: job, "state": the list there isn't exhaustive).
func stateOf(text, failure string, f *Flags) string {
	t := strings.ToLower(text)
	switch {
	case firmwareDown(text), firmwareDown(failure):
		return wire.PrinterNeedsFirmwareRestart
	case f == nil:
	case f.Cancelling:
		return wire.PrinterCancelling
	case f.Pausing:
		return wire.PrinterPausing
	case f.Paused:
		return wire.PrinterPaused
	case f.Printing, f.Finishing, f.Resuming:
		return wire.PrinterPrinting
	case f.Operational:
		return wire.PrinterReady
	case f.Error:
		return wire.PrinterError
	}
	for _, s := range []struct{ begins, state string }{
		{"offline", wire.PrinterOffline}, {"closed", wire.PrinterOffline}, {"none", wire.PrinterOffline},
		{"error", wire.PrinterError}, {"unknown", wire.PrinterUnknown},
		{"opening", wire.PrinterConnecting}, {"detecting", wire.PrinterConnecting}, {"connecting", wire.PrinterConnecting},
		{"cancel", wire.PrinterCancelling}, {"pausing", wire.PrinterPausing}, {"paused", wire.PrinterPaused},
		{"printing", wire.PrinterPrinting}, {"starting", wire.PrinterPrinting}, {"finishing", wire.PrinterPrinting},
		{"resuming", wire.PrinterPrinting}, {"transferring", wire.PrinterPrinting}, {"sending", wire.PrinterPrinting},
		{"operational", wire.PrinterReady},
	} {
		if strings.HasPrefix(t, s.begins) {
			return s.state
		}
	}
	if f != nil && f.ClosedOrError {
		return wire.PrinterOffline
	}
	return wire.PrinterUnknown
}

// firmwareDown recognises a firmware that has shut itself down. Klipper ends
// its message with "FIRMWARE_RESTART" (klippy/klippy.py, message_shutdown and
// message_mcu_connect_error); Marlin says "Printer halted. kill() called!".
func firmwareDown(text string) bool {
	t := strings.ToLower(text)
	return strings.Contains(t, "firmware_restart") || strings.Contains(t, "printer is shutdown") ||
		strings.Contains(t, "kill() called") || strings.Contains(t, "emergency stop")
}

// Active says whether a job runs or waits: then it decides over the heaters.
func Active(state string) bool {
	switch state {
	case wire.PrinterPrinting, wire.PrinterPausing, wire.PrinterPaused, wire.PrinterCancelling:
		return true
	}
	return false
}

// hint says what to do about a state.
func hint(state string) string {
	switch state {
	case wire.PrinterNeedsFirmwareRestart:
		return "the firmware has shut itself down: look at the printer, then send FIRMWARE_RESTART with PRINTER_COMMAND; heaters stay off until they are set anew"
	case wire.PrinterOffline:
		return "switch the printer on and connect it on the server's page"
	case wire.PrinterError:
		return "look at the printer and at the server's page"
	}
	return ""
}

// heat is a heater (docs: datamodel, "Temperature Data"). Some servers send the
// numbers as strings while they have none ("unknown").
type heat struct {
	Actual number `json:"actual"`
	Target number `json:"target"`
	Offset number `json:"offset"`
}

// number is a number or null; what is neither reads as null.
type number struct{ v *float64 }

func (n *number) UnmarshalJSON(b []byte) error {
	var v *float64
	if json.Unmarshal(b, &v) == nil && v != nil && !math.IsInf(*v, 0) {
		n.v = v
	}
	return nil
}

func (n number) int() *int64 {
	if n.v == nil || math.Abs(*n.v) > 1<<53 {
		return nil
	}
	i := int64(*n.v)
	return &i
}

// maxHeaters bounds what a server may claim to have.
const maxHeaters = 64

// heats picks the heaters from an object that may hold other things, such as a
// history.
func heats(all map[string]json.RawMessage) map[string]wire.PrinterHeat {
	out := make(map[string]wire.PrinterHeat)
	for name, raw := range all {
		var h heat
		if name == "history" || name == "time" || len(out) == maxHeaters || json.Unmarshal(raw, &h) != nil {
			continue
		}
		name = wire.Clean(name, 32)
		if name == "" || h.Actual.v == nil && h.Target.v == nil && name != "bed" && name != "chamber" && !strings.HasPrefix(name, "tool") {
			continue
		}
		p := wire.PrinterHeat{Actual: h.Actual.v, Target: h.Target.v}
		if h.Offset.v != nil {
			p.Offset = *h.Offset.v
		}
		out[name] = p
	}
	return out
}

// job is the answer of /api/job (docs: job, "Job information response").
type job struct {
	jobPart
	State string `json:"state"`
	Error string `json:"error"`
}

// jobPart is what the push messages share with it.
type jobPart struct {
	Job struct {
		File struct {
			Name    string `json:"name"`
			Path    string `json:"path"`
			Display string `json:"display"`
			Origin  string `json:"origin"`
			Size    number `json:"size"`
		} `json:"file"`
		Estimated number `json:"estimatedPrintTime"` // seconds
	} `json:"job"`
	Progress struct {
		Completion number `json:"completion"` // percent
		FilePos    number `json:"filepos"`
		PrintTime  number `json:"printTime"`
		TimeLeft   number `json:"printTimeLeft"`
	} `json:"progress"`
}

// wire makes what we send of it.
func (j job) wire() wire.PrinterJobState {
	s := wire.PrinterJobState{
		State: stateOf(j.State, j.Error, nil), Text: wire.Clean(j.State, 200), Error: wire.Clean(j.Error, 500),
		Size: j.Job.File.Size.int(), Completion: j.Progress.Completion.v, FilePosition: j.Progress.FilePos.int(),
		Seconds: j.Progress.PrintTime.v, SecondsLeft: j.Progress.TimeLeft.v, SecondsEstimated: j.Job.Estimated.v,
	}
	path := j.Job.File.Path
	if path == "" { // OctoPrint before 1.3 had only the name
		path = j.Job.File.Name
	}
	if path != "" {
		s.File, s.Location = wire.Clean(path, wire.MaxPath), location(j.Job.File.Origin)
		if d := wire.Clean(j.Job.File.Display, 500); d != s.File {
			s.Display = d
		}
	}
	return s
}

// location is our name of a location. sdcard became printer with 2.0 (docs:
// files, "sdcard renamed to printer").
func location(origin string) string {
	switch origin {
	case "", "local":
		return wire.PrinterLocal
	case "sdcard", "printer":
		return wire.PrinterStorage
	}
	return wire.Clean(origin, 64)
}

// assemble makes a status of a state, heaters and a job, wherever they come from.
func assemble(text string, flags *Flags, heaters map[string]json.RawMessage, j *job) wire.PrinterStatus {
	s := wire.PrinterStatus{Text: wire.Clean(text, 200), Temperatures: heats(heaters)}
	var failure string
	if j != nil {
		w := j.wire()
		failure = w.Error
		s.Job = &w
	}
	s.State = stateOf(text, failure, flags)
	s.Error, s.Hint = failure, hint(s.State)
	if s.Error == "" && (s.State == wire.PrinterError || s.State == wire.PrinterNeedsFirmwareRestart) {
		s.Error = s.Text
	}
	return s
}
