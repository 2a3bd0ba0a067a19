package link

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// notSent is how many bytes may wait in the kernel unsent (TCP_NOTSENT_LOWAT).
// Without it many megabytes of a file queue up there on a slow uplink and a pong
// behind them comes too late: this much takes 8 s at 1 Mbit/s, and a peer waits
// 20 s (wire.PingInterval). With much less, the writer of a large frame sleeps
// and is woken so often that it shows.
const notSent = 1 << 20

func newDialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			// A kernel that doesn't know the option only loses the nicety.
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent)
		})
	}}
}
