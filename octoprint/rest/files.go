package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"farhand/internal/sorted"
	"farhand/wire"
)

const (
	maxDepth = 32 // of folders in folders
	// MaxFiles is how many entries a list is cut at.
	MaxFiles = 1000
)

// entry is a file or folder (docs: datamodel, "File information").
type entry struct {
	Name     string  `json:"name"`
	Display  string  `json:"display"`
	Path     string  `json:"path"`
	Type     string  `json:"type"`
	Origin   string  `json:"origin"`
	Size     number  `json:"size"`
	Date     number  `json:"date"`
	Children []entry `json:"children"`
	Analysis *struct {
		Estimated number `json:"estimatedPrintTime"` // seconds
	} `json:"gcodeAnalysis"`
}

// listing is any of the shapes of a list (docs: files, "Retrieve all files"):
// before 2.0 {files, free}, from 2.0 {local: {files, usage}, …} for all, and
// the inner one for a single location. A folder asked for by path is an entry
// with children.
type listing struct {
	Files    []entry         `json:"files"`
	Children []entry         `json:"children"`
	Free     json.RawMessage `json:"free"`
	Usage    *struct {
		Free number `json:"free"`
	} `json:"usage"`
}

// Files lists the files of a location, or with an empty one of all; path is a
// folder in it, or empty.
func (c *Client) Files(ctx context.Context, loc, path string, recursive bool) (wire.PrinterFileList, error) {
	id, err := c.Identify(ctx)
	if err != nil {
		return wire.PrinterFileList{}, err
	}
	var list wire.PrinterFileList
	if id.Kind == KindMoonraker {
		list, err = c.klipperFiles(ctx)
	} else {
		list, err = c.octoFiles(ctx, loc, path, recursive)
	}
	if err != nil {
		return wire.PrinterFileList{}, err
	}
	if id.Kind == KindMoonraker && path != "" {
		below := strings.Trim(path, "/") + "/"
		list.Files = slices.DeleteFunc(list.Files, func(f wire.PrinterFile) bool { return !strings.HasPrefix(f.Path, below) })
	}
	sorted.By(list.Files, func(a, b wire.PrinterFile) int {
		return cmp.Or(strings.Compare(a.Location, b.Location), strings.Compare(a.Path, b.Path))
	})
	if len(list.Files) > MaxFiles {
		list.Files, list.Truncated = list.Files[:MaxFiles], true
	}
	return list, nil
}

func (c *Client) octoFiles(ctx context.Context, loc, path string, recursive bool) (wire.PrinterFileList, error) {
	q := call{method: http.MethodGet, path: []string{"api", "files"}, query: flag("recursive", recursive)}
	if path != "" && loc == "" {
		loc = wire.PrinterLocal
	}
	if loc != "" {
		q.path = append(q.path, c.storage(loc))
	}
	if path != "" {
		segments, err := Segments("path", path)
		if err != nil {
			return wire.PrinterFileList{}, err
		}
		q.path = append(q.path, segments...)
	}
	var raw json.RawMessage
	if err := c.do(ctx, q, &raw); err != nil {
		return wire.PrinterFileList{}, err
	}
	parts := make(map[string]listing)
	if loc == "" && c.shape2() {
		if json.Unmarshal(raw, &parts) != nil {
			return wire.PrinterFileList{}, badList()
		}
	} else {
		var one listing
		if json.Unmarshal(raw, &one) != nil {
			return wire.PrinterFileList{}, badList()
		}
		parts[loc] = one
	}
	list := wire.PrinterFileList{Files: []wire.PrinterFile{}}
	for origin, part := range parts {
		list.Files = flatten(list.Files, part.Files, origin, 0)
		list.Files = flatten(list.Files, part.Children, origin, 0)
		if origin == wire.PrinterLocal || origin == "" {
			list.FreeBytes = part.free()
		}
	}
	return list, nil
}

func badList() error {
	return wire.Errorf(wire.HardwareTransferFailed, "the printer's server answers with a list of files in no form that is documented").With("reason", "bad_answer")
}

