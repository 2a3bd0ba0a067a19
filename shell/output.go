package shell

import (
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// marker ends the stderr of a command whose output didn't fit.
const marker = "\n[command output truncated]\n"

// chunk is how much is read from a pipe at once: half of what a pipe of the
// usual 64 KiB holds, so that the command can go on writing.
const chunk = 32 << 10

// output collects what a command writes, both streams against one budget, first
// come, first served. What no longer fits is read and dropped, so that the
// command never blocks.
type output struct {
	buffers *sync.Pool // of *[]byte, chunk long
	readers sync.WaitGroup
	done    chan struct{} // closed when both readers have returned; nil before start
	fds     [2]int        // the read ends, before start
	pipes   [2]*os.File   // the same, after it

	mu      sync.Mutex
	left    int
	kept    [2][]byte
	dropped bool
}

// newOutput owns the read ends from now on; finish closes them.
func newOutput(buffers *sync.Pool, budget int, stdout, stderr int) *output {
	return &output{buffers: buffers, left: budget, fds: [2]int{stdout, stderr}}
}

// start starts reading beside the command. A command that is over in a moment
// doesn't need that: the pipes hold what it wrote.
func (o *output) start() {
	o.done = make(chan struct{})
	for stream, fd := range o.fds {
		o.pipes[stream] = os.NewFile(uintptr(fd), "pipe")
	}
	o.readers.Add(1)
	go func() {
		defer o.readers.Done()
		o.read(0)
	}()
	go func() {
		o.read(1)
		o.readers.Wait()
		close(o.done)
	}()
}

func (o *output) read(stream int) {
	buf := o.buffers.Get().(*[]byte)
	defer o.buffers.Put(buf)
	for {
		n, err := o.pipes[stream].Read(*buf)
		if n > 0 {
			o.keep(stream, (*buf)[:n])
		}
		if err != nil {
			return // EOF, or the deadline that finish sets
		}
	}
}

func (o *output) keep(stream int, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(b) > o.left {
		b = b[:o.left]
		o.dropped = true
	}
	o.left -= len(b)
	o.kept[stream] = append(o.kept[stream], b...)
}

// finish returns what there is once the leader has ended. Usually that is at
// once, since the pipes end with it; a background process that still holds one
// gets at most patience to add something. The pipes are closed: such a process
// is told by SIGPIPE or EPIPE if it writes on.
func (o *output) finish(patience time.Duration) {
	if o.done == nil && !o.drained() {
		o.start()
	}
	if o.done != nil {
		select {
		case <-o.done:
		default:
			o.stragglers(patience)
		}
	}
	for stream, fd := range o.fds {
		if o.done == nil {
			closeFD(fd)
		} else {
			o.pipes[stream].Close()
		}
	}
}

// drained reads what the pipes hold, and says whether that is all: nobody can
// write to them any more.
func (o *output) drained() bool {
	buf := o.buffers.Get().(*[]byte)
	defer o.buffers.Put(buf)
	for stream, fd := range o.fds {
		for {
			n, ended := readFD(fd, *buf)
			if n == 0 && !ended {
				return false
			}
			if n == 0 {
				break
			}
			o.keep(stream, (*buf)[:n])
		}
	}
	return true
}

func (o *output) stragglers(patience time.Duration) {
	deadline := time.Now().Add(patience)
	for _, pipe := range o.pipes {
		if pipe.SetReadDeadline(deadline) != nil {
			pipe.Close() // it can't be polled, so closing is what ends its reader
		}
	}
	<-o.done
	// A reader that comes late to its deadline no longer reads what is there.
	buf := o.buffers.Get().(*[]byte)
	defer o.buffers.Put(buf)
	for stream, pipe := range o.pipes {
		for range drainChunks {
			n, _ := readNow(pipe, *buf)
			if n == 0 {
				break
			}
			o.keep(stream, (*buf)[:n])
		}
	}
}

// drainChunks bounds what is taken from a pipe that somebody keeps filling: all
// that a pipe of the largest usual size, 1 MiB, held.
const drainChunks = (1 << 20) / chunk

// texts are the two streams as they go into COMMAND_RESULT, for a budget of
// limit bytes before decoding.
func (o *output) texts(limit int) (stdout, stderr string, truncated bool) {
	out, err := o.kept[0], o.kept[1]
	if o.dropped {
		mark := marker[:min(len(marker), limit)]
		over := max(len(out)+len(err)+len(mark)-limit, 0)
		cut := min(over, len(out))
		out = out[:len(out)-cut]
		err = err[:len(err)-(over-cut)]
		err = append(err, mark...)
	}
	return decode(out), decode(err), o.dropped
}

// decode is b as UTF-8 with U+FFFD for every maximal part that isn't, as the
// Unicode standard recommends and Python does.
func decode(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	s.Grow(len(b) + len(b)/8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = malformed(b)
		}
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// malformed is the length of the longest prefix of b that begins a character
// but doesn't end one, at least 1.
func malformed(b []byte) int {
	lo, hi := byte(0x80), byte(0xBF)
	var want int // continuation bytes
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 1
	case c >= 0xE0 && c <= 0xEF:
		want = 2
		if c == 0xE0 {
			lo = 0xA0 // less would be overlong
		} else if c == 0xED {
			hi = 0x9F // more would be a surrogate
		}
	case c >= 0xF0 && c <= 0xF4:
		want = 3
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F // more would lie beyond U+10FFFF
		}
	}
	n := 1
	for n <= want && n < len(b) && b[n] >= lo && b[n] <= hi {
		n++
		lo, hi = 0x80, 0xBF
	}
	return n
}
