package serialio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"go.bug.st/serial"
	"golang.org/x/sys/unix"

	"farhand/serialio/termios"
	"farhand/wire"
)

// Port is an open serial port.
type Port struct {
	f    *os.File
	node string // the path that it was opened by
	rdev uint64 // the device number behind it
	pty  bool
	done chan struct{} // closed by Close

	in   input
	lead lead
	// opening is what opening it did to the board.
	opening wire.SerialOpened
	found   extras // how the port was, to be left so

	mu     sync.Mutex
	mode   Mode
	baud   int // what the kernel really set
	extras extras
	closed bool
	// reading has one token: whose turn it is to read.
	reading chan struct{}
	writing chan struct{}
}

// Open opens a port, sets its mode and takes it for this process alone. The
// errors are DEVICE_GONE without a node, HARDWARE_BUSY if another process has
// it (details.holder, where that can be seen), FEATURE_NOT_SUPPORTED for a mode
// that the port refuses, HARDWARE_OPEN_FAILED with details.os_error otherwise.
func Open(node string, m Mode) (*Port, error) {
	return OpenWith(context.Background(), node, m, ResetLeave)
}

// OpenWith is Open with a choice of what becomes of DTR and RTS. With
// ResetPulse it takes about 2 s, unless ctx is done before, and is
// FEATURE_NOT_SUPPORTED on a port without modem lines.
func OpenWith(ctx context.Context, node string, m Mode, reset Reset) (*Port, error) {
	fd, err := retryEINTR(func() (int, error) {
		return unix.Open(node, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, openFailed(node, err)
	}
	p := &Port{
		// The descriptor doesn't block, so the file uses the poller: it has
		// deadlines, and Close ends what waits.
		f: os.NewFile(uintptr(fd), node), node: node,
		done:    make(chan struct{}),
		in:      input{ended: make(chan struct{}), wanted: -1},
		reading: make(chan struct{}, 1),
		writing: make(chan struct{}, 1),
	}
	p.reading <- struct{}{}
	p.writing <- struct{}{}
	if err := p.init(fd, m, reset); err != nil {
		p.f.Close()
		return nil, err
	}
	second, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		p.f.Close()
		return nil, openFailed(node, err)
	}
	p.lead.f = os.NewFile(uintptr(second), node)
	raw, err := p.f.SyscallConn()
	if err != nil {
		p.lead.f.Close()
		p.f.Close()
		return nil, openFailed(node, err)
	}
	go p.receive(raw) // Close waits for it
	if reset == ResetPulse {
		if err := p.reset(ctx); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

func (p *Port) init(fd int, m Mode, reset Reset) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return openFailed(p.node, err)
	}
	before, err := termios.Get(fd)
	if errors.Is(err, unix.EIO) { // hung up: unplugged in the moment in which it was opened
		return p.goneError()
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || err != nil {
		return wire.Errorf(wire.HardwareOpenFailed, "%s is no serial port", p.node).With("os_error", "ENOTTY")
	}
	p.rdev, p.pty = st.Rdev, termios.IsPTY(st.Rdev)
	if err := p.claim(fd, reset); err != nil {
		return err
	}
	// Both are wishes: where the driver or the missing privilege says no, Close
	// has its own bound for unsent output.
	_ = termios.NoClosingWait(fd)
	p.found = readExtras(fd)
	p.extras = p.found
	if p.opening, err = p.wasReset(fd, before, reset); err == nil {
		err = p.SetMode(m)
	}
	if err != nil {
		p.disclaim(fd)
	}
	return err
}

// claim keeps everybody else out, and lowers the lines as soon as it is clear
// that no other careful program uses them.
func (p *Port) claim(fd int, reset Reset) error {
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return busy(p.node)
	}
	if reset == ResetAvoid {
		// A port without modem lines has nothing to lower.
		_ = termios.SetModem(fd, termios.DTR|termios.RTS, false)
	}
	if who := keptOpenBy(p.node, os.Getpid()); who != "" {
		_ = unix.Flock(fd, unix.LOCK_UN)
		return busyWith(p.node, who)
	}
	if err := termios.Exclusive(fd, true); err != nil {
		_ = unix.Flock(fd, unix.LOCK_UN)
		return p.failed("claiming", err)
	}
	return nil
}

func (p *Port) disclaim(fd int) {
	// The terminal may be kept open by others (a simulated one is): then the
	// exclusive flag would outlive us. Neither can fail on an open terminal in
	// a way that matters.
	_ = termios.Exclusive(fd, false)
	_ = unix.Flock(fd, unix.LOCK_UN)
}

// SetMode changes how the port is set. What the driver doesn't do is
// FEATURE_NOT_SUPPORTED, and the port is left as it was. A bit rate is taken as
// the kernel makes it, see Baud, as far as that is within 10 %.
func (p *Port) SetMode(m Mode) error {
	return p.control(func(fd int) error {
		before, err := termios.Get(fd)
		if err != nil {
			return p.failed("reading the mode of", err)
		}
		want := *before
		if err := encode(&want, m); err != nil {
			return err
		}
		if err := termios.Set(fd, &want); err != nil {
			if errors.Is(err, unix.EINVAL) {
				return unsupported("mode", "%s refuses this mode", p.node)
			}
			return p.failed("setting the mode of", err)
		}
		got, err := termios.Get(fd)
		if err != nil {
			return p.failed("reading the mode of", err)
		}
		err = p.refused(&want, got)
		if err == nil {
			err = p.rateRefused(m.BaudRate, int(got.Ospeed))
		}
		var x extras
		if err == nil {
			x, err = p.setExtras(fd, m)
		}
		if err != nil {
			_ = termios.Set(fd, before) // as good as can be
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mode, p.baud, p.extras = m, int(got.Ospeed), x
		return nil
	})
}

// encode puts a mode into the kernel's form.
func encode(t *unix.Termios, m Mode) error {
	termios.MakeRaw(t)
	termios.SetSpeed(t, uint32(m.BaudRate))
	t.Cflag &^= unix.CSIZE | unix.PARENB | unix.PARODD | unix.CMSPAR | unix.CSTOPB | unix.CRTSCTS | unix.HUPCL
	size, ok := map[int]uint32{5: unix.CS5, 6: unix.CS6, 7: unix.CS7, 8: unix.CS8}[m.DataBits]
	if !ok {
		return invalid("mode.bytesize", "must be 5, 6, 7 or 8, not %d", m.DataBits)
	}
	t.Cflag |= size
	switch m.Parity {
	case serial.NoParity:
	case serial.EvenParity:
		t.Cflag |= unix.PARENB
	case serial.OddParity:
		t.Cflag |= unix.PARENB | unix.PARODD
	case serial.MarkParity:
		t.Cflag |= unix.PARENB | unix.PARODD | unix.CMSPAR
	case serial.SpaceParity:
		t.Cflag |= unix.PARENB | unix.CMSPAR
	default:
		return invalid("mode.parity", "has no value %d", m.Parity)
	}
	if m.StopBits != serial.OneStopBit { // with 5 data bits the UART makes 1.5 of it
		t.Cflag |= unix.CSTOPB
	}
	if m.RTSCTS {
		t.Cflag |= unix.CRTSCTS
	}
	if m.XONXOFF {
		t.Iflag |= unix.IXON | unix.IXOFF
		t.Cc[unix.VSTART], t.Cc[unix.VSTOP] = 0x11, 0x13
	}
	return nil
}

// refused is FEATURE_NOT_SUPPORTED with the field of wire.SerialMode that the
// driver did not take. A pseudo-terminal has no wire, so its frame means nothing.
func (p *Port) refused(want, got *unix.Termios) error {
	differs := func(bits uint32) bool { return (want.Cflag^got.Cflag)&bits != 0 }
	feature := ""
	switch {
	case p.pty:
		return nil
	case differs(unix.CSIZE):
		feature = "bytesize"
	case differs(unix.PARENB | unix.PARODD | unix.CMSPAR):
		feature = "parity"
	case differs(unix.CSTOPB):
		feature = "stopbits"
	case differs(unix.CRTSCTS):
		feature = "rtscts"
	default:
		return nil
	}
	return unsupported(feature, "%s doesn't support this %s", p.node, feature)
}

// maxDeviation is how far from what was asked a rate may be, in percent. At 5 %
// the last bit of a byte is half a bit off; beyond twice that the driver has
// done something else (ftdi_sio sets 9600 bit/s for what the chip can't).
const maxDeviation = 10

func (p *Port) rateRefused(asked, got int) error {
	if d := deviation(asked, got); d >= -maxDeviation && d <= maxDeviation {
		return nil
	}
	return unsupported("baudrate", "%s can't do %d bit/s: it would run at %d", p.node, asked, got).With("baudrate", got)
}

// Mode is how the port was set last.
func (p *Port) Mode() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

// Baud is the rate that the kernel really set, in bit/s.
func (p *Port) Baud() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.baud
}

// Modem reads the modem lines; FEATURE_NOT_SUPPORTED where there are none.
func (p *Port) Modem() (bits int, err error) {
	err = p.control(func(fd int) error {
		var err error
		if bits, err = termios.Modem(fd); err != nil {
			return p.lineError("modem lines", err)
		}
		return nil
	})
	return bits, err
}

// SetModem raises or lowers termios.DTR or termios.RTS; FEATURE_NOT_SUPPORTED
// where there are none.
func (p *Port) SetModem(bits int, up bool) error {
	return p.control(func(fd int) error {
		if err := termios.SetModem(fd, bits, up); err != nil {
			return p.lineError("modem lines", err)
		}
		return nil
	})
}

// Break holds the line in the break condition for d, or until ctx is done.
// FEATURE_NOT_SUPPORTED where the driver can't.
func (p *Port) Break(ctx context.Context, d time.Duration) error {
	if p.pty { // the kernel would say yes and do nothing
		return unsupported("break", "%s has no line to break", p.node)
	}
	if err := p.setBreak(true); err != nil {
		return err
	}
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return p.setBreak(false)
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.setBreak(false))
	case <-p.done:
		return p.closedError()
	}
}

