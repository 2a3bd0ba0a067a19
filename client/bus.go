package client

import (
	"context"

	"farhand/wire"
)

// I2CTransfer writes to an I2C chip, reads from it, or both in one transaction.
func (s *Session) I2CTransfer(ctx context.Context, device string, args wire.I2CTransfer, hold Hold) (wire.I2CTransferred, error) {
	return operate[wire.I2CTransferred](ctx, s, device, wire.OpI2CTransfer, args, hold)
}

// I2CSMBus does one SMBus transaction with an I2C chip.
func (s *Session) I2CSMBus(ctx context.Context, device string, args wire.I2CSMBus, hold Hold) (wire.I2CSMBusResult, error) {
	return operate[wire.I2CSMBusResult](ctx, s, device, wire.OpI2CSMBus, args, hold)
}

// I2CScan looks which addresses of an I2C bus answer.
func (s *Session) I2CScan(ctx context.Context, device string, args wire.I2CScan, hold Hold) (wire.I2CScanned, error) {
	return operate[wire.I2CScanned](ctx, s, device, wire.OpI2CScan, args, hold)
}

// SPITransfer does one SPI transaction.
func (s *Session) SPITransfer(ctx context.Context, device string, args wire.SPITransfer, hold Hold) (wire.SPITransferred, error) {
	return operate[wire.SPITransferred](ctx, s, device, wire.OpSPITransfer, args, hold)
}
