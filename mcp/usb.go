package mcp

import (
	"context"
	"fmt"
	"strings"

	"farhand/wire"
)

func usbTools() []tool {
	return []tool{
		define("usb_describe", "Describe a USB device",
			"Reads a USB device's descriptors: its configurations, interfaces and endpoints, and which kernel driver has each interface. Begin here: the other usb tools take its numbers.",
			reads, wire.HardwareUSB, usbDescribe),
		define("usb_send", "Send to a USB endpoint",
			"Sends bytes to a bulk or interrupt endpoint of a USB device.",
			destroys, wire.HardwareUSB, usbSend),
		define("usb_receive", "Receive from a USB endpoint",
			"Receives bytes from a bulk or interrupt endpoint, once. Running out of time is a result (timed_out), not an error.",
			changes, wire.HardwareUSB, usbReceive),
		define("usb_control", "USB control transfer",
			"Does one control transfer on endpoint 0. Bit 7 of request_type says which way: with 0x80 set length bytes are read, otherwise data is sent.",
			destroys, wire.HardwareUSB, usbControl),
		define("usb_hid", "HID report",
			"Gets or sets a report of a HID device, such as a keypad, a meter or a relay board.",
			destroys, wire.HardwareUSB, usbHID),
		define("usb_reset", "Reset a USB device",
			"Resets the port of a USB device, as if it were replugged. Everything that goes on with it ends.",
			destroys, wire.HardwareUSB, usbReset),
	}
}

// onUSB is a USB device of a machine.
type onUSB struct {
	onMachine
	Device string `json:"device,omitempty" jsonschema:"id of the device, such as usb:1209:0001-SERIAL (list_devices); default: the only one"`
}

// detach is about interfaces that the kernel uses.
type detach struct {
	Detach bool `json:"detach_kernel_driver,omitempty" jsonschema:"take the interface from the kernel's driver that has it, until release_device; needs to be granted"`
	Hold   bool `json:"hold,omitempty" jsonschema:"keep the device for this connection until release_device"`
}

type usbDescribeAsked struct {
	onUSB
	Strings bool `json:"strings,omitempty" jsonschema:"also read every string from the device itself"`
}

type usbDescription struct {
	Device         string             `json:"device"`
	ID             string             `json:"usb" jsonschema:"vendor:product"`
	Manufacturer   string             `json:"manufacturer,omitempty"`
	Product        string             `json:"product,omitempty"`
	SerialNumber   string             `json:"serial_number,omitempty"`
	Class          string             `json:"class" jsonschema:"two hex digits; 00: each interface has its own"`
	SpeedMbps      float64            `json:"speed_mbps,omitempty"`
	Active         int                `json:"active_configuration"`
	Configurations []usbConfiguration `json:"configurations"`
	Damaged        string             `json:"damaged,omitempty" jsonschema:"where the descriptors stop making sense"`
}

type usbConfiguration struct {
	Value      int            `json:"value"`
	MaxPowerMA int            `json:"max_power_ma"`
	Interfaces []usbInterface `json:"interfaces"`
}

type usbInterface struct {
	Number    int           `json:"number"`
	Alternate int           `json:"alternate"`
	Class     string        `json:"class" jsonschema:"two hex digits"`
	ClassName string        `json:"class_name,omitempty"`
	Name      string        `json:"name,omitempty"`
	Driver    string        `json:"driver,omitempty" jsonschema:"the kernel's driver that has it"`
	Endpoints []usbEndpoint `json:"endpoints"`
}

type usbEndpoint struct {
	Address   string `json:"endpoint" jsonschema:"such as 0x81; the other tools take it so"`
	Direction string `json:"direction" jsonschema:"in (from the device) or out"`
	Type      string `json:"type" jsonschema:"control, isochronous, bulk or interrupt"`
	MaxPacket int    `json:"max_packet" jsonschema:"bytes"`
}

