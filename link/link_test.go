package link_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/internal/leak"
	"farhand/link"
	"farhand/wire"
)

// pair is a device's socket and the server's end of it.
func pair(t *testing.T, device link.DialOptions, server link.Options) (*link.Conn, *link.Conn) {
	t.Helper()
	accepted := make(chan *link.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := link.Accept(w, r, link.AcceptOptions{Options: server})
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		accepted <- c
	}))
	t.Cleanup(s.Close)
	c, err := link.Dial(t.Context(), "ws"+s.URL[len("http"):], device)
	if err != nil {
		t.Fatal(err)
	}
	peer := <-accepted
	t.Cleanup(func() {
		var both sync.WaitGroup
		both.Go(func() { c.Close(1000, "") })
		both.Go(func() { peer.Close(1000, "") })
		both.Wait()
	})
	return c, peer
}

// raw is a device's socket against a bare gorilla server.
func raw(t *testing.T, device link.DialOptions) (*link.Conn, *websocket.Conn) {
	t.Helper()
	accepted := make(chan *websocket.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{EnableCompression: true}
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Errorf("upgrade: %v", err)
			return
		}
		accepted <- c
	}))
	t.Cleanup(s.Close)
	c, err := link.Dial(t.Context(), "ws"+s.URL[len("http"):], device)
	if err != nil {
		t.Fatal(err)
	}
	peer := <-accepted
	t.Cleanup(func() { peer.Close(); c.Close(1000, "") })
	return c, peer
}

func status(id string) wire.Message {
	return wire.Message{Type: wire.TStatus, ID: id, Payload: wire.Status{}}
}

func decode(t *testing.T, frame []byte) wire.Envelope {
	t.Helper()
	e, err := wire.DecodeEnvelope(frame)
	if err != nil {
		t.Fatalf("frame %.100q: %v", frame, err)
	}
	return e
}

func TestMessagesBothWays(t *testing.T) {
	leak.Check(t)
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	for _, size := range []int{0, 1, 900, 1023, 1024, 1025, 2 << 10, 64 << 10, 70000, 1 << 20, 15 << 20} {
		payload := wire.Raw(`{"x":"` + strings.Repeat("a", size) + `"}`)
		go c.Send(t.Context(), link.Answers, wire.Message{Type: wire.TAck, ID: "1", Payload: payload})
		got, err := peer.Read()
		if err != nil {
			t.Fatal(err)
		}
		if e := decode(t, got); string(e.Payload) != string(payload) {
			t.Fatalf("%d bytes arrive as %d", len(payload), len(e.Payload))
		}
		go peer.Send(t.Context(), link.Answers, wire.Message{Type: wire.TAck, ID: "2", Payload: payload})
		if got, err = c.Read(); err != nil || string(decode(t, got).Payload) != string(payload) {
			t.Fatalf("%d bytes back: %v", size, err)
		}
	}
}

// TestBinary: a binary message is treated as text.
func TestBinary(t *testing.T) {
	c, peer := raw(t, link.DialOptions{})
	if err := peer.WriteMessage(websocket.BinaryMessage, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Read(); err != nil || string(got) != `{"a":1}` {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestNoCompression: it isn't asked for even if the server would.
func TestNoCompression(t *testing.T) {
	var offered string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		offered = r.Header.Get("Sec-Websocket-Extensions")
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer s.Close()
	_, err := link.Dial(t.Context(), "ws"+s.URL[len("http"):], link.DialOptions{Token: "secret"})
	if offered != "" {
		t.Errorf("offered %q", offered)
	}
	if e, ok := errors.AsType[*link.DialError](err); !ok || e.Status != http.StatusTeapot || e.Body != "no\n" {
		t.Errorf("error %#v", err)
	}
	if strings.Contains(fmt.Sprint(err), "secret") {
		t.Error("the token is in the error")
	}
}

func TestBearer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		w.Write([]byte(r.Header.Get("Authorization")))
	}))
	defer s.Close()
	for token, want := range map[string]string{"": "", "t": "Bearer t"} {
		_, err := link.Dial(t.Context(), "ws"+s.URL[len("http"):], link.DialOptions{Token: token})
		if e, ok := errors.AsType[*link.DialError](err); !ok || e.Body != want {
			t.Errorf("token %q: %#v", token, err)
		}
	}
}

