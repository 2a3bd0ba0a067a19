package request

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// passing writes a line whose first byte carries a descriptor.
type passing struct {
	conn net.Conn
	file *os.File
}

func (p passing) Write(b []byte) (int, error) {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var failed error
	if err := raw.Control(func(fd uintptr) {
		n, _, failed = p.conn.(*net.UnixConn).WriteMsgUnix(b, unix.UnixRights(int(fd)), nil)
	}); err != nil {
		return 0, err
	}
	if failed == nil && n < len(b) {
		var more int
		more, failed = p.conn.Write(b[n:])
		n += more
	}
	return n, failed
}

// receiver reads from a connection and keeps the file that is passed with a
// request. What else is passed is closed.
type receiver struct {
	conn net.Conn
	file *os.File
}

func (r *receiver) Read(b []byte) (int, error) {
	conn, ok := r.conn.(*net.UnixConn)
	if !ok {
		return r.conn.Read(b)
	}
	rights := make([]byte, unix.CmsgSpace(4)) // of one; what doesn't fit the kernel closes
	n, rn, _, _, err := conn.ReadMsgUnix(b, rights)
	n = max(n, 0) // with an error it is -1
	if err != nil || rn == 0 {
		return n, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil {
		return n, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials, or whatever else there will be
		}
		for _, fd := range fds {
			r.close()
			r.file = os.NewFile(uintptr(fd), "what was passed")
		}
	}
	return n, nil
}

// take is the file that came with the line just read, if one did.
func (r *receiver) take() *os.File {
	f := r.file
	r.file = nil
	return f
}

func (r *receiver) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
