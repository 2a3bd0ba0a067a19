// Package faketime moves the fake clock of a testing/synctest bubble. A test
// that waits this way waits for nothing real: when every goroutine of the bubble
// is blocked, the clock jumps.
package faketime

import (
	"testing/synctest"
	"time"
)

// Advance lets everything settle, moves the clock on by d, and lets everything
// settle again. Outside a bubble it panics (synctest.Wait does), so it can't
// become a real sleep.
func Advance(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}
