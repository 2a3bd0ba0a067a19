package serialtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"farhand/internal/testenv"
	"farhand/serialio"
	"farhand/stream"
	"farhand/wire"
)

// receiver is who gets a stream.
type receiver struct {
	ctx context.Context

	mu     sync.Mutex
	data   []byte
	pieces []wire.StreamData
	lost   int64
	end    string
}

func (r *receiver) Request() string          { return "watch" }
func (r *receiver) Context() context.Context { return r.ctx }

func (r *receiver) Send(_ context.Context, _ string, d wire.StreamData) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = append(r.data, d.Data...)
	r.pieces = append(r.pieces, d)
	if d.Lost != nil {
		r.lost += d.Lost.To - d.Lost.From
	}
	if d.End != nil {
		r.end = d.End.Reason
	}
	return nil
}

func (r *receiver) got() (data string, lost int64, end string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.data), r.lost, r.end
}

// agrees asserts that every piece is what was sent at its offset.
func (r *receiver) agrees(t *testing.T, sent []byte) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	at := int64(0)
	for _, d := range r.pieces {
		if d.Lost != nil {
			if d.Lost.From != at || d.Lost.To != d.Offset {
				t.Errorf("after %d the stream lost %+v before %d", at, *d.Lost, d.Offset)
			}
			at = d.Lost.To
		}
		if d.Offset != at || !bytes.Equal(d.Data, sent[at:at+int64(len(d.Data))]) {
			t.Errorf("at %d the stream has %d bytes that are not what was sent, or are of %d", at, len(d.Data), d.Offset)
		}
		at += int64(len(d.Data))
	}
}

func (r *receiver) wants(t *testing.T, want string) {
	t.Helper()
	until(t, "the stream to have "+want, func() bool {
		data, _, end := r.got()
		return len(data) >= len(want) || end != ""
	})
	if data, _, end := r.got(); data != want {
		t.Errorf("the stream has %.60q, want %.60q (end %q)", data, want, end)
	}
}

func (r *receiver) ends(t *testing.T, reason string) {
	t.Helper()
	until(t, "the stream to end", func() bool { _, _, end := r.got(); return end != "" })
	if _, _, end := r.got(); end != reason {
		t.Errorf("the stream ended by %q, want %q", end, reason)
	}
}

func (d *desk) watch(t *testing.T, session string, a wire.SerialWatch) (wire.SerialWatching, *receiver) {
	t.Helper()
	r, tr, err := d.try(t, session, wire.OpSerialWatch, a, false)
	w := must[wire.SerialWatching](t, r, tr, err)
	out := &receiver{ctx: t.Context()}
	d.hub.Begin(w.Stream, out)
	return w, out
}

func from(n int64) *int64 { return &n }

// testWatch is about a stream and reads of one port: both see every byte.
// Field case 12: a write says where the answer begins.
func testWatch(t *testing.T, l Line) {
	d := l.desk(t)
	d.write(t, "a", "hello", nil, true)
	d.far(t, "hello")
	<-d.send(t, []byte("before|"))
	r, tr, err := d.try(t, "a", wire.OpSerialRead, wire.SerialRead{Until: []byte("|"), TimeoutSeconds: seconds(5)}, false)
	if data := must[wire.SerialData](t, r, tr, err); string(data.Data) != "before|" || data.Offset != 0 {
		t.Errorf("read %+v", data)
	}
	w, now := d.watch(t, "a", wire.SerialWatch{})
	if w.Start != 7 || w.Offset != 7 || w.Oldest != 0 {
		t.Errorf("watching: %+v", w)
	}
	r, tr, err = d.try(t, "a", wire.OpSerialWrite, wire.SerialWrite{Data: []byte("?")}, false)
	written := must[wire.SerialWritten](t, r, tr, err)
	if written.Offset != 7 {
		t.Errorf("the answer begins at %d", written.Offset)
	}
	d.far(t, "?")
	<-d.send(t, []byte("answer"))
	now.wants(t, "answer")
	r, tr, err = d.try(t, "a", wire.OpSerialRead, wire.SerialRead{Size: 6, TimeoutSeconds: seconds(5)}, false)
	if data := must[wire.SerialData](t, r, tr, err); string(data.Data) != "answer" || data.Offset != 7 {
		t.Errorf("beside the stream it read %+v", data)
	}
	_, replay := d.watch(t, "a", wire.SerialWatch{From: from(written.Offset)})
	replay.wants(t, "answer")
	_, all := d.watch(t, "a", wire.SerialWatch{From: from(0)})
	all.wants(t, "before|answer")
	_, _, err = d.try(t, "a", wire.OpSerialWatch, wire.SerialWatch{From: from(1000)}, false)
	if e := wire.AsError(err); e.Code != wire.InvalidArgument || e.Details["next"] != int64(13) {
		t.Errorf("watching from beyond the end answers %v %v", err, e.Details)
	}
	if _, _, err := d.try(t, "b", wire.OpSerialRead, wire.SerialRead{}, false); !errors.Is(err, wire.HardwareBusy) {
		t.Errorf("another session is answered %v", err)
	}
	if _, _, err := d.try(t, "a", wire.OpRelease, nil, false); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*receiver{now, replay, all} {
		r.ends(t, stream.ReasonReleased)
	}
}

