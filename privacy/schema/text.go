package schema

import (
	"bytes"
	"unicode/utf8"
)

// imageFormat is the format that the first bytes stand for, "" if none of those
// that are known.
func imageFormat(head []byte) string {
	for _, f := range [...]struct{ format, magic string }{
		{"png", "\x89PNG\r\n\x1a\n"}, {"jpeg", "\xff\xd8\xff"}, {"gif", "GIF87a"}, {"gif", "GIF89a"},
		{"tiff", "II*\x00"}, {"tiff", "MM\x00*"},
	} {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return f.format
		}
	}
	switch {
	case len(head) >= 12 && bytes.HasPrefix(head, []byte("RIFF")) && bytes.Equal(head[8:12], []byte("WEBP")):
		return "webp"
	case len(head) >= 14 && bytes.HasPrefix(head, []byte("BM")) && bytes.Equal(head[6:10], make([]byte, 4)): // reserved
		return "bmp"
	}
	return ""
}

// isText says whether it has none of the bytes that text doesn't have.
func isText(head []byte) bool {
	for _, c := range head {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != '\v' && c != '\b' && c != 0x1b || c == 0x7f {
			return false
		}
	}
	return true
}

// wholeRunes leaves out a character that the end cuts in two.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// lines counts them; one ends with LF, CRLF or CR.
type lines struct {
	bytewise bool // a byte is a character

	n, longest, current int64
	open, cr            bool
}

func (l *lines) write(b []byte) {
	for _, c := range b {
		if c == '\n' && l.cr {
			l.cr = false
			continue
		}
		l.cr = c == '\r'
		if c == '\n' || c == '\r' {
			l.end()
			continue
		}
		l.open = true
		if l.bytewise || utf8.RuneStart(c) {
			l.current++
		}
	}
}

func (l *lines) end() {
	l.n++
	l.longest = max(l.longest, l.current)
	l.current, l.open = 0, false
}

func (l *lines) result() (n, longest int64) {
	if l.open {
		l.end()
	}
	return l.n, l.longest
}
