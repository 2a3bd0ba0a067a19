// Package canary looks for secrets in bytes that left a program, in every form in
// which they could have left it. Tests plant the secrets.
package canary

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
)

// Window is how many bytes of a secret are enough to be found.
const Window = 8

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// Text is a secret of n letters and digits, of which no window comes about by
// chance.
func Text(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(b)
}

// Hit is a window of a secret that was found.
type Hit struct {
	Secret string // its name
	Form   string // "raw", "gzip, base64", …: the outermost form first
	Offset int    // of the window in the data, or in what came out of the form before the last
}

func (h Hit) String() string { return fmt.Sprintf("%s as %s at byte %d", h.Secret, h.Form, h.Offset) }

// Set is a set of secrets to look for. It is safe for concurrent use.
type Set struct {
	needles map[uint64][]needle
	filter  [1 << filterBits / 64]uint64
}

// needle is a window in some form. Its first 8 bytes are its key.
type needle struct {
	secret, form string
	bytes        []byte
}

// New makes a set of secrets by name, each of at least Window bytes.
func New(secrets map[string]string) *Set {
	s := &Set{needles: make(map[uint64][]needle)}
	for name, secret := range secrets {
		if len(secret) < Window {
			panic("canary: " + name + " is shorter than a window")
		}
		for i := 0; i+Window <= len(secret); i++ {
			s.addForms(name, []byte(secret[i:i+Window]))
		}
	}
	return s
}

func (s *Set) addForms(name string, w []byte) {
	s.add(needle{name, "raw", w})
	s.add(needle{name, "hex", []byte(hex.EncodeToString(w))})
	s.add(needle{name, "HEX", bytes.ToUpper([]byte(hex.EncodeToString(w)))})
	var little, big []byte
	for _, c := range w {
		little, big = append(little, c, 0), append(big, 0, c)
	}
	s.add(needle{name, "utf-16le", little})
	s.add(needle{name, "utf-16be", big})
	for before := range 3 {
		// Characters that the window alone decides, whatever stands around it.
		b := append(make([]byte, before), w...)
		first, end := (8*before+5)/6, 8*len(b)/6
		for form, e := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64url": base64.URLEncoding} {
			s.add(needle{name, form, []byte(e.EncodeToString(b))[first:end]})
		}
	}
}

func (s *Set) add(n needle) {
	key := binary.BigEndian.Uint64(n.bytes)
	same := func(o needle) bool { return o.secret == n.secret && bytes.Equal(o.bytes, n.bytes) }
	if slices.ContainsFunc(s.needles[key], same) {
		return // base64url of what has no special character
	}
	s.needles[key] = append(s.needles[key], n)
	h := hash(key)
	s.filter[h/64] |= 1 << (h % 64)
}

const filterBits = 20

// hash spares most bytes a look into the map.
func hash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - filterBits) }

const (
	maxNesting  = 3       // compressed in base64 in compressed
	maxInflated = 8 << 20 // of one stream
	minEncoded  = 24      // characters of base64 or hex that are worth decoding
)

// Find looks for all secrets, also in what is inflated (gzip and zlib wherever one
// begins, deflate where the data begins) and decoded (base64, hex, JSON's escapes)
// inside.
func (s *Set) Find(data []byte) []Hit {
	f := finder{set: s, seen: make(map[string]bool)}
	f.look(data, nil)
	return f.hits
}

type finder struct {
	set  *Set
	hits []Hit
	seen map[string]bool // of each secret and form one hit will do

	gzip  gzip.Reader
	zlib  io.ReadCloser
	flate io.ReadCloser
}

