package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain says whether s is text that HELLO may carry as a name or a path (the
// AutoGPT platform's rule): valid UTF-8 without angle brackets, line and
// paragraph separators, and Unicode's category C (control, format, private and
// unassigned characters).
func Plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, refused)
}

func refused(r rune) bool {
	switch r {
	case '<', '>', '\u2028', '\u2029':
		return true
	}
	return unicode.Is(unicode.C, r)
}

// Clean makes text that somebody else chose fit to be shown and sent: it drops
// what Plain refuses, trims spaces and cuts at most characters.
func Clean(s string, most int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if refused(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
	n := 0
	for i := range s {
		if n == most {
			return strings.TrimSpace(s[:i])
		}
		n++
	}
	return s
}
