package lazyregexp

import "testing"

func TestFirstUse(t *testing.T) {
	if r := New(`^a(b*)$`); !r.MatchString("abb") || r.FindStringSubmatch("abb")[1] != "bb" || string(r.FindSubmatch([]byte("ab"))[1]) != "b" {
		t.Error("it doesn't match as it should")
	}
	wrong := New(`(`) // unused, it is nobody's concern
	defer func() {
		if recover() == nil {
			t.Error("a wrong pattern was used")
		}
	}()
	wrong.MatchString("")
}
