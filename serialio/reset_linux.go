package serialio

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"farhand/serialio/termios"
	"farhand/wire"
)

const bothLines = termios.DTR | termios.RTS

// wasReset says what opening the port did. HUPCL is the kernel's memory of it:
// a port has it set when nobody opened it since it was plugged in or the last
// close lowered the lines, and open raised them just now; SetMode clears it, so
// that they stay up. before is how the line was set at open.
func (p *Port) wasReset(fd int, before *unix.Termios, how Reset) (wire.SerialOpened, error) {
	_, err := termios.Modem(fd)
	switch {
	case err != nil && how == ResetPulse:
		return wire.SerialOpened{}, p.lineError("modem lines", err)
	case err != nil:
		return opened(ResetNone, how), nil
	case how == ResetPulse:
		return opened(ResetDone, how), nil
	case before.Cflag&unix.HUPCL != 0:
		return opened(ResetPossible, how), nil
	}
	return opened(ResetUnlikely, how), nil
}

// rememberLines sets HUPCL if DTR was left low: the next open raises it.
func (p *Port) rememberLines(fd int) {
	bits, err := termios.Modem(fd)
	if err != nil || bits&termios.DTR != 0 {
		return
	}
	if t, err := termios.Get(fd); err == nil {
		t.Cflag |= unix.HUPCL
		_ = termios.Set(fd, t) // at worst the next open says "unlikely"
	}
}

// How long the steps of a reset take.
const (
	holdReset  = 100 * time.Millisecond // esptool holds EN low for as long
	leaveReset = 50 * time.Millisecond
	bootTime   = 2 * time.Second // an Arduino's boot loader waits about 1.6 s for a sketch
)

// reset resets the board whichever way it is wired. An ESP32 board goes into
// reset while RTS alone is high, and into its boot loader if DTR alone is when
// that ends; an AVR board is reset by the edge when DTR (or RTS) goes high
// through a capacitor. So first RTS alone, then neither, then both.
func (p *Port) reset(ctx context.Context) error {
	for _, step := range []struct {
		bits int
		up   bool
		wait time.Duration
	}{
		{termios.DTR, false, 0}, {termios.RTS, true, holdReset}, {bothLines, false, leaveReset}, {bothLines, true, bootTime},
	} {
		if err := p.SetModem(step.bits, step.up); err != nil {
			return err
		}
		if err := p.pause(ctx, step.wait); err != nil {
			return errors.Join(err, p.SetModem(bothLines, true)) // never left in reset
		}
	}
	return nil
}

// pause waits while the port stays open.
func (p *Port) pause(ctx context.Context, d time.Duration) error {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.in.ended: // unplugged, or closed
		return p.Failed()
	}
}

// Opened is what opening the port did to the board.
func (p *Port) Opened() wire.SerialOpened { return p.opening }
