package rest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"farhand/wire"
)

const (
	// MaxUpload is the largest file: the limit that OctoPrint has itself unless
	// told otherwise (docs: config_yaml, server.uploads.maxSize, 1 GB).
	MaxUpload = 1 << 30
	// uploadStall ends an upload of which no byte could be sent for so long.
	uploadStall = time.Minute
	// uploadAnswer is how long a server may take after the last byte: it copies
	// and analyses the file first, from a slow card.
	uploadAnswer = 3 * time.Minute
)

// Upload is a file to be sent.
type Upload struct {
	Location, Folder, Name string
	Select, Print          bool
	// Open opens the file from its beginning; it is called once for each
	// attempt, of which there are at most two.
	Open func(ctx context.Context) (io.ReadCloser, int64, error)
	// Progress is told how many bytes of the file are sent, and with a name
	// that the second attempt begins under it. It must not block.
	Progress func(sent int64, retry string)
}

// Send uploads a file. A server that refuses the name with a bare 400
// (OctoPrint#5206: some releases do for letters that aren't Latin) gets it a
// second time under a transliterated name; after a conflict the job decides
// (OctoPrint#1872: it may print although the answer is 409).
func (c *Client) Send(ctx context.Context, u Upload) (wire.PrinterUploaded, error) {
	if _, err := Segments("name", u.Name); err != nil || strings.Contains(u.Name, "/") {
		return wire.PrinterUploaded{}, wire.Errorf(wire.InvalidArgument, "name must be the name of a file").With("field", "name")
	}
	before, err := c.Job(ctx)
	if err != nil {
		return wire.PrinterUploaded{}, err
	}
	if c.kind() == KindMoonraker && u.Location != wire.PrinterLocal {
		return wire.PrinterUploaded{}, wire.Errorf(wire.FeatureNotSupported, "Moonraker has no other location than local").With("feature", "location")
	}
	result, err := c.attempt(ctx, u, u.Name)
	if status(err) == http.StatusBadRequest && !isASCII(u.Name) {
		name := Transliterate(u.Name)
		u.Progress(0, name)
		if result, err = c.attempt(ctx, u, name); err == nil {
			result.Transliterated = name
		}
	}
	if status(err) == http.StatusConflict {
		result, err = c.afterConflict(ctx, u, before, err)
	}
	if err != nil {
		return wire.PrinterUploaded{}, err
	}
	result.SentName = u.Name
	result.Renamed = result.Path != joinPath(u.Folder, u.Name)
	return result, nil
}

func joinPath(folder, name string) string {
	return strings.Trim(strings.Trim(folder, "/")+"/"+name, "/")
}

// afterConflict finds out what a 409 means: docs: files, "If the upload of the
// file would override the file that is currently being printed or if an upload
// to SD card was requested and the printer is either not operational or busy".
func (c *Client) afterConflict(ctx context.Context, u Upload, before wire.PrinterJobState, sent error) (wire.PrinterUploaded, error) {
	path := joinPath(u.Folder, u.Name)
	after, err := c.Job(ctx)
	if err != nil {
		return wire.PrinterUploaded{}, sent
	}
	switch {
	case Active(before.State) && sameFile(before, path):
		return wire.PrinterUploaded{}, inUse(call{path: strings.Split(path, "/")})
	case u.Print && !Active(before.State) && Active(after.State) && sameFile(after, path):
		return wire.PrinterUploaded{Location: after.Location, Path: after.File, Display: after.Display, Selected: true, Printing: true, Confirmed: true}, nil
	}
	return wire.PrinterUploaded{}, conflict(sent, after)
}

// attempt sends the file under one name.
func (c *Client) attempt(ctx context.Context, u Upload, name string) (wire.PrinterUploaded, error) {
	file, size, err := u.Open(ctx)
	if err != nil {
		return wire.PrinterUploaded{}, err
	}
	defer file.Close()
	if size > MaxUpload {
		return wire.PrinterUploaded{}, wire.Errorf(wire.FileTooLarge, "a file for a printer may have at most %d bytes, not %d", MaxUpload, size)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	head, tail, boundary := form(u, name)
	body := &counted{r: file, left: size, report: func(n int64) { u.Progress(n, "") }, closed: make(chan struct{})}
	body.form = io.MultiReader(bytes.NewReader(head), readerFunc(body.content), bytes.NewReader(tail))
	body.watch = time.AfterFunc(uploadStall, func() {
		cancel(wire.Errorf(wire.HardwareTransferFailed, "the printer's server takes no more of the file").With("reason", "stalled"))
	})
	defer func() { // the transport may still be reading
		cancel(nil)
		<-body.closed
		body.watch.Stop()
	}()
	where := c.join("api", "files", c.storage(u.Location))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, where.String(), body)
	if err != nil {
		body.Close()
		return wire.PrinterUploaded{}, fmt.Errorf("making a request: %w", err)
	}
	// docs: files: "A Content-Length header specifying the full length of the
	// request body is required as well."
	req.ContentLength = int64(len(head)) + size + int64(len(tail))
	req.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	c.dress(req)
	resp, err := c.http.Do(req)
	if failed := body.failed.Load(); failed != nil {
		if err == nil {
			resp.Body.Close()
		}
		return wire.PrinterUploaded{}, *failed
	}
	if err != nil {
		return wire.PrinterUploaded{}, c.unreachable(ctx, http.MethodPost, err)
	}
	defer resp.Body.Close()
	q := call{method: http.MethodPost, path: []string{joinPath(u.Folder, name)}}
	if err := c.failure(resp, q); err != nil {
		return wire.PrinterUploaded{}, err
	}
	return c.uploaded(resp, q, u, name)
}

