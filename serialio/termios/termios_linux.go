package termios

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Get reads how a line is set.
func Get(fd int) (*unix.Termios, error) { return unix.IoctlGetTermios(fd, unix.TCGETS2) }

// Set changes how a line is set, at once; the kernel rounds what it can't do.
func Set(fd int, t *unix.Termios) error { return unix.IoctlSetTermios(fd, unix.TCSETS2, t) }

// MakeRaw has bytes pass as they are, both ways, without echo, signals or flow
// control, and lets a read wait for the first byte.
func MakeRaw(t *unix.Termios) {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL |
		unix.IXON | unix.IXOFF | unix.IXANY | unix.INPCK | unix.IUCLC | unix.IMAXBEL | unix.IUTF8
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHOE | unix.ECHOK | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag |= unix.CREAD | unix.CLOCAL
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
}

// Raw prepares a terminal that nobody has set yet: raw, 115200 bit/s.
func Raw(fd int) error {
	t, err := Get(fd)
	if err != nil {
		return err
	}
	MakeRaw(t)
	SetSpeed(t, 115200)
	return Set(fd, t)
}

// SetSpeed asks for any bit rate, the same both ways (BOTHER).
func SetSpeed(t *unix.Termios, baud uint32) {
	const inputShift = 16 // IBSHIFT: where the input rate stands in c_cflag
	t.Cflag &^= unix.CBAUD | unix.CBAUD<<inputShift
	t.Cflag |= unix.BOTHER | unix.BOTHER<<inputShift
	t.Ispeed, t.Ospeed = baud, baud
}

// Modem reads the modem lines. A line that has none (a pseudo-terminal)
// answers ENOTTY.
func Modem(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCMGET) }

// SetModem raises or lowers the lines in bits (DTR, RTS) and leaves the others.
func SetModem(fd int, bits int, up bool) error {
	req := uint(unix.TIOCMBIC)
	if up {
		req = unix.TIOCMBIS
	}
	return unix.IoctlSetPointerInt(fd, req, bits)
}

// Break starts or ends the break condition.
func Break(fd int, on bool) error {
	req := uint(unix.TIOCCBRK)
	if on {
		req = unix.TIOCSBRK
	}
	return unix.IoctlSetInt(fd, req, 0)
}

// Exclusive makes the kernel refuse every further open of the terminal, except
// root's, until it is called with false or everybody has closed it.
func Exclusive(fd int, on bool) error {
	req := uint(unix.TIOCNXCL)
	if on {
		req = unix.TIOCEXCL
	}
	return unix.IoctlSetInt(fd, req, 0)
}

// OutQueue is how many written bytes the driver still has.
func OutQueue(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCOUTQ) }

// TransmitterEmpty says whether the last bit has left the hardware. Few
// drivers know.
func TransmitterEmpty(fd int) (bool, error) {
	const temt = 1 // TIOCSER_TEMT
	v, err := unix.IoctlGetInt(fd, unix.TIOCSERGETLSR)
	return v&temt != 0, err
}

// FlushOutput drops what was written and not sent.
func FlushOutput(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCOFLUSH) }

// Numbers of the devices that are the second half of a pseudo-terminal
// (Documentation/admin-guide/devices.txt: 136 to 143).
const ptyMajorFirst, ptyMajorLast = 136, 143

// IsPTY says whether a device number is that of a pseudo-terminal, which has
// no wire: no frame, no parity, no break.
func IsPTY(rdev uint64) bool {
	major := unix.Major(rdev)
	return major >= ptyMajorFirst && major <= ptyMajorLast
}

// OpenPTY makes a pseudo-terminal: its master, with deadlines and a Close that
// ends a waiting read, and the path of what others open as the terminal.
func OpenPTY() (master *os.File, terminal string, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("opening /dev/ptmx: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		unix.Close(fd)
		return nil, "", fmt.Errorf("unlocking a pseudo-terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		unix.Close(fd)
		return nil, "", fmt.Errorf("asking a pseudo-terminal's number: %w", err)
	}
	terminal = fmt.Sprintf("/dev/pts/%d", n)
	return os.NewFile(uintptr(fd), "pty master of "+terminal), terminal, nil
}
