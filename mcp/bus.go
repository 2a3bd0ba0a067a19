package mcp

import (
	"context"
	"fmt"
	"strings"

	"farhand/wire"
)

func busTools() []tool {
	return []tool{
		define("i2c_scan", "Scan an I2C bus",
			"Finds the addresses of a bus at which a chip answers. An address that a kernel driver has isn't probed; it is named with its driver.",
			changes, wire.HardwareI2C, i2cScan),
		define("i2c_transfer", "Talk to an I2C chip",
			"Writes bytes to a chip, reads bytes from it, or both in one transaction: to read a register, write its number and read as many bytes as it has.",
			destroys, wire.HardwareI2C, i2cTransfer),
		define("i2c_smbus", "SMBus transaction",
			"Does one SMBus transaction with an I2C chip, for adapters without plain transfers and chips that want a checksum (pec).",
			destroys, wire.HardwareI2C, i2cSMBus),
		define("spi_transfer", "Talk to an SPI chip",
			"Sends bytes to a chip, then reads as many as asked for while it stays selected; with full_duplex what comes in while sending is the answer.",
			destroys, wire.HardwareSPI, spiTransfer),
	}
}

// onBus is an I2C bus of a machine.
type onBus struct {
	onMachine
	Device string `json:"device,omitempty" jsonschema:"id of the bus, such as i2c:1 (list_devices); default: the only one"`
}

// i2cAddress reads an address as data sheets have it.
func i2cAddress(text string) (wire.I2CAddress, error) { return wire.ParseI2CAddress(text) }

type i2cScanAsked struct {
	onBus
	First  string `json:"first,omitempty" jsonschema:"first address, such as \"0x08\"" default:"\"0x08\""`
	Last   string `json:"last,omitempty" jsonschema:"last address, such as \"0x77\"" default:"\"0x77\""`
	Method string `json:"method,omitempty" jsonschema:"how to probe; auto reads where EEPROMs live and writes nothing there" enum:"auto,quick,read" default:"\"auto\""`
}

type i2cScanned struct {
	Device    string     `json:"device"`
	Addresses []i2cFound `json:"addresses"`
}

type i2cFound struct {
	Address string `json:"address" jsonschema:"such as 0x76"`
	Status  string `json:"status" jsonschema:"present: something answered; kernel: a driver has it"`
	Driver  string `json:"driver,omitempty"`
}

