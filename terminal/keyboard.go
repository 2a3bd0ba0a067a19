package terminal

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"farhand/wire"
)

const (
	// maxWriters bounds those whose offsets are known; the one that was silent for
	// the longest goes.
	maxWriters    = 32
	maxWriterName = 64
	// inputPatience is how long a program is waited for that doesn't read.
	inputPatience = 2 * time.Second
)

// keyboard applies what is typed once: each writer counts its bytes.
type keyboard struct {
	turn chan struct{} // held by who types

	mu      sync.Mutex
	writers map[string]*writer
	typed   int64
}

type writer struct {
	next int64 // what comes next was not typed yet
	used time.Time
	slot int // its place in the journal
}

func newKeyboard() keyboard {
	return keyboard{turn: make(chan struct{}, 1), writers: make(map[string]*writer)}
}

func (k *keyboard) knows(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writers[name] != nil
}

func (k *keyboard) total() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.typed
}

// apply writes to the program what its writer has not written yet. It returns
// where the writer is to go on: before the end of the data if the program takes
// no more for now. What a program that has ended, or that closed its input, would
// have got is taken and gone.
func (k *keyboard) apply(ctx context.Context, r wire.TerminalInput, to End, j *journal, end func()) (int64, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	w, err := k.writer(r.Writer, r.Offset)
	if err != nil {
		return 0, err
	}
	seen := min(w.next-r.Offset, int64(len(r.Data)))
	data := r.Data[seen:]
	if len(data) == 0 {
		if r.EOF {
			end() // once more, maybe
		}
		return w.next, nil
	}
	// Noted first: what a crash interrupts is rather typed not at all than twice.
	begun := w.next
	j.wrote(w.slot, r.Writer, begun+int64(len(data)))
	var n int
	if f, ok := to.(*os.File); ok {
		n, err = writeNow(f, data)
	}
	if err == nil && n < len(data) {
		var more int
		_ = to.SetWriteDeadline(time.Now().Add(inputPatience)) // fails only if it is closed
		more, err = to.Write(data[n:])
		n += more
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		n = len(data)
	}
	k.mu.Lock()
	w.next, w.used = begun+int64(n), time.Now()
	k.typed += int64(n)
	k.mu.Unlock()
	switch {
	case n < len(data):
		j.wrote(w.slot, r.Writer, w.next)
	case r.EOF:
		end()
	}
	return w.next, nil
}

// writer is the one of this name. One that isn't known begins at 0.
func (k *keyboard) writer(name string, offset int64) (*writer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.writers[name]
	known := int64(0)
	if w != nil {
		known = w.next
	}
	if offset > known {
		return nil, invalid("offset", "this writer has come to %d, not to %d", known, offset).With("next", known)
	}
	if w == nil {
		w = &writer{slot: k.vacate()}
		k.writers[name] = w
	}
	w.used = time.Now()
	return w, nil
}

// vacate makes room for one more, and says where. Called with mu.
func (k *keyboard) vacate() int {
	if n := len(k.writers); n < maxWriters {
		return n
	}
	oldest := ""
	for name, w := range k.writers {
		if oldest == "" || w.used.Before(k.writers[oldest].used) {
			oldest = name
		}
	}
	slot := k.writers[oldest].slot
	delete(k.writers, oldest)
	return slot
}
