package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"farhand/internal/sorted"
	"farhand/wire"
)

// record is what the chain needs to know of one line.
type record struct {
	seq       int64
	prev      string // empty: null
	mac       string
	op        string
	ts        float64
	canonical []byte // the record without its hmac, as it was signed
}

// topKeys are the members that every record has.
var topKeys = []string{"ts", "session_id", "machine_id", "shim_version", "request_id", "op", "details", "result", "seq", "prev_hmac", "hmac"}

// parseRecord reads one line (without its newline) strictly: members that stand
// twice, text that isn't UTF-8 and anything after the object are refused, since
// they would let a line say to one reader what it doesn't say to another.
func parseRecord(line []byte) (record, error) {
	var r record
	if !utf8.Valid(line) {
		return r, errors.New("not UTF-8")
	}
	members, end, err := parseMembers(line, skipSpace(line, 0), 0)
	if err != nil {
		return r, err
	}
	if end = skipSpace(line, end); end != len(line) {
		return r, errors.New("data after the record")
	}
	for _, key := range topKeys {
		if !slices.ContainsFunc(members, func(m member) bool { return m.key == key }) {
			return r, fmt.Errorf("no %s", key)
		}
	}
	b := []byte{'{'}
	for _, m := range members {
		switch m.key {
		case "seq":
			r.seq, err = strconv.ParseInt(string(m.value), 10, 64)
		case "ts":
			r.ts, err = strconv.ParseFloat(string(m.value), 64)
		case "op":
			r.op, err = textOf(m.value)
		case "prev_hmac":
			if string(m.value) != "null" {
				r.prev, err = macOf(m.value)
			}
		case "hmac":
			r.mac, err = macOf(m.value)
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", m.key, err)
		}
		if m.key != "hmac" {
			b = m.append(b)
		}
	}
	r.canonical = append(b, '}')
	return r, nil
}

func textOf(value []byte) (string, error) {
	s, err := wire.Unquote(value)
	return string(s), err
}

func macOf(value []byte) (string, error) {
	s, err := textOf(value)
	if err != nil {
		return "", err
	}
	if raw, err := hex.DecodeString(s); err != nil || len(raw) != 32 || strings.ToLower(s) != s {
		return "", errors.New("not an HMAC in hex")
	}
	return s, nil
}

// member is one member of an object, its value in canonical form.
type member struct {
	key   string
	value []byte
}

func (m member) append(b []byte) []byte {
	if len(b) > 0 && b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = appendQuoted(b, m.key)
	b = append(b, ':')
	return append(b, m.value...)
}

// maxDepth bounds how deep a record may nest; ours nest three levels.
const maxDepth = 32

var errSyntax = errors.New("not a record: malformed JSON")

// parseMembers reads the object at line[i] into its members, sorted by key, and
// returns the index after it.
func parseMembers(line []byte, i, depth int) ([]member, int, error) {
	if depth > maxDepth {
		return nil, 0, errors.New("nested too deep")
	}
	if i >= len(line) || line[i] != '{' {
		return nil, 0, errSyntax
	}
	var members []member
	i = skipSpace(line, i+1)
	if i < len(line) && line[i] == '}' {
		return nil, i + 1, nil
	}
	for {
		end, err := stringEnd(line, i)
		if err != nil {
			return nil, 0, err
		}
		key, err := textOf(line[i:end])
		if err != nil {
			return nil, 0, err
		}
		i = skipSpace(line, end)
		if i >= len(line) || line[i] != ':' {
			return nil, 0, errSyntax
		}
		value, end, err := canonicalValue(nil, line, skipSpace(line, i+1), depth)
		if err != nil {
			return nil, 0, err
		}
		members = append(members, member{key, value})
		i = skipSpace(line, end)
		if i >= len(line) {
			return nil, 0, errSyntax
		}
		if line[i] == '}' {
			break
		}
		if line[i] != ',' {
			return nil, 0, errSyntax
		}
		i = skipSpace(line, i+1)
	}
	sorted.By(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	for k := 1; k < len(members); k++ {
		if members[k].key == members[k-1].key {
			return nil, 0, fmt.Errorf("member %q stands twice", members[k].key)
		}
	}
	return members, i + 1, nil
}

// canonicalValue appends the value at line[i] in canonical form and returns the
// index after it.
func canonicalValue(b, line []byte, i, depth int) ([]byte, int, error) {
	if i >= len(line) {
		return nil, 0, errSyntax
	}
	switch line[i] {
	case '{':
		members, end, err := parseMembers(line, i, depth+1)
		if err != nil {
			return nil, 0, err
		}
		b = append(b, '{')
		for _, m := range members {
			b = m.append(b)
		}
		return append(b, '}'), end, nil
	case '[':
		return canonicalArray(b, line, i, depth+1)
	case '"':
		end, err := stringEnd(line, i)
		if err != nil {
			return nil, 0, err
		}
		s, err := textOf(line[i:end])
		if err != nil {
			return nil, 0, err
		}
		return appendQuoted(b, s), end, nil
	default:
		end := i
		for end < len(line) && !isDelimiter(line[end]) {
			end++
		}
		if !isScalar(line[i:end]) {
			return nil, 0, errSyntax
		}
		return append(b, line[i:end]...), end, nil // a number keeps its own text
	}
}

func canonicalArray(b, line []byte, i, depth int) ([]byte, int, error) {
	if depth > maxDepth {
		return nil, 0, errors.New("nested too deep")
	}
	b = append(b, '[')
	i = skipSpace(line, i+1)
	if i < len(line) && line[i] == ']' {
		return append(b, ']'), i + 1, nil
	}
	for {
		var err error
		if b, i, err = canonicalValue(b, line, i, depth); err != nil {
			return nil, 0, err
		}
		i = skipSpace(line, i)
		if i >= len(line) || (line[i] != ',' && line[i] != ']') {
			return nil, 0, errSyntax
		}
		b = append(b, line[i])
		if line[i] == ']' {
			return b, i + 1, nil
		}
		i = skipSpace(line, i+1)
	}
}

// isScalar says whether s is a JSON number or one of null, true and false.
func isScalar(s []byte) bool {
	switch string(s) {
	case "null", "true", "false":
		return true
	}
	i := 0
	digits := func() bool {
		start := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(s) && s[i] == '-' {
		i++
	}
	zero := i < len(s) && s[i] == '0'
	if start := i; !digits() || (zero && i > start+1) {
		return false
	}
	if i < len(s) && s[i] == '.' {
		i++
		if !digits() {
			return false
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(s)
}

// stringEnd is the index after the string that starts at i.
func stringEnd(line []byte, i int) (int, error) {
	if i >= len(line) || line[i] != '"' {
		return 0, errSyntax
	}
	for i++; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i + 1, nil
		}
	}
	return 0, errSyntax
}

func skipSpace(line []byte, i int) int {
	for i < len(line) && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
		i++
	}
	return i
}

func isDelimiter(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' || c == '\r' || c == ':' || c == '"' || c == '{' || c == '['
}