// testWatchKeeps is a session that does nothing but watch: it has the port, and
// its mode, until the stream is closed.
func testWatchKeeps(t *testing.T, l Line) {
	d := l.desk(t)
	rate := 9600
	w, out := d.watch(t, "a", wire.SerialWatch{Mode: &wire.SerialMode{Baudrate: &rate}})
	if w.Port == nil {
		t.Error("the stream doesn't say what opening did")
	}
	if b := d.baud(t, "a", false); !near(b, rate) {
		t.Errorf("beside the stream the port has %d baud", b)
	}
	if _, _, err := d.try(t, "b", wire.OpSerialRead, wire.SerialRead{}, false); !errors.Is(err, wire.HardwareBusy) {
		t.Errorf("another session is answered %v", err)
	}
	<-d.send(t, []byte("on"))
	out.wants(t, "on")
	d.hub.CloseStream(w.Stream, stream.Owner{Session: "a"})
	until(t, "the port to be free", func() bool { return len(d.leases.List()) == 0 })
	r, tr, err := d.try(t, "b", wire.OpSerialControl, wire.SerialControl{Mode: &wire.SerialMode{}}, false)
	must[wire.SerialLines](t, r, tr, err)
}

// testWatchSlow is a receiver that gives no more credit: neither the port nor
// another receiver waits for it, and what it lost is an explicit gap.
func testWatchSlow(t *testing.T, l Line) {
	d := l.desk(t)
	slow, stuck := d.watch(t, "a", wire.SerialWatch{Credit: 100})
	_, out := d.watch(t, "a", wire.SerialWatch{Credit: wire.MaxStreamCredit})
	all := pattern(1 << 20)
	<-d.send(t, all)
	until(t, "all to come", func() bool {
		data, lost, _ := out.got()
		return len(data)+int(lost) >= len(all)
	})
	until(t, "the slow one to get its credit", func() bool { data, _, _ := stuck.got(); return len(data) >= 100 })
	if data, lost, _ := stuck.got(); len(data) != 100 || lost != 0 || data != string(all[:100]) {
		t.Errorf("with 100 bytes of credit it got %d, %d lost", len(data), lost)
	}
	d.hub.Credit(wire.StreamCredit{Stream: slow.Stream, Bytes: 2 << 20}, stream.Owner{Session: "a"})
	until(t, "the slow one to catch up", func() bool {
		data, lost, _ := stuck.got()
		return len(data)+int(lost) >= len(all)
	})
	data, lost, _ := stuck.got()
	if len(data)+int(lost) != len(all) || lost == 0 {
		t.Errorf("it got %d bytes and lost %d of %d", len(data), lost, len(all))
	}
	stuck.agrees(t, all)
	out.agrees(t, all)
}

