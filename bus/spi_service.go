package bus

import (
	"context"
	"fmt"
	"strconv"

	"farhand/bus/ioctl"
	"farhand/bus/spidev"
	"farhand/device"
	"farhand/device/sysfs"
	"farhand/wire"
)

// SPIService serves SPI_TRANSFER. The zero value serves this machine.
type SPIService struct {
	FS   sysfs.FS
	Open func(node string) (ioctl.Node, error) // nil: ioctl.Open
}

var _ device.Service = SPIService{}

// Ops is the operation.
func (SPIService) Ops() map[string]device.Effect {
	return map[string]device.Effect{wire.OpSPITransfer: device.Mutating}
}

// Do runs it.
func (s SPIService) Do(ctx context.Context, r *device.Request) (any, error) {
	if r.Op != wire.OpSPITransfer {
		return nil, unsupported(string(wire.HardwareCapability(device.SPI)), "no operation %q", device.Clean(r.Op))
	}
	return do(r, func(a wire.SPITransfer) (wire.SPITransferred, error) { return s.transfer(ctx, r, a) })
}

// device is the lease's opened chip select, which ends with the lease.
func (s SPIService) device(r *device.Request) (*SPIDevice, error) {
	if d, ok := r.Lease.State().(*SPIDevice); ok {
		return d, nil
	}
	open := s.Open
	if open == nil {
		open = ioctl.Open
	}
	d, err := OpenSPI(r.Device.Node, open, s.bufSize())
	if err != nil {
		return nil, err
	}
	r.Lease.SetState(d)
	return d, nil
}

// bufSize is how much the driver takes at a time.
func (s SPIService) bufSize() int {
	n, err := strconv.Atoi(sysfs.Attr(s.FS.Dir("module/spidev/parameters"), "bufsiz"))
	if err != nil || n <= 0 {
		return spidev.DefaultBufSize
	}
	return n
}

func (s SPIService) transfer(ctx context.Context, r *device.Request, a wire.SPITransfer) (wire.SPITransferred, error) {
	out := wire.SPITransferred{Data: wire.BusData{}}
	set, err := spiSettings(a)
	if err != nil {
		return out, err
	}
	segments, err := spiSegments(a, set)
	if err != nil {
		return out, err
	}
	d, err := s.device(r)
	if err != nil {
		return out, err
	}
	done, err := d.Transfer(ctx, set, segments)
	r.Trace.BytesOut += done.Sent
	if err != nil {
		return out, err
	}
	for _, g := range segments {
		out.Data = append(out.Data, g.Rx...)
	}
	r.Trace.BytesIn += len(out.Data)
	out.BytesWritten, out.SpeedHz = done.Sent, int(done.SpeedHz)
	if done.Pieces > 1 {
		out.Pieces = done.Pieces
	}
	return out, nil
}

func spiSettings(a wire.SPITransfer) (SPISettings, error) {
	s := SPISettings{Mode: uint32(a.Mode), LSBFirst: a.LSBFirst, ThreeWire: a.ThreeWire, Split: a.Split,
		SpeedHz: uint32(a.SpeedHz), Bits: uint8(a.Bits)}
	if a.Mode < 0 || a.Mode > 3 {
		return s, invalid("mode", "must be 0 to 3")
	}
	if err := checkClock("", a.SpeedHz, a.Bits); err != nil {
		return s, err
	}
	if s.SpeedHz == 0 {
		s.SpeedHz = DefaultSPISpeed
	}
	if s.Bits == 0 {
		s.Bits = DefaultSPIBits
	}
	switch a.CS {
	case "", wire.SPICSLow:
	case wire.SPICSHigh:
		s.CSHigh = true
	case wire.SPICSNone:
		s.NoCS = true
	default:
		return s, invalid("cs", "must be low, high or none")
	}
	return s, nil
}

// maxSPISpeed is far above any controller, and fits what the kernel takes.
const maxSPISpeed = 1_000_000_000

