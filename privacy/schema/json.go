package schema

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"unicode/utf8"

	"farhand/wire"
)

const (
	// maxNesting is how deep a document may be to be taken for JSON.
	maxNesting = 256
	// keyRoom is how much of a key is kept for its name; a longer one has none.
	keyRoom = 96
)

// mayBeJSON says whether it is worth a pass: an object or an array, or whatever
// the file's name says is JSON.
func mayBeJSON(head []byte, mime string) bool {
	head = bytes.TrimLeft(head, " \t\r\n")
	if len(head) == 0 {
		return false
	}
	return head[0] == '{' || head[0] == '[' || mime == "application/json" || mime == "application/x-ndjson"
}

// state is what may come next.
type state byte

const (
	top       state = iota // between the values of a file
	value                  // a value
	firstItem              // a value or ]
	firstKey               // a key or }
	nextKey                // a key
	colon
	after // a comma or the end of what is open
	text  // inside a string
	escape
	hex // of \u, s.left of them
	literal
	minus
	zero
	integer
	point
	fraction
	exponent
	exponentSign
	exponentDigits
)

// scanner is told a document in pieces, and counts. It takes RFC 8259's grammar
// and no more; only whether a string is valid UTF-8 is all the same to it.
type scanner struct {
	state   state
	stack   []frame
	tree    tree
	root    *node
	values  int64 // that are complete, on top
	newline bool  // since the last of them
	wrong   bool

	inKey bool
	key   maphash.Hash
	name  []byte // the key as it stands there, no longer than keyRoom+1
	rest  string // of a literal
	left  int    // of hex
}

// frame is an object or an array that is open.
type frame struct {
	node   *node // nil: it isn't described
	object bool
	n      int64 // members or elements so far
	member *node // whose value is next
	next   int   // the member that came after this one the last time
}

func newScanner(named bool) *scanner {
	s := &scanner{root: new(node)}
	s.tree = tree{named: named, nodes: 1}
	s.key.SetSeed(maphash.MakeSeed())
	return s
}

// write takes a piece, and wants no more once it is no JSON.
func (s *scanner) write(b []byte) bool {
	for _, c := range b {
		if s.wrong = s.wrong || !s.step(c); s.wrong {
			return false
		}
	}
	return true
}

// result is what there is, nil if it was no JSON. cut says that the document goes
// on. The last of several values may be one that is being written.
func (s *scanner) result(cut bool) *wire.SchemaValue {
	if s.wrong {
		return nil
	}
	if s.state >= zero && s.state != point && s.state != exponent && s.state != exponentSign {
		s.endNumber()
	}
	if s.state != top {
		if !cut && s.values == 0 {
			return nil
		}
		if len(s.stack) == 0 {
			s.values++
		}
		for len(s.stack) > 0 {
			s.pop()
		}
	}
	if s.values == 0 {
		return nil
	}
	return s.root.told(s.tree.named)
}

func (s *scanner) step(c byte) bool {
	switch s.state {
	case text:
		return s.inString(c)
	case escape:
		return s.escaped(c)
	case hex:
		if !isHex(c) {
			return false
		}
		if s.left--; s.left == 0 {
			s.state = text
		}
		s.keep(c)
		return true
	case literal:
		if c != s.rest[0] {
			return false
		}
		if s.rest = s.rest[1:]; s.rest == "" {
			s.endValue()
		}
		return true
	}
	if s.state >= minus {
		return s.inNumber(c)
	}
	return s.between(c)
}

// between takes what stands between strings, numbers and literals.
func (s *scanner) between(c byte) bool {
	if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
		s.newline = s.newline || c == '\n'
		return true
	}
	switch s.state {
	case top:
		if s.values > 0 && !s.newline { // values of a line each
			return false
		}
		return s.begin(c)
	case firstItem:
		if c == ']' {
			s.pop()
			return true
		}
		return s.begin(c)
	case value:
		return s.begin(c)
	case firstKey, nextKey:
		if c == '}' && s.state == firstKey {
			s.pop()
			return true
		}
		if c != '"' {
			return false
		}
		s.inKey, s.state, s.name = true, text, s.name[:0]
		s.key.Reset()
		return true
	case colon:
		s.state = value
		return c == ':'
	}
	open := &s.stack[len(s.stack)-1] // after: there is one
	switch {
	case c == ',' && open.object:
		s.state = nextKey
	case c == ',':
		s.state = value
	case c == '}' && open.object, c == ']' && !open.object:
		s.pop()
	default:
		return false
	}
	return true
}

