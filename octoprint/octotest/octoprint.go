package octotest

import (
	"net/http"
	"regexp"
	"strings"
)

// octoprint answers as OctoPrint.
func (q *request) octoprint() {
	route := q.r.Method + " " + strings.Join(q.path, "/")
	switch { // docs: appkeys: no key is needed; docs: push: the socket has its own
	case strings.HasPrefix(route, "GET plugin/appkeys/"), strings.HasPrefix(route, "POST plugin/appkeys/"):
		q.appkeys()
		return
	case route == "GET sockjs/websocket":
		q.push()
		return
	}
	if !q.keyed() { // docs: general: "directly return a response with status 403"
		q.fail(http.StatusForbidden, "You don't have the permission to access the requested resource. It is either read-protected or not readable by the server.")
		return
	}
	switch route {
	case "GET api/version":
		q.version()
	case "POST api/login":
		q.login()
	case "GET api/printer":
		q.printer()
	case "GET api/printer/error": // docs: printer, from 1.10
		q.s.do(func(m *machine) { q.json(http.StatusOK, map[string]any{"error": m.errText, "reason": reason(m)}) })
	case "POST api/printer/printhead":
		q.printhead()
	case "POST api/printer/tool", "POST api/printer/bed", "POST api/printer/chamber":
		q.heat(q.path[2])
	case "POST api/printer/command":
		q.command()
	case "GET api/job":
		q.s.do(func(m *machine) { q.json(http.StatusOK, jobOf(m)) })
	case "POST api/job":
		q.jobCommand()
	default:
		if len(q.path) >= 2 && q.path[0] == "api" && q.path[1] == "files" {
			q.files()
			return
		}
		q.fail(http.StatusNotFound, "The requested URL was not found on the server.")
	}
}

func reason(m *machine) string {
	if m.down {
		return "firmware"
	}
	return ""
}

// version: docs: version; with API version 2.0.0 the key api is dropped.
func (q *request) version() {
	number := "1.11.4"
	if q.s.opts.API2 {
		number = "2.0.0"
	}
	v := map[string]string{"server": number, "text": "OctoPrint " + number}
	if !q.shape2() {
		v["api"] = "0.1"
	}
	q.json(http.StatusOK, v)
}

// flags: docs: datamodel, "Printer State".
func flags(m *machine) map[string]bool {
	up := m.operational()
	return map[string]bool{
		"operational": up, "paused": m.state == Paused, "printing": m.state == Printing, "pausing": false, "cancelling": false,
		"sdReady": up, "error": m.down, "ready": up && !m.busy(), "closedOrError": !up,
	}
}

func temperatures(m *machine) map[string]any {
	t := make(map[string]any)
	for name, h := range m.heaters {
		t[name] = map[string]any{"actual": round(h.actual), "target": h.target, "offset": 0}
	}
	return t
}

func round(v float64) float64 { return float64(int(v*100)) / 100 }

// printer: docs: printer, "Retrieve the current printer state".
func (q *request) printer() {
	q.s.do(func(m *machine) {
		if !m.operational() {
			q.fail(http.StatusConflict, "Printer is not operational")
			return
		}
		card := "sd"
		if q.shape2() {
			card = "storage"
		}
		q.json(http.StatusOK, map[string]any{
			"temperature": temperatures(m),
			card:          map[string]bool{"ready": true},
			"state":       map[string]any{"text": m.state, "flags": flags(m)},
		})
	})
}

// printhead: docs: printer, "Issue a print head command".
func (q *request) printhead() {
	var a struct {
		Command  string   `json:"command"`
		Axes     []string `json:"axes"`
		X        *float64 `json:"x"`
		Y        *float64 `json:"y"`
		Z        *float64 `json:"z"`
		Absolute bool     `json:"absolute"`
	}
	if !q.body(&a) {
		return
	}
	q.s.do(func(m *machine) {
		if !m.operational() || m.busy() {
			q.fail(http.StatusConflict, "Printer is not operational or currently printing")
			return
		}
		switch a.Command {
		case "home":
			for _, axis := range a.Axes {
				if _, ok := m.axes[axis]; !ok {
					q.fail(http.StatusBadRequest, "Invalid axis: "+axis)
					return
				}
				m.home(axis)
			}
		case "jog":
			for axis, mm := range map[string]*float64{"x": a.X, "y": a.Y, "z": a.Z} {
				if mm != nil {
					m.move(axis, *mm, a.Absolute)
				}
			}
		default:
			q.fail(http.StatusBadRequest, "Unknown command")
			return
		}
		q.done()
	})
}

