package uapi

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ChipInfo asks a chip for its name, label and number of lines. It requests no
// line.
func ChipInfo(node string) (Chip, error) {
	c, err := Open(node)
	if err != nil {
		return Chip{}, err
	}
	defer c.Close()
	return c.Info()
}

// ChipFile is an open chip. Close it when done; lines that were requested stay.
type ChipFile struct{ *file }

// Open opens a chip's node, such as /dev/gpiochip0.
func Open(node string) (*ChipFile, error) {
	fd, err := unix.Open(node, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		fd, err = unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", node, err)
	}
	return &ChipFile{newFile(fd, node)}, nil
}

// Info is GPIO_GET_CHIPINFO_IOCTL.
func (c *ChipFile) Info() (Chip, error) {
	var info chipInfo
	if err := c.ioctl(getChipInfo, unsafe.Pointer(&info)); err != nil {
		return Chip{}, fmt.Errorf("asking %s what it is: %w", c.f.Name(), err)
	}
	return Chip{Name: unix.ByteSliceToString(info.name[:]), Label: unix.ByteSliceToString(info.label[:]), Lines: int(info.lines)}, nil
}

// Line is GPIO_V2_GET_LINEINFO_IOCTL: how a line is, and who uses it.
func (c *ChipFile) Line(offset uint32) (LineInfo, error) {
	return c.line(getLineInfo, offset)
}

// WatchLine is GPIO_V2_GET_LINEINFO_WATCH_IOCTL: Line, and from then on each
// change is there for ReadChanges.
func (c *ChipFile) WatchLine(offset uint32) (LineInfo, error) {
	return c.line(watchLineInfo, offset)
}

func (c *ChipFile) line(request uintptr, offset uint32) (LineInfo, error) {
	info := lineInfo{offset: offset}
	if err := c.ioctl(request, unsafe.Pointer(&info)); err != nil {
		return LineInfo{}, fmt.Errorf("asking for line %d of %s: %w", offset, c.f.Name(), err)
	}
	return info.read(), nil
}

// UnwatchLine is GPIO_GET_LINEINFO_UNWATCH_IOCTL.
func (c *ChipFile) UnwatchLine(offset uint32) error {
	if err := c.ioctl(unwatchLine, unsafe.Pointer(&offset)); err != nil {
		return fmt.Errorf("no longer watching line %d of %s: %w", offset, c.f.Name(), err)
	}
	return nil
}

// ReadChanges waits for a change of a watched line and reads what there is, at
// most len(to). The kernel keeps 32 and forgets what comes beyond.
func (c *ChipFile) ReadChanges(to []InfoChange) (int, error) {
	raw := make([]infoChanged, len(to))
	n, err := c.f.Read(bytesOf(raw))
	n /= int(unsafe.Sizeof(infoChanged{}))
	for i := range n {
		to[i] = InfoChange{Info: raw[i].info.read(), TimestampNS: raw[i].timestamp, Type: raw[i].typ}
	}
	return n, err
}

// Request is GPIO_V2_GET_LINE_IOCTL.
func (c *ChipFile) Request(r Request) (*Lines, error) {
	if len(r.Offsets) == 0 || len(r.Offsets) > MaxLines {
		return nil, fmt.Errorf("requesting %d lines of %s: %w", len(r.Offsets), c.f.Name(), unix.EINVAL)
	}
	raw := lineRequest{numLines: uint32(len(r.Offsets)), eventBuffer: uint32(max(0, min(r.EventBuffer, MaxEventBuffer)))}
	copy(raw.offsets[:], r.Offsets)
	copy(raw.consumer[:nameSize-1], r.Consumer)
	err := r.Config.layout(&raw.config)
	if err == nil {
		err = c.ioctl(getLine, unsafe.Pointer(&raw))
	}
	if err != nil {
		return nil, fmt.Errorf("requesting lines %d of %s: %w", r.Offsets, c.f.Name(), err)
	}
	return newLines(int(raw.fd), "gpio-line")
}

