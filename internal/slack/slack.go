// Package slack gives memory back to the operating system once a program that
// was busy is idle again. The runtime alone does so within minutes and by halves:
// on a board with 512 MB, what a few large answers needed would be missing
// elsewhere for that long.
package slack

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// every is how long a program must have been idle. Twice that after the last
	// work, its memory is back.
	every = 15 * time.Second
	// idle is how many bytes are allocated in that time by what goes on anyway:
	// pings, STATUS, a poll of the local socket.
	idle = 4 << 20
	// worth is from how many bytes on giving back is worth a collection.
	worth = 8 << 20
)

// Return gives memory back whenever there is some to spare, until ctx ends.
func Return(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var w watch
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look()
		}
	}
}

// watch compares two looks.
type watch struct {
	allocated uint64 // bytes, since the program began
	kept      uint64 // bytes mapped after memory was given back last
}

// look gives memory back if the program has been idle since the last look and
// has more than it had when it gave back last.
func (w *watch) look() (gave bool) {
	allocated, mapped := read()
	busy := allocated-w.allocated > idle
	w.allocated = allocated
	if busy || mapped < w.kept+worth {
		return false
	}
	runtime.GC() // what lies in a sync.Pool goes with the second collection
	debug.FreeOSMemory()
	w.allocated, w.kept = read()
	return true
}

// read is how many bytes were ever allocated, and how many are taken from the
// operating system now.
func read() (allocated, mapped uint64) {
	sample := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(sample)
	return sample[0].Value.Uint64(), sample[1].Value.Uint64() - sample[2].Value.Uint64()
}
