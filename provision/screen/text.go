package screen

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// columns is how wide a text may be: what every serial terminal has.
const columns = 80

// Text is the page for a file that any editor opens: ASCII, with the line ends
// that Windows wants, and the address that the QR code would hold.
func (p Page) Text() []byte {
	var b strings.Builder
	for _, l := range p.lines(columns - 2) {
		b.WriteString(l)
		b.WriteString("\r\n")
	}
	if p.QR != "" && !strings.HasPrefix(p.QR, "WIFI:") {
		b.WriteString("\r\nThe picture beside this file has the code to scan. It holds:\r\n\r\n  " + ascii(p.QR) + "\r\n")
	}
	return []byte(b.String())
}

// lines are the page's items within n columns, in ASCII.
func (p Page) lines(n int) []string {
	var lines []string
	for _, item := range p.Items {
		indent, space := "", false
		switch item.Style {
		case Key:
			indent = "    "
		case Code:
			indent, space = "    ", true
		}
		if item.Style == Title && len(lines) > 0 || space {
			lines = append(lines, "")
		}
		for _, l := range wrap(ascii(item.Text), max(1, n-len(indent))) {
			lines = append(lines, indent+l)
		}
		if item.Style == Title || space {
			lines = append(lines, "")
		}
	}
	return lines
}

// Escape sequences of ECMA-48, which every terminal since the VT100 knows.
const (
	blackOnWhite = "\x1b[0;30;47m"
	whiteOnBlack = "\x1b[0;37;40m"
	whiteOnWhite = "\x1b[0;37;47m"
	blackOnBlack = "\x1b[0;30;40m"
	plainText    = "\x1b[0m"
)

// Serial is the page for a terminal of unknown kind at the end of a serial line.
//
// The QR code is ASCII: two number signs for a light module and two blanks for a
// dark one, each in its own colour on itself. A terminal that knows colours
// shows full squares, whatever its character set; one that doesn't, and a log,
// still has the pattern. What doesn't fit into 80 columns that way is left out:
// the address and the code are below it anyway.
func (p Page) Serial() []byte {
	var b strings.Builder
	b.WriteString("\r\n")
	if q, border, ok := p.serialCode(); ok {
		for y := -border; y < q.Size+border; y++ {
			row(&b, q, y, border)
			b.WriteString("\r\n")
		}
		b.WriteString("\r\n")
	}
	for _, l := range p.lines(columns - 2) {
		b.WriteString(strings.TrimRight("  "+l, " ") + "\r\n")
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

// serialCode is the QR code with the widest border that 80 columns permit, but
// none of less than two modules.
func (p Page) serialCode() (q *qr.Code, border int, ok bool) {
	if p.QR == "" {
		return nil, 0, false
	}
	// The least correction makes the smallest code, and code takes no more than
	// comes for free.
	q, err := code(p.QR)
	if err != nil {
		return nil, 0, false
	}
	border = min(quiet, (columns/2-q.Size)/2)
	return q, border, border >= 2
}

// row writes one line of a QR code, a module two characters wide.
func row(b *strings.Builder, q *qr.Code, y, border int) {
	last := ""
	for x := -border; x < q.Size+border; x++ {
		colour, module := whiteOnWhite, "##"
		if q.Black(x, y) {
			colour, module = blackOnBlack, "  "
		}
		if colour != last {
			b.WriteString(colour)
			last = colour
		}
		b.WriteString(module)
	}
	b.WriteString(plainText)
}

// Sequences of the Linux console (console_codes(4)).
const (
	reset      = "\x1bc"  // everything as after start
	utf8On     = "\x1b%G" // what follows is UTF-8
	noCursor   = "\x1b[?25l"
	noBlanking = "\x1b[9;0]"     // minutes until the screen goes dark: never
	noPowerOff = "\x1b[14;0]"    // minutes until the display is switched off: never
	erase      = "\x1b[2J\x1b[H" // all, and to the upper left
	upperHalf  = "\u2580"        // a block in the foreground's colour
)

// Console is the page for a Linux virtual console of so many columns and rows:
// half blocks make square modules, with the text beside them where there is
// room.
func (p Page) Console(cols, rows int) []byte {
	var b strings.Builder
	b.WriteString(reset + utf8On + noCursor + noBlanking + noPowerOff + erase)
	var left []string
	width := 0
	if p.QR != "" {
		if q, err := code(p.QR); err == nil {
			if side := q.Size + 2*quiet; side <= cols && (side+1)/2 < rows {
				left, width = halfBlocks(q), side
			}
		}
	}
	const gap, least = 2, 24 // columns
	if width > 0 && cols-width-gap < least {
		for _, l := range left {
			b.WriteString(l + "\r\n")
		}
		rows -= len(left)
		left, width = nil, 0
	}
	indent := 0
	if width > 0 {
		indent = width + gap
	}
	lines := p.lines(max(1, cols-indent-1))
	for y := range min(rows-1, max(len(left), len(lines))) {
		switch {
		case y < len(left):
			b.WriteString(left[y])
			b.WriteString(strings.Repeat(" ", gap))
		case indent > 0:
			fmt.Fprintf(&b, "%*s", indent, "")
		}
		if y < len(lines) {
			b.WriteString(lines[y])
		}
		b.WriteString("\r\n")
	}
	return []byte(b.String())
}

// halfBlocks are the lines of a QR code, two modules a character.
func halfBlocks(q *qr.Code) []string {
	var lines []string
	for y := -quiet; y < q.Size+quiet; y += 2 {
		var b strings.Builder
		last := ""
		for x := -quiet; x < q.Size+quiet; x++ {
			colour := whiteOnWhite
			switch upper, lower := q.Black(x, y), q.Black(x, y+1); {
			case upper && lower:
				colour = blackOnBlack
			case upper:
				colour = blackOnWhite
			case lower:
				colour = whiteOnBlack
			}
			if colour != last {
				b.WriteString(colour)
				last = colour
			}
			b.WriteString(upperHalf)
		}
		b.WriteString(plainText)
		lines = append(lines, b.String())
	}
	return lines
}
