package link

import (
	"errors"
	"io"
	"sync"
	"time"

	"farhand/wire"
)

// A transfer is thousands of messages of the same size. Memory for each of them
// would cost more than reading it, in clearing and collecting; so whoever is done
// with such a message may give it back for the next one.

const (
	// spareBytes is the largest message of that kind: a piece of a file and the
	// JSON before it.
	spareBytes = wire.TransferPiece + 8<<10
	// spareLeast is the size from which a message is given such memory.
	spareLeast = spareBytes / 2
	// spareMost is how many wait at a time: what a peer has under way.
	spareMost = 8
	// spareTime is how long they wait.
	spareTime = 5 * time.Second
)

// spares is memory for messages to come.
type spares struct {
	mu    sync.Mutex
	all   [][]byte
	timer *time.Timer // forgets them
}

// Reuse gives the memory of a message that Read returned back to it. Nothing of
// the message may be used afterwards. Most messages are too small to be worth it,
// and are left alone.
func (c *Conn) Reuse(message []byte) {
	if cap(message) == spareBytes {
		c.spares.put(message[:spareBytes])
	}
}

// spareSize is how much memory a message of n bytes gets.
func spareSize(n int) int {
	if n >= spareLeast && n <= spareBytes {
		return spareBytes
	}
	return n
}

func (s *spares) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.all)
	if n == 0 {
		return nil
	}
	b := s.all[n-1]
	s.all = s.all[:n-1]
	return b
}

func (s *spares) put(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= spareMost {
		return
	}
	s.all = append(s.all, b)
	if s.timer == nil {
		s.timer = time.AfterFunc(spareTime, s.forget)
		return
	}
	s.timer.Reset(spareTime)
}

func (s *spares) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}

// errFilled says that there is more than fits.
var errFilled = errors.New("message larger than the memory for it")

// fill reads to the end of a message into b, of which n bytes are there already,
// and returns how many there are then.
func fill(r io.Reader, b []byte, n int) (int, error) {
	for n < len(b) {
		k, err := r.Read(b[n:])
		n += k
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, errFilled
}
