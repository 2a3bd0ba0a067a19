package preseed

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
)

// MaxFile bounds a file that is parsed; a real one has a few kilobytes.
const MaxFile = 64 << 10

// plain is a file's text as every editor's user meant it: UTF-8 without a byte
// order mark, lines ended by a line feed. Notepad writes the mark, CR LF, and
// UTF-16 if asked for "Unicode".
func plain(b []byte) (string, error) {
	if len(b) > MaxFile {
		return "", fmt.Errorf("larger than %d bytes", MaxFile)
	}
	switch {
	case bytes.HasPrefix(b, []byte{0xef, 0xbb, 0xbf}):
		b = b[3:]
	case bytes.HasPrefix(b, []byte{0xff, 0xfe}):
		b = fromUTF16(b[2:], 0, 1)
	case bytes.HasPrefix(b, []byte{0xfe, 0xff}):
		b = fromUTF16(b[2:], 1, 0)
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return "", fmt.Errorf("not a text file")
	}
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(b)), nil
}

func fromUTF16(b []byte, low, high int) []byte {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = uint16(b[2*i+low]) | uint16(b[2*i+high])<<8
	}
	return []byte(string(utf16.Decode(units)))
}

// unwrap removes the line ends that came along when a secret was pasted.
func unwrap(s string) string {
	return strings.NewReplacer("\r", "", "\n", "").Replace(s)
}
