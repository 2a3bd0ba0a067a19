package device

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"Arduino Uno":                  "Arduino Uno",
		"DG1D1249\x00\x00junk":         "DG1D1249",
		" \t<b>bold</b>\r\n":           "bbold/b",
		"a\u202eb\u200bc":              "abc", // direction override, zero width
		"caf\xe9 \xff":                 "caf",
		strings.Repeat("x", 200):       strings.Repeat("x", 128),
		strings.Repeat("ü", 200):       strings.Repeat("ü", 128),
		"\x00hidden":                   "",
		"line\u2028separator\u0085nel": "lineseparatornel",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUsableSerial(t *testing.T) {
	for s, want := range map[string]bool{
		"95530343834351A0B091": true, "FT3X8K2Q": true, "000042": true, "A": false, "": false,
		"000000000000": false, "0": false, "FFFFFFFF": false, "----": false, "0001": false, "0123456789abcdef": false,
		"0123456789ABCDEF": false, "Default": false, "\x00\x00": false, "   ": false, "A50285BI": false,
	} {
		if got := UsableSerial(s); got != want {
			t.Errorf("UsableSerial(%q) = %v", s, got)
		}
	}
}

func TestIDPart(t *testing.T) {
	for in, want := range map[string]string{
		"FT3X8K2Q": "FT3X8K2Q", "a b/c": "a%20b%2Fc", "100%": "100%25", "a:b@c": "a%3Ab%40c", "": "",
	} {
		if got := IDPart(in); got != want {
			t.Errorf("IDPart(%q) = %q, want %q", in, got, want)
		}
	}
	long, other := IDPart(strings.Repeat("x", 100)), IDPart(strings.Repeat("x", 99)+"y")
	if len(long) > maxIDPart || long == other {
		t.Errorf("long strings become %q and %q", long, other)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"FT3X8K2Q", "a\x00b", "\u202e<x>", "\xff\xfe", strings.Repeat("%", 70)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := Clean(s)
		if !utf8.ValidString(c) || utf8.RuneCountInString(c) > 128 || strings.ContainsAny(c, "\x00<>\n\r\t\x1b") || Clean(c) != c {
			t.Errorf("Clean(%q) = %q", s, c)
		}
		p := IDPart(s)
		if len(p) > maxIDPart || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-%") != "" {
			t.Errorf("IDPart(%q) = %q", s, p)
		}
		if UsableSerial(s) && p == "" {
			t.Errorf("%q tells devices apart and leaves nothing in an id", s)
		}
	})
}
