package serialsim

import (
	"strings"
	"testing"
)

func TestSupply(t *testing.T) {
	s := NewSupply()
	for _, c := range []struct{ line, want string }{
		{"*IDN?", Identity},
		{"*idn?\r", Identity},
		{"VOLT?", "+0.000000E+00"},
		{"VOLTage 5; OUTP ON; MEAS:VOLT?", "+5.000000E+00"},
		{"MEASure:CURRent?", "+5.000000E-02"},
		{"CURR 0.01;MEAS:VOLT?;MEAS:CURR?", "+1.000000E+00;+1.000000E-02"}, // constant current
		{":SOUR:VOLT:LEV?", "+5.000000E+00"},
		{"OUTP:STAT?", "1"},
		{"OUTP 0", ""},
		{"MEAS:VOLT:DC?", "+0.000000E+00"},
		{"SYST:ERR?", `0,"No error"`},
		{"BOGUS", ""},
		{"VOLT 31", ""},
		{"VOLT x", ""},
		{"VOLT", ""},
		{"VOLT NaN", ""},
		{"SYSTem:ERRor:NEXT?", `-113,"Undefined header"`},
		{"SYST:ERR?", `-222,"Data out of range"`},
		{"SYST:ERR?;SYST:ERR?", `-104,"Data type error";-109,"Missing parameter"`},
		{"*CLS;SYST:ERR?", `0,"No error"`},
		{"DATA? 30", "#230abcdefghijklmnopqrstuvwxyzabcd"},
		{"*RST;VOLT?;*OPC?;*TST?", "+0.000000E+00;1;0"},
		{"", ""},
		{";;", ""},
	} {
		if got := s.Answer(c.line); got != c.want {
			t.Errorf("%q answers %q, want %q", c.line, got, c.want)
		}
	}
	for range 100 {
		s.Answer("BOGUS")
	}
	if n := len(s.errors); n != maxErrors || s.errors[n-1] != `-350,"Queue overflow"` {
		t.Errorf("the queue has %d entries, the last %s", n, s.errors[n-1])
	}
}

func FuzzSupply(f *testing.F) {
	f.Add("*IDN?")
	f.Add("VOLT 5;OUTP ON;MEAS:VOLT?")
	f.Add(":SOUR:VOLT:LEV? ; DATA? 9")
	f.Fuzz(func(t *testing.T, line string) {
		s := NewSupply()
		if strings.Contains(strings.ToUpper(line), "DATA?") && len(line) > 12 {
			t.Skip() // long blocks are only slow
		}
		s.Answer(line)
		if s.volt < 0 || s.volt > maxVolt || s.curr < 0 || s.curr > maxCurr {
			t.Errorf("%q sets %g V, %g A", line, s.volt, s.curr)
		}
	})
}
