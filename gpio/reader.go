package gpio

import (
	"errors"
	"os"
	"sync"
	"time"

	"farhand/gpio/uapi"
	"farhand/wire"
)

// reader reads the edges of one request and hands them to the watches of its
// lines. It never waits for them: a stream forgets its oldest records instead.
type reader struct {
	b *board
	c *claim

	mu      sync.Mutex
	started bool
	ended   bool // by stop
	done    chan struct{}
	lines   map[int]*watched
	poll    time.Duration // 0: never
	next    time.Time     // when to poll
	seq     uint32        // of the last edge of the request; 0: unknown
}

// watched is one line of a reader.
type watched struct {
	w     *watch
	name  string
	bit   int
	level int
	next  uint32 // the number of the line's next edge; 0: unknown
	last  string // the last edge; empty: unknown
	poll  time.Duration
	both  bool // both kinds of edges are reported
	edges bool // the kernel reports them; otherwise polling has to find them
}

// patch is how long an edge that explains a level may take to be read.
const patch = 2 * time.Millisecond

func newReader(b *board, c *claim) *reader {
	return &reader{b: b, c: c, done: make(chan struct{}), lines: make(map[int]*watched)}
}

// add has a watch told about a line. Before start the numbers of edges begin
// at 1; of a request that is read already they are not known.
func (r *reader) add(offset int, w *watch, level int, poll time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &watched{w: w, name: r.b.names.lines[offset].kernel, bit: r.b.lines[offset].bit, level: level, poll: poll, edges: r.b.lines[offset].config.Edges != 0,
		both: r.b.lines[offset].config.Edges == BothEdges}
	if !r.started && r.c.buffer > 0 && !r.c.used {
		l.next = 1
	}
	r.lines[offset] = l
	r.pace()
}

// pace sets how often to poll. It is called with r.mu.
func (r *reader) pace() {
	r.poll = 0
	for _, l := range r.lines {
		if l.poll > 0 && (r.poll == 0 || l.poll < r.poll) {
			r.poll = l.poll
		}
	}
	r.next = time.Time{}
	if r.poll > 0 {
		r.next = time.Now().Add(r.poll)
	}
	if !r.ended {
		_ = r.c.SetReadDeadline(r.next) // a request that is closed ends the reader anyway
	}
}

// remove says whether the line was this watch's.
func (r *reader) remove(offset int, w *watch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lines[offset]; l == nil || l.w != w {
		return false
	}
	delete(r.lines, offset)
	r.pace()
	return true
}

func (r *reader) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines) == 0
}

// start lets it read, once. stop waits for it.
func (r *reader) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		return
	}
	r.started, r.c.used = true, true
	go r.run()
}

// stop ends it and waits until it has ended. Of nil it does nothing.
func (r *reader) stop() {
	if r == nil {
		return
	}
	r.mu.Lock()
	started := r.started
	if !r.ended {
		r.ended = true
		_ = r.c.SetReadDeadline(time.Unix(1, 0)) // long ago; of a closed request Read ends by itself
	}
	r.mu.Unlock()
	if started {
		<-r.done
	}
}

func (r *reader) run() {
	defer close(r.done)
	buf := make([]Event, 256)
	for {
		n, err := r.c.Read(buf)
		if n > 0 {
			r.deliver(buf[:n])
		}
		if r.over() {
			return
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !r.repair(buf) {
				return
			}
		default:
			r.fail(err)
			return
		}
	}
}

func (r *reader) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// clock brings the kernel's time to the wall's.
type clock struct {
	mono uint64
	wall time.Time
}

func now() clock { return clock{uapi.Monotonic(), time.Now().UTC().Round(0)} }

func (c clock) at(mono uint64) *time.Time {
	t := c.wall.Add(time.Duration(int64(mono - c.mono)))
	return &t
}

