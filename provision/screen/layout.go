package screen

import (
	"image"
	"unicode/utf8"

	"rsc.io/qr"
)

// The smallest text that is drawn, and the smallest module of a QR code, in
// pixels: below that a camera or a reader gives up.
const (
	smallestText   = 12
	smallestModule = 2
)

// Draw lays p out on w by h pixels, with the QR code beside the text, or above
// it where the display stands upright.
func (p Page) draw(w, h int, theme colours) (canvas, error) {
	c := newCanvas(w, h, theme)
	margin := max(4, min(w, h)/24)
	text := c.Rect.Inset(margin)
	if p.QR != "" {
		qr, err := code(p.QR)
		if err != nil {
			return canvas{}, err
		}
		text = c.code(qr, margin)
	}
	c.column(text, p.Items)
	return c, nil
}

// code draws a QR code into one half of c and is the place that it leaves.
func (c canvas) code(q *qr.Code, margin int) image.Rectangle {
	w, h := c.Rect.Dx(), c.Rect.Dy()
	beside := w >= h
	room := min((w-3*margin)/2, h-2*margin)
	if !beside {
		room = min(w-2*margin, (h-3*margin)/2)
	}
	module := room / (q.Size + 2*quiet)
	if module < smallestModule {
		return c.Rect.Inset(margin)
	}
	side := module * (q.Size + 2*quiet)
	at := image.Pt(margin, (h-side)/2)
	left := image.Rect(2*margin+side, margin, w-margin, h-margin)
	if !beside {
		at = image.Pt((w-side)/2, margin)
		left = image.Rect(margin, 2*margin+side, w-margin, h-margin)
	}
	c.fill(image.Rect(0, 0, side, side).Add(at), moduleLight)
	for y := range q.Size {
		for x := range q.Size {
			if q.Black(x, y) {
				corner := at.Add(image.Pt((x+quiet)*module, (y+quiet)*module))
				c.fill(image.Rectangle{corner, corner.Add(image.Pt(module, module))}, moduleDark)
			}
		}
	}
	return left
}

// column draws items below each other with the largest text for which all of
// them fit into r. If not even the smallest fits, the last ones are left out.
func (c canvas) column(r image.Rectangle, items []Item) {
	size := max(smallestText, c.Rect.Dy()/18)
	lines, height := flow(items, r.Dx(), size)
	for size > smallestText && height > r.Dy() {
		size--
		lines, height = flow(items, r.Dx(), size)
	}
	y := r.Min.Y + max(0, (r.Dy()-height)/2)
	for _, l := range lines {
		y += l.above
		if y+l.size > r.Max.Y {
			return
		}
		c.text(r.Min.X, y, l.text, l.size, l.ramp, l.bold)
		y += l.size
	}
}

// line is one line of a column.
type line struct {
	text  string
	above int // pixels of space
	size  int
	ramp  ramp
	bold  bool
}

// flow breaks items into lines for a body text of the given size, and says how
// high they are together.
func flow(items []Item, width, size int) (lines []line, height int) {
	for i, item := range items {
		l := line{size: size, above: size / 3}
		switch item.Style {
		case Title:
			l.size, l.bold, l.above = size*3/2, true, size/2
		case Key:
			l.ramp, l.bold = accentRamp, true
		case Code:
			// As large as the column permits: it is compared from afar.
			l.size = max(size, min(3*size, 2*width/max(1, utf8.RuneCountInString(item.Text))))
			l.bold, l.above = true, size/2
		case Good:
			l.ramp, l.bold = goodRamp, true
		case Bad:
			l.ramp, l.bold = badRamp, true
		case Small:
			l.size, l.ramp = max(smallestText, size*4/5), dimRamp
		}
		if i == 0 {
			l.above = 0
		}
		for _, text := range wrap(item.Text, max(1, 2*width/l.size)) {
			l.text = text
			lines = append(lines, l)
			height += l.above + l.size
			l.above = l.size / 8
		}
	}
	return lines, height
}

// wrap breaks s into lines of at most n characters, between words where it can.
func wrap(s string, n int) []string {
	var lines []string
	chars := []rune(s)
	for len(chars) > n {
		cut := n
		for i := n; i > n/3; i-- {
			if chars[i] == ' ' {
				cut = i
				break
			}
		}
		lines = append(lines, string(chars[:cut]))
		for cut < len(chars) && chars[cut] == ' ' {
			cut++
		}
		chars = chars[cut:]
	}
	if len(chars) > 0 {
		lines = append(lines, string(chars))
	}
	return lines
}
