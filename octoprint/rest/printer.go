package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"farhand/wire"
)

// The kinds of wire.PrinterServer.
const (
	KindOctoPrint = "octoprint"
	KindMoonraker = "moonraker"
)

// Identify asks the server what it is; it asks again only after some minutes.
func (c *Client) Identify(ctx context.Context) (wire.PrinterServer, error) {
	c.mu.Lock()
	id, known := c.identity, c.known
	c.mu.Unlock()
	if !known.IsZero() && time.Since(known) < identityAge {
		return id, nil
	}
	var v struct {
		API    *string `json:"api"`
		Server string  `json:"server"`
		Text   string  `json:"text"`
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: []string{"api", "version"}}, &v); err != nil {
		return id, err
	}
	// docs: version: "text containing the server version including the prefix
	// OctoPrint (to determine that this is indeed a genuine OctoPrint instance)".
	if !strings.HasPrefix(v.Text, "OctoPrint") {
		return id, wire.Errorf(wire.HardwareOpenFailed, "what answers at %s is no OctoPrint", c.Origin()).
			With("reason", "not_octoprint").With("hint", "see that the address in hardware.printers is that of OctoPrint or of Moonraker with its octoprint_compat component")
	}
	id = wire.PrinterServer{Kind: KindOctoPrint, Version: wire.Clean(v.Server, 64), API: "1", Text: wire.Clean(v.Text, 128)}
	if v.API == nil { // docs: version: for 2.0.0 "the api key on the response has been dropped"
		id.API = "2"
	}
	if strings.Contains(v.Text, "Moonraker") { // moonraker: "OctoPrint (Moonraker v0.9.3)"
		id.Kind = KindMoonraker
		_, version, _ := strings.Cut(v.Text, "Moonraker ")
		id.Version = wire.Clean(strings.TrimRight(version, ")"), 64)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identity, c.known = id, time.Now()
	return id, nil
}

// Status is everything at once. That the printer is not connected is a state,
// not an error.
func (c *Client) Status(ctx context.Context) (wire.PrinterStatus, error) {
	id, err := c.Identify(ctx)
	if err != nil {
		return wire.PrinterStatus{}, err
	}
	var p struct {
		Temperature map[string]json.RawMessage `json:"temperature"`
		SD          *ready                     `json:"sd"`      // before 2.0
		Storage     *ready                     `json:"storage"` // from 2.0
		State       struct {
			Text  string `json:"text"`
			Flags *Flags `json:"flags"`
		} `json:"state"`
	}
	err = c.do(ctx, call{method: http.MethodGet, path: []string{"api", "printer"}}, &p)
	notConnected := status(err) == http.StatusConflict // docs: printer: "409 If the printer is not operational"
	if err != nil && !notConnected && !unavailable(err) {
		return wire.PrinterStatus{}, err
	}
	j, err := c.job(ctx)
	if err != nil && !unavailable(err) {
		return wire.PrinterStatus{}, err
	}
	if p.State.Text == "" { // only the job knows the state of a connection that is not there
		p.State.Text = j.State
	}
	s := assemble(p.State.Text, p.State.Flags, p.Temperature, &j)
	if s.State == wire.PrinterUnknown && notConnected {
		s.State, s.Hint = wire.PrinterOffline, hint(wire.PrinterOffline)
	}
	s.Server = &id
	for _, r := range []*ready{p.SD, p.Storage} {
		if r != nil {
			s.Storage = &r.Ready
		}
	}
	switch {
	case id.Kind == KindMoonraker:
		err = c.klipper(ctx, &s)
	case s.Error == "" && (s.State == wire.PrinterError || s.State == wire.PrinterOffline):
		c.lastError(ctx, &s)
		err = nil
	}
	return s, err
}

type ready struct {
	Ready bool `json:"ready"`
}

// unavailable says that Moonraker has no Klipper to ask.
func unavailable(err error) bool {
	f, ok := errors.AsType[*Failure](err)
	return ok && f.Moonraker && f.Status == http.StatusServiceUnavailable
}

