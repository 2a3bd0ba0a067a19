//go:build !linux

package gpio

import "time"

func exactTimers() {}

func exactWait(d time.Duration) { time.Sleep(d) }
