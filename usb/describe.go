package usb

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"
	"unicode/utf16"

	"farhand/device"
	"farhand/usb/usbfs"
	"farhand/wire"
)

// stringsTime bounds the reading of all strings of a device: some have dozens,
// some answer none of them.
const stringsTime = 5 * time.Second

// maxStrings bounds how many are asked for.
const maxStrings = 64

func (o *operation) describe(a wire.USBDescribe) (wire.USBDescription, error) {
	look, err := o.s.host.Look(o.Device)
	if err != nil {
		return wire.USBDescription{}, openFailed(o.Device.ID, err)
	}
	d, parseErr := usbfs.Parse(look.Descriptors)
	text := &texts{look: look, read: make(map[byte]wire.USBString)}
	if a.Strings {
		text.ask, err = o.asker()
		if text.denied = refusedByPermission(err); err != nil && !text.denied {
			return wire.USBDescription{}, err
		}
	}
	r := wire.USBDescription{
		USBVersion: d.USB.String(), DeviceVersion: d.Release.String(),
		VID: fmt.Sprintf("%04x", d.VendorID), PID: fmt.Sprintf("%04x", d.ProductID),
		Class: hex2(d.Class), SubClass: hex2(d.SubClass), Protocol: hex2(d.Protocol),
		MaxPacket0: d.MaxPacket0, SpeedMbps: look.SpeedMbps, ActiveConfiguration: look.Active,
		Manufacturer:   text.get(d.Manufacturer, look.Manufacturer, true),
		Product:        text.get(d.Product, look.Product, true),
		SerialNumber:   text.get(d.Serial, look.Serial, true),
		Configurations: []wire.USBConfiguration{},
	}
	if parseErr != nil {
		r.Damaged = parseErr.Error()
	}
	for _, c := range d.Configurations {
		r.Configurations = append(r.Configurations, configuration(c, look, text))
	}
	return r, context.Cause(o.ctx)
}

func refusedByPermission(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	return ok && (e.Details["os_error"] == "EACCES" || e.Details["os_error"] == "EPERM")
}

func hex2(b byte) string { return fmt.Sprintf("%02x", b) }

func configuration(c usbfs.Configuration, look Look, text *texts) wire.USBConfiguration {
	active := int(c.Value) == look.Active
	r := wire.USBConfiguration{
		Value: int(c.Value), SelfPowered: c.SelfPowered, RemoteWakeup: c.RemoteWakeup, MaxPowerMA: c.MaxPowerMA,
		Name:       text.get(c.Name, pick(active, look.Configuration), active),
		Interfaces: []wire.USBInterface{},
	}
	for _, a := range c.Associations {
		r.Associations = append(r.Associations, wire.USBAssociation{
			FirstInterface: int(a.First), InterfaceCount: int(a.Count),
			Class: hex2(a.Class), SubClass: hex2(a.SubClass), Protocol: hex2(a.Protocol),
		})
	}
	for _, f := range c.Interfaces {
		known, current := look.Interfaces[int(f.Number)]
		current = current && active && known.Alternate == int(f.Alternate)
		i := wire.USBInterface{
			Number: int(f.Number), Alternate: int(f.Alternate), Name: text.get(f.Name, pick(current, known.Name), current),
			Class: hex2(f.Class), SubClass: hex2(f.SubClass), Protocol: hex2(f.Protocol), ClassName: className(f),
			Driver: device.Clean(pick(active, known.Driver)), Endpoints: []wire.USBEndpoint{},
		}
		for _, e := range f.Endpoints {
			i.Endpoints = append(i.Endpoints, endpoint(e))
		}
		if f.HID != nil {
			i.HID = &wire.USBHIDInfo{Version: f.HID.Version.String(), Country: int(f.HID.Country), ReportDescriptor: f.HID.ReportDescriptor}
		}
		r.Interfaces = append(r.Interfaces, i)
	}
	return r
}

func pick(yes bool, s string) string {
	if yes {
		return s
	}
	return ""
}

func endpoint(e usbfs.Endpoint) wire.USBEndpoint {
	direction := "out"
	if e.In() {
		direction = "in"
	}
	return wire.USBEndpoint{
		Address: int(e.Address), Hex: fmt.Sprintf("0x%02x", e.Address), Direction: direction,
		Type: e.Kind.String(), MaxPacket: e.MaxPacket, Interval: int(e.Interval),
	}
}

