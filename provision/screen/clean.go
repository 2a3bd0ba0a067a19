package screen

import (
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// longest is how many characters of a text from outside are shown.
const longest = 300

// Clean makes s fit to be shown: names and descriptions come from the network
// and from devices. Control characters, and formatting ones that could turn a
// line around (Unicode categories Cc, Cf, Zl, Zp), are dropped, white space
// becomes one blank, and what is no UTF-8 a question mark.
func Clean(s string) string {
	var b strings.Builder
	n, blank := 0, false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			blank = n > 0
			continue
		case r == utf8.RuneError:
			r = '?'
		case !unicode.IsPrint(r):
			continue
		}
		if n >= longest {
			b.WriteString("...")
			break
		}
		if blank {
			b.WriteByte(' ')
			n++
		}
		b.WriteRune(r)
		n, blank = n+1, false
	}
	return b.String()
}

// ascii is s for an output of which only ASCII can be expected.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\u2018' || r == '\u2019':
			return '\''
		case r < 0x20 || r > 0x7e:
			return '?'
		}
		return r
	}, s)
}

// SSIDText is a network's name for people, from its bytes in hex: 802.11 allows
// any bytes (field case 83).
func SSIDText(ssidHex string) string {
	raw, err := hex.DecodeString(ssidHex)
	if err != nil {
		return ""
	}
	return string(raw)
}
