package xz

import "encoding/binary"

const (
	maxChunk = 2 << 20 // bytes that one chunk holds, uncompressed
	maxMatch = 273
	minRun   = 32 // what run and hole can write
)

// run is a chunk of n bytes, minRun to maxChunk, that are those from distance
// bytes before.
func run(distance int64, n int) []byte {
	e := newLZMA()
	first := firstPart(n)
	e.copyFrom(distance, first)
	e.more(n - first)
	return chunk(e.finish(), n)
}

// hole is a chunk of n zeros.
func hole(n int) []byte {
	e := newLZMA()
	e.zero()
	first := firstPart(n - 1)
	e.copyFrom(1, first)
	e.more(n - 1 - first)
	return chunk(e.finish(), n)
}

// firstPart leaves a whole number of longest matches after it.
func firstPart(n int) int {
	if first := n % maxMatch; first >= 5 {
		return first
	}
	return min(n, maxMatch)
}

func (e *lzma) more(n int) {
	for n > 0 {
		part := min(n, maxMatch)
		if n-part == 1 { // a match has two bytes at least
			part--
		}
		e.again(part)
		n -= part
	}
}

// chunk puts the head before a chunk that begins with fresh models and its own
// properties: 0xc0 with five bits of the size, the rest of it, the compressed
// size and the properties.
func chunk(body []byte, n int) []byte {
	b := []byte{0xc0 | byte((n-1)>>16), 0, 0, 0, 0, props}
	binary.BigEndian.PutUint16(b[1:], uint16(n-1))
	binary.BigEndian.PutUint16(b[3:], uint16(len(body)-1))
	return append(b, body...)
}
