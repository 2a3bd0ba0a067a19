package serialio

import (
	"errors"

	"golang.org/x/sys/unix"

	"farhand/serialio/termios"
)

// extras are settings that not every driver has, beside those of termios. They
// outlive an open, so a port is left with those that it was found with.
type extras struct {
	hasLatency bool
	latency    bool
	hasRS485   bool
	rs485      termios.RS485
}

func readExtras(fd int) (x extras) {
	var err error
	x.latency, err = termios.LowLatency(fd)
	x.hasLatency = err == nil
	x.rs485, err = termios.GetRS485(fd)
	x.hasRS485 = err == nil
	return x
}

// setExtras changes what m wants otherwise and answers how it is then.
func (p *Port) setExtras(fd int, m Mode) (extras, error) {
	x := p.extras
	if want := m.LowLatency || p.found.latency; want != x.latency {
		err := termios.SetLowLatency(fd, want)
		if err == nil {
			x.latency, err = termios.LowLatency(fd)
		}
		if err == nil && x.latency != want {
			err = unix.EOPNOTSUPP // cdc_acm takes it and forgets it
		}
		if err != nil {
			return p.extras, p.extraError("low_latency", err)
		}
	}
	want := p.found.rs485
	if m.RS485.Asked {
		want = encodeRS485(m.RS485)
	}
	if want == x.rs485 && (x.hasRS485 || !m.RS485.Asked) {
		return x, nil
	}
	got, err := termios.SetRS485(fd, want)
	if err == nil && got.Flags&termios.RS485Enabled != want.Flags&termios.RS485Enabled {
		err = unix.EOPNOTSUPP
	}
	if err != nil {
		return p.extras, p.extraError("rs485", err)
	}
	x.rs485 = got
	return x, nil
}

func (p *Port) extraError(feature string, err error) error {
	if errors.Is(err, unix.EPERM) {
		return unsupported(feature, "%s: this daemon may not change %s", p.node, feature)
	}
	return p.lineError(feature, err)
}

// leaveAsFound puts back what outlives the close, and has the kernel remember
// how the modem lines were left. Nothing of it can be helped when it fails: the
// port may be gone.
func (p *Port) leaveAsFound(fd int) {
	if p.extras.latency != p.found.latency {
		_ = termios.SetLowLatency(fd, p.found.latency)
	}
	if p.extras.rs485 != p.found.rs485 {
		_, _ = termios.SetRS485(fd, p.found.rs485)
	}
	p.rememberLines(fd)
}

func encodeRS485(r RS485) termios.RS485 {
	k := termios.RS485{DelayBefore: uint32(r.DelayBefore), DelayAfter: uint32(r.DelayAfter)}
	for _, f := range []struct {
		bit uint32
		on  bool
	}{
		{termios.RS485Enabled, r.Enabled}, {termios.RS485RTSOnSend, r.RTSOnSend}, {termios.RS485RTSAfterSend, r.RTSAfterSend},
		{termios.RS485RXDuringTX, r.RXDuringTX}, {termios.RS485Terminate, r.Terminate},
	} {
		if f.on {
			k.Flags |= f.bit
		}
	}
	return k
}

func decodeRS485(k termios.RS485) RS485 {
	has := func(bit uint32) bool { return k.Flags&bit != 0 }
	return RS485{
		Asked: true, Enabled: has(termios.RS485Enabled), RTSOnSend: has(termios.RS485RTSOnSend), RTSAfterSend: has(termios.RS485RTSAfterSend),
		RXDuringTX: has(termios.RS485RXDuringTX), Terminate: has(termios.RS485Terminate),
		DelayBefore: int(k.DelayBefore), DelayAfter: int(k.DelayAfter),
	}
}

// LowLatency says whether the driver hands on every byte at once.
func (p *Port) LowLatency() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.extras.latency
}

// RS485 is what the driver really does; ok is false if it knows nothing of
// RS-485.
func (p *Port) RS485() (r RS485, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return decodeRS485(p.extras.rs485), p.extras.hasRS485
}
