package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/net/nettest"

	"farhand/internal/leak"
	"farhand/internal/natstest"
)

// join makes an instance with a connection to NATS of its own.
func join(t testing.TB, url string) *Node {
	t.Helper()
	nc, err := Connect(url, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	n, err := Join(nc, Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		nc.Close()
		<-closed
	})
	return n
}

func pipe(t testing.TB, a, b *Node) (net.Conn, net.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one, err := a.Dial(ctx, b.ID())
	if err != nil {
		t.Fatal(err)
	}
	l := b.Listener()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return one, other
}

// The connections keep the promises of net.Conn.
func TestConn(t *testing.T) {
	url := natstest.Start(t).URL
	a, b := join(t, url), join(t, url)
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2 = pipe(t, a, b)
		return c1, c2, func() { c1.Close(); c2.Close() }, nil
	})
}

// 16 MiB and more cross in both directions at once, over servers that take
// messages of 128 KiB.
func TestLarge(t *testing.T) {
	leak.Check(t)
	url := natstest.Start(t, "max_payload: 128KB").URL
	c1, c2 := pipe(t, join(t, url), join(t, url))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	sums := make(chan [2][]byte, 2)
	const size = 20 << 20
	for _, c := range []net.Conn{c1, c2} {
		go func() {
			sent, got := sha256.New(), sha256.New()
			done := make(chan error)
			go func() {
				_, err := io.CopyN(got, c, size)
				done <- err
			}()
			rng := rand.NewChaCha8([32]byte(bytes.Repeat([]byte{byte(seed)}, 32)))
			if _, err := io.CopyN(io.MultiWriter(sent, c), rng, size); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			sums <- [2][]byte{sent.Sum(nil), got.Sum(nil)}
		}()
	}
	one, other := <-sums, <-sums
	if !bytes.Equal(one[0], other[1]) || !bytes.Equal(other[0], one[1]) {
		t.Fatal("what came isn't what was sent")
	}
	c1.Close()
	c2.Close()
}

// A writer waits for a reader that doesn't read, and nobody else does.
func TestSlowReader(t *testing.T) {
	url := natstest.Start(t).URL
	a, b := join(t, url), join(t, url)
	slow, _ := pipe(t, a, b)
	if err := slow.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := slow.Write(make([]byte, 4*window)); n > window || err == nil {
		t.Fatalf("wrote %d bytes that nobody reads: %v", n, err)
	}
	quick, other := pipe(t, a, b)
	if _, err := quick.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(other, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
}

// Who talks to an instance that isn't there is told at once; who is connected to
// one that ends, too.
func TestGone(t *testing.T) {
	leak.Check(t)
	url := natstest.Start(t).URL
	a := join(t, url)
	if _, err := a.Dial(t.Context(), "nobody"); !errors.Is(err, ErrGone) {
		t.Fatalf("Dial to nobody: %v", err)
	}
	b := join(t, url)
	met := make(chan bool, 8)
	a.OnChange(func(id string, alive bool) {
		if id == b.ID() {
			met <- alive
		}
	})
	c1, _ := pipe(t, a, b)
	if err := c1.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	// As kill -9 does it: without a word.
	b.nc.Close()
	if _, err := c1.Read(make([]byte, 1)); !errors.Is(err, ErrGone) {
		t.Fatalf("Read from an instance that is gone: %v", err)
	}
	for alive := true; alive; {
		select {
		case alive = <-met:
		case <-time.After(time.Minute):
			t.Fatal("that it is gone isn't told")
		}
	}
	if a.Alive(b.ID()) || !a.Alive(a.ID()) {
		t.Fatal("who is there?")
	}
}

// An instance without NATS knows that it is alone, and comes back.
func TestIsolated(t *testing.T) {
	server := natstest.Start(t)
	a, b := join(t, server.URL), join(t, server.URL)
	told := make(chan bool, 8)
	a.OnChange(func(id string, alive bool) {
		if id == a.ID() {
			told <- alive
		}
	})
	c1, _ := pipe(t, a, b)
	server.Kill()
	if _, err := c1.Read(make([]byte, 1)); !errors.Is(err, ErrGone) {
		t.Fatalf("Read without NATS: %v", err)
	}
	want(t, told, false)
	server.Restart()
	want(t, told, true)
	c1, c2 := pipe(t, a, b)
	if _, err := c1.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c2, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, told <-chan bool, alive bool) {
	t.Helper()
	select {
	case got := <-told:
		if got != alive {
			t.Fatalf("told %t, want %t", got, alive)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%t isn't told", alive)
	}
}

// What arrives is nobody's promise: it may be anything.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{kindData, 0, 0, 0, 0, 0, 0, 0, 0, 'x'})
	f.Add([]byte{kindCredit, 0, 0, 0, 0, 0, 0, 0, 9})
	f.Add([]byte{kindEnd, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{kindReset})
	url := natstest.Start(f).URL
	a := join(f, url)
	f.Fuzz(func(t *testing.T, m []byte) {
		c := newConn(a, "peer", "id")
		c.receive(m)
		c.receive(m)
		if len(c.inbox) > 0 && c.received-c.consumed > window {
			t.Fatal("more than a window waits")
		}
	})
}

// BenchmarkRoundTrip is what a hop to another instance and back costs.
func BenchmarkRoundTrip(b *testing.B) {
	url := natstest.Start(b).URL
	c1, c2 := pipe(b, join(b, url), join(b, url))
	go func() { _, _ = io.Copy(c2, c2) }()
	p := make([]byte, 200)
	for b.Loop() {
		if _, err := c1.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c1, p); err != nil {
			b.Fatal(err)
		}
	}
	c1.Close()
}
