package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"farhand/wire"
)

func printerTools() []tool {
	return []tool{
		define("printer_status", "Printer status",
			"Says how a printer is: its state, temperatures in °C and its job.",
			reads, wire.HardwarePrinter, printerStatus),
		define("printer_files", "List a printer's files",
			"Lists the files that a printer has, which printer_job can print.",
			reads, wire.HardwarePrinter, printerFiles),
		define("printer_upload", "Send a file to a printer",
			"Sends a file of the machine (write_file makes one) to the printer and selects or prints it if asked.",
			destroys, wire.HardwarePrinter, printerUpload),
		define("printer_job", "Control a print job",
			"Prints a file, or starts, pauses, resumes, cancels or restarts the job. Somebody should be near a machine that moves and heats.",
			destroys, wire.HardwarePrinter, printerJob),
		define("printer_temperature", "Set a printer's heaters",
			"Sets the targets of a printer's heaters in °C; 0 is off. Targets above 0 are kept until release_device, and are switched off then unless on_release is hold.",
			destroys, wire.HardwarePrinter, printerTemperature).idempotent(),
		define("printer_move", "Move a printer's head",
			"Homes axes, or moves the head by millimetres.",
			destroys, wire.HardwarePrinter, printerMove),
		define("printer_gcode", "Send G-code to a printer",
			"Sends lines of G-code to a printer, or text to a receipt or label printer's USB port. Printer servers don't tell what the printer answers.",
			destroys, wire.HardwarePrinter, printerGCode),
		define("printer_delete_file", "Delete a printer's file",
			"Removes a file from a printer's storage, for good.",
			destroys, wire.HardwarePrinter, printerDelete),
	}
}

// onPrinter is a printer of a machine.
type onPrinter struct {
	onMachine
	Device string `json:"device,omitempty" jsonschema:"id of the printer (list_devices); default: the only one"`
}

type printerState struct {
	Device       string          `json:"device"`
	State        string          `json:"state" jsonschema:"ready, printing, pausing, paused, cancelling, connecting, offline, error, needs_firmware_restart or unknown"`
	Text         string          `json:"text,omitempty" jsonschema:"in the printer server's own words"`
	Error        string          `json:"error,omitempty"`
	Hint         string          `json:"hint,omitempty"`
	Server       string          `json:"server,omitempty" jsonschema:"such as octoprint 1.11.4"`
	Temperatures map[string]heat `json:"temperatures,omitempty" jsonschema:"by heater: tool0 and on, bed, chamber"`
	Job          *printerJobInfo `json:"job,omitempty"`
	Port         map[string]bool `json:"port,omitempty" jsonschema:"of a USB printer port: online, paper_out, fault"`
}

type heat struct {
	Actual *float64 `json:"actual,omitempty" jsonschema:"°C"`
	Target *float64 `json:"target,omitempty" jsonschema:"°C; 0 is off"`
}

type printerJobInfo struct {
	State       string   `json:"state,omitempty"`
	File        string   `json:"file,omitempty"`
	Location    string   `json:"location,omitempty"`
	Completion  *float64 `json:"completion_percent,omitempty"`
	Seconds     *float64 `json:"seconds,omitempty" jsonschema:"how long it has been printing"`
	SecondsLeft *float64 `json:"seconds_left,omitempty"`
	Error       string   `json:"error,omitempty"`
}

func jobInfo(j *wire.PrinterJobState) *printerJobInfo {
	if j == nil {
		return nil
	}
	return &printerJobInfo{j.State, j.File, j.Location, j.Completion, j.Seconds, j.SecondsLeft, j.Error}
}