// className says what a class means (usb.org, Defined Class Codes).
func className(f usbfs.Interface) string {
	switch f.Class {
	case 0x01:
		return "audio"
	case 0x02:
		return "communications"
	case 0x03:
		return "HID"
	case 0x05:
		return "physical"
	case 0x06:
		return "image"
	case 0x07:
		return "printer"
	case 0x08:
		return "mass storage"
	case 0x09:
		return "hub"
	case 0x0a:
		return "CDC data"
	case 0x0b:
		return "smart card"
	case 0x0d:
		return "content security"
	case 0x0e:
		return "video"
	case 0x0f:
		return "personal healthcare"
	case 0x10:
		return "audio/video"
	case 0xdc:
		return "diagnostic"
	case 0xe0:
		return "wireless controller"
	case 0xef:
		return "miscellaneous"
	case 0xfe:
		switch f.SubClass {
		case 0x01:
			return "firmware update"
		case subclassTMC:
			return "USBTMC"
		}
		return "application specific"
	case 0xff:
		return "vendor specific"
	}
	return ""
}

// texts are a device's string descriptors.
type texts struct {
	look   Look
	ask    func(index byte) ([]byte, error) // nil: the device isn't asked
	denied bool                             // it may not be
	read   map[byte]wire.USBString
}

// get tells the string with an index. known is what the system read at plug
// time; looked says that it has tried to.
func (s *texts) get(index byte, known string, looked bool) wire.USBString {
	r := wire.USBString{Index: int(index), Value: device.Clean(known)}
	switch {
	case index == 0:
		return wire.USBString{State: wire.USBStringAbsent}
	case s.ask != nil:
		return s.fromDevice(index, known)
	case known != "":
		r.State = wire.USBStringPresent
	case s.denied:
		r.State = wire.USBStringDenied
	case looked:
		r.State = wire.USBStringUnreadable
	default:
		r.State = wire.USBStringUnread
	}
	return r
}

func (s *texts) fromDevice(index byte, known string) wire.USBString {
	if r, ok := s.read[index]; ok {
		return r
	}
	r := wire.USBString{Index: int(index)}
	raw, err := s.ask(index)
	switch {
	case err == nil:
		r.State, r.Raw, r.Value = wire.USBStringPresent, hex.EncodeToString(raw), device.Clean(decodeText(raw))
	case known != "": // it gave it once
		r.State, r.Value = wire.USBStringPresent, device.Clean(known)
	case errors.Is(err, fs.ErrPermission):
		r.State = wire.USBStringDenied
	default:
		r.State = wire.USBStringUnreadable
	}
	s.read[index] = r
	return r
}

// decodeText is UTF-16LE as text.
func decodeText(raw []byte) string {
	units := make([]uint16, len(raw)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
	return string(utf16.Decode(units))
}

// English, United States: what nearly every device has, and all that some answer.
const languageEnglish = 0x0409

// asker makes what reads string descriptors from the device: GET_DESCRIPTOR
// (USB 2.0, 9.4.3), in the first language that it has.
func (o *operation) asker() (func(index byte) ([]byte, error), error) {
	x, err := o.session()
	if err != nil {
		return nil, err
	}
	left, deadline := maxStrings, time.Now().Add(stringsTime)
	get := func(index byte, language uint16) ([]byte, error) {
		if left--; left < 0 {
			return nil, fmt.Errorf("more than %d strings", maxStrings)
		}
		ctx, cancel := context.WithDeadline(o.ctx, earlier(deadline, time.Now().Add(time.Second)))
		defer cancel()
		b := make([]byte, 255)
		n, err := x.controlTransfer(ctx, setup{usbfs.DirIn, reqGetDescriptor, usbfs.TypeString<<8 | uint16(index), language}, b)
		o.Trace.BytesIn += n
		if err != nil {
			return nil, err
		}
		if n < 2 || b[1] != usbfs.TypeString || int(b[0]) < 2 {
			return nil, fmt.Errorf("string %d is no string descriptor", index)
		}
		return b[2:min(n, int(b[0]))], nil
	}
	language := uint16(languageEnglish)
	if all, err := get(0, 0); err == nil && len(all) >= 2 {
		language = binary.LittleEndian.Uint16(all)
	}
	return func(index byte) ([]byte, error) { return get(index, language) }, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
