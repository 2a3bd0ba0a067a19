package client

import (
	"context"

	"farhand/wire"
)

// GPIOGet reads the levels of lines and changes nothing.
func (s *Session) GPIOGet(ctx context.Context, device string, args wire.GPIOGet, hold Hold) (wire.GPIOValues, error) {
	return operate[wire.GPIOValues](ctx, s, device, wire.OpGPIOGet, args, hold)
}

// GPIOSet drives lines. It keeps them, whatever hold says.
func (s *Session) GPIOSet(ctx context.Context, device string, args wire.GPIOSet, hold Hold) (wire.GPIOValues, error) {
	return operate[wire.GPIOValues](ctx, s, device, wire.OpGPIOSet, args, hold)
}

// GPIOConfigure sets how lines are: direction, pull, drive, debounce, what becomes of them in the end.
func (s *Session) GPIOConfigure(ctx context.Context, device string, args wire.GPIOConfigure, hold Hold) (wire.GPIOConfigured, error) {
	return operate[wire.GPIOConfigured](ctx, s, device, wire.OpGPIOConfigure, args, hold)
}

// GPIOPWM makes a square wave on a line, or changes or ends it.
func (s *Session) GPIOPWM(ctx context.Context, device string, args wire.GPIOPWM, hold Hold) (wire.GPIOPWMState, error) {
	return operate[wire.GPIOPWMState](ctx, s, device, wire.OpGPIOPWM, args, hold)
}

// GPIOInfo describes a chip and its lines, and who has them.
func (s *Session) GPIOInfo(ctx context.Context, device string, args wire.GPIOInfo, hold Hold) (wire.GPIOChip, error) {
	return operate[wire.GPIOChip](ctx, s, device, wire.OpGPIOInfo, args, hold)
}

// GPIOWatch receives the edges of lines: records of wire.GPIORecord.
func (s *Session) GPIOWatch(ctx context.Context, device string, args wire.GPIOWatch) (*Stream, wire.GPIOWatching, error) {
	return look[wire.GPIOWatching](ctx, s, device, wire.OpGPIOWatch, args)
}

// ReleaseLines gives lines of a GPIO chip back, or all that the session has of a
// device, of whatever family, if none are named. What becomes of outputs is what
// was said when they were set.
func (s *Session) ReleaseLines(ctx context.Context, device string, lines ...wire.GPIOLine) (wire.Released, error) {
	return operate[wire.Released](ctx, s, device, wire.OpRelease, wire.GPIOSelect{Lines: wire.GPIOLines{Names: lines}}, false)
}
