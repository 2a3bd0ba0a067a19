package bussim

import "math"

// EEPROM is a 24C02: 256 bytes under an address of one byte, written in pages
// of 8, within which the address wraps.
type EEPROM struct {
	cells [256]byte
	at    byte
}

// NewEEPROM makes an empty one: all bits set.
func NewEEPROM() *EEPROM {
	e := &EEPROM{}
	for i := range e.cells {
		e.cells[i] = 0xff
	}
	return e
}

const eepromPage = 8

// Write sets the address, and what follows goes to the cells of its page.
func (e *EEPROM) Write(data []byte) bool {
	if len(data) == 0 {
		return true
	}
	e.at = data[0]
	for _, b := range data[1:] {
		e.cells[e.at] = b
		e.at = e.at&^(eepromPage-1) | (e.at+1)&(eepromPage-1)
	}
	return true
}

// Read goes on from the address, and from the end to the beginning.
func (e *EEPROM) Read(data []byte) bool {
	for i := range data {
		data[i] = e.cells[e.at]
		e.at++
	}
	return true
}

// Gauge is a battery gauge that speaks SMBus, after the Smart Battery Data
// specification 1.1: words, a name that is a block, and a process call.
type Gauge struct {
	command byte
	answer  []byte // of the last command
	words   map[byte]uint16
	name    []byte
}

// Commands of the gauge. The process call isn't of the specification: it adds
// one, so that its answer shows what was sent.
const (
	GaugeTemperature  = 0x08 // 0.1 K
	GaugeVoltage      = 0x09 // mV
	GaugeManufacturer = 0x20 // a block
	GaugeAddOne       = 0x44
)

// NewGauge makes one at 11.1 V and 25.0 °C.
func NewGauge() *Gauge {
	return &Gauge{name: []byte("FARHAND"), words: map[byte]uint16{GaugeTemperature: 2982, GaugeVoltage: 11100}}
}

// Write is a command with what it takes.
func (g *Gauge) Write(data []byte) bool {
	if len(data) == 0 {
		return true
	}
	g.command, g.answer = data[0], nil
	switch rest := data[1:]; {
	case g.command == GaugeManufacturer && len(rest) > 0:
		g.name = append([]byte(nil), rest[1:]...) // after its count
	case g.command == GaugeManufacturer:
		g.answer = append([]byte{byte(len(g.name))}, g.name...)
	case g.command == GaugeAddOne && len(rest) == 2:
		g.answer = word(uint16(rest[0]) + uint16(rest[1])<<8 + 1)
	case len(rest) == 2:
		g.words[g.command] = uint16(rest[0]) | uint16(rest[1])<<8
	case len(rest) == 0:
		g.answer = word(g.words[g.command])
	default:
		return false
	}
	return true
}

func word(v uint16) []byte { return []byte{byte(v), byte(v >> 8)} }

// Read is the answer to the last command. Beyond it the lines stay high.
func (g *Gauge) Read(data []byte) bool {
	for i := range data {
		data[i] = 0xff
	}
	copy(data, g.answer)
	return true
}

// BME280 is Bosch's sensor of temperature, pressure and humidity, after data
// sheet BST-BME280-DS001: registers, calibration, modes. Its readings move
// slowly around 25 °C, 1006 hPa and half humidity, further with each
// measurement.
type BME280 struct {
	regs    [256]byte
	at      byte
	samples int
}

// Registers of the BME280.
const (
	bmeID      = 0xd0
	bmeReset   = 0xe0
	bmeHumCtrl = 0xf2
	bmeStatus  = 0xf3
	bmeCtrl    = 0xf4
	bmeConfig  = 0xf5
	bmeData    = 0xf7

	bmeChipID     = 0x60
	bmeResetWord  = 0xb6
	bmeModeMask   = 0x03
	bmeModeNormal = 0x03
)

// NewBME280 makes one that is asleep, as after power-on.
func NewBME280() *BME280 {
	b := &BME280{}
	b.reset()
	return b
}

func (b *BME280) reset() {
	b.regs = [256]byte{bmeID: bmeChipID}
	// Temperature and pressure are the worked example of data sheet
	// BST-BMP280-DS001, section 3.12: 27504, 26435, -1000 and 36477, -10685,
	// 3024, 2855, 140, -7, 15500, -14600, 6000.
	copy(b.regs[0x88:], []byte{
		0x70, 0x6b, 0x43, 0x67, 0x18, 0xfc,
		0x7d, 0x8e, 0x43, 0xd6, 0xd0, 0x0b, 0x27, 0x0b, 0x8c, 0x00, 0xf9, 0xff, 0x8c, 0x3c, 0xf8, 0xc6, 0x70, 0x17,
	})
	// Humidity is a sensor's as they come: H1 75, H2 370, H3 0, H4 313, H5 50, H6 30.
	b.regs[0xa1] = 75
	copy(b.regs[0xe1:], []byte{0x72, 0x01, 0x00, 313 >> 4, 313&0x0f | 50&0x0f<<4, 50 >> 4, 30})
	copy(b.regs[bmeData:], []byte{0x80, 0, 0, 0x80, 0, 0, 0x80, 0}) // nothing measured yet
}

// measure fills the data registers. What a sensor doesn't oversample it skips.
func (b *BME280) measure() {
	phase := float64(b.samples) / 16
	b.samples++
	pressure := 415148 + int(300*math.Sin(phase/3)) // the example's 100653 Pa
	temperature := 519888 + int(1500*math.Sin(phase))
	humidity := 28000 + int(400*math.Cos(phase/2))
	if b.regs[bmeCtrl]>>2&7 == 0 {
		pressure = 0x80000
	}
	if b.regs[bmeCtrl]>>5 == 0 {
		temperature = 0x80000
	}
	if b.regs[bmeHumCtrl]&7 == 0 {
		humidity = 0x8000
	}
	twenty := func(v int) []byte { return []byte{byte(v >> 12), byte(v >> 4), byte(v << 4)} }
	copy(b.regs[bmeData:], twenty(pressure))
	copy(b.regs[bmeData+3:], twenty(temperature))
	copy(b.regs[bmeData+6:], []byte{byte(humidity >> 8), byte(humidity)})
}

// Write is pairs of register and value; the last register alone is what a read
// begins with. Unlike with other chips the register doesn't count up.
func (b *BME280) Write(data []byte) bool {
	for len(data) >= 2 {
		b.set(data[0], data[1])
		data = data[2:]
	}
	if len(data) == 1 {
		b.at = data[0]
	}
	return true
}

func (b *BME280) set(reg, value byte) {
	switch reg {
	case bmeReset:
		if value == bmeResetWord {
			b.reset()
		}
	case bmeHumCtrl, bmeConfig:
		b.regs[reg] = value
	case bmeCtrl:
		b.regs[reg] = value
		if mode := value & bmeModeMask; mode == 1 || mode == 2 { // forced: once, then asleep
			b.measure()
			b.regs[reg] &^= bmeModeMask
		}
	}
}

// Read counts up from the register. A read of the data shadows them, so that
// they belong together.
func (b *BME280) Read(data []byte) bool {
	if b.at >= bmeData && b.regs[bmeCtrl]&bmeModeMask == bmeModeNormal && len(data) > 0 {
		b.measure()
	}
	for i := range data {
		data[i] = b.regs[b.at]
		b.at++
	}
	return true
}
