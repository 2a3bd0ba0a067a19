package wire

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// The handle family: hardware as handles that are opened, used and closed, one
// message for each step. It says less than HARDWARE_OP and is there for
// platforms that speak nothing else. A handle belongs to the socket on which it
// was opened and ends with it, at the latest; what it stands for may end before
// (unplugged, not used for hardware.lease_idle_seconds, no longer granted), and
// then the answer is SERIAL_STALE, USB_STALE or GPIO_STALE.
const (
	TSerialOpen         Type = "SERIAL_OPEN"          // SerialOpen -> SerialOpenResponse
	TSerialOpenResponse Type = "SERIAL_OPEN_RESPONSE" //
	TSerialWrite        Type = "SERIAL_WRITE"         // SerialHandleWrite -> Ack with bytes_written
	TSerialRead         Type = "SERIAL_READ"          // SerialHandleRead -> SerialReadResponse
	TSerialReadResponse Type = "SERIAL_READ_RESPONSE" //
	TSerialClose        Type = "SERIAL_CLOSE"         // Handle -> Ack

	TUSBOpen             Type = "USB_OPEN"              // USBOpen -> USBOpenResponse
	TUSBOpenResponse     Type = "USB_OPEN_RESPONSE"     //
	TUSBTransfer         Type = "USB_TRANSFER"          // USBTransfer -> USBTransferResponse
	TUSBTransferResponse Type = "USB_TRANSFER_RESPONSE" //
	TUSBClose            Type = "USB_CLOSE"             // Handle -> Ack

	TGPIOConfigure    Type = "GPIO_CONFIGURE"     // GPIOHandleConfigure -> Ack with handle
	TGPIOWrite        Type = "GPIO_WRITE"         // GPIOHandleWrite -> Ack
	TGPIORead         Type = "GPIO_READ"          // Handle -> GPIOReadResponse
	TGPIOReadResponse Type = "GPIO_READ_RESPONSE" //
	TGPIOClose        Type = "GPIO_CLOSE"         // Handle -> Ack
)

// MaxHandles is how many handles a session may have open at a time.
const MaxHandles = 64

// Handle is the payload of what needs nothing but the handle: GPIO_READ and the
// three CLOSE.
type Handle struct {
	Handle string `json:"handle"`
}

// SerialOpen is SERIAL_OPEN.payload. A null field is the default.
type SerialOpen struct {
	Port     string   `json:"port"`               // the device node, or any name of the device
	Baudrate *int     `json:"baudrate,omitempty"` // bit/s; default 115200
	Bytesize *int     `json:"bytesize,omitempty"` // 5 to 8; default 8
	Parity   *string  `json:"parity,omitempty"`   // none (default), even, odd, mark, space
	Stopbits *float64 `json:"stopbits,omitempty"` // 1 (default), 1.5, 2
	// TimeoutSeconds is how long a read waits. null is for ever, which ends after
	// 25 s with timed_out, as does everything longer: the platform waits 30 s for
	// an answer.
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
	RTSCTS         *bool    `json:"rtscts,omitempty"`  // default false, as the two below
	DSRDTR         *bool    `json:"dsrdtr,omitempty"`  //
	XONXOFF        *bool    `json:"xonxoff,omitempty"` //
}

// SerialOpenResponse is SERIAL_OPEN_RESPONSE.payload.
type SerialOpenResponse struct {
	Handle string `json:"handle"` // "ser_" and a UUID
}

// SerialHandleWrite is SERIAL_WRITE.payload.
type SerialHandleWrite struct {
	Handle string `json:"handle"`
	Data   []byte `json:"data"`            // base64, at most 1 MiB
	Drain  bool   `json:"drain,omitempty"` // wait until the bytes have left the port
}

// SerialHandleRead is SERIAL_READ.payload.
type SerialHandleRead struct {
	Handle         string   `json:"handle"`
	Size           int      `json:"size"`                      // at most this many bytes; 0: 4096
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"` // null: that of SERIAL_OPEN
	Until          []byte   `json:"until,omitempty"`           // base64; stop after this sequence
}

