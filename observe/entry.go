package observe

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"farhand/wire"
)

// entry is a line of "journalctl --output=json" (systemd.journal-fields(7), JSON
// Entry Format): each field a string, null if it is too long, an array of bytes
// if it is no text, or an array of these if it is there more than once.
type entry struct {
	Time       field `json:"__REALTIME_TIMESTAMP"`
	Message    field `json:"MESSAGE"`
	Priority   field `json:"PRIORITY"`
	Identifier field `json:"SYSLOG_IDENTIFIER"`
	Comm       field `json:"_COMM"`
	PID        field `json:"_PID"`
	SyslogPID  field `json:"SYSLOG_PID"`
	Unit       field `json:"_SYSTEMD_UNIT"`
	About      field `json:"UNIT"` // of what systemd says about a unit
}

// field is the value of a field, the first where there are several.
type field struct {
	text    string
	present bool
}

func (f *field) UnmarshalJSON(b []byte) error {
	f.present = true
	if b[0] != '[' {
		var err error
		f.text, err = value(b)
		return err
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	var err error
	if len(parts) > 0 && (parts[0][0] == '"' || parts[0][0] == '[' || parts[0][0] == 'n') {
		b = parts[0]
	}
	f.text, err = value(b)
	return err
}

// value is one value of a field.
func value(b json.RawMessage) (string, error) {
	switch b[0] {
	case 'n':
		return "(too long)", nil
	case '"':
		var text string
		err := json.Unmarshal(b, &text)
		return text, err
	}
	var numbers []uint16 // as bytes they would be base64
	if err := json.Unmarshal(b, &numbers); err != nil {
		return "", err
	}
	raw := make([]byte, len(numbers))
	for i, n := range numbers {
		if n > 255 {
			return "", fmt.Errorf("%d is no byte", n)
		}
		raw[i] = byte(n)
	}
	return strings.ToValidUTF8(string(raw), string(utf8.RuneError)), nil
}

// parseEntry reads one line.
func parseEntry(line []byte) (wire.LogRecord, error) {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return wire.LogRecord{}, fmt.Errorf("entry of the journal: %w", err)
	}
	if !e.Message.present && !e.Time.present {
		return wire.LogRecord{}, fmt.Errorf("entry of the journal has neither a time nor a message")
	}
	rec := wire.LogRecord{
		TimeUS: micros(e.Time.text), Unit: name(e.About, e.Unit), Identifier: name(e.Identifier, e.Comm), Message: e.Message.text,
	}
	for _, pid := range []field{e.PID, e.SyslogPID} {
		if n, err := strconv.Atoi(pid.text); err == nil && n > 0 && rec.PID == 0 {
			rec.PID = n
		}
	}
	if n, err := strconv.Atoi(e.Priority.text); err == nil && n >= 0 && n <= 7 {
		rec.Priority = &n
	}
	if len(rec.Message) > wire.MaxLogMessage {
		rec.Message, rec.Truncated = strings.ToValidUTF8(rec.Message[:wire.MaxLogMessage], ""), true
	}
	return rec, nil
}

// name is the first field that is there.
func name(fields ...field) string {
	for _, f := range fields {
		if text := wire.Clean(f.text, maxIdentifier); text != "" {
			return text
		}
	}
	return ""
}

// encode makes a record of an entry, which is cut until it fits into a frame:
// what JSON has to escape takes up to six times its size.
func encode(rec wire.LogRecord) (json.RawMessage, error) {
	for {
		b, err := json.Marshal(rec)
		if err != nil || len(b) <= wire.StreamDataMax || rec.Message == "" {
			return b, err
		}
		rec.Message, rec.Truncated = strings.ToValidUTF8(rec.Message[:len(rec.Message)/2], ""), true
	}
}
