package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"farhand/shim/shimtest"
	"farhand/wire"
)

// families are all hardware that there is.
var families = wire.Capabilities{wire.HardwareSerial, wire.HardwareUSB, wire.HardwareGPIO, wire.HardwareI2C, wire.HardwareSPI, wire.HardwarePrinter}

// hardware sends an operation over a raw socket.
func hardware(s *shimtest.Socket, device, op, args string) wire.Envelope {
	return s.Call(wire.THardwareOp, map[string]any{"device": device, "op": op, "args": json.RawMessage(args)})
}

// oneWay sends a frame that has no answer.
func oneWay(s *shimtest.Socket, t wire.Type, payload string) {
	s.Raw(fmt.Appendf(nil, `{"type":%q,"id":"one-way","ts":1,"payload":%s}`, t, payload))
}

// plug is a printer's server that comes and goes, so that the list of devices
// changes under the daemon.
type plug struct {
	*httptest.Server
	out   atomic.Bool
	asked atomic.Int64
}

func newPlug(t *testing.T) *plug {
	p := &plug{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		if p.out.Load() {
			http.Error(w, "gone", http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"api":"0.1","server":"1.9.3","text":"OctoPrint 1.9.3"}`)
	}))
	t.Cleanup(p.Close)
	return p
}

// A platform that grants no hardware sees no frame of it, whatever happens on
// the machine and whatever it asks for.
func TestEmulatorSeesNoHardware(t *testing.T) {
	t.Parallel()
	printer := newPlug(t)
	c := newCloud(t)
	b := c.bench()
	b.tables += "[hardware]\nprinters = [\"wall=" + printer.URL + "\"]\nlease_idle_seconds = 0.2\n"
	b.configure()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(c)
	s, _ := p.open("plain")
	for range 3 {
		printer.out.Store(!printer.out.Load())
		for _, x := range []*shimtest.Socket{p.control, s} {
			for _, request := range []wire.Type{wire.THardwareListRequest, wire.THardwareOp, wire.TStreamAttach, wire.TStreamClose, "SERIAL_OPEN", "GPIO_SET"} {
				for _, payload := range []any{nil, map[string]any{"watch": true, "type": "serial"}, map[string]any{"device": chip, "op": wire.OpGPIOWatch, "args": map[string]any{"line": 27}},
					map[string]any{"stream": strings.Repeat("0", 32)}} {
					if e := x.Call(request, payload); e.Type != wire.TError {
						t.Errorf("%s %v is answered with %s %s", request, payload, e.Type, e.Payload)
					}
				}
			}
			oneWay(x, wire.TStreamCredit, `{"stream":"00000000000000000000000000000000","bytes":1000}`)
			oneWay(x, wire.TStreamData, `{"stream":"00000000000000000000000000000000","offset":0,"data":"AA=="}`)
			answer[wire.Empty](t, x.Call(wire.TPing, nil), wire.TPong)
		}
		answer[wire.FileStatResponse](t, s.Call(wire.TFileStat, map[string]any{"path": b.root()}), wire.TFileStatResponse)
	}
	for _, x := range p.sockets() { // the sockets live, and got nothing that they would have dropped them for
		for _, e := range drain(x.Status) {
			if strings.Contains(string(e.Payload), "hardware") || strings.Contains(string(e.Payload), "stream") {
				t.Errorf("STATUS %s", e.Payload)
			}
		}
	}
	for _, r := range b.records() {
		if r.Details["op"] == wire.OpGPIOWatch && r.Result.OK {
			t.Errorf("something was done: %+v", r)
		}
	}
}

// A platform that grants hardware and no streams gets operations, and no watch:
// nothing is left of one that was refused.
func TestEmulatorHardwareWithoutStreams(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.Extensions = families
	b := c.loggedIn()
	p := b.on(c)
	s, _ := p.open("first")
	other, _ := p.open("second")
	b.write(b.root()+"/part.gcode", "G28\n")
	want := map[string]any{"required_capability": "streams"}
	for _, w := range []struct{ device, op, args, after, free string }{
		{chip, wire.OpGPIOWatch, `{"line":27}`, wire.OpGPIOSet, `{"line":27,"value":1,"on_release":"input"}`},
		{chip, wire.OpGPIOWatch, `{"lines":[5,6,12],"edge":"rising"}`, wire.OpGPIOSet, `{"lines":[12,6,5],"value":1,"on_release":"input"}`},
		{echo, wire.OpSerialWatch, `{}`, wire.OpSerialWrite, `{"data":"AA=="}`},
		{"usb:1209:0001-SIM-ECHO", wire.OpUSBWatch, `{"interface":0,"endpoint":"0x81"}`, wire.OpUSBSend, `{"interface":0,"endpoint":1,"data":"AA=="}`},
		{"printer:sim-i3", wire.OpPrinterWatch, `{}`, wire.OpPrinterStatus, `{}`},
		{"printer:sim-i3", wire.OpPrinterUpload, `{"path":"` + b.root() + `/part.gcode"}`, wire.OpPrinterFiles, `{}`},
	} {
		for range 3 {
			emRefused(t, hardware(s, w.device, w.op, w.args), wire.CapabilityNotGranted, want)
		}
		if e := hardware(other, w.device, w.after, w.free); e.Type != wire.THardwareResult {
			t.Errorf("after a refused %s %s gives %s", w.op, w.after, e.Payload)
		}
		hardware(other, w.device, wire.OpRelease, `{}`)
	}
	for _, x := range []*shimtest.Socket{s, p.control} {
		emRefused(t, x.Call(wire.THardwareListRequest, map[string]any{"watch": true}), wire.CapabilityNotGranted, want)
		for _, request := range []wire.Type{wire.TStreamAttach, wire.TStreamClose} {
			emRefused(t, x.Call(request, map[string]any{"stream": strings.Repeat("0", 32)}), wire.CapabilityNotGranted, want)
		}
		answer[wire.HardwareListResponse](t, x.Call(wire.THardwareListRequest, nil), wire.THardwareListResponse)
	}
	for _, r := range b.records() {
		if r.Op == "STREAM_END" && r.Details["bytes_sent"] != 0.0 {
			t.Errorf("a stream flowed: %+v", r)
		}
	}
}

// flow reads a byte stream as it comes over a raw socket.
type flow struct {
	t  *testing.T
	s  *shimtest.Socket
	id string
	at int64 // the next offset
}

// take reads until so many bytes have come, or the end.
func (f *flow) take(n int) (got []byte, end *wire.StreamEnd) {
	f.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for len(got) < n {
		select {
		case d := <-f.s.Streams:
			if d.Stream != f.id || d.Offset != f.at || d.Lost != nil {
				f.t.Fatalf("at %d of %s: %+v", f.at, f.id, d)
			}
			f.at += int64(len(d.Data))
			got = append(got, d.Data...)
			if d.End != nil {
				return got, d.End
			}
		case <-limit.C:
			f.t.Fatalf("%d of %d bytes came", len(got), n)
		}
	}
	return got, nil
}

// nothing checks that nothing came by the time that a later request is answered.
func (f *flow) nothing(why string) {
	f.t.Helper()
	f.s.Call(wire.TPing, nil)
	select {
	case d := <-f.s.Streams:
		f.t.Errorf("%s: %d bytes at %d", why, len(d.Data), d.Offset)
	default:
	}
}

// The frames of streams as they are on the wire: credit to the byte, attaching,
// odd requests, and the end.
func TestEmulatorStreams(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.Extensions = append(wire.Capabilities{wire.Streams}, families...)
	b := c.loggedIn()
	p := b.on(c)
	s, _ := p.open("first")
	other, _ := p.open("second")
	// A write that is larger than a request to the port may be goes in pieces.
	say := func(n int) []byte {
		t.Helper()
		data := make([]byte, n)
		for i := range data {
			data[i] = byte('a' + i%26)
		}
		emObject(t, hardware(s, echo, wire.OpSerialWrite, `{"data":"`+base64.StdEncoding.EncodeToString(data)+`","drain":true}`), wire.THardwareResult)
		return data
	}
	opened := func(e wire.Envelope) string {
		t.Helper()
		return answer[struct{ Result wire.Opened }](t, e, wire.THardwareResult).Result.Stream
	}
	credit := func(id string, n any) { oneWay(s, wire.TStreamCredit, fmt.Sprintf(`{"stream":%q,"bytes":%v}`, id, n)) }

	for _, bad := range []string{`{"credit":-1}`, `{"credit":99999999999}`, `{"credit":"much"}`, `{"credit":16777217}`, `{"from":-1}`, `{"from":1e300}`} {
		if e := hardware(s, echo, wire.OpSerialWatch, bad); e.Type != wire.TError {
			t.Errorf("%s gives %s", bad, e.Payload)
		}
	}
	f := &flow{t: t, s: s, id: opened(hardware(s, echo, wire.OpSerialWatch, `{"credit":10}`))}
	want := say(100)
	got, _ := f.take(10)
	f.nothing("beyond the credit")
	for _, odd := range []string{"-5", "0", "-9223372036854775808"} {
		credit(f.id, odd)
	}
	oneWay(s, wire.TStreamCredit, fmt.Sprintf(`{"stream":%q,"bytes":"x"}`, f.id))
	oneWay(s, wire.TStreamCredit, fmt.Sprintf(`{"stream":%q,"bytes":1e300}`, f.id))
	credit(strings.Repeat("0", 32), 1000)
	credit("", 1000)
	oneWay(other, wire.TStreamCredit, fmt.Sprintf(`{"stream":%q,"bytes":1000}`, f.id))
	f.nothing("after odd credit")
	credit(f.id, 90)
	more, _ := f.take(90)
	if got = append(got, more...); string(got) != string(want) {
		t.Errorf("%q", got)
	}
	// More than there may be: it is cut, and everything comes.
	credit(f.id, 1<<40)
	want = say(40 << 10)
	if got, _ := f.take(len(want)); string(got) != string(want) {
		t.Error("other bytes came")
	}

	// Attached from where the receiver knows; what it had meanwhile comes again.
	attach := func(s *shimtest.Socket, payload string) wire.StreamAttached {
		t.Helper()
		return answer[wire.StreamAttached](t, s.Call(wire.TStreamAttach, json.RawMessage(payload)), wire.TStreamAttached)
	}
	a := attach(s, fmt.Sprintf(`{"stream":%q,"from":%d,"credit":64}`, f.id, f.at-50))
	if a.Next != f.at || a.Oldest != 0 || a.Stream != f.id {
		t.Errorf("%+v at %d", a, f.at)
	}
	f.at -= 50
	if got, _ := f.take(50); string(got) != string(want[len(want)-50:]) {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{`{"stream":%q,"from":-1}`, `{"stream":%q,"from":99999999}`, `{"stream":%q,"credit":-1}`, `{"stream":%q,"credit":99999999}`} {
		emRefused(t, s.Call(wire.TStreamAttach, json.RawMessage(fmt.Sprintf(bad, f.id))), wire.InvalidArgument, nil)
	}
	for _, id := range []string{"", "0", strings.Repeat("0", 32), strings.Repeat("x", 100000), "../../etc"} {
		emRefused(t, s.Call(wire.TStreamAttach, map[string]any{"stream": id}), wire.StreamNotFound, nil)
		emObject(t, s.Call(wire.TStreamClose, map[string]any{"stream": id}), wire.TAck)
	}
	// An attachment that was refused has taken nothing away.
	a = attach(s, fmt.Sprintf(`{"stream":%q,"from":%d,"credit":1000}`, f.id, f.at))
	want = say(10)
	if got, _ := f.take(10); string(got) != string(want) {
		t.Errorf("%q", got)
	}

	// A link that is lost: what came meanwhile is there, to the byte.
	binding := s.Session
	s.Drop()
	next := b.hurry(c)
	if next.Session != binding {
		t.Fatalf("the socket of %q came", next.Session)
	}
	s, f.s = next, next
	want = say(3000) // with nobody attached
	a = attach(s, fmt.Sprintf(`{"stream":%q,"from":%d}`, f.id, f.at))
	if a.Next > f.at+3000 {
		t.Errorf("%+v at %d", a, f.at)
	}
	if got, _ := f.take(3000); string(got) != string(want) {
		t.Error("other bytes came")
	}
	// What the ring can't keep is a gap that is told, and the rest is right.
	a = attach(s, fmt.Sprintf(`{"stream":%q,"from":%d,"credit":1}`, f.id, f.at))
	for range 5 {
		say(64 << 10)
	}
	eventually(t, "what was said", func() error {
		if a = attach(s, fmt.Sprintf(`{"stream":%q,"credit":1}`, f.id)); a.Next < f.at+5*(64<<10) {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	attach(s, fmt.Sprintf(`{"stream":%q,"from":%d,"credit":1048576}`, f.id, f.at))
	var first *wire.StreamGap
	at := f.at
	for at < a.Next {
		d := <-s.Streams
		if first == nil && (d.Lost == nil || d.Lost.From != at) {
			continue // one of the single bytes was still under way
		}
		if first == nil {
			if first = d.Lost; first.To != d.Offset || d.Offset < a.Next-(256<<10) {
				t.Errorf("the gap %+v at %d of %+v", *first, at, a)
			}
			at = d.Offset
		}
		if d.Offset != at {
			t.Fatalf("offset %d at %d", d.Offset, at)
		}
		for i, x := range d.Data {
			if off := (at + int64(i) - f.at) % (64 << 10); x != byte('a'+off%26) {
				t.Fatalf("%q at %d", x, at+int64(i))
			}
		}
		at += int64(len(d.Data))
	}
	if first == nil {
		t.Error("nothing was lost, though more was said than a ring keeps")
	}
	f.at = at

	// Closed: no end comes, and nothing is left.
	emObject(t, s.Call(wire.TStreamClose, map[string]any{"stream": f.id}), wire.TAck, "ok")
	f.nothing("after STREAM_CLOSE")
	emRefused(t, s.Call(wire.TStreamAttach, map[string]any{"stream": f.id}), wire.StreamNotFound, nil)

	// The end is the last frame, and can be fetched again.
	f = &flow{t: t, s: s, id: opened(hardware(s, chip, wire.OpGPIOWatch, `{"line":27}`))}
	hardware(s, chip, wire.OpRelease, `{}`)
	if _, end := f.take(1); end == nil || end.Reason != "released" {
		t.Errorf("ended with %+v", end)
	}
	attach(s, fmt.Sprintf(`{"stream":%q}`, f.id))
	if _, end := f.take(1); end == nil || end.Reason != "released" {
		t.Errorf("ended with %+v", end)
	}
	// The end of a session ends its streams, and nobody else has them.
	id := opened(hardware(s, chip, wire.OpGPIOWatch, `{"line":27}`))
	p.control.Call(wire.TDetachSession, map[string]any{"session_id": "first"})
	emRefused(t, other.Call(wire.TStreamAttach, map[string]any{"stream": id}), wire.StreamNotFound, nil)
	answer[wire.HardwareResult](t, hardware(other, chip, wire.OpGPIOSet, `{"line":27,"value":0}`), wire.THardwareResult)

	// A daemon that is told to stop says so before its sockets close.
	f = &flow{t: t, s: other, id: opened(hardware(other, chip, wire.OpGPIOWatch, `{"line":23}`))}
	b.daemon.signal(syscall.SIGTERM)
	if _, end := f.take(1); end == nil || end.Reason != "daemon_stopping" {
		t.Errorf("ended with %+v", end)
	}
}