// SerialReadResponse is SERIAL_READ_RESPONSE.payload.
type SerialReadResponse struct {
	Data      []byte `json:"data"` // base64
	TimedOut  bool   `json:"timed_out"`
	InWaiting int    `json:"in_waiting"` // bytes that wait for the next read
}

// USBID is a vendor's or product's number: four hex digits, lower case. It reads
// fewer digits, capitals, 0x in front and plain numbers as well.
type USBID string

// UnmarshalJSON reads one of them.
func (id *USBID) UnmarshalJSON(b []byte) error {
	text, base := string(b), 10
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		text, base = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "0x"), 16
	}
	n, err := strconv.ParseUint(text, base, 16)
	if err != nil {
		return errors.New(`vid and pid must be four hex digits, such as "2341"`)
	}
	const digits = "0123456789abcdef"
	*id = USBID([]byte{digits[n>>12], digits[n>>8&0xf], digits[n>>4&0xf], digits[n&0xf]})
	return nil
}

// USBOpen is USB_OPEN.payload.
type USBOpen struct {
	VID          USBID   `json:"vid"`
	PID          USBID   `json:"pid"`
	SerialNumber *string `json:"serial_number,omitempty"` // null: the first that fits, by id
	// Interface is what the transfers of the handle go through; default 0. It is
	// claimed by the first of them.
	Interface USBNumber `json:"interface"`
	// DetachKernelDriver takes the interface away from the kernel's driver until
	// the handle is closed; it needs USB_DETACH among the ops that are granted.
	// Without it an interface that a driver has is HARDWARE_BUSY.
	DetachKernelDriver bool `json:"detach_kernel_driver,omitempty"`
}

// USBOpenResponse is USB_OPEN_RESPONSE.payload.
type USBOpenResponse struct {
	Handle string `json:"handle"` // "usb_" and a UUID
}

// The directions of USB_TRANSFER.
const (
	USBIn  = "in"
	USBOut = "out"
)

// USBTransfer is USB_TRANSFER.payload: one bulk or interrupt transfer. Control
// transfers are for HARDWARE_OP alone.
type USBTransfer struct {
	Handle    string    `json:"handle"`
	Endpoint  USBNumber `json:"endpoint"`       // 1 to 15; with 0x80 set, or without, for in
	Direction string    `json:"direction"`      // in, out
	Data      []byte    `json:"data,omitempty"` // out: base64, at most 1 MiB
	Size      int       `json:"size,omitempty"` // in: 1 to 1 MiB; 0: 4096
	// TimeoutSeconds is 0.001 to 25, and taken as the nearer of the two beyond
	// them; null: 5.
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
}

// USBTransferResponse is USB_TRANSFER_RESPONSE.payload. A transfer that ran out of
// time is no failure: it tells what had been transferred.
type USBTransferResponse struct {
	Data             []byte `json:"data"` // base64; empty for what was sent
	BytesTransferred int    `json:"bytes_transferred"`
	TimedOut         bool   `json:"timed_out"`
}

// GPIOHandleConfigure is GPIO_CONFIGURE.payload: one line, one handle.
type GPIOHandleConfigure struct {
	Chip      string `json:"chip"`                // the device node, or any name of the device
	Line      int    `json:"line"`                // number on the chip; on a Raspberry Pi's header chip the BCM number
	Direction string `json:"direction,omitempty"` // in (default), out
	// InitialValue is an output's first level; null: the one that the line has.
	// It means nothing for an input.
	InitialValue *GPIOLevel `json:"initial_value,omitempty"`
	Pull         string     `json:"pull,omitempty"`       // inputs: none, up, down; default: as it is
	ActiveLow    *bool      `json:"active_low,omitempty"` // default false
}

// GPIOHandleWrite is GPIO_WRITE.payload.
type GPIOHandleWrite struct {
	Handle string     `json:"handle"`
	Value  *GPIOLevel `json:"value"` // 0 or 1, after active_low
}

// GPIOReadResponse is GPIO_READ_RESPONSE.payload.
type GPIOReadResponse struct {
	Value int `json:"value"` // 0 or 1, after active_low
}
