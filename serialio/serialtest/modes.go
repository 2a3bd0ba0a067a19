package serialtest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"go.bug.st/serial"

	"farhand/serialio"
	"farhand/serialio/termios"
	"farhand/wire"
)

// testModes sets every kind of frame: it is set, or said not to be supported,
// and then the port is as it was and still works.
func testModes(t *testing.T, l Line) {
	p := l.open(t)
	change := func(f func(*serialio.Mode)) serialio.Mode {
		m := serialio.DefaultMode()
		f(&m)
		return m
	}
	for name, m := range map[string]serialio.Mode{
		"7E1":      change(func(m *serialio.Mode) { m.DataBits, m.Parity = 7, serial.EvenParity }),
		"8O1":      change(func(m *serialio.Mode) { m.Parity = serial.OddParity }),
		"8M1":      change(func(m *serialio.Mode) { m.Parity = serial.MarkParity }),
		"8S1":      change(func(m *serialio.Mode) { m.Parity = serial.SpaceParity }),
		"8N2":      change(func(m *serialio.Mode) { m.StopBits = serial.TwoStopBits }),
		"5N1.5":    change(func(m *serialio.Mode) { m.DataBits, m.StopBits = 5, serial.OnePointFiveStopBits }),
		"RTS/CTS":  change(func(m *serialio.Mode) { m.RTSCTS = true }),
		"XON/XOFF": change(func(m *serialio.Mode) { m.XONXOFF = true }),
	} {
		before := p.Mode()
		err := p.SetMode(m)
		switch {
		case err == nil:
			if p.Mode() != m {
				t.Errorf("%s: the mode is %+v", name, p.Mode())
			}
		case !errors.Is(err, wire.FeatureNotSupported):
			t.Errorf("%s: %v", name, err)
		case p.Mode() != before:
			t.Errorf("%s was refused, but the mode is %+v", name, p.Mode())
		}
	}
	if err := p.SetMode(serialio.DefaultMode()); err != nil {
		t.Fatal(err)
	}
	l.send(t, []byte("ok"))
	want(t, read(t, p, serialio.ReadOptions{Size: 2, Timeout: patience}), "ok", serialio.StopSize)
}

func testModemLines(t *testing.T, l Line) {
	p := l.open(t)
	if !l.ModemLines {
		_, err := p.Modem()
		lacks(t, "reading the lines", err)
		lacks(t, "DTR", p.SetModem(termios.DTR, true))
		lacks(t, "RTS", p.SetModem(termios.RTS, false))
		lacks(t, "a break", p.Break(t.Context(), time.Millisecond))
		return
	}
	for _, bit := range []int{termios.DTR, termios.RTS} {
		for _, up := range []bool{false, true} {
			if err := p.SetModem(bit, up); err != nil {
				t.Fatal(err)
			}
			bits, err := p.Modem()
			if err != nil || bits&bit != 0 != up {
				t.Errorf("line %#x set to %v reads %#x, %v", bit, up, bits, err)
			}
		}
	}
	// Some drivers have lines and no break (the cdc_acm gadget).
	if err := p.Break(t.Context(), time.Millisecond); err != nil && !errors.Is(err, wire.FeatureNotSupported) {
		t.Error(err)
	}
}

func lacks(t *testing.T, what string, err error) {
	t.Helper()
	if e := wire.AsError(err); e.Code != wire.FeatureNotSupported || e.Details["feature"] == nil {
		t.Errorf("%s: %v %v, want FEATURE_NOT_SUPPORTED", what, err, e.Details)
	}
}

// drained is what the far end gets within a moment; for lines that can't say
// that nothing more comes.
func drained(ctx context.Context, r io.Reader, n int) ([]byte, error) {
	got := make(chan []byte, 1)
	failed := make(chan error, 1)
	go func() {
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		failed <- err
		got <- b
	}()
	select {
	case err := <-failed:
		return <-got, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// up asserts that DTR and RTS are both high, or both low.
func (l Line) up(t *testing.T, p *serialio.Port, want bool) {
	t.Helper()
	bits, err := p.Modem()
	for name, bit := range map[string]int{"DTR": termios.DTR, "RTS": termios.RTS} {
		if err != nil || bits&bit != 0 != want {
			t.Errorf("%s is %v, %v, want %v", name, bits&bit != 0, err, want)
		}
	}
}
