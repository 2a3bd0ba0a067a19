package shim

import (
	"sync/atomic"
	"time"

	"farhand/internal/pulse"
)

// patience is how long a quick call may keep its socket from being read, or up
// to twice as long. Far longer than a stat takes, even of a cold directory on a
// card, or starting a short command, and far below what anybody notices.
const patience = 5 * time.Millisecond

// reader is one goroutine's time of reading a socket. A call that is usually
// over in microseconds (Method.Quick) runs on it: handing the call to another
// goroutine, which may have to wake a processor, takes longer than the call
// itself. If it takes longer all the same, another goroutine reads on, and this
// one ends with the call.
//
// One look in each patience finds the call that is late. A timer for each call
// would wake a processor, too, to wait for it.
type reader struct {
	k   *socket
	end chan<- error // why the reading ended: of the last reader alone

	state atomic.Uint64 // of the calls that ran here: begun<<2 | reading, working or relieved
	armed atomic.Bool   // a look is to come
	seen  uint64        // the state at the last look; the look's own
	timer *time.Timer
}

const (
	reading  = iota // or about to read
	working         // a call runs on the reader
	relieved        // and somebody else reads
	phase    = 3    // the bits of the above
	once     = 4    // one call more
)

// read reads until the socket ends, and says why. It doesn't wait for the call that
// may still run on a reader: to cancel that is the next thing to do. Meanwhile it
// answers for the connection's loop, if the socket's lock is free.
func (k *socket) read(loop *pulse.Loop) error {
	end := make(chan error, 1)
	k.workers.run(k.newReader(end).loop)
	for {
		select {
		case err := <-end:
			return err
		case reply := <-loop.Asked():
			k.mu.Lock()
			close(reply)
			k.mu.Unlock()
		}
	}
}

func (k *socket) newReader(end chan<- error) *reader {
	r := &reader{k: k, end: end}
	r.timer = time.AfterFunc(time.Hour, r.look)
	r.timer.Stop()
	return r
}

func (r *reader) loop() {
	for {
		frame, err := r.k.conn.Read()
		if err == nil {
			err = r.k.receive(frame, r)
		}
		if r.state.Load()&phase == relieved {
			return
		}
		if err != nil {
			r.end <- err
			return
		}
	}
}

// run calls f on the reader.
func (r *reader) run(f func()) {
	now := r.state.Load() + once + working
	r.state.Store(now)
	if !r.armed.Swap(true) {
		r.timer.Reset(patience)
	}
	f()
	r.state.CompareAndSwap(now, now-working)
}

// look relieves the reader if it is at the same call as at the last look, and
// looks again as long as there are calls.
func (r *reader) look() {
	now := r.state.Load()
	switch {
	case now&phase == working && now == r.seen:
		if r.state.CompareAndSwap(now, now-working+relieved) {
			r.k.newReader(r.end).loop()
			return
		}
	case now == r.seen: // nothing since
		r.armed.Store(false)
		if r.state.Load() == now || r.armed.Swap(true) {
			return // whoever begins the next call arms it
		}
	}
	r.seen = r.state.Load()
	r.timer.Reset(patience)
}