func (f *finder) look(data []byte, outer []string) {
	f.scan(data, outer)
	if len(outer) == maxNesting {
		return
	}
	nested := func(form string, inner []byte) {
		if len(inner) >= Window {
			f.look(inner, append(outer[:len(outer):len(outer)], form))
		}
	}
	f.inflate(data, nested)
	if bytes.Contains(data, []byte(`\u00`)) {
		nested("json", unescape(data))
	}
	if len(data) >= minEncoded {
		runs(data, isBase64, func(run []byte) {
			run = run[:len(run)/4*4]
			out := make([]byte, base64.StdEncoding.DecodedLen(len(run)))
			n, _ := base64.StdEncoding.Decode(out, bytes.Map(standard, run)) // as far as it goes
			nested("base64", out[:n])
		})
		runs(data, isHex, func(run []byte) {
			out := make([]byte, len(run)/2)
			n, _ := hex.Decode(out, run[:len(run)/2*2])
			nested("hex", out[:n])
		})
	}
}

func (f *finder) scan(data []byte, outer []string) {
	var key uint64
	for i, c := range data {
		key = key<<8 | uint64(c)
		if h := hash(key); i < 7 || f.set.filter[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		for _, n := range f.set.needles[key] {
			if bytes.HasPrefix(data[i-7:], n.bytes) {
				f.hit(n, i-7, outer)
			}
		}
	}
}

func (f *finder) hit(n needle, at int, outer []string) {
	form := strings.Join(append(outer[:len(outer):len(outer)], n.form), ", ")
	if key := n.secret + "\x00" + form; !f.seen[key] {
		f.seen[key] = true
		f.hits = append(f.hits, Hit{n.secret, form, at})
	}
}

// inflate hands on what comes out wherever something compressed begins.
func (f *finder) inflate(data []byte, found func(form string, inner []byte)) {
	for i := 0; i+2 < len(data); i++ {
		switch {
		case data[i] == 0x1f && data[i+1] == 0x8b && data[i+2] == 8:
			if f.gzip.Reset(bytes.NewReader(data[i:])) == nil {
				found("gzip", rest(&f.gzip))
			}
		case data[i]&0x8f == 8 && (uint(data[i])<<8|uint(data[i+1]))%31 == 0 && data[i+1]&0x20 == 0:
			found("zlib", f.zlibAt(data[i:]))
		}
	}
	if f.flate == nil {
		f.flate = flate.NewReader(bytes.NewReader(data))
	} else if err := f.flate.(flate.Resetter).Reset(bytes.NewReader(data), nil); err != nil {
		return
	}
	found("deflate", rest(f.flate))
}

func (f *finder) zlibAt(data []byte) []byte {
	var err error
	if f.zlib == nil {
		f.zlib, err = zlib.NewReader(bytes.NewReader(data))
	} else {
		err = f.zlib.(zlib.Resetter).Reset(bytes.NewReader(data), nil)
	}
	if err != nil {
		return nil
	}
	return rest(f.zlib)
}

// rest is what comes until it fails: the begin of a stream that was cut is enough.
func rest(r io.Reader) []byte {
	b, _ := io.ReadAll(io.LimitReader(r, maxInflated))
	return b
}

// unescape has the bytes that JSON's \u00xx stand for.
func unescape(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for {
		before, after, found := bytes.Cut(data, []byte(`\u00`))
		out = append(out, before...)
		if !found {
			return out
		}
		if len(after) >= 2 && isHex(after[0]) && isHex(after[1]) {
			var c [1]byte
			_, _ = hex.Decode(c[:], after[:2]) // they are digits
			out, after = append(out, c[0]), after[2:]
		}
		data = after
	}
}

func isBase64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

func standard(r rune) rune {
	switch r {
	case '-':
		return '+'
	case '_':
		return '/'
	}
	return r
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// runs hands on what of data is made of such bytes, if it is worth it.
func runs(data []byte, of func(byte) bool, f func([]byte)) {
	start := 0
	for i := 0; i <= len(data); i++ {
		if i < len(data) && of(data[i]) {
			continue
		}
		if i-start >= minEncoded {
			f(data[start:i])
		}
		start = i + 1
	}
}
