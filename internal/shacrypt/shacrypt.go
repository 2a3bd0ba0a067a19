// Package shacrypt makes the SHA-512 hashes of passwords that crypt(5) calls
// sha512crypt ("Unix crypt using SHA-256 and SHA-512", Ulrich Drepper).
package shacrypt

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"strings"
)

// Hash is the hash of a password under a fresh random salt, "$6$SALT$HASH".
func Hash(password string) string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return HashWith(password, hex.EncodeToString(b[:]))
}

// rounds is the number of rounds of a hash that doesn't name one.
const rounds = 5000

// maxSalt is how many bytes of a salt count.
const maxSalt = 16

// HashWith is the hash under that salt, of which the first 16 bytes count.
func HashWith(password, salt string) string {
	salt = salt[:min(len(salt), maxSalt)]
	key, s := []byte(password), []byte(salt)

	first := sha512.New()
	first.Write(key)
	first.Write(s)
	first.Write(key)
	b := first.Sum(nil)

	second := sha512.New()
	second.Write(key)
	second.Write(s)
	second.Write(stretch(b, len(key)))
	for n := len(key); n > 0; n >>= 1 { // from the lowest bit up
		if n&1 == 1 {
			second.Write(b)
		} else {
			second.Write(key)
		}
	}
	a := second.Sum(nil)

	p := stretch(sum(key, len(key)), len(key))
	salted := stretch(sum(s, 16+int(a[0])), len(s))
	for i := range rounds {
		h := sha512.New()
		pick(h.Write, i%2 == 1, p, a)
		if i%3 != 0 {
			h.Write(salted)
		}
		if i%7 != 0 {
			h.Write(p)
		}
		pick(h.Write, i%2 == 1, a, p)
		a = h.Sum(nil)
	}
	return "$6$" + salt + "$" + encode(a)
}

// sum hashes b, n times in a row.
func sum(b []byte, n int) []byte {
	h := sha512.New()
	for range n {
		h.Write(b)
	}
	return h.Sum(nil)
}

// stretch repeats b to n bytes.
func stretch(b []byte, n int) []byte {
	out := make([]byte, 0, n+len(b))
	for len(out) < n {
		out = append(out, b...)
	}
	return out[:n]
}

func pick(write func([]byte) (int, error), first bool, a, b []byte) {
	if first {
		write(a) // a hash never fails
	} else {
		write(b)
	}
}

const alphabet = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// encode writes three bytes as four characters, lowest bits first, in the order
// that the scheme prescribes: bytes 21 apart, rotated by one each time.
func encode(a []byte) string {
	var b strings.Builder
	put := func(x, y, z byte, n int) {
		for v := uint(x)<<16 | uint(y)<<8 | uint(z); n > 0; n-- {
			b.WriteByte(alphabet[v&63])
			v >>= 6
		}
	}
	for i := range 21 {
		x, y, z := a[i], a[i+21], a[i+42]
		switch i % 3 {
		case 0:
			put(x, y, z, 4)
		case 1:
			put(y, z, x, 4)
		default:
			put(z, x, y, 4)
		}
	}
	put(0, 0, a[63], 2)
	return b.String()
}
