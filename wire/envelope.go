package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Envelope is one decoded frame. Payload and Data alias the frame.
type Envelope struct {
	Type            Type
	ID              string
	TS              float64 // seconds since the epoch
	Version         string  // major.minor; the AutoGPT platform sends none
	PendingCapacity *int
	SessionID       string // between operator and relay only
	TargetMachine   string // between operator and relay only
	Payload         []byte
	// Data is what is attached: everything after the JSON and one zero byte, for
	// the types that may have it.
	Data []byte
}

// ErrNoID says that a frame has no usable id, so that nothing may be answered.
var ErrNoID = errors.New("frame without a usable id")

// DecodeEnvelope reads the envelope of a frame without decoding its payload.
// Unknown keys are ignored and an absent payload is an empty object. The
// envelope is returned as far as it was understood even with an error.
func DecodeEnvelope(frame []byte) (Envelope, error) {
	var e Envelope
	end, err := members(frame, func(key string, raw []byte) error {
		switch key {
		case "type":
			return setString((*string)(&e.Type), key, raw)
		case "id":
			return setString(&e.ID, key, raw)
		case "version":
			return setOptional(&e.Version, key, raw)
		case "session_id":
			return setOptional(&e.SessionID, key, raw)
		case "target_machine":
			return setOptional(&e.TargetMachine, key, raw)
		case "ts":
			e.TS, _ = strconv.ParseFloat(string(raw), 64) // advisory: never a reason to refuse
		case "pending_capacity":
			if n, err := strconv.Atoi(string(raw)); err == nil && n >= 0 {
				e.PendingCapacity = &n
			}
		case "payload":
			e.Payload = raw
		}
		return nil
	})
	if err == nil {
		if e.Type.carriesData() && end < len(frame) && frame[end] == attached {
			e.Data = frame[end+1:]
		} else {
			err = onlySpace(frame, end)
		}
	}
	if err != nil {
		return e, err
	}
	// An id that was no Unicode would come back as another.
	if e.ID == "" || len(e.ID) > MaxID || strings.ContainsRune(e.ID, utf8.RuneError) {
		return e, ErrNoID
	}
	if e.Type == "" {
		return e, fmt.Errorf("%w: no type", errSyntax)
	}
	if e.Payload == nil {
		e.Payload = []byte("{}")
	}
	return e, nil
}

