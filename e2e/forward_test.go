package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"farhand/wire"
)

// echoServer echoes; the first connection it only accepts.
func echoServer(t *testing.T, firstStuck bool) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stuck := firstStuck
			firstStuck = false
			all.Go(func() {
				defer c.Close()
				if stuck {
					<-done
					return
				}
				_, _ = io.Copy(c, struct{ io.Reader }{c})
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(done)
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

func payload(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

// roundTrip sends bytes over a connection and reads them to its end.
func roundTrip(at string, want []byte) error {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		if err == nil {
			err = c.(*net.TCPConn).CloseWrite()
		}
		sent <- err
	}()
	got, err := io.ReadAll(c)
	if err == nil {
		err = <-sent
	}
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%d of %d bytes came back", len(got), len(want))
	}
	return err
}

func TestForward(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	port := echoServer(t, true)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.URL.Path) }))
	defer web.Close()
	webPort := web.Listener.Addr().(*net.TCPAddr).Port
	b.tables += fmt.Sprintf("[forward]\nallow = [\"127.0.0.1:%d\", \"localhost:%d\", \"127.0.0.1:1\"]\n", port, webPort)
	b.claim("files,forward")

	f := b.owner.start("forward", "bench", fmt.Sprintf("0:127.0.0.1:%d", port), fmt.Sprintf("0:localhost:%d", webPort), "0:127.0.0.1:1", "0:127.0.0.1:2")
	echo := f.await(0, fmt.Sprintf(`^(127\.0\.0\.1:\d+) leads to 127\.0\.0\.1:%d$`, port))[1]
	site := f.await(0, `^(127\.0\.0\.1:\d+) leads to localhost:`)[1]
	nobody := f.await(0, `^(127\.0\.0\.1:\d+) leads to 127\.0\.0\.1:1$`)[1]
	forbidden := f.await(0, `^(127\.0\.0\.1:\d+) leads to 127\.0\.0\.1:2$`)[1]

	stuck, err := net.Dial("tcp", echo)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	var filled sync.WaitGroup
	filled.Go(func() { _, _ = stuck.Write(payload(0, 16<<20)) }) // until it is closed
	defer filled.Wait()
	defer stuck.Close()
	eventually(t, "the stuck connection", func() error { return recorded(b, "FORWARD_OPEN", 1) })

	t.Run("parallel", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if err := roundTrip(echo, payload(byte(i+1), 100<<10+i)); err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			})
		}
		all.Wait()
	})
	t.Run("http", func(t *testing.T) {
		resp, err := http.Get("http://" + site + "/path")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "hello /path" {
			t.Errorf("%q, %v", text, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		if err := roundTrip(nobody, []byte("x")); err == nil {
			t.Error("a connection to nobody came about")
		}
		f.await(0, `nothing listens there`)
		if err := roundTrip(forbidden, []byte("x")); err == nil {
			t.Error("a connection that isn't allowed came about")
		}
		f.await(0, `forward\.allow`)
	})
	t.Run("over a lost link", func(t *testing.T) {
		c, err := net.Dial("tcp", echo)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		say := func(text string) {
			t.Helper()
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(text))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
				t.Fatalf("%q, %v", got, err)
			}
		}
		say("before")
		b.relay.kill()
		b.startRelay()
		say("after")
	})
	t.Run("record", func(t *testing.T) {
		eventually(t, "the ends of connections", func() error { return recorded(b, "FORWARD_END", 22) })
		found := false
		for _, r := range b.records() {
			if r.Op == "FORWARD_END" && r.Details["bytes_sent"] == float64(100<<10+3) && r.Details["bytes_received"] == r.Details["bytes_sent"] {
				found = r.Details["target"] == fmt.Sprintf("127.0.0.1:%d", port) && r.Details["reason"] == "done"
			}
		}
		if !found {
			t.Error("one of the connections isn't on the record")
		}
	})
	_ = stuck.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := stuck.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stuck connection: %v", err)
	}
	f.signal(syscall.SIGINT)
	if code := f.exit(); code != 0 {
		t.Errorf("after Ctrl-C it ends with %d\n%s", code, f.out)
	}
	if conn, err := net.Dial("tcp", echo); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// recorded wants so many records of an operation that have ended.
func recorded(b *bench, op string, want int) error {
	n := 0
	for _, r := range b.records() {
		if r.Op == op && r.Details["phase"] != "intent" {
			n++
		}
	}
	if n < want {
		return fmt.Errorf("%d records of %s, want %d", n, op, want)
	}
	return nil
}

// Who may not forward hears why, before anything listens.
func TestForwardRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,forward")
	if err := b.owner.fails(1, wire.CapabilityNotGranted, "forward", "0:127.0.0.1:80"); err.Details["ceiling"] != "config" {
		t.Errorf("%+v", err)
	}
	if r := b.owner.run("forward", "0:127.0.0.1:80"); !strings.Contains(r.stderr, "forward.allow") || strings.Contains(r.stdout, "leads to") {
		t.Errorf("%+v", r)
	}
	b.daemon.stop()
	b.tables += "[forward]\nallow = [\"127.0.0.1:1\"]\n"
	b.configure()
	b.startDaemon()
	b.daemon.await(0, `^Online`)
	b.owner.must("grants", "bench", "--remove", "forward")
	if err := b.owner.fails(1, wire.CapabilityNotGranted, "forward", "0:127.0.0.1:1"); err.Details["ceiling"] != "approval" {
		t.Errorf("%+v", err)
	}
	for _, args := range [][]string{{"forward"}, {"forward", "bench"}, {"forward", "bench", "80"}, {"forward", "80:host:x"}, {"forward", "99999999:host:80:1"}} {
		if r := b.owner.run(args...); r.code != 2 {
			t.Errorf("%q gives %d %s", args, r.code, r.stderr)
		}
	}
	b.daemon.stop()
	b.tables = "[forward]\nallow = [\"everything\"]\n"
	b.configure()
	if r := b.farhandd("", "run"); r.code != 78 || !strings.Contains(r.stderr, "forward.allow") {
		t.Errorf("%+v", r)
	}
}
