package link_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gorilla/websocket"

	"farhand/link"
	"farhand/wire"
)

// sink is a server that swallows messages and tells of each.
func sink(b *testing.B) (url string, got <-chan int) {
	b.Helper()
	seen := make(chan int, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{ReadBufferSize: 64 << 10}
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 64<<10)
		for {
			_, m, err := c.NextReader()
			if err != nil {
				return
			}
			total := 0
			for {
				n, err := m.Read(buf)
				total += n
				if err != nil {
					break
				}
			}
			seen <- total
		}
	}))
	b.Cleanup(s.Close)
	return "ws" + s.URL[len("http"):], seen
}

// BenchmarkFileContents sends 8 MiB as base64, beside BenchmarkBareSend: the bar
// is 70 % of its speed.
func BenchmarkFileContents(b *testing.B) {
	url, got := sink(b)
	c, err := link.Dial(b.Context(), url, link.DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(1000, "")
	m := wire.Message{Type: wire.TFileContents, ID: "1", Payload: &wire.FileContents{Content: make([]byte, 8<<20), Encoding: wire.EncodingBase64}}
	b.SetBytes(8 << 20 / 3 * 4)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Send(b.Context(), link.Answers, m); err != nil {
			b.Fatal(err)
		}
		<-got
	}
}

// BenchmarkBareSend sends a frame of that size from a bare socket.
func BenchmarkBareSend(b *testing.B) {
	url, got := sink(b)
	c, _, err := websocket.DefaultDialer.Dial(url, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	frame := make([]byte, 8<<20/3*4)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if err := c.WriteMessage(websocket.TextMessage, frame); err != nil {
			b.Fatal(err)
		}
		<-got
	}
}

// BenchmarkRead receives 8 MiB.
func BenchmarkRead(b *testing.B) {
	next := make(chan struct{})
	frame := make([]byte, 8<<20)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{WriteBufferSize: 64 << 10}
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for range next {
			if c.WriteMessage(websocket.TextMessage, frame) != nil {
				return
			}
		}
	}))
	defer s.Close()
	defer close(next)
	c, err := link.Dial(b.Context(), "ws"+s.URL[len("http"):], link.DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(1000, "")
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		next <- struct{}{}
		if _, err := c.Read(); err != nil {
			b.Fatal(err)
		}
	}
}
