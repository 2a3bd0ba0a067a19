package octotest

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// free is what a list says of the space that is left.
const free = 3435973836 // 3.2GB in powers of 1024

// files: docs: files.
func (q *request) files() {
	loc, rest := "", []string(nil)
	if len(q.path) > 2 {
		loc, rest = q.path[2], q.path[3:]
	}
	if loc == "printer" && q.s.opts.API2 { // docs: files, 2.0: sdcard is a deprecated alias
		loc = "sdcard"
	}
	if loc != "" && loc != "local" && loc != "sdcard" {
		q.fail(http.StatusNotFound, "Unknown location: "+loc)
		return
	}
	path := strings.Join(rest, "/")
	switch {
	case q.r.Method == http.MethodGet:
		q.list(loc, path)
	case q.r.Method == http.MethodPost && loc != "" && path == "":
		q.upload(loc)
	case q.r.Method == http.MethodPost && path != "":
		q.fileCommand(loc, path)
	case q.r.Method == http.MethodDelete && path != "":
		q.remove(loc, path)
	default:
		q.fail(http.StatusMethodNotAllowed, "The method is not allowed for the requested URL.")
	}
}

// origin is the name of a location in this shape.
func (q *request) origin(loc string) string {
	if loc == "sdcard" && q.shape2() {
		return "printer"
	}
	return loc
}

// list: docs: files, "Retrieve all files", "Retrieve files from specific
// location", "Retrieve a specific file's or folder's information".
func (q *request) list(loc, path string) {
	recursive := q.r.URL.Query().Get("recursive") == "true"
	q.s.do(func(m *machine) {
		if path != "" {
			e := q.entryAt(m, loc, path, recursive)
			if e == nil {
				q.fail(http.StatusNotFound, "The requested file was not found")
				return
			}
			q.json(http.StatusOK, e)
			return
		}
		storage := func(loc string) map[string]any {
			s := map[string]any{"key": q.origin(loc), "name": loc, "capabilities": map[string]bool{}, "files": q.tree(m, loc, "", recursive)}
			if loc == "local" {
				s["usage"] = map[string]int64{"free": free, "total": 2 * free}
			}
			return s
		}
		switch {
		case q.shape2() && loc == "":
			q.json(http.StatusOK, map[string]any{"local": storage("local"), "printer": storage("sdcard")})
		case q.shape2():
			q.json(http.StatusOK, storage(loc))
		case loc == "":
			q.json(http.StatusOK, map[string]any{"files": append(q.tree(m, "local", "", recursive), q.tree(m, "sdcard", "", recursive)...), "free": "3.2GB"})
		default:
			q.json(http.StatusOK, map[string]any{"files": q.tree(m, loc, "", recursive), "free": "3.2GB"})
		}
	})
}

// tree is what lies in a folder; deeper levels only if recursive.
func (q *request) tree(m *machine, loc, folder string, recursive bool) []map[string]any {
	entries := []map[string]any{}
	folders := make(map[string]bool)
	paths := make([]string, 0, len(m.files[loc]))
	for p := range m.files[loc] {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		rest, ok := strings.CutPrefix(p, folder)
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		if !deeper {
			entries = append(entries, q.entry(loc, m.files[loc][p]))
			continue
		}
		if folders[name] {
			continue
		}
		folders[name] = true
		e := map[string]any{"name": name, "display": name, "path": folder + name, "type": "folder", "typePath": []string{"folder"}, "origin": q.origin(loc)}
		e["children"] = []map[string]any{}
		if recursive {
			e["children"] = q.tree(m, loc, folder+name+"/", true)
		}
		entries = append(entries, e)
	}
	return entries
}

// entryAt is a file, or a folder with what lies in it; nil if it isn't there.
func (q *request) entryAt(m *machine, loc, path string, recursive bool) map[string]any {
	if f := m.files[loc][path]; f != nil {
		return q.entry(loc, f)
	}
	children := q.tree(m, loc, path+"/", recursive)
	if len(children) == 0 {
		return nil
	}
	return map[string]any{"name": base(path), "display": base(path), "path": path, "type": "folder", "origin": q.origin(loc), "children": children}
}

