// Package bussim has simulated I2C buses and SPI chip selects, with chips on
// them that behave as their data sheets say. It stands where the kernel does:
// behind the ioctls of i2c-dev and spidev, whose structures it reads as the
// kernel would, so that everything above is the real driver.
package bussim

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"farhand/bus/ioctl"
	"farhand/device/simsysfs"
	"farhand/device/sysfs"
)

// hardware is where the buses of a bench hang in its sysfs: a Pi 4's.
const (
	i2cHardware = "fe804000.i2c"
	spiHardware = "fe204000.spi"
)

// Bench is a set of simulated buses whose nodes and sysfs lie in a directory of
// the caller's. It may be used from several goroutines.
type Bench struct {
	mu    sync.Mutex
	tree  *simsysfs.Tree
	buses map[string]*bus // by the name of the node: i2c-1, spidev0.0
}

// bus is one node: an I2C bus or an SPI chip select.
type bus struct {
	name string
	kind kind
	add  func() error  // puts it into sysfs
	gone syscall.Errno // what a file of it answers that was open when it went

	// adapter is the kernel's lock for each adapter: it is held during a
	// transaction, however long that hangs.
	adapter sync.Mutex

	mu      sync.Mutex
	plugged int // how often; an open file of an earlier time is dead
	present bool
	faults  []Fault
	stall   chan struct{} // transactions wait until it is closed; nil: they don't
	waiting chan struct{} // closed when one does
}

// kind is what an I2C bus and an SPI chip select have in common.
type kind interface {
	// control runs what only sets or asks; done says whether req was such. It is
	// called with bus.mu.
	control(o *opened, req uint32, arg request) (done bool, err error)
	// transact runs a transaction. It is called with bus.adapter.
	transact(o *opened, req uint32, arg request) (int, error)
}

// Fault makes calls fail.
type Fault struct {
	// Address is the I2C address that it is about; 0 means any, and SPI.
	Address uint16
	// Err is what the kernel answers: EREMOTEIO (no acknowledgement), ETIMEDOUT
	// (a stretched clock), EAGAIN (arbitration lost), EOPNOTSUPP (a quirk of the
	// adapter), EMSGSIZE (longer than bufsiz), EIO.
	Err syscall.Errno
	// Times is how often it happens before the bus works again; 0 means always.
	Times int
}

// New makes an empty bench in a tree of sysfs.
func New(fs sysfs.FS) *Bench {
	return &Bench{tree: &simsysfs.Tree{FS: fs}, buses: make(map[string]*bus)}
}

// Standard makes what --sim has, on the buses that simsysfs.Bench shows: on I2C
// bus 1 a climate sensor at 0x76, an EEPROM at 0x50, a battery gauge at 0x0b and
// a clock at 0x68 that the kernel has; on SPI a flash at 0.0, and at 0.1 a wire
// from MOSI to MISO.
func Standard(fs sysfs.FS) (*Bench, error) {
	b := New(fs)
	err := b.AddI2C(1, I2C{
		Chips:  map[uint16]Chip{0x76: NewBME280(), 0x50: NewEEPROM(), 0x0b: NewGauge()},
		Kernel: map[uint16]string{0x68: "rtc-ds1307"},
	})
	if err == nil {
		err = b.AddSPI(0, 0, SPI{Chip: NewFlash()})
	}
	if err == nil {
		err = b.AddSPI(0, 1, SPI{Chip: Wire{}, Bits: 32})
	}
	return b, err
}

// add makes a bus known and plugs it in.
func (b *Bench) add(s *bus) error {
	b.mu.Lock()
	b.buses[s.name] = s
	b.mu.Unlock()
	return b.Replug(s.name)
}

func (b *Bench) find(name string) (*bus, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.buses[name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("no simulated bus %q", name)
}

// Open opens a node of the bench, as ioctl.Open does one of the kernel's.
func (b *Bench) Open(node string) (ioctl.Node, error) {
	s, err := b.find(filepath.Base(node))
	if err != nil {
		return nil, fs.ErrNotExist
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.present {
		return nil, fs.ErrNotExist
	}
	return &opened{bus: s, plugged: s.plugged}, nil
}

// Inject makes a bus fail from now on.
func (b *Bench) Inject(name string, f Fault) error {
	s, err := b.find(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
	return nil
}

// Stall makes the next transaction of a bus hang in the kernel, as if a chip held
// the clock, until release is called. waiting is closed when it does.
func (b *Bench) Stall(name string) (waiting <-chan struct{}, release func(), err error) {
	s, err := b.find(name)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall, s.waiting = make(chan struct{}), make(chan struct{})
	stall := s.stall
	return s.waiting, sync.OnceFunc(func() { close(stall) }), nil
}

// Unplug takes a bus away, as one behind a USB bridge goes: node, sysfs and all.
func (b *Bench) Unplug(name string) error {
	s, err := b.find(name)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.set(false) {
		return nil
	}
	for _, class := range []string{"class/i2c-dev", "class/spidev"} {
		if dir := sysfs.Real(filepath.Join(b.tree.FS.Dir(class), name)); dir != "" {
			b.tree.Remove(dir)
		}
	}
	b.tree.Remove(b.tree.FS.Node(name))
	return b.tree.Err()
}

// Replug brings a bus back, if it isn't there. Its chips are as they were.
func (b *Bench) Replug(name string) error {
	s, err := b.find(name)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := os.Lstat(b.tree.FS.Node(name)); err != nil { // not built by simsysfs.Bench
		if err := s.add(); err != nil {
			return err
		}
	}
	s.set(true)
	return nil
}

// set says that a bus is there or gone, and answers whether that is new.
func (s *bus) set(present bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.present == present {
		return false
	}
	s.present = present
	if present {
		s.plugged++
	}
	return true
}

// opened is one open file of a bus.
type opened struct {
	bus     *bus
	plugged int

	// Guarded by bus.mu.
	closed bool
	addr   uint16 // I2C_SLAVE
}

// Close closes the file.
func (o *opened) Close() error {
	o.bus.mu.Lock()
	defer o.bus.mu.Unlock()
	if o.closed {
		return os.ErrClosed
	}
	o.closed = true
	return nil
}

func (o *opened) run(req uint32, arg request) (int, error) {
	if done, err := o.control(req, arg); done {
		return 0, err
	}
	o.bus.adapter.Lock()
	defer o.bus.adapter.Unlock()
	if err := o.usable(); err != nil {
		return 0, err
	}
	return o.bus.kind.transact(o, req, arg)
}

func (o *opened) control(req uint32, arg request) (bool, error) {
	if err := o.usable(); err != nil {
		return true, err
	}
	o.bus.mu.Lock()
	defer o.bus.mu.Unlock()
	return o.bus.kind.control(o, req, arg)
}

func (o *opened) usable() error {
	o.bus.mu.Lock()
	defer o.bus.mu.Unlock()
	switch {
	case o.closed:
		return os.ErrClosed
	case !o.bus.present || o.plugged != o.bus.plugged:
		return o.bus.gone
	}
	return nil
}

// transfer is what every transaction passes before it reaches a chip.
func (s *bus) transfer(addr uint16) error {
	s.mu.Lock()
	stall, waiting := s.stall, s.waiting
	s.stall, s.waiting = nil, nil
	s.mu.Unlock()
	if stall != nil {
		close(waiting)
		<-stall
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.faults {
		f := &s.faults[i]
		if f.Address != 0 && f.Address != addr {
			continue
		}
		err := f.Err
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = append(s.faults[:i], s.faults[i+1:]...)
			}
		}
		return err
	}
	return nil
}