func printerStatus(ctx context.Context, c *call, in onPrinter) (printerState, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "printer", in.Device)
	if err != nil {
		return printerState{}, "", err
	}
	st, err := at.PrinterStatus(ctx, at.device, false)
	if err != nil {
		return printerState{}, "", err
	}
	out := printerState{Device: at.device, State: st.State, Text: st.Text, Error: st.Error, Hint: spoken(st.Hint), Job: jobInfo(st.Job)}
	if st.Server != nil {
		out.Server = strings.TrimSpace(st.Server.Kind + " " + st.Server.Version)
	}
	if st.Port != nil {
		out.Port = map[string]bool{"online": st.Port.Online, "paper_out": st.Port.PaperOut, "fault": st.Port.Fault}
	}
	var text strings.Builder
	text.WriteString(st.State)
	for _, part := range []string{st.Text, st.Error, out.Hint} {
		if part != "" {
			text.WriteString("; " + part)
		}
	}
	text.WriteByte('\n')
	for _, name := range slices.Sorted(maps.Keys(st.Temperatures)) {
		h := st.Temperatures[name]
		if out.Temperatures == nil {
			out.Temperatures = make(map[string]heat)
		}
		out.Temperatures[name] = heat{h.Actual, h.Target}
		fmt.Fprintf(&text, "%s %.1f °C, target %.1f °C\n", name, value(h.Actual), value(h.Target))
	}
	if j := out.Job; j != nil && j.File != "" {
		fmt.Fprintf(&text, "job %s: %s, %.1f %%\n", j.File, j.State, value(j.Completion))
	}
	return out, text.String(), nil
}

type printerFilesAsked struct {
	onPrinter
	Path      string `json:"path,omitempty" jsonschema:"a folder; default: all of them"`
	Location  string `json:"location,omitempty" jsonschema:"local: the server's storage; printer: its own card; default: both" enum:"local,printer"`
	Recursive bool   `json:"recursive,omitempty"`
}

type printerFilesFound struct {
	Device    string        `json:"device"`
	Files     []printerFile `json:"files"`
	Truncated bool          `json:"truncated"`
}

type printerFile struct {
	Location string   `json:"location"`
	Path     string   `json:"path"`
	Type     string   `json:"type" jsonschema:"machinecode, model, folder …"`
	Size     *int64   `json:"size_bytes,omitempty"`
	Seconds  *float64 `json:"estimated_seconds,omitempty" jsonschema:"how long printing it takes"`
}

func printerFiles(ctx context.Context, c *call, in printerFilesAsked) (printerFilesFound, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "printer", in.Device)
	if err != nil {
		return printerFilesFound{}, "", err
	}
	got, err := at.PrinterFiles(ctx, at.device, wire.PrinterFiles{Location: in.Location, Path: in.Path, Recursive: in.Recursive}, false)
	if err != nil {
		return printerFilesFound{}, "", err
	}
	out := printerFilesFound{Device: at.device, Files: []printerFile{}, Truncated: got.Truncated}
	var text strings.Builder
	for _, f := range got.Files {
		out.Files = append(out.Files, printerFile{f.Location, f.Path, f.Type, f.Size, f.EstimatedSeconds})
		fmt.Fprintf(&text, "%s:%s  %s, %d bytes\n", f.Location, f.Path, f.Type, value(f.Size))
	}
	if len(out.Files) == 0 {
		text.WriteString("no files\n")
	}
	return out, text.String(), nil
}

type printerUploadAsked struct {
	onPrinter
	Path     string `json:"path" jsonschema:"the file on the machine, absolute or relative to the first root" length:"1..4096"`
	Name     string `json:"name,omitempty" jsonschema:"what it is called on the printer; default: its own name"`
	Folder   string `json:"folder,omitempty" jsonschema:"where it goes on the printer"`
	Location string `json:"location,omitempty" enum:"local,printer" default:"\"local\""`
	Select   bool   `json:"select,omitempty" jsonschema:"select it for printing"`
	Print    bool   `json:"print,omitempty" jsonschema:"print it at once"`
}

type printerUploaded struct {
	Device   string `json:"device"`
	Location string `json:"location"`
	Path     string `json:"path" jsonschema:"what the printer calls it: use this one from now on"`
	Renamed  bool   `json:"renamed,omitempty"`
	Selected bool   `json:"selected"`
	Printing bool   `json:"printing"`
}

// uploadLimit bounds an upload: the slowest printer cards take some minutes.
const uploadLimit = 1800 // s

