package client

import (
	"context"

	"farhand/wire"
)

// USBDescribe reads a USB device's descriptors.
func (s *Session) USBDescribe(ctx context.Context, device string, args wire.USBDescribe, hold Hold) (wire.USBDescription, error) {
	return operate[wire.USBDescription](ctx, s, device, wire.OpUSBDescribe, args, hold)
}

// USBControl does one control transfer.
func (s *Session) USBControl(ctx context.Context, device string, args wire.USBControl, hold Hold) (wire.USBTransferred, error) {
	return operate[wire.USBTransferred](ctx, s, device, wire.OpUSBControl, args, hold)
}

// USBSend sends to a bulk or interrupt endpoint.
func (s *Session) USBSend(ctx context.Context, device string, args wire.USBSend, hold Hold) (wire.USBTransferred, error) {
	return operate[wire.USBTransferred](ctx, s, device, wire.OpUSBSend, args, hold)
}

// USBReceive receives from a bulk or interrupt endpoint, once.
func (s *Session) USBReceive(ctx context.Context, device string, args wire.USBReceive, hold Hold) (wire.USBTransferred, error) {
	return operate[wire.USBTransferred](ctx, s, device, wire.OpUSBReceive, args, hold)
}

// USBHID gets or sets a report of a HID device.
func (s *Session) USBHID(ctx context.Context, device string, args wire.USBHID, hold Hold) (wire.USBTransferred, error) {
	return operate[wire.USBTransferred](ctx, s, device, wire.OpUSBHID, args, hold)
}

// USBReset resets a USB device's port.
func (s *Session) USBReset(ctx context.Context, device string, args wire.USBReset, hold Hold) (wire.USBResetDone, error) {
	return operate[wire.USBResetDone](ctx, s, device, wire.OpUSBReset, args, hold)
}

// USBConfigure sets a USB device's configuration.
func (s *Session) USBConfigure(ctx context.Context, device string, args wire.USBConfigure, hold Hold) (wire.USBConfigured, error) {
	return operate[wire.USBConfigured](ctx, s, device, wire.OpUSBConfigure, args, hold)
}

// USBWatch receives what comes from an endpoint: records of wire.USBPacket.
func (s *Session) USBWatch(ctx context.Context, device string, args wire.USBWatch) (*Stream, wire.USBWatching, error) {
	return look[wire.USBWatching](ctx, s, device, wire.OpUSBWatch, args)
}
