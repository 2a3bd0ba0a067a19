// Package serialtest is the conformance suite of serial ports: what goes in at
// one end comes out at the other, every wait ends, and failures say what they
// are. The simulated instruments and the real driver pass the same cases.
package serialtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/serialio"
	"farhand/serialio/termios"
	"farhand/wire"
)

// Line is a serial port under test, with its far end in the test's hand.
type Line struct {
	Family device.Family
	ID     string
	Node   string // what Family's driver says is to be opened
	// Far is the other end of the wire. Its writes may block while nobody
	// reads here.
	Far io.ReadWriter
	// ModemLines says whether there are any; if not, the suite asserts that
	// this is said.
	ModemLines bool
	// Unplug takes the port away, Replug brings it back, with the same id, for
	// a far end that need not be Far. nil where the test can't.
	Unplug, Replug func()
}

const patience = 10 * time.Second

// Run runs the suite; open makes a fresh line for each case and cleans up after
// itself with t.Cleanup. only are the cases to run: none means all, which is
// too long for a line that is slow to make.
func Run(t *testing.T, open func(t testing.TB) Line, only ...string) {
	ran := 0
	for _, c := range []struct {
		name string
		run  func(*testing.T, Line)
	}{
		{"BigTransfer", testBigTransfer},
		{"Until", testUntil},
		{"UntilAcrossBorders", testUntilAcrossBorders},
		{"Size", testSize},
		{"Timeout", testTimeout},
		{"AtOnce", testAtOnce},
		{"CancelRead", testCancelRead},
		{"CancelWrite", testCancelWrite},
		{"WriteTimeout", testWriteTimeout},
		{"CloseWhileReading", testCloseWhileReading},
		{"CloseWhileWriting", testCloseWhileWriting},
		{"AfterClose", testAfterClose},
		{"Flush", testFlush},
		{"Drain", testDrain},
		{"Exclusive", testExclusive},
		{"OddBaud", testOddBaud},
		{"Modes", testModes},
		{"ModemLines", testModemLines},
		{"BinaryClean", testBinaryClean},
		{"HighDescriptor", testHighDescriptor},
		{"UnplugWhileReading", testUnplugWhileReading},
		{"UnplugWhileWriting", testUnplugWhileWriting},
		{"Kept", testKept},
		{"Lost", testLost},
		{"Patterns", testPatterns},
		{"BadPatterns", testBadPatterns},
		{"Opened", testOpened},
		{"Extras", testExtras},
		{"Operations", testOperations},
		{"ModeLastsAsLongAsTheLease", testModeAndLease},
		{"NothingIsLostBetweenOperations", testNothingLost},
		{"TakenOver", testTakenOver},
		{"UnplugDuringOperation", testUnplugDuringOperation},
		{"RefusedArguments", testRefusedArguments},
		{"Expect", testExpect},
		{"ExpectStops", testExpectStops},
		{"Watch", testWatch},
		{"WatchKeepsThePort", testWatchKeeps},
		{"WatchSlowly", testWatchSlow},
		{"WatchUnplugged", testWatchUnplugged},
		{"WatchEnds", testWatchEnds},
	} {
		if len(only) > 0 && !slices.Contains(only, c.name) {
			continue
		}
		ran++
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			c.run(t, open(t))
		})
	}
	if ran == 0 || len(only) > 0 && ran != len(only) {
		t.Errorf("%d cases were run of %q", ran, only)
	}
}

