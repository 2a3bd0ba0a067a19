package request

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"farhand/wire"
)

// The names of the requests.
const (
	showPairing  = "show_pairing"
	showStatus   = "show_status"
	paired       = "paired"
	facts        = "facts"
	offline      = "offline"
	online       = "online"
	setClockHint = "set_clock_hint"

	settings       = "settings"
	changeSettings = "change_settings"
	keepNetworks   = "keep_networks"

	installOllama = "install_ollama"
	removeOllama  = "remove_ollama"
)

// call is a request's line.
type call struct {
	Request string          `json:"request"`
	Args    json.RawMessage `json:"args,omitempty"`
}

// answer is an answer's line.
type answer struct {
	OK       bool           `json:"ok,omitempty"`
	Facts    *Facts         `json:"facts,omitempty"`
	Settings *wire.Settings `json:"settings,omitempty"`
	Code     Code           `json:"code,omitempty"`
	Message  string         `json:"message,omitempty"`
}

// newLines reads lines of at most MaxLine bytes. A longer one ends the reading
// with errTooLong.
func newLines(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, MaxLine) }

var errTooLong = fmt.Errorf("a line has more than %d bytes", MaxLine)

// readLine is the next line without its end; io.EOF after the last. What stands
// behind the last line end is no line: its writer died.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errTooLong
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}

func writeLine(w io.Writer, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// encode is v as a line without its end.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	if b.Len() > MaxLine {
		return nil, errTooLong
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode reads one JSON value and nothing more, of known fields alone.
func decode(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
