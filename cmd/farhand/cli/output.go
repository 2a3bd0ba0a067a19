package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// painter colours text for one stream, or leaves it as it is.
type painter bool

func (p painter) paint(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p painter) red(s string) string   { return p.paint("31", s) }
func (p painter) green(s string) string { return p.paint("32", s) }
func (p painter) blue(s string) string  { return p.paint("34", s) }
func (p painter) dim(s string) string   { return p.paint("2", s) }
func (p painter) bold(s string) string  { return p.paint("1", s) }

// style says which streams are terminals, may be coloured, and how wide they are.
type style struct {
	out, err     painter
	outTTY, errT bool
	room         func() int // columns that standard output has now; nil or 0: as many as it takes
	errRoom      func() int // the same of standard error, if it is a terminal
	height       func() int // lines of the terminal that standard output is; nil or 0: nothing tells
}

// width is how many columns tables keep to, and what is drawn; 0: as many as they
// need. It is asked each time, for the terminal may be made wider or narrower.
func (s style) width() int { return current(s.room) }

// fold is at how many columns sentences on standard output are folded; 0: they aren't.
func (s style) fold() int {
	if s.outTTY { // whoever sets $COLUMNS for a program that reads along means tables
		return s.width()
	}
	return 0
}

// errWidth is how many columns standard error keeps to; 0: as many as it needs.
func (s style) errWidth() int { return current(s.errRoom) }

func current(size func() int) int {
	if size == nil {
		return 0
	}
	return size()
}

func styleFor(env Env) style {
	s := style{outTTY: isTerminal(env.Stdout), errT: isTerminal(env.Stderr)}
	if env.Getenv("NO_COLOR") == "" && env.Getenv("TERM") != "dumb" {
		s.out, s.err = painter(s.outTTY), painter(s.errT)
	}
	s.room = func() int { return columns(env, env.Stdout, s.outTTY) }
	if s.outTTY {
		s.height = func() int { _, rows := terminalSize(env.Stdout); return rows }
	}
	if s.errT {
		s.errRoom = func() int { return columns(env, env.Stderr, true) }
	}
	return s
}

// columns is $COLUMNS where it is set, else the width of the terminal. What goes
// to a file or a pipe isn't wrapped: there a line is one entry.
func columns(env Env, stream any, tty bool) int {
	if n, err := strconv.Atoi(env.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if !tty {
		return 0
	}
	n, _ := terminalSize(stream)
	return n
}

// terminalSize is 0, 0 where nothing tells.
func terminalSize(stream any) (columns, rows int) {
	if f, ok := stream.(*os.File); ok {
		if c, r, err := term.GetSize(int(f.Fd())); err == nil && c > 0 && r > 0 {
			return c, r
		}
	}
	return 0, 0
}

// isTerminal says whether a stream is a person's.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && f != nil && term.IsTerminal(int(f.Fd()))
}

// printJSON writes one document.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.env.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// done is the answer of a verb that has nothing to tell a person: nothing, or
// one document all the same.
func (a *app) done(v any) error {
	if !a.json {
		return nil
	}
	return a.printJSON(v)
}

// place is a path on a machine, as --json names it.
type place struct {
	Machine string `json:"machine_id"`
	Path    string `json:"path"`
}

// printf writes to standard output. A failure is told when the verb is done.
func (a *app) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(a.env.Stdout, format, args...); err != nil && a.outErr == nil {
		a.outErr = err
	}
}

// tell writes a line of words to standard output, folded where the terminal is too
// narrow for it.
func (a *app) tell(format string, args ...any) {
	a.printf("%s\n", fold(fmt.Sprintf(format, args...), a.style.fold()))
}

// note writes to standard error what is not an answer; not with --json, whose
// standard error is for one error alone.
func (a *app) note(format string, args ...any) {
	if !a.askedJSON() {
		fmt.Fprintln(a.env.Stderr, fold(fmt.Sprintf(format, args...), a.style.errWidth()))
	}
}

