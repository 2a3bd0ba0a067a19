package rest

import (
	"mime"
	"strings"
	"testing"

	"farhand/wire"
)

func TestTransliterate(t *testing.T) {
	for in, want := range map[string]string{
		"plain name.gcode": "plain name.gcode",
		"Ümläut ß.gcode":   "Uemlaeut ss.gcode",
		"Шестерня Ё.gcode": "Shesternya E.gcode",
		"γρανάζι.gcode":    "granu03aczi.gcode",
		"e\u0301.gcode":    "e.gcode",
		"歯車.gcode":         "u6b6fu8eca.gcode",
		"a\"b\\c/d\n.g":    "a_b_c_d_.g",
		"..hidden.g":       "hidden.g",
		"":                 "unnamed",
	} {
		if got := Transliterate(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzTransliterate(f *testing.F) {
	f.Add("шестерня 20мм.gcode")
	f.Add("\xff\x00\u202e/..")
	f.Fuzz(func(t *testing.T, name string) {
		got := Transliterate(name)
		if !isASCII(got) || got == "" || strings.ContainsAny(got, "\"\\/\x00\r\n") {
			t.Errorf("%q: %q", name, got)
		}
		// Whatever the name, the header says it and nothing else.
		header := "form-data; name=\"file\"; " + filename(name)
		_, params, err := mime.ParseMediaType(header)
		if err != nil || len(params) != 2 || params["name"] != "file" || strings.ContainsAny(header, "\r\n") {
			t.Errorf("%q: %s: %v %v", name, header, params, err)
		}
		if !isASCII(name) && strings.ToValidUTF8(name, "") == name && params["filename"] != name {
			t.Errorf("%q arrives as %q", name, params["filename"])
		}
	})
}

func TestSameFile(t *testing.T) {
	for _, c := range []struct {
		job  wire.PrinterJobState
		path string
		same bool
	}{
		{wire.PrinterJobState{File: "a_b.gcode"}, "a b.gcode", true},
		{wire.PrinterJobState{File: "parts/a.gcode"}, "/parts/a.gcode", true},
		{wire.PrinterJobState{File: "other/a.gcode"}, "parts/a.gcode", false},
		{wire.PrinterJobState{File: "umlaut.gcode", Display: "ümlaut.gcode"}, "ümlaut.gcode", true},
		{wire.PrinterJobState{File: "b.gcode"}, "a.gcode", false},
		{wire.PrinterJobState{}, "a.gcode", false},
	} {
		if got := sameFile(c.job, c.path); got != c.same {
			t.Errorf("%+v and %q: %v", c.job, c.path, got)
		}
	}
}

func TestSegments(t *testing.T) {
	for in, want := range map[string]string{"a.gcode": "a.gcode", "/a/b c/": "a|b c", "a//b": "", "": "", "..": "", "a/./b": "", "a\x00": "", "\xff": "", strings.Repeat("x", 5000): ""} {
		got, err := Segments("path", in)
		if strings.Join(got, "|") != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", in, got, err)
		}
	}
}
