package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The operations of USB devices.
const (
	OpUSBDescribe  = "USB_DESCRIBE"
	OpUSBControl   = "USB_CONTROL"
	OpUSBSend      = "USB_SEND"
	OpUSBReceive   = "USB_RECEIVE"
	OpUSBWatch     = "USB_WATCH"
	OpUSBHID       = "USB_HID"
	OpUSBReset     = "USB_RESET"
	OpUSBConfigure = "USB_CONFIGURE"

	// OpUSBDetach can't be sent. It is what a grant's ops must allow, beside the
	// operation itself, for detach_kernel_driver to be true.
	OpUSBDetach = "USB_DETACH"
)

// USBNumber is an integer that may also be written as a string, decimal or
// with 0x in hexadecimal, as endpoints and request types usually are: 129,
// "129" and "0x81" are the same. It is always sent as a number.
type USBNumber int

// UnmarshalJSON takes all three forms.
func (n *USBNumber) UnmarshalJSON(text []byte) error {
	s := string(text)
	if s == "null" {
		return nil
	}
	if strings.HasPrefix(s, `"`) {
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
	}
	v, err := strconv.ParseInt(strings.TrimSpace(s), 0, 32)
	if err != nil {
		return fmt.Errorf("%.20q is no integer, such as 129 or \"0x81\"", s)
	}
	*n = USBNumber(v)
	return nil
}

// USBDescribe is the args of USB_DESCRIBE.
type USBDescribe struct {
	// Strings reads every string descriptor from the device itself, with its
	// raw bytes. Without it only what the kernel has read at plug time is told,
	// and the device is left alone.
	Strings bool `json:"strings,omitempty"`
}

// USBDescription is the result of USB_DESCRIBE. Numbers are as in the
// descriptors (USB 2.0, 9.6); classes are two hex digits.
type USBDescription struct {
	USBVersion    string  `json:"usb_version"`    // "2.00"
	DeviceVersion string  `json:"device_version"` // the maker's, "1.00"
	VID           string  `json:"vid"`            // four hex digits, lower case
	PID           string  `json:"pid"`
	Class         string  `json:"class"` // 00: each interface has its own
	SubClass      string  `json:"subclass"`
	Protocol      string  `json:"protocol"`
	MaxPacket0    int     `json:"max_packet_0"`         // bytes of a packet of endpoint 0
	SpeedMbps     float64 `json:"speed_mbps,omitempty"` // 1.5, 12, 480, 5000, …; 0: not known

	Manufacturer USBString `json:"manufacturer"`
	Product      USBString `json:"product"`
	SerialNumber USBString `json:"serial_number"`

	// ActiveConfiguration is the value of the one that is set; 0: none, or not
	// known.
	ActiveConfiguration int                `json:"active_configuration"`
	Configurations      []USBConfiguration `json:"configurations"`
	// Damaged says at which byte the descriptors stop making sense. What came
	// before it is told all the same.
	Damaged string `json:"damaged,omitempty"`
}

// The states of a USBString.
const (
	USBStringPresent    = "present"
	USBStringAbsent     = "absent"     // the device has none: its index is 0
	USBStringUnreadable = "unreadable" // the device names one and doesn't give it
	USBStringDenied     = "denied"     // this daemon may not ask the device
	USBStringUnread     = "unread"     // not asked for: see USBDescribe.Strings
)

// USBString is a string descriptor: optional, and not to be trusted.
type USBString struct {
	State string `json:"state"`           // present, absent, unreadable, denied, unread
	Index int    `json:"index,omitempty"` // as the descriptor has it
	// Value ends at the first NUL and has no control characters.
	Value string `json:"value,omitempty"`
	// Raw is what the device sent, in hex: UTF-16LE with whatever padding it
	// has. Empty unless it was read from the device itself.
	Raw string `json:"raw,omitempty"`
}

// USBConfiguration is one configuration of a device.
type USBConfiguration struct {
	Value        int              `json:"value"`
	Name         USBString        `json:"name"`
	SelfPowered  bool             `json:"self_powered"`
	RemoteWakeup bool             `json:"remote_wakeup"`
	MaxPowerMA   int              `json:"max_power_ma"`
	Interfaces   []USBInterface   `json:"interfaces"`
	Associations []USBAssociation `json:"associations,omitempty"`
}

// USBAssociation says that several interfaces are one function (an interface
// association descriptor).
type USBAssociation struct {
	FirstInterface int    `json:"first_interface"`
	InterfaceCount int    `json:"interface_count"`
	Class          string `json:"class"`
	SubClass       string `json:"subclass"`
	Protocol       string `json:"protocol"`
}