// begin begins a value.
func (s *scanner) begin(c byte) bool {
	n := s.target()
	switch {
	case (c == '{' || c == '[') && len(s.stack) == maxNesting:
		return false
	case c == '{':
		n.count(kindObject)
		s.stack, s.state = append(s.stack, frame{node: n, object: true}), firstKey
	case c == '[':
		n.count(kindArray)
		s.stack, s.state = append(s.stack, frame{node: n}), firstItem
	case c == '"':
		n.count(kindString)
		s.inKey, s.state = false, text
	case c == 't':
		n.count(kindBoolean)
		s.rest, s.state = "rue", literal
	case c == 'f':
		n.count(kindBoolean)
		s.rest, s.state = "alse", literal
	case c == 'n':
		n.count(kindNull)
		s.rest, s.state = "ull", literal
	case c == '-':
		s.state = minus
	case c == '0':
		s.state = zero
	case c >= '1' && c <= '9':
		s.state = integer
	default:
		return false
	}
	return true
}

// target is where the value that comes is counted.
func (s *scanner) target() *node {
	if len(s.stack) == 0 {
		return s.root
	}
	open := &s.stack[len(s.stack)-1]
	if !open.object {
		open.member = s.tree.element(open.node, len(s.stack))
	}
	return open.member
}

func (s *scanner) endValue() {
	if len(s.stack) == 0 {
		s.values++
		s.state, s.newline = top, false
		return
	}
	s.stack[len(s.stack)-1].n++
	s.state = after
}

// pop closes what is open.
func (s *scanner) pop() {
	open := s.stack[len(s.stack)-1]
	s.stack = s.stack[:len(s.stack)-1]
	if open.node != nil {
		if open.object {
			open.node.size.add(open.n)
		} else {
			open.node.length.add(open.n)
		}
	}
	s.endValue()
}

func (s *scanner) inString(c byte) bool {
	switch {
	case c == '"':
		if s.inKey {
			s.endKey()
		} else {
			s.endValue()
		}
		return true
	case c == '\\':
		s.state = escape
	case c < ' ':
		return false
	}
	s.keep(c)
	return true
}

func (s *scanner) escaped(c byte) bool {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.state = text
	case 'u':
		s.state, s.left = hex, 4
	default:
		return false
	}
	s.keep(c)
	return true
}

// keep remembers a byte of a key.
func (s *scanner) keep(c byte) {
	if !s.inKey {
		return
	}
	_ = s.key.WriteByte(c) // never fails
	if s.tree.named && len(s.name) <= keyRoom {
		s.name = append(s.name, c)
	}
}

func (s *scanner) endKey() {
	open := &s.stack[len(s.stack)-1]
	open.member = s.tree.member(open, s.key.Sum64(), s.name, len(s.stack))
	s.state = colon
}

func (s *scanner) inNumber(c byte) bool {
	digit := c >= '0' && c <= '9'
	switch s.state {
	case minus:
		if s.state = integer; c == '0' {
			s.state = zero
		}
		return digit
	case point:
		s.state = fraction
		return digit
	case exponent:
		if s.state = exponentDigits; c == '+' || c == '-' {
			s.state = exponentSign
			return true
		}
		return digit
	case exponentSign:
		s.state = exponentDigits
		return digit
	}
	switch {
	case digit && s.state != zero:
	case c == '.' && (s.state == zero || s.state == integer):
		s.state = point
	case (c == 'e' || c == 'E') && s.state != exponentDigits:
		s.state = exponent
	case digit:
		return false // after a leading zero
	default:
		s.endNumber()
		return s.between(c)
	}
	return true
}

func (s *scanner) endNumber() {
	k := kindNumber
	if s.state == zero || s.state == integer {
		k = kindInteger
	}
	n := s.root
	if len(s.stack) > 0 {
		n = s.stack[len(s.stack)-1].member
	}
	n.count(k)
	s.endValue()
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// keyName is a key as people read it, "" if it is none that is shown.
func keyName(raw []byte) string {
	var name string
	if len(raw) > keyRoom || json.Unmarshal([]byte(`"`+string(raw)+`"`), &name) != nil {
		return ""
	}
	if utf8.RuneCountInString(name) > maxName || !wire.Plain(name) {
		return ""
	}
	return name
}
