package serialio

import (
	"fmt"
	"strings"

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
	// LowLatency has the driver hand on every byte at once. false is as the port
	// was found, which counts for RS485, too.
	LowLatency bool
	RS485      RS485
}

// RS485 has the driver switch a transceiver with RTS.
type RS485 struct {
	Asked        bool // false: as the port was found, and the rest means nothing
	Enabled      bool
	RTSOnSend    bool // RTS's logical level while sending
	RTSAfterSend bool
	DelayBefore  int // ms from RTS to the first bit
	DelayAfter   int // ms from the last bit to RTS
	RXDuringTX   bool
	Terminate    bool
}

// maxRS485Delay is the kernel's own bound in ms (RS485_MAX_RTS_DELAY of
// drivers/tty/serial/serial_core.c).
const maxRS485Delay = 100

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
		p, ok := parities()[strings.ToLower(*w.Parity)]
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
	if w.LowLatency != nil {
		m.LowLatency = *w.LowLatency
	}
	if w.RS485 != nil {
		var err error
		if m.RS485, err = rs485(w.RS485); err != nil {
			return m, err
		}
	}
	if m.RTSCTS && m.RS485.Asked && m.RS485.Enabled {
		return m, invalid("mode.rtscts", "can't be together with rs485: both need RTS")
	}
	if w.DSRDTR != nil && *w.DSRDTR {
		return m, unsupported("dsrdtr", "Linux has no DSR/DTR flow control")
	}
	if m.StopBits == serial.OnePointFiveStopBits && m.DataBits != 5 {
		return m, unsupported("stopbits", "1.5 stop bits exist only with 5 data bits")
	}
	return m, nil
}

// deviation is how far a rate is from what was asked, in percent.
func deviation(asked, got int) float64 { return float64(got-asked) / float64(max(1, asked)) * 100 }

// rs485 puts the defaults where nothing was asked.
func rs485(w *wire.SerialRS485) (RS485, error) {
	or := func(v *bool, otherwise bool) bool {
		if v == nil {
			return otherwise
		}
		return *v
	}
	r := RS485{Asked: true, Enabled: or(w.Enabled, true), RTSOnSend: or(w.RTSOnSend, true),
		RXDuringTX: or(w.RXDuringTX, false), Terminate: or(w.TerminateBus, false)}
	r.RTSAfterSend = or(w.RTSAfterSend, !r.RTSOnSend)
	if r.Enabled && r.RTSAfterSend == r.RTSOnSend {
		return r, invalid("mode.rs485.rts_after_send", "must differ from rts_on_send, or the transceiver is never switched")
	}
	for _, d := range []struct {
		field string
		ms    *int
		to    *int
	}{{"delay_before_send_ms", w.DelayBeforeMS, &r.DelayBefore}, {"delay_after_send_ms", w.DelayAfterMS, &r.DelayAfter}} {
		if d.ms == nil {
			continue
		}
		if *d.ms < 0 || *d.ms > maxRS485Delay {
			return r, invalid("mode.rs485."+d.field, "must be 0 to %d ms, not %d", maxRS485Delay, *d.ms)
		}
		*d.to = *d.ms
	}
	return r, nil
}

// wire is r as it crosses the wire.
func (r RS485) wire() *wire.SerialRS485 {
	return &wire.SerialRS485{Enabled: &r.Enabled, RTSOnSend: &r.RTSOnSend, RTSAfterSend: &r.RTSAfterSend,
		DelayBeforeMS: &r.DelayBefore, DelayAfterMS: &r.DelayAfter, RXDuringTX: &r.RXDuringTX, TerminateBus: &r.Terminate}
}

func parities() map[string]serial.Parity {
	return map[string]serial.Parity{
		"none": serial.NoParity, "even": serial.EvenParity, "odd": serial.OddParity,
		"mark": serial.MarkParity, "space": serial.SpaceParity,
		"n": serial.NoParity, "e": serial.EvenParity, "o": serial.OddParity,
		"m": serial.MarkParity, "s": serial.SpaceParity,
	}
}

func invalid(field, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", field, fmt.Sprintf(format, args...)).With("field", field)
}

func unsupported(feature, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.FeatureNotSupported, "%s", fmt.Sprintf(format, args...)).With("feature", feature)
}
