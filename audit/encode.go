package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of what one record may hold, so that no peer can make it grow.
const (
	// maxString is how much of one string is kept: eight times the longest
	// path that Linux knows, and no more of a command than a person reads.
	maxString = 32 << 10
	// maxDetails is how much all strings of one record may hold together.
	maxDetails = 128 << 10
	// maxRecord bounds one line when reading: maxDetails with every byte
	// escaped to six, and as much again for the rest.
	maxRecord = 2 << 20
)

// encoder builds the line and the canonical form of records in buffers that it
// keeps. It is not safe for concurrent use.
type encoder struct {
	mac       hash.Hash
	machine   []byte // quoted
	version   []byte // quoted
	line      []byte
	canonical []byte
	sum       []byte
}

func newEncoder(key []byte, machineID, shimVersion string) *encoder {
	return &encoder{
		mac:     hmac.New(sha256.New, key),
		machine: appendQuoted(nil, machineID),
		version: appendQuoted(nil, shimVersion),
	}
}

// encode returns the record's line, newline included, and its HMAC in hex. The
// line stays valid until the next call.
func (c *encoder) encode(e *Entry, ts float64, seq int64, prev string) (line []byte, mac string, err error) {
	b, err := c.appendCanonical(c.canonical[:0], e, ts, seq, prev)
	c.canonical = b
	if err != nil {
		return nil, "", err
	}
	c.mac.Reset()
	c.mac.Write(b)
	c.sum = c.mac.Sum(c.sum[:0])
	mac = hex.EncodeToString(c.sum)

	// The order of the keys, and the spaces, are those of the Python shim.
	b = append(c.line[:0], `{"ts": `...)
	b = appendFloat(b, ts)
	b = append(b, `, "session_id": `...)
	b = appendShort(b, sessionOf(e))
	b = append(b, `, "machine_id": `...)
	b = append(b, c.machine...)
	b = append(b, `, "shim_version": `...)
	b = append(b, c.version...)
	b = append(b, `, "request_id": `...)
	b = appendShortOrNull(b, e.RequestID)
	b = append(b, `, "op": `...)
	b = appendShort(b, e.Op)
	b = append(b, `, "details": `...)
	b = appendFields(b, e.Details, maxDetails, false)
	b = append(b, `, "result": {"ok": `...)
	b = strconv.AppendBool(b, e.Result.OK)
	b = append(b, `, "exit_code": `...)
	b = appendExitCode(b, e.Result.ExitCode)
	b = append(b, `, "duration_ms": `...)
	b = strconv.AppendInt(b, e.Result.Duration.Milliseconds(), 10)
	b = append(b, `, "error_code": `...)
	b = appendQuotedOrNull(b, string(e.Result.ErrorCode))
	b = append(b, `}, "seq": `...)
	b = strconv.AppendInt(b, seq, 10)
	b = append(b, `, "prev_hmac": `...)
	b = appendQuotedOrNull(b, prev)
	b = append(b, `, "hmac": "`...)
	b = append(b, mac...)
	b = append(b, '"', '}', '\n')
	c.line = b
	return b, mac, nil
}

// appendCanonical appends the canonical form: the same record without its hmac,
// keys sorted, no spaces.
func (c *encoder) appendCanonical(b []byte, e *Entry, ts float64, seq int64, prev string) ([]byte, error) {
	if err := checkKeys(e.Details); err != nil {
		return b, fmt.Errorf("audit record %s: %w", e.Op, err)
	}
	b = append(b, `{"details":`...)
	b = appendFields(b, e.Details, maxDetails, true)
	b = append(b, `,"machine_id":`...)
	b = append(b, c.machine...)
	b = append(b, `,"op":`...)
	b = appendShort(b, e.Op)
	b = append(b, `,"prev_hmac":`...)
	b = appendQuotedOrNull(b, prev)
	b = append(b, `,"request_id":`...)
	b = appendShortOrNull(b, e.RequestID)
	b = append(b, `,"result":{"duration_ms":`...)
	b = strconv.AppendInt(b, e.Result.Duration.Milliseconds(), 10)
	b = append(b, `,"error_code":`...)
	b = appendQuotedOrNull(b, string(e.Result.ErrorCode))
	b = append(b, `,"exit_code":`...)
	b = appendExitCode(b, e.Result.ExitCode)
	b = append(b, `,"ok":`...)
	b = strconv.AppendBool(b, e.Result.OK)
	b = append(b, `},"seq":`...)
	b = strconv.AppendInt(b, seq, 10)
	b = append(b, `,"session_id":`...)
	b = appendShort(b, sessionOf(e))
	b = append(b, `,"shim_version":`...)
	b = append(b, c.version...)
	b = append(b, `,"ts":`...)
	b = appendFloat(b, ts)
	return append(b, '}'), nil
}

// checkKeys refuses a key that stands twice: no two readers would agree on it.
func checkKeys(fields []Field) error {
	for i := range fields {
		for k := range i {
			if fields[k].Key == fields[i].Key {
				return fmt.Errorf("details key %q stands twice", fields[i].Key)
			}
		}
		if err := checkKeys(fields[i].sub); err != nil {
			return err
		}
	}
	return nil
}

