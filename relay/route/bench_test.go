package route

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"farhand/relay/access"
	"farhand/wire"
)

// BenchmarkHop measures a round trip through the relay beside one through a
// forwarder that only copies frames and a direct one, alternating in rounds. The
// metrics are medians: us of each, and the ratio of the relay to the forwarder.
func BenchmarkHop(b *testing.B) {
	x := start(b)
	r := x.robot(wire.Files).connect()
	id := x.openSession(opTok, map[string]any{"machine": machID})
	r.await("data")
	body := wire.Raw(`{"path":"` + strings.Repeat("x", 200) + `"}`)
	op := x.operator(opTok)
	plain, through := echoServer(b), ""
	through = forwarder(b, plain)
	direct, copied := dialPlain(b, plain), dialPlain(b, through)

	relay := func() {
		op.request(id, "q", wire.TFileStat, body)
		if _, _, err := op.ws.ReadMessage(); err != nil {
			b.Fatal(err)
		}
	}
	raw := func(p *peer) func() {
		return func() {
			p.request(id, "q", wire.TFileStat, body)
			if _, _, err := p.ws.ReadMessage(); err != nil {
				b.Fatal(err)
			}
		}
	}
	var viaRelay, viaCopy, bare []float64
	for b.Loop() {
		for range 5 {
			bare = append(bare, round(raw(direct)))
			viaCopy = append(viaCopy, round(raw(copied)))
			viaRelay = append(viaRelay, round(relay))
		}
	}
	ratios := make([]float64, len(viaRelay))
	for i := range ratios {
		ratios[i] = viaRelay[i] / viaCopy[i]
	}
	b.ReportMetric(median(bare), "us-bare")
	b.ReportMetric(median(viaCopy), "us-forwarder")
	b.ReportMetric(median(viaRelay), "us-relay")
	b.ReportMetric(median(ratios), "relay/forwarder")
	b.ReportMetric((median(viaRelay)-median(bare))/median(bare), "hop/bare")
}

// round is the mean of 200 calls in microseconds.
func round(f func()) float64 {
	const calls = 200
	t := time.Now()
	for range calls {
		f()
	}
	return float64(time.Since(t).Nanoseconds()) / 1e3 / calls
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return s[len(s)/2]
}

func dialPlain(b *testing.B, url string) *peer {
	ws, _, err := websocket.DefaultDialer.Dial(url, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ws.Close() })
	return &peer{t: b, ws: ws}
}

// echoServer does what the scripted device does, without a relay: it decodes the
// envelope and answers with the payload.
func echoServer(b *testing.B) string {
	return serveWS(b, func(ws *websocket.Conn) {
		p := &peer{t: b, ws: ws}
		for {
			_, m, err := ws.ReadMessage()
			if err != nil {
				return
			}
			env, err := wire.DecodeEnvelope(m)
			if err != nil {
				return
			}
			echo(p, env)
		}
	})
}

// forwarder copies frames both ways and looks at nothing.
func forwarder(b *testing.B, to string) string {
	return serveWS(b, func(in *websocket.Conn) {
		out, _, err := websocket.DefaultDialer.Dial(to, nil)
		if err != nil {
			return
		}
		pump := func(from, to *websocket.Conn) {
			defer to.Close()
			for {
				kind, m, err := from.ReadMessage()
				if err != nil || to.WriteMessage(kind, m) != nil {
					return
				}
			}
		}
		done := make(chan struct{})
		go func() { pump(out, in); close(done) }()
		pump(in, out)
		<-done
	})
}

func serveWS(b *testing.B, f func(*websocket.Conn)) string {
	up := websocket.Upgrader{}
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		defer close(done)
		f(ws)
	}))
	b.Cleanup(func() {
		s.Close()
		<-done
	})
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

// BenchmarkThroughput is FILE_READ of 8 MiB through the relay beside the forwarder.
func BenchmarkThroughput(b *testing.B) {
	x := start(b)
	r := x.robot(wire.Files).connect()
	id := x.openSession(opTok, map[string]any{"machine": machID})
	r.await("data")
	body := wire.Raw(`{"content":"` + strings.Repeat("QUJD", 8<<20/3) + `"}`)
	big := func(p *peer, env wire.Envelope) {
		p.send(wire.Message{Type: wire.TFileContents, ID: env.ID, Payload: body})
	}
	r.onData = big
	op := x.operator(opTok)
	source := serveWS(b, func(ws *websocket.Conn) {
		p := &peer{t: b, ws: ws}
		for {
			_, m, err := ws.ReadMessage()
			if err != nil {
				return
			}
			env, _ := wire.DecodeEnvelope(m)
			big(p, env)
		}
	})
	copied := dialPlain(b, forwarder(b, source))
	fetch := func(p *peer) float64 {
		t := time.Now()
		p.request(id, "q", wire.TFileRead, wire.Empty{})
		if _, _, err := p.ws.ReadMessage(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(t).Microseconds())
	}
	var relay, forward []float64
	for b.Loop() {
		forward = append(forward, fetch(copied))
		relay = append(relay, fetch(op))
	}
	b.ReportMetric(median(relay)/1e3, "ms-relay")
	b.ReportMetric(median(forward)/1e3, "ms-forwarder")
}

// BenchmarkIdle measures what an idle device costs the relay's process: 2 000
// control sockets through a real HTTP server, heap and stacks after collection.
// Their far ends are bare TCP connections whose cost is counted too, so the
// figure is an upper bound.
func BenchmarkIdle(b *testing.B) {
	const devices = 2000
	x := start(b)
	x.auth.mu.Lock()
	for i := range devices {
		id := fmt.Sprint("idle-", i)
		x.auth.devices[id] = access.Device{Owner: owner, MachineID: id, Family: id, ClientID: "autogpt-local-executor", Expires: time.Now().Add(time.Hour)}
		x.auth.machines[id] = access.Machine{ID: id, Owner: owner, Name: id}
	}
	x.auth.mu.Unlock()
	for b.Loop() {
		before := inUse()
		conns := make([]net.Conn, devices)
		for i := range conns {
			conns[i] = bareDevice(b, x, fmt.Sprint("idle-", i))
		}
		until(b, "seen", func() bool { return len(x.srv.tracked()) == devices })
		after := inUse()
		b.ReportMetric(float64(after-before)/devices, "B/device")
		for _, c := range conns {
			_ = c.Close()
		}
		until(b, "gone", func() bool { return len(x.srv.tracked()) == 0 })
	}
}

// inUse is the heap and the stacks that the process uses.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// bareDevice connects and says HELLO with as little memory as it can.
func bareDevice(b *testing.B, x *bench, id string) net.Conn {
	c, err := net.Dial("tcp", x.http.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	hello := helloFor(nil, wire.DirectoryBrowse, wire.Files, wire.HardwareSerial)
	hello.MachineID = id
	f := encode(wire.Message{Type: wire.THello, ID: "h", Payload: hello})
	frame := append([]byte{0x81, 0xfe, byte(len(f.head) >> 8), byte(len(f.head)), 0, 0, 0, 0}, f.head...)
	_, err = fmt.Fprintf(c, "GET /ws/local-executor HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", id)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 4096)
	expect := func(what string) {
		var got []byte
		for !strings.Contains(string(got), what) {
			n, err := c.Read(buf)
			if err != nil {
				b.Fatalf("%v after %q", err, got)
			}
			got = append(got, buf[:n]...)
		}
	}
	expect("\r\n\r\n")
	if _, err := c.Write(frame); err != nil {
		b.Fatal(err)
	}
	expect("HELLO_ACK")
	return c
}
