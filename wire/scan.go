package wire

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// The scanner finds the values of one JSON object without decoding them. It is
// iterative, so that nesting costs no stack, and checks only what it needs to
// find the end of each value: whoever uses a value decodes and so validates it.

// maxDepth bounds nesting. Payloads of the protocol nest less than ten levels.
const maxDepth = 512

var errSyntax = errors.New("malformed JSON")

// Fields calls f for every member of the JSON object b with its decoded key and
// its raw value, which aliases b. An error of f ends the walk.
func Fields(b []byte, f func(key string, raw []byte) error) error {
	end, err := members(b, f)
	if err != nil {
		return err
	}
	return onlySpace(b, end)
}

// members is Fields for an object with more behind it: it returns the index after
// the object.
func members(b []byte, f func(key string, raw []byte) error) (int, error) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return 0, fmt.Errorf("%w: not an object", errSyntax)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		end, err := skipString(b, i)
		if err != nil {
			return 0, err
		}
		key, err := Unquote(b[i:end])
		if err != nil {
			return 0, err
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return 0, fmt.Errorf("%w: no colon after a key", errSyntax)
		}
		i = skipSpace(b, i+1)
		end, err = skipValue(b, i)
		if err != nil {
			return 0, err
		}
		if err := f(string(key), b[i:end]); err != nil {
			return 0, err
		}
		i = skipSpace(b, end)
		if i >= len(b) {
			return 0, fmt.Errorf("%w: object not closed", errSyntax)
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			return i + 1, nil
		default:
			return 0, fmt.Errorf("%w: unexpected %q", errSyntax, b[i])
		}
	}
}

func onlySpace(b []byte, i int) error {
	if skipSpace(b, i) != len(b) {
		return fmt.Errorf("%w: data after the object", errSyntax)
	}
	return nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at i.
func skipString(b []byte, i int) (int, error) {
	if i >= len(b) || b[i] != '"' {
		return 0, fmt.Errorf("%w: string expected", errSyntax)
	}
	for i++; ; {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return 0, fmt.Errorf("%w: string not closed", errSyntax)
		}
		// A quote is escaped if an odd number of backslashes stands before it.
		n := 0
		for k := i + q - 1; k >= i && b[k] == '\\'; k-- {
			n++
		}
		i += q + 1
		if n%2 == 0 {
			return i, nil
		}
	}
}

// skipValue returns the index after the value that starts at i.
func skipValue(b []byte, i int) (int, error) {
	if i >= len(b) {
		return 0, fmt.Errorf("%w: value expected", errSyntax)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	start := i
	for i < len(b) && !isDelimiter(b[i]) {
		i++
	}
	if i == start {
		return 0, fmt.Errorf("%w: value expected", errSyntax)
	}
	return i, nil
}

func isDelimiter(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\n', '\r', '"', '{', '[', ':':
		return true
	}
	return false
}

func skipNested(b []byte, i int) (int, error) {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, err := skipString(b, i)
			if err != nil {
				return 0, err
			}
			i = end
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return 0, fmt.Errorf("%w: nested deeper than %d", errSyntax, maxDepth)
			}
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
		i++
	}
	return 0, fmt.Errorf("%w: value not closed", errSyntax)
}

// Unquote decodes the JSON string raw (quotes included) to UTF-8. Without
// escapes and with valid UTF-8 the result aliases raw; broken UTF-8 and lone
// surrogates become U+FFFD, as encoding/json has it.
func Unquote(raw []byte) ([]byte, error) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return nil, fmt.Errorf("%w: string expected", errSyntax)
	}
	s := raw[1 : len(raw)-1]
	if bytes.IndexByte(s, '\\') < 0 && utf8.Valid(s) {
		return s, checkControls(s)
	}
	out := make([]byte, 0, len(s))
	for len(s) > 0 {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			n = len(s)
		}
		if err := checkControls(s[:n]); err != nil {
			return nil, err
		}
		out = appendValid(out, s[:n])
		if s = s[n:]; len(s) == 0 {
			break
		}
		var err error
		if out, s, err = unescape(out, s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

var replacement = []byte("\uFFFD")

// appendValid appends s with U+FFFD for each byte that is no UTF-8.
func appendValid(dst, s []byte) []byte {
	if utf8.Valid(s) {
		return append(dst, s...)
	}
	for len(s) > 0 {
		r, size := utf8.DecodeRune(s)
		dst = utf8.AppendRune(dst, r)
		s = s[size:]
	}
	return dst
}

func checkControls(s []byte) error {
	for _, c := range s {
		if c < 0x20 {
			return fmt.Errorf("%w: control character in a string", errSyntax)
		}
	}
	return nil
}

// unescape appends what the escape at the start of s stands for and returns
// what is left of s.
func unescape(out, s []byte) ([]byte, []byte, error) {
	if len(s) < 2 {
		return nil, nil, fmt.Errorf("%w: escape cut off", errSyntax)
	}
	const short, meaning = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if k := bytes.IndexByte([]byte(short), s[1]); k >= 0 {
		return append(out, meaning[k]), s[2:], nil
	}
	r, ok := hex4(s)
	if !ok {
		return nil, nil, fmt.Errorf("%w: unknown escape", errSyntax)
	}
	s = s[6:]
	if utf16.IsSurrogate(r) {
		low, ok := hex4(s)
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return utf8.AppendRune(out, pair), s[6:], nil
		}
		r = utf8.RuneError
	}
	return utf8.AppendRune(out, r), s, nil
}

// hex4 decodes the escape of a UTF-16 code unit (RFC 8259 section 7), a "\u" and
// four hex digits, at the start of s.
func hex4(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s[2:6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// AppendQuoted appends s as a JSON string with the least escaping that RFC 8259
// allows: quote, backslash and control characters. Broken UTF-8 becomes U+FFFD.
func AppendQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	dst = appendEscaped(dst, s)
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

func appendEscaped(dst, s []byte) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, replacement...)
				i++
				start = i
				continue
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(dst, s[start:]...)
}
