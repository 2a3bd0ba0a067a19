package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/creack/pty"
	"github.com/gorilla/websocket"

	"farhand/wire"
)

// The bare limits: a gorilla client that answers as fast as it can, and a
// forwarder that only copies frames. Both run as processes of their own.

const buffer = 64 << 10

// big is the size of the file whose reading is measured.
const big = 8 << 20

// The frames of the bare limits look like requests, so that the measuring side
// does the same for both.
const (
	echoFrame wire.Type = "ECHO" // comes back as it is
	execFrame wire.Type = "EXEC" // comes back after /bin/true has run
	bigFrame  wire.Type = "BIG"  // answered with a frame of the size of an 8 MiB file in base64
	keyFrame  wire.Type = "KEY"  // comes back once a terminal has echoed a key
)

// bareFrame makes frames of one of these types, each with a new id, of the size
// that FILE_STAT and its answer have on average.
func bareFrame(t wire.Type) func() []byte {
	return request(t, map[string]any{"path": strings.Repeat(".", 190)})
}

func isFrame(b []byte, t wire.Type) bool {
	return bytes.HasPrefix(b, []byte(`{"type":"`+string(t)+`"`))
}

// peer dials and answers the frames above, and others as a device does.
func peer(ctx context.Context, url string) error {
	ws, _, err := dialer().DialContext(ctx, url, nil)
	if err != nil {
		return err
	}
	defer ws.Close()
	context.AfterFunc(ctx, func() { ws.Close() })
	keys := &bareTerminal{ws: ws}
	defer keys.close()
	frame := bytes.Repeat([]byte("A"), base64.StdEncoding.EncodedLen(big)+200)
	for {
		_, b, err := ws.ReadMessage()
		if err != nil {
			return err
		}
		switch {
		case isFrame(b, echoFrame):
		case isFrame(b, execFrame):
			if err := exec.Command("/bin/true").Run(); err != nil {
				return err
			}
		case isFrame(b, bigFrame):
			b = frame
		case isFrame(b, keyFrame):
			if err := keys.key(b); err != nil {
				return err
			}
			continue
		default: // a device, asked without a relay
			e, err := wire.DecodeEnvelope(b)
			if err != nil {
				return err
			}
			if b, err = (&device{}).answer(ctx, e); err != nil {
				return err
			}
		}
		if err := ws.WriteMessage(websocket.TextMessage, b); err != nil {
			return err
		}
	}
}

// bareTerminal is a terminal whose echo answers.
type bareTerminal struct {
	ws      *websocket.Conn
	master  *os.File
	tty     *os.File
	typed   int
	pending atomic.Pointer[[]byte]
	echoes  sync.WaitGroup
}

func (t *bareTerminal) key(frame []byte) error {
	if t.master == nil {
		var err error
		if t.master, t.tty, err = pty.Open(); err != nil {
			return err
		}
		t.echoes.Go(t.echo)
	}
	t.pending.Store(&frame)
	_, err := t.master.Write(keyOf(t.typed))
	t.typed++
	return err
}

// echo sends a frame back for each key that shows.
func (t *bareTerminal) echo() {
	buf := make([]byte, buffer)
	for {
		if _, err := t.master.Read(buf); err != nil {
			return
		}
		if frame := t.pending.Swap(nil); frame != nil {
			if t.ws.WriteMessage(websocket.TextMessage, *frame) != nil {
				return
			}
		}
	}
}

func (t *bareTerminal) close() {
	if t.master != nil {
		t.tty.Close()
		t.master.Close()
		t.echoes.Wait()
	}
}

// keyOf is the nth key that is typed. Now and then it rubs the line out, which
// would become too long.
func keyOf(n int) []byte {
	if n%1000 == 999 {
		return []byte{0x15} // ^U
	}
	return []byte("x")
}

func dialer() *websocket.Dialer {
	return &websocket.Dialer{ReadBufferSize: buffer, WriteBufferSize: buffer, HandshakeTimeout: 10 * time.Second}
}

// forwarder accepts two sockets and copies every frame from one to the other.
// It prints its address.
func forwarder(ctx context.Context, _ string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	sockets := make(chan *websocket.Conn)
	up := websocket.Upgrader{ReadBufferSize: buffer, WriteBufferSize: buffer}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ws, err := up.Upgrade(w, r, nil); err == nil {
			sockets <- ws
		}
	})}
	go srv.Serve(l)
	defer srv.Close()
	fmt.Fprintln(os.Stdout, l.Addr())
	a, b := <-sockets, <-sockets
	context.AfterFunc(ctx, func() { a.Close(); b.Close() })
	done := make(chan error, 2)
	pipe := func(from, to *websocket.Conn) {
		for {
			kind, frame, err := from.ReadMessage()
			if err == nil {
				err = to.WriteMessage(kind, frame)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}
	go pipe(a, b)
	go pipe(b, a)
	return <-done
}

// socket is one end of a WebSocket in the measuring process; reads go into one
// buffer, so that the measured limit is the wire's and not the collector's.
type socket struct {
	*websocket.Conn
	buf bytes.Buffer
}

func (s *socket) roundTrip(frame []byte) ([]byte, error) {
	if err := s.WriteMessage(websocket.TextMessage, frame); err != nil {
		return nil, err
	}
	return s.read()
}

func (s *socket) read() ([]byte, error) {
	_, r, err := s.NextReader()
	if err != nil {
		return nil, err
	}
	s.buf.Reset()
	_, err = s.buf.ReadFrom(r)
	return s.buf.Bytes(), err
}

// accept is a server whose sockets are taken by path.
type accept struct {
	url     string // http://host:port
	server  *http.Server
	sockets map[string]chan *socket
}

func newAccept(paths ...string) (*accept, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &accept{url: "http://" + l.Addr().String(), sockets: make(map[string]chan *socket)}
	for _, p := range paths {
		a.sockets[p] = make(chan *socket, 1)
	}
	up := websocket.Upgrader{ReadBufferSize: buffer, WriteBufferSize: buffer}
	a.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ch := a.sockets[r.URL.Path]
		if ch == nil {
			http.NotFound(w, r)
			return
		}
		if ws, err := up.Upgrade(w, r, nil); err == nil {
			ch <- &socket{Conn: ws}
		}
	})}
	go a.server.Serve(l)
	return a, nil
}

func (a *accept) take(ctx context.Context, path string) (*socket, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("%s: %w", path, errTimeout))
	defer cancel()
	select {
	case s := <-a.sockets[path]:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
