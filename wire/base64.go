package wire

import (
	"encoding/base64"
	"encoding/binary"
	"io"
)

// Encoding bulk data is the one place where the speed of base64 is felt: half of
// the time of a large FILE_READ. Two characters at a time from a table that
// stays in the first-level cache take a third of what the library needs.

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" // RFC 4648 section 4

// base64Pairs holds the two characters of each 12-bit value, the first one in
// the low byte.
var base64Pairs = func() (pairs [1 << 12]uint16) {
	for i := range pairs {
		pairs[i] = uint16(base64Alphabet[i>>6]) | uint16(base64Alphabet[i&63])<<8
	}
	return pairs
}()

// EncodeBase64 is base64.StdEncoding.Encode, faster.
func EncodeBase64(dst, src []byte) {
	pairs := &base64Pairs // kept in a register: more than twice as fast
	for len(src) >= 8 && len(dst) >= 8 {
		v := binary.BigEndian.Uint64(src)
		binary.LittleEndian.PutUint64(dst, uint64(pairs[v>>52])|
			uint64(pairs[v>>40&0xfff])<<16|
			uint64(pairs[v>>28&0xfff])<<32|
			uint64(pairs[v>>16&0xfff])<<48)
		src, dst = src[6:], dst[8:]
	}
	base64.StdEncoding.Encode(dst, src)
}

// base64Piece is how much is encoded at a time: divisible by three, so that only
// the end is padded. Its text of 64 KiB is just the size of a fragment.
const base64Piece = 48 << 10

// writeBase64 writes data as base64.
func writeBase64(w io.Writer, data []byte) error {
	buf := make([]byte, base64.StdEncoding.EncodedLen(min(len(data), base64Piece)))
	for len(data) > 0 {
		n := min(base64Piece, len(data))
		text := buf[:base64.StdEncoding.EncodedLen(n)]
		EncodeBase64(text, data[:n])
		if _, err := w.Write(text); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