// flatten adds entries and what lies in them.
func flatten(to []wire.PrinterFile, entries []entry, origin string, depth int) []wire.PrinterFile {
	for _, e := range entries {
		// One more than the limit shows that there were more.
		if depth == maxDepth || len(to) > MaxFiles {
			return to
		}
		if e.Path == "" {
			e.Path = e.Name
		}
		if e.Origin == "" { // folders have none before 1.4
			e.Origin = origin
		}
		f := wire.PrinterFile{Location: location(e.Origin), Path: wire.Clean(e.Path, wire.MaxPath), Type: wire.Clean(e.Type, 32), Size: e.Size.int()}
		if d := wire.Clean(e.Display, 500); d != f.Path && d != wire.Clean(e.Name, 500) {
			f.Display = d
		}
		if d := e.Date.int(); d != nil {
			f.Date = *d
		}
		if e.Analysis != nil {
			f.EstimatedSeconds = e.Analysis.Estimated.v
		}
		to = append(to, f)
		to = flatten(to, e.Children, e.Origin, depth+1)
	}
	return to
}

// free is the free space in bytes: before 2.0 text such as "3.2GB", in which
// the units are powers of 1024 (octoprint.util.get_formatted_size), or a number.
func (l listing) free() *int64 {
	var n number
	var text string
	switch {
	case l.Usage != nil:
		n = l.Usage.Free
	case json.Unmarshal(l.Free, &text) == nil:
		v, ok := parseSize(text)
		if !ok {
			return nil
		}
		n.v = &v
	default:
		if n.UnmarshalJSON(l.Free) != nil {
			return nil
		}
	}
	return n.int()
}

func parseSize(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	v, err := strconv.ParseFloat(text[:end], 64)
	if err != nil || v < 0 {
		return 0, false
	}
	unit := strings.ToUpper(strings.TrimSpace(text[end:]))
	for _, u := range []string{"B", "KB", "MB", "GB", "TB"} {
		if u == unit || unit == "BYTES" {
			return v, true
		}
		v *= 1024
	}
	return 0, false
}

// Select selects a file, and with print starts its job. What a conflict means
// is read from the job; nothing is sent twice.
func (c *Client) Select(ctx context.Context, loc, path string, print bool) (after *wire.PrinterJobState, confirmed bool, err error) {
	segments, err := Segments("path", path)
	if err != nil {
		return nil, false, err
	}
	before, err := c.Job(ctx)
	if err != nil {
		return nil, false, err
	}
	q := call{method: http.MethodPost, path: append([]string{"api", "files", c.storage(loc)}, segments...),
		body: map[string]any{"command": "select", "print": print}}
	if c.kind() == KindMoonraker { // octoprint_compat.py, _select_file
		q.path = append([]string{"api", "files", "moonraker", "gcodes"}, segments...)
		if !print {
			return nil, false, wire.Errorf(wire.FeatureNotSupported, "Moonraker selects no file without printing it").
				With("feature", "select").With("hint", "set print")
		}
	}
	sent := c.do(ctx, q, nil)
	if sent != nil && status(sent) != http.StatusConflict {
		return nil, false, c.fileError(sent, path)
	}
	if sent == nil && !print {
		return nil, false, nil
	}
	j, err := c.Job(ctx)
	if err != nil {
		if sent == nil {
			return nil, false, nil
		}
		return nil, false, sent
	}
	if sent != nil {
		if !print || Active(before.State) || !Active(j.State) || !sameFile(j, path) {
			return nil, false, conflict(sent, j)
		}
		confirmed = true
	}
	return &j, confirmed, nil
}

// Delete removes a file (docs: files, "Delete file").
func (c *Client) Delete(ctx context.Context, loc, path string) error {
	segments, err := Segments("path", path)
	if err != nil {
		return err
	}
	if _, err := c.Identify(ctx); err != nil {
		return err
	}
	q := call{method: http.MethodDelete, path: append([]string{"api", "files", c.storage(loc)}, segments...)}
	if c.kind() == KindMoonraker { // moonraker: DELETE /server/files/{root}/{path}
		q.path = append([]string{"server", "files", "gcodes"}, segments...)
	}
	err = c.do(ctx, q, nil)
	if status(err) == http.StatusConflict { // docs: "409 If the file to be deleted is currently being printed"
		return inUse(call{path: segments})
	}
	return c.fileError(err, path)
}

// fileError says of a 404 that it is about the file.
func (c *Client) fileError(err error, path string) error {
	if status(err) == http.StatusNotFound {
		return wire.Errorf(wire.PathNotFound, "the printer's server has no file %s", wire.Clean(path, 200)).
			With("path", wire.Clean(path, wire.MaxPath)).With("hint", "use the path that PRINTER_FILES or PRINTER_UPLOAD answered: servers rename files")
	}
	return err
}
