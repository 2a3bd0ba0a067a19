package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// The operations of I2C buses and SPI chip selects.
const (
	OpI2CTransfer = "I2C_TRANSFER"
	OpI2CSMBus    = "I2C_SMBUS"
	OpI2CScan     = "I2C_SCAN"
	OpSPITransfer = "SPI_TRANSFER"
)

// I2CAddress is a chip's 7-bit address on an I2C bus, without the read/write
// bit. In JSON it is written as a string such as "0x76", and read from that, from
// "76h", and from the number 118.
type I2CAddress uint16

// String is the address as the part of a bus is named: 0x and two digits, three
// where it has ten bits.
func (a I2CAddress) String() string { return fmt.Sprintf("0x%02x", uint16(a)) }

// MarshalJSON writes the address as a string.
func (a I2CAddress) MarshalJSON() ([]byte, error) { return json.Marshal(a.String()) }

// UnmarshalJSON reads a number, or a string as ParseI2CAddress does.
func (a *I2CAddress) UnmarshalJSON(data []byte) error {
	text := string(bytes.TrimSpace(data))
	if text == "null" {
		return nil
	}
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		v, err := ParseI2CAddress(text)
		if err == nil {
			*a = v
		}
		return err
	}
	v, err := strconv.ParseUint(text, 10, 16)
	if err != nil || v > maxI2CAddress {
		return badI2CAddress()
	}
	*a = I2CAddress(v)
	return nil
}

// maxI2CAddress is the widest that I2C knows: ten bits.
const maxI2CAddress = 0x3ff

func badI2CAddress() error {
	return Errorf(InvalidArgument, "an I2C address is a number from 0 to 0x3ff, such as \"0x76\" or 118").With("field", "address")
}

// ParseI2CAddress reads an address as people write it: 0x76 or 76h. Digits alone
// are refused if they would be another address in hexadecimal, as data sheets
// and i2cdetect have them, than as a number.
func ParseI2CAddress(text string) (I2CAddress, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	digits, prefixed := strings.CutPrefix(s, "0x")
	if !prefixed {
		digits, prefixed = strings.CutSuffix(s, "h")
	}
	v, err := strconv.ParseUint(digits, 16, 16)
	if err != nil || v > maxI2CAddress {
		return 0, badI2CAddress()
	}
	if decimal, err := strconv.ParseUint(digits, 10, 16); !prefixed && (err != nil || decimal != v) {
		return 0, Errorf(InvalidArgument, "the I2C address %s can be read in two ways: write 0x%s if it is hexadecimal, which it mostly is", digits, digits).
			With("field", "address")
	}
	return I2CAddress(v), nil
}

// BusData is bytes for a bus: base64 in JSON, read also from an array of
// numbers from 0 to 255, since registers and commands are thought of so.
type BusData []byte

// MarshalJSON writes base64.
func (d BusData) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(d)) }

// UnmarshalJSON reads base64 or an array of numbers. It doesn't repeat any of
// it in an error.
func (d *BusData) UnmarshalJSON(data []byte) error {
	bad := Errorf(InvalidArgument, "data must be base64 or an array of numbers from 0 to 255").With("field", "data")
	if text := bytes.TrimSpace(data); len(text) == 0 || text[0] != '[' {
		var b []byte
		if json.Unmarshal(data, &b) != nil {
			return bad
		}
		*d = b
		return nil
	}
	var numbers []int
	if json.Unmarshal(data, &numbers) != nil {
		return bad
	}
	b := make([]byte, len(numbers))
	for i, n := range numbers {
		if n < 0 || n > 0xff {
			return bad
		}
		b[i] = byte(n)
	}
	*d = b
	return nil
}

// I2CTransfer is the args of I2C_TRANSFER: one transaction with one chip, which
// nothing else on the bus comes between. Write and Read are the usual two
// halves of it: with both, the bytes are written and the answer is read after a
// repeated start. Segments, in their place, are any sequence of the two.
type I2CTransfer struct {
	Address  I2CAddress   `json:"address"`
	Write    BusData      `json:"write,omitempty"`
	Read     int          `json:"read,omitempty"`     // bytes
	Segments []I2CSegment `json:"segments,omitempty"` // at most 42
	TenBit   bool         `json:"ten_bit,omitempty"`  // refused: no adapter of a board offers it
	// Force allows the addresses that the I2C specification reserves (0x00 to
	// 0x07, 0x78 to 0x7f). An address that a kernel driver has stays refused.
	Force bool `json:"force,omitempty"`
}

// I2CSegment is one message of a transaction: it writes or reads.
type I2CSegment struct {
	Write BusData `json:"write,omitempty"`
	Read  int     `json:"read,omitempty"`
}

// I2CTransferred is the result of I2C_TRANSFER.
type I2CTransferred struct {
	Address      I2CAddress `json:"address"`
	Data         BusData    `json:"data"` // all that was read, in order
	BytesWritten int        `json:"bytes_written"`
}

// The protocols of I2CSMBus. What they put on the wire is in the SMBus
// specification 3.2, section 6.5; the I2C blocks are those of the kernel: a
// command byte and up to 32 bytes without a count between.
const (
	SMBusQuick         = "quick" // value 1: with the read bit
	SMBusReadByte      = "read_byte"
	SMBusWriteByte     = "write_byte" // value (or command) is the byte
	SMBusReadByteData  = "read_byte_data"
	SMBusWriteByteData = "write_byte_data"
	SMBusReadWordData  = "read_word_data" // the low byte comes first
	SMBusWriteWordData = "write_word_data"
	SMBusProcessCall   = "process_call"
	SMBusReadBlock     = "read_block"
	SMBusWriteBlock    = "write_block"
	SMBusReadI2CBlock  = "read_i2c_block"
	SMBusWriteI2CBlock = "write_i2c_block"
)

