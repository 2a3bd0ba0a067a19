//go:build !linux

package request

import (
	"errors"
	"net"
	"os"
)

type passing struct {
	net.Conn
	file *os.File
}

func (passing) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

type receiver struct{ conn net.Conn }

func (r *receiver) Read(b []byte) (int, error) { return r.conn.Read(b) }

func (*receiver) take() *os.File { return nil }

func (*receiver) close() {}
