package schema

import (
	"bytes"
	"strings"
)

// cellType is what a cell of a table is written like.
type cellType byte

const (
	cellInteger cellType = iota
	cellNumber
	cellBoolean
	cellDate
	cellTime
	cellDateTime
	cellText
	cellEmpty
	cellTypes
)

var cellNames = [cellTypes]string{"integer", "number", "boolean", "date", "time", "datetime", "text", "empty"}

// typeOf is the type of a cell of a table with this delimiter. Digits after a
// leading zero are text: a code, a telephone number.
func typeOf(b []byte, delimiter byte) cellType {
	if len(b) > cellRoom {
		return cellText
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return cellEmpty
	}
	if len(b) <= len("unknown") && (b[0] < '0' || b[0] > '9') {
		if k := typeOfWord(b); k != cellText {
			return k
		}
	}
	switch rest, ok := date(b); {
	case ok && len(rest) == 0:
		return cellDate
	case ok && (rest[0] == 'T' || rest[0] == ' ') && isTime(rest[1:]):
		return cellDateTime
	case isTime(b):
		return cellTime
	}
	return typeOfNumber(b, delimiter != ',')
}

// typeOfWord knows the words for yes and no, and those for nothing, after which a
// column is still one of numbers.
func typeOfWord(b []byte) cellType {
	for _, word := range [...]string{"true", "false", "yes", "no"} {
		if strings.EqualFold(word, string(b)) {
			return cellBoolean
		}
	}
	for _, word := range [...]string{"-", "?", "n/a", "na", "nan", "null", "none", "nil", "unknown"} {
		if strings.EqualFold(word, string(b)) {
			return cellEmpty
		}
	}
	return cellText
}

// typeOfNumber takes a point for decimals, and a comma where that is no delimiter.
func typeOfNumber(b []byte, comma bool) cellType {
	if b[0] == '+' || b[0] == '-' {
		b = b[1:]
	}
	whole, rest := digits(b)
	if whole > 1 && b[0] == '0' {
		return cellText
	}
	if len(rest) == 0 && whole > 0 {
		return cellInteger
	}
	parts := whole
	if len(rest) > 0 && (rest[0] == '.' || comma && rest[0] == ',') {
		var n int
		n, rest = digits(rest[1:])
		parts += n
	}
	if parts == 0 {
		return cellText
	}
	if len(rest) > 1 && (rest[0] == 'e' || rest[0] == 'E') {
		if rest = rest[1:]; rest[0] == '+' || rest[0] == '-' {
			rest = rest[1:]
		}
		var n int
		if n, rest = digits(rest); n == 0 {
			return cellText
		}
	}
	if len(rest) > 0 {
		return cellText
	}
	return cellNumber
}

// digits is how many b begins with, and what comes after them.
func digits(b []byte) (int, []byte) {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n, b[n:]
}

// date takes a date with a year of four digits at either end.
func date(b []byte) (rest []byte, ok bool) {
	first, b := digits(b)
	if first == 0 || len(b) == 0 || b[0] != '-' && b[0] != '/' && b[0] != '.' {
		return nil, false
	}
	separator := b[0]
	second, b := digits(b[1:])
	if second == 0 || second > 2 || len(b) == 0 || b[0] != separator {
		return nil, false
	}
	third, b := digits(b[1:])
	ends := func(year, day int) bool { return year == 4 && (day == 1 || day == 2) }
	return b, ends(first, third) || ends(third, first)
}

// isTime takes hours and minutes, with seconds, decimals and a zone or without.
func isTime(b []byte) bool {
	hours, b := digits(b)
	if hours == 0 || hours > 2 || len(b) == 0 || b[0] != ':' {
		return false
	}
	minutes, b := digits(b[1:])
	if minutes != 2 {
		return false
	}
	if len(b) > 0 && b[0] == ':' {
		var seconds int
		if seconds, b = digits(b[1:]); seconds != 2 {
			return false
		}
		if len(b) > 1 && (b[0] == '.' || b[0] == ',') {
			if seconds, b = digits(b[1:]); seconds == 0 {
				return false
			}
		}
	}
	switch {
	case len(b) == 0 || string(b) == "Z":
		return true
	case b[0] != '+' && b[0] != '-':
		return false
	}
	n, b := digits(b[1:])
	if n == 2 && len(b) == 3 && b[0] == ':' {
		n, b = digits(b[1:])
		return n == 2 && len(b) == 0
	}
	return (n == 2 || n == 4) && len(b) == 0
}