// I2CSMBus is the args of I2C_SMBUS: one SMBus transaction.
type I2CSMBus struct {
	Address  I2CAddress `json:"address"`
	Protocol string     `json:"protocol"`
	Command  *int       `json:"command,omitempty"` // 0 to 255: the register; required except by quick and the bytes
	Value    *int       `json:"value,omitempty"`   // of a byte 0 to 255, of a word 0 to 65535
	Data     BusData    `json:"data,omitempty"`    // of a block: 1 to 32 bytes
	Length   int        `json:"length,omitempty"`  // of read_i2c_block: 1 to 32; 0 means 32
	PEC      bool       `json:"pec,omitempty"`     // with a checksum after it (packet error code)
	Force    bool       `json:"force,omitempty"`   // as in I2CTransfer
}

// I2CSMBusResult is the result of I2C_SMBUS.
type I2CSMBusResult struct {
	Address  I2CAddress `json:"address"`
	Protocol string     `json:"protocol"`
	Value    *int       `json:"value,omitempty"` // of the protocols that read a byte or a word
	Data     BusData    `json:"data,omitempty"`  // of those that read a block
}

// The methods of I2CScan.
const (
	// I2CScanAuto probes as i2cdetect does: by a read where EEPROMs live (0x30
	// to 0x37, 0x50 to 0x5f), which a quick write could corrupt, else by a quick
	// write, which could set off nothing but hangs few chips.
	I2CScanAuto  = "auto"
	I2CScanQuick = "quick"
	I2CScanRead  = "read"
)

// I2CScan is the args of I2C_SCAN. It looks at the whole bus and takes no lease:
// chips that other sessions use are probed too, between two of their
// transactions.
type I2CScan struct {
	First  *I2CAddress `json:"first,omitempty"`  // default 0x08
	Last   *I2CAddress `json:"last,omitempty"`   // default 0x77
	Method string      `json:"method,omitempty"` // auto, quick, read; default auto
}

// What I2C_SCAN says of an address.
const (
	I2CPresent = "present" // something acknowledged
	I2CKernel  = "kernel"  // a kernel driver has it; it wasn't probed (UU)
)

// I2CScanned is the result of I2C_SCAN.
type I2CScanned struct {
	First     I2CAddress `json:"first"`
	Last      I2CAddress `json:"last"`
	Method    string     `json:"method"`
	Addresses []I2CFound `json:"addresses"` // those where there is something, in order
	// Functions are what the adapter can do: "transfer" (I2C_TRANSFER), "pec", and
	// protocols of I2C_SMBUS.
	Functions []string `json:"functions"`
}

// I2CFound is one address that isn't free.
type I2CFound struct {
	Address I2CAddress `json:"address"`
	Status  string     `json:"status"`           // present, kernel
	Driver  string     `json:"driver,omitempty"` // of kernel
}

// How SPITransfer.CS treats the chip select.
const (
	SPICSLow  = "low" // active low, as nearly every chip wants it
	SPICSHigh = "high"
	SPICSNone = "none" // left alone: selected by other means
)

// SPITransfer is the args of SPI_TRANSFER. The chip stays selected from the
// first byte to the last, unless a segment or Split says otherwise.
//
// Write and Read are the usual two halves: the bytes are sent, then as many as
// asked for are read. With FullDuplex, what comes in while writing is the
// answer. Segments, in their place, are any sequence.
type SPITransfer struct {
	// Data is another way to say what the bus always does: it is Write, with
	// FullDuplex unless Read says how much comes after it.
	Data       BusData      `json:"data,omitempty"`
	Write      BusData      `json:"write,omitempty"`
	Read       int          `json:"read,omitempty"` // bytes
	FullDuplex bool         `json:"full_duplex,omitempty"`
	Segments   []SPISegment `json:"segments,omitempty"` // at most 64

	Mode      int    `json:"mode,omitempty"`       // 0 to 3: clock polarity (2) and phase (1)
	SpeedHz   int    `json:"speed_hz,omitempty"`   // default 500000; at most what the device tree allows
	Bits      int    `json:"bits,omitempty"`       // of a word, 1 to 32; default 8
	LSBFirst  bool   `json:"lsb_first,omitempty"`  // the least significant bit first
	CS        string `json:"cs,omitempty"`         // low, high, none; default low
	ThreeWire bool   `json:"three_wire,omitempty"` // one wire for both directions

	// Split allows what is longer than the driver's buffer to be sent in
	// pieces, between which the chip is deselected.
	Split bool `json:"split,omitempty"`
}

// SPISegment is one piece of a transfer. With Write alone what comes in is
// dropped; with Read alone zeros go out; with both they are simultaneous and of
// one length.
type SPISegment struct {
	Write    BusData `json:"write,omitempty"`
	Read     int     `json:"read,omitempty"`
	CSChange bool    `json:"cs_change,omitempty"` // deselect after it; on the last: stay selected, if the controller can
	DelayUS  int     `json:"delay_us,omitempty"`  // µs to wait after it, 0 to 65535
	Bits     int     `json:"bits,omitempty"`      // 0: as the transfer
	SpeedHz  int     `json:"speed_hz,omitempty"`  // 0: as the transfer
}

// SPITransferred is the result of SPI_TRANSFER. Words of more than 8 bits take
// two bytes, of more than 16 four, the low byte first.
type SPITransferred struct {
	Data         BusData `json:"data"` // all that was read, in order
	BytesWritten int     `json:"bytes_written"`
	SpeedHz      int     `json:"speed_hz"`         // what was asked of the controller, at most
	Pieces       int     `json:"pieces,omitempty"` // more than one: how often the chip was selected because of Split
}
