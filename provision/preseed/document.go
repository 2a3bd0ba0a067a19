package preseed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is what stands behind a key.
type value struct {
	kind kind
	text string
	flag bool
	list []string
	// joined says that the text was broken over lines, as a pasted line end
	// breaks it.
	joined bool
}

type kind uint8

const (
	aText kind = iota + 1
	aBool
	aNumber
	aList
)

func (k kind) String() string {
	return [...]string{"nothing", "a text in quotes", "true or false", "a number", "a list of texts"}[k]
}

// entry is a key with its table in front, "wlan.ssid", or a line that can't be
// read, with err.
type entry struct {
	key  string
	line int
	value
	err error
}

// maxEntries bounds what a file may set.
const maxEntries = 256

// read takes a text apart in the part of TOML that these files are written in:
// tables, texts, true and false, whole numbers, and lists of texts. A line that
// can't be read costs itself and no other.
func read(text string) []entry {
	r := reader{lines: strings.Split(text, "\n")}
	var all []entry
	table := ""
	for r.next < len(r.lines) && len(all) < maxEntries {
		number := r.next + 1
		line := strings.TrimSpace(r.lines[r.next])
		r.next++
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			name, err := tableName(line)
			if err != nil {
				all = append(all, entry{line: number, err: err})
				name = "?" // what follows belongs to something unknown
			}
			table = name
		default:
			all = append(all, r.entry(table, line, number))
		}
	}
	return all
}

type reader struct {
	lines []string
	next  int
}

func tableName(line string) (string, error) {
	inner, rest, closed := strings.Cut(line[1:], "]")
	name := strings.TrimSpace(inner)
	if !closed || !blank(rest) || !isKey(name) {
		return "", errors.New("not a table's name: [wlan] is one")
	}
	return name, nil
}

// blank says that nothing or a comment follows.
func blank(rest string) bool {
	rest = strings.TrimSpace(rest)
	return rest == "" || rest[0] == '#'
}

// isKey allows bare keys, with dots between the parts.
func isKey(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			return false
		}
	}
	return true
}

func (r *reader) entry(table, line string, number int) entry {
	name, rest, found := strings.Cut(line, "=")
	name = strings.Trim(strings.TrimSpace(name), `"'`)
	if !found || !isKey(name) {
		return entry{line: number, err: errors.New("not understood: a line is KEY = VALUE")}
	}
	e := entry{key: name, line: number}
	if table != "" {
		e.key = table + "." + name
	}
	e.value, e.err = r.value(strings.TrimSpace(rest))
	return e
}

func (r *reader) value(s string) (value, error) {
	switch {
	case strings.HasPrefix(s, `"""`) || strings.HasPrefix(s, "'''"):
		return value{}, errors.New("a text in triple quotes isn't understood; one pair of quotes is enough")
	case strings.HasPrefix(s, `"`) || strings.HasPrefix(s, "'"):
		return r.text(s)
	case strings.HasPrefix(s, "["):
		return r.list(s[1:])
	}
	word, comment, _ := strings.Cut(s, "#")
	_ = comment
	switch word = strings.TrimSpace(word); word {
	case "true", "false":
		return value{kind: aBool, flag: word == "true"}, nil
	}
	if _, err := strconv.ParseInt(strings.ReplaceAll(word, "_", ""), 10, 64); err == nil {
		return value{kind: aNumber, text: word}, nil
	}
	return value{}, errors.New("the value isn't understood; texts stand in quotes")
}

// maxJoined is how many lines a text may have been broken over.
const maxJoined = 8

// text reads one text that ends its line. If its quote isn't closed there, a
// line end was pasted into it: the following lines belong to it up to the quote.
func (r *reader) text(s string) (value, error) {
	whole := s
	for extra := 0; ; extra++ {
		text, rest, err := quoted(whole)
		if err == nil && blank(rest) {
			r.next += extra
			return value{kind: aText, text: text, joined: extra > 0}, nil
		}
		if err == nil {
			return value{}, errors.New("something stands behind the closing quote; a quote within a text is written \\\"")
		}
		if !errors.Is(err, errOpen) {
			return value{}, err
		}
		if extra == maxJoined || r.next+extra >= len(r.lines) {
			return value{}, errors.New("the closing quote is missing")
		}
		whole += r.lines[r.next+extra]
	}
}

// list reads a list of texts, which may stretch over lines and end with a comma.
func (r *reader) list(s string) (value, error) {
	v := value{kind: aList, list: []string{}}
	lines := 0
	for comma := true; ; {
		s = strings.TrimSpace(s)
		switch {
		case s == "" || s[0] == '#':
			if r.next+lines >= len(r.lines) || lines > maxEntries {
				return value{}, errors.New("the closing bracket is missing")
			}
			s = r.lines[r.next+lines]
			lines++
		case s[0] == ']':
			if !blank(s[1:]) {
				return value{}, errors.New("something stands behind the closing bracket")
			}
			r.next += lines
			return v, nil
		case s[0] == ',' && !comma:
			s, comma = s[1:], true
		case comma && len(v.list) < maxEntries:
			item, rest, err := quoted(s)
			if err != nil {
				return value{}, fmt.Errorf("a list holds texts in quotes: %w", err)
			}
			v.list, s, comma = append(v.list, item), rest, false
		default:
			return value{}, errors.New("a comma is missing between two texts of a list")
		}
	}
}

var errOpen = errors.New("the closing quote is missing")

// quoted reads a text in single quotes, which has no escapes, or in double
// quotes, which has TOML's, and returns what stands behind it.
func quoted(s string) (text, rest string, err error) {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		return "", "", errors.New("a quote is missing")
	}
	if s[0] == '\'' {
		text, rest, closed := strings.Cut(s[1:], "'")
		if !closed {
			return "", "", errOpen
		}
		return text, rest, nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], nil
		case '\\':
			char, n, err := escape(s[i+1:])
			if err != nil {
				return "", "", err
			}
			b.WriteString(char)
			i += n
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", errOpen
}

// escape is the character that an escape stands for, and how long it is behind
// its backslash.
func escape(s string) (char string, n int, err error) {
	if s == "" {
		return "", 0, errOpen
	}
	switch s[0] {
	case '"', '\\':
		return s[:1], 1, nil
	case 'b', 't', 'n', 'f', 'r':
		return map[byte]string{'b': "\b", 't': "\t", 'n': "\n", 'f': "\f", 'r': "\r"}[s[0]], 1, nil
	case 'u', 'U':
		digits := 4
		if s[0] == 'U' {
			digits = 8
		}
		if len(s) <= digits {
			return "", 0, errOpen
		}
		code, err := strconv.ParseUint(s[1:1+digits], 16, 32)
		if err != nil || code == 0 || code > utf8.MaxRune || code >= 0xd800 && code < 0xe000 {
			return "", 0, errors.New("an escape names no character")
		}
		return string(rune(code)), 1 + digits, nil
	}
	return "", 0, errors.New("a backslash is written \\\\")
}