// lastError adds why the connection was lost, where the server tells (docs:
// printer, "Retrieve the current printer error", from 1.10). A server that
// doesn't is none the worse for it.
func (c *Client) lastError(ctx context.Context, s *wire.PrinterStatus) {
	var e struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}
	if c.do(ctx, call{method: http.MethodGet, path: []string{"api", "printer", "error"}}, &e) != nil {
		return
	}
	s.Error = wire.Clean(e.Error, 500)
	if firmwareDown(e.Error) || firmwareDown(e.Reason) {
		s.State, s.Hint = wire.PrinterNeedsFirmwareRestart, hint(wire.PrinterNeedsFirmwareRestart)
	}
}

func (c *Client) job(ctx context.Context) (job, error) {
	var j job
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"api", "job"}}, &j)
	return j, err
}

// Job is the job that runs, waits or was last selected.
func (c *Client) Job(ctx context.Context) (wire.PrinterJobState, error) {
	id, err := c.Identify(ctx)
	if err != nil {
		return wire.PrinterJobState{}, err
	}
	if id.Kind == KindMoonraker {
		return c.klipperJob(ctx)
	}
	j, err := c.job(ctx)
	return j.wire(), err
}

// The actions of JobCommand.
const (
	Start   = "start"
	Pause   = "pause"
	Resume  = "resume"
	Cancel  = "cancel"
	Restart = "restart"
)

// JobCommand runs an action on the job. After a conflict the job is read, and
// if it is as the action would have left it, that is a success with confirmed
// set; the action is never sent again.
func (c *Client) JobCommand(ctx context.Context, action string) (after wire.PrinterJobState, confirmed bool, err error) {
	before, err := c.Job(ctx)
	if err != nil {
		return before, false, err
	}
	q := call{method: http.MethodPost, path: []string{"api", "job"}}
	switch action { // docs: job, "Issue a job command"
	case Start, Cancel, Restart:
		q.body = map[string]string{"command": action}
	case Pause, Resume:
		q.body = map[string]string{"command": Pause, "action": action}
	default:
		return before, false, wire.Errorf(wire.InvalidArgument, "action must be start, pause, resume, cancel or restart").With("field", "action")
	}
	if c.kind() == KindMoonraker {
		if q, err = moonrakerJob(action, before); err != nil {
			return before, false, err
		}
	}
	sent := c.do(ctx, q, nil)
	if sent != nil && status(sent) != http.StatusConflict {
		return before, false, sent
	}
	after, err = c.Job(ctx)
	if err != nil && sent == nil {
		// It was done; what the job looks like now is the smaller part.
		return before, false, nil
	}
	if sent != nil {
		if err != nil || !resolved(action, before, after) {
			return after, false, conflict(sent, after)
		}
		confirmed = true
	}
	return after, confirmed, nil
}

// resolved says whether a job is as the action would have left it.
func resolved(action string, before, after wire.PrinterJobState) bool {
	switch action {
	case Start:
		return !Active(before.State) && after.State == wire.PrinterPrinting
	case Pause:
		return after.State == wire.PrinterPaused || after.State == wire.PrinterPausing
	case Resume:
		return before.State == wire.PrinterPaused && after.State == wire.PrinterPrinting
	case Cancel:
		return Active(before.State) && (!Active(after.State) || after.State == wire.PrinterCancelling)
	}
	return false
}