// USBInterface is one alternate setting of an interface.
type USBInterface struct {
	Number    int       `json:"number"`
	Alternate int       `json:"alternate"`
	Name      USBString `json:"name"`
	Class     string    `json:"class"`
	SubClass  string    `json:"subclass"`
	Protocol  string    `json:"protocol"`
	// ClassName is what the class means, such as "HID" or "USBTMC"; may be
	// empty.
	ClassName string `json:"class_name,omitempty"`
	// Driver is the kernel's driver that has the interface; "usbfs" is a
	// program, this one included. Empty if it is free or not active.
	Driver    string        `json:"driver,omitempty"`
	Endpoints []USBEndpoint `json:"endpoints"`
	HID       *USBHIDInfo   `json:"hid,omitempty"`
}

// USBEndpoint is one endpoint of an interface.
type USBEndpoint struct {
	Address   int    `json:"address"`   // 0x80 is set for in
	Hex       string `json:"hex"`       // the same for people: 0x81
	Direction string `json:"direction"` // in, out
	Type      string `json:"type"`      // control, isochronous, bulk, interrupt
	MaxPacket int    `json:"max_packet"`
	Interval  int    `json:"interval,omitempty"` // bInterval, whose unit depends on speed and type
}

// USBHIDInfo is what a HID descriptor says (HID 1.11, 6.2.1).
type USBHIDInfo struct {
	Version          string `json:"version"` // "1.11"
	Country          int    `json:"country"`
	ReportDescriptor int    `json:"report_descriptor_bytes"`
}

// USBControl is the args of USB_CONTROL: one transfer on endpoint 0 (USB 2.0,
// 9.3). Bit 7 of RequestType says which way it goes: 0x80 reads Length bytes,
// without it Data is sent. A request to an interface or an endpoint claims the
// interface that it belongs to. Requests that the kernel must know of are made
// through it: SET_INTERFACE and clearing an endpoint's halt; SET_CONFIGURATION
// has an operation of its own, and SET_ADDRESS is refused.
type USBControl struct {
	RequestType        USBNumber `json:"request_type"` // 0 to 255
	Request            USBNumber `json:"request"`      // 0 to 255
	Value              USBNumber `json:"value"`        // 0 to 65535
	Index              USBNumber `json:"index"`        // 0 to 65535
	Data               []byte    `json:"data,omitempty"`
	Length             int       `json:"length,omitempty"`               // 0 to 4096
	TimeoutSeconds     *float64  `json:"timeout_seconds,omitempty"`      // 0.001 to 25; default 5
	DetachKernelDriver bool      `json:"detach_kernel_driver,omitempty"` // see USBSend
}

// USBSend is the args of USB_SEND: one bulk or interrupt transfer to the device.
type USBSend struct {
	// Interface may be absent where only one has the endpoint.
	Interface *USBNumber `json:"interface,omitempty"`
	// Endpoint may be absent where the interface has one out endpoint only.
	Endpoint USBNumber `json:"endpoint"`
	// Alternate is the alternate setting to use; absent: the one that is set.
	Alternate *USBNumber `json:"alternate,omitempty"`
	Data      []byte     `json:"data"` // base64; at most 1 MiB; empty: one packet of no bytes
	// ZeroPacket ends a transfer that fills its last packet with an empty one,
	// as some protocols want it.
	ZeroPacket     bool     `json:"zero_packet,omitempty"`
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"` // 0.001 to 25; default 5
	// DetachKernelDriver takes the interface away from the kernel's driver that
	// has it, if one has, until the lease ends; then the driver gets it back.
	// It needs USB_DETACH among the ops that are granted. Without it such an
	// interface is HARDWARE_BUSY.
	DetachKernelDriver bool `json:"detach_kernel_driver,omitempty"`
}

