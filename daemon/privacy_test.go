package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/files"
	"farhand/wire"
)

func TestServers(t *testing.T) {
	// What a kernel shows: 127.0.0.1:11434 of user 996, the same port of all
	// addresses of user 901, a connection to it, another port, and IPv6.
	const v4 = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000   996        0 12345 1 0000000000000000 100 0 0 10 0
   1: 00000000:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000   901        0 12346 1 0000000000000000 100 0 0 10 0
   2: 0100007F:2CAA 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     7        0 12347 1 0000000000000000 100 0 0 10 0
   3: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12348 1 0000000000000000 100 0 0 10 0
   4: 0200007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000     8        0 12349 1 0000000000000000 100 0 0 10 0
`
	const v6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:2CAA 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000   996        0 12345 1
   1: 00000000000000000000000000000000:2CAA 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000   902        0 12345 1
`
	for _, c := range []struct {
		table, ip string
		from      int
		want      []int
	}{
		{v4, "127.0.0.1", 40001, []int{996, 901}}, {v6, "::1", 40001, []int{996, 902}}, {v4, "::1", 40000, []int{901}},
		{v4, "127.0.0.1", 40000, []int{996, 901, 7}}, // who took the connection may be another
	} {
		ip := net.ParseIP(c.ip)
		got, err := parseServers(strings.NewReader(c.table), &net.TCPAddr{IP: ip, Port: 11434}, &net.TCPAddr{IP: ip, Port: c.from})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("at %s listen %v (%v), want %v", c.ip, got, err, c.want)
		}
	}
	at, nobody := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 11434}, "00000000:0000"
	for _, broken := range []string{
		"0: zz:2CAA " + nobody + " 0A 0 0 0 1", "0: 0100007F:xx " + nobody + " 0A 0 0 0 1", "0: 0100007F:2CAA " + nobody + " 0A 0 0 0 x", "0: 0100007F:2CAA 00:00 0A 0 0 0 1",
	} {
		if got, err := parseServers(strings.NewReader(broken), at, at); err == nil {
			t.Errorf("%q gives %v", broken, got)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	taken, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	to, from := conn.RemoteAddr().(*net.TCPAddr), conn.LocalAddr().(*net.TCPAddr)
	own := os.Getuid()
	if got, err := servers(to, from); err != nil || !slices.Equal(got, []int{own, own}) {
		t.Errorf("our own listener, and a connection to it, are of %v, %v", got, err)
	}
	l.Close()
	if got, err := servers(to, from); err != nil || !slices.Equal(got, []int{own}) {
		t.Errorf("without the listener the connection is of %v, %v", got, err)
	}
}

func TestStubsAreBounded(t *testing.T) {
	var s stubs
	var ids []string
	for range maxStubs + 3 {
		ids = append(ids, s.add(new(files.Stub)))
	}
	for i, id := range ids {
		_, err := s.find(id)
		if (err == nil) != (i >= 3) || err != nil && !errors.Is(err, wire.StubStale) {
			t.Errorf("stub %d: %v", i, err)
		}
	}
	if len(s.byID) != maxStubs || len(s.order) != maxStubs {
		t.Errorf("%d and %d are kept", len(s.byID), len(s.order))
	}
}

func TestReleases(t *testing.T) {
	r := newReleases(time.Hour)
	done := make(chan error, 1)
	hold := func(ctx context.Context) string {
		t.Helper()
		go func() { done <- r.hold(ctx, Answer{Text: "x"}) }()
		for {
			if all := r.list(); len(all) == 1 {
				return all[0].ID
			}
		}
	}
	if id := hold(t.Context()); !r.decide(id, true) || <-done != nil {
		t.Error("an answer that was let go isn't")
	}
	if id := hold(t.Context()); !r.decide(id, false) || r.decide(id, true) {
		t.Error("an answer was decided on twice")
	}
	if e := wire.AsError(<-done); e.Code != wire.AnswerNotReleased || e.Details["reason"] != "refused" {
		t.Errorf("refused: %v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hold(ctx)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || len(r.list()) != 0 {
		t.Errorf("given up: %v, %d wait", err, len(r.list()))
	}
	r.patience = time.Millisecond
	if e := wire.AsError(r.hold(t.Context(), Answer{})); e.Code != wire.AnswerNotReleased || e.Details["reason"] != "timeout" {
		t.Errorf("nobody decided: %v", e)
	}
	r.patience = time.Hour
	ctx, cancel = context.WithCancel(t.Context())
	ended := make(chan error, maxWaiting)
	for range maxWaiting {
		go func() { ended <- r.hold(ctx, Answer{}) }()
	}
	for len(r.list()) < maxWaiting {
	}
	if err := r.hold(ctx, Answer{}); wire.CodeOf(err) != wire.ShimOverloaded {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	for range maxWaiting {
		<-ended
	}
}
