package stream

import (
	"bytes"
	"encoding/json"

	"farhand/wire"
)

// ring keeps the newest part of a stream: bytes, or encoded records. What is
// missing in between was lost by the source.
type ring struct {
	records bool
	size    int // bytes that may be kept

	// Pieces in order of their offsets. A gap before a piece is one of the
	// source; after the last it is tail.
	pieces []piece
	held   int   // bytes in pieces
	total  int64 // bytes that were ever written
	tail   int64 // offset of what comes next
}

// piece is a run of bytes that belong together, or one record.
type piece struct {
	offset int64
	data   []byte
}

// pieceSize is how much small writes are gathered.
const pieceSize = 4 << 10

func (r *ring) next() int64 { return r.tail }

// oldest is the first offset that can still be had.
func (r *ring) oldest() int64 {
	if len(r.pieces) == 0 {
		return r.tail
	}
	return r.pieces[0].offset
}

func (r *ring) end(p piece) int64 {
	if r.records {
		return p.offset + 1
	}
	return p.offset + int64(len(p.data))
}

func (r *ring) write(b []byte) {
	r.total += int64(len(b))
	if over := len(b) - r.size; over > 0 { // would push itself out
		r.tail += int64(over)
		b = b[over:]
	}
	for len(b) > 0 {
		last := len(r.pieces) - 1
		if last >= 0 && r.end(r.pieces[last]) == r.tail && len(r.pieces[last].data) < cap(r.pieces[last].data) {
			p := &r.pieces[last]
			n := min(len(b), cap(p.data)-len(p.data))
			p.data = append(p.data, b[:n]...)
			b = b[n:]
			r.tail += int64(n)
			r.held += n
			continue
		}
		room := min(pieceSize, r.size)
		if len(b) > room {
			room = min(len(b), wire.StreamDataMax)
		}
		r.pieces = append(r.pieces, piece{offset: r.tail, data: make([]byte, 0, room)})
	}
	r.trim()
}

func (r *ring) record(b []byte) {
	r.pieces = append(r.pieces, piece{offset: r.tail, data: b})
	r.tail++
	r.total += int64(len(b))
	r.held += len(b)
	r.trim()
}

// before is how much of the total lies before an offset, or is lost.
func (r *ring) before(from int64) int64 {
	n := r.total
	for i := r.find(from); i < len(r.pieces); i++ {
		p := r.pieces[i]
		n -= int64(len(p.data))
		if from > p.offset {
			n += from - p.offset
		}
	}
	return n
}

// skip leaves a gap of n. Not even an empty ring offers what is in it.
func (r *ring) skip(n int64) { r.tail += n }

// clear forgets all that it has.
func (r *ring) clear() { r.pieces, r.held = nil, 0 }

// trim forgets the oldest until the rest fits.
func (r *ring) trim() {
	n := 0
	for r.held > r.size && n < len(r.pieces) {
		p := &r.pieces[n]
		over := r.held - r.size
		if !r.records && over < len(p.data) {
			p.data = p.data[over:] // the array goes with the piece
			p.offset += int64(over)
			r.held -= over
			break
		}
		r.held -= len(p.data)
		*p = piece{}
		n++
	}
	r.pieces = r.pieces[n:]
}

// chunk is what goes into one frame.
type chunk struct {
	offset  int64
	data    []byte
	records []json.RawMessage
	size    int // bytes
	lost    *wire.StreamGap
	next    int64 // where the one after it begins
}

// read takes what comes at or after from: at most so many bytes, but always a
// whole record. A gap alone has an empty chunk. ok is false if there is nothing.
func (r *ring) read(from int64, most int) (c chunk, ok bool) {
	i := r.find(from)
	c = chunk{offset: from, next: from}
	if i == len(r.pieces) {
		if from >= r.tail {
			return c, false
		}
		c.lost = &wire.StreamGap{From: from, To: r.tail} // skipped, nothing after it yet
		c.offset, c.next = r.tail, r.tail
		return c, true
	}
	if at := r.pieces[i].offset; at > from {
		c.lost = &wire.StreamGap{From: from, To: at}
		c.offset, c.next = at, at
	}
	if r.records {
		r.readRecords(&c, i, most)
	} else {
		r.readBytes(&c, i, most)
	}
	return c, true
}

func (r *ring) readBytes(c *chunk, i, most int) {
	for ; i < len(r.pieces) && c.size < most && r.pieces[i].offset <= c.next; i++ {
		p := r.pieces[i]
		part := p.data[c.next-p.offset:]
		part = part[:min(len(part), most-c.size)]
		if c.data == nil {
			c.data = make([]byte, 0, min(int64(most), r.tail-c.next)) // a key is one byte
		}
		c.data = append(c.data, part...) // a copy: the ring goes on under it
		c.size += len(part)
		c.next += int64(len(part))
	}
}

func (r *ring) readRecords(c *chunk, i, most int) {
	for ; i < len(r.pieces) && r.pieces[i].offset == c.next; i++ {
		n := len(r.pieces[i].data)
		if c.size > 0 && c.size+n > most {
			return
		}
		c.records = append(c.records, r.pieces[i].data)
		c.size += n
		c.next++
	}
}

// find is the first piece that ends after from.
func (r *ring) find(from int64) int {
	lo, hi := 0, len(r.pieces)
	for lo < hi {
		mid := (lo + hi) / 2
		if r.end(r.pieces[mid]) > from {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// line is the offset after the first line break that is kept, of what hasn't one
// the oldest.
func (r *ring) line() int64 {
	for _, p := range r.pieces {
		if i := bytes.IndexByte(p.data, '\n'); i >= 0 {
			return p.offset + int64(i) + 1
		}
	}
	return r.oldest()
}
