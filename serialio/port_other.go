//go:build !linux

package serialio

import (
	"context"
	"time"

	"farhand/wire"
)

// Port can't be had on this system.
type Port struct{ node string }

func notHere() error {
	return unsupported("serial", "serial ports are driven on Linux only")
}

// Open fails with FEATURE_NOT_SUPPORTED, as does everything else.
func Open(string, Mode) (*Port, error) { return nil, notHere() }

// OpenWith fails.
func OpenWith(context.Context, string, Mode, Reset) (*Port, error) { return nil, notHere() }

// Opened is empty.
func (*Port) Opened() wire.SerialOpened { return wire.SerialOpened{} }

// Meddling is empty.
func (*Port) Meddling() []string { return nil }

// Mode is the default.
func (*Port) Mode() Mode { return DefaultMode() }

// Baud is 0.
func (*Port) Baud() int { return 0 }

// LowLatency is false.
func (*Port) LowLatency() bool { return false }

// RS485 is none.
func (*Port) RS485() (RS485, bool) { return RS485{}, false }

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

// Failed says that it can't be had.
func (*Port) Failed() error { return notHere() }

// Offsets are 0.
func (*Port) Offsets() (oldest, next int64) { return 0, 0 }

func (*Port) cursor() (offset int64, waiting int) { return 0, 0 }

// Follow fails.
func (*Port) Follow(context.Context, int64, []byte) (int, int64, error) { return 0, 0, notHere() }

// Read fails.
func (*Port) Read(context.Context, ReadOptions) (ReadResult, error) { return ReadResult{}, notHere() }

// Write fails.
func (*Port) Write(context.Context, []byte, time.Duration) (int, error) { return 0, notHere() }

// Drain fails.
func (*Port) Drain(context.Context, time.Duration) error { return notHere() }

// Close does nothing.
func (*Port) Close() error { return nil }
