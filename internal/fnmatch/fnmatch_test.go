package fnmatch

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPython compares with what Python 3's fnmatch.fnmatchcase said about the
// same patterns and names (testdata/python.json holds its answers).
func TestPython(t *testing.T) {
	raw, err := os.ReadFile("testdata/python.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Names []string
		Cases []struct {
			Pattern string
			Hits    []string
		}
	}
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) < 1000 {
		t.Fatalf("only %d cases", len(table.Cases))
	}
	for _, c := range table.Cases {
		p := Compile(c.Pattern)
		for _, name := range table.Names {
			if got, want := p.Match(name), slices.Contains(c.Hits, name); got != want {
				t.Errorf("Match(%q, %q) = %t, Python says %t", c.Pattern, name, got, want)
			}
		}
	}
}

func TestBrokenUTF8(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"?", "\xff", true},
		{"\xff", "\xff", true},
		{"\xff", "\xfe", false},
		{"\xff", "\uFFFD", false},
		{"\uFFFD", "\xff", false},
		{"a?b", "a\xffb", true},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %t", c.pattern, c.name, got)
		}
	}
}

// TestNoBlowUp: a pattern that makes a backtracking matcher run for ages.
func TestNoBlowUp(t *testing.T) {
	start := time.Now()
	if Match(strings.Repeat("*a", 2000)+"b", strings.Repeat("a", 4000)) {
		t.Error("matched")
	}
	if Match(strings.Repeat("a", 1<<20), "a") {
		t.Error("matched")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{{"*", "a"}, {"[!a-c-]?*", "b-x"}, {"[z-a!-c]", "d"}, {"\xff[", "\xff["}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		got := Match(pattern, name)
		if got && !Match("*"+pattern, "x"+name) {
			t.Errorf("%q fits %q, but not with a star before it", pattern, name)
		}
		if !strings.ContainsAny(pattern, "*?[") && got != (pattern == name) {
			t.Errorf("plain pattern %q and name %q: %t", pattern, name, got)
		}
	})
}
