package lp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/leak"
	"farhand/wire"
)

// A named pipe takes writes as usblp's node does: without blocking, with poll,
// and an empty write at once. It has no ioctls.
func pipe(t *testing.T) (node string, far *os.File) {
	leak.Check(t)
	node = filepath.Join(t.TempDir(), "lp0")
	if err := unix.Mkfifo(node, 0o600); err != nil {
		t.Fatal(err)
	}
	far, err := os.OpenFile(node, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return node, far
}

func open(t *testing.T, node string) *Port {
	t.Helper()
	p, err := Open(node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
	return p
}

func TestWrite(t *testing.T) {
	node, far := pipe(t)
	p := open(t, node)
	data := bytes.Repeat([]byte("0123456789"), 30_000) // more than a pipe holds
	got := make(chan []byte)
	go func() {
		b := make([]byte, len(data))
		_, err := io.ReadFull(far, b)
		if err != nil {
			b = nil
		}
		got <- b
	}()
	n, err := p.Write(t.Context(), data, 10*time.Second)
	if n != len(data) || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if !bytes.Equal(<-got, data) {
		t.Error("what came isn't what was sent")
	}
}

func TestWriteStalls(t *testing.T) {
	node, _ := pipe(t)
	p := open(t, node)
	data := make([]byte, 1<<20)
	n, err := p.Write(t.Context(), data, 30*time.Millisecond)
	e := wire.AsError(err)
	if !errors.Is(err, wire.HardwareTransferFailed) || e.Details["bytes_partial"] != n || e.Details["reason"] != "timeout" || n <= 0 || n >= len(data) {
		t.Errorf("%d bytes, %v %v", n, err, e.Details)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := p.Write(ctx, data, 10*time.Second); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestOpenFails(t *testing.T) {
	leak.Check(t)
	if _, err := Open(filepath.Join(t.TempDir(), "lp9")); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("no node: %v", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, wire.HardwareOpenFailed) {
		t.Errorf("a directory: %v", err)
	}
}

func TestNoIoctls(t *testing.T) {
	node, _ := pipe(t)
	p := open(t, node)
	if _, err := p.Status(); !errors.Is(err, wire.FeatureNotSupported) {
		t.Errorf("status: %v", err)
	}
	if _, err := p.DeviceID(); !errors.Is(err, wire.FeatureNotSupported) {
		t.Errorf("device id: %v", err)
	}
}
