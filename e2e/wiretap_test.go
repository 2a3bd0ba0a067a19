package e2e

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"farhand/wire"
)

// wiretap is a TCP proxy in front of a platform that keeps every byte a daemon
// sends there.
type wiretap struct {
	url    string
	to     string
	listen net.Listener
	tasks  sync.WaitGroup

	mu   sync.Mutex
	live map[net.Conn]bool
	sent []*bytes.Buffer // by connection
}

// tapped is a platform's URL with a wiretap before it.
func tapped(t *testing.T, url string) *wiretap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wiretap{url: "http://" + l.Addr().String(), to: strings.TrimPrefix(url, "http://"), listen: l, live: map[net.Conn]bool{}}
	w.tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.tasks.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		for c := range w.live {
			c.Close()
		}
		w.mu.Unlock()
		w.tasks.Wait()
	})
	return w
}

func (w *wiretap) carry(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	kept := new(bytes.Buffer)
	w.mu.Lock()
	w.sent = append(w.sent, kept)
	w.live[near], w.live[far] = true, true
	w.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, struct{ io.Reader }{far})
		near.Close()
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := near.Read(buf)
		w.mu.Lock()
		kept.Write(buf[:n])
		w.mu.Unlock()
		if _, e := far.Write(buf[:n]); err != nil || e != nil {
			break
		}
	}
	far.Close()
	back.Wait()
	w.mu.Lock()
	delete(w.live, near)
	delete(w.live, far)
	w.mu.Unlock()
}

// sentence is something that the daemon has sent: a request of HTTP, a message of
// a WebSocket as it was before it was masked.
type sentence struct {
	what string
	typ  wire.Type // of a message
	id   string
	data []byte
}

// said is all that was sent so far, and the connections' bytes as they are.
func (w *wiretap) said() (all []sentence, raw [][]byte, err error) {
	w.mu.Lock()
	for _, b := range w.sent {
		raw = append(raw, bytes.Clone(b.Bytes()))
	}
	w.mu.Unlock()
	for i, b := range raw {
		found, err := sentences(b)
		if err != nil {
			return nil, nil, fmt.Errorf("connection %d: %w", i, err)
		}
		all = append(all, found...)
	}
	return all, raw, nil
}

// sentences reads what a client sent on a connection.
func sentences(b []byte) (all []sentence, err error) {
	r := bufio.NewReader(bytes.NewReader(b))
	for {
		q, err := http.ReadRequest(r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		var head bytes.Buffer
		fmt.Fprintf(&head, "%s %s\n", q.Method, q.RequestURI)
		if err := q.Header.Write(&head); err != nil {
			return nil, err
		}
		all = append(all, sentence{what: "the head of " + q.RequestURI, data: head.Bytes()})
		if q.Header.Get("Upgrade") != "" {
			more, err := messages(r)
			return append(all, more...), err
		}
		body, err := io.ReadAll(q.Body)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		all = append(all, sentence{what: "the body of " + q.RequestURI, data: body})
	}
}

// messages reads the frames of a WebSocket, RFC 6455.
func messages(r *bufio.Reader) (all []sentence, err error) {
	var whole []byte
	var compressed bool
	for {
		first, payload, err := frame(r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return append(all, sentence{what: "the begin of a message", data: append(whole, payload...)}), nil
		} else if err != nil {
			return nil, err
		}
		if op := first & 0xf; op >= 8 {
			all = append(all, sentence{what: fmt.Sprintf("a frame of operation %d", op), data: payload})
			continue
		}
		compressed = compressed || first&0x40 != 0
		if whole = append(whole, payload...); first&0x80 == 0 {
			continue
		}
		if compressed { // RFC 7692
			if whole, err = io.ReadAll(flate.NewReader(bytes.NewReader(append(whole, 0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff)))); err != nil {
				return nil, err
			}
		}
		e, err := wire.DecodeEnvelope(whole)
		if err != nil {
			return nil, fmt.Errorf("%w in %.200q", err, whole)
		}
		all = append(all, sentence{fmt.Sprintf("%s %s", e.Type, e.ID), e.Type, e.ID, whole})
		whole, compressed = nil, false
	}
}

func frame(r *bufio.Reader) (first byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 0x7f)
	if n >= 126 {
		size := make([]byte, map[uint64]int{126: 2, 127: 8}[n])
		if _, err := io.ReadFull(r, size); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(append(make([]byte, 8-len(size)), size...))
	}
	if head[1]&0x80 == 0 {
		return 0, nil, errors.New("a client's frame that isn't masked")
	}
	var mask [4]byte
	if _, err := io.ReadFull(r, mask[:]); err != nil {
		return 0, nil, err
	}
	payload, err = io.ReadAll(io.LimitReader(r, int64(n)))
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	if err == nil && uint64(len(payload)) < n {
		err = io.ErrUnexpectedEOF
	}
	return head[0], payload, err
}