func usbDescribe(ctx context.Context, c *call, in usbDescribeAsked) (usbDescription, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "usb", in.Device)
	if err != nil {
		return usbDescription{}, "", err
	}
	d, err := at.USBDescribe(ctx, at.device, wire.USBDescribe{Strings: in.Strings}, false)
	if err != nil {
		return usbDescription{}, "", err
	}
	out := usbDescription{
		Device: at.device, ID: d.VID + ":" + d.PID, Manufacturer: d.Manufacturer.Value, Product: d.Product.Value, SerialNumber: d.SerialNumber.Value,
		Class: d.Class, SpeedMbps: d.SpeedMbps, Active: d.ActiveConfiguration, Configurations: []usbConfiguration{}, Damaged: d.Damaged,
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s\n", out.ID, out.Manufacturer, out.Product)
	for _, conf := range d.Configurations {
		one := usbConfiguration{Value: conf.Value, MaxPowerMA: conf.MaxPowerMA, Interfaces: []usbInterface{}}
		for _, i := range conf.Interfaces {
			face := usbInterface{Number: i.Number, Alternate: i.Alternate, Class: i.Class, ClassName: i.ClassName, Name: i.Name.Value, Driver: i.Driver, Endpoints: []usbEndpoint{}}
			fmt.Fprintf(&text, "configuration %d interface %d.%d class %s %s", conf.Value, i.Number, i.Alternate, i.Class, i.ClassName)
			if i.Driver != "" {
				fmt.Fprintf(&text, " (driver %s)", i.Driver)
			}
			text.WriteByte('\n')
			for _, e := range i.Endpoints {
				face.Endpoints = append(face.Endpoints, usbEndpoint{e.Hex, e.Direction, e.Type, e.MaxPacket})
				fmt.Fprintf(&text, "  endpoint %s %s %s\n", e.Hex, e.Direction, e.Type)
			}
			one.Interfaces = append(one.Interfaces, face)
		}
		out.Configurations = append(out.Configurations, one)
	}
	return out, text.String(), nil
}

// number reads a number that may be hexadecimal.
func number(field, text string) (wire.USBNumber, error) {
	var n wire.USBNumber
	if err := n.UnmarshalJSON([]byte(fmt.Sprintf("%q", text))); err != nil {
		return 0, wire.Errorf(wire.InvalidArgument, "%s: %v", field, err).With("field", field)
	}
	return n, nil
}

func usbInterfaceNumber(n *int) *wire.USBNumber {
	if n == nil {
		return nil
	}
	v := wire.USBNumber(*n)
	return &v
}

// onEndpoint is an endpoint of a USB device.
type onEndpoint struct {
	onUSB
	Endpoint       string  `json:"endpoint" jsonschema:"its address, such as \"0x81\" (usb_describe)"`
	Interface      *int    `json:"interface,omitempty" jsonschema:"may be left out where only one has the endpoint" range:"0..255"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"in seconds" default:"5" range:"0.001..25"`
	detach
}

type usbTransferred struct {
	Device string `json:"device"`
	Bytes  int    `json:"bytes_transferred"`
	received
	TimedOut bool   `json:"timed_out"`
	Waiting  int    `json:"in_waiting,omitempty" jsonschema:"bytes that came beyond size and wait for the next usb_receive"`
	Hint     string `json:"hint,omitempty"`
}

func usbResult(device string, got wire.USBTransferred) (usbTransferred, string) {
	out := usbTransferred{Device: device, Bytes: got.BytesTransferred, TimedOut: got.TimedOut, Waiting: got.InWaiting, Hint: spoken(got.Hint)}
	text := fmt.Sprintf("%d bytes", got.BytesTransferred)
	if len(got.Data) > 0 {
		// Endpoints speak binary, of which some happens to be text.
		out.received = received{Hex: hexText(got.Data)}
		text = out.Hex
		if isText(got.Data) {
			out.Text = string(got.Data)
			text += "\n" + out.Text
		}
	}
	if got.TimedOut {
		text += "\n[ran out of time]"
	}
	return out, text
}

type usbSendAsked struct {
	onEndpoint
	payload
	ZeroPacket bool `json:"zero_packet,omitempty" jsonschema:"end a transfer that fills its last packet with an empty one"`
}