func (p *Port) setBreak(on bool) error {
	return p.control(func(fd int) error {
		if err := termios.Break(fd, on); err != nil {
			return p.lineError("break", err)
		}
		return nil
	})
}

// control runs an ioctl or two; they don't block.
func (p *Port) control(fn func(fd int) error) error {
	raw, err := p.f.SyscallConn()
	if err != nil {
		return p.closedError()
	}
	var opErr error
	if err := raw.Control(func(fd uintptr) { opErr = fn(int(fd)) }); err != nil {
		return p.closedError()
	}
	return opErr
}

// turn waits for one of the two directions.
func (p *Port) turn(ctx context.Context, direction chan struct{}) error {
	select {
	case <-direction:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.done:
		return p.closedError()
	}
}

func (p *Port) closedError() error {
	return wire.Errorf(wire.HardwareTransferFailed, "%s was closed during the operation", p.node).With("reason", "closed")
}

func (p *Port) goneError() error {
	e := wire.Errorf(wire.DeviceGone, "%s was unplugged", p.node)
	if hint := takenAway(); hint != "" {
		e = e.With("hint", hint)
	}
	return e
}

// isGone says whether the port behind the descriptor is not there any more: it
// was hung up, or its node leads elsewhere.
func (p *Port) isGone() bool {
	gone := false
	raw, err := p.f.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		// A hung-up terminal answers every ioctl with EIO.
		_, err := termios.Get(int(fd))
		gone = err != nil
	})
	if gone {
		return true
	}
	var st unix.Stat_t
	err = unix.Stat(p.node, &st)
	return errors.Is(err, fs.ErrNotExist) || err == nil && st.Rdev != p.rdev
}