func printerUpload(ctx context.Context, c *call, in printerUploadAsked) (printerUploaded, string, error) {
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return printerUploaded{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "printer", in.Device)
	if err != nil {
		return printerUploaded{}, "", err
	}
	st, _, err := ses.PrinterUpload(ctx, at.device, wire.PrinterUpload{
		Path: in.Path, Name: in.Name, Folder: in.Folder, Location: in.Location, Select: in.Select, Print: in.Print,
	})
	if err != nil {
		return printerUploaded{}, "", err
	}
	defer c.closeStream(ctx, st)
	var done *wire.PrinterUploaded
	ended, err := follow(ctx, st, uploadLimit, func(raw json.RawMessage) (bool, error) {
		var p wire.PrinterProgress
		if err := json.Unmarshal(raw, &p); err != nil {
			return false, err
		}
		if p.Error != nil {
			return false, p.Error
		}
		c.progress(ctx, float64(p.Sent), float64(p.Size), "bytes sent to the printer")
		done = p.Result
		return done != nil, nil
	})
	if err == nil && done == nil {
		err = wire.Errorf(wire.OpUnconfirmed, "the upload ended without a result: %s", ended)
	}
	if err != nil {
		return printerUploaded{}, "", err
	}
	out := printerUploaded{at.device, done.Location, done.Path, done.Renamed, done.Selected, done.Printing}
	text := "sent as " + done.Path
	if done.Printing {
		text += ", and it is printing"
	}
	return out, text, nil
}

type printerJobAsked struct {
	onPrinter
	Action   string `json:"action" jsonschema:"print a file (path), or what to do with the selected job" enum:"print,start,pause,resume,cancel,restart"`
	Path     string `json:"path,omitempty" jsonschema:"print: the file as printer_files calls it"`
	Location string `json:"location,omitempty" jsonschema:"print: where the file is" enum:"local,printer" default:"\"local\""`
}

type printerJobDone struct {
	Device string         `json:"device"`
	Job    printerJobInfo `json:"job" jsonschema:"as it is afterwards"`
}

func printerJob(ctx context.Context, c *call, in printerJobAsked) (printerJobDone, string, error) {
	if (in.Action == "print") != (in.Path != "") {
		return printerJobDone{}, "", wire.Errorf(wire.InvalidArgument, "path goes with the action print, and with no other").With("field", "path")
	}
	at, err := c.onDevice(ctx, in.Machine, "printer", in.Device)
	if err != nil {
		return printerJobDone{}, "", err
	}
	out := printerJobDone{Device: at.device}
	if in.Action == "print" {
		got, err := at.PrinterFile(ctx, at.device, wire.PrinterFiles{Action: "select", Location: in.Location, Path: in.Path, Print: true}, false)
		if err != nil {
			return out, "", err
		}
		if got.Job != nil {
			out.Job = *jobInfo(got.Job)
		}
	} else {
		got, err := at.PrinterJob(ctx, at.device, wire.PrinterJob{Action: in.Action}, false)
		if err != nil {
			return out, "", err
		}
		out.Job = *jobInfo(&got.Job)
	}
	return out, fmt.Sprintf("job %s: %s", out.Job.File, out.Job.State), nil
}

type printerTemperatureAsked struct {
	onPrinter
	Targets   map[string]float64 `json:"targets" jsonschema:"°C by heater, 0 to 500: {\"tool0\": 210, \"bed\": 60}; 0 is off" range:"0..500"`
	OnRelease string             `json:"on_release,omitempty" jsonschema:"what becomes of the heaters when the printer is released" enum:"off,hold" default:"\"off\""`
	Deadman   float64            `json:"deadman_seconds,omitempty" jsonschema:"release it when nothing was heard from this connection for so many seconds" range:"1..3600"`
}

type printerTargets struct {
	Device  string             `json:"device"`
	Targets map[string]float64 `json:"targets" jsonschema:"what was set, in °C"`
}

