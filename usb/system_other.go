//go:build !linux

package usb

import (
	"farhand/device"
	"farhand/wire"
)

// Open fails with FEATURE_NOT_SUPPORTED.
func (System) Open(device.Descriptor) (Handle, error) {
	return nil, wire.Errorf(wire.FeatureNotSupported, "USB devices are driven on Linux only").With("feature", "hardware_usb")
}
