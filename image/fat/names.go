package fat

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// checkName refuses what neither Windows nor Linux would take as a name.
func checkName(name string) error {
	bad := func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`"*/:<>?\|`, r) }
	if name == "" || name == "." || name == ".." || len(utf16.Encode([]rune(name))) > 255 || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, bad) || strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") {
		return fmt.Errorf("%q can't be a file's name here", name)
	}
	return nil
}

// fits says whether a name needs no long record: upper case, 8 and 3 characters.
func fits(name string) bool {
	base, ext, dot := strings.Cut(name, ".")
	return base != "" && len(base) <= 8 && len(ext) <= 3 && (!dot || ext != "") && strings.Trim(base+ext, plainChars) == ""
}

const plainChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$#!&()@^{}~%'`"

// pack lays a short name out as the record holds it.
func pack(base, ext string) [11]byte {
	var b [11]byte
	copy(b[:], "           ")
	copy(b[:8], base)
	copy(b[8:], ext)
	return b
}

// shortName finds the short name beside a long one: the same in upper case if
// that fits, else cut and numbered so that the directory has no other of it.
func shortName(name string, taken func([11]byte) bool) ([11]byte, error) {
	upper := strings.ToUpper(name)
	if fits(upper) {
		base, ext, _ := strings.Cut(upper, ".")
		if b := pack(base, ext); !taken(b) {
			return b, nil
		}
	}
	base, ext := upper, ""
	if i := strings.LastIndexByte(upper, '.'); i > 0 {
		base, ext = upper[:i], upper[i+1:]
	}
	base, ext = strict(base, 8), strict(ext, 3)
	for n := 1; n < 1_000_000; n++ {
		tail := fmt.Sprintf("~%d", n)
		if b := pack(base[:min(len(base), 8-len(tail))]+tail, ext); !taken(b) {
			return b, nil
		}
	}
	return [11]byte{}, fmt.Errorf("%q: no short name is left", name)
}

func strict(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '.':
			return -1
		case !strings.ContainsRune(plainChars, r):
			return '_'
		}
		return r
	}, s)
	return s[:min(len(s), most)]
}

// sum ties long records to their short one (section 7.2).
func sum(short [11]byte) (s byte) {
	for _, c := range short {
		s = s>>1 | s<<7
		s += c
	}
	return s
}

// longAt are the offsets of a long record's 13 characters.
func longAt(i int) int {
	switch {
	case i < 5:
		return 1 + i*2
	case i < 11:
		return 14 + (i-5)*2
	}
	return 28 + (i-11)*2
}

// longRecords is a name as the records that stand before the short one.
func longRecords(name string, short [11]byte) []byte {
	chars := utf16.Encode([]rune(name))
	n := (len(chars) + 12) / 13
	b := make([]byte, n*entry)
	for k := range n {
		rec := b[(n-1-k)*entry:][:entry]
		rec[0] = byte(k + 1)
		if k == n-1 {
			rec[0] |= 0x40
		}
		rec[11] = attrLong
		rec[13] = sum(short)
		for i := range 13 {
			c := uint16(0xffff)
			if at := k*13 + i; at < len(chars) {
				c = chars[at]
			} else if at == len(chars) {
				c = 0
			}
			rec[longAt(i)], rec[longAt(i)+1] = byte(c), byte(c>>8)
		}
	}
	return b
}

// long collects the long records before a short one.
type long struct {
	chars []uint16
	want  byte // ordinal of the next record, 0: complete
	sum   byte
	ok    bool
}

func (l *long) add(rec []byte) {
	n := rec[0] & 0x3f
	if rec[0]&0x40 != 0 && n > 0 && n <= 20 {
		*l = long{chars: make([]uint16, int(n)*13), want: n, sum: rec[13], ok: true}
	}
	if !l.ok || n != l.want || n == 0 || rec[13] != l.sum {
		*l = long{}
		return
	}
	for i := range 13 {
		at := longAt(i)
		l.chars[int(n-1)*13+i] = uint16(rec[at]) | uint16(rec[at+1])<<8
	}
	l.want--
}

// name is the long name if the records belong to short.
func (l *long) name(short [11]byte) (string, bool) {
	if !l.ok || l.want != 0 || l.sum != sum(short) {
		return "", false
	}
	for i, c := range l.chars {
		if c == 0 {
			return string(utf16.Decode(l.chars[:i])), true
		}
	}
	return string(utf16.Decode(l.chars)), true
}

// shown is a short name as people read it, with the flags of Windows NT for
// lower case in byte 12 of the record.
func shown(rec []byte) string {
	base, ext := strings.TrimRight(string(rec[:8]), " "), strings.TrimRight(string(rec[8:11]), " ")
	if rec[12]&0x08 != 0 {
		base = strings.ToLower(base)
	}
	if rec[12]&0x10 != 0 {
		ext = strings.ToLower(ext)
	}
	if ext != "" {
		base += "." + ext
	}
	return strings.ToValidUTF8(base, "_")
}
