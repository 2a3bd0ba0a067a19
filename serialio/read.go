package serialio

import "time"

// Why a Read ended.
const (
	StopUntil   = "until"
	StopSize    = "size"
	StopTimeout = "timeout"
)

// ReadOptions say when a Read ends: at the first of the three.
type ReadOptions struct {
	Size    int           // after so many bytes; at least 1
	Until   []byte        // after this sequence; none if empty
	Timeout time.Duration // 0: with what is there already
}

// ReadResult is what a Read got.
type ReadResult struct {
	Data    []byte // never nil
	Stop    string // StopUntil, StopSize or StopTimeout
	Seen    int    // bytes looked at; those beyond Data are kept for the next Read
	Waiting int    // bytes that wait for the next Read, here and in the kernel
}
