package badlink

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"farhand/internal/leak"
)

// pair is a connection over a link: the end that dialled and the one that accepted.
func pair(t *testing.T) (l *Link, near, far net.Conn) {
	t.Helper()
	leak.Check(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	l, err = Listen(t.Context(), "127.0.0.1:0", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if near, err = net.Dial("tcp", l.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = server.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return l, near, far
}

func carries(t *testing.T, from, to net.Conn) {
	t.Helper()
	if _, err := from.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(to, got); err != nil || string(got) != "word" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestForwards(t *testing.T) {
	_, near, far := pair(t)
	carries(t, near, far)
	carries(t, far, near)
	if err := near.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the end of one direction came as %v", err)
	}
	carries(t, far, near)
}

func TestCut(t *testing.T) {
	l, near, far := pair(t)
	l.Cut()
	for _, c := range []net.Conn{near, far} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a cut came as %v", err)
		}
	}
}

func TestSilence(t *testing.T) {
	l, near, far := pair(t)
	l.Silence()
	if _, err := near.Write([]byte("kept")); err != nil {
		t.Fatal(err)
	}
	_ = far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := far.Read(make([]byte, 8)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes came through, %v", n, err)
	}
	_ = far.SetReadDeadline(time.Time{})
	l.Mend()
	got := make([]byte, 4)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "kept" {
		t.Fatalf("after the silence came %q, %v", got, err)
	}
	carries(t, far, near)
}

func TestCrawl(t *testing.T) {
	l, near, far := pair(t)
	l.Crawl(64 << 10)
	want := bytes.Repeat([]byte("x"), 16<<10) // a quarter of a second
	began := time.Now()
	go near.Write(want)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("16 KiB at 64 KiB/s took %s", took)
	}
}
