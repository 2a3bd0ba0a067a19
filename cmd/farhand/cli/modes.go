package cli

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// modes are those of a terminal that a program far away has changed and that would
// stay when it isn't shown any more: the other screen, a hidden cursor, a mouse
// that reports, marked pastes. It follows the output through cuts at any byte.
type modes struct {
	state    escapeState
	params   []byte
	set      []int // private modes that are on, in the order in which they came
	painted  bool  // some text attribute may be on
	keypad   bool  // application keypad
	noCursor bool
}

type escapeState uint8

const (
	inText escapeState = iota
	afterEscape
	inCSI
)

// undone are the private modes (DECSET, xterm's) that are undone.
var undone = []int{1, 9, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047, 1048, 1049, 2004, 2026}

// maxParams bounds what is remembered of one sequence; longer ones are none that
// matter here.
const maxParams = 64

// see takes a piece of output.
func (m *modes) see(b []byte) {
	for len(b) > 0 {
		if m.state == inText {
			i := bytes.IndexByte(b, 0x1b)
			if i < 0 {
				return
			}
			m.state, b = afterEscape, b[i+1:]
			continue
		}
		c := b[0]
		b = b[1:]
		switch {
		case c == 0x1b:
			m.state = afterEscape
		case c == 0x18 || c == 0x1a: // CAN, SUB
			m.state = inText
		case m.state == afterEscape && c == '[':
			m.state, m.params = inCSI, m.params[:0]
		case m.state == afterEscape:
			m.state = inText
			switch c {
			case '=':
				m.keypad = true
			case '>':
				m.keypad = false
			case 'c': // full reset, which leaves nothing to undo
				*m = modes{params: m.params}
			}
		case c >= 0x40 && c <= 0x7e: // the end of the sequence
			m.state = inText
			m.did(string(m.params), c)
		case len(m.params) < maxParams:
			m.params = append(m.params, c)
		default:
			m.state = inText
		}
	}
}

// did takes one control sequence.
func (m *modes) did(params string, end byte) {
	if end == 'm' && !strings.HasPrefix(params, ">") && !strings.HasPrefix(params, "?") {
		m.painted = params != "" && params != "0"
		return
	}
	private, ok := strings.CutPrefix(params, "?")
	if !ok || end != 'h' && end != 'l' {
		return
	}
	for n := range strings.SplitSeq(private, ";") {
		mode, err := strconv.Atoi(n)
		switch {
		case err != nil:
		case mode == 25:
			m.noCursor = end == 'l'
		case slices.Contains(undone, mode):
			m.set = slices.DeleteFunc(m.set, func(x int) bool { return x == mode })
			if end == 'h' {
				m.set = append(m.set, mode)
			}
		}
	}
}

// undo is what puts a terminal back, and forgets that it has to be. Of a sequence
// that was cut in its middle the terminal is taken out first (CAN).
func (m *modes) undo() string {
	var b strings.Builder
	if m.state != inText {
		b.WriteByte(0x18)
	}
	for _, mode := range slices.Backward(m.set) {
		b.WriteString("\x1b[?" + strconv.Itoa(mode) + "l")
	}
	if m.keypad {
		b.WriteString("\x1b>")
	}
	if m.noCursor {
		b.WriteString("\x1b[?25h")
	}
	if m.painted {
		b.WriteString("\x1b[0m")
	}
	*m = modes{params: m.params[:0]}
	return b.String()
}
