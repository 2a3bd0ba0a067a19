package ioctl

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Open opens a character device for reading and writing.
func Open(path string) (Node, error) {
	// O_NONBLOCK keeps open(2) from waiting if the path is no device but a FIFO.
	// Neither i2c-dev nor spidev looks at it.
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode()&fs.ModeCharDevice == 0 {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTTY}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return &node{file: file, conn: conn}, nil
}

type node struct {
	file *os.File
	conn syscall.RawConn
	// busy is held for reading by what runs: os.File lets a Close go by that.
	busy sync.RWMutex
}

func (n *node) Set(req uint32, value uintptr) error {
	_, err := n.run(func(fd uintptr) (uintptr, syscall.Errno) {
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(req), value)
		return r, errno
	})
	return err
}

func (n *node) Call(req uint32, arg unsafe.Pointer) (int, error) {
	return n.run(func(fd uintptr) (uintptr, syscall.Errno) {
		r, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(req), uintptr(arg))
		return r, errno
	})
}

func (n *node) run(call func(fd uintptr) (uintptr, syscall.Errno)) (int, error) {
	n.busy.RLock()
	defer n.busy.RUnlock()
	var result uintptr
	var errno syscall.Errno
	if err := n.conn.Control(func(fd uintptr) { result, errno = call(fd) }); err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, errno
	}
	return int(result), nil
}

func (n *node) Close() error {
	n.busy.Lock()
	defer n.busy.Unlock()
	return n.file.Close()
}