// TestDialCancelled: a server that takes the connection and says nothing holds
// nobody up.
// TestDialEndless: a server whose answer to the upgrade has no end isn't listened
// to for as long as it likes.
func TestDialEndless(t *testing.T) {
	leak.Check(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan int, 1)
	go func() {
		defer l.Close()
		n := 0
		defer func() { sent <- n }()
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for line := "HTTP/1.1 101 Switching Protocols\r\n"; n < 64<<20; line = "X: " + strings.Repeat("x", 1<<10) + "\r\n" {
			k, err := io.WriteString(c, line)
			if n += k; err != nil {
				return
			}
		}
	}()
	if _, err := link.Dial(t.Context(), "ws://"+l.Addr().String(), link.DialOptions{}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("dial: %v", err)
	}
	if n := <-sent; n >= 64<<20 {
		t.Errorf("%d bytes of header were taken", n)
	}
}

func TestDialCancelled(t *testing.T) {
	leak.Check(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		c, err := l.Accept()
		if err == nil {
			cancel()
			defer c.Close()
			c.Read(make([]byte, 1<<10))
			c.Read(make([]byte, 1<<10))
		}
	}()
	start := time.Now()
	if _, err := link.Dial(ctx, "ws://"+l.Addr().String(), link.DialOptions{}); err == nil {
		t.Fatal("dialled")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestForeignOriginRefused(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := link.Accept(w, r, link.AcceptOptions{}); err == nil {
			t.Error("accepted")
			c.Close(1000, "")
		}
	}))
	defer s.Close()
	_, resp, err := websocket.DefaultDialer.Dial("ws"+s.URL[len("http"):], http.Header{"Origin": {"https://evil.example"}})
	if err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestGuard: a device's socket refuses what was not granted, and the peer never
