package serialio

import "time"

// Why a Read ended.
const (
	StopUntil   = "until"
	StopMatch   = "match"
	StopSize    = "size"
	StopTimeout = "timeout"
	StopLost    = "lost" // what comes next is gone: it came faster than it was read
)

// ReadOptions say when a Read ends: at the first of the four.
type ReadOptions struct {
	Size    int           // after so many bytes; at least 1
	Until   []byte        // after this sequence; none if empty
	Expect  Patterns      // after what matches one of these; none if empty
	Timeout time.Duration // 0: with what is there already
}

// ReadResult is what a Read got.
type ReadResult struct {
	Data    []byte // never nil
	Stop    string // one of the Stop constants
	Match   *Match // with StopMatch
	Seen    int    // bytes looked at; those beyond Data are kept for the next Read
	Waiting int    // bytes that wait for the next Read
	Offset  int64  // where Data begins, counted since the port was opened
	Lost    int64  // bytes before it that came while nobody read and are gone
}