// open opens the port in its default mode.
func (l Line) open(t *testing.T) *serialio.Port {
	t.Helper()
	p, err := serialio.Open(l.Node, serialio.DefaultMode())
	// A driver may show a port's node a moment before it lets it be opened.
	for until := time.Now().Add(patience); errors.Is(err, wire.DeviceGone) && time.Now().Before(until); {
		t.Logf("opened too early: %v %v", err, wire.AsError(err).Details)
		<-time.After(20 * time.Millisecond)
		p, err = serialio.Open(l.Node, serialio.DefaultMode())
	}
	if err != nil {
		t.Fatal(err, wire.AsError(err).Details)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// send writes from the far end without waiting for it to be read.
func (l Line) send(t *testing.T, data []byte) (sent chan struct{}) {
	sent = make(chan struct{})
	t.Cleanup(func() {
		select {
		case <-sent:
		case <-time.After(patience):
			t.Error("the far end could not send")
		}
	})
	go func() {
		defer close(sent)
		if _, err := l.Far.Write(data); err != nil {
			t.Errorf("sending from the far end: %v", err)
		}
	}()
	return sent
}

func read(t *testing.T, p *serialio.Port, o serialio.ReadOptions) serialio.ReadResult {
	t.Helper()
	r, err := p.Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func want(t *testing.T, r serialio.ReadResult, data, stop string) {
	t.Helper()
	if string(r.Data) != data || r.Stop != stop {
		t.Errorf("read %.60q (%s), want %.60q (%s)", r.Data, r.Stop, data, stop)
	}
}

// pattern is n bytes of which every value occurs and none repeats soon.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

func testBigTransfer(t *testing.T, l Line) {
	p := l.open(t)
	data := pattern(1 << 20)
	got := make(chan []byte)
	go func() {
		b := make([]byte, len(data))
		_, err := io.ReadFull(l.Far, b)
		if err != nil {
			t.Errorf("the far end: %v", err)
		}
		got <- b
	}()
	n, err := p.Write(t.Context(), data, patience)
	if err != nil || n != len(data) {
		t.Fatalf("wrote %d of %d: %v", n, len(data), err)
	}
	if !bytes.Equal(<-got, data) {
		t.Error("what came out there differs from what went in here")
	}
	l.send(t, data)
	r := read(t, p, serialio.ReadOptions{Size: len(data), Timeout: patience})
	if !bytes.Equal(r.Data, data) || r.Stop != serialio.StopSize {
		t.Errorf("read %d bytes (%s), or others than were sent", len(r.Data), r.Stop)
	}
}

func testUntil(t *testing.T, l Line) {
	p := l.open(t)
	l.send(t, []byte("one\r\ntwo\r\nthree"))
	until := serialio.ReadOptions{Size: 100, Until: []byte("\r\n"), Timeout: patience}
	want(t, read(t, p, until), "one\r\n", serialio.StopUntil)
	want(t, read(t, p, until), "two\r\n", serialio.StopUntil)
	want(t, read(t, p, serialio.ReadOptions{Size: 5, Timeout: patience}), "three", serialio.StopSize)
}

func testUntilAcrossBorders(t *testing.T, l Line) {
	p := l.open(t)
	// The pattern lies across what a terminal hands out at once (4095, 4096
	// bytes) and across what the far end sends at once.
	for _, before := range []int{0, 1, 4093, 4094, 4095, 4096, 8191} {
		body := append(bytes.Repeat([]byte("x"), before), "<end>tail"...)
		l.send(t, body)
		r := read(t, p, serialio.ReadOptions{Size: 1 << 16, Until: []byte("<end>"), Timeout: patience})
		want(t, r, string(body[:before+5]), serialio.StopUntil)
		if r.Seen < len(r.Data) {
			t.Errorf("saw %d bytes and returned %d", r.Seen, len(r.Data))
		}
		want(t, read(t, p, serialio.ReadOptions{Size: 4, Timeout: patience}), "tail", serialio.StopSize)
	}
	sent := l.send(t, []byte("<e"))
	<-sent
	l.send(t, []byte("nd>"))
	want(t, read(t, p, serialio.ReadOptions{Size: 100, Until: []byte("<end>"), Timeout: patience}), "<end>", serialio.StopUntil)
}

func testSize(t *testing.T, l Line) {
	p := l.open(t)
	l.send(t, []byte("0123456789\n"))
	// The limit comes before the pattern.
	want(t, read(t, p, serialio.ReadOptions{Size: 4, Until: []byte("\n"), Timeout: patience}), "0123", serialio.StopSize)
	want(t, read(t, p, serialio.ReadOptions{Size: 100, Until: []byte("\n"), Timeout: patience}), "456789\n", serialio.StopUntil)
}

func testTimeout(t *testing.T, l Line) {
	p := l.open(t)
	began := time.Now()
	want(t, read(t, p, serialio.ReadOptions{Size: 10, Timeout: 50 * time.Millisecond}), "", serialio.StopTimeout)
	if took := time.Since(began); took < 50*time.Millisecond || took > patience {
		t.Errorf("a timeout of 50ms took %v", took)
	}
	<-l.send(t, []byte("part"))
	want(t, read(t, p, serialio.ReadOptions{Size: 10, Until: []byte("\n"), Timeout: 200 * time.Millisecond}), "part", serialio.StopTimeout)
}

func testAtOnce(t *testing.T, l Line) {
	p := l.open(t)
	want(t, read(t, p, serialio.ReadOptions{Size: 10}), "", serialio.StopTimeout)
	l.send(t, []byte("abc|def"))
	// What came with the pattern is there already.
	want(t, read(t, p, serialio.ReadOptions{Size: 10, Until: []byte("|"), Timeout: patience}), "abc|", serialio.StopUntil)
	var rest []byte
	for deadline := time.Now().Add(patience); len(rest) < 3 && time.Now().Before(deadline); {
		r := read(t, p, serialio.ReadOptions{Size: 10})
		rest = append(rest, r.Data...)
	}
	if string(rest) != "def" {
		t.Errorf("read %q", rest)
	}
}

func testCancelRead(t *testing.T, l Line) {
	p := l.open(t)
	<-l.send(t, []byte("part"))
	why := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := p.Read(ctx, serialio.ReadOptions{Size: 10, Until: []byte("\n"), Timeout: patience})
		failed <- err
	}()
	cancel(why)
	if err := within(t, failed); !errors.Is(err, why) {
		t.Errorf("a cancelled read answers %v", err)
	}
	// Nothing of it is lost.
	want(t, read(t, p, serialio.ReadOptions{Size: 4, Timeout: patience}), "part", serialio.StopSize)
}

// stuck writes until nobody takes any more, and answers what became of that.
func stuck(ctx context.Context, p *serialio.Port, timeout time.Duration) chan error {
	failed := make(chan error, 1)
	go func() {
		n, err := p.Write(ctx, make([]byte, 1<<20), timeout)
		if n == 1<<20 {
			err = errors.New("the far end took a megabyte that nobody read")
		}
		failed <- err
	}()
	return failed
}

func testCancelWrite(t *testing.T, l Line) {
	p := l.open(t)
	why := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		for { // there are far ends that take all there is
			if _, err := p.Write(ctx, make([]byte, 1<<20), patience); err != nil {
				failed <- err
				return
			}
		}
	}()
	l.first(t)
	cancel(why)
	if err := within(t, failed); !errors.Is(err, why) {
		t.Errorf("a cancelled write answers %v", err)
	}
}

// first waits until the far end has got something.
func (l Line) first(t *testing.T) {
	t.Helper()
	if _, err := io.ReadFull(l.Far, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func testWriteTimeout(t *testing.T, l Line) {
	p := l.open(t)
	err := within(t, stuck(t.Context(), p, 100*time.Millisecond))
	e := wire.AsError(err)
	n, ok := e.Details["bytes_partial"].(int)
	if e.Code != wire.HardwareTransferFailed || e.Details["reason"] != "timeout" || !ok || n < 1 || n >= 1<<20 {
		t.Errorf("a write that nobody reads answers %v %v", err, e.Details)
	}
}

func testCloseWhileReading(t *testing.T, l Line) {
	p := l.open(t)
	failed := make(chan error)
	reading := make(chan struct{})
	go func() {
		close(reading)
		_, err := p.Read(t.Context(), serialio.ReadOptions{Size: 10, Timeout: patience})
		failed <- err
	}()
	<-reading
	closed(t, p)
	if err := within(t, failed); wire.AsError(err).Details["reason"] != "closed" {
		t.Errorf("the read answers %v", err)
	}
}

func testCloseWhileWriting(t *testing.T, l Line) {
	p := l.open(t)
	failed := stuck(t.Context(), p, patience)
	l.first(t)
	closed(t, p)
	if err := within(t, failed); wire.AsError(err).Details["reason"] != "closed" {
		t.Errorf("the write answers %v", err)
	}
}

// closed closes in less time than anything that waits would take.
func closed(t *testing.T, p *serialio.Port) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.Close() }()
	if err := within(t, done); err != nil {
		t.Error(err)
	}
}

func within(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience / 2):
		t.Fatal("it didn't end")
		return nil
	}
}

