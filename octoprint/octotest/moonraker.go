package octotest

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// moonraker answers as Moonraker with octoprint_compat.
func (q *request) moonraker() {
	// moonraker: authorization: a key, or an address in trusted_clients.
	if !q.keyed() && !q.s.opts.Trusted {
		q.trouble(http.StatusUnauthorized, "Unauthorized")
		return
	}
	route := q.r.Method + " " + strings.Join(q.path, "/")
	switch {
	case route == "GET api/version":
		q.json(http.StatusOK, map[string]string{"server": "1.5.0", "api": "0.1", "text": "OctoPrint (Moonraker v0.9.3-1-g4e00a07)"})
	case route == "POST api/login": // no session: the compatibility layer has no socket
		q.json(http.StatusOK, map[string]any{"name": "_api", "active": true, "user": true, "admin": true, "apikey": nil})
	case route == "GET api/printer":
		q.s.do(func(m *machine) {
			q.json(http.StatusOK, map[string]any{"temperature": temperatures(m), "state": map[string]any{"text": klippyState(m), "flags": klippyFlags(m)}})
		})
	case route == "GET api/job": // without file and progress, always
		q.s.do(func(m *machine) {
			q.json(http.StatusOK, map[string]any{"job": map[string]any{"file": map[string]any{"name": nil}}, "progress": map[string]any{"completion": nil}, "state": klippyState(m)})
		})
	case route == "POST api/printer/command":
		q.klippyCommand()
	case route == "POST api/files/local":
		q.klippyUpload()
	case q.r.Method == http.MethodPost && strings.HasPrefix(route, "POST api/files/moonraker/"):
		q.klippySelect(strings.Join(q.path[3:], "/"))
	case route == "GET printer/info":
		q.klippyInfo()
	case route == "GET printer/objects/query":
		q.klippyObjects()
	case strings.HasPrefix(route, "POST printer/print/") && len(q.path) == 3:
		q.klippyPrint(q.path[2])
	case route == "GET server/files/list":
		q.klippyList()
	case strings.HasPrefix(route, "DELETE server/files/gcodes/"):
		q.klippyDelete(strings.Join(q.path[3:], "/"))
	default:
		q.trouble(http.StatusNotFound, "Not Found")
	}
}

// trouble answers with Moonraker's form of an error.
func (q *request) trouble(status int, text string) {
	q.json(status, map[string]any{"error": map[string]any{"code": status, "message": text, "traceback": ""}})
}

func (q *request) result(v any) { q.json(http.StatusOK, map[string]any{"result": v}) }

// klippyState: octoprint_compat.py, printer_state.
func klippyState(m *machine) string {
	switch {
	case m.down:
		return "Error"
	case m.state == Offline:
		return "Offline"
	}
	return m.state
}

// klippyFlags: octoprint_compat.py, _get_printer.
func klippyFlags(m *machine) map[string]bool {
	state := klippyState(m)
	bad := state == "Error" || state == "Offline"
	return map[string]bool{
		"operational": !bad, "paused": state == Paused, "printing": state == Printing, "cancelling": false, "pausing": false,
		"error": state == "Error", "ready": state == Operational, "closedOrError": bad,
	}
}

// klippyCommand: octoprint_compat.py, _post_command: answers {} whatever
// becomes of the commands.
func (q *request) klippyCommand() {
	var a struct {
		Commands []string `json:"commands"`
	}
	if !q.body(&a) {
		return
	}
	q.s.do(func(m *machine) {
		for _, line := range a.Commands {
			if m.operational() || line == "FIRMWARE_RESTART" {
				m.run(line)
			}
		}
		q.json(http.StatusOK, map[string]any{})
	})
}

// klippyUpload: file_manager.py: 403 while the file is loaded; print is left out
// while another job runs.
func (q *request) klippyUpload() {
	f, err := q.readForm()
	if err != nil || f.name == "" {
		if errors.Is(err, errRefused) {
			q.trouble(http.StatusBadRequest, "Bad Request")
			return
		}
		q.trouble(http.StatusBadRequest, "No file name specified in upload form")
		return
	}
	path := strings.Trim(strings.Trim(f.fields["path"], "/")+"/"+f.name, "/")
	q.s.do(func(m *machine) {
		if m.busy() && m.selected != nil && m.selected.Path == path {
			q.trouble(http.StatusForbidden, "File is loaded, upload not permitted")
			return
		}
		stored := &file{Path: path, Display: f.name, Size: f.size, Date: time.Now().Unix(), Content: f.content}
		m.files["local"][path] = stored
		started := false
		if f.fields["print"] == "true" && m.operational() && !m.busy() {
			m.location, m.selected = "local", stored
			started = m.start()
		}
		q.w.Header().Set("Location", q.ref(append([]string{"api", "files", "moonraker", "gcodes"}, strings.Split(path, "/")...)...))
		q.json(http.StatusCreated, map[string]any{
			"item": map[string]any{"path": path, "root": "gcodes", "size": f.size}, "print_started": started, "print_queued": false, "action": "create_file",
		})
	})
}

