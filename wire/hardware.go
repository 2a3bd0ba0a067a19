package wire

import "encoding/json"

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
}

// HardwareListResponse is HARDWARE_LIST_RESPONSE.payload.
type HardwareListResponse struct {
	Devices   []HardwareDevice `json:"devices"`
	Truncated bool             `json:"truncated,omitempty"`
}

// HardwareOp is HARDWARE_OP.payload: one operation on one device.
type HardwareOp struct {
	Device string          `json:"device"` // canonical id or an unambiguous alias
	Op     string          `json:"op"`
	Args   json.RawMessage `json:"args,omitempty"`
	Hold   bool            `json:"hold,omitempty"` // keep the lease after the operation, until RELEASE
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

// The operations that exist so far.
const (
	OpRelease        = "RELEASE" // gives the device back; allowed on every device
	OpSerialWrite    = "SERIAL_WRITE"
	OpSerialRead     = "SERIAL_READ"
	OpSerialTransact = "SERIAL_TRANSACT"
	OpSerialControl  = "SERIAL_CONTROL"
)

// SerialMode is how a port is set. A null field keeps what the lease has, at
// first 115200 8N1 without flow control.
type SerialMode struct {
	Baudrate *int     `json:"baudrate,omitempty"` // any rate in bit/s; the kernel's own is reported back
	Bytesize *int     `json:"bytesize,omitempty"` // 5 to 8
	Parity   *string  `json:"parity,omitempty"`   // none, even, odd, mark, space
	Stopbits *float64 `json:"stopbits,omitempty"` // 1, 1.5, 2
	RTSCTS   *bool    `json:"rtscts,omitempty"`
	DSRDTR   *bool    `json:"dsrdtr,omitempty"`
	XONXOFF  *bool    `json:"xonxoff,omitempty"`
}

// SerialWrite is the args of SERIAL_WRITE.
type SerialWrite struct {
	Data           []byte      `json:"data"`            // base64
	Drain          bool        `json:"drain,omitempty"` // wait until the bytes left the port
	TimeoutSeconds *float64    `json:"timeout_seconds,omitempty"`
	Mode           *SerialMode `json:"mode,omitempty"`
}

// SerialWritten is the result of SERIAL_WRITE.
type SerialWritten struct {
	BytesWritten int `json:"bytes_written"`
}

// SerialRead is the args of SERIAL_READ.
type SerialRead struct {
	Size           int         `json:"size"`                      // at most this many bytes; 0 means 4096
	TimeoutSeconds *float64    `json:"timeout_seconds,omitempty"` // default 1
	Until          []byte      `json:"until,omitempty"`           // base64; stop after this sequence
	Mode           *SerialMode `json:"mode,omitempty"`
}

// SerialData is the result of SERIAL_READ and SERIAL_TRANSACT.
type SerialData struct {
	Data      []byte `json:"data"` // base64
	TimedOut  bool   `json:"timed_out"`
	InWaiting int    `json:"in_waiting"` // bytes that wait for the next read
	// StopReason says why reading ended: "until" (the pattern came), "size"
	// (the limit was reached), "timeout".
	StopReason    string `json:"stop_reason"`
	BytesSeen     int    `json:"bytes_seen"`
	BytesReturned int    `json:"bytes_returned"`
	BytesWritten  int    `json:"bytes_written,omitempty"` // SERIAL_TRANSACT only
}

// SerialTransact is the args of SERIAL_TRANSACT: write, then read until a pattern.
type SerialTransact struct {
	Data           []byte      `json:"data"`            // base64
	Until          []byte      `json:"until,omitempty"` // base64
	Size           int         `json:"size,omitempty"`
	TimeoutSeconds *float64    `json:"timeout_seconds,omitempty"`
	Flush          bool        `json:"flush,omitempty"` // drop what was waiting before writing
	Mode           *SerialMode `json:"mode,omitempty"`
}

// SerialControl is the args of SERIAL_CONTROL. A null field is left as it is;
// the answer carries the modem lines as they are afterwards. A request that is
// about them on a port that has none is FEATURE_NOT_SUPPORTED.
type SerialControl struct {
	DTR          *bool       `json:"dtr,omitempty"`
	RTS          *bool       `json:"rts,omitempty"`
	BreakSeconds *float64    `json:"break_seconds,omitempty"` // send a break of this length
	Mode         *SerialMode `json:"mode,omitempty"`
}

// SerialLines is the result of SERIAL_CONTROL.
type SerialLines struct {
	// ModemLines says whether the port has modem lines. Without them a request
	// that only sets the mode is still answered, and the six mean nothing.
	ModemLines bool `json:"modem_lines"`

	DTR bool `json:"dtr"`
	RTS bool `json:"rts"`
	CTS bool `json:"cts"`
	DSR bool `json:"dsr"`
	DCD bool `json:"dcd"`
	RI  bool `json:"ri"`
	// Baudrate is what the kernel really set.
	Baudrate int `json:"baudrate"`
}