func printerTemperature(ctx context.Context, c *call, in printerTemperatureAsked) (printerTargets, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "printer", in.Device)
	if err != nil {
		return printerTargets{}, "", err
	}
	got, err := at.PrinterTemperature(ctx, at.device, wire.PrinterTemperature{Targets: in.Targets, OnRelease: in.OnRelease, DeadmanSeconds: in.Deadman}, false)
	if err != nil {
		return printerTargets{}, "", err
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(got.Targets)) {
		text = append(text, fmt.Sprintf("%s to %.1f °C", name, got.Targets[name]))
	}
	return printerTargets{at.device, got.Targets}, strings.Join(text, ", "), nil
}

type printerMoveAsked struct {
	onPrinter
	Home     []string `json:"home,omitempty" jsonschema:"axes to home; not together with a move" enum:"x,y,z,all" length:"1..3"`
	X        *float64 `json:"x,omitempty" jsonschema:"mm, relative unless absolute is set"`
	Y        *float64 `json:"y,omitempty" jsonschema:"mm"`
	Z        *float64 `json:"z,omitempty" jsonschema:"mm"`
	Absolute bool     `json:"absolute,omitempty" jsonschema:"x, y and z are coordinates"`
	Speed    float64  `json:"speed_mm_min,omitempty" jsonschema:"mm/min; default: the slowest of the axes' own" range:"1..60000"`
}

type printerMoved struct {
	Device   string `json:"device"`
	Accepted bool   `json:"accepted" jsonschema:"the head may still be on its way"`
}

func printerMove(ctx context.Context, c *call, in printerMoveAsked) (printerMoved, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "printer", in.Device)
	if err != nil {
		return printerMoved{}, "", err
	}
	got, err := at.PrinterMove(ctx, at.device, wire.PrinterMove{
		Home: in.Home, X: in.X, Y: in.Y, Z: in.Z, Absolute: in.Absolute, Speed: optional(in.Speed),
	}, false)
	if err != nil {
		return printerMoved{}, "", err
	}
	return printerMoved{at.device, got.Accepted}, "the printer took the command; the head may still be on its way", nil
}

type printerGCodeAsked struct {
	onPrinter
	GCode []string `json:"gcode,omitempty" jsonschema:"lines of G-code: [\"G28\", \"M104 S200\"]" length:"1..500"`
	Text  string   `json:"text,omitempty" jsonschema:"in place of gcode: what a USB printer port gets, as it is"`
	Hex   string   `json:"hex,omitempty" jsonschema:"in place of gcode: bytes for a USB printer port, in hexadecimal"`
}

type printerCommanded struct {
	Device string `json:"device"`
	Lines  int    `json:"lines,omitempty" jsonschema:"of G-code that were taken"`
	Bytes  int    `json:"bytes_written,omitempty" jsonschema:"that went to a USB printer port"`
}

func printerGCode(ctx context.Context, c *call, in printerGCodeAsked) (printerCommanded, string, error) {
	data, err := payload{in.Text, in.Hex}.bytes(len(in.GCode) == 0)
	if err != nil {
		return printerCommanded{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "printer", in.Device)
	if err != nil {
		return printerCommanded{}, "", err
	}
	got, err := at.PrinterCommand(ctx, at.device, wire.PrinterCommand{GCode: in.GCode, Data: data}, false)
	if err != nil {
		return printerCommanded{}, "", err
	}
	return printerCommanded{at.device, got.Lines, got.BytesWritten}, fmt.Sprintf("%d lines and %d bytes taken", got.Lines, got.BytesWritten), nil
}

type printerDeleteAsked struct {
	onPrinter
	Path     string `json:"path" jsonschema:"the file as printer_files calls it" length:"1..4096"`
	Location string `json:"location,omitempty" enum:"local,printer" default:"\"local\""`
}

type printerDeleted struct {
	Device string `json:"device"`
	Path   string `json:"path"`
}

func printerDelete(ctx context.Context, c *call, in printerDeleteAsked) (printerDeleted, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "printer", in.Device)
	if err != nil {
		return printerDeleted{}, "", err
	}
	_, err = at.PrinterFile(ctx, at.device, wire.PrinterFiles{Action: "delete", Location: in.Location, Path: in.Path}, false)
	return printerDeleted{at.device, in.Path}, "deleted " + in.Path, err
}
