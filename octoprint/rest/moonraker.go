package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"farhand/internal/sorted"
	"farhand/wire"
)

// Moonraker's OctoPrint face has versions, the state, temperatures, commands and
// uploads; its job has no file and no progress, and files can't be listed or
// removed there (octoprint_compat.py). For those its own API is used.

// klipper adds why Klipper is not ready, which the OctoPrint face only calls
// "Error", and the job (moonraker: GET /printer/info).
func (c *Client) klipper(ctx context.Context, s *wire.PrinterStatus) error {
	var info struct {
		Result struct {
			State   string `json:"state"` // ready, startup, shutdown, error
			Message string `json:"state_message"`
		} `json:"result"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"printer", "info"}}, &info)
	switch {
	case unavailable(err):
		s.State, s.Text = wire.PrinterOffline, "Klipper is not connected to Moonraker"
		s.Hint = "see that klipper runs"
		s.Job = nil
		return nil
	case err != nil:
		return err
	}
	r := info.Result
	switch r.State {
	case "shutdown":
		s.State = wire.PrinterNeedsFirmwareRestart
	case "error":
		s.State = wire.PrinterError
		if firmwareDown(r.Message) {
			s.State = wire.PrinterNeedsFirmwareRestart
		}
	case "startup":
		s.State = wire.PrinterConnecting
	}
	s.Hint = hint(s.State)
	if r.State != "ready" {
		s.Error, s.Job = wire.Clean(r.Message, 500), nil
		return nil
	}
	j, err := c.klipperJob(ctx)
	if err == nil {
		s.Job = &j
		if s.State == wire.PrinterError || s.State == wire.PrinterUnknown {
			s.State, s.Hint, s.Error = j.State, hint(j.State), j.Error
		}
	}
	return nil
}

// klipperJob is the job (moonraker: GET /printer/objects/query; klipper:
// Status_Reference.md, print_stats and virtual_sdcard).
func (c *Client) klipperJob(ctx context.Context) (wire.PrinterJobState, error) {
	var answer struct {
		Result struct {
			Status struct {
				Print struct {
					State    string `json:"state"`
					File     string `json:"filename"`
					Duration number `json:"print_duration"`
					Message  string `json:"message"`
				} `json:"print_stats"`
				Card struct {
					Progress number `json:"progress"` // 0 to 1
					Position number `json:"file_position"`
					Size     number `json:"file_size"`
				} `json:"virtual_sdcard"`
			} `json:"status"`
		} `json:"result"`
	}
	q := call{method: http.MethodGet, path: []string{"printer", "objects", "query"}, query: url.Values{"print_stats": {""}, "virtual_sdcard": {""}}}
	err := c.do(ctx, q, &answer)
	if unavailable(err) {
		return wire.PrinterJobState{State: wire.PrinterOffline, Text: "Klipper is not connected to Moonraker"}, nil
	}
	if err != nil {
		return wire.PrinterJobState{}, err
	}
	p, card := answer.Result.Status.Print, answer.Result.Status.Card
	j := wire.PrinterJobState{
		Text: wire.Clean(p.State, 64), File: wire.Clean(p.File, wire.MaxPath), Seconds: p.Duration.v,
		FilePosition: card.Position.int(), Size: card.Size.int(),
	}
	if j.File != "" {
		j.Location = wire.PrinterLocal
	}
	if card.Progress.v != nil {
		percent := *card.Progress.v * 100
		j.Completion = &percent
	}
	switch p.State {
	case "printing":
		j.State = wire.PrinterPrinting
	case "paused":
		j.State = wire.PrinterPaused
	case "standby", "complete", "cancelled":
		j.State = wire.PrinterReady
	case "error": // the last job failed; the printer is ready for another
		j.State, j.Error = wire.PrinterReady, wire.Clean(p.Message, 500)
	default:
		j.State = wire.PrinterUnknown
	}
	if firmwareDown(p.Message) {
		j.State = wire.PrinterNeedsFirmwareRestart
	}
	return j, nil
}

// moonrakerJob is the request for an action (moonraker: POST
// /printer/print/…). It answers 200 even where there is nothing to do, so what
// makes no sense is refused here.
func moonrakerJob(action string, j wire.PrinterJobState) (call, error) {
	q := call{method: http.MethodPost, path: []string{"printer", "print", action}}
	active := Active(j.State)
	switch action {
	case Start:
		if active || j.File == "" {
			return q, conflict(nil, j)
		}
		q.query = url.Values{"filename": {j.File}}
	case Pause, Resume, Cancel:
		if !active {
			return q, conflict(nil, j)
		}
	default:
		return q, wire.Errorf(wire.FeatureNotSupported, "Moonraker has no %s; cancel the job and start it", action).With("feature", action)
	}
	return q, nil
}

// klipperTarget sets a heater by its G-code (klipper: G-Codes.md).
func (c *Client) klipperTarget(ctx context.Context, heater string, celsius float64) error {
	line := ""
	n, isTool := strings.CutPrefix(heater, "tool")
	switch {
	case isTool:
		line = fmt.Sprintf("M104 T%s S%s", n, decimal(celsius))
	case heater == "bed":
		line = "M140 S" + decimal(celsius)
	default: // heaters of other names have sections of their own
		line = "SET_HEATER_TEMPERATURE HEATER=" + heater + " TARGET=" + decimal(celsius)
	}
	return c.GCode(ctx, []string{line})
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// jogCode moves without leaving the coordinates' mode changed.
func jogCode(axes map[string]float64, absolute bool, speed float64) []string {
	move := "G1"
	for _, axis := range []string{"x", "y", "z"} {
		if mm, ok := axes[axis]; ok {
			move += " " + strings.ToUpper(axis) + decimal(mm)
		}
	}
	if speed > 0 {
		move += " F" + decimal(speed)
	}
	mode := "G91"
	if absolute {
		mode = "G90"
	}
	return []string{"SAVE_GCODE_STATE NAME=farhand_jog", mode, move, "RESTORE_GCODE_STATE NAME=farhand_jog"}
}

// klipperFiles lists the G-code files (moonraker: GET /server/files/list).
func (c *Client) klipperFiles(ctx context.Context) (wire.PrinterFileList, error) {
	var answer struct {
		Result []struct {
			Path     string `json:"path"`
			Modified number `json:"modified"`
			Size     number `json:"size"`
		} `json:"result"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"server", "files", "list"}, query: url.Values{"root": {"gcodes"}}}, &answer)
	if err != nil {
		return wire.PrinterFileList{}, err
	}
	list := wire.PrinterFileList{Files: []wire.PrinterFile{}}
	for _, f := range answer.Result {
		file := wire.PrinterFile{Location: wire.PrinterLocal, Path: f.Path, Type: "machinecode", Size: f.Size.int()}
		if d := f.Modified.int(); d != nil {
			file.Date = *d
		}
		list.Files = append(list.Files, file)
	}
	sorted.By(list.Files, func(a, b wire.PrinterFile) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}
