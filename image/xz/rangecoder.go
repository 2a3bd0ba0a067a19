package xz

import "math/bits"

// lzma encodes the few symbols that runs need, with LZMA's adaptive binary range
// coder. Its models are those of lc=0, lp=0, pb=0, so that neither the position
// nor the byte before matters.
type lzma struct {
	out   []byte
	low   uint64
	span  uint32
	cache byte
	held  int64 // bytes that a carry may still change, with cache

	state   int // of the 12 that LZMA remembers of the last symbols
	isMatch [12]prob
	isRep   [12]prob
	isRep0  [12]prob
	rep0Run [12]prob
	literal [256]prob
	match   lengths
	rep     lengths
	slots   [64]prob // of a match of 5 bytes or more
	spec    [128]prob
	align   [16]prob
}

// prob is the probability of a zero, of 2048.
type prob uint16

const probBits, probMove, probStart = 11, 5, 1 << 10

type lengths struct {
	choice, choice2 prob
	low, mid        [8]prob
	high            [256]prob
}

// props is the byte of lc=0, lp=0, pb=0.
const props = 0

func newLZMA() *lzma {
	e := &lzma{span: 1<<32 - 1, held: 1}
	for _, models := range [][]prob{
		e.isMatch[:], e.isRep[:], e.isRep0[:], e.rep0Run[:], e.literal[:], e.slots[:], e.spec[:], e.align[:],
		e.match.low[:], e.match.mid[:], e.match.high[:], e.rep.low[:], e.rep.mid[:], e.rep.high[:],
	} {
		for i := range models {
			models[i] = probStart
		}
	}
	for _, p := range []*prob{&e.match.choice, &e.match.choice2, &e.rep.choice, &e.rep.choice2} {
		*p = probStart
	}
	return e
}

func (e *lzma) bit(p *prob, b uint32) {
	bound := e.span >> probBits * uint32(*p)
	if b == 0 {
		e.span = bound
		*p += (1<<probBits - *p) >> probMove
	} else {
		e.low += uint64(bound)
		e.span -= bound
		*p -= *p >> probMove
	}
	e.normalize()
}

func (e *lzma) normalize() {
	for e.span < 1<<24 {
		e.span <<= 8
		e.shift()
	}
}

func (e *lzma) shift() {
	if e.low < 0xff000000 || e.low >= 1<<32 {
		carry := byte(e.low >> 32)
		for c := e.cache; e.held > 0; e.held-- {
			e.out = append(e.out, c+carry)
			c = 0xff
		}
		e.cache = byte(e.low >> 24)
	}
	e.held++
	e.low = e.low & 0x00ffffff << 8
}

// finish flushes the coder.
func (e *lzma) finish() []byte {
	for range 5 {
		e.shift()
	}
	return e.out
}

// direct writes bits that have no model.
func (e *lzma) direct(v uint32, n int) {
	for n--; n >= 0; n-- {
		e.span >>= 1
		if v>>n&1 == 1 {
			e.low += uint64(e.span)
		}
		e.normalize()
	}
}

func (e *lzma) tree(models []prob, n int, v uint32) {
	m := uint32(1)
	for n--; n >= 0; n-- {
		b := v >> n & 1
		e.bit(&models[m], b)
		m = m<<1 | b
	}
}

func (e *lzma) reverse(models []prob, n int, v uint32) {
	m := uint32(1)
	for i := range n {
		b := v >> i & 1
		e.bit(&models[m], b)
		m = m<<1 | b
	}
}

func (e *lzma) length(l *lengths, n int) {
	switch n -= 2; {
	case n < 8:
		e.bit(&l.choice, 0)
		e.tree(l.low[:], 3, uint32(n))
	case n < 16:
		e.bit(&l.choice, 1)
		e.bit(&l.choice2, 0)
		e.tree(l.mid[:], 3, uint32(n-8))
	default:
		e.bit(&l.choice, 1)
		e.bit(&l.choice2, 1)
		e.tree(l.high[:], 8, uint32(n-16))
	}
}

// zero writes a literal zero as the first symbol.
func (e *lzma) zero() {
	e.bit(&e.isMatch[e.state], 0)
	e.tree(e.literal[:], 8, 0)
}

// copyFrom writes a match of n bytes, at least 5, from distance bytes before.
func (e *lzma) copyFrom(distance int64, n int) {
	e.bit(&e.isMatch[e.state], 1)
	e.bit(&e.isRep[e.state], 0)
	e.state = 7
	e.length(&e.match, n)
	d := uint32(distance - 1)
	if d < 4 {
		e.tree(e.slots[:], 6, d)
		return
	}
	top := bits.Len32(d) - 1
	slot := uint32(top)<<1 | d>>(top-1)&1
	e.tree(e.slots[:], 6, slot)
	rest := top - 1
	base := (2 | slot&1) << rest
	if slot < 14 {
		e.reverse(e.spec[base-slot:], rest, d-base)
		return
	}
	e.direct((d-base)>>4, rest-4)
	e.reverse(e.align[:], 4, (d-base)&15)
}

// again writes a match of n bytes from the distance of the last one.
func (e *lzma) again(n int) {
	e.bit(&e.isMatch[e.state], 1)
	e.bit(&e.isRep[e.state], 1)
	e.bit(&e.isRep0[e.state], 0)
	e.bit(&e.rep0Run[e.state], 1)
	if e.state < 7 {
		e.state = 8
	} else {
		e.state = 11
	}
	e.length(&e.rep, n)
}
