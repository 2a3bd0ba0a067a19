package preseed

import "strings"

// words splits a line as a POSIX shell does (Shell Command Language, 2.2),
// without expanding anything: quotes are taken off, a comment ends it. A quote
// that isn't closed reaches to the end of the line.
func words(line string) []string {
	var all []string
	var w strings.Builder
	inWord := false
	end := func() {
		if inWord {
			all = append(all, w.String())
		}
		w.Reset()
		inWord = false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t':
			end()
		case '#':
			if !inWord {
				return all
			}
			w.WriteByte(c)
		case '\'':
			inWord = true
			n := strings.IndexByte(line[i+1:], '\'')
			if n < 0 {
				n = len(line) - i - 1
			}
			w.WriteString(line[i+1 : i+1+n])
			i += n + 1
		case '"':
			inWord = true
			i = doubleQuoted(line, i+1, &w)
		case '\\':
			inWord = true
			if i++; i < len(line) {
				w.WriteByte(line[i])
			}
		default:
			inWord = true
			w.WriteByte(c)
		}
	}
	end()
	return all
}

// doubleQuoted adds what stands from i up to the closing quote and returns where
// that is. A backslash only counts before what it can escape.
func doubleQuoted(line string, i int, w *strings.Builder) int {
	for ; i < len(line) && line[i] != '"'; i++ {
		if line[i] == '\\' && i+1 < len(line) && strings.IndexByte("$`\"\\", line[i+1]) >= 0 {
			i++
		}
		w.WriteByte(line[i])
	}
	return i
}

// redirection is where << stands outside of quotes, or the line's end.
func redirection(line string) int {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '<':
			if strings.HasPrefix(line[i:], "<<") {
				return i
			}
		case '\\':
			i++
		case '\'':
			n := strings.IndexByte(line[i+1:], '\'')
			if n < 0 {
				return len(line)
			}
			i += n + 1
		case '"':
			i = doubleQuoted(line, i+1, new(strings.Builder))
		}
	}
	return len(line)
}
