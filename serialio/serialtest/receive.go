package serialtest

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"farhand/serialio"
	"farhand/wire"
)

// received waits until so many bytes have come, whoever reads them.
func received(t *testing.T, p *serialio.Port, n int64) {
	t.Helper()
	until(t, "bytes to come", func() bool {
		_, next := p.Offsets()
		return next >= n
	})
}

// until asks again and again.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(patience); !ok(); <-again.C {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// testKept is about what comes while nobody reads: it is there later, for a
// Read and for whoever follows, with the same offsets.
func testKept(t *testing.T, l Line) {
	p := l.open(t)
	<-l.send(t, []byte("first|second|"))
	received(t, p, 13)
	r := read(t, p, serialio.ReadOptions{Size: 100, Until: []byte("|"), Timeout: patience})
	want(t, r, "first|", serialio.StopUntil)
	if r.Offset != 0 || r.Lost != 0 || r.Waiting != 7 {
		t.Errorf("it begins at %d, %d are lost, %d wait", r.Offset, r.Lost, r.Waiting)
	}
	r = read(t, p, serialio.ReadOptions{Size: 7, Timeout: patience})
	want(t, r, "second|", serialio.StopSize)
	if r.Offset != 6 {
		t.Errorf("the next begins at %d", r.Offset)
	}
	// What was read is there all the same for who follows.
	b := make([]byte, 64)
	if n, lost, err := p.Follow(t.Context(), 3, b); err != nil || lost != 0 || string(b[:n]) != "st|second|" {
		t.Errorf("followed from 3: %q, %d lost, %v", b[:n], lost, err)
	}
	next := make(chan string)
	go func() {
		n, _, err := p.Follow(t.Context(), 13, b)
		if err != nil {
			t.Error(err)
		}
		next <- string(b[:n])
	}()
	l.send(t, []byte("3"))
	if got := <-next; got != "3" {
		t.Errorf("followed from the end: %q", got)
	}
}

// testLost sends more than is kept while nobody reads: the far end is never
// held up, and what is gone is counted.
func testLost(t *testing.T, l Line) {
	p := l.open(t)
	all := pattern(3*serialio.RingSize + 1234)
	<-l.send(t, all)
	received(t, p, int64(len(all)))
	oldest, next := p.Offsets()
	if kept := next - oldest; next != int64(len(all)) || kept > serialio.RingSize || kept < serialio.RingSize-4096 {
		t.Errorf("after %d bytes it has %d to %d", len(all), oldest, next)
	}
	r := read(t, p, serialio.ReadOptions{Size: 100, Timeout: patience})
	if r.Lost != oldest || r.Offset != oldest || !bytes.Equal(r.Data, all[oldest:oldest+100]) {
		t.Errorf("read from %d, %d are lost", r.Offset, r.Lost)
	}
	b := make([]byte, 10)
	n, lost, err := p.Follow(t.Context(), 5, b)
	if err != nil || lost != oldest-5 || !bytes.Equal(b[:n], all[oldest:oldest+10]) {
		t.Errorf("followed from 5: %d bytes are lost, %v", lost, err)
	}
	r = read(t, p, serialio.ReadOptions{Size: len(all), Timeout: 50 * time.Millisecond})
	if !bytes.Equal(r.Data, all[oldest+100:]) || r.Lost != 0 {
		t.Errorf("the rest has %d bytes, %d are lost", len(r.Data), r.Lost)
	}
}

func testPatterns(t *testing.T, l Line) {
	p := l.open(t)
	for _, c := range []struct {
		sent     string
		patterns wire.SerialPatterns
		data     string
		index    int
		captures []string // "-": none
	}{
		{"login: ", wire.SerialPatterns{{Text: "# "}, {Text: "login: "}}, "login: ", 1, []string{"login: "}},
		{"x=12;y=3;", wire.SerialPatterns{{Regexp: `(?P<name>[a-z])=(\d+)(!)?;`}}, "x=12;", 0, []string{"x=12;", "x", "12", "-"}},
		{"ERROR later OK", wire.SerialPatterns{{Text: "OK"}, {Data: []byte("ERROR")}}, "ERROR", 1, []string{"ERROR"}}, // what begins first
		{"abc", wire.SerialPatterns{{Text: "ab"}, {Text: "abc"}}, "ab", 0, []string{"ab"}},                            // then what is listed first
		{"\x00\xff\xfe>", wire.SerialPatterns{{Data: []byte{0xff, 0xfe}}}, "\x00\xff\xfe", 0, []string{"\xff\xfe"}},
		{"\xff7\n", wire.SerialPatterns{{Regexp: `.(\d)\n`}}, "\xff7\n", 0, []string{"\xff7\n", "7"}},
	} {
		if err := p.FlushInput(t.Context()); err != nil {
			t.Fatal(err)
		}
		compiled, err := serialio.CompilePatterns("expect", c.patterns)
		if err != nil {
			t.Fatal(err)
		}
		_, at := p.Offsets()
		<-l.send(t, []byte(c.sent))
		received(t, p, at+int64(len(c.sent)))
		r := read(t, p, serialio.ReadOptions{Size: 1000, Expect: compiled, Timeout: patience})
		want(t, r, c.data, serialio.StopMatch)
		if r.Match == nil || r.Match.Pattern != c.index || len(r.Match.Captures) != len(c.captures) {
			t.Errorf("%q: the match is %+v", c.sent, r.Match)
			continue
		}
		for i, w := range c.captures {
			if got := r.Match.Captures[i]; string(got) != w && !(w == "-" && got == nil) {
				t.Errorf("%q: group %d is %q, want %q", c.sent, i, got, w)
			}
		}
		if c.index == 0 && c.patterns[0].Regexp != "" && strings.Contains(c.patterns[0].Regexp, "name") && string(r.Match.Named["name"]) != "x" {
			t.Errorf("the named group is %q", r.Match.Named)
		}
	}
	// Bytes that trickle in match once they are complete.
	if err := p.FlushInput(t.Context()); err != nil {
		t.Fatal(err)
	}
	compiled, err := serialio.CompilePatterns("expect", wire.SerialPatterns{{Regexp: `T:\d+\.\d+ `}})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan serialio.ReadResult)
	go func() {
		r, err := p.Read(t.Context(), serialio.ReadOptions{Size: 1000, Expect: compiled, Timeout: patience})
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	for _, part := range []string{"ok\nT", ":2", "1.", "5", " /"} {
		<-l.send(t, []byte(part))
	}
	want(t, <-got, "ok\nT:21.5 ", serialio.StopMatch)
}