// Lines are requested lines: ours until Close.
type Lines struct{ *file }

func newLines(fd int, name string) (*Lines, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("making %s pollable: %w", name, err)
	}
	return &Lines{newFile(fd, name)}, nil
}

// FromFile makes Lines of a file that was a request before, in an earlier
// process, and checks that it is one. It takes the file, also when it fails.
func FromFile(f *os.File) (*Lines, error) {
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("taking over a line request: %w", err)
	}
	fd := -1
	if cerr := conn.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("taking over a line request: %w", err)
	}
	l, err := newLines(fd, f.Name())
	if err != nil {
		return nil, err
	}
	if _, err := l.Get(1); err != nil {
		l.Close()
		return nil, fmt.Errorf("taking over a line request: %w", err)
	}
	return l, nil
}

// Get is GPIO_V2_LINE_GET_VALUES_IOCTL: the levels of the lines in mask.
func (l *Lines) Get(mask uint64) (uint64, error) {
	v := lineValues{mask: mask}
	if err := l.ioctl(getValues, unsafe.Pointer(&v)); err != nil {
		return 0, fmt.Errorf("reading lines: %w", err)
	}
	return v.bits, nil
}

// Set is GPIO_V2_LINE_SET_VALUES_IOCTL: drives the lines in mask, which must
// be outputs, to the levels in bits.
func (l *Lines) Set(mask, bits uint64) error {
	v := lineValues{bits: bits, mask: mask}
	if err := l.ioctl(setValues, unsafe.Pointer(&v)); err != nil {
		return fmt.Errorf("setting lines: %w", err)
	}
	return nil
}

// SetConfig is GPIO_V2_LINE_SET_CONFIG_IOCTL. It is about all the lines: an
// output whose level the configuration doesn't say goes to 0.
func (l *Lines) SetConfig(c Config) error {
	var raw lineConfig
	err := c.layout(&raw)
	if err == nil {
		err = l.ioctl(setConfig, unsafe.Pointer(&raw))
	}
	if err != nil {
		return fmt.Errorf("configuring lines: %w", err)
	}
	return nil
}

// ReadEvents waits for an edge and reads those that there are, at most len(to).
// It ends early with os.ErrDeadlineExceeded, with os.ErrClosed after Close, and
// with ENODEV when the chip has gone.
func (l *Lines) ReadEvents(to []Event) (int, error) {
	n, err := l.f.Read(bytesOf(to))
	return n / eventSize, err
}

// SetReadDeadline ends ReadEvents at a time, also one that waits already.
func (l *Lines) SetReadDeadline(t time.Time) error { return l.f.SetReadDeadline(t) }

// Descriptor calls use with the descriptor, which is valid until it returns.
func (l *Lines) Descriptor(use func(fd uintptr) error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return os.ErrClosed
	}
	return use(l.fd)
}

// file is a descriptor whose ioctls and Close don't get into each other's way.
// An ioctl takes a read lock and nothing from the heap: on a slow machine the
// detour by syscall.RawConn, with its closures, costs more than the ioctl.
type file struct {
	f *os.File

	mu     sync.RWMutex
	fd     uintptr // until closed
	closed bool
}

// newFile takes fd, which must be non-blocking.
func newFile(fd int, name string) *file {
	return &file{f: os.NewFile(uintptr(fd), name), fd: uintptr(fd)}
}

// Close may be repeated; it ends what waits.
func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return f.f.Close()
}

func (f *file) ioctl(request uintptr, arg unsafe.Pointer) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return os.ErrClosed
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.fd, request, uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// bytesOf is the memory of a slice of plain structs.
func bytesOf[T Event | infoChanged](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// Monotonic is CLOCK_MONOTONIC in nanoseconds: what events are stamped with.
func Monotonic() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return uint64(t.Nano())
}
