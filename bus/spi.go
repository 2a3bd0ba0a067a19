package bus

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"syscall"
	"time"

	"farhand/bus/ioctl"
	"farhand/bus/spidev"
	"farhand/wire"
)

// Limits of SPI.
const (
	MaxSPITransfer  = 1 << 20 // bytes of one operation, each way
	MaxSPISegments  = 64
	MaxSPITime      = 25 * time.Second // on the wire: it can't be called off, and the platform waits 30 s
	DefaultSPISpeed = 500_000          // Hz: what leads on a breadboard carry
	DefaultSPIBits  = 8
	maxSPIBits      = 32
	maxSPIDelay     = 65535 // µs: a 16-bit field
)

// SPISettings are how a transfer is clocked.
type SPISettings struct {
	Mode      uint32 // spidev.CPHA and spidev.CPOL
	CSHigh    bool
	NoCS      bool
	ThreeWire bool
	LSBFirst  bool
	SpeedHz   uint32 // of segments that name none
	Bits      uint8  // of segments that name none
	// Split allows several messages, between which the chip is deselected, if one
	// would be longer than the driver's buffer.
	Split bool
}

// SPIDevice is an opened chip select. Its methods may be used from several
// goroutines; transfers run one after the other.
type SPIDevice struct {
	node    string
	bufSize int
	maxHz   uint32
	dev     spidev.Device
	turn    turn
}

// OpenSPI opens a chip select. open is ioctl.Open, or what stands in for it;
// bufSize is the spidev module's bufsiz.
func OpenSPI(node string, open func(string) (ioctl.Node, error), bufSize int) (*SPIDevice, error) {
	n, err := open(node)
	if err != nil {
		return nil, openError(node, err)
	}
	d := &SPIDevice{node: node, bufSize: bufSize, dev: spidev.Device{Node: n}, turn: newTurn()}
	if d.maxHz, err = d.dev.MaxSpeed(); err != nil {
		return nil, errors.Join(openError(node, err), n.Close())
	}
	return d, nil
}

// Close waits for the transfer that runs and closes the device. It may be
// repeated.
func (d *SPIDevice) Close() error {
	if !d.turn.close() {
		return nil
	}
	if err := d.dev.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", d.node, err)
	}
	return nil
}

// SPIDone says how a transfer went.
type SPIDone struct {
	SpeedHz uint32 // the fastest of its segments, after the device's limit
	Pieces  int
	Sent    int // bytes written, also of a transfer that failed
}

// Transfer sends and fills the segments. If ctx ends it answers at once, and
// their buffers are not to be used again.
func (d *SPIDevice) Transfer(ctx context.Context, s SPISettings, segments []spidev.Segment) (SPIDone, error) {
	var done SPIDone
	segments = slices.Clone(segments)
	var took time.Duration
	for i := range segments {
		g := &segments[i]
		if g.SpeedHz == 0 {
			g.SpeedHz = s.SpeedHz
		}
		if d.maxHz > 0 {
			g.SpeedHz = min(g.SpeedHz, d.maxHz)
		}
		if g.BitsPerWord == 0 {
			g.BitsPerWord = s.Bits
		}
		done.SpeedHz = max(done.SpeedHz, g.SpeedHz)
		took += airtime(*g)
	}
	if took > MaxSPITime {
		return done, wire.Errorf(wire.InvalidArgument, "%s: the transfer would take %.0f s, at most %.0f s are allowed",
			d.node, took.Seconds(), MaxSPITime.Seconds()).With("field", "speed_hz").With("hint", "send less at a time, or faster")
	}
	pieces, err := d.pieces(s, segments)
	if err != nil {
		return done, err
	}
	if err := d.turn.run(ctx, func() error { return d.send(s, pieces, &done) }); err != nil {
		if ctx.Err() != nil { // send may still be counting
			return SPIDone{}, err
		}
		return done, spiError(d.node, d.node, done.Sent, err)
	}
	return done, nil
}

// airtime is how long a segment keeps the bus.
func airtime(g spidev.Segment) time.Duration {
	words := float64(g.Len()) / float64(wordBytes(g.BitsPerWord))
	seconds := words * float64(g.BitsPerWord) / float64(max(g.SpeedHz, 1))
	return time.Duration(min(seconds, 1e6)*float64(time.Second)) + time.Duration(g.DelayUsecs)*time.Microsecond
}

// wordBytes is how much memory a word takes: spidev keeps words as the
// machine's integers.
func wordBytes(bits uint8) int {
	switch {
	case bits <= 8:
		return 1
	case bits <= 16:
		return 2
	}
	return 4
}

// bufAlign is in what steps a segment fills the driver's buffer, at most: the
// cache line that DMA needs on arm64 (ARCH_KMALLOC_MINALIGN).
const bufAlign = 128

func aligned(n int) int { return (n + bufAlign - 1) / bufAlign * bufAlign }

