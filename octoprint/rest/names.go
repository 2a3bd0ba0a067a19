package rest

import (
	"fmt"
	"strings"
	"unicode"

	"farhand/wire"
)

// Transliterate makes an ASCII name of another that still says what it was:
// letters of the Latin, Greek and Cyrillic scripts by the letters that are
// usual for them, everything else by its number, so that two names don't
// become one.
func Transliterate(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case r < 0x80 && r >= ' ' && r != '"' && r != '\\' && r != '/':
			b.WriteRune(r)
		case r < 0x80:
			b.WriteByte('_')
		case unicode.Is(unicode.Mn, r): // accents of decomposed letters
		default:
			b.WriteString(latin(r))
		}
	}
	s := strings.TrimLeft(strings.TrimSpace(b.String()), ".")
	if s == "" {
		return "unnamed"
	}
	return s
}

// latin is the usual spelling of one letter.
func latin(r rune) string {
	lower := unicode.ToLower(r)
	s, ok := spelling(lower)
	switch {
	case !ok:
		return fmt.Sprintf("u%04x", r)
	case lower != r && s != "":
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return s
}

func spelling(r rune) (string, bool) {
	for _, group := range []struct{ letters, is string }{
		{"àáâãåāăą", "a"}, {"çćĉċč", "c"}, {"ďđð", "d"}, {"èéêëēĕėęě", "e"}, {"ĝğġģ", "g"}, {"ĥħ", "h"},
		{"ìíîïĩīĭįı", "i"}, {"ĵ", "j"}, {"ķ", "k"}, {"ĺļľŀł", "l"}, {"ñńņňŋ", "n"}, {"òóôõøōŏő", "o"},
		{"ŕŗř", "r"}, {"śŝşšș", "s"}, {"ţťŧț", "t"}, {"ùúûũūŭůűų", "u"}, {"ŵ", "w"}, {"ýÿŷ", "y"}, {"źżž", "z"},
		{"ä", "ae"}, {"ö", "oe"}, {"ü", "ue"}, {"ß", "ss"}, {"æ", "ae"}, {"œ", "oe"}, {"þ", "th"},
	} {
		if strings.ContainsRune(group.letters, r) {
			return group.is, true
		}
	}
	if s, ok := pick(r, 'а', []string{"a", "b", "v", "g", "d", "e", "zh", "z", "i", "y", "k", "l", "m", "n", "o", "p",
		"r", "s", "t", "u", "f", "kh", "ts", "ch", "sh", "shch", "", "y", "", "e", "yu", "ya",
		"e", "e", "dj", "gj", "ye", "dz", "i", "yi", "j", "lj", "nj", "c", "kj", "i", "u", "dz"}); ok {
		return s, true
	}
	return pick(r, 'α', []string{"a", "v", "g", "d", "e", "z", "i", "th", "i", "k", "l", "m", "n", "x", "o", "p", "r", "s", "s", "t", "y", "f", "ch", "ps", "o",
		"i", "y", "o", "y", "o"})
}

// pick looks in an alphabet whose letters stand in a row from first on.
func pick(r, first rune, alphabet []string) (string, bool) {
	if i := int(r - first); i >= 0 && i < len(alphabet) {
		return alphabet[i], true
	}
	return "", false
}

// isASCII says whether a name needs no encoding.
func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 || r < ' ' }) < 0
}

// sameFile says whether the job's file is the one of this path, which the
// server may have renamed: spaces become underscores, letters lose their
// accents (docs: datamodel: name and path "will always fit into ASCII").
func sameFile(j wire.PrinterJobState, path string) bool {
	path = strings.Trim(path, "/")
	if j.File == "" {
		return false
	}
	if j.File == path || folded(j.File) == folded(path) {
		return true
	}
	return j.Display != "" && folded(j.Display) == folded(path[strings.LastIndexByte(path, '/')+1:])
}

func folded(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, strings.ToLower(transliteratePath(s)))
}

func transliteratePath(path string) string {
	elements := strings.Split(path, "/")
	for i, e := range elements {
		elements[i] = Transliterate(e)
	}
	return strings.Join(elements, "/")
}