func checkClock(prefix string, speed, bits int) error {
	if speed < 0 || speed > maxSPISpeed {
		return invalid(prefix+"speed_hz", "must be 1 to %d", maxSPISpeed)
	}
	if bits < 0 || bits > maxSPIBits {
		return invalid(prefix+"bits", "must be 1 to %d", maxSPIBits)
	}
	return nil
}

// spiSegments are the segments that a transfer asks for.
func spiSegments(a wire.SPITransfer, s SPISettings) ([]spidev.Segment, error) {
	asked := a.Segments
	if len(a.Data) > 0 {
		if len(a.Write) > 0 {
			return nil, invalid("data", "is another name for write: give either")
		}
		a.Write, a.FullDuplex = a.Data, a.FullDuplex || a.Read == 0
	}
	switch {
	case len(asked) > 0 && (len(a.Write) > 0 || a.Read != 0 || a.FullDuplex):
		return nil, invalid("segments", "take the place of write, read and full_duplex: give either")
	case len(asked) > MaxSPISegments:
		return nil, invalid("segments", "may be at most %d, not %d", MaxSPISegments, len(asked))
	case a.FullDuplex:
		if len(a.Write) == 0 || a.Read != 0 && a.Read != len(a.Write) {
			return nil, invalid("full_duplex", "reads as many bytes as it writes")
		}
		asked = []wire.SPISegment{{Write: a.Write, Read: len(a.Write)}}
	case len(asked) == 0:
		if len(a.Write) > 0 {
			asked = append(asked, wire.SPISegment{Write: a.Write})
		}
		if a.Read != 0 {
			asked = append(asked, wire.SPISegment{Read: a.Read})
		}
		if len(asked) == 0 {
			return nil, invalid("write", "or read is missing")
		}
	}
	var all []spidev.Segment
	written, read := 0, 0
	for i, g := range asked {
		seg, err := spiSegment(fmt.Sprintf("segments[%d].", i), g, s)
		if err != nil {
			return nil, err
		}
		// Before memory is taken for what is to be read.
		if written, read = written+len(g.Write), read+g.Read; max(written, read) > MaxSPITransfer {
			return nil, invalid("segments", "may have at most %d bytes each way", MaxSPITransfer)
		}
		if g.Read > 0 {
			seg.Rx = make([]byte, g.Read)
		}
		all = append(all, seg)
	}
	return all, nil
}

// spiSegment checks one segment. Its Rx is left to the caller.
func spiSegment(at string, g wire.SPISegment, s SPISettings) (spidev.Segment, error) {
	seg := spidev.Segment{Tx: g.Write, CSChange: g.CSChange}
	if err := checkClock(at, g.SpeedHz, g.Bits); err != nil {
		return seg, err
	}
	seg.SpeedHz, seg.BitsPerWord = uint32(g.SpeedHz), uint8(g.Bits)
	word := wordBytes(s.Bits)
	if g.Bits != 0 {
		word = wordBytes(seg.BitsPerWord)
	}
	n := max(len(g.Write), g.Read)
	switch {
	case g.Read < 0 || g.Read > MaxSPITransfer:
		return seg, invalid(at+"read", "must be 0 to %d bytes", MaxSPITransfer)
	case n == 0:
		return seg, invalid(at+"write", "or read is missing")
	case len(g.Write) > 0 && g.Read > 0 && s.ThreeWire:
		return seg, invalid(at+"read", "can't be while writing: there is one wire for both")
	case len(g.Write) > 0 && g.Read > 0 && g.Read != len(g.Write):
		return seg, invalid(at+"read", "must be as long as write, since they are simultaneous; a segment of its own reads afterwards")
	case n%word != 0:
		return seg, invalid(at+"write", "must be whole words of %d bytes", word)
	case g.DelayUS < 0 || g.DelayUS > maxSPIDelay:
		return seg, invalid(at+"delay_us", "must be 0 to %d", maxSPIDelay)
	}
	seg.DelayUsecs = uint16(g.DelayUS)
	return seg, nil
}