// appendFields appends an object: in the order given with spaces for the line,
// sorted without for the canonical form. Its strings may hold budget bytes
// together; what each keeps must be the same in both forms, so that is shared
// out in the order given.
func appendFields(b []byte, fields []Field, budget int, canonical bool) []byte {
	var keepSpace [16]int
	keep := keepSpace[:0]
	for i := range fields {
		n, cost := share(&fields[i], budget)
		keep = append(keep, n)
		budget -= cost
	}
	var orderSpace [16]int
	order := orderSpace[:0]
	for i := range fields {
		order = append(order, i)
	}
	if canonical {
		slices.SortFunc(order, func(i, k int) int { return strings.Compare(fields[i].Key, fields[k].Key) })
	}
	b = append(b, '{')
	for n, i := range order {
		b = appendComma(b, n, canonical)
		b = appendQuoted(b, fields[i].Key)
		b = append(b, ':')
		if !canonical {
			b = append(b, ' ')
		}
		b = appendValue(b, &fields[i], keep[i], canonical)
	}
	return append(b, '}')
}

func appendComma(b []byte, n int, canonical bool) []byte {
	if n == 0 {
		return b
	}
	b = append(b, ',')
	if !canonical {
		b = append(b, ' ')
	}
	return b
}

// maxObject is what a nested object may take of its parent's budget.
const maxObject = 16 << 10

// share says how much of a field is kept out of budget bytes (of a string its
// bytes, of a list its elements, of an object its own budget), and what of the
// budget that costs.
func share(f *Field, budget int) (keep, cost int) {
	switch f.kind {
	case stringField:
		n := min(len(f.text), maxString, budget)
		return n, n
	case objectField:
		n := min(maxObject, budget)
		return n, n
	case listField:
		for _, s := range f.list {
			n := len(s) + 4 // with quotes and comma, so that empty strings count
			if n > maxString || cost+n > budget {
				break
			}
			keep++
			cost += n
		}
		return keep, cost
	default:
		return 0, 0
	}
}

func appendValue(b []byte, f *Field, keep int, canonical bool) []byte {
	switch f.kind {
	case stringField:
		return appendCut(b, f.text, keep)
	case intField:
		return strconv.AppendInt(b, f.num, 10)
	case floatField:
		return appendFloat(b, f.real)
	case boolField:
		return strconv.AppendBool(b, f.num != 0)
	case listField:
		b = append(b, '[')
		for i, s := range f.list[:keep] {
			b = appendComma(b, i, canonical)
			b = appendQuoted(b, s)
		}
		if rest := f.list[keep:]; len(rest) > 0 {
			b = appendComma(b, keep, canonical)
			b = appendQuoted(b, fmt.Sprintf("[%d more, sha256 %s]", len(rest), hashOf(rest...)))
		}
		return append(b, ']')
	case objectField:
		return appendFields(b, f.sub, keep, canonical)
	default:
		return append(b, "null"...)
	}
}

// appendCut appends the first keep bytes of s and says what is missing.
func appendCut(b []byte, s string, keep int) []byte {
	if keep >= len(s) {
		return appendQuoted(b, s)
	}
	for back := 0; keep > 0 && back < utf8.UTFMax-1 && !utf8.RuneStart(s[keep]); back++ {
		keep-- // never cut a character in two
	}
	return appendQuoted(b, fmt.Sprintf("%s[cut: %d bytes in all, sha256 %s]", s[:keep], len(s), hashOf(s)))
}

// hashOf is the SHA-256 in hex over the strings, each ended by a NUL if there
// are several.
func hashOf(parts ...string) string {
	h := sha256.New()
	for _, s := range parts {
		h.Write([]byte(s))
		if len(parts) > 1 {
			h.Write([]byte{0})
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func sessionOf(e *Entry) string {
	if e.SessionID == "" {
		return "-"
	}
	return e.SessionID
}

func appendQuotedOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendQuoted(b, s)
}

// maxShort bounds the members that name something: ids and operations.
const maxShort = 1024

func appendShort(b []byte, s string) []byte { return appendCut(b, s, min(len(s), maxShort)) }

func appendShortOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendShort(b, s)
}

func appendExitCode(b []byte, code *int) []byte {
	if code == nil {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, int64(*code), 10)
}

// appendFloat appends f as Python's repr does: the shortest text that reads
// back as f, with ".0" on whole numbers, and an exponent from 1e16 up and below
// 1e-4. NaN and infinities, which JSON doesn't have, become null.
func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	if a := math.Abs(f); a >= 1e16 || (a < 1e-4 && a != 0) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if !slices.Contains(b[start:], '.') {
		b = append(b, ".0"...)
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends s as a JSON string with the escapes of Python's encoder:
// the quote, the backslash and the control characters below a space. A byte
// that is not UTF-8 becomes the four characters \xNN, so that a name is still
// told apart from others.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			if c < 0x20 {
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			} else {
				b = append(b, '\\', '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			}
		}
		i++
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