// fold breaks a line that is wider than width between its words; what goes on below
// stands two columns further in. A longer word stays whole, so that it can be copied.
func fold(line string, width int) string {
	return foldAt(line, width, 2)
}

// foldAt is fold with what goes on below so many columns further in.
func foldAt(line string, width, in int) string {
	if width <= 0 || shown(line) <= width {
		return line
	}
	words := strings.TrimLeft(line, " ")
	begin := line[:len(line)-len(words)]
	next := "\n" + begin + strings.Repeat(" ", in)
	var b strings.Builder
	b.WriteString(begin)
	at, gap := len(begin), ""
	for words != "" {
		word, rest, _ := strings.Cut(words, " ")
		words = strings.TrimLeft(rest, " ")
		switch n := shown(word); {
		case gap == "":
			at += n
		case at+len(gap)+n > width:
			b.WriteString(next)
			at = len(next) - 1 + n
		default:
			b.WriteString(gap)
			at += len(gap) + n
		}
		b.WriteString(word)
		gap = " " + rest[:len(rest)-len(words)]
	}
	if strings.HasSuffix(line, " ") { // a question, whose answer is typed behind it
		b.WriteByte(' ')
	}
	return b.String()
}

// shown is how many columns text takes; what paints it takes none.
func shown(s string) int {
	n := 0
	for {
		before, painted, found := strings.Cut(s, "\x1b[")
		n += measure(before)
		if !found {
			return n
		}
		_, s, _ = strings.Cut(painted, "m")
	}
}

// measure is how many columns plain text takes on a terminal: two for each Chinese
// character and emoji, none for a mark on the letter before.
func measure(s string) int {
	return columnsOf.StringWidth(s)
}

// columnsOf counts them the same way whatever the locale is.
var columnsOf = runewidth.Condition{StrictEmojiNeutral: true}