// entry: docs: datamodel, "File information"; sizes and dates of local files
// only.
func (q *request) entry(loc string, f *file) map[string]any {
	e := map[string]any{
		"name": base(f.Path), "display": f.Display, "path": f.Path, "type": "machinecode", "typePath": []string{"machinecode", "gcode"},
		"origin": q.origin(loc), "refs": map[string]string{"resource": q.ref(append([]string{"api", "files", q.origin(loc)}, strings.Split(f.Path, "/")...)...)},
	}
	if loc == "local" {
		e["size"], e["date"], e["hash"] = f.Size, f.Date, "0123456789abcdef0123456789abcdef"
		e["gcodeAnalysis"] = map[string]any{"estimatedPrintTime": q.s.opts.Job.Seconds()}
	}
	return e
}

// form is an upload as it arrived.
type form struct {
	name    string
	size    int64
	content []byte
	fields  map[string]string
}

var errRefused = errors.New("refused")

// readForm reads multipart/form-data. The file's name is that of filename* if
// it is there (docs: general, "Encoding").
func (q *request) readForm() (form, error) {
	f := form{fields: make(map[string]string)}
	if q.r.ContentLength < 0 { // docs: files: Content-Length is required
		return f, errRefused
	}
	parts, err := q.r.MultipartReader()
	if err != nil {
		return f, err
	}
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		header := part.Header.Get("Content-Disposition")
		_, params, err := mime.ParseMediaType(header)
		if err != nil {
			return f, err
		}
		if params["name"] != "file" {
			b, err := io.ReadAll(io.LimitReader(part, 4096))
			if err != nil {
				return f, err
			}
			f.fields[params["name"]] = string(b)
			continue
		}
		f.name = params["filename"] // ParseMediaType puts filename* in its place
		if q.faults.RefuseNonLatin && !latin(header) {
			return f, errRefused
		}
		if f.content, f.size, err = head(part); err != nil {
			return f, err
		}
	}
}

// latin says whether a header's file name, decoded, is Latin-1.
func latin(header string) bool {
	_, star, ok := strings.Cut(header, "filename*=utf-8''")
	if !ok {
		return true
	}
	name, err := url.PathUnescape(star)
	return err == nil && !strings.ContainsFunc(name, func(r rune) bool { return r > 0xff })
}

// head keeps the beginning of a file and counts the rest.
func head(part *multipart.Part) ([]byte, int64, error) {
	b, err := io.ReadAll(io.LimitReader(part, keep))
	if err != nil {
		return nil, 0, err
	}
	n, err := io.Copy(io.Discard, part)
	return b, int64(len(b)) + n, err
}

