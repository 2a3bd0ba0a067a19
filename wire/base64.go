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

// encodeBase64 is base64.StdEncoding.Encode.
func encodeBase64(dst, src []byte) {
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
// the end is padded, and with its 64 KiB of text just the size of a fragment.
const base64Piece = 48 << 10

// base64Ahead is the size from which a second goroutine encodes ahead of the
// writer, who spends his time in the kernel.
const base64Ahead = 1 << 20

// writeBase64 writes data as base64.
func writeBase64(w io.Writer, data []byte) error {
	if len(data) >= base64Ahead {
		return writeBase64Ahead(w, data)
	}
	buf := make([]byte, base64.StdEncoding.EncodedLen(min(len(data), base64Piece)))
	for len(data) > 0 {
		var text []byte
		text, data = encodePiece(buf, data)
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// encodePiece encodes the next piece of data and returns what is left of it.
func encodePiece(buf, data []byte) (text, rest []byte) {
	n := min(base64Piece, len(data))
	text = buf[:base64.StdEncoding.EncodedLen(n)]
	encodeBase64(text, data[:n])
	return text, data[n:]
}

// writeBase64Ahead encodes in a goroutine that has ended when it returns.
func writeBase64Ahead(w io.Writer, data []byte) error {
	const buffers = 4
	empty, full, stop := make(chan []byte, buffers), make(chan []byte, buffers), make(chan struct{})
	for range buffers {
		empty <- make([]byte, base64.StdEncoding.EncodedLen(base64Piece))
	}
	go func() {
		defer close(full)
		for len(data) > 0 {
			select {
			case buf := <-empty:
				var text []byte
				text, data = encodePiece(buf, data)
				full <- text // never blocks: there are no more than fit
			case <-stop:
				return
			}
		}
	}()
	var err error
	for text := range full {
		if err != nil {
			continue // until the encoder has seen it
		}
		if _, err = w.Write(text); err != nil {
			close(stop)
			continue
		}
		empty <- text[:cap(text)]
	}
	return err
}