// testWatchUnplugged is field cases 1 and 11: the stream says why it ended, the
// lease is over, and after the replug the same id is there with a new
// generation.
func testWatchUnplugged(t *testing.T, l Line) {
	testenv.Need(t, "unplug", l.Unplug != nil, "this line can't be unplugged")
	d := l.desk(t)
	_, out := d.watch(t, "a", wire.SerialWatch{})
	<-d.send(t, []byte("last words"))
	out.wants(t, "last words")
	l.Unplug()
	out.ends(t, stream.ReasonGone)
	if err := d.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the lease to end", func() bool { return len(d.leases.List()) == 0 })
	if _, _, err := d.try(t, "a", wire.OpSerialRead, wire.SerialRead{}, false); !errors.Is(err, wire.HardwareNotFound) {
		t.Errorf("an operation after it answers %v", err)
	}
	l.Replug()
	if err := d.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.reg.Resolve(l.ID); err != nil {
		t.Fatal(err)
	}
	d.watch(t, "b", wire.SerialWatch{})
	if desc, err := d.reg.Resolve(l.ID); err != nil || desc.Generation != 2 {
		t.Errorf("after the replug: generation %d, %v", desc.Generation, err)
	}
}

// testWatchEnds is about the ends that the caller's side brings.
func testWatchEnds(t *testing.T, l Line) {
	d := l.desk(t)
	_, out := d.watch(t, "a", wire.SerialWatch{})
	if err := d.leases.ReleaseAll(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	out.ends(t, stream.ReasonSessionEnded)
	for range serialio.MaxWatches {
		d.watch(t, "a", wire.SerialWatch{})
	}
	if _, _, err := d.try(t, "a", wire.OpSerialWatch, wire.SerialWatch{}, false); !errors.Is(err, wire.ShimOverloaded) {
		t.Errorf("one stream too many answers %v", err)
	}
	_, last := d.watchOnly(t)
	if err := d.leases.Close(); err != nil {
		t.Fatal(err)
	}
	last.ends(t, stream.ReasonStopping)
}

// watchOnly is a watch of a session that has no other.
func (d *desk) watchOnly(t *testing.T) (wire.SerialWatching, *receiver) {
	t.Helper()
	if err := d.leases.ReleaseAll(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	return d.watch(t, "a", wire.SerialWatch{})
}

// play answers at the far end: what comes, then what is sent for it.
func (d *desk) play(t *testing.T, script ...string) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; i < len(script); i += 2 {
			d.far(t, script[i])
			<-d.send(t, []byte(script[i+1]))
		}
	}()
	t.Cleanup(func() { <-done })
	return done
}

// testExpect is field case 12: write, read and wait are one set.
func testExpect(t *testing.T, l Line) {
	d := l.desk(t)
	d.play(t, "\n", "\r\nboard login: ", "root\n", "root\r\nPassword: ", "secret\n", "\r\nWelcome\r\n# ", "uptime\n", "uptime\r\n up 12 min, load 0.5\r\n# ")
	r, tr, err := d.try(t, "a", wire.OpSerialExpect, json.RawMessage(`{"steps":[
		{"send_text":"\n","expect":"login: "},
		{"send":"cm9vdAo=","expect":[{"text":"# ","name":"in"},{"text":"assword: ","name":"asked"}]},
		{"send_text":"secret\n","expect":["incorrect",{"regexp":"[#$] $","name":"shell"}]},
		{"send_text":"uptime\n","expect":{"regexp":"up (?P<minutes>\\d+) min.*\\r\\n# "}}]}`), false)
	got := must[wire.SerialExpected](t, r, tr, err)
	if !got.Complete || got.StopReason != serialio.StopDone || len(got.Steps) != 4 || got.BytesWritten != 20 || tr.BytesOut != 20 {
		t.Fatalf("the dialogue: %+v, traced %+v", got, tr)
	}
	for i, name := range []string{"", "asked", "shell", ""} {
		s := got.Steps[i]
		if s.StopReason != serialio.StopMatch || s.Match == nil || s.Match.Name != name || s.BytesSeen < len(s.Data) {
			t.Errorf("step %d: %+v", i, s)
		}
	}
	if s := got.Steps[0]; string(s.Data) != "\r\nboard login: " || s.Offset != 0 {
		t.Errorf("the first step got %q from %d", s.Data, s.Offset)
	}
	if m := got.Steps[3].Match; string(m.Named["minutes"]) != "12" || string(m.Captures[1]) != "12" {
		t.Errorf("the last match is %+v", m)
	}
	if total := len(got.Steps[0].Data) + len(got.Steps[1].Data) + len(got.Steps[2].Data) + len(got.Steps[3].Data); total != got.BytesSeen || got.Offset != int64(total) || tr.BytesIn != total {
		t.Errorf("%d bytes, said %+v, traced %+v", total, got, tr)
	}
}

