package cli

import (
	"strings"
	"testing"
)

// What a program has done to the terminal is undone, whatever the cuts in what came
// of it, and nothing else is said.
func TestModes(t *testing.T) {
	for name, c := range map[string]struct{ out, undo string }{
		"nothing":                 {"plain text\r\n", ""},
		"colours that ended":      {"\x1b[1;31mred\x1b[0m\r\n", ""},
		"colours":                 {"\x1b[0m\x1b[1;31mred", "\x1b[0m"},
		"the other screen":        {"\x1b[?1049h\x1b[H\x1b[2J", "\x1b[?1049l"},
		"left again":              {"\x1b[?1049h\x1b[?25l~\x1b[?25h\x1b[?1049l", ""},
		"cursor":                  {"\x1b[?25l", "\x1b[?25h"},
		"the newest first":        {"\x1b[?1049h\x1b[?1000;1006h\x1b[?2004h", "\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[?1049l"},
		"keypad":                  {"\x1b[?1h\x1b=", "\x1b[?1l\x1b>"},
		"keypad, and not":         {"\x1b=\x1b>", ""},
		"wrap and origin stay":    {"\x1b[?7h\x1b[?6h", ""},
		"full reset":              {"\x1b[?1049h\x1b[?25l\x1b[1m\x1bc", ""},
		"cut in a sequence":       {"\x1b[?1049h\x1b[?10", "\x18\x1b[?1049l"},
		"cut after the escape":    {"\x1b", "\x18"},
		"keys that report as CSI": {"\x1b[>4;1m", ""},
		"too long to be one":      {"\x1b[" + strings.Repeat("1;", 100) + "?1049h", ""},
		"cancelled":               {"\x1b[?1049\x18h\x1b[?25l", "\x1b[?25h"},
		"not a number":            {"\x1b[?;:;1049h", "\x1b[?1049l"},
	} {
		for _, step := range []int{1, 2, 3, len(c.out)} {
			var m modes
			for rest := c.out; rest != ""; {
				n := min(step, len(rest))
				m.see([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got := m.undo(); got != c.undo {
				t.Errorf("%s, %d at once: %q, want %q", name, step, got, c.undo)
			}
			if again := m.undo(); again != "" {
				t.Errorf("%s: undone twice: %q", name, again)
			}
		}
	}
}

// FuzzModes: what undoes is undone by itself, and cuts make no difference.
func FuzzModes(f *testing.F) {
	f.Add([]byte("\x1b[?1049h\x1b[?25l\x1b[31m\x1b=text\x1b["), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var whole, parts modes
		whole.see(b)
		cut = min(max(cut, 0), len(b))
		parts.see(b[:cut])
		parts.see(b[cut:])
		undo := whole.undo()
		if other := parts.undo(); other != undo {
			t.Fatalf("cut at %d it is %q, else %q", cut, other, undo)
		}
		whole.see([]byte(undo))
		if left := whole.undo(); left != "" {
			t.Fatalf("%q leaves %q", undo, left)
		}
	})
}

func TestEscapeKey(t *testing.T) {
	for text, want := range map[string]int{"^]": 0x1d, "^x": 0x18, "^A": 1, "^_": 0x1f, "none": -1} {
		if got, err := escapeKey(text); err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "^", "^^^", "^1", "ctrl-x"} {
		if _, err := escapeKey(text); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}
