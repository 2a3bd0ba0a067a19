// Package fnmatch matches names against glob patterns with the meaning of
// Python's fnmatch.fnmatchcase, which is what the protocol's globs are defined
// by: * any run of characters, ? one character, [seq] and [!seq] one character
// in or not in a set; a "[" without its "]" stands for itself; there is no
// escape character, "/" is a character like any other, and case counts.
//
// path.Match differs in all of these, and a pattern it dislikes is an error;
// here every string is a pattern.
package fnmatch

import "unicode/utf8"

// Match says whether the whole name fits pattern. Bytes that are not UTF-8 are
// characters of their own, equal only to themselves. Time is bounded by the
// square of the name's length plus the pattern's, whatever the pattern.
func Match(pattern, name string) bool { return Compile(pattern).Match(name) }

// Pattern is a compiled pattern, safe for concurrent use.
type Pattern struct {
	items []item
	least int // characters of the shortest name that can fit
}

type kind uint8

const (
	literal kind = iota
	anyOne       // ?
	anyRun       // *
	oneOf        // [seq]
	noneOf       // [!seq]
)

type item struct {
	kind kind
	char rune
	set  []span
}

type span struct{ lo, hi rune }

// Compile prepares a pattern for matching many names.
func Compile(pattern string) Pattern {
	var p Pattern
	chars := decode(pattern)
	for i := 0; i < len(chars); {
		c := chars[i]
		i++
		switch c {
		case '*':
			if n := len(p.items); n == 0 || p.items[n-1].kind != anyRun {
				p.items = append(p.items, item{kind: anyRun})
			}
			continue
		case '?':
			p.items = append(p.items, item{kind: anyOne})
		case '[':
			end := setEnd(chars, i)
			if end < 0 {
				p.items = append(p.items, item{kind: literal, char: c})
				break
			}
			p.items = append(p.items, compileSet(chars[i:end]))
			i = end + 1
		default:
			p.items = append(p.items, item{kind: literal, char: c})
		}
		p.least++
	}
	return p
}

// Match says whether the whole name fits the pattern.
func (p Pattern) Match(name string) bool {
	if p.least > len(name) { // a character is at least one byte
		return false
	}
	chars := decode(name)
	// Only the last * ever needs another try: what an earlier one left over,
	// a later one can take as well.
	star, resume := -1, 0
	i, k := 0, 0
	for k < len(chars) {
		switch {
		case i < len(p.items) && p.items[i].kind == anyRun:
			star, resume = i, k
			i++
		case i < len(p.items) && p.items[i].matches(chars[k]):
			i++
			k++
		case star >= 0:
			resume++
			i, k = star+1, resume
		default:
			return false
		}
	}
	for i < len(p.items) && p.items[i].kind == anyRun {
		i++
	}
	return i == len(p.items)
}

func (it item) matches(c rune) bool {
	switch it.kind {
	case literal:
		return c == it.char
	case anyOne:
		return true
	case oneOf, noneOf:
		in := false
		for _, s := range it.set {
			if c >= s.lo && c <= s.hi {
				in = true
				break
			}
		}
		return in == (it.kind == oneOf)
	default:
		return false
	}
}

// setEnd is the index of the "]" that closes the set whose content starts at i,
// or -1. A "]" right at the start, after a "!" too, belongs to the content.
func setEnd(chars []rune, i int) int {
	if i < len(chars) && chars[i] == '!' {
		i++
	}
	if i < len(chars) && chars[i] == ']' {
		i++
	}
	for ; i < len(chars); i++ {
		if chars[i] == ']' {
			return i
		}
	}
	return -1
}

// mark is one character of a set; a bare "-" makes a range.
type mark struct {
	char rune
	bare bool
}

// compileSet turns the content of [...] into spans. Python goes through a
// regular expression on the way, and its result in odd cases ([a-c-e], [z-a])
// follows from how it cuts the content at its hyphens, so that is done the same
// way here.
func compileSet(content []rune) item {
	marks := joinChunks(dropEmptyRanges(cutChunks(content)))
	if len(marks) == 0 {
		return item{kind: oneOf} // an empty set fits nothing
	}
	it := item{kind: oneOf}
	if marks[0].char == '!' {
		it.kind = noneOf
		marks = marks[1:]
	}
	for i := 0; i < len(marks); {
		s := span{marks[i].char, marks[i].char}
		i++
		if i+1 < len(marks) && marks[i].bare {
			s.hi = marks[i+1].char
			i += 2
		}
		it.set = append(it.set, s)
	}
	return it
}

// cutChunks cuts the content at the hyphens that make a range: not the first
// character, and not the one right after a range's end.
func cutChunks(content []rune) [][]rune {
	var chunks [][]rune
	from, next := 0, 1
	if len(content) > 0 && content[0] == '!' {
		next = 2
	}
	for {
		k := next
		for k < len(content) && content[k] != '-' {
			k++
		}
		if k >= len(content) {
			break
		}
		chunks = append(chunks, content[from:k:k])
		from, next = k+1, k+3
	}
	switch last := content[from:]; {
	case len(last) > 0:
		chunks = append(chunks, last[:len(last):len(last)])
	case len(chunks) > 0: // a hyphen at the very end stands for itself
		chunks[len(chunks)-1] = append(chunks[len(chunks)-1], '-')
	}
	return chunks
}

// dropEmptyRanges removes ranges that run backwards, both ends of them.
func dropEmptyRanges(chunks [][]rune) [][]rune {
	for k := len(chunks) - 1; k > 0; k-- {
		before, after := chunks[k-1], chunks[k]
		if before[len(before)-1] <= after[0] {
			continue
		}
		merged := append(append([]rune{}, before[:len(before)-1]...), after[1:]...)
		chunks[k-1] = merged
		chunks = append(chunks[:k], chunks[k+1:]...)
	}
	return chunks
}

func joinChunks(chunks [][]rune) []mark {
	var marks []mark
	for k, chunk := range chunks {
		if k > 0 {
			marks = append(marks, mark{'-', true})
		}
		for _, c := range chunk {
			marks = append(marks, mark{c, false})
		}
	}
	return marks
}

// decode cuts s into characters. A byte that is not UTF-8 becomes the lone
// surrogate that Python's surrogateescape gives it, which no valid text holds.
func decode(s string) []rune {
	chars := make([]rune, 0, len(s))
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			r = 0xDC00 + rune(s[i])
		}
		chars = append(chars, r)
		i += size
	}
	return chars
}