func testAfterClose(t *testing.T, l Line) {
	p := l.open(t)
	closed(t, p)
	closed(t, p) // may be repeated
	_, err := p.Read(t.Context(), serialio.ReadOptions{Size: 1, Timeout: patience})
	isClosed(t, "Read", err)
	_, err = p.Write(t.Context(), []byte("x"), patience)
	isClosed(t, "Write", err)
	isClosed(t, "Drain", p.Drain(t.Context(), patience))
	isClosed(t, "SetMode", p.SetMode(serialio.DefaultMode()))
	isClosed(t, "FlushInput", p.FlushInput(t.Context()))
	isClosed(t, "SetModem", p.SetModem(termios.DTR, true))
	l.open(t) // the port is free again
}

func isClosed(t *testing.T, what string, err error) {
	t.Helper()
	if e := wire.AsError(err); err == nil || e.Details["reason"] != "closed" {
		t.Errorf("%s after Close answers %v", what, err)
	}
}

func testFlush(t *testing.T, l Line) {
	p := l.open(t)
	l.send(t, []byte("old|older"))
	want(t, read(t, p, serialio.ReadOptions{Size: 100, Until: []byte("|"), Timeout: patience}), "old|", serialio.StopUntil)
	want(t, read(t, p, serialio.ReadOptions{Size: 1, Timeout: patience}), "o", serialio.StopSize)
	if err := p.FlushInput(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-l.send(t, []byte("new\n"))
	want(t, read(t, p, serialio.ReadOptions{Size: 100, Until: []byte("\n"), Timeout: patience}), "new\n", serialio.StopUntil)
}

func testDrain(t *testing.T, l Line) {
	p := l.open(t)
	if _, err := p.Write(t.Context(), []byte("0123456789"), patience); err != nil {
		t.Fatal(err)
	}
	if err := p.Drain(t.Context(), patience); err != nil {
		t.Error(err)
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(l.Far, got); err != nil || string(got) != "0123456789" {
		t.Errorf("the far end got %q, %v", got, err)
	}
}

func testExclusive(t *testing.T, l Line) {
	p := l.open(t)
	second, err := serialio.Open(l.Node, serialio.DefaultMode())
	if err == nil {
		second.Close()
	}
	if e := wire.AsError(err); e.Code != wire.HardwareBusy || e.Details["holder"] == nil {
		t.Errorf("a second open answers %v %v", err, e.Details)
	}
	closed(t, p)
	l.open(t)
}

func testOddBaud(t *testing.T, l Line) {
	p := l.open(t)
	for _, baud := range []int{300, 9600, 31250, 115200, 250000, 1234567, 4000000} {
		m := serialio.DefaultMode()
		m.BaudRate = baud
		before := p.Baud()
		if err := p.SetMode(m); baud > 3000000 && err != nil { // more than an FT232 can
			if e := wire.AsError(err); e.Details["feature"] != "baudrate" || p.Baud() != before {
				t.Errorf("%d baud: %v %v, and then %d", baud, err, e.Details, p.Baud())
			}
			continue
		} else if err != nil {
			t.Errorf("%d baud: %v", baud, err)
			continue
		}
		// A UART divides its clock; more than 5 % off and nothing gets through.
		if got := p.Baud(); got < baud*95/100 || got > baud*105/100 {
			t.Errorf("asked for %d baud, got %d", baud, got)
		}
	}
}

func testBinaryClean(t *testing.T, l Line) {
	p := l.open(t)
	all := pattern(256) // XON, XOFF, EOF, CR, LF, ^C and 0xff among them
	if _, err := p.Write(t.Context(), all, patience); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(all))
	if _, err := io.ReadFull(l.Far, got); err != nil || !bytes.Equal(got, all) {
		t.Errorf("the far end got % x, %v", got, err)
	}
	l.send(t, all)
	if r := read(t, p, serialio.ReadOptions{Size: len(all), Timeout: patience}); !bytes.Equal(r.Data, all) {
		t.Errorf("read % x", r.Data)
	}
	// Nothing was echoed.
	l.send(t, []byte("."))
	want(t, read(t, p, serialio.ReadOptions{Size: 1, Timeout: patience}), ".", serialio.StopSize)
}

// testHighDescriptor is about select(2), which knows 1024 descriptors.
func testHighDescriptor(t *testing.T, l Line) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			testenv.Need(t, "descriptors", false, "this process may not have 1024 open files: "+err.Error())
		}
		files = append(files, f)
		if f.Fd() > 1024 {
			break
		}
	}
	p := l.open(t)
	defer p.Close()
	l.send(t, []byte("high"))
	want(t, read(t, p, serialio.ReadOptions{Size: 4, Timeout: patience}), "high", serialio.StopSize)
	want(t, read(t, p, serialio.ReadOptions{Size: 4, Timeout: 10 * time.Millisecond}), "", serialio.StopTimeout)
}

