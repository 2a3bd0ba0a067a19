package serialio

import (
	"fmt"

	"go.bug.st/serial"

	"farhand/wire"
)

// maxBaud bounds what is asked of the kernel, in bit/s. The fastest bridges
// (FT232H, CH347) reach 12 and 9 Mbit/s.
const maxBaud = 50_000_000

// Mode is how a port is set.
type Mode struct {
	serial.Mode
	RTSCTS  bool // hardware flow control
	XONXOFF bool // software flow control
}

// DefaultMode is 115200 8N1 without flow control.
func DefaultMode() Mode {
	return Mode{Mode: serial.Mode{BaudRate: 115200, DataBits: 8, Parity: serial.NoParity, StopBits: serial.OneStopBit}}
}

// with is m changed by what w says; a nil w or field leaves m as it is. The
// error is INVALID_ARGUMENT, or FEATURE_NOT_SUPPORTED for what Linux can't do.
func (m Mode) with(w *wire.SerialMode) (Mode, error) {
	if w == nil {
		return m, nil
	}
	if w.Baudrate != nil {
		if *w.Baudrate < 1 || *w.Baudrate > maxBaud {
			return m, invalid("mode.baudrate", "must be 1 to %d bit/s, not %d", maxBaud, *w.Baudrate)
		}
		m.BaudRate = *w.Baudrate
	}
	if w.Bytesize != nil {
		if *w.Bytesize < 5 || *w.Bytesize > 8 {
			return m, invalid("mode.bytesize", "must be 5, 6, 7 or 8, not %d", *w.Bytesize)
		}
		m.DataBits = *w.Bytesize
	}
	if w.Parity != nil {
		p, ok := parities()[*w.Parity]
		if !ok {
			return m, invalid("mode.parity", "must be none, even, odd, mark or space, not %.20q", *w.Parity)
		}
		m.Parity = p
	}
	if w.Stopbits != nil {
		s, ok := map[float64]serial.StopBits{1: serial.OneStopBit, 1.5: serial.OnePointFiveStopBits, 2: serial.TwoStopBits}[*w.Stopbits]
		if !ok {
			return m, invalid("mode.stopbits", "must be 1, 1.5 or 2, not %g", *w.Stopbits)
		}
		m.StopBits = s
	}
	if w.RTSCTS != nil {
		m.RTSCTS = *w.RTSCTS
	}
	if w.XONXOFF != nil {
		m.XONXOFF = *w.XONXOFF
	}
	if w.DSRDTR != nil && *w.DSRDTR {
		return m, unsupported("dsrdtr", "Linux has no DSR/DTR flow control")
	}
	if m.StopBits == serial.OnePointFiveStopBits && m.DataBits != 5 {
		return m, unsupported("stopbits", "1.5 stop bits exist only with 5 data bits")
	}
	return m, nil
}

func parities() map[string]serial.Parity {
	return map[string]serial.Parity{
		"none": serial.NoParity, "even": serial.EvenParity, "odd": serial.OddParity,
		"mark": serial.MarkParity, "space": serial.SpaceParity,
	}
}

func invalid(field, format string, args ...any) error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", field, fmt.Sprintf(format, args...)).With("field", field)
}

func unsupported(feature, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.FeatureNotSupported, "%s", fmt.Sprintf(format, args...)).With("feature", feature)
}
