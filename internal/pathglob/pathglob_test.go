package pathglob

import (
	"strings"
	"testing"
)

func names(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		depth         int
		below         bool
	}{
		{"/a/b", "/a/b", 2, false},
		{"/a/b", "/a/b/c/d", 2, false},
		{"/a/b", "/A/B/c", 2, false},
		{"/a/b", "/a", 0, true},
		{"/a/b", "/", 0, true},
		{"/a/b", "/a/bc", 0, false},
		{"/a/b", "/b/a", 0, false},
		{"//a/./b/", "/a/b/x", 2, false},
		{"/a/*.key", "/a/x.key", 2, false},
		{"/a/*.key", "/a/X.KEY/y", 2, false},
		{"/a/*.KEY", "/a/x.key", 2, false},
		{"/a/*.key", "/a/x.keys", 0, false},
		{"/a/*.key", "/a/b/x.key", 0, false},
		{"/a/[A-C]x", "/a/Bx", 2, false},
		{"/a/[!A-C]x", "/a/Bx", 2, false}, // bx fits, and may be the same
		{"/a/?", "/a/é", 2, false},
		{"/a/**/k", "/a/k", 2, false},
		{"/a/**/k", "/a/b/c/k/d", 4, false},
		{"/a/**/k", "/a/b/c", 0, true},
		{"/a/**", "/a", 1, false},
		{"/a/**", "/b", 0, false},
		{"/**/k", "/k", 1, false},
		{"/**/k", "/x/y", 0, true},
		{"/**", "/x", 1, false},
		{"/a/**/b/**/c", "/a/x/b/y/z/c", 6, false},
		{"/a/**/b/**/c", "/a/x/c/b", 0, true},
		{"/a/[", "/a/[", 2, false},
	} {
		p, err := Parse(c.pattern, "")
		if err != nil {
			t.Fatalf("%s: %v", c.pattern, err)
		}
		if got := p.Match(names(c.path)); got != c.depth {
			t.Errorf("%s fits %s from %d on, want %d", c.pattern, c.path, got, c.depth)
		}
		if c.depth == 0 {
			if got := p.Below(names(c.path)); got != c.below {
				t.Errorf("%s could fit below %s: %t", c.pattern, c.path, got)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"", "a", "~", "~x/y", "/", "//.", "/a/../b", "/a\x00", "/" + strings.Repeat("a/", MaxNames+1)} {
		if p, err := Parse(text, "/home/pi"); err == nil {
			t.Errorf("%q was taken as %s", text, p)
		}
	}
	if _, err := Parse("~/x", ""); err == nil {
		t.Error("~/ was taken without a home directory")
	}
	p, err := Parse("~/x/*/y", "/home/pi")
	if err != nil || p.String() != "/home/pi/x/*/y" || p.Literal() || strings.Join(p.Prefix(), "/") != "home/pi/x" {
		t.Errorf("~/x/*/y is %s, prefix %v: %v", p, p.Prefix(), err)
	}
	if rest := p.Rest(); rest.String() != "/*/y" || rest.Match([]string{"a", "Y"}) != 2 {
		t.Errorf("the rest is %s", rest)
	}
	if at := p.At([]string{"data"}); at.String() != "/data/*/y" || at.Match(names("/data/q/y/z")) != 3 {
		t.Errorf("elsewhere it is %s", at)
	}
	if p, _ := Parse("/a/b", ""); !p.Literal() || p.Rest().Match([]string{"a"}) != 0 || p.Rest().Below(nil) {
		t.Error("the rest of a literal pattern fits something")
	}
	if p, err := Parse("/"+strings.Repeat("a/", MaxNames), ""); err != nil || p.Match(names(strings.Repeat("a/", MaxNames))) != MaxNames {
		t.Errorf("the longest pattern: %v", err)
	}
}