func i2cScan(ctx context.Context, c *call, in i2cScanAsked) (i2cScanned, string, error) {
	first, err := i2cAddress(in.First)
	if err != nil {
		return i2cScanned{}, "", err
	}
	last, err := i2cAddress(in.Last)
	if err != nil {
		return i2cScanned{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "i2c", in.Device)
	if err != nil {
		return i2cScanned{}, "", err
	}
	got, err := at.I2CScan(ctx, at.device, wire.I2CScan{First: &first, Last: &last, Method: in.Method}, false)
	if err != nil {
		return i2cScanned{}, "", err
	}
	out := i2cScanned{Device: at.device, Addresses: []i2cFound{}}
	var text strings.Builder
	for _, a := range got.Addresses {
		out.Addresses = append(out.Addresses, i2cFound{a.Address.String(), a.Status, a.Driver})
		fmt.Fprintf(&text, "%s %s %s\n", a.Address, a.Status, a.Driver)
	}
	if len(out.Addresses) == 0 {
		text.WriteString("nothing answers\n")
	}
	return out, text.String(), nil
}

// onI2CChip is a chip on a bus.
type onI2CChip struct {
	onBus
	Address string `json:"address" jsonschema:"the chip's 7-bit address, such as \"0x76\" (i2c_scan)"`
	Hold    bool   `json:"hold,omitempty" jsonschema:"keep the chip for this connection until release_device"`
	Force   bool   `json:"force,omitempty" jsonschema:"also allow the addresses that the I2C specification reserves"`
}

type i2cTransferAsked struct {
	onI2CChip
	Write string `json:"write,omitempty" jsonschema:"bytes to write first, in hexadecimal: \"f4 27\""`
	Read  int    `json:"read,omitempty" jsonschema:"how many bytes to read then" range:"0..8192"`
}

type busDone struct {
	Device  string `json:"device"`
	Hex     string `json:"hex" jsonschema:"the bytes that were read, in hexadecimal, in order"`
	Bytes   []int  `json:"bytes" jsonschema:"the same as numbers from 0 to 255"`
	Written int    `json:"bytes_written"`
}

func busResult(device string, data []byte, written int) (busDone, string) {
	out := busDone{Device: device, Hex: hexText(data), Bytes: []int{}, Written: written}
	for _, b := range data {
		out.Bytes = append(out.Bytes, int(b))
	}
	if len(data) == 0 {
		return out, fmt.Sprintf("%d bytes written", written)
	}
	return out, out.Hex
}

func i2cTransfer(ctx context.Context, c *call, in i2cTransferAsked) (busDone, string, error) {
	address, err := i2cAddress(in.Address)
	if err != nil {
		return busDone{}, "", err
	}
	data, err := hexBytes("write", in.Write)
	if err != nil {
		return busDone{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "i2c", in.Device)
	if err != nil {
		return busDone{}, "", err
	}
	got, err := at.I2CTransfer(ctx, at.device, wire.I2CTransfer{Address: address, Write: data, Read: in.Read, Force: in.Force}, hold(in.Hold))
	if err != nil {
		return busDone{}, "", err
	}
	out, text := busResult(at.device, got.Data, got.BytesWritten)
	return out, text, nil
}

type i2cSMBusAsked struct {
	onI2CChip
	Protocol string `json:"protocol" jsonschema:"which transaction" enum:"quick,read_byte,write_byte,read_byte_data,write_byte_data,read_word_data,write_word_data,process_call,read_block,write_block,read_i2c_block,write_i2c_block"`
	Command  *int   `json:"command,omitempty" jsonschema:"the register; needed except by quick, read_byte and write_byte" range:"0..255"`
	Value    *int   `json:"value,omitempty" jsonschema:"what to write: a byte 0 to 255, a word 0 to 65535" range:"0..65535"`
	Data     string `json:"data,omitempty" jsonschema:"of a block: 1 to 32 bytes in hexadecimal"`
	Length   int    `json:"length,omitempty" jsonschema:"of read_i2c_block: how many bytes" range:"1..32"`
	PEC      bool   `json:"pec,omitempty" jsonschema:"with a checksum (packet error code)"`
}

type smbusDone struct {
	Device string `json:"device"`
	Value  *int   `json:"value,omitempty" jsonschema:"the byte or word that was read"`
	Hex    string `json:"hex,omitempty" jsonschema:"the block that was read, in hexadecimal"`
}

func i2cSMBus(ctx context.Context, c *call, in i2cSMBusAsked) (smbusDone, string, error) {
	address, err := i2cAddress(in.Address)
	if err != nil {
		return smbusDone{}, "", err
	}
	data, err := hexBytes("data", in.Data)
	if err != nil {
		return smbusDone{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "i2c", in.Device)
	if err != nil {
		return smbusDone{}, "", err
	}
	got, err := at.I2CSMBus(ctx, at.device, wire.I2CSMBus{
		Address: address, Protocol: in.Protocol, Command: in.Command, Value: in.Value, Data: data, Length: in.Length, PEC: in.PEC, Force: in.Force,
	}, hold(in.Hold))
	if err != nil {
		return smbusDone{}, "", err
	}
	out := smbusDone{Device: at.device, Value: got.Value, Hex: hexText(got.Data)}
	switch {
	case got.Value != nil:
		return out, fmt.Sprintf("0x%02x (%d)", *got.Value, *got.Value), nil
	case len(got.Data) > 0:
		return out, out.Hex, nil
	}
	return out, "done", nil
}

type spiAsked struct {
	onMachine
	Device     string `json:"device,omitempty" jsonschema:"id of the chip select, such as spi:0.0 (list_devices); default: the only one"`
	Write      string `json:"write,omitempty" jsonschema:"bytes to send, in hexadecimal: \"9f 00\""`
	Read       int    `json:"read,omitempty" jsonschema:"how many bytes to read after them" range:"0..65536"`
	FullDuplex bool   `json:"full_duplex,omitempty" jsonschema:"the answer is what comes in while sending"`
	Mode       int    `json:"mode,omitempty" jsonschema:"clock polarity (2) and phase (1)" range:"0..3"`
	SpeedHz    int    `json:"speed_hz,omitempty" jsonschema:"clock in Hz" default:"500000" range:"1..125000000"`
	Bits       int    `json:"bits,omitempty" jsonschema:"bits of a word" default:"8" range:"1..32"`
	LSBFirst   bool   `json:"lsb_first,omitempty" jsonschema:"least significant bit first"`
	CS         string `json:"cs,omitempty" jsonschema:"level at which the chip is selected; none leaves it alone" enum:"low,high,none" default:"\"low\""`
	Hold       bool   `json:"hold,omitempty" jsonschema:"keep the chip for this connection until release_device"`
}

func spiTransfer(ctx context.Context, c *call, in spiAsked) (busDone, string, error) {
	data, err := hexBytes("write", in.Write)
	if err != nil {
		return busDone{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "spi", in.Device)
	if err != nil {
		return busDone{}, "", err
	}
	got, err := at.SPITransfer(ctx, at.device, wire.SPITransfer{
		Write: data, Read: in.Read, FullDuplex: in.FullDuplex, Mode: in.Mode, SpeedHz: in.SpeedHz, Bits: in.Bits, LSBFirst: in.LSBFirst, CS: in.CS,
	}, hold(in.Hold))
	if err != nil {
		return busDone{}, "", err
	}
	out, text := busResult(at.device, got.Data, got.BytesWritten)
	return out, text, nil
}