// UnmarshalJSON decodes the arguments without going through the data more often
// than it takes to decode it: it may be a megabyte, and most of what there is.
func (s *USBSend) UnmarshalJSON(b []byte) error {
	type plain USBSend
	var p plain
	rest := []byte{'{'}
	err := Fields(b, func(key string, raw []byte) error {
		if key == "data" && raw[0] == '"' {
			text := raw[1 : len(raw)-1]
			if bytes.IndexByte(text, '\\') >= 0 {
				var err error
				if text, err = Unquote(raw); err != nil {
					return err
				}
			}
			p.Data = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
			n, err := base64.StdEncoding.Decode(p.Data, text)
			p.Data = p.Data[:n]
			return err
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(AppendQuoted(rest, []byte(key)), ':')
		rest = append(rest, raw...)
		return nil
	})
	if errors.Is(err, errSyntax) { // or no object: encoding/json says it best
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(append(rest, '}'), &p); err != nil {
		return err
	}
	*s = USBSend(p)
	return nil
}

// USBReceive is the args of USB_RECEIVE: one bulk or interrupt transfer from
// the device. It ends with size bytes, with a packet that isn't full, or when
// time is up.
type USBReceive struct {
	Interface          *USBNumber `json:"interface,omitempty"` // as in USBSend
	Endpoint           USBNumber  `json:"endpoint"`            // with 0x80 set, or without
	Alternate          *USBNumber `json:"alternate,omitempty"`
	Size               int        `json:"size,omitempty"`            // 1 to 1 MiB; 0: 4096
	TimeoutSeconds     *float64   `json:"timeout_seconds,omitempty"` // 0.001 to 25; default 1
	DetachKernelDriver bool       `json:"detach_kernel_driver,omitempty"`
}

// USBTransferred is the result of USB_CONTROL, USB_SEND, USB_RECEIVE and
// USB_HID. A transfer that ran out of time is no failure: it was cancelled, and
// what had been transferred by then is told.
type USBTransferred struct {
	Data             []byte `json:"data"` // base64; empty for what was sent
	BytesTransferred int    `json:"bytes_transferred"`
	TimedOut         bool   `json:"timed_out"`
	// InWaiting is how many bytes came beyond Size, since a device sends whole
	// packets; the next USB_RECEIVE on the endpoint begins with them.
	InWaiting int `json:"in_waiting,omitempty"`
	// Recovery is what was done after a timeout to bring the device back.
	Recovery *USBRecovery `json:"recovery,omitempty"`
	Hint     string       `json:"hint,omitempty"`
}

// USBRecovery is the sequence that a test instrument needs after a read that
// ran out of time (USBTMC 1.0, 4.2.1.4 and 4.2.1.6).
type USBRecovery struct {
	Steps   []string `json:"steps"`         // in order: "abort bulk-in", "drain", "clear", …
	Drained int      `json:"drained_bytes"` // thrown away
	OK      bool     `json:"ok"`
}

// USBWatch is the args of USB_WATCH: what comes from a bulk or interrupt
// endpoint, one USBPacket record for each transfer, until the stream is closed.
// For a HID device these are its input reports.
type USBWatch struct {
	Interface          *USBNumber `json:"interface,omitempty"` // as in USBSend
	Endpoint           USBNumber  `json:"endpoint"`            // may be absent where the interface has one in endpoint only
	Alternate          *USBNumber `json:"alternate,omitempty"`
	Size               int        `json:"size,omitempty"` // bytes of one transfer, to 16384; 0: a packet, and 4096 for bulk
	DetachKernelDriver bool       `json:"detach_kernel_driver,omitempty"`
	Credit             int        `json:"credit,omitempty"`
}

// USBWatching is the result of USB_WATCH.
type USBWatching struct {
	Opened
	Interface int `json:"interface"`
	Endpoint  int `json:"endpoint"`
}

// USBPacket is a record of USB_WATCH.
type USBPacket struct {
	Endpoint int     `json:"endpoint"`
	Data     []byte  `json:"data"` // base64
	Time     float64 `json:"time"` // Unix time by the device's clock, when it was taken from the kernel
}

// The reports of a HID device.
const (
	USBReportInput   = "input"
	USBReportOutput  = "output"
	USBReportFeature = "feature"
)

// USBHID is the args of USB_HID: GET_REPORT or SET_REPORT (HID 1.11, 7.2) by a
// control transfer. Where reports are numbered, the data begins with the number
// in both directions, as the device sends and expects it.
type USBHID struct {
	Action    string     `json:"action"`              // get, set
	Interface *USBNumber `json:"interface,omitempty"` // absent: the only HID interface
	Report    string     `json:"report,omitempty"`    // input, output, feature; absent: input for get, output for set
	ID        USBNumber  `json:"id"`                  // 0 to 255; 0 where reports have no number
	Data      []byte     `json:"data,omitempty"`      // set: base64; at most 4096 bytes
	Size      int        `json:"size,omitempty"`      // get: 1 to 4096 bytes at most; 0: 64

	TimeoutSeconds     *float64 `json:"timeout_seconds,omitempty"` // 0.001 to 25; default 5
	DetachKernelDriver bool     `json:"detach_kernel_driver,omitempty"`
}

// USBReset is the args of USB_RESET: a reset of the device's port. It ends every
// stream of the device. A device that comes back as another one is DEVICE_GONE,
// and found again under its id.
type USBReset struct{}

// USBResetDone is the result of USB_RESET.
type USBResetDone struct {
	Reset bool `json:"reset"`
}

// USBConfigure is the args of USB_CONFIGURE: SET_CONFIGURATION, which nothing
// else here ever does. It fails with HARDWARE_BUSY while drivers have
// interfaces of the device, unless they are to be detached.
type USBConfigure struct {
	Configuration      USBNumber `json:"configuration"` // 1 to 255, as USB_DESCRIBE tells
	DetachKernelDriver bool      `json:"detach_kernel_driver,omitempty"`
}

// USBConfigured is the result of USB_CONFIGURE.
type USBConfigured struct {
	Configuration int `json:"configuration"`
}
