//go:build !linux

package serialio

import (
	"context"
	"time"
)

// Port can't be had on this system.
type Port struct{}

func notHere() error {
	return unsupported("serial", "serial ports are driven on Linux only")
}

// Open fails with FEATURE_NOT_SUPPORTED, as does everything else.
func Open(string, Mode) (*Port, error) { return nil, notHere() }

// Mode is the default.
func (*Port) Mode() Mode { return DefaultMode() }

// Baud is 0.
func (*Port) Baud() int { return 0 }

// SetMode fails.
func (*Port) SetMode(Mode) error { return notHere() }

// Modem fails.
func (*Port) Modem() (int, error) { return 0, notHere() }

// SetModem fails.
func (*Port) SetModem(int, bool) error { return notHere() }

// Break fails.
func (*Port) Break(context.Context, time.Duration) error { return notHere() }

// FlushInput fails.
func (*Port) FlushInput(context.Context) error { return notHere() }

// Read fails.
func (*Port) Read(context.Context, ReadOptions) (ReadResult, error) { return ReadResult{}, notHere() }

// Write fails.
func (*Port) Write(context.Context, []byte, time.Duration) (int, error) { return 0, notHere() }

// Drain fails.
func (*Port) Drain(context.Context, time.Duration) error { return notHere() }

// Close does nothing.
func (*Port) Close() error { return nil }
