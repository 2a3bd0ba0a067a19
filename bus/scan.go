package bus

import (
	"context"
	"errors"

	"farhand/bus/i2cdev"
	"farhand/wire"
)

// The addresses that aren't reserved by the I2C specification (NXP UM10204
// section 3.1.12).
const (
	firstAddress = 0x08
	lastAddress  = 0x77
	maxAddress   = 0x7f // seven bits
)

// deadBus is after how many timeouts one after the other a scan gives up: each
// takes about a second, and a line that is held low fails every address.
const deadBus = 3

// Scan looks which addresses answer. It leaves those alone that a kernel driver
// has. A missing acknowledgement is what it expects; other failures are a free
// address too, since some adapters have no other word for it, unless the bus
// times out again and again.
func (b *I2CBus) Scan(ctx context.Context, first, last uint16, method string) ([]wire.I2CFound, error) {
	found := []wire.I2CFound{}
	timeouts := 0
	for addr := first; addr <= last; addr++ {
		call, err := b.probe(addr, method)
		if err != nil {
			return nil, err
		}
		_, err = b.SMBus(ctx, addr, call)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil:
			found = append(found, wire.I2CFound{Address: wire.I2CAddress(addr), Status: wire.I2CPresent})
		case errors.Is(err, wire.HardwareBusy):
			found = append(found, wire.I2CFound{Address: wire.I2CAddress(addr), Status: wire.I2CKernel, Driver: b.owner(addr)})
		case !errors.Is(err, wire.HardwareTransferFailed):
			return nil, err
		case wire.AsError(err).Details["reason"] == ReasonTimeout:
			if timeouts++; timeouts == deadBus {
				return nil, err
			}
			continue
		}
		timeouts = 0
	}
	return found, nil
}

// probe is the call that a method asks for at an address, as far as the adapter
// has it. The ranges of auto are those of i2cdetect.
func (b *I2CBus) probe(addr uint16, method string) (Call, error) {
	quick, read := Call{Protocol: wire.SMBusQuick}, Call{Protocol: wire.SMBusReadByte}
	canQuick, canRead := b.funcs&i2cdev.FuncQuick != 0, b.funcs&i2cdev.FuncReadByte != 0
	switch {
	case method == wire.I2CScanQuick && canQuick:
		return quick, nil
	case method == wire.I2CScanRead && canRead:
		return read, nil
	case method != wire.I2CScanAuto || !canQuick && !canRead:
		return Call{}, unsupported("i2c_scan_"+method, "the adapter of %s can't probe by the method %s", b.node, method).
			With("hint", "use another method: auto, quick or read")
	case !canQuick:
		return read, nil
	}
	eeprom := addr >= 0x30 && addr <= 0x37 || addr >= 0x50 && addr <= 0x5f
	if eeprom && canRead {
		return read, nil
	}
	return quick, nil
}
