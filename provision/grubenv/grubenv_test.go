package grubenv

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []Choice{{"a", ""}, {"b", ""}, {"a", "b"}} {
		b := c.Marshal()
		if got, ok := Parse(b); !ok || got != c || len(b) != Size {
			t.Errorf("%+v is read as %+v (%t) from %d bytes", c, got, ok, len(b))
		}
	}
	whole := string(Choice{Slot: "a"}.Marshal())
	for name, bad := range map[string]string{
		"empty": "", "zeros": strings.Repeat("\x00", Size), "half": whole[:Size/2], "longer": whole + "#",
		"no such slot": strings.Replace(whole, "slot=a", "slot=c", 1), "no slot": strings.Replace(whole, "slot=a", "######", 1),
		"no such trial": strings.Replace(whole, "trial=\n#", "trial=x\n", 1),
	} {
		if c, ok := Parse([]byte(bad)); ok {
			t.Errorf("%s: %+v", name, c)
		}
	}
	// As GRUB leaves it, whose own words come and go.
	if c, ok := Parse([]byte(head + "slot=b\n" + strings.Repeat("#", Size-len(head)-7))); !ok || c.Slot != "b" {
		t.Errorf("without a trial: %+v, %t", c, ok)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Choice{Slot: "a", Trial: "b"}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok := Parse(b)
		if !ok {
			return
		}
		if again, ok := Parse(c.Marshal()); !ok || again != c {
			t.Errorf("%+v is written and read as %+v", c, again)
		}
	})
}