// deliver hands out edges. The numbers show what was lost in between: then it
// says how many edges of the line, and afterwards how every line is.
func (r *reader) deliver(events []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := now()
	resync := false
	for i := range events {
		e := &events[i]
		// The kernel hands the edges of several lines on as each gets ready, so
		// that only a jump ahead is one.
		if r.seq != 0 && e.Seq > r.seq+1 && len(r.c.offsets) > 1 && i == 0 {
			resync = true
		}
		r.seq = max(r.seq, e.Seq)
		l := r.lines[e.Offset]
		if l == nil {
			continue // watched no more
		}
		if lost := l.lost(e); lost > 0 {
			resync = true
			l.w.record(wire.GPIORecord{Kind: wire.GPIOLost, Line: e.Offset, Name: l.name, Lost: lost})
		}
		l.next, l.last = e.LineSeq+1, edgeWord(e.Rising)
		l.level = level(e.Rising)
		v := wire.GPIOLevel(l.level)
		l.w.record(wire.GPIORecord{
			Kind: wire.GPIOEdge, Line: e.Offset, Name: l.name, Edge: edgeWord(e.Rising), Level: &v,
			TimestampNS: e.TimestampNS, Time: c.at(e.TimestampNS), Seq: e.Seq, LineSeq: e.LineSeq,
		})
	}
	if resync {
		r.levels(func(*watched, int) bool { return true }, false)
	}
}

// lost is how many edges of the line are missing before this one: those that the
// numbers show, and otherwise at least one if the line changed the same way
// twice, since hardware that is busy with an edge may not notice the next.
func (l *watched) lost(e *Event) int64 {
	switch {
	case l.next != 0 && e.LineSeq != l.next:
		return int64(e.LineSeq - l.next)
	case l.both && l.last == edgeWord(e.Rising):
		return 1
	}
	return 0
}

func level(rising bool) int {
	if rising {
		return 1
	}
	return 0
}

func edgeWord(rising bool) string {
	if rising {
		return edgeNames[Rising]
	}
	return edgeNames[Falling]
}

// levels reads how the lines are and reports those that report chooses, knowing
// the level that was read. It is called with r.mu.
func (r *reader) levels(report func(l *watched, level int) bool, repaired bool) {
	var mask uint64
	for _, l := range r.lines {
		mask |= 1 << l.bit
	}
	if mask == 0 {
		return
	}
	bits, err := r.c.Get(mask)
	if err != nil {
		return // Read fails as well, and says so
	}
	c := now()
	for _, offset := range r.c.offsets {
		l := r.lines[offset]
		if l == nil {
			continue
		}
		is := int(bits >> l.bit & 1)
		if !report(l, is) {
			continue
		}
		l.level = is
		if repaired { // no edge is on its way
			l.last = edgeWord(is == 1)
		}
		v := wire.GPIOLevel(is)
		l.w.record(wire.GPIORecord{
			Kind: wire.GPIOState, Line: offset, Name: l.name, Level: &v,
			TimestampNS: c.mono, Time: &c.wall, Repaired: repaired && l.edges,
		})
	}
}

// repair is the slow poll: a level that no edge has told is reported. It answers
// false once the reader has ended.
func (r *reader) repair(buf []Event) bool {
	if r.differs() { // perhaps its edge is there and not read yet
		if !r.deadline(time.Now().Add(patch)) {
			return false
		}
		n, err := r.c.Read(buf)
		if n > 0 {
			r.deliver(buf[:n])
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			r.mu.Lock()
			r.levels(func(l *watched, level int) bool { return l.level != level }, true)
			r.mu.Unlock()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.pace()
	}
	return !r.ended
}

// differs says whether a line has a level that no edge has told.
func (r *reader) differs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	differs := false
	r.levels(func(l *watched, level int) bool {
		differs = differs || l.level != level
		return false
	}, false)
	return differs
}

// deadline sets Read's, unless the reader has ended.
func (r *reader) deadline(t time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	_ = r.c.SetReadDeadline(t) // a closed request ends Read anyway
	return true
}

// fail tells every watch that nothing more comes.
func (r *reader) fail(err error) {
	err = failure(wire.HardwareTransferFailed, "watching lines", err)
	if errors.Is(err, wire.DeviceGone) {
		r.b.lost()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	told := make(map[*watch]bool)
	for _, offset := range r.c.offsets {
		if l := r.lines[offset]; l != nil && !told[l.w] {
			told[l.w] = true
			l.w.fail(offset, l.name, err)
		}
	}
}