func setString(dst *string, key string, raw []byte) error {
	s, err := Unquote(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	*dst = string(s)
	return nil
}

func setOptional(dst *string, key string, raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	return setString(dst, key, raw)
}

func setBool(dst *bool, key string, raw []byte) error {
	switch string(raw) {
	case "true":
		*dst = true
	case "false":
		*dst = false
	case "null":
	default:
		return fmt.Errorf("%s: %w: neither true nor false", key, errSyntax)
	}
	return nil
}

// Decode decodes a payload into dst, ignoring unknown keys. The payload must be
// an object. Its error is an *Error with code INTERNAL_ERROR and details.reason
// invalid_payload, which is what the far side gets.
func Decode(payload []byte, dst any) error {
	if i := skipSpace(payload, 0); i >= len(payload) || payload[i] != '{' {
		return invalidPayload(errors.New("payload is not an object"))
	}
	var err error
	if d, ok := dst.(interface{ decodeFields([]byte) error }); ok {
		err = d.decodeFields(payload)
	} else {
		err = json.Unmarshal(payload, dst)
	}
	if err != nil {
		return invalidPayload(err)
	}
	return nil
}

func invalidPayload(err error) *Error {
	// An error of encoding/json names fields and offsets; the value that it
	// may quote is at most one character or a number.
	return Errorf(InternalError, "invalid payload: %v", err).With("reason", "invalid_payload")
}

// Message is one frame to be sent.
type Message struct {
	Type    Type
	ID      string
	Payload any // for encoding/json, or a Streamer for bulk data

	// Version is left out if empty.
	Version         string
	PendingCapacity *int
	SessionID       string
	TargetMachine   string
}

// Streamer is a payload that writes its own JSON, so that bulk data is never
// held a second time.
type Streamer interface {
	// JSONSize is the exact number of bytes that WriteJSON writes, or an upper
	// bound of it.
	JSONSize() int
	// WriteJSON writes the payload object.
	WriteJSON(w io.Writer) error
}

// Releaser is a Streamer whose memory is used again. The sender calls Release
// when it has written the payload, or failed to; a payload that is never written
// is left to the garbage collector.
type Releaser interface {
	Release()
}

// Raw is a payload that is JSON already; a relay forwards bodies so.
type Raw []byte

// JSONSize implements Streamer.
func (r Raw) JSONSize() int { return len(r) }

// WriteJSON implements Streamer.
func (r Raw) WriteJSON(w io.Writer) error {
	_, err := w.Write(r)
	return err
}

// Attached is a payload with bytes beside it, which go as they are behind the
// JSON of the frame and a zero byte: no JSON has one of these. The frame is then
// a binary message of the WebSocket.
type Attached struct {
	Payload any // for encoding/json
	Data    []byte

	// Done, if not nil, takes Data back once it has been written.
	Done func()
}

// attached stands between the JSON of a frame and its data.
const attached = 0

// Release implements Releaser.
func (a *Attached) Release() {
	if a.Done != nil {
		a.Data = nil
		a.Done()
		a.Done = nil
	}
}

// Frame is a message encoded up to its payload: Head, then the payload by Body
// or, where Body is nil, all of it in Head. What is attached is Body after all
// the rest.
type Frame struct {
	Head   []byte
	Body   Streamer
	Tail   []byte
	Binary bool // it is no text
}

// Size is the number of bytes of the whole frame, or an upper bound of it.
func (f Frame) Size() int {
	n := len(f.Head) + len(f.Tail)
	if f.Body != nil {
		n += f.Body.JSONSize()
	}
	return n
}

// WriteFrame writes the whole frame.
func (f Frame) WriteFrame(w io.Writer) error {
	if _, err := w.Write(f.Head); err != nil {
		return err
	}
	if f.Body == nil {
		return nil
	}
	if err := f.Body.WriteJSON(w); err != nil {
		return err
	}
	_, err := w.Write(f.Tail)
	return err
}

// Encode encodes m with the time now.
func (m Message) Encode() (Frame, error) {
	b := make([]byte, 0, 512)
	b = append(b, `{"type":`...)
	b = AppendQuoted(b, []byte(m.Type))
	b = append(b, `,"id":`...)
	b = AppendQuoted(b, []byte(m.ID))
	b = append(b, `,"ts":`...)
	b = strconv.AppendFloat(b, float64(time.Now().UnixMicro())/1e6, 'f', 6, 64)
	if m.Version != "" {
		b = append(b, `,"version":`...)
		b = AppendQuoted(b, []byte(m.Version))
	}
	if m.PendingCapacity != nil {
		b = append(b, `,"pending_capacity":`...)
		b = strconv.AppendInt(b, int64(*m.PendingCapacity), 10)
	}
	if m.SessionID != "" {
		b = append(b, `,"session_id":`...)
		b = AppendQuoted(b, []byte(m.SessionID))
	}
	if m.TargetMachine != "" {
		b = append(b, `,"target_machine":`...)
		b = AppendQuoted(b, []byte(m.TargetMachine))
	}
	b = append(b, `,"payload":`...)
	payload, data := m.Payload, []byte(nil)
	if a, ok := payload.(*Attached); ok {
		payload, data = a.Payload, a.Data
	}
	switch p := payload.(type) {
	case nil:
		b = append(b, "{}"...)
	case FileStatResponse:
		b = p.appendJSON(b)
	case Raw:
		if len(data) == 0 {
			return Frame{Head: b, Body: p, Tail: []byte("}")}, nil
		}
		b = append(b, p...)
	case Streamer:
		return Frame{Head: b, Body: p, Tail: []byte("}")}, nil
	default:
		buf := bytes.NewBuffer(b)
		enc := json.NewEncoder(buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(p); err != nil {
			return Frame{}, fmt.Errorf("encode %s: %w", m.Type, err)
		}
		b = buf.Bytes()
		b = b[:len(b)-1] // the encoder's newline
	}
	b = append(b, '}')
	if len(data) > 0 {
		return Frame{Head: append(b, attached), Body: Raw(data), Binary: true}, nil
	}
	return Frame{Head: b}, nil
}