// conflict says what stands in the way.
func conflict(err error, j wire.PrinterJobState) error {
	var e *wire.Error
	switch {
	case Active(j.State):
		e = wire.Errorf(wire.HardwareBusy, "a job stands in the way: %s is %s", j.File, j.State).
			With("reason", "job_active").With("file", j.File).With("hint", "wait for it, pause it or cancel it")
	case j.State == wire.PrinterReady:
		e = wire.Errorf(wire.HardwareBusy, "there is no job that this could apply to").
			With("reason", "no_job").With("hint", "select a file with PRINTER_FILES, or start one")
	case j.State == wire.PrinterOffline, j.State == wire.PrinterConnecting:
		e = offline(j.Text)
	default:
		e = wire.Errorf(wire.HardwareOpenFailed, "the printer is in no state for this: %s", j.State).With("reason", j.State).With("hint", hint(j.State))
	}
	if f, ok := errors.AsType[*Failure](err); ok && f.Message != "" {
		e = e.With("server_says", f.Message)
	}
	return e.With("state", j.State)
}

// explain puts what the job says in the place of a bare conflict.
func (c *Client) explain(ctx context.Context, err error) error {
	if status(err) != http.StatusConflict {
		return err
	}
	if j, e := c.Job(ctx); e == nil {
		return conflict(err, j)
	}
	return err
}

// Target sets the target of one heater, in °C.
func (c *Client) Target(ctx context.Context, heater string, celsius float64) error {
	if c.kind() == KindMoonraker {
		return c.klipperTarget(ctx, heater, celsius)
	}
	q := call{method: http.MethodPost, path: []string{"api", "printer", heater}, body: map[string]any{"command": "target", "target": celsius}}
	if strings.HasPrefix(heater, "tool") { // docs: printer, "Issue a tool command"
		q.path[2] = "tool"
		q.body = map[string]any{"command": "target", "targets": map[string]float64{heater: celsius}}
	}
	err := c.do(ctx, q, nil)
	if status(err) == http.StatusConflict {
		// docs: printer: 409 if not operational, or if the profile has no such heater.
		j, e := c.Job(ctx)
		if e == nil && (j.State == wire.PrinterReady || Active(j.State)) {
			return wire.Errorf(wire.HardwareNotFound, "the printer's profile has no heater %q", heater).With("heater", heater)
		}
		if e == nil {
			return conflict(err, j)
		}
	}
	return err
}

// GCode hands lines to the printer (docs: printer, "Send an arbitrary command").
func (c *Client) GCode(ctx context.Context, lines []string) error {
	return c.explain(ctx, c.do(ctx, call{method: http.MethodPost, path: []string{"api", "printer", "command"},
		body: map[string]any{"commands": lines}}, nil))
}

// Home homes the axes.
func (c *Client) Home(ctx context.Context, axes []string) error {
	if c.kind() == KindMoonraker {
		return c.GCode(ctx, []string{"G28 " + strings.ToUpper(strings.Join(axes, " "))})
	}
	return c.explain(ctx, c.do(ctx, printhead(map[string]any{"command": "home", "axes": axes}), nil))
}

// Jog moves the head by, or with absolute to, so many mm; speed is in mm/min, 0
// for the slowest of the axes' own.
func (c *Client) Jog(ctx context.Context, axes map[string]float64, absolute bool, speed float64) error {
	if c.kind() == KindMoonraker {
		return c.GCode(ctx, jogCode(axes, absolute, speed))
	}
	body := map[string]any{"command": "jog", "absolute": absolute}
	for axis, mm := range axes {
		body[axis] = mm
	}
	if speed > 0 {
		body["speed"] = int(speed)
	}
	return c.explain(ctx, c.do(ctx, printhead(body), nil))
}

func printhead(body any) call {
	return call{method: http.MethodPost, path: []string{"api", "printer", "printhead"}, body: body}
}

// kind is the server's kind as far as it is known.
func (c *Client) kind() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.identity.Kind
}

// shape2 says whether the server speaks the shapes of 2.0.
func (c *Client) shape2() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.identity.API == "2"
}

// storage is the server's name of a location.
func (c *Client) storage(loc string) string {
	if loc == wire.PrinterStorage && !c.shape2() {
		return "sdcard"
	}
	return loc
}

func flag(name string, on bool) url.Values {
	v := url.Values{}
	if on {
		v.Set(name, "true")
	}
	return v
}
