package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"farhand/wire"
)

// Failure is an answer that is no success. Its Unwrap is what goes over the
// wire.
type Failure struct {
	Status  int    // of HTTP
	Message string // the server's own words, if it has any
	HTML    bool   // no JSON: a proxy, or one of the server's bare pages
	// Moonraker says that the answer has the form of Moonraker's errors.
	Moonraker bool

	err *wire.Error
}

func (f *Failure) Error() string { return f.err.Error() }

// Unwrap is the *wire.Error.
func (f *Failure) Unwrap() error { return f.err }

// status is the HTTP status of an error; 0 if it is none.
func status(err error) int {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Status
	}
	return 0
}

// failure reads an answer that is no success.
func (c *Client) failure(resp *http.Response, q call) error {
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	// What can't be read of it is only missing in the message.
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxFailure))
	return classify(resp, b, q)
}

// classify says what an answer means, by what it is rather than by its status
// alone: a reverse proxy answers 401, 403 and 502 with pages of its own.
func classify(resp *http.Response, body []byte, q call) *Failure {
	f := &Failure{Status: resp.StatusCode, HTML: looksHTML(resp.Header, body)}
	f.Message, f.Moonraker = errorText(body)
	switch {
	case f.Status >= 300 && f.Status < 400:
		f.err = wire.Errorf(wire.HardwareOpenFailed, "the printer's server sends us elsewhere (%d)", f.Status).
			With("reason", "redirected").With("hint", "put the address that it really has into hardware.printers")
	case f.HTML && (f.Status == http.StatusUnauthorized || resp.Header.Get("Www-Authenticate") != "" || f.Status >= 502),
		f.Status == http.StatusProxyAuthRequired:
		return proxyAnswer(resp, body)
	case f.Status == http.StatusUnauthorized && f.Moonraker:
		// moonraker#766: who is trusted depends on the address one comes from.
		f.err = wire.Errorf(wire.HardwareOpenFailed, "Moonraker doesn't trust the address that this machine comes from").
			With("reason", "address_not_trusted").
			With("hint", "give it an API key in hardware.printer_keys, or add the address to trusted_clients in moonraker.conf")
	case f.Status == http.StatusUnauthorized, f.Status == http.StatusForbidden && !f.Moonraker:
		// docs: general, "If it is missing or included but invalid ... 403".
		f.err = wire.Errorf(wire.HardwareOpenFailed, "the printer's server refuses the request: the API key is missing, wrong, or not allowed this").
			With("reason", "api_key").With("hint", "ask the owner for a key with PRINTER_JOIN, or name one in hardware.printer_keys")
		if f.HTML { // OctoPrint's own bare page looks like a proxy's
			f.err = f.err.With("hint", "ask the owner for a key with PRINTER_JOIN; if a proxy stands before the server, it may be the one that refuses")
		}
	case f.Status == http.StatusForbidden && fileInUse(f.Message):
		f.err = inUse(q)
	case f.Status == http.StatusForbidden:
		f.err = wire.Errorf(wire.HardwareOpenFailed, "Moonraker refuses the request").With("reason", "forbidden")
	case f.Status == http.StatusBadRequest, f.Status == http.StatusUnsupportedMediaType:
		f.err = wire.Errorf(wire.InvalidArgument, "the printer's server doesn't accept the request")
	case f.Status == http.StatusNotFound:
		f.err = wire.Errorf(wire.PathNotFound, "the printer's server doesn't know %s", pathOf(q))
	case f.Status == http.StatusMethodNotAllowed, f.Status == http.StatusNotImplemented:
		f.err = wire.Errorf(wire.FeatureNotSupported, "the printer's server has no such operation").With("feature", pathOf(q))
	case f.Status == http.StatusConflict:
		f.err = wire.Errorf(wire.HardwareBusy, "the printer is not in a state for this").With("reason", "conflict")
	case f.Status == http.StatusRequestEntityTooLarge:
		f.err = wire.Errorf(wire.FileTooLarge, "the file is too large for the printer's server")
	case f.Status == http.StatusServiceUnavailable && f.Moonraker:
		// moonraker: 503 while Klipper is not connected to it.
		f.err = offline("Klipper is not connected to Moonraker")
	default:
		f.err = wire.Errorf(wire.HardwareTransferFailed, "the printer's server failed (%d)", f.Status)
	}
	f.err = f.err.With("status", f.Status)
	if f.HTML {
		f.err = f.err.With("html", true)
	}
	if f.Message != "" {
		f.err = f.err.With("server_says", f.Message)
	}
	return f
}

// proxyAnswer is for a page where JSON was due: what stands in front of the
// server has answered in its place.
func proxyAnswer(resp *http.Response, body []byte) *Failure {
	f := &Failure{Status: resp.StatusCode, HTML: looksHTML(resp.Header, body)}
	switch {
	case f.Status >= 500:
		f.err = wire.Errorf(wire.HardwareOpenFailed, "the proxy in front of the printer's server can't reach it (%d)", f.Status).
			With("hint", "see that the server is running")
	case f.Status < 300:
		f.err = wire.Errorf(wire.HardwareOpenFailed, "a web page answers where the printer's server should").
			With("hint", "see that the address in hardware.printers, with its path, is the server's own and not that of a login page")
	default:
		f.err = wire.Errorf(wire.HardwareOpenFailed, "the proxy in front of the printer's server asks for a login of its own (%d); the API key is not to blame", f.Status).
			With("hint", "let it pass requests with X-Api-Key, or put the server's own address into hardware.printers")
	}
	f.err = f.err.With("reason", "proxy").With("status", f.Status)
	return f
}

// looksHTML goes by content type and by content: some proxies label their pages
// wrongly, and some servers their JSON.
func looksHTML(h http.Header, body []byte) bool {
	start := bytes.TrimLeft(body, "\ufeff \t\r\n")
	if bytes.HasPrefix(start, []byte("{")) || bytes.HasPrefix(start, []byte("[")) {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (mediaType == "text/html" || mediaType == "application/xhtml+xml") || bytes.HasPrefix(start, []byte("<"))
}

// errorText is the server's own words: OctoPrint's {"error": "text"} and
// Moonraker's {"error": {"code": 401, "message": "text"}}.
func errorText(body []byte) (text string, moonraker bool) {
	var answer struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || len(answer.Error) == 0 {
		return "", false
	}
	var words struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer.Error, &text) == nil {
		return wire.Clean(text, 300), false
	}
	if json.Unmarshal(answer.Error, &words) == nil {
		return wire.Clean(words.Message, 300), true
	}
	return "", false
}

// fileInUse: moonraker, file_manager: "File is loaded, upload not permitted",
// "File currently in use".
func fileInUse(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "loaded") || strings.Contains(m, "in use")
}

func inUse(q call) *wire.Error {
	return wire.Errorf(wire.HardwareBusy, "the file %s is loaded by the printer and can't be replaced or removed", pathOf(q)).
		With("reason", "file_in_use").With("hint", "wait for the job to end or cancel it, or use another name")
}

func offline(text string) *wire.Error {
	return wire.Errorf(wire.HardwareOpenFailed, "the printer is offline: %s", text).
		With("reason", "printer_offline").With("hint", "the server answers, but it has no connection to its printer: switch the printer on and connect it on the server's page")
}

func pathOf(q call) string { return wire.Clean(strings.Join(q.path, "/"), 200) }