// testOpened is about what opening says it did to the board. Field case 8.
func testOpened(t *testing.T, l Line) {
	p := l.open(t)
	first := p.Opened()
	closed(t, p)
	if !l.ModemLines {
		if first.Reset != serialio.ResetNone {
			t.Errorf("opening a port without modem lines says %+v", first)
		}
		_, err := serialio.OpenWith(t.Context(), l.Node, serialio.DefaultMode(), serialio.ResetPulse)
		lacks(t, "a reset", err)
		quiet, err := serialio.OpenWith(t.Context(), l.Node, serialio.DefaultMode(), serialio.ResetAvoid)
		if err != nil {
			t.Fatal(err)
		}
		closed(t, quiet)
		return
	}
	if first.Reset != serialio.ResetPossible || first.Note == "" {
		t.Errorf("the first open after plugging in says %+v", first)
	}
	p = l.open(t)
	if again := p.Opened(); again.Reset != serialio.ResetUnlikely {
		t.Errorf("the second says %+v", again)
	}
	l.up(t, p, true)
	closed(t, p)

	quiet, err := serialio.OpenWith(t.Context(), l.Node, serialio.DefaultMode(), serialio.ResetAvoid)
	if err != nil {
		t.Fatal(err)
	}
	l.up(t, quiet, false)
	closed(t, quiet)
	p = l.open(t)
	if after := p.Opened(); after.Reset != serialio.ResetPossible {
		t.Errorf("after the lines were left low it says %+v", after)
	}
	l.up(t, p, true)
	closed(t, p)

	began := time.Now()
	reset, err := serialio.OpenWith(t.Context(), l.Node, serialio.DefaultMode(), serialio.ResetPulse)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*time.Second || reset.Opened().Reset != serialio.ResetDone {
		t.Errorf("the reset took %v and says %+v", took, reset.Opened())
	}
	l.up(t, reset, true)
	closed(t, reset)
}

// testExtras is about settings that few drivers have: they are set, or said
// not to be there, and then the port still works.
func testExtras(t *testing.T, l Line) {
	p := l.open(t)
	m := serialio.DefaultMode()
	m.LowLatency = true
	switch err := p.SetMode(m); {
	case err == nil:
		if !p.LowLatency() {
			t.Error("low latency was set and isn't there")
		}
		if err := p.SetMode(serialio.DefaultMode()); err != nil || p.LowLatency() {
			t.Errorf("it can't be taken back: %v", err)
		}
	default:
		lacks(t, "low latency", err)
	}
	m = serialio.DefaultMode()
	m.RS485 = serialio.RS485{Asked: true, Enabled: true, RTSOnSend: true, DelayAfter: 1}
	_, has := p.RS485()
	switch err := p.SetMode(m); {
	case err == nil:
		if r, ok := p.RS485(); !ok || !r.Enabled {
			t.Errorf("RS-485 was set and is %+v", r)
		}
	case has:
		t.Error(err)
	default:
		lacks(t, "RS-485", err)
	}
	if err := p.SetMode(serialio.DefaultMode()); err != nil {
		t.Fatal(err)
	}
	l.send(t, []byte("ok"))
	want(t, read(t, p, serialio.ReadOptions{Size: 2, Timeout: patience}), "ok", serialio.StopSize)
}

func testBadPatterns(t *testing.T, l Line) {
	for _, bad := range []wire.SerialPattern{
		{}, {Text: "a", Regexp: "a"}, {Text: "a", Data: []byte("a")}, {Regexp: "("}, {Regexp: "a*"}, {Regexp: `(?:(?:a{100}){100}){100}`},
		{Text: strings.Repeat("x", serialio.MaxPattern+1)},
	} {
		_, err := serialio.CompilePatterns("expect", wire.SerialPatterns{bad})
		if !errors.Is(err, wire.InvalidArgument) {
			t.Errorf("%.60v is answered by %v", bad, err)
		}
	}
	if _, err := serialio.CompilePatterns("expect", make(wire.SerialPatterns, serialio.MaxPatterns+1)); !errors.Is(err, wire.InvalidArgument) {
		t.Errorf("too many patterns are answered by %v", err)
	}
}
