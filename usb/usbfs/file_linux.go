package usbfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is an open device node.
type File struct {
	f    *os.File
	raw  syscall.RawConn
	node string
	caps uint32

	// turn holds one token: whose turn it is to take what has ended from the
	// kernel.
	turn chan struct{}

	mu      sync.Mutex
	closed  bool
	pending map[uintptr]*Transfer // by the address of the URB
}

// Open opens a device node for reading and writing. It claims nothing and says
// nothing to the device. What is no USB device node is ENOTTY.
func Open(node string) (*File, error) {
	fd, err := openNode(node)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", node, err)
	}
	// Descriptors that don't block belong to the poller: the end of a transfer
	// is an event, and Close ends the wait for it.
	f := &File{
		f: os.NewFile(uintptr(fd), node), node: node,
		turn:    make(chan struct{}, 1),
		pending: make(map[uintptr]*Transfer),
	}
	f.turn <- struct{}{}
	f.raw, err = f.f.SyscallConn()
	if err == nil {
		_, err = f.ioctl(reqCapabilities, unsafe.Pointer(&f.caps))
	}
	if err != nil {
		f.f.Close()
		return nil, fmt.Errorf("opening %s: %w", node, err)
	}
	return f, nil
}

func openNode(node string) (int, error) {
	for {
		fd, err := unix.Open(node, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (f *File) ioctl(req uintptr, arg unsafe.Pointer) (n int, err error) {
	ctlErr := f.raw.Control(func(fd uintptr) { n, err = ioctl(fd, req, arg) })
	if ctlErr != nil {
		return 0, ctlErr
	}
	return n, err
}

// do is ioctl for a request whose argument is one number.
func (f *File) do(what string, req uintptr, number int) error {
	arg := uint32(number)
	if _, err := f.ioctl(req, unsafe.Pointer(&arg)); err != nil {
		return fmt.Errorf("%s %d of %s: %w", what, number, f.node, err)
	}
	return nil
}

// Gone says whether the device was unplugged.
func (f *File) Gone() bool {
	var caps uint32
	_, err := f.ioctl(reqCapabilities, unsafe.Pointer(&caps))
	return errors.Is(err, syscall.ENODEV)
}

// LongTransfers says whether a transfer may be of any length at no cost. Where
// not, the kernel needs one piece of memory for each, and more than 16 KiB may
// not be had.
func (f *File) LongTransfers() bool { return f.caps&capScatterGather != 0 }

// Claim takes an interface for this file. One that a driver has is EBUSY.
func (f *File) Claim(iface int) error { return f.do("claiming interface", reqClaim, iface) }

// DetachAndClaim takes an interface for this file, away from the kernel's
// driver that has it; one that another program has is EBUSY.
func (f *File) DetachAndClaim(iface int) error {
	arg := disconnectClaim{iface: uint32(iface), flags: claimExceptNamed}
	copy(arg.driver[:], "usbfs")
	if _, err := f.ioctl(reqDisconnectClaim, unsafe.Pointer(&arg)); err != nil {
		return fmt.Errorf("detaching the driver of interface %d of %s: %w", iface, f.node, err)
	}
	return nil
}

// Release gives a claimed interface back. The kernel cancels what is under way
// on its endpoints.
func (f *File) Release(iface int) error { return f.do("releasing interface", reqRelease, iface) }

// Attach lets the kernel's drivers have an interface that nobody has. None
// wanting it is no error.
func (f *File) Attach(iface int) error {
	arg := driverIoctl{iface: int32(iface), code: int32(reqConnect)}
	if _, err := f.ioctl(reqDriver, unsafe.Pointer(&arg)); err != nil {
		return fmt.Errorf("attaching a driver to interface %d of %s: %w", iface, f.node, err)
	}
	return nil
}

// Driver names the driver that has an interface: "usbfs" for a program, empty
// for none.
func (f *File) Driver(iface int) (string, error) {
	arg := getDriver{iface: uint32(iface)}
	_, err := f.ioctl(reqGetDriver, unsafe.Pointer(&arg))
	switch {
	case errors.Is(err, syscall.ENODATA):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("asking for the driver of interface %d of %s: %w", iface, f.node, err)
	}
	name, _, _ := bytes.Cut(arg.driver[:], []byte{0})
	return string(name), nil
}

// SetInterface chooses an alternate setting of a claimed interface.
func (f *File) SetInterface(iface, alternate int) error {
	arg := setInterface{uint32(iface), uint32(alternate)}
	if _, err := f.ioctl(reqSetInterface, unsafe.Pointer(&arg)); err != nil {
		return fmt.Errorf("setting interface %d of %s to %d: %w", iface, f.node, alternate, err)
	}
	return nil
}

// SetConfiguration changes the device's configuration. It is EBUSY while an
// interface has a driver or is claimed.
func (f *File) SetConfiguration(value int) error {
	return f.do("setting configuration", reqSetConfiguration, value)
}

// ClearHalt ends an endpoint's halt, at both ends. Its interface must be claimed.
func (f *File) ClearHalt(endpoint byte) error {
	return f.do("clearing the halt of endpoint", reqClearHalt, int(endpoint))
}

// Reset resets the device's port and sets the device up again. Claims are lost.
// ENODEV if it comes back as another device.
func (f *File) Reset() error {
	if _, err := f.ioctl(reqReset, nil); err != nil {
		return fmt.Errorf("resetting %s: %w", f.node, err)
	}
	return nil
}

// Close cancels what is under way, waits for its end and closes the file. The
// kernel releases what was claimed; drivers aren't attached again. It may be
// repeated.
func (f *File) Close() error {
	f.mu.Lock()
	f.closed = true
	var under []*Transfer
	for _, t := range f.pending {
		under = append(under, t)
	}
	f.mu.Unlock()
	for _, t := range under {
		t.Cancel()
	}
	for _, t := range under {
		t.end()
	}
	if err := f.f.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
