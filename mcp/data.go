package mcp

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"farhand/client"
	"farhand/wire"
)

// hexBytes reads bytes in hexadecimal: "9f 00 01", "0x9f", "de:ad", "9f0001".
func hexBytes(field, text string) ([]byte, error) {
	out := []byte{}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == ',' || unicode.IsSpace(r) }) {
		digits := strings.TrimPrefix(strings.TrimPrefix(part, "0x"), "0X")
		if len(digits) == 1 {
			digits = "0" + digits
		}
		b, err := hex.DecodeString(digits)
		if err != nil || digits == "" {
			return nil, wire.Errorf(wire.InvalidArgument, `%s: %.40q is no bytes in hexadecimal, such as "9f 00 01"`, field, part).With("field", field)
		}
		out = append(out, b...)
	}
	return out, nil
}

// hexText writes bytes as hexBytes reads them.
func hexText(b []byte) string { return fmt.Sprintf("% x", b) }

// payload is bytes as an argument: text or hexadecimal.
type payload struct {
	Text string `json:"text,omitempty" jsonschema:"what to send, as text: exactly these characters in UTF-8, so end a line with \\n or \\r\\n yourself"`
	Hex  string `json:"hex,omitempty" jsonschema:"in place of text: the bytes in hexadecimal, such as \"9f 00 01\""`
}

// bytes are the bytes that were given.
func (p payload) bytes(needed bool) ([]byte, error) {
	switch {
	case p.Text != "" && p.Hex != "":
		return nil, wire.Errorf(wire.InvalidArgument, "give text or hex, not both").With("field", "hex")
	case p.Hex != "":
		return hexBytes("hex", p.Hex)
	case p.Text == "" && needed:
		return nil, wire.Errorf(wire.InvalidArgument, "text or hex is missing").With("field", "text")
	}
	return []byte(p.Text), nil
}

// received is bytes in a result: as text where they are text, otherwise in
// hexadecimal.
type received struct {
	Text string `json:"text,omitempty" jsonschema:"what came, if it is text"`
	Hex  string `json:"hex,omitempty" jsonschema:"what came, in hexadecimal, if it isn't text"`
}

func bytesReceived(b []byte) received {
	if isText(b) {
		return received{Text: string(b)}
	}
	return received{Hex: hexText(b)}
}

// shown is the bytes in a sentence.
func (r received) shown() string {
	if r.Hex != "" {
		return r.Hex
	}
	return r.Text
}

// isText says whether bytes can be shown as text without losing any of them.
func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' && r != 0x1b {
			return false
		}
	}
	return true
}

// seconds is a number of seconds as requests carry it: nil for an absent one.
func seconds(s float64) *float64 {
	if s == 0 {
		return nil
	}
	return &s
}

// optional is a value of a request that is left out if it is zero.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func hold(h bool) client.Hold { return client.Hold(h) }
