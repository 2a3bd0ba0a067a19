package shim

import (
	"sync/atomic"
	"time"
)

// patience is how long a quick call may keep its socket from being read. Longer
// than a stat takes, even of a cold directory on a card, and far below what
// anybody notices.
const patience = time.Millisecond

// reader is one goroutine's time of reading a socket. A call that is usually
// over in microseconds (Method.Quick) runs on it: handing the call to another
// goroutine, which may have to wake a processor, takes longer than the call
// itself. If it takes longer all the same, another goroutine reads on, and this
// one ends with the call.
type reader struct {
	k     *socket
	end   chan<- error // why the reading ended: of the last reader alone
	state atomic.Int32
	timer *time.Timer // relieves
}

const (
	reading  = iota // or about to read
	working         // a call runs on the reader
	relieved        // and somebody else reads
)

// read reads until the socket ends, and says why.
func (k *socket) read() error {
	end := make(chan error, 1)
	(&reader{k: k, end: end}).loop()
	return <-end
}

func (r *reader) loop() {
	for {
		frame, err := r.k.conn.Read()
		if err == nil {
			err = r.k.receive(frame, r)
		}
		if r.state.Load() == relieved {
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
	r.state.Store(working)
	if r.timer == nil {
		r.timer = time.AfterFunc(patience, r.relieve)
	} else {
		r.timer.Reset(patience)
	}
	f()
	if r.state.CompareAndSwap(working, reading) {
		r.timer.Stop()
	}
}

// relieve reads on where the reader is late.
func (r *reader) relieve() {
	if r.state.CompareAndSwap(working, relieved) {
		(&reader{k: r.k, end: r.end}).loop()
	}
}
