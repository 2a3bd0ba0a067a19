package portal

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// freeBind permits to listen at an address that the machine is about to get
// (IP_FREEBIND of ip(7)): systemd-networkd gives it to the radio.
func freeBind(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}