// upload: docs: files, "Upload file or create folder".
func (q *request) upload(loc string) {
	f, err := q.readForm()
	if errors.Is(err, errRefused) {
		page(q.w, http.StatusBadRequest, "Bad Request") // bare, as in OctoPrint#5206
		return
	}
	if err != nil || f.name == "" {
		q.fail(http.StatusBadRequest, "No file to upload and no folder to create")
		return
	}
	if ext := strings.ToLower(f.name[strings.LastIndexByte(f.name, '.')+1:]); ext != "gcode" && ext != "gco" && ext != "g" && ext != "stl" {
		q.fail(http.StatusUnsupportedMediaType, "Could not upload file, invalid type")
		return
	}
	path := sanitize(f.name)
	if folder := strings.Trim(f.fields["path"], "/"); folder != "" {
		path = folder + "/" + path
	}
	if loc == "sdcard" { // the card has short names
		path = strings.ToLower(base(path))
	}
	q.s.do(func(m *machine) {
		if m.busy() && m.selected != nil && m.selected.Path == path && m.location == loc {
			q.fail(http.StatusConflict, "Trying to overwrite file that is currently being printed")
			return
		}
		if loc == "sdcard" && (!m.operational() || m.busy()) {
			q.fail(http.StatusConflict, "Can not upload to SD card, printer is either not operational or already busy")
			return
		}
		stored := &file{Path: path, Display: f.name, Size: f.size, Date: time.Now().Unix(), Content: f.content}
		m.files[loc][path] = stored
		selected, printing := false, false
		if f.fields["select"] == "true" || f.fields["print"] == "true" {
			if m.operational() && !m.busy() { // docs: otherwise "this will have no effect"
				m.location, m.selected, selected = loc, stored, true
				printing = f.fields["print"] == "true" && m.start()
			}
		}
		if printing && q.faults.PrintConflict {
			q.fail(http.StatusConflict, "Printer is already printing")
			return
		}
		resource := q.ref(append([]string{"api", "files", q.origin(loc)}, strings.Split(path, "/")...)...)
		q.w.Header().Set("Location", resource)
		added := map[string]any{"name": base(path), "display": f.name, "path": path, "origin": q.origin(loc), "refs": map[string]string{"resource": resource}}
		answer := map[string]any{"done": true, "effectiveSelect": selected, "effectivePrint": printing}
		if q.shape2() {
			answer["file"] = added
		} else {
			answer["files"] = map[string]any{loc: added}
		}
		q.json(http.StatusCreated, answer)
	})
}

// sanitize renames as OctoPrint does: into ASCII, accents dropped, spaces to
// underscores (docs: datamodel: name "will always fit into ASCII"; files: the
// example 20mm-ümläut-böx.gcode becomes 20mm-umlaut-box.gcode).
func sanitize(name string) string {
	const accented, plain = "äöüÄÖÜàáâèéêìíîòóôùúûçñßåø", "aouAOUaaaeeeiiiooouuucnsao"
	var b strings.Builder
	for _, r := range name {
		switch {
		case r == ' ':
			b.WriteByte('_')
		case r < utf8.RuneSelf && r > ' ' && r != '/' && r != '\\':
			b.WriteRune(r)
		case strings.ContainsRune(accented, r):
			i := utf8.RuneCountInString(accented[:strings.IndexRune(accented, r)])
			b.WriteByte(plain[i])
		default:
			b.WriteString("x") // unidecode would spell it; that it is another name is enough
		}
	}
	return b.String()
}

// fileCommand: docs: files, "Issue a file command".
func (q *request) fileCommand(loc, path string) {
	var a struct {
		Command string `json:"command"`
		Print   bool   `json:"print"`
	}
	if !q.body(&a) {
		return
	}
	if a.Command != "select" {
		q.fail(http.StatusBadRequest, "Unknown command")
		return
	}
	q.s.do(func(m *machine) {
		f := m.files[loc][path]
		switch {
		case f == nil:
			q.fail(http.StatusNotFound, "The requested file was not found")
			return
		case m.busy(), !m.operational() && a.Print:
			q.fail(http.StatusConflict, "Printer is already printing, cannot select a new file")
			return
		}
		m.location, m.selected, m.printed = loc, f, 0
		if a.Print && m.start() && q.faults.PrintConflict {
			q.fail(http.StatusConflict, "Printer is already printing, cannot select a new file")
			return
		}
		q.done()
	})
}

// remove: docs: files, "Delete file".
func (q *request) remove(loc, path string) {
	q.s.do(func(m *machine) {
		switch f := m.files[loc][path]; {
		case f == nil:
			q.fail(http.StatusNotFound, "The requested file was not found")
		case m.busy() && f == m.selected:
			q.fail(http.StatusConflict, "Trying to delete a file that is currently in use")
		default:
			delete(m.files[loc], path)
			if m.selected == f {
				m.selected = nil
			}
			q.done()
		}
	})
}