// form is what stands before and after the file's content.
func form(u Upload, name string) (head, tail []byte, boundary string) {
	var random [16]byte
	rand.Read(random[:]) // never fails (crypto/rand)
	boundary = "farhand" + hex.EncodeToString(random[:])
	var b bytes.Buffer
	field := func(key, value string) {
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", boundary, key, value)
	}
	if u.Folder != "" {
		field("path", strings.Trim(u.Folder, "/"))
	}
	field("select", fmt.Sprint(u.Select || u.Print))
	field("print", fmt.Sprint(u.Print))
	fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=\"file\"; %s\r\nContent-Type: application/octet-stream\r\n\r\n", boundary, filename(name))
	return b.Bytes(), []byte("\r\n--" + boundary + "--\r\n"), boundary
}

// filename is the parameter of Content-Disposition: for what isn't ASCII also
// in the form of RFC 5987 section 3.2, which OctoPrint prefers where both stand
// (docs: general, "Encoding").
func filename(name string) string {
	plain := `filename="` + strings.NewReplacer(`\`, "_", `"`, "_").Replace(Transliterate(name)) + `"`
	if isASCII(name) && !strings.ContainsAny(name, `"\`) {
		return plain
	}
	return plain + "; filename*=utf-8''" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
}

// uploaded reads the answer: docs: files, "Upload response", before 2.0
// {files: {local: entry}}, from 2.0 {file: entry}; moonraker: {item: {path}}.
func (c *Client) uploaded(resp *http.Response, q call, u Upload, name string) (wire.PrinterUploaded, error) {
	var answer struct {
		File  *entry           `json:"file"`
		Files map[string]entry `json:"files"`
		Item  *struct {
			Path string `json:"path"`
		} `json:"item"`
		Select       bool `json:"effectiveSelect"`
		Print        bool `json:"effectivePrint"`
		PrintStarted bool `json:"print_started"` // moonraker
	}
	if err := c.decode(resp, q, &answer); err != nil {
		return wire.PrinterUploaded{}, err
	}
	result := wire.PrinterUploaded{Location: u.Location, Selected: answer.Select, Printing: answer.Print || answer.PrintStarted}
	got := answer.File
	for _, origin := range []string{"local", "sdcard", "printer"} {
		// An upload to the card is kept locally first; the one asked for counts.
		if e, ok := answer.Files[origin]; ok && (got == nil || location(origin) == u.Location) {
			e.Origin = origin
			got = &e
		}
	}
	switch {
	case got != nil && got.Path != "":
		result.Path, result.Location = wire.Clean(got.Path, wire.MaxPath), location(got.Origin)
	case answer.Item != nil && answer.Item.Path != "":
		result.Path = wire.Clean(answer.Item.Path, wire.MaxPath)
	default: // api/files/LOCATION/PATH
		if s := c.below(resp, resp.Header.Get("Location")); len(s) > 3 && s[1] == "files" {
			result.Path = wire.Clean(strings.Join(s[3:], "/"), wire.MaxPath)
		} else {
			result.Path = joinPath(u.Folder, name)
		}
	}
	if got != nil {
		if d := wire.Clean(got.Display, 500); d != lastElement(result.Path) {
			result.Display = d
		}
	}
	return result, nil
}

func lastElement(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// counted is the body of an upload. It passes exactly as many bytes as the file
// had when it was opened: the request has promised its length.
type counted struct {
	form   io.Reader // all of it
	r      io.Reader // the file
	left   int64
	sent   int64
	report func(sent int64)
	watch  *time.Timer
	failed atomic.Pointer[error] // that the file couldn't be read
	once   sync.Once
	closed chan struct{}
}

func (c *counted) Read(p []byte) (int, error) { return c.form.Read(p) }

// Close is called by the transport when it will read no more.
func (c *counted) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// content reads the file.
func (c *counted) content(p []byte) (int, error) {
	if c.left == 0 {
		c.watch.Reset(uploadAnswer)
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.sent += int64(n)
	if n > 0 {
		c.watch.Reset(uploadStall)
		c.report(c.sent)
	}
	switch {
	case errors.Is(err, io.EOF) && c.left > 0:
		err = wire.Errorf(wire.HardwareTransferFailed, "the file became shorter while it was sent").With("bytes_partial", c.sent)
	case err == nil, errors.Is(err, io.EOF):
		return n, nil
	default:
		err = fmt.Errorf("reading the file: %w", err)
	}
	c.failed.Store(&err)
	return n, err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
