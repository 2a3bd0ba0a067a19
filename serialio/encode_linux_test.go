package serialio

import (
	"testing"

	"go.bug.st/serial"
	"golang.org/x/sys/unix"

	"farhand/serialio/termios"
	"farhand/wire"
)

// TestEncode is what a UART would be told; a pseudo-terminal forgets it.
func TestEncode(t *testing.T) {
	const frame = unix.CSIZE | unix.PARENB | unix.PARODD | unix.CMSPAR | unix.CSTOPB | unix.CRTSCTS
	for name, c := range map[string]struct {
		change       func(*Mode)
		cflag, iflag uint32
	}{
		"8N1":      {func(*Mode) {}, unix.CS8, 0},
		"7E1":      {func(m *Mode) { m.DataBits, m.Parity = 7, serial.EvenParity }, unix.CS7 | unix.PARENB, 0},
		"6O2":      {func(m *Mode) { m.DataBits, m.Parity, m.StopBits = 6, serial.OddParity, serial.TwoStopBits }, unix.CS6 | unix.PARENB | unix.PARODD | unix.CSTOPB, 0},
		"8M1":      {func(m *Mode) { m.Parity = serial.MarkParity }, unix.CS8 | unix.PARENB | unix.PARODD | unix.CMSPAR, 0},
		"8S1":      {func(m *Mode) { m.Parity = serial.SpaceParity }, unix.CS8 | unix.PARENB | unix.CMSPAR, 0},
		"5N1.5":    {func(m *Mode) { m.DataBits, m.StopBits = 5, serial.OnePointFiveStopBits }, unix.CS5 | unix.CSTOPB, 0},
		"RTS/CTS":  {func(m *Mode) { m.RTSCTS = true }, unix.CS8 | unix.CRTSCTS, 0},
		"XON/XOFF": {func(m *Mode) { m.XONXOFF = true }, unix.CS8, unix.IXON | unix.IXOFF},
	} {
		m := DefaultMode()
		c.change(&m)
		var tio unix.Termios
		tio.Cflag, tio.Iflag, tio.Lflag, tio.Oflag = ^uint32(0), ^uint32(0)&^unix.IGNPAR, ^uint32(0), ^uint32(0) // as bad as can be
		if err := encode(&tio, m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tio.Cflag&frame != c.cflag || tio.Iflag&0o77777 != c.iflag {
			t.Errorf("%s: c_cflag %#o of the frame, c_iflag %#o, want %#o and %#o", name, tio.Cflag&frame, tio.Iflag, c.cflag, c.iflag)
		}
		if tio.Cflag&unix.HUPCL != 0 || tio.Cflag&unix.CBAUD != unix.BOTHER || tio.Ospeed != 115200 || tio.Ispeed != 115200 {
			t.Errorf("%s: c_cflag %#o, %d bit/s", name, tio.Cflag, tio.Ospeed)
		}
		if tio.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG|unix.IEXTEN) != 0 || tio.Oflag&unix.OPOST != 0 {
			t.Errorf("%s is not raw: c_lflag %#o, c_oflag %#o", name, tio.Lflag, tio.Oflag)
		}
	}
	for _, m := range []Mode{{Mode: serial.Mode{DataBits: 9}}, {Mode: serial.Mode{DataBits: 8, Parity: 9}}} {
		if err := encode(&unix.Termios{}, m); err == nil {
			t.Errorf("%+v was taken", m)
		}
	}
}

// TestRefused is a driver that doesn't do what it is told.
func TestRefused(t *testing.T) {
	p := &Port{}
	for feature, bits := range map[string]uint32{
		"": unix.HUPCL, "bytesize": unix.CS6, "parity": unix.CMSPAR, "stopbits": unix.CSTOPB, "rtscts": unix.CRTSCTS,
	} {
		err := p.refused(&unix.Termios{Cflag: bits}, &unix.Termios{})
		if feature == "" {
			if err != nil {
				t.Errorf("without %#o: %v", bits, err)
			}
		} else if got := wire.AsError(err).Details["feature"]; got != feature {
			t.Errorf("without %#o the driver refuses %v, want %q", bits, err, feature)
		}
	}
}

// TestRS485 is what a driver would be told; no driver here knows it.
func TestRS485(t *testing.T) {
	m, err := DefaultMode().with(&wire.SerialMode{RS485: &wire.SerialRS485{DelayAfterMS: new(3), RXDuringTX: new(true)}})
	if err != nil {
		t.Fatal(err)
	}
	k := encodeRS485(m.RS485)
	if want := uint32(termios.RS485Enabled | termios.RS485RTSOnSend | termios.RS485RXDuringTX); k.Flags != want || k.DelayBefore != 0 || k.DelayAfter != 3 {
		t.Errorf("the kernel is told %+v, want the flags %#x", k, want)
	}
	if got := decodeRS485(k); got != m.RS485 {
		t.Errorf("it comes back as %+v, was %+v", got, m.RS485)
	}
	w := m.RS485.wire()
	if !*w.Enabled || !*w.RTSOnSend || *w.RTSAfterSend || *w.DelayAfterMS != 3 || *w.TerminateBus {
		t.Errorf("the caller is told %+v", w)
	}
	m, err = DefaultMode().with(&wire.SerialMode{RS485: &wire.SerialRS485{RTSOnSend: new(false)}})
	if k := encodeRS485(m.RS485); err != nil || k.Flags != termios.RS485Enabled|termios.RS485RTSAfterSend {
		t.Errorf("with RTS low on send: %+v, %v", k, err)
	}
}