func testExpectStops(t *testing.T, l Line) {
	d := l.desk(t)
	d.play(t, "AT\r", "\r\nERROR\r\n")
	r, tr, err := d.try(t, "a", wire.OpSerialExpect, json.RawMessage(`{"steps":[
		{"send_text":"AT\r","expect":["OK",{"text":"ERROR\r\n","stop":true}]},{"send_text":"never"}]}`), true)
	if got := must[wire.SerialExpected](t, r, tr, err); got.Complete || got.StopReason != serialio.StopStop || len(got.Steps) != 1 || got.BytesWritten != 3 {
		t.Errorf("after a pattern with stop: %+v", got)
	}
	<-d.send(t, []byte("some"))
	began := time.Now()
	r, tr, err = d.try(t, "a", wire.OpSerialExpect, json.RawMessage(`{"steps":[{"expect":"other","timeout_seconds":0.2},{"send_text":"never"}]}`), false)
	got := must[wire.SerialExpected](t, r, tr, err)
	if got.Complete || got.StopReason != serialio.StopTimeout || len(got.Steps) != 1 || string(got.Steps[0].Data) != "some" || got.Steps[0].Match != nil {
		t.Errorf("without an answer: %+v", got)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > patience/2 {
		t.Errorf("a step of 0.2 s took %v", took)
	}
	began = time.Now()
	r, tr, err = d.try(t, "a", wire.OpSerialExpect, json.RawMessage(`{"timeout_seconds":0.2,"steps":[{"expect":"other","timeout_seconds":20}]}`), false)
	if got := must[wire.SerialExpected](t, r, tr, err); got.StopReason != serialio.StopTimeout || time.Since(began) > patience/2 {
		t.Errorf("with 0.2 s in all: %+v after %v", got, time.Since(began))
	}
	<-d.send(t, []byte("0123456789"))
	r, tr, err = d.try(t, "a", wire.OpSerialExpect, json.RawMessage(`{"steps":[{"expect":"x","size":4},{"expect":"9"}]}`), false)
	if got := must[wire.SerialExpected](t, r, tr, err); got.StopReason != serialio.StopSize || string(got.Steps[0].Data) != "0123" {
		t.Errorf("with 4 bytes at most: %+v", got)
	}
	// The rest waits for who comes next.
	r, tr, err = d.try(t, "a", wire.OpSerialTransact, json.RawMessage(`{"data":"Pw==","expect":{"regexp":"(8)9"},"timeout_seconds":5}`), false)
	data := must[wire.SerialData](t, r, tr, err)
	if string(data.Data) != "456789" || data.StopReason != serialio.StopMatch || data.Match == nil || string(data.Match.Captures[1]) != "8" {
		t.Errorf("SERIAL_TRANSACT with expect: %+v", data)
	}
	d.far(t, "?")
	r, tr, err = d.try(t, "a", wire.OpSerialExpect, json.RawMessage(`{"steps":[{"send_text":"bye"}],"flush":true}`), false)
	if got := must[wire.SerialExpected](t, r, tr, err); !got.Complete || got.Steps[0].StopReason != serialio.StopSent {
		t.Errorf("a step that only sends: %+v", got)
	}
	d.far(t, "bye")
}
