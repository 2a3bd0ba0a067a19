package serialio

// RingSize is how much of what a port receives is kept for whoever asks later,
// in bytes, less up to 4096 that make place for what comes: 22 s at 115200
// bit/s. It grows to this as it is needed.
const RingSize = 256 << 10

// chunk is how much is asked of the kernel at once. A terminal hands out at
// most its buffer of 4096 bytes.
const chunk = 4096

// ring keeps the newest bytes of what was received. Offsets count all of it,
// from the first byte on.
type ring struct {
	buf  []byte // grows in powers of two; the byte with offset n is at n modulo its length
	next int64  // offset of the next byte
	held int    // how many of the newest are here
}

// oldest is the first offset that the ring still has.
func (r *ring) oldest() int64 { return r.next - int64(r.held) }

// room is where the next bytes go, never empty. The oldest make place for them
// at once, so that room may be filled while others read.
func (r *ring) room() []byte {
	if r.held == len(r.buf) && len(r.buf) < RingSize {
		r.grow()
	}
	at := int(r.next % int64(len(r.buf)))
	room := r.buf[at:min(at+chunk, len(r.buf))]
	r.held = min(r.held, len(r.buf)-len(room))
	return room
}

// add counts n bytes that were put into room.
func (r *ring) add(n int) {
	r.next += int64(n)
	r.held += n
}

func (r *ring) grow() {
	bigger := make([]byte, max(chunk, 2*len(r.buf)))
	for from := r.oldest(); from < r.next; {
		from += int64(copy(bigger[from%int64(len(bigger)):], r.from(from)))
	}
	r.buf = bigger
}

// from is a run of bytes that begins at an offset which the ring has; there may
// be more after it.
func (r *ring) from(offset int64) []byte {
	if offset >= r.next {
		return nil
	}
	at := int(offset % int64(len(r.buf)))
	return r.buf[at:min(at+int(r.next-offset), len(r.buf))]
}

// read appends what comes at and after an offset to b, at most so many bytes.
func (r *ring) read(b []byte, offset int64, most int) []byte {
	for most > 0 {
		run := r.from(offset)
		if len(run) == 0 {
			break
		}
		run = run[:min(len(run), most)]
		b = append(b, run...)
		offset += int64(len(run))
		most -= len(run)
	}
	return b
}
