package wire

import (
	"encoding/json"
	"fmt"
)

// HardwareDevice is one entry of HELLO.hardware_devices and of
// HARDWARE_LIST_RESPONSE: the protocol's own fields plus id, aliases, available,
// reason and generation.
type HardwareDevice struct {
	Type string `json:"type"` // serial, usb, gpio, i2c, spi, printer
	ID   string `json:"id"`   // canonical: survives replug, reboot and renumbering
	Desc string `json:"desc,omitempty"`

	Port         string `json:"port,omitempty"` // serial, printer: the device node
	VID          string `json:"vid,omitempty"`  // four hex digits, lower case
	PID          string `json:"pid,omitempty"`
	Manufacturer string `json:"manufacturer,omitempty"`
	Product      string `json:"product,omitempty"`
	SerialNumber string `json:"serial_number,omitempty"`
	DeviceClass  string `json:"device_class,omitempty"` // usb: two hex digits
	Chip         string `json:"chip,omitempty"`         // gpio: the device node
	Lines        int    `json:"lines,omitempty"`        // gpio: how many
	Driver       string `json:"driver,omitempty"`       // the kernel driver bound

	Aliases    []string `json:"aliases,omitempty"`
	Available  bool     `json:"available"`
	Reason     string   `json:"reason,omitempty"` // why not available
	Generation int      `json:"generation"`       // 1 at first sight, one more with each replug
}

// HardwareListRequest is HARDWARE_LIST_REQUEST.payload.
type HardwareListRequest struct {
	Type *string `json:"type,omitempty"` // null: every family
	// Watch opens a stream of HardwareEvent records beside the answer: what
	// changes after the list was taken. It needs the streams capability.
	Watch bool `json:"watch,omitempty"`
	// Credit is the stream's; absent or 0 is StreamCreditDefault.
	Credit int `json:"credit,omitempty"`
}

// HardwareListResponse is HARDWARE_LIST_RESPONSE.payload.
type HardwareListResponse struct {
	Devices   []HardwareDevice `json:"devices"`
	Truncated bool             `json:"truncated,omitempty"`
	Stream    string           `json:"stream,omitempty"` // if it was asked for
}

// The events of HardwareEvent.
const (
	HardwareAdded   = "added"   // new, or back
	HardwareRemoved = "removed" // the device is as it was last seen
	HardwareChanged = "changed" // available or not, another reason, another node
)

// HardwareEvent is a record of the hotplug stream.
type HardwareEvent struct {
	Event  string         `json:"event"` // added, removed, changed
	Device HardwareDevice `json:"device"`
}

// HardwareOp is HARDWARE_OP.payload: one operation on one device.
type HardwareOp struct {
	Device string          `json:"device"` // canonical id or an unambiguous alias
	Op     string          `json:"op"`
	Args   json.RawMessage `json:"args,omitempty"`
	Hold   bool            `json:"hold,omitempty"` // keep the lease after the operation, until RELEASE
}

// decodeFields is Decode without reflection, and leaves Args where they are.
func (o *HardwareOp) decodeFields(payload []byte) error {
	*o = HardwareOp{}
	return Fields(payload, func(key string, raw []byte) error {
		switch key {
		case "device":
			return setOptional(&o.Device, key, raw)
		case "op":
			return setOptional(&o.Op, key, raw)
		case "hold":
			return setBool(&o.Hold, key, raw)
		case "args":
			if !json.Valid(raw) {
				return fmt.Errorf("%s: %w", key, errSyntax)
			}
			o.Args = raw
		}
		return nil
	})
}

// HardwareResult is HARDWARE_RESULT.payload.
type HardwareResult struct {
	Device     string `json:"device"` // canonical id
	Generation int    `json:"generation"`
	Result     any    `json:"result"`
}

// Released is the result of RELEASE.
type Released struct {
	Released bool `json:"released"` // false: this session didn't have the device
}

// OpRelease gives a device back. It is allowed on every device.
const OpRelease = "RELEASE"
