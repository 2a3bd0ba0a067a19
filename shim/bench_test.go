package shim

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"farhand/audit"
	"farhand/internal/pulse"
	"farhand/link"
	"farhand/wire"
)

// BenchmarkRequest is the round trip of a small request through a session, with
// its audit record, beside BenchmarkBareEcho: the bar is twice as much.
func BenchmarkRequest(b *testing.B) {
	accepts := make(chan *websocket.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		if ws, err := up.Upgrade(w, r, nil); err == nil {
			accepts <- ws
		}
	}))
	defer server.Close()
	log, err := audit.Open(audit.Options{Path: filepath.Join(b.TempDir(), "audit.log"), Key: []byte(strings.Repeat("k", 32)), MachineID: "m", ShimVersion: "1"})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	conn, err := link.Dial(b.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), link.DialOptions{Device: true})
	if err != nil {
		b.Fatal(err)
	}
	s := bareShim(b)
	path := b.TempDir()
	session := &Session{shim: s, binding: wire.SessionBinding{SessionID: "s", AllowedRoot: path}, table: Table{
		wire.TFileStat: {Handle: Unary(func(_ context.Context, c *Call, req wire.FileStat) (any, error) {
			info, err := os.Lstat(path)
			if err != nil {
				return nil, err
			}
			if err := log.Append(audit.Entry{SessionID: "s", RequestID: c.ID, Op: string(c.Type), Details: []audit.Field{audit.String("path", req.Path)}, Result: audit.Result{OK: true}}); err != nil {
				return nil, err
			}
			size, dir := info.Size(), info.IsDir()
			return wire.FileStatResponse{Exists: true, SizeBytes: &size, IsDir: &dir, Path: &req.Path}, nil
		})},
	}}
	ctx, cancel := context.WithCancel(b.Context())
	k := s.newSocket(ctx, conn, session, accepted{version: "1.1", granted: wire.Capabilities{wire.Files}, limits: Limits{MaxConcurrent: 4}}, "")
	served := make(chan error, 1)
	go func() { served <- k.serve(ctx, pulse.New("a connection")) }()
	peer := <-accepts
	request := []byte(`{"type":"FILE_STAT","id":"0b8c1a1e-1111-4222-8333-444455556666","ts":1712345678.123,"payload":{"path":"/data/work/data.csv","follow_symlinks":true}}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := peer.WriteMessage(websocket.TextMessage, request); err != nil {
			b.Fatal(err)
		}
		if _, m, err := peer.ReadMessage(); err != nil || !strings.Contains(string(m[:40]), "FILE_STAT_RESPONSE") {
			b.Fatalf("%s %v", m, err)
		}
	}
	b.StopTimer()
	go func() {
		for {
			if _, _, err := peer.ReadMessage(); err != nil {
				peer.Close()
				return
			}
		}
	}()
	cancel()
	<-served
}

// BenchmarkBareEcho sends as much back and forth between bare sockets.
func BenchmarkBareEcho(b *testing.B) {
	accepts := make(chan *websocket.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		if ws, err := up.Upgrade(w, r, nil); err == nil {
			accepts <- ws
		}
	}))
	defer server.Close()
	c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	go func() {
		for {
			kind, m, err := c.ReadMessage()
			if err != nil {
				return
			}
			if c.WriteMessage(kind, m) != nil {
				return
			}
		}
	}()
	peer := <-accepts
	defer peer.Close()
	request := []byte(strings.Repeat("x", 300))
	b.ReportAllocs()
	for b.Loop() {
		peer.WriteMessage(websocket.TextMessage, request)
		if _, _, err := peer.ReadMessage(); err != nil {
			b.Fatal(err)
		}
	}
}