func testUnplugWhileReading(t *testing.T, l Line) {
	testenv.Need(t, "unplug", l.Unplug != nil, "this line can't be unplugged")
	p := l.open(t)
	failed := make(chan error)
	reading := make(chan struct{})
	go func() {
		close(reading)
		_, err := p.Read(t.Context(), serialio.ReadOptions{Size: 10, Timeout: patience})
		failed <- err
	}()
	<-reading
	l.Unplug()
	if err := within(t, failed); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("the read answers %v", err)
	}
	_, err := p.Write(t.Context(), []byte("x"), patience)
	if !errors.Is(err, wire.DeviceGone) {
		t.Errorf("a write after it answers %v", err)
	}
	if err := p.SetMode(serialio.DefaultMode()); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("SetMode after it answers %v", err)
	}
	if _, err := p.Modem(); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("Modem after it answers %v", err)
	}
	if _, err := serialio.Open(l.Node, serialio.DefaultMode()); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("an open after it answers %v", err)
	}
}

func testUnplugWhileWriting(t *testing.T, l Line) {
	testenv.Need(t, "unplug", l.Unplug != nil, "this line can't be unplugged")
	p := l.open(t)
	failed := stuck(t.Context(), p, patience)
	l.first(t)
	l.Unplug()
	if err := within(t, failed); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("the write answers %v", err)
	}
}
