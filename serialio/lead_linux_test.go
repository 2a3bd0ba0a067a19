package serialio_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"farhand/serialio"
	"farhand/serialio/termios"
	"farhand/wire"
)

// A Read that wants much fills the ring itself. Those who follow the port see
// every byte all the same, what comes after it is received, and a port that ends
// meanwhile ends it.
func TestLargeRead(t *testing.T) {
	open := func(t *testing.T) (*serialio.Port, interface {
		Write([]byte) (int, error)
		Close() error
	}) {
		master, node, err := termios.OpenPTY()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { master.Close() })
		port, err := serialio.Open(node, serialio.DefaultMode())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { port.Close() })
		return port, master
	}
	const size = 64 << 10
	large := serialio.ReadOptions{Size: size, Timeout: time.Minute}

	t.Run("followed", func(t *testing.T) {
		port, master := open(t)
		sent := make([]byte, 3*size/2)
		for i := range sent {
			sent[i] = byte(i * 7 / 5)
		}
		wrote := make(chan error, 1)
		go func() {
			_, err := master.Write(sent)
			wrote <- err
		}()
		var followed []byte
		seen := make(chan error, 1)
		go func() {
			b := make([]byte, 4096)
			for len(followed) < len(sent) {
				n, lost, err := port.Follow(t.Context(), int64(len(followed)), b)
				if err != nil || lost > 0 {
					seen <- errors.Join(err, context.Cause(t.Context()))
					return
				}
				followed = append(followed, b[:n]...)
			}
			seen <- nil
		}()
		r, err := port.Read(t.Context(), large)
		if err != nil || r.Stop != serialio.StopSize || !bytes.Equal(r.Data, sent[:size]) {
			t.Fatalf("%d bytes, %s, %v", len(r.Data), r.Stop, err)
		}
		// Nobody reads the rest: the port receives it for those who follow.
		if err := errors.Join(<-wrote, <-seen); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(followed, sent) {
			t.Error("who follows doesn't see what was sent")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		port, master := open(t)
		if _, err := master.Write([]byte("early")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			b := make([]byte, 8)
			if _, _, err := port.Follow(ctx, 0, b); err == nil {
				cancel()
			}
		}()
		if _, err := port.Read(ctx, large); !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled Read: %v", err)
		}
		r, err := port.Read(t.Context(), serialio.ReadOptions{Size: 5, Timeout: time.Minute})
		if err != nil || string(r.Data) != "early" {
			t.Errorf("after it: %q, %v", r.Data, err)
		}
	})
	for name, end := range map[string]func(*serialio.Port, interface{ Close() error }){
		"closed":    func(p *serialio.Port, _ interface{ Close() error }) { p.Close() },
		"unplugged": func(_ *serialio.Port, far interface{ Close() error }) { far.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			port, master := open(t)
			if _, err := master.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			began := make(chan struct{})
			go func() {
				b := make([]byte, 1)
				_, _, _ = port.Follow(t.Context(), 0, b)
				close(began)
			}()
			go func() { <-began; end(port, master) }()
			_, err := port.Read(t.Context(), large)
			want := wire.DeviceGone
			if name == "closed" {
				want = wire.HardwareTransferFailed
			}
			if !errors.Is(err, want) {
				t.Errorf("the Read ends with %v", err)
			}
		})
	}
}
