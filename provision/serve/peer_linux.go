package serve

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer is the user at the other end, as the kernel knows it (unix(7),
// SO_PEERCRED).
func peer(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var got error
	if err := raw.Control(func(fd uintptr) {
		cred, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if got != nil {
		return 0, got
	}
	return cred.Uid, nil
}
