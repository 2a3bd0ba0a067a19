package testenv

import (
	"fmt"
	"testing"
)

// recorder stands in for a test and notes how Need ended it.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Skipf(format string, args ...any)  { r.skipped = fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }

func TestNeed(t *testing.T) {
	for _, c := range []struct {
		must         string
		have         bool
		skips, fails bool
	}{
		{"", true, false, false},
		{"gpio", true, false, false},
		{"", false, true, false},
		{"serial", false, true, false},
		{"gpio-sim", false, true, false},
		{"serial, gpio", false, false, true},
		{"all", false, false, true},
	} {
		t.Setenv(MustVar, c.must)
		r := &recorder{}
		Need(r, "gpio", c.have, "no chip here")
		if (r.skipped != "") != c.skips || (r.failed != "") != c.fails {
			t.Errorf("must %q, have %t: skipped %q, failed %q", c.must, c.have, r.skipped, r.failed)
		}
	}
}
