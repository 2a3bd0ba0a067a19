// Package flash writes the image of a card to a card, or to a file, and puts
// the settings of one card onto its first partition.
//
// The first block, with the partition table, is written last: a card whose
// writing was interrupted has none, and boots nowhere, rather than half.
// Everything is read back and compared before that.
package flash

import "errors"

// ErrCorrupt says that an image isn't what its block map or its own checksum
// says.
var ErrCorrupt = errors.New("the image is damaged: fetch it again")

// ErrSum says that an image isn't what the file beside it says.
var ErrSum = errors.New("the image isn't what its checksum says")

// ErrVerify says that a card didn't keep what was written.
var ErrVerify = errors.New("the card holds something other than what was written: use another one")

// Phase is what Write is about.
type Phase string

// The phases, in order. Only what has a checksum beside it is checked.
const (
	Checking  Phase = "checking"
	Writing   Phase = "writing"
	Verifying Phase = "verifying"
)

// Progress is told how far a phase is, in bytes; of a total that isn't known
// yet, 0. It is called by the goroutine that writes.
type Progress func(p Phase, done, total int64)