func usbSend(ctx context.Context, c *call, in usbSendAsked) (usbTransferred, string, error) {
	data, err := in.bytes(false)
	if err != nil {
		return usbTransferred{}, "", err
	}
	endpoint, err := number("endpoint", in.Endpoint)
	if err != nil {
		return usbTransferred{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "usb", in.Device)
	if err != nil {
		return usbTransferred{}, "", err
	}
	got, err := at.USBSend(ctx, at.device, wire.USBSend{
		Interface: usbInterfaceNumber(in.Interface), Endpoint: endpoint, Data: data, ZeroPacket: in.ZeroPacket,
		TimeoutSeconds: seconds(in.TimeoutSeconds), DetachKernelDriver: in.Detach,
	}, hold(in.Hold))
	if err != nil {
		return usbTransferred{}, "", err
	}
	out, text := usbResult(at.device, got)
	return out, text, nil
}

type usbReceiveAsked struct {
	onEndpoint
	Size int `json:"size,omitempty" jsonschema:"how many bytes at most" default:"4096" range:"1..65536"`
}

func usbReceive(ctx context.Context, c *call, in usbReceiveAsked) (usbTransferred, string, error) {
	endpoint, err := number("endpoint", in.Endpoint)
	if err != nil {
		return usbTransferred{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "usb", in.Device)
	if err != nil {
		return usbTransferred{}, "", err
	}
	got, err := at.USBReceive(ctx, at.device, wire.USBReceive{
		Interface: usbInterfaceNumber(in.Interface), Endpoint: endpoint, Size: in.Size,
		TimeoutSeconds: seconds(in.TimeoutSeconds), DetachKernelDriver: in.Detach,
	}, hold(in.Hold))
	if err != nil {
		return usbTransferred{}, "", err
	}
	out, text := usbResult(at.device, got)
	return out, text, nil
}

type usbControlAsked struct {
	onUSB
	RequestType    string  `json:"request_type" jsonschema:"bmRequestType, such as \"0x80\"; 0 to 255"`
	Request        string  `json:"request" jsonschema:"bRequest, such as \"0x06\"; 0 to 255"`
	Value          string  `json:"value,omitempty" jsonschema:"wValue, such as \"0x0100\"; 0 to 65535" default:"\"0\""`
	Index          string  `json:"index,omitempty" jsonschema:"wIndex; 0 to 65535" default:"\"0\""`
	Data           string  `json:"data,omitempty" jsonschema:"what to send, in hexadecimal"`
	Length         int     `json:"length,omitempty" jsonschema:"how many bytes to read" range:"0..4096"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"in seconds" default:"5" range:"0.001..25"`
	detach
}

func usbControl(ctx context.Context, c *call, in usbControlAsked) (usbTransferred, string, error) {
	ask := wire.USBControl{Length: in.Length, TimeoutSeconds: seconds(in.TimeoutSeconds), DetachKernelDriver: in.Detach}
	var err error
	for _, n := range []struct {
		field, text string
		to          *wire.USBNumber
	}{
		{"request_type", in.RequestType, &ask.RequestType}, {"request", in.Request, &ask.Request},
		{"value", in.Value, &ask.Value}, {"index", in.Index, &ask.Index},
	} {
		if *n.to, err = number(n.field, n.text); err != nil {
			return usbTransferred{}, "", err
		}
	}
	if ask.Data, err = hexBytes("data", in.Data); err != nil {
		return usbTransferred{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "usb", in.Device)
	if err != nil {
		return usbTransferred{}, "", err
	}
	got, err := at.USBControl(ctx, at.device, ask, hold(in.Hold))
	if err != nil {
		return usbTransferred{}, "", err
	}
	out, text := usbResult(at.device, got)
	return out, text, nil
}

type usbHIDAsked struct {
	onUSB
	Action         string  `json:"action" enum:"get,set"`
	Report         string  `json:"report,omitempty" jsonschema:"kind of report; default: input for get, output for set" enum:"input,output,feature"`
	ID             int     `json:"id,omitempty" jsonschema:"number of the report; 0 where reports have none" range:"0..255"`
	Data           string  `json:"data,omitempty" jsonschema:"set: the report in hexadecimal, beginning with its number where reports have numbers"`
	Size           int     `json:"size,omitempty" jsonschema:"get: how many bytes at most" default:"64" range:"1..4096"`
	Interface      *int    `json:"interface,omitempty" jsonschema:"default: the only HID interface" range:"0..255"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"in seconds" default:"5" range:"0.001..25"`
	detach
}

func usbHID(ctx context.Context, c *call, in usbHIDAsked) (usbTransferred, string, error) {
	data, err := hexBytes("data", in.Data)
	if err != nil {
		return usbTransferred{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "usb", in.Device)
	if err != nil {
		return usbTransferred{}, "", err
	}
	ask := wire.USBHID{
		Action: in.Action, Interface: usbInterfaceNumber(in.Interface), Report: in.Report, ID: wire.USBNumber(in.ID), Data: data,
		TimeoutSeconds: seconds(in.TimeoutSeconds), DetachKernelDriver: in.Detach,
	}
	if in.Action == "get" {
		ask.Size = in.Size
	}
	got, err := at.USBHID(ctx, at.device, ask, hold(in.Hold))
	if err != nil {
		return usbTransferred{}, "", err
	}
	out, text := usbResult(at.device, got)
	return out, text, nil
}

type usbResetDone struct {
	Device string `json:"device"`
}

func usbReset(ctx context.Context, c *call, in onUSB) (usbResetDone, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "usb", in.Device)
	if err != nil {
		return usbResetDone{}, "", err
	}
	_, err = at.USBReset(ctx, at.device, wire.USBReset{}, false)
	return usbResetDone{at.device}, "reset " + at.device, err
}
