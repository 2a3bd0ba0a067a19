package screen

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"farhand/provision/request"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"plain":                     "plain",
		" two\r\n lines\t":          "two lines",
		"\x1b[2Jgone":               "[2Jgone",
		"user\u202egnp.exe":         "usergnp.exe", // turns the rest around
		"zero\u200bwidth\ufeff":     "zerowidth",
		"bad\xffbyte":               "bad?byte",
		"K\u00fcche":                "K\u00fcche",
		strings.Repeat("x", 1000):   strings.Repeat("x", longest) + "...",
		"line\u2028and\u2029par":    "line and par",
		"\u009b31mred":              "31mred", // the one-byte form of ESC [
		"nbsp\u00a0nbsp":            "nbsp nbsp",
		"\u2066isolated\u2069 text": "isolated text",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

// No text from outside gets a control sequence to a terminal or stops a page
// from being drawn.
func FuzzPage(f *testing.F) {
	f.Add("name", "detail", "https://a/b", "CODE", []byte("\xff\x00"), 320, 200)
	f.Add("\x1b]0;x\a", strings.Repeat("\u202e", 400), "", "", []byte(nil), 1, 1)
	f.Fuzz(func(t *testing.T, name, detail, uri, code string, ssid []byte, w, h int) {
		v := View{
			Status: &request.Status{State: detail, Detail: detail, Name: name, Addresses: []string{name, uri},
				Devices: []request.Device{{ID: name, Desc: detail}}},
			Wifi:     request.WifiFacts{State: request.WifiReady, SSIDHex: string(ssid)},
			Rescue:   &Rescue{SSID: name, Passphrase: code, URL: uri},
			Problems: []string{detail},
		}
		pages := []Page{Compose(v, at())}
		v.Pairing = &request.Pairing{VerificationURI: uri, VerificationURIComplete: uri, UserCode: code, Name: name}
		pages = append(pages, Compose(v, at()))
		for _, p := range pages {
			for _, item := range p.Items {
				for _, r := range item.Text {
					if !unicode.IsPrint(r) || r == utf8.RuneError {
						t.Fatalf("%q is drawn", item.Text)
					}
				}
			}
			for _, l := range strings.Split(string(p.Text()), "\r\n") {
				if strings.ContainsFunc(l, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
					t.Fatalf("line %q of the text", l)
				}
			}
			p.Serial()
			p.Console(w&255, h&127)
			// An address may be too long for a code; then there is an error.
			_, _ = p.draw(max(1, w&511), max(1, h&511), light())
		}
	})
}