// failed makes a typed error of what the kernel said.
func (p *Port) failed(what string, err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return p.closedError()
	case errors.Is(err, unix.ENODEV), p.isGone(): // a driver says so before the terminal is hung up
		return p.goneError()
	case errors.Is(err, io.EOF):
		// Ready, nothing there, and the port is still alive: somebody else reads
		// it, or has made its reads not wait.
		e := wire.Errorf(wire.HardwareTransferFailed, "another process is using %s and takes its bytes", p.node).With("reason", "port_shared")
		if who := openedBy(p.node, os.Getpid()); who != "" {
			e = e.With("holder", who)
		}
		return e
	}
	return wire.Errorf(wire.HardwareTransferFailed, "%s %s: %v", what, p.node, errnoText(err)).With("os_error", errnoName(err))
}

// lineError is for what not every port has.
func (p *Port) lineError(feature string, err error) error {
	switch {
	case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		if p.isGone() {
			return p.goneError()
		}
		return unsupported(feature, "%s has no %s", p.node, feature)
	}
	return p.failed("using the "+feature+" of", err)
}

func openFailed(node string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return wire.Errorf(wire.DeviceGone, "%s isn't there", node).With("os_error", errnoName(err))
	case errors.Is(err, unix.EBUSY):
		return busy(node)
	}
	return wire.Errorf(wire.HardwareOpenFailed, "opening %s: %v", node, errnoText(err)).With("os_error", errnoName(err))
}

func busy(node string) error {
	who := openedBy(node, os.Getpid())
	if who == "" {
		who = "another program on the device"
	}
	return busyWith(node, who)
}

func busyWith(node, who string) error {
	e := wire.Errorf(wire.HardwareBusy, "%s is in use by %s", node, who).With("holder", who)
	for _, m := range meddlers() {
		if strings.Contains(who, "("+m.name+")") {
			e = e.With("hint", m.hint)
		}
	}
	return e
}

func errnoText(err error) string {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e.Error()
	}
	return err.Error()
}

func errnoName(err error) string {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(e)
	}
	return ""
}

func retryEINTR(open func() (int, error)) (int, error) {
	for {
		n, err := open()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// closeGrace bounds how long Close waits for unsent output; what is left then
// is dropped, since a kernel close would wait for up to 30 s with a lock held.
const closeGrace = time.Second

// Close ends what waits on the port, gives written bytes a moment to leave and
// closes it. It may be repeated.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	p.mu.Unlock()
	// Whoever waits sees a deadline in the past, and then that done is closed.
	_ = p.f.SetDeadline(time.Unix(1, 0))
	_ = p.lead.f.SetDeadline(time.Unix(1, 0))
	<-p.reading
	<-p.writing
	<-p.in.ended
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	if err := p.waitSent(ctx); err != nil {
		_ = p.control(termios.FlushOutput)
	}
	_ = p.control(func(fd int) error {
		p.leaveAsFound(fd)
		p.disclaim(fd)
		return nil
	})
	if err := errors.Join(p.lead.f.Close(), p.f.Close()); err != nil {
		return fmt.Errorf("closing %s: %w", p.node, err)
	}
	return nil
}
