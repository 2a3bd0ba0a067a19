package lp

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseID(t *testing.T) {
	for in, want := range map[string]map[string]string{
		"MFG:Brother;CMD:PT-CBP;MDL:QL-700;CLS:PRINTER;":                    {"MFG": "Brother", "CMD": "PT-CBP", "MDL": "QL-700", "CLS": "PRINTER"},
		"MANUFACTURER:EPSON; MODEL : TM-T88V ;SERN:ABC;DESCRIPTION:a:b;":    {"MFG": "EPSON", "MDL": "TM-T88V", "SN": "ABC", "DES": "a:b"},
		"MFG:one;MANUFACTURER:two;novalue;:x;MDL:;\x01MDL:<b>\u202eq</b>;;": {"MFG": "one", "MDL": "bq/b"},
		"":     {},
		"\xff": {},
	} {
		if diff := cmp.Diff(want, ParseID(in)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}

func TestRawID(t *testing.T) {
	for in, want := range map[string]string{
		"\x00\x07MFG:xrest":          "MFG:x", // the length counts itself
		"\x00\xffMFG:x;\x00\x00\x00": "MFG:x;",
		"\x07\x00MFG:x":              "MFG:x", // little-endian
		"\x00\x00MFG:x":              "MFG:x",
		"\x00":                       "",
		"":                           "",
	} {
		if got := rawID([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestStatusBits(t *testing.T) {
	for in, want := range map[byte]Status{
		0x18: {Online: true}, 0x38: {Online: true, PaperOut: true}, 0x10: {Online: true, Fault: true}, 0x08: {}, 0x00: {Fault: true},
	} {
		if got := decodeStatus(in); got != want {
			t.Errorf("%#x: %+v, want %+v", in, got, want)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add([]byte("\x00\x20MFG:Brother;MDL:QL-700;"))
	f.Add([]byte("\xff\xff:::;;;"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for key, value := range ParseID(rawID(b)) {
			if key == "" || value == "" || len(key) > 4*maxKey || len(value) > 4*maxValue {
				t.Errorf("%q: %q", key, value)
			}
		}
	})
}