// sees it.
func TestGuard(t *testing.T) {
	c, peer := pair(t, link.DialOptions{Device: true}, link.Options{})
	ctx := t.Context()
	contents := wire.Message{Type: wire.TFileContents, ID: "1", Payload: &wire.FileContents{Encoding: wire.EncodingUTF8}}
	if err := c.Send(ctx, link.Answers, contents); !errors.Is(err, link.ErrRefused) {
		t.Errorf("FILE_CONTENTS without files: %v", err)
	}
	if err := c.Post(link.Answers, contents, nil); !errors.Is(err, link.ErrRefused) {
		t.Errorf("posted FILE_CONTENTS without files: %v", err)
	}
	for _, bad := range []wire.Type{wire.TPing, wire.TSessionRevoked, "FILE_CHANGED", wire.THardwareResult} {
		if err := c.Send(ctx, link.Answers, wire.Message{Type: bad, ID: "1"}); !errors.Is(err, link.ErrRefused) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	c.SetGranted(wire.Capabilities{wire.Files})
	if err := c.Send(ctx, link.Answers, contents); err != nil {
		t.Error(err)
	}
	got, err := peer.Read()
	if err != nil || decode(t, got).Type != wire.TFileContents {
		t.Errorf("first frame %q, %v", got, err)
	}
}

// TestTooLargeIsReplaced: 16 MiB and one byte become ERROR with the same id.
func TestTooLargeIsReplaced(t *testing.T) {
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	one := 1
	go c.Send(t.Context(), link.Answers, wire.Message{
		Type: wire.TFileContents, ID: "big", PendingCapacity: &one,
		Payload: &wire.FileContents{Content: make([]byte, 13<<20), Encoding: wire.EncodingBase64},
	})
	got, err := peer.Read()
	if err != nil {
		t.Fatal(err)
	}
	e := decode(t, got)
	var we wire.Error
	json.Unmarshal(e.Payload, &we)
	if e.Type != wire.TError || e.ID != "big" || we.Code != wire.FileTooLarge || *e.PendingCapacity != 1 {
		t.Errorf("%s", got)
	}
	for _, key := range []string{"op", "attempted_bytes", "max_file_size_bytes"} {
		if we.Details[key] == nil {
			t.Errorf("no details.%s", key)
		}
	}
}

// TestUnencodable: an answer that JSON doesn't know still answers.
func TestUnencodable(t *testing.T) {
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	go c.Send(t.Context(), link.Answers, wire.Message{Type: wire.TAck, ID: "x", Payload: make(chan int)})
	got, err := peer.Read()
	if err != nil || decode(t, got).Type != wire.TError || decode(t, got).ID != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestInboundLimit: above 16 MiB the peer is told 1009.
func TestInboundLimit(t *testing.T) {
	leak.Check(t)
	c, peer := raw(t, link.DialOptions{})
	go peer.WriteMessage(websocket.TextMessage, make([]byte, wire.MaxFrame+1))
	if _, err := c.Read(); !errors.Is(err, link.ErrTooBig) {
		t.Errorf("error %v", err)
	}
	_, _, err := peer.ReadMessage()
	if !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
		t.Errorf("peer saw %v", err)
	}
}

func TestExactlyTheLimitPasses(t *testing.T) {
	c, peer := raw(t, link.DialOptions{})
	go peer.WriteMessage(websocket.TextMessage, make([]byte, wire.MaxFrame))
	if got, err := c.Read(); err != nil || len(got) != wire.MaxFrame {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestCloseCodes: each side learns the other's code and reason.
func TestCloseCodes(t *testing.T) {
	leak.Check(t)
	for _, code := range []int{1000, 1001, 1012, 4400, 4401, 4426, 4427, 4428, 4429} {
		c, peer := pair(t, link.DialOptions{}, link.Options{})
		go peer.Close(code, "why")
		_, err := c.Read()
		if e, ok := errors.AsType[*link.CloseError](err); !ok || e.Code != code || e.Reason != "why" {
			t.Errorf("close %d reads as %v", code, err)
		}
		if err := c.Send(t.Context(), link.Urgent, status("1")); !errors.Is(err, link.ErrClosed) {
			t.Errorf("send after the end: %v", err)
		}
		c.Close(1000, "")
	}
}

// TestVanished: a peer that goes without a word is 1006.
func TestVanished(t *testing.T) {
	leak.Check(t)
	c, peer := raw(t, link.DialOptions{})
	peer.NetConn().Close()
	_, err := c.Read()
	if e, ok := errors.AsType[*link.CloseError](err); !ok || e.Code != 1006 {
		t.Errorf("error %v", err)
	}
}

// TestLongReason is cut at the edge of a character.
func TestLongReason(t *testing.T) {
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	go peer.Close(4400, strings.Repeat("é", 100))
	_, err := c.Read()
	if e, ok := errors.AsType[*link.CloseError](err); !ok || e.Reason != strings.Repeat("é", 61) {
		t.Errorf("error %v", err)
	}
}

// TestCloseFlushes: what was sent before Close arrives, then the code.
func TestCloseFlushes(t *testing.T) {
	leak.Check(t)
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	for i := range 100 {
		if err := c.Post(link.Answers, status(fmt.Sprint(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	go c.Close(4428, "session_revoked")
	for i := range 100 {
		got, err := peer.Read()
		if err != nil || decode(t, got).ID != fmt.Sprint(i) {
			t.Fatalf("message %d: %.50q %v", i, got, err)
		}
	}
	_, err := peer.Read()
	if e, ok := errors.AsType[*link.CloseError](err); !ok || e.Code != 4428 {
		t.Errorf("error %v", err)
	}
}

// TestCloseIsBounded: a peer that neither reads nor answers holds Close up for
// no more than the documented 2.5 s.
func TestCloseIsBounded(t *testing.T) {
	leak.Check(t)
	c, peer := raw(t, link.DialOptions{})
	defer peer.Close()
	big := wire.Message{Type: wire.TAck, ID: "1", Payload: wire.Raw(strings.Repeat(" ", 15<<20) + "{}")}
	sent := make(chan error, 1)
	go func() { sent <- c.Send(t.Context(), link.Answers, big) }()
	reading := make(chan error, 1)
	go func() { _, err := c.Read(); reading <- err }()
	start := time.Now()
	c.Close(1000, "")
	if d := time.Since(start); d > 3500*time.Millisecond {
		t.Errorf("Close took %v", d)
	}
	if err := <-reading; err == nil {
		t.Error("Read got a message")
	}
	<-sent
	c.Close(1000, "") // again: at once
}

// TestMute: what is queued stays unsent, the close frame goes out.
func TestMute(t *testing.T) {
	c, peer := raw(t, link.DialOptions{})
	for i := range 50 {
		c.Post(link.Transfers, wire.Message{Type: wire.TAck, ID: fmt.Sprint(i), Payload: wire.Raw(strings.Repeat(" ", 1<<20) + "{}")}, nil)
	}
	c.Mute()
	if err := c.Send(t.Context(), link.Urgent, status("late")); !errors.Is(err, link.ErrClosed) {
		t.Errorf("send after mute: %v", err)
	}
	go c.Close(4428, "session_revoked")
	n := 0
	for {
		_, _, err := peer.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, 4428) {
				t.Errorf("peer saw %v after %d messages", err, n)
			}
			break
		}
		n++
	}
	if n > 20 {
		t.Errorf("%d messages came through", n)
	}
}

// TestStampedLate: before sees the moment of writing, once, in order.
func TestStampedLate(t *testing.T) {
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	var n int
	for i := range 20 {
		c.Post(link.Answers, status(fmt.Sprint(i)), func(m *wire.Message) {
			k := n
			n++
			m.PendingCapacity = &k
		})
	}
	for i := range 20 {
		got, err := peer.Read()
		if err != nil {
			t.Fatal(err)
		}
		if e := decode(t, got); *e.PendingCapacity != i || e.ID != fmt.Sprint(i) {
			t.Errorf("message %d: %s", i, got)
		}
	}
}

// TestPriority: with the writer held up, urgent messages overtake, each class
// keeps its order and none starves.
func TestPriority(t *testing.T) {
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	hold := make(chan struct{})
	held := make(chan struct{})
	c.Post(link.Transfers, status("first"), func(*wire.Message) { close(held); <-hold })
	<-held
	for i := range 100 {
		c.Post(link.Answers, status(fmt.Sprintf("a%d", i)), nil)
	}
	c.Post(link.Transfers, status("t0"), nil)
	c.Post(link.Urgent, status("u0"), nil)
	c.Post(link.Urgent, status("u1"), nil)
	close(hold)
	var order []string
	for range 104 {
		got, err := peer.Read()
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, decode(t, got).ID)
	}
	if order[0] != "first" || order[1] != "u0" || order[2] != "u1" || order[3] != "a0" {
		t.Errorf("order %v", order[:4])
	}
	at, next := -1, 0
	for i, id := range order {
		if id == "t0" {
			at = i
		}
		if id == fmt.Sprintf("a%d", next) {
			next++
		}
	}
	if next != 100 {
		t.Errorf("answers out of order: %v", order)
	}
	if at > 30 {
		t.Errorf("the transfer waited for %d others", at)
	}
}

// TestFull: a reader's Post never waits, Send does and goes on when there is room.
func TestFull(t *testing.T) {
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	hold := make(chan struct{})
	held := make(chan struct{})
	c.Post(link.Answers, status("first"), func(*wire.Message) { close(held); <-hold })
	<-held
	var err error
	n := 1
	for ; err == nil; n++ {
		err = c.Post(link.Answers, status("x"), nil)
	}
	if !errors.Is(err, link.ErrFull) || n > 2000 {
		t.Fatalf("%v after %d", err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Send(ctx, link.Answers, status("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("send to a full queue: %v", err)
	}
	sent := make(chan error, 2)
	go func() { sent <- c.PostWait(link.Answers, status("posted"), nil) }()
	go func() { sent <- c.Send(t.Context(), link.Urgent, status("before")) }()
	if err := <-sent; err != nil { // of Send: the other has no room
		t.Fatal(err)
	}
	select {
	case err := <-sent:
		t.Fatalf("PostWait to a full queue: %v", err)
	default:
	}
	close(hold)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	go func() { sent <- c.Send(t.Context(), link.Answers, status("last")) }()
	for {
		got, err := peer.Read()
		if err != nil {
			t.Fatal(err)
		}
		if decode(t, got).ID == "last" {
			break
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestPostWaitEnds: who waits for room learns of the socket's end.
func TestPostWaitEnds(t *testing.T) {
	c, _ := pair(t, link.DialOptions{}, link.Options{})
	hold := make(chan struct{})
	held := make(chan struct{})
	c.Post(link.Answers, status("first"), func(*wire.Message) { close(held); <-hold })
	<-held
	for c.Post(link.Answers, status("x"), nil) == nil {
	}
	ended := make(chan error, 1)
	go func() { ended <- c.PostWait(link.Answers, status("never"), nil) }()
	c.Abort(errors.New("enough"))
	if err := <-ended; !errors.Is(err, link.ErrClosed) {
		t.Errorf("got %v", err)
	}
	close(hold)
}

// TestPongBetweenFragments: a ping is answered while a long message is on its
// way to a peer that reads slowly.
func TestPongBetweenFragments(t *testing.T) {
	c, peer := raw(t, link.DialOptions{})
	pong := make(chan string, 1)
	total := 0
	peer.SetPongHandler(func(data string) error { pong <- fmt.Sprintf("%s at %d", data, total); return nil })
	go c.Read() // handles the ping
	go c.Send(t.Context(), link.Answers, wire.Message{Type: wire.TAck, ID: "1", Payload: wire.Raw(strings.Repeat(" ", 15<<20) + "{}")})
	_, r, err := peer.NextReader()
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.WriteControl(websocket.PingMessage, []byte("hi"), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		total += n
		if err != nil {
			break
		}
	}
	select {
	case got := <-pong:
		if total < 15<<20 || strings.HasSuffix(got, fmt.Sprint(total)) {
			t.Errorf("pong %q of %d", got, total)
		}
	default:
		t.Errorf("no pong within %d bytes", total)
	}
}

// TestManySenders: with many goroutines every message arrives whole.
func TestManySenders(t *testing.T) {
	leak.Check(t)
	c, peer := pair(t, link.DialOptions{}, link.Options{})
	const senders, each = 8, 50
	for s := range senders {
		go func() {
			for i := range each {
				size := (i * 7919) % (200 << 10)
				p := wire.Raw(`{"x":"` + strings.Repeat("y", size) + `"}`)
				if err := c.Send(t.Context(), link.Class(s%4), wire.Message{Type: wire.TAck, ID: fmt.Sprintf("%d-%d", s, i), Payload: p}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	next := map[string]int{}
	for range senders * each {
		got, err := peer.Read()
		if err != nil {
			t.Fatal(err)
		}
		var s string
		var i int
		s, n, _ := strings.Cut(decode(t, got).ID, "-")
		fmt.Sscan(n, &i)
		if next[s] != i {
			t.Fatalf("sender %s: message %d instead of %d", s, i, next[s])
		}
		next[s]++
	}
}

func BenchmarkEcho(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := link.Accept(w, r, link.AcceptOptions{})
		if err != nil {
			return
		}
		defer c.Close(1000, "")
		for {
			m, err := c.Read()
			if err != nil {
				return
			}
			e, err := wire.DecodeEnvelope(m)
			if err != nil {
				return
			}
			c.Send(r.Context(), link.Answers, wire.Message{Type: e.Type, ID: e.ID, Payload: wire.Raw(e.Payload)})
		}
	}))
	defer s.Close()
	c, err := link.Dial(b.Context(), "ws"+s.URL[len("http"):], link.DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(1000, "")
	m := wire.Message{Type: wire.TFileStat, ID: "0123456789", Payload: wire.FileStat{Path: "/home/pi/x"}}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Send(b.Context(), link.Answers, m); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBareEcho(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			k, m, err := c.ReadMessage()
			if err != nil {
				return
			}
			c.WriteMessage(k, m)
		}
	}))
	defer s.Close()
	c, _, err := websocket.DefaultDialer.Dial("ws"+s.URL[len("http"):], nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	m := []byte(`{"type":"FILE_STAT","id":"0123456789","ts":1234567890.123456,"payload":{"path":"/home/pi/x"}}`)
	b.ReportAllocs()
	for b.Loop() {
		c.WriteMessage(websocket.TextMessage, m)
		if _, _, err := c.ReadMessage(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCloseCodeWins: the peer's code is what Read tells even if writes failed
// before its close frame was read.
func TestCloseCodeWins(t *testing.T) {
	leak.Check(t)
	for range 50 {
		c, peer := pair(t, link.DialOptions{}, link.Options{})
		var sending sync.WaitGroup
		for range 2 {
			sending.Go(func() {
				for c.Send(t.Context(), link.Urgent, status("x")) == nil {
				}
			})
		}
		go func() {
			for {
				if _, err := peer.Read(); err != nil {
					return
				}
			}
		}()
		go peer.Close(4427, "taken")
		_, err := c.Read()
		if e, ok := errors.AsType[*link.CloseError](err); !ok || e.Code != 4427 {
			t.Errorf("Read: %v", err)
		}
		c.Close(1000, "")
		sending.Wait()
	}
}

// TestTLS: the same over wss, with large messages, a pong between fragments and
// a close code.
func TestTLS(t *testing.T) {
	leak.Check(t)
	accepted := make(chan *link.Conn, 1)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := link.Accept(w, r, link.AcceptOptions{}); err == nil {
			accepted <- c
		}
	}))
	defer s.Close()
	url := "ws" + s.URL[len("http"):]
	if _, err := link.Dial(t.Context(), url, link.DialOptions{}); err == nil {
		t.Error("an unknown certificate was taken")
	}
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c, err := link.Dial(t.Context(), url, link.DialOptions{TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	peer := <-accepted
	big := wire.Raw(`{"x":"` + strings.Repeat("a", 5<<20) + `"}`)
	go c.Send(t.Context(), link.Answers, wire.Message{Type: wire.TAck, ID: "1", Payload: big})
	if got, err := peer.Read(); err != nil || len(got) < 5<<20 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	go peer.Close(4401, "expired")
	_, err = c.Read()
	if e, ok := errors.AsType[*link.CloseError](err); !ok || e.Code != 4401 {
		t.Errorf("Read: %v", err)
	}
	c.Close(1000, "")
	peer.Close(1000, "")
}
