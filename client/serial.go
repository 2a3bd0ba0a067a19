package client

import (
	"context"

	"farhand/wire"
)

// SerialWrite writes to a serial port.
func (s *Session) SerialWrite(ctx context.Context, device string, args wire.SerialWrite, hold Hold) (wire.SerialWritten, error) {
	return operate[wire.SerialWritten](ctx, s, device, wire.OpSerialWrite, args, hold)
}

// SerialRead reads from a serial port until a size, a pattern or a timeout.
func (s *Session) SerialRead(ctx context.Context, device string, args wire.SerialRead, hold Hold) (wire.SerialData, error) {
	return operate[wire.SerialData](ctx, s, device, wire.OpSerialRead, args, hold)
}

// SerialTransact writes to a serial port and reads the answer.
func (s *Session) SerialTransact(ctx context.Context, device string, args wire.SerialTransact, hold Hold) (wire.SerialData, error) {
	return operate[wire.SerialData](ctx, s, device, wire.OpSerialTransact, args, hold)
}

// SerialExpect writes to a serial port and waits for patterns, step by step.
func (s *Session) SerialExpect(ctx context.Context, device string, args wire.SerialExpect, hold Hold) (wire.SerialExpected, error) {
	return operate[wire.SerialExpected](ctx, s, device, wire.OpSerialExpect, args, hold)
}

// SerialControl sets and reads the modem lines of a serial port.
func (s *Session) SerialControl(ctx context.Context, device string, args wire.SerialControl, hold Hold) (wire.SerialLines, error) {
	return operate[wire.SerialLines](ctx, s, device, wire.OpSerialControl, args, hold)
}

// SerialWatch receives what comes on a serial port, as bytes.
func (s *Session) SerialWatch(ctx context.Context, device string, args wire.SerialWatch) (*Stream, wire.SerialWatching, error) {
	return look[wire.SerialWatching](ctx, s, device, wire.OpSerialWatch, args)
}
