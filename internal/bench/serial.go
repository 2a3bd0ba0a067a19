package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"farhand/serialio"
	"farhand/serialio/termios"
)

// What goes each way in one call, how much of it is written and read from the
// kernel at once, and how much a reader wants together.
const (
	serialBytes = 4 << 20
	serialChunk = 4096 // what a terminal hands out at most
	serialBlock = 64 << 10
)

// benchSerial moves bytes over pseudo-terminals: out of a port and into it,
// through the driver with its ring, and beside it by bare reads and writes of
// the same size on a terminal that is set as raw.
func benchSerial(ctx context.Context, _, _ string) ([]bar, error) {
	master, node, err := termios.OpenPTY()
	if err != nil {
		return nil, err
	}
	defer master.Close()
	port, err := serialio.Open(node, serialio.DefaultMode())
	if err != nil {
		return nil, err
	}
	defer port.Close()
	ours := portEnd{ctx, port}

	bareMaster, bareNode, err := termios.OpenPTY()
	if err != nil {
		return nil, err
	}
	defer bareMaster.Close()
	bare, err := os.OpenFile(bareNode, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer bare.Close()
	if err := makeRaw(bare); err != nil {
		return nil, err
	}
	ratio, _, _, err := compare(ctx, "serial pty", 25, 1,
		func() error { return bothWays(bareEnd{master}, ours) },
		func() error { return bothWays(bareEnd{bareMaster}, bareEnd{bare}) })
	if err != nil {
		return nil, err
	}
	return []bar{{name: "serial_throughput", value: 1 / ratio, limit: 0.8, floor: true}}, nil
}

// portEnd is a port as a plain end of a line.
type portEnd struct {
	ctx  context.Context
	port *serialio.Port
}

const serialPatience = 30 * time.Second

func (p portEnd) Read(b []byte) (int, error) {
	r, err := p.port.Read(p.ctx, serialio.ReadOptions{Size: len(b), Timeout: serialPatience})
	if err == nil && r.Lost > 0 {
		err = fmt.Errorf("%d bytes are lost", r.Lost)
	}
	return copy(b, r.Data), err
}

func (p portEnd) Write(b []byte) (int, error) { return p.port.Write(p.ctx, b, serialPatience) }

func makeRaw(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	err = conn.Control(func(fd uintptr) { opErr = termios.Raw(int(fd)) })
	return errors.Join(err, opErr)
}

// bareEnd reads in chunks.
type bareEnd struct{ *os.File }

func (e bareEnd) Read(b []byte) (int, error) { return e.File.Read(b[:min(len(b), serialChunk)]) }

// bothWays moves serialBytes from a to b, then from b to a.
func bothWays(a, b io.ReadWriter) error {
	if err := oneWay(a, b); err != nil {
		return err
	}
	return oneWay(b, a)
}

// oneWay has at most half of what a port keeps under way: nothing is lost, and
// both kinds are held back alike.
func oneWay(from io.Writer, to io.Reader) error {
	sent := make(chan error, 1)
	window := make(chan struct{}, serialio.RingSize/2/serialChunk)
	go func() {
		block := make([]byte, serialChunk)
		for range serialBytes / serialChunk {
			window <- struct{}{}
			if _, err := from.Write(block); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	block := make([]byte, serialBlock)
	for range serialBytes / serialBlock {
		if _, err := io.ReadFull(to, block); err != nil {
			return err
		}
		for range serialBlock / serialChunk {
			<-window
		}
	}
	return <-sent
}
