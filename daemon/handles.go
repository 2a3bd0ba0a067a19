package daemon

import (
	"context"

	"farhand/device"
	"farhand/shim"
	"farhand/wire"
)

// handled is what the handles of a session are made of.
type handled struct{ *session }

var _ shim.Hardware = handled{}

// Do runs an operation as HARDWARE_OP does. On record it is under the name of the
// message that it was made of.
func (h handled) Do(ctx context.Context, c *shim.Call, op wire.HardwareOp) (wire.HardwareResult, error) {
	answer, err := h.hardware(ctx, c, op)
	r, _ := answer.(wire.HardwareResult)
	return r, err
}

// CanonicalID is the id of the device with this name.
func (h handled) CanonicalID(name string) string { return h.d.dispatch.CanonicalID(name) }

// Find is the first device that match chooses of those that the call may see.
func (h handled) Find(c *shim.Call, match func(wire.HardwareDevice) bool) (string, bool) {
	visible := h.d.visible(c, nil)
	for _, x := range h.d.registry.List() {
		if match(x) && visible(x) {
			return x.ID, true
		}
	}
	return "", false
}

// Held is the lease that the session keeps.
func (h handled) Held(id, part string) context.Context {
	return h.d.leases.KeptBy(h.ID(), device.Key{Device: id, Part: part})
}

// Release ends it.
func (h handled) Release(ctx context.Context, id, part string) error {
	var parts []string
	if part != "" {
		parts = []string{part}
	}
	_, err := h.d.leases.Release(ctx, id, h.ID(), parts...)
	return err
}
