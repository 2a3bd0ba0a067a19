package wire

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"", 8, ""},
		{"  Gerät №1 \n", 128, "Gerät №1"},
		{"<b>x</b>", 128, "bx/b"},
		{"a\x00b\x1b[31mc\x7f\u0085", 128, "ab[31mc"},
		{"l\u2028i\u2029n\u202ee\u200b", 128, "line"},
		{"p\ue000u\u0378", 128, "pu"}, // private, unassigned
		{"bad\xff\xfeutf", 128, "badutf"},
		{"\ufffd is a character", 128, "\ufffd is a character"},
		{"äöüß", 3, "äöü"},
		{"ab cd", 3, "ab"},
		{"abc", 0, ""},
	} {
		if got := Clean(c.in, c.most); got != c.want {
			t.Errorf("Clean(%q, %d) = %q, want %q", c.in, c.most, got, c.want)
		}
	}
	for _, s := range []string{"a\tb", "<", "\xff", "\u2028", "\u200d", "\ue000"} {
		if Plain(s) {
			t.Errorf("Plain(%q)", s)
		}
	}
	if !Plain("") || !Plain("/srv/Gerät №1 \ufffd") {
		t.Error("ordinary text isn't plain")
	}
}

func FuzzClean(f *testing.F) {
	f.Add("x\x00<\u202e\xff", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		got := Clean(s, most)
		if !Plain(got) || got != strings.TrimSpace(got) || most >= 0 && utf8.RuneCountInString(got) > most || most >= 0 && Clean(got, most) != got {
			t.Errorf("Clean(%q, %d) = %q", s, most, got)
		}
	})
}