var toolName = regexp.MustCompile(`^tool[0-9]+$`)

// heat: docs: printer, "Issue a tool command", "a bed command".
func (q *request) heat(part string) {
	var a struct {
		Command string             `json:"command"`
		Target  *float64           `json:"target"`
		Targets map[string]float64 `json:"targets"`
	}
	if !q.body(&a) {
		return
	}
	targets := a.Targets
	if part != "tool" {
		if a.Target == nil {
			q.fail(http.StatusBadRequest, "target is missing")
			return
		}
		targets = map[string]float64{part: *a.Target}
	}
	q.s.do(func(m *machine) {
		for name, celsius := range targets {
			switch {
			case a.Command != "target", part == "tool" && !toolName.MatchString(name), celsius < 0:
				q.fail(http.StatusBadRequest, "Invalid target for setting temperature: "+name)
				return
			case !m.operational():
				q.fail(http.StatusConflict, "Printer is not operational")
				return
			case !m.target(name, celsius) && part != "tool": // docs: "If no heated bed is configured"
				q.fail(http.StatusConflict, "Printer does not have a heated "+part)
				return
			}
		}
		q.done()
	})
}

// command: docs: printer, "Send an arbitrary command to the printer".
func (q *request) command() {
	var a struct {
		Command  string   `json:"command"`
		Commands []string `json:"commands"`
	}
	if !q.body(&a) {
		return
	}
	if (a.Command == "") == (len(a.Commands) == 0) {
		q.fail(http.StatusBadRequest, "Either command or commands must be given")
		return
	}
	if a.Command != "" {
		a.Commands = []string{a.Command}
	}
	q.s.do(func(m *machine) {
		if !m.operational() {
			q.fail(http.StatusConflict, "Printer is not operational")
			return
		}
		for _, line := range a.Commands {
			m.run(line)
		}
		q.done()
	})
}

// jobOf: docs: job, "Job information response".
func jobOf(m *machine) map[string]any {
	j := map[string]any{"job": jobInfo(m), "progress": progress(m), "state": m.state}
	if m.errText != "" {
		j["error"] = m.errText
		j["state"] = "Offline after error"
	}
	return j
}

func jobInfo(m *machine) map[string]any {
	f := map[string]any{"name": nil, "path": nil, "display": nil, "origin": nil, "size": nil, "date": nil}
	var estimated any
	if m.selected != nil {
		f = map[string]any{"name": base(m.selected.Path), "path": m.selected.Path, "display": m.selected.Display,
			"origin": m.location, "size": m.selected.Size, "date": m.selected.Date}
		estimated = m.length.Seconds()
	}
	return map[string]any{"file": f, "estimatedPrintTime": estimated, "filament": nil, "user": nil}
}

func progress(m *machine) map[string]any {
	if m.selected == nil || m.printed == 0 && m.state != Printing {
		return map[string]any{"completion": nil, "filepos": nil, "printTime": nil, "printTimeLeft": nil}
	}
	done := m.printed.Seconds() / m.length.Seconds()
	return map[string]any{
		"completion": done * 100, "filepos": int64(done * float64(m.selected.Size)),
		"printTime": int(m.printed.Seconds()), "printTimeLeft": int((m.length - m.printed).Seconds()),
	}
}

// jobCommand: docs: job, "Issue a job command".
func (q *request) jobCommand() {
	var a struct {
		Command string `json:"command"`
		Action  string `json:"action"`
	}
	if !q.body(&a) {
		return
	}
	q.s.do(func(m *machine) {
		ok := m.operational()
		switch a.Command {
		case "start":
			ok = ok && m.start()
		case "restart":
			if ok = ok && m.state == Paused; ok {
				m.state = Operational
				ok = m.start()
			}
		case "cancel":
			if ok = ok && m.busy(); ok {
				m.state, m.printed = Operational, 0
				for _, h := range m.heaters {
					h.target = 0
				}
			}
		case "pause":
			if ok = ok && m.busy(); ok {
				paused := a.Action == "pause" || a.Action != "resume" && m.state == Printing
				m.state = map[bool]string{true: Paused, false: Printing}[paused]
			}
		default:
			q.fail(http.StatusBadRequest, "Unknown command")
			return
		}
		if !ok || q.faults.PrintConflict {
			q.fail(http.StatusConflict, "Printer is not operational or the current print job state does not match the preconditions for the command")
			return
		}
		q.done()
	})
}
