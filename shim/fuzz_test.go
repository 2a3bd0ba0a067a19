package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/audit"
	"farhand/link"
	"farhand/wire"
	"farhand/wire/transcript"
)

// nothing is an audit log and a store of bindings that are never asked here.
type nothing struct{ Bindings }

func (nothing) Append(audit.Entry) error                      { return nil }
func (nothing) AppendSync(context.Context, audit.Entry) error { return nil }
func (nothing) Head() wire.Anchor                             { return wire.Anchor{} }
func (nothing) Size() int64                                   { return 0 }
func (nothing) Token(context.Context) (string, error)         { return "", nil }
func (nothing) Rejected(context.Context, string) (string, error) {
	return "", nil
}
func (nothing) Expiry() time.Time { return time.Time{} }

func bareShim(t testing.TB) *Shim {
	t.Helper()
	s, err := New(Config{
		ControlURL: "ws://x", Tokens: nothing{}, Bindings: nothing{}, Audit: nothing{},
		Dial:  func(context.Context, string, string) (*link.Conn, error) { return nil, ErrRevoked },
		Hello: func(context.Context, wire.Channel, string) (wire.Hello, error) { return wire.Hello{}, nil },
		Open:  func(context.Context, *Session) (Table, io.Closer, error) { return nil, nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.workers = newWorkers()
	t.Cleanup(s.workers.close)
	return s
}

// bareSocket is a data socket whose frames the test feeds by hand, and what it
// sends.
func bareSocket(t testing.TB) (*socket, <-chan []byte) {
	t.Helper()
	sent := make(chan []byte, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		for {
			_, m, err := ws.ReadMessage()
			if err != nil {
				return
			}
			sent <- m
		}
	}))
	t.Cleanup(server.Close)
	conn, err := link.Dial(context.Background(), "ws"+strings.TrimPrefix(server.URL, "http"), link.DialOptions{Device: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(1000, "") })
	s := bareShim(t)
	session := &Session{shim: s, binding: wire.SessionBinding{SessionID: "s", AllowedRoot: "/"}, table: Table{
		wire.TFileStat: {Handle: Unary(func(context.Context, *Call, wire.FileStat) (any, error) { return wire.FileStatResponse{}, nil })},
		wire.TFileRead: {Handle: func(context.Context, *Call) (any, error) { panic("x") }},
	}}
	return s.newSocket(context.Background(), conn, session, accepted{
		version: "1.1", granted: wire.Capabilities{wire.Files, wire.Grants}, limits: Limits{MaxConcurrent: 2},
	}, ""), sent
}

// FuzzReceive: whatever a frame holds, the socket stays up, and the frame is
// answered once at most, with its own id, and not at all without a usable one.
func FuzzReceive(f *testing.F) {
	scenes, err := transcript.Read("../wire/testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range scenes {
		for _, frame := range s.Frames {
			f.Add(frame.Text)
		}
	}
	f.Add([]byte(strings.Repeat("[", 2000)))
	f.Add([]byte(`{"type":"FILE_STAT","id":"a","id":"b","payload":{}}`))
	k, sent := bareSocket(f)
	r := &reader{k: k, end: make(chan error, 1)}
	n := 0
	f.Fuzz(func(t *testing.T, frame []byte) {
		e, err := wire.DecodeEnvelope(frame)
		if err := k.receive(frame, r); err != nil {
			if _, ok := err.(*revoked); !ok || e.Type != wire.TSessionRevoked {
				t.Fatalf("receive: %v", err)
			}
		}
		k.handlers.Wait()
		n++
		mark := fmt.Sprintf("mark-%d-%d", n, time.Now().UnixNano())
		// Answers keep their order, so this one comes last.
		if err := k.receive([]byte(`{"type":"FILE_STAT","id":"`+mark+`"}`), r); err != nil {
			t.Fatal(err)
		}
		answers := 0
		for m := range sent {
			var got struct{ Type, ID string }
			if err := json.Unmarshal(m, &got); err != nil {
				t.Fatalf("sent %q: %v", m, err)
			}
			if got.ID == mark {
				break
			}
			if got.Type == "STATUS" || strings.HasPrefix(got.ID, "mark-") {
				continue
			}
			answers++
			// Broken UTF-8 in an id comes back as U+FFFD, as it was decoded.
			if got.ID != e.ID || err != nil && e.ID == "" {
				t.Fatalf("%q is answered by %q", frame, m)
			}
		}
		if answers > 1 {
			t.Fatalf("%d answers to %q", answers, frame)
		}
	})
}

// FuzzHelloAck: no HELLO_ACK makes more of what was offered, or less than a
// working limit.
func FuzzHelloAck(f *testing.F) {
	scenes, err := transcript.Read("../wire/testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range scenes {
		if s.Kind == "handshake" {
			for _, frame := range s.Frames {
				f.Add(frame.Text, true)
				f.Add(frame.Text, false)
			}
		}
	}
	f.Add([]byte(`{"type":"HELLO_ACK","id":"h1","payload":{"granted_capabilities":["files"],"command_timeout_seconds":1e308,"max_concurrent":1}}`), false)
	s := bareShim(f)
	offered := wire.Capabilities{wire.DirectoryBrowse, wire.Files}
	f.Fuzz(func(t *testing.T, frame []byte, control bool) {
		kind, session := wire.Data, "s"
		if control {
			kind, session = wire.Control, ""
		}
		a, err := s.readAck(frame, kind, session, "h1", offered)
		if err != nil {
			return
		}
		for _, c := range a.granted {
			if !offered.Has(c) {
				t.Fatalf("%s is taken as granted", c)
			}
		}
		l := a.limits
		if l.MaxConcurrent < 1 || l.MaxFileSize < 1 || l.CommandTimeout <= 0 || l.MaxConcurrent > wire.DefaultMaxConcurrent || l.CommandTimeout > wire.DefaultCommandTimeout {
			t.Fatalf("limits %+v", l)
		}
		if control && (a.connectionID == "" || !a.granted.Has(wire.DirectoryBrowse) || a.version != "1.1") {
			t.Fatalf("control accepted %+v", a)
		}
	})
}