// clean makes text from outside safe to show on a terminal: control and format
// characters, which could move the cursor or reorder a line, are replaced.
func clean(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	ok := func(r rune) bool { return r == ' ' || unicode.IsPrint(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !ok(r) }) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if ok(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}

// cell is one field of a table; paint colours it after it was measured.
type cell struct {
	text  string
	paint func(string) string
}

func plain(s string) cell { return cell{text: s} }

// table writes rows under a heading in columns as wide as their longest cell,
// or, where that would be too wide, narrower ones with cells of several lines, or,
// where that doesn't fit either, each row as a list of its own. Without a heading the
// first cell of a row names the second, and stays on one line.
type table struct {
	head []string
	rows [][]cell
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer, p painter, width int) error {
	_, err := io.WriteString(w, t.text(p, width))
	return err
}

// text is what write writes.
func (t *table) text(p painter, width int) string {
	rows := t.rows
	if len(t.head) > 0 {
		head := make([]cell, len(t.head))
		for i, h := range t.head {
			head[i] = cell{h, p.dim}
		}
		rows = append([][]cell{head}, rows...)
	}
	var widths, least []int
	for n, row := range rows {
		for i := range row {
			row[i].text = clean(row[i].text)
			if i == len(widths) {
				widths, least = append(widths, 0), append(least, 0)
			}
			widths[i] = max(widths[i], measure(row[i].text))
			words := strings.Fields(row[i].text)
			if n == 0 && len(t.head) > 0 || i == 0 && len(t.head) == 0 {
				words = []string{row[i].text} // a heading stays on its line
			}
			for _, word := range words {
				least[i] = max(least[i], measure(word))
			}
		}
	}
	if width > 0 && narrow(widths, least, width) > width {
		switch {
		case len(t.head) > 1:
			return list(rows, width)
		case len(t.head) == 0 && len(widths) == 2:
			return pairs(rows, width)
		}
	}
	var b strings.Builder
	for _, row := range rows {
		writeRow(&b, row, widths)
	}
	return b.String()
}

// list writes each row below the one before, its cells one below the other, each
// behind its heading.
func list(rows [][]cell, width int) string {
	var b strings.Builder
	for i, row := range rows[1:] {
		if i > 0 {
			b.WriteByte('\n')
		}
		entries := make([][]cell, len(row))
		for j, c := range row {
			entries[j] = []cell{rows[0][j], c}
		}
		b.WriteString(pairs(entries, width))
	}
	return b.String()
}

// pairs writes names with what each names beside it, or below it where the longest
// word wouldn't fit beside. A word that is wider than all of the room stays whole.
func pairs(rows [][]cell, width int) string {
	names := 0
	for _, row := range rows {
		if n := measure(row[0].text); n <= width/2 {
			names = max(names, n)
		}
	}
	var b strings.Builder
	for _, row := range rows {
		longest := 0
		for _, word := range strings.Fields(row[1].text) {
			longest = max(longest, measure(word))
		}
		if room := width - names - 2; measure(row[0].text) <= names && longest <= room {
			writeRow(&b, row, []int{names, room})
			continue
		}
		writeRow(&b, row[:1], []int{width})
		writeRow(&b, []cell{{}, row[1]}, []int{0, max(width-2, 1)})
	}
	return b.String()
}

// narrow takes from the widest columns until all fit into width, as far as their
// longest words let it, and gives how wide all are then.
func narrow(widths, least []int, width int) (total int) {
	total = 2 * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for ; total > width; total-- {
		widest := -1
		for i, n := range widths {
			if n > least[i] && (widest < 0 || n > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return total
}

func writeRow(b *strings.Builder, row []cell, widths []int) {
	lines, most := make([][]string, len(row)), 1
	for i, c := range row {
		lines[i] = wrap(c.text, widths[i])
		most = max(most, len(lines[i]))
	}
	for n := range most {
		gap := 0 // before the next cell; none at the end of a line
		for i, c := range row {
			text := ""
			if n < len(lines[i]) {
				text = lines[i][n]
			}
			if text != "" {
				b.WriteString(strings.Repeat(" ", gap))
				gap = 0
			}
			gap += widths[i] - measure(text) + 2
			if c.paint != nil {
				text = c.paint(text)
			}
			b.WriteString(text)
		}
		b.WriteByte('\n')
	}
}

// wrap breaks text between words into lines of at most width columns; a
// longer word stays whole.
func wrap(text string, width int) []string {
	if measure(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && measure(line)+1+measure(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// age says how long ago t was.
func (a *app) age(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return span(a.env.Now().Sub(t)) + " ago"
}

// until says how far away t is.
func (a *app) until(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := t.Sub(a.env.Now())
	if d <= 0 {
		return "expired"
	}
	return "in " + span(d)
}

// ending says in a clause when what ends at t does.
func (a *app) ending(t time.Time) string {
	if t.IsZero() {
		return "it never ends"
	}
	return "it ends " + a.until(t)
}

// span rounds a duration to what a person wants to know.
func span(d time.Duration) string {
	in := func(unit time.Duration) int64 { return int64((d + unit/2) / unit) }
	switch {
	case d < time.Second:
		return "1 s"
	case d < 100*time.Second:
		return fmt.Sprintf("%d s", in(time.Second))
	case d < 100*time.Minute:
		return fmt.Sprintf("%d min", in(time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", in(time.Hour))
	default:
		return fmt.Sprintf("%d days", in(24*time.Hour))
	}
}

// size writes a number of bytes for people, rounded down, so that a limit is
// never shown as more than it is.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	unit, name := int64(1024), 0
	for n/unit >= 1024 && name < 4 {
		unit, name = unit*1024, name+1
	}
	return fmt.Sprintf("%d.%d %s", n/unit, n%unit/(unit/1024)*10/1024, [...]string{"KiB", "MiB", "GiB", "TiB", "PiB"}[name])
}

func join[T ~string](list []T) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = string(s)
	}
	return strings.Join(parts, ", ")
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