// pieces cuts segments into messages that the driver's buffer holds. What is
// sent and what is received count each for itself.
func (d *SPIDevice) pieces(s SPISettings, segments []spidev.Segment) ([][]spidev.Segment, error) {
	tx, rx := 0, 0
	for _, g := range segments {
		tx, rx = tx+len(g.Tx), rx+len(g.Rx)
	}
	// Without a chip select there is nothing to keep between two messages.
	mayCut := s.Split || s.NoCS
	if max(tx, rx) > d.bufSize && !mayCut {
		return nil, d.tooLong(max(tx, rx))
	}
	if !mayCut || max(tx, rx)+bufAlign*len(segments) <= d.bufSize {
		return [][]spidev.Segment{segments}, nil
	}
	most := max(d.bufSize/bufAlign*bufAlign, 4) // whole words of any size
	var all [][]spidev.Segment
	var piece []spidev.Segment
	used := 0
	for _, g := range segments {
		for first := true; first || g.Len() > 0; first = false {
			// A segment that fits into one message isn't cut.
			if used > 0 && (used >= most || g.Len() <= most && used+aligned(g.Len()) > most) {
				all, piece, used = append(all, piece), nil, 0
			}
			head, rest := cut(g, most-used)
			piece, used = append(piece, head), used+aligned(head.Len())
			g = rest
		}
	}
	all = append(all, piece)
	for _, p := range all[:len(all)-1] {
		p[len(p)-1].CSChange = false // the end of a message deselects; here it would not
	}
	return all, nil
}

// cut takes at most n bytes off a segment. What comes after a segment comes
// after its rest.
func cut(g spidev.Segment, n int) (head, rest spidev.Segment) {
	if g.Len() <= n {
		return g, spidev.Segment{}
	}
	head, rest = g, g
	head.CSChange, head.DelayUsecs = false, 0
	if len(g.Tx) > 0 {
		head.Tx, rest.Tx = g.Tx[:n], g.Tx[n:]
	}
	if len(g.Rx) > 0 {
		head.Rx, rest.Rx = g.Rx[:n], g.Rx[n:]
	}
	return head, rest
}

func (d *SPIDevice) tooLong(n int) error {
	return wire.Errorf(wire.InvalidArgument, "%s: the SPI driver's buffer takes %d bytes at a time, not %d", d.node, d.bufSize, n).
		With("field", "bufsiz").With("limit", d.bufSize).
		With("hint", "boot with spidev.bufsiz=65536 on the kernel's command line, or allow the chip to be deselected between pieces with split:true")
}

// send is what has its turn.
func (d *SPIDevice) send(s SPISettings, pieces [][]spidev.Segment, done *SPIDone) error {
	reverse, err := d.setMode(s, pieces)
	if err != nil {
		return err
	}
	for _, p := range pieces {
		if reverse {
			p = reversed(p)
		}
		if err := d.dev.Transfer(p); err != nil {
			if errors.Is(err, syscall.EMSGSIZE) { // many short segments, each in steps of its own
				return d.tooLong(total(p))
			}
			return err
		}
		done.Pieces++
		for _, g := range p {
			done.Sent += len(g.Tx)
			if reverse {
				reverseBits(g.Rx)
			}
		}
	}
	return nil
}

func total(p []spidev.Segment) (n int) {
	for _, g := range p {
		n += g.Len()
	}
	return n
}

// ours are the bits of the mode that a transfer decides; the rest stays as the
// device tree has it.
const ours = spidev.CPHA | spidev.CPOL | spidev.CSHigh | spidev.LSBFirst | spidev.ThreeWire | spidev.NoCS

// setMode sets the mode, which another program may have changed since. A
// controller that can't send the least significant bit first gets bytes that
// are turned round.
func (d *SPIDevice) setMode(s SPISettings, pieces [][]spidev.Segment) (reverse bool, err error) {
	before, err := d.dev.Mode()
	if err != nil {
		return false, err
	}
	want := s.Mode & (spidev.CPHA | spidev.CPOL)
	for bit, on := range map[uint32]bool{spidev.CSHigh: s.CSHigh, spidev.NoCS: s.NoCS, spidev.ThreeWire: s.ThreeWire, spidev.LSBFirst: s.LSBFirst} {
		if on {
			want |= bit
		}
	}
	mode := before&^ours | want
	if mode != before {
		err = d.dev.SetMode(mode)
	}
	if errors.Is(err, syscall.EINVAL) && s.LSBFirst && bytesOnly(pieces) {
		reverse = true
		mode &^= spidev.LSBFirst
		if err = nil; mode != before {
			err = d.dev.SetMode(mode)
		}
	}
	if errors.Is(err, syscall.EINVAL) {
		return false, unsupported("spi_mode", "%s: the controller can't do this mode", d.node).
			With("os_error", errnoName(err)).With("hint", "cs none, cs high, three_wire and lsb_first depend on the controller")
	}
	if err != nil {
		return false, err
	}
	// A chip select that is a GPIO line keeps the device tree's polarity, and the
	// kernel answers as if the bit had been taken.
	if s.CSHigh {
		after, err := d.dev.Mode()
		if err == nil && after&spidev.CSHigh == 0 {
			err = unsupported("spi_cs_high", "%s: this chip select is a GPIO line, whose polarity comes from the device tree", d.node).
				With("hint", "use cs none and drive the line with GPIO_SET, or an overlay with spi-cs-high")
		}
		if err != nil {
			return false, err
		}
	}
	return reverse, nil
}

func bytesOnly(pieces [][]spidev.Segment) bool {
	for _, p := range pieces {
		for _, g := range p {
			if g.BitsPerWord != 8 {
				return false
			}
		}
	}
	return true
}

// reversed are the segments with what is sent turned round. What is received
// goes to the caller's buffers and is turned round there.
func reversed(p []spidev.Segment) []spidev.Segment {
	p = slices.Clone(p)
	for i := range p {
		p[i].Tx = slices.Clone(p[i].Tx)
		reverseBits(p[i].Tx)
	}
	return p
}

func reverseBits(b []byte) {
	for i := range b {
		b[i] = bits.Reverse8(b[i])
	}
}
