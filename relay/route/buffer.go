package route

import (
	"sync"
	"sync/atomic"

	"farhand/wire"
)

// frameBuf is the memory of one inbound frame, counted by its users: get hands
// it out with one, retain adds one, release takes one away, the last release
// gives it back. One that is never released is left to the garbage collector, so
// forgetting costs speed alone.
type frameBuf struct {
	b     []byte
	class int // index into bufClasses, or -1 for memory that isn't pooled
	users atomic.Int32
}

func (f *frameBuf) retain() *frameBuf {
	if f != nil {
		f.users.Add(1)
	}
	return f
}

// bufClasses are the sizes in which frames are read, each 16 times the one
// before: a frame of 16 MiB is copied three times while it grows, together 1 MiB.
// The last is more than the largest frame, so that a longer one shows. The first
// also holds a small frame with its header.
var bufClasses = [...]int{smallFrame + 16, 64 << 10, 1 << 20, maxAnswer + 1}

// maxAnswer is the largest frame that comes from another instance: the largest
// of a device with the operator's ids instead of the relay's.
const maxAnswer = wire.MaxFrame + 4<<10

// buffers hands out frame memory again, so that neither zeroing nor collecting
// 16 MiB at a time bounds the throughput.
type buffers struct {
	pools [len(bufClasses)]sync.Pool
}

func (p *buffers) get(class int) *frameBuf {
	f, ok := p.pools[class].Get().(*frameBuf)
	if !ok {
		f = &frameBuf{b: make([]byte, bufClasses[class]), class: class}
	}
	f.users.Store(1)
	return f
}

// grow returns a larger buffer that starts with the first n bytes of f, or nil
// if f is of the largest class. f must not be used afterwards.
func (p *buffers) grow(f *frameBuf, n int) *frameBuf {
	if f.class == len(bufClasses)-1 {
		return nil
	}
	g := p.get(f.class + 1)
	copy(g.b, f.b[:n])
	p.release(f)
	return g
}

// fit returns a buffer of exactly the first n bytes of f: small frames are
// copied out, so that a queued frame of 200 bytes doesn't hold 4 KiB.
func (p *buffers) fit(f *frameBuf, n int) *frameBuf {
	if f.class == 0 {
		g := &frameBuf{b: append(make([]byte, 0, n), f.b[:n]...), class: -1}
		p.release(f)
		return g
	}
	f.b = f.b[:n]
	return f
}

func (p *buffers) release(f *frameBuf) {
	if f == nil || f.class < 0 || f.users.Add(-1) > 0 {
		return
	}
	f.b = f.b[:cap(f.b)]
	p.pools[f.class].Put(f)
}
