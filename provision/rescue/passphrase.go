package rescue

import "crypto/rand"

// alphabet is what a person can read from a screen and type on a phone without
// asking which it is: no l, 1, i, 0, o.
const alphabet = "abcdefghjkmnpqrstuvwxyz23456789"

// PassphraseLength is how many characters NewPassphrase makes: 59 bits.
const PassphraseLength = 12

// NewPassphrase makes one for the rescue network of a card.
func NewPassphrase() string {
	out := make([]byte, 0, PassphraseLength)
	var random [1]byte
	for len(out) < PassphraseLength {
		_, _ = rand.Read(random[:]) // never fails (crypto/rand)
		// 248 is the largest multiple of 31 in a byte: beyond it some letters
		// would come more often than others.
		if b := random[0]; b < 248 {
			out = append(out, alphabet[int(b)%len(alphabet)])
		}
	}
	return string(out)
}
