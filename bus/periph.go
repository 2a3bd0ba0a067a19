package bus

import (
	"context"

	"periph.io/x/conn/v3"
	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/physic"
	"periph.io/x/conn/v3/spi"

	"farhand/bus/i2cdev"
	"farhand/bus/spidev"
)

var _ i2c.BusCloser = (*I2CBus)(nil)

// String is the bus's node.
func (b *I2CBus) String() string { return b.node }

// Tx is a transfer as periph's device drivers ask for it: what is written, then
// what is read, either of them empty.
func (b *I2CBus) Tx(addr uint16, w, r []byte) error {
	var messages []i2cdev.Message
	if len(w) > 0 {
		messages = append(messages, i2cdev.Message{Data: w})
	}
	if len(r) > 0 {
		messages = append(messages, i2cdev.Message{Read: true, Data: r})
	}
	if len(messages) == 0 {
		return nil
	}
	return b.Transfer(context.Background(), addr, messages)
}

// SetSpeed fails: the speed of a bus comes from the device tree.
func (b *I2CBus) SetSpeed(physic.Frequency) error {
	return unsupported("i2c_speed", "%s: the speed of an I2C bus comes from the device tree", b.node).
		With("hint", "set dtparam=i2c_arm_baudrate in config.txt and restart")
}

var _ spi.PortCloser = (*SPIDevice)(nil)

// String is the device's node.
func (d *SPIDevice) String() string { return d.node }

// LimitSpeed bounds the clock of the connections that are made afterwards.
func (d *SPIDevice) LimitSpeed(f physic.Frequency) error {
	if f < physic.Hertz {
		return invalid("speed_hz", "must be at least 1")
	}
	hz := uint32(min(f/physic.Hertz, maxSPISpeed))
	if d.maxHz == 0 || hz < d.maxHz {
		d.maxHz = hz
	}
	return nil
}

// Connect is how periph's device drivers say how their chip is clocked. Unlike
// with other ports it may be called again, for another connection.
func (d *SPIDevice) Connect(f physic.Frequency, mode spi.Mode, bits int) (spi.Conn, error) {
	const known = spi.Mode3 | spi.HalfDuplex | spi.NoCS | spi.LSBFirst
	if mode&^known != 0 || bits < 1 || bits > maxSPIBits {
		return nil, invalid("mode", "%v with words of %d bits can't be had", mode, bits)
	}
	c := spiConn{d: d, set: SPISettings{
		Mode: uint32(mode & spi.Mode3), ThreeWire: mode&spi.HalfDuplex != 0, NoCS: mode&spi.NoCS != 0,
		LSBFirst: mode&spi.LSBFirst != 0, SpeedHz: uint32(min(f/physic.Hertz, maxSPISpeed)), Bits: uint8(bits),
	}}
	if c.set.SpeedHz == 0 {
		c.set.SpeedHz = DefaultSPISpeed
	}
	return c, nil
}

// spiConn is a chip select with the settings of one chip.
type spiConn struct {
	d   *SPIDevice
	set SPISettings
}

func (c spiConn) String() string { return c.d.node }

// Duplex says whether both directions can be used at once.
func (c spiConn) Duplex() conn.Duplex {
	if c.set.ThreeWire {
		return conn.Half
	}
	return conn.Full
}

// MaxTxSize is how many bytes a transfer may have (conn.Limits).
func (c spiConn) MaxTxSize() int { return c.d.bufSize }

// Tx sends and fills at once, or only the one that isn't empty.
func (c spiConn) Tx(w, r []byte) error { return c.TxPackets([]spi.Packet{{W: w, R: r}}) }

// TxPackets sends packets. A packet without KeepCS deselects the chip after it;
// the last one with KeepCS leaves it selected.
func (c spiConn) TxPackets(packets []spi.Packet) error {
	segments := make([]spidev.Segment, len(packets))
	for i, p := range packets {
		if len(p.W) > 0 && len(p.R) > 0 && (len(p.W) != len(p.R) || c.set.ThreeWire) {
			return invalid("write", "and read of one packet must be of one length, and can't share a wire")
		}
		last := i == len(packets)-1
		segments[i] = spidev.Segment{Tx: p.W, Rx: p.R, BitsPerWord: p.BitsPerWord, CSChange: p.KeepCS == last}
	}
	_, err := c.d.Transfer(context.Background(), c.set, segments)
	return err
}
