package link

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// notSent is how many bytes may wait in the kernel unsent (TCP_NOTSENT_LOWAT).
// Without it megabytes of a file queue up there on a slow uplink and a pong
// behind them comes too late: this much takes 2 s at 1 Mbit/s.
const notSent = 256 << 10

func newDialer() *net.Dialer {
	return &net.Dialer{Control: func(_, addr string, raw syscall.RawConn) error {
		if loopback(addr) {
			return nil // nothing queues up there, and being woken for every piece shows
		}
		return raw.Control(func(fd uintptr) {
			// A kernel that doesn't know the option only loses the nicety.
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent)
		})
	}}
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}
