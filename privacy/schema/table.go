package schema

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"farhand/wire"
)

const (
	// maxColumns is how many columns are described.
	maxColumns = 128
	// cellRoom is how much of a cell is looked at; what is longer is text.
	cellRoom = 64
	// oddRows is how many rows in a hundred may have another number of cells than
	// the first one.
	oddRows = 10
	// typedCells is how many cells of one type other than text a column has to
	// have for its first to be taken for its name.
	typedCells = 2
)

// delimiters stand between cells, those first that stand inside of cells least.
var delimiters = []struct {
	c    byte
	name string
}{{'\t', "tab"}, {';', "semicolon"}, {'|', "pipe"}, {',', "comma"}}

// newTable begins a table that the begin of a file looks like, nil if it looks
// like none. more says that the file goes on after it.
func newTable(head []byte, more bool, o Options) *table {
	comma := o.MIMEType == "text/csv"
	tab := o.MIMEType == "text/tab-separated-values"
	if more {
		head = head[:bytes.LastIndexAny(head, "\r\n")+1]
	}
	for _, d := range delimiters {
		if tab && d.c != '\t' {
			continue
		}
		t := &table{delimiter: d.c, name: d.name, declared: comma || tab, named: o.Named}
		t.write(head)
		t.finish(more)
		if t.fits() && t.width > 1 && (t.declared || t.rows > 1 && t.uneven == 0) {
			return t.fresh()
		}
	}
	if !comma {
		return nil
	}
	t := &table{delimiter: ',', declared: true, named: o.Named} // one column
	t.write(head)
	if t.finish(more); t.fits() && t.width == 1 {
		return t.fresh()
	}
	return nil
}

// table is told its rows in pieces, and counts.
type table struct {
	delimiter byte
	name      string
	declared  bool // by the file's name
	named     bool

	state  cellState
	cell   []byte // no longer than cellRoom+1
	column int
	cr     bool
	broken bool // a quote was left open

	width   int // cells of the first row
	first   []cell
	columns [][cellTypes]int64 // without the first row
	rows    int64              // with it
	uneven  int64
}

// cell is one of the first row.
type cell struct {
	kind cellType
	text []byte
}

type cellState byte

const (
	cellStart cellState = iota
	plain
	quoted
	quote // inside of quotes: the end, or the first of two
)

func (t *table) fresh() *table {
	return &table{delimiter: t.delimiter, name: t.name, declared: t.declared, named: t.named}
}

func (t *table) write(b []byte) {
	for _, c := range b {
		if t.cr && c == '\n' {
			t.cr = false
			continue
		}
		t.cr = false
		t.step(c)
	}
}

// step takes a byte by the rules of RFC 4180, and what is common beside: other
// delimiters and ends of lines, quotes inside of a cell that has none around it.
func (t *table) step(c byte) {
	switch {
	case t.state == quoted && c == '"':
		t.state = quote
	case t.state == quoted:
		t.keep(c)
	case t.state == quote && c == '"':
		t.state = quoted
		t.keep(c)
	case c == t.delimiter:
		t.endCell()
	case c == '\n' || c == '\r':
		t.cr = c == '\r'
		t.endRow()
	case t.state == cellStart && c == '"':
		t.state = quoted
	default:
		t.state = plain
		t.keep(c)
	}
}

func (t *table) keep(c byte) {
	if len(t.cell) <= cellRoom {
		t.cell = append(t.cell, c)
	}
}

func (t *table) endCell() {
	if t.column < maxColumns {
		k := typeOf(t.cell, t.delimiter)
		if t.rows == 0 {
			t.first = append(t.first, cell{k, slices.Clone(t.cell)})
		} else {
			for len(t.columns) <= t.column {
				t.columns = append(t.columns, [cellTypes]int64{})
			}
			t.columns[t.column][k]++
		}
	}
	t.column++
	t.cell, t.state = t.cell[:0], cellStart
}

func (t *table) endRow() {
	if t.column == 0 && t.state == cellStart {
		return // an empty line
	}
	t.endCell()
	if t.rows == 0 {
		t.width = t.column
	} else if t.column != t.width {
		t.uneven++
	}
	t.rows++
	t.column = 0
}

// finish ends the last row; cut says that the file goes on.
func (t *table) finish(cut bool) {
	if cut {
		return
	}
	t.broken = t.state == quoted
	t.endRow()
}

// fits says whether so many rows are alike that it is a table. Quotes that
// nothing closes are none of a table's.
func (t *table) fits() bool {
	return t.rows > 0 && !t.broken && t.uneven*100 <= t.rows*oddRows
}

// result is what there is, nil if it was no table.
func (t *table) result(cut bool) *wire.SchemaTable {
	if t.finish(cut); !t.fits() {
		return nil
	}
	out := &wire.SchemaTable{Delimiter: t.name, Header: t.hasHeader(), Rows: t.rows, Uneven: t.uneven, Width: t.width}
	for len(t.columns) < len(t.first) {
		t.columns = append(t.columns, [cellTypes]int64{})
	}
	if out.Header {
		out.Rows--
	} else {
		for i, c := range t.first {
			t.columns[i][c.kind]++
		}
	}
	out.Columns = make([]wire.SchemaColumn, len(t.columns))
	for i, counts := range t.columns {
		types := make(map[string]int64)
		for k, n := range counts {
			if n > 0 {
				types[cellNames[k]] = n
			}
		}
		out.Columns[i].Types = types
		if out.Header && t.named && t.declared && i < len(t.first) {
			out.Columns[i].Name = columnName(t.first[i].text)
		}
	}
	return out
}

// hasHeader says whether the first row names the columns: all of it is text, and
// there is a column of another type. Where everything is text nothing tells a
// name from a value, so it is none.
func (t *table) hasHeader() bool {
	for _, c := range t.first {
		if c.kind != cellText || len(c.text) > cellRoom || !startsLikeName(c.text) {
			return false
		}
	}
	return slices.ContainsFunc(t.columns[:min(len(t.columns), len(t.first))], func(c [cellTypes]int64) bool {
		c[cellNumber] += c[cellInteger]
		c[cellInteger], c[cellEmpty] = 0, 0
		var all, most int64
		for _, n := range c {
			all, most = all+n, max(most, n)
		}
		return most >= typedCells && most == all && c[cellText] == 0
	})
}

// startsLikeName says that it is no telephone number and the like.
func startsLikeName(cell []byte) bool {
	c := bytes.TrimLeft(cell, " ")[0] // there is one: it is text
	return (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' && c != '('
}

// columnName is a header's cell as people read it, "" if it is none that is shown.
func columnName(cell []byte) string {
	name := string(bytes.TrimSpace(cell))
	if utf8.RuneCountInString(name) > maxName || !wire.Plain(name) {
		return ""
	}
	return name
}
