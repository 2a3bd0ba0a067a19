package cli

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	for _, c := range []struct {
		line  string
		width int
		want  string
	}{
		{"as wide as that", 15, "as wide as that"},
		{"as wide as that", 14, "as wide as\n  that"},
		{"as wide as that", 0, "as wide as that"},
		{"  further  in than  that", 16, "  further  in\n    than  that"},
		{"a wordlongerthanall of it", 10, "a\n  wordlongerthanall\n  of it"},
		{"Let it in? [y/N] ", 12, "Let it in?\n  [y/N] "},
		{"Let it in? [y/N] ", 17, "Let it in? [y/N] "},
		{"\x1b[2mten\x1b[0m columns", 11, "\x1b[2mten\x1b[0m columns"},
		{"ein Gruß für größere", 12, "ein Gruß für\n  größere"},
		{"", 3, ""},
	} {
		if got := fold(c.line, c.width); got != c.want {
			t.Errorf("%q at %d is %q, want %q", c.line, c.width, got, c.want)
		}
	}
}

// A table without a heading keeps what names a row on its line, and puts below it
// what wouldn't fit beside it.
func TestNarrowPairs(t *testing.T) {
	var rows table
	rows.add(plain("calls itself"), plain("something with a name"))
	rows.add(plain("id"), plain("8f14e45f-ceea-467a-9575-aaaaaaaaaaaa"))
	rows.add(plain("/a/path/as/long/as/they/are"), plain("full"))
	want := `calls itself  something with a
              name
id
  8f14e45f-ceea-467a-9575-aaaaaaaaaaaa
/a/path/as/long/as/they/are
  full
`
	if got := rows.text(false, 30); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := rows.text(false, 0); strings.Count(got, "\n") != 3 {
		t.Errorf("with all the room it is\n%s", got)
	}
}

func TestDump(t *testing.T) {
	b := []byte("0123456789\x00\xff tail")
	if got := dump(b, 80); got != hex.Dump(b) {
		t.Errorf("got\n%s", got)
	}
	want := `00000000  30 31 32 33 34 35 36 37  |01234567|
00000008  38 39 00 ff 20 74 61 69  |89.. tai|
00000010  6c                       |l|
`
	if got := dump(b, 60); got != want {
		t.Errorf("got\n%s", got)
	}
	for width := 30; width < 80; width++ {
		for line := range strings.Lines(dump(bytes.Repeat(b, 3), width)) {
			if n := shown(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns of %d: %q", n, width, line)
			}
		}
	}
}

// What describes a flag stands beside it where there is room, else below; examples
// are to be copied and stay as they are.
func TestFoldHelp(t *testing.T) {
	const text = `do does what is said of it here in
two lines.

Usage:
  farhand do [MACHINE] LINE... [flags]

Examples:
  farhand do something --that is --longer than that

Flags:
  -a, --all        all that there are of
        it
      --a-long-one DURATION   for so long
   1  failed, and for a reason
`
	const want = `do does what is said of it here
in two lines.

Usage:
  farhand do [MACHINE] LINE...
    [flags]

Examples:
  farhand do something --that is --longer than that

Flags:
  -a, --all
        all that there are of
        it
      --a-long-one DURATION
        for so long
   1  failed, and for a reason
`
	if got := foldHelp(text, 31); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := foldHelp(text, 0); got != text {
		t.Errorf("with all the room it is\n%s", got)
	}
}

// What is drawn in place knows how many lines of the terminal it takes, or more and
// more of it would stay above.
func TestLiveCountsLines(t *testing.T) {
	l := live{a: &app{style: style{room: func() int { return 10 }}}}
	for _, c := range []struct {
		text  string
		lines int
	}{{"one\ntwo\n", 2}, {"1234567890\n", 1}, {"12345678901\n\n", 3}, {"\x1b[31mred\x1b[0m 7890\n", 1}, {"", 0}} {
		if l.over(c.text); rows(l.drawn, 10) != c.lines {
			t.Errorf("%q takes %d lines, want %d", c.text, rows(l.drawn, 10), c.lines)
		}
	}
}

// The lines that stand there take more of a terminal that was made narrower, and what
// it has no room for would leave it above for good.
func TestLiveOnAChangedTerminal(t *testing.T) {
	width, height := 40, 0
	var out bytes.Buffer
	l := live{a: &app{env: Env{Stdout: &out}, style: style{outTTY: true, room: func() int { return width }, height: func() int { return height }}}}
	var all table
	all.add(plain("state"), plain("printing a part"))
	all.add(plain("bed"), plain("60.0 of 60.0"))
	all.add(plain("tool0"), plain("210.0"))
	draw := func(want string) {
		t.Helper()
		out.Reset()
		if l.draw(all); out.String() != want {
			t.Errorf("%d by %d: %q, want %q", width, height, &out, want)
		}
		if l.stale() {
			t.Error("it is as wide as the terminal")
		}
	}
	const wide = "state  printing a part\nbed    60.0 of 60.0\ntool0  210.0\n"
	draw("\r\x1b[J" + wide)
	width = 15
	if !l.stale() {
		t.Error("the terminal is narrower")
	}
	draw("\x1b[5A\r\x1b[Jstate  printing\n       a part\nbed    60.0 of\n       60.0\ntool0  210.0\n")
	width = 40
	draw("\x1b[5A\r\x1b[J" + wide)
	height = 3
	draw("\x1b[3A\r\x1b[Jstate  printing a part\n…\n")
	height = 24
	draw("\x1b[2A\r\x1b[J" + wide)
	out.Reset()
	if l.gone(); out.String() != "\x1b[3A\r\x1b[J" {
		t.Errorf("taken away: %q", &out)
	}
	(*live)(nil).gone() // nothing stands there
}

// A terminal gives Chinese characters and emoji two columns.
func TestWideCharacters(t *testing.T) {
	var list table
	list.head = []string{"NAME", "STATE"}
	list.add(plain("温室"), plain("online"))
	list.add(plain("🪴 desk"), plain("offline"))
	list.add(plain("Küche"), plain("online"))
	want := "NAME     STATE\n温室     online\n🪴 desk  offline\nKüche    online\n"
	if got := list.text(false, 80); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	for _, c := range []struct {
		name  string
		width int
		want  string
	}{{"温室的照片.jpg", 14, "温室的照片.jpg"}, {"温室的照片.jpg", 13, "温室的照片.j…"}, {"温室的照片.jpg", 10, "温室的照…"}, {"温室的照片.jpg", 6, "温室…"}, {"🪴🪴🪴", 4, "🪴…"},
		{"Küche.jpg", 6, "Küche…"}, {"short", 13, "short"}, {"温", 1, "…"}, {"", 0, ""}} {
		if got := cut(c.name, c.width); got != c.want {
			t.Errorf("%q cut to %d is %q, want %q", c.name, c.width, got, c.want)
		}
	}
	if got, want := fold("温室 温室 温室", 9), "温室 温室\n  温室"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