// klippySelect: octoprint_compat.py, _select_file.
func (q *request) klippySelect(path string) {
	var a struct {
		Command string `json:"command"`
		Print   bool   `json:"print"`
	}
	if !q.body(&a) {
		return
	}
	name, ok := strings.CutPrefix(path, "gcodes/")
	q.s.do(func(m *machine) {
		f := m.files["local"][name]
		switch {
		case a.Command != "select", !ok, f == nil:
			q.trouble(http.StatusBadRequest, "File does not exist")
		case !a.Print:
			q.json(http.StatusOK, nil)
		case m.busy() || !m.operational():
			q.trouble(http.StatusConflict, "Conflict")
		default:
			m.location, m.selected = "local", f
			m.start()
			q.json(http.StatusOK, nil)
		}
	})
}

// klippyInfo: moonraker: GET /printer/info.
func (q *request) klippyInfo() {
	q.s.do(func(m *machine) {
		switch {
		case m.down:
			q.result(map[string]string{"state": "shutdown", "state_message": m.errText})
		case m.state == Offline:
			q.trouble(http.StatusServiceUnavailable, "Klippy Host not connected")
		default:
			q.result(map[string]string{"state": "ready", "state_message": "Printer is ready"})
		}
	})
}

// klippyObjects: klipper: Status_Reference.md, print_stats and virtual_sdcard.
func (q *request) klippyObjects() {
	q.s.do(func(m *machine) {
		if m.state == Offline && !m.down {
			q.trouble(http.StatusServiceUnavailable, "Klippy Host not connected")
			return
		}
		stats := map[string]any{"state": "standby", "filename": "", "print_duration": m.printed.Seconds(), "message": ""}
		card := map[string]any{"progress": 0.0, "file_position": 0, "file_size": 0, "is_active": m.state == Printing}
		if m.selected != nil {
			done := m.printed.Seconds() / m.length.Seconds()
			stats["filename"] = m.selected.Path
			stats["state"] = map[string]string{Printing: "printing", Paused: "paused", Operational: "complete", Offline: "error"}[m.state]
			card["progress"], card["file_position"], card["file_size"] = done, int64(done*float64(m.selected.Size)), m.selected.Size
		}
		q.result(map[string]any{"eventtime": 1.0, "status": map[string]any{"print_stats": stats, "virtual_sdcard": card}})
	})
}

// klippyPrint: moonraker: POST /printer/print/….
func (q *request) klippyPrint(action string) {
	q.s.do(func(m *machine) {
		ok := m.operational()
		switch action {
		case "start":
			f := m.files["local"][q.r.URL.Query().Get("filename")]
			if ok = ok && f != nil && !m.busy(); ok {
				m.location, m.selected = "local", f
				ok = m.start()
			}
		case "pause":
			if ok = ok && m.busy(); ok {
				m.state = Paused
			}
		case "resume":
			if ok = ok && m.state == Paused; ok {
				m.state = Printing
			}
		case "cancel":
			if m.busy() {
				m.state, m.printed = Operational, 0
				m.selected = nil
			}
		default:
			ok = false
		}
		if !ok {
			q.trouble(http.StatusBadRequest, "Print not active")
			return
		}
		q.result("ok")
	})
}

// klippyList: moonraker: GET /server/files/list.
func (q *request) klippyList() {
	q.s.do(func(m *machine) {
		list := []map[string]any{}
		for _, f := range m.files["local"] {
			list = append(list, map[string]any{"path": f.Path, "modified": float64(f.Date) + 0.25, "size": f.Size, "permissions": "rw"})
		}
		q.result(list)
	})
}

// klippyDelete: moonraker: DELETE /server/files/{root}/{filename}.
func (q *request) klippyDelete(path string) {
	q.s.do(func(m *machine) {
		switch f := m.files["local"][path]; {
		case f == nil:
			q.trouble(http.StatusNotFound, "File not found")
		case m.busy() && f == m.selected:
			q.trouble(http.StatusForbidden, "File currently in use")
		default:
			delete(m.files["local"], path)
			q.result(map[string]any{"item": map[string]any{"path": path, "root": "gcodes"}, "action": "delete_file"})
		}
	})
}
