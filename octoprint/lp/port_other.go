//go:build !linux

package lp

import (
	"context"
	"time"

	"farhand/wire"
)

// Port can't be opened here.
type Port struct{}

func unsupported() error {
	return wire.Errorf(wire.FeatureNotSupported, "USB printer ports are driven on Linux only").With("feature", "hardware_printer")
}

// Open is FEATURE_NOT_SUPPORTED.
func Open(string) (*Port, error) { return nil, unsupported() }

// Close does nothing.
func (*Port) Close() error { return nil }

// Status is FEATURE_NOT_SUPPORTED.
func (*Port) Status() (Status, error) { return Status{}, unsupported() }

// DeviceID is FEATURE_NOT_SUPPORTED.
func (*Port) DeviceID() (map[string]string, error) { return nil, unsupported() }

// Write is FEATURE_NOT_SUPPORTED.
func (*Port) Write(context.Context, []byte, time.Duration) (int, error) { return 0, unsupported() }
