//go:build unix

package route

import (
	"net"
	"syscall"
)

// inline writes small frames from the goroutine that has them, without starting
// a writer: one system call that never waits, since the descriptor is
// non-blocking. It exists for plain TCP connections alone; TLS can't write a
// part of a record.
type inline struct {
	raw  syscall.RawConn
	once func(fd uintptr) bool

	// Of one call of try; the caller owns the socket's writer meanwhile.
	data []byte
	n    int
	err  error
}

func newInline(c net.Conn) *inline {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	w := &inline{raw: raw}
	w.once = func(fd uintptr) bool {
		w.n, w.err = syscall.Write(int(fd), w.data)
		return true // whatever came of it: waiting is the writer's business
	}
	return w
}

// try writes as much of b as goes at once. An error is the connection's end.
func (w *inline) try(b []byte) (int, error) {
	w.data = b
	err := w.raw.Write(w.once)
	n, failed := w.n, w.err
	w.data, w.n, w.err = nil, 0, nil
	switch {
	case err != nil:
		return 0, err
	case failed == syscall.EAGAIN || failed == syscall.EINTR:
		return 0, nil
	case failed != nil:
		return 0, failed
	}
	return n, nil
}
