package link_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"farhand/link"
)

// The tests in this file run on fake time, over connections that stay inside the
// process.

// one is a listener with a single connection.
type one struct{ c chan net.Conn }

func (o one) Accept() (net.Conn, error) {
	c, ok := <-o.c
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (o one) Close() error   { return nil }
func (o one) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// inBubble runs f with a device's socket and a bare server's end of it. The
// server answers pings while hears says so.
func inBubble(t *testing.T, o link.Options, f func(t *testing.T, c *link.Conn, peer *websocket.Conn, hears *atomic.Bool)) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		l := one{make(chan net.Conn, 1)}
		l.c <- theirs
		var hears atomic.Bool
		hears.Store(true)
		accepted := make(chan *websocket.Conn, 1)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			up := websocket.Upgrader{}
			ws, err := up.Upgrade(w, r, nil)
			if err != nil {
				t.Errorf("upgrade: %v", err)
				return
			}
			answer := ws.PingHandler()
			ws.SetPingHandler(func(data string) error {
				if hears.Load() {
					return answer(data)
				}
				return nil
			})
			accepted <- ws
		})}
		serving := make(chan struct{})
		go func() { defer close(serving); server.Serve(l) }()
		c, err := link.Dial(t.Context(), "ws://peer", link.DialOptions{Options: o, NetDial: func(context.Context, string, string) (net.Conn, error) {
			return ours, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		peer := <-accepted
		reading := make(chan struct{})
		go func() {
			defer close(reading)
			for {
				if _, _, err := peer.ReadMessage(); err != nil {
					return
				}
			}
		}()
		f(t, c, peer, &hears)
		c.Close(1000, "")
		peer.Close()
		<-reading
		close(l.c)
		server.Close()
		<-serving
	})
}

// reading tells how the socket ends.
func reading(c *link.Conn) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := c.Read(); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

// TestSilentPeer: a peer that answers no ping is gone after DeadAfter.
func TestSilentPeer(t *testing.T) {
	inBubble(t, link.Options{}, func(t *testing.T, c *link.Conn, _ *websocket.Conn, hears *atomic.Bool) {
		hears.Store(false)
		start := time.Now()
		err := <-reading(c)
		if d := time.Since(start); !errors.Is(err, link.ErrSilent) || d != 30*time.Second {
			t.Errorf("%v after %v", err, d)
		}
	})
}

// TestPingsKeepAlive: an idle peer that answers pings stays for good.
func TestPingsKeepAlive(t *testing.T) {
	inBubble(t, link.Options{}, func(t *testing.T, c *link.Conn, _ *websocket.Conn, hears *atomic.Bool) {
		ended := reading(c)
		select {
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		case <-time.After(24 * time.Hour):
		}
		hears.Store(false)
		start := time.Now()
		err := <-ended
		if d := time.Since(start); !errors.Is(err, link.ErrSilent) || d > 51*time.Second {
			t.Errorf("%v after %v", err, d)
		}
	})
}

// TestSlowFrameIsLife: a large message that trickles in keeps the socket alive
// although its sender answers no ping meanwhile.
func TestSlowFrameIsLife(t *testing.T) {
	inBubble(t, link.Options{}, func(t *testing.T, c *link.Conn, peer *websocket.Conn, hears *atomic.Bool) {
		hears.Store(false)
		trickled := make(chan struct{})
		go func() {
			defer close(trickled)
			nc := peer.NetConn()
			nc.Write([]byte{0x81, 126, 0, 200}) // text, 200 bytes
			for range 50 {
				<-time.After(25 * time.Second)
				nc.Write([]byte("aaaa"))
			}
		}()
		got, err := c.Read()
		if err != nil || len(got) != 200 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		<-trickled
	})
}

// TestProbe finds a dead peer sooner, and leaves a live one alone.
func TestProbe(t *testing.T) {
	inBubble(t, link.Options{}, func(t *testing.T, c *link.Conn, _ *websocket.Conn, hears *atomic.Bool) {
		ended := reading(c)
		c.Probe(2 * time.Second)
		select {
		case err := <-ended:
			t.Fatalf("ended though the peer answers: %v", err)
		case <-time.After(10 * time.Second):
		}
		hears.Store(false)
		start := time.Now()
		c.Probe(2 * time.Second)
		err := <-ended
		if d := time.Since(start); !errors.Is(err, link.ErrSilent) || d != 2*time.Second {
			t.Errorf("%v after %v", err, d)
		}
	})
}
