//go:build unix

package atomicfile

import "syscall"

// dontWait opens a FIFO without waiting for its other end.
const dontWait = syscall.O_NONBLOCK
