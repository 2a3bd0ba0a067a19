package usbfs

import (
	"encoding/binary"
	"fmt"
)

// The types of descriptors (USB 2.0, table 9-5; the association's is from its
// engineering change notice, HID's from HID 1.11, 7.1).
const (
	typeDevice        = 1
	typeConfiguration = 2
	TypeString        = 3
	typeInterface     = 4
	typeEndpoint      = 5
	typeAssociation   = 11
	typeHID           = 0x21
)

// Lengths of descriptors (USB 2.0, 9.6), and how much of what the kernel keeps
// is read: eight configurations of the largest size there is.
const (
	lenDevice        = 18
	lenConfiguration = 9
	lenInterface     = 9
	lenEndpoint      = 7
	lenAssociation   = 8
	lenHID           = 9

	MaxDescriptors = lenDevice + 8*0xffff
)

// Kind is how an endpoint transfers: bits 0 and 1 of bmAttributes.
type Kind byte

// The four kinds (USB 2.0, table 9-13).
const (
	Control     Kind = 0
	Isochronous Kind = 1
	Bulk        Kind = 2
	Interrupt   Kind = 3
)

func (k Kind) String() string {
	return [...]string{"control", "isochronous", "bulk", "interrupt"}[k&3]
}

// DirIn is the bit of an endpoint's address, and of a request type, that says
// to the host (USB 2.0, tables 9-13 and 9-2).
const DirIn = 0x80

// BCD is a release number in binary-coded decimal, such as 0x0210.
type BCD uint16

func (b BCD) String() string { return fmt.Sprintf("%x.%02x", uint16(b)>>8, uint16(b)&0xff) }

// Device is a device descriptor with its configurations. What is called an
// index is that of a string descriptor, and 0 says that there is none.
type Device struct {
	USB, Release                  BCD
	Class, SubClass, Protocol     byte
	MaxPacket0                    int
	VendorID, ProductID           uint16
	Manufacturer, Product, Serial byte // indexes
	Configurations                []Configuration
}

// Configuration is a configuration descriptor with what belongs to it.
type Configuration struct {
	Value        byte
	Name         byte // index
	SelfPowered  bool
	RemoteWakeup bool
	MaxPowerMA   int
	Associations []Association
	Interfaces   []Interface // every alternate setting is one
}

// Association is an interface association descriptor.
type Association struct {
	First, Count              byte
	Class, SubClass, Protocol byte
	Name                      byte // index
}

// Interface is an interface descriptor: one alternate setting.
type Interface struct {
	Number, Alternate         byte
	Class, SubClass, Protocol byte
	Name                      byte // index
	Endpoints                 []Endpoint
	HID                       *HID // of a HID interface, where it has one
}

// Endpoint is an endpoint descriptor.
type Endpoint struct {
	Address   byte
	Kind      Kind
	MaxPacket int // bytes of one packet
	Interval  byte
}

// In says whether the endpoint sends to the host.
func (e Endpoint) In() bool { return e.Address&DirIn != 0 }

// HID is a HID descriptor.
type HID struct {
	Version          BCD
	Country          byte
	ReportDescriptor int // bytes
}

// Parse reads a device descriptor and the configurations that follow it, as the
// kernel keeps them in sysfs. Where they stop making sense it answers what came
// before, and an error that says at which byte. Descriptors of other types are
// passed over.
func Parse(b []byte) (Device, error) {
	if len(b) < lenDevice || b[0] < lenDevice || int(b[0]) > len(b) || b[1] != typeDevice {
		return Device{}, fmt.Errorf("byte 0: no device descriptor")
	}
	d := Device{
		USB: BCD(binary.LittleEndian.Uint16(b[2:])), Release: BCD(binary.LittleEndian.Uint16(b[12:])),
		Class: b[4], SubClass: b[5], Protocol: b[6], MaxPacket0: int(b[7]),
		VendorID: binary.LittleEndian.Uint16(b[8:]), ProductID: binary.LittleEndian.Uint16(b[10:]),
		Manufacturer: b[14], Product: b[15], Serial: b[16],
	}
	unit := 2 // mA; USB 2.0, table 9-10
	if d.USB >= 0x0300 {
		if d.MaxPacket0 < 16 {
			d.MaxPacket0 = 1 << d.MaxPacket0 // USB 3.2, table 9-11
		}
		unit = 8 // USB 3.2, table 9-22
	}
	for at := int(b[0]); at < len(b); {
		size, err := d.configuration(b, at, unit)
		if err != nil {
			return d, err
		}
		at += size
	}
	return d, nil
}

// configuration reads the one that begins at a byte, and says how long it is.
func (d *Device) configuration(b []byte, at, unit int) (int, error) {
	c := b[at:]
	if len(c) < lenConfiguration || c[0] < lenConfiguration || c[1] != typeConfiguration {
		return 0, fmt.Errorf("byte %d: no configuration descriptor", at)
	}
	total := int(binary.LittleEndian.Uint16(c[2:]))
	if total < int(c[0]) {
		return 0, fmt.Errorf("byte %d: a configuration of %d bytes", at, total)
	}
	d.Configurations = append(d.Configurations, Configuration{
		Value: c[5], Name: c[6], SelfPowered: c[7]&0x40 != 0, RemoteWakeup: c[7]&0x20 != 0, MaxPowerMA: unit * int(c[8]),
	})
	conf := &d.Configurations[len(d.Configurations)-1]
	short := total > len(c)
	total = min(total, len(c))
	for pos := int(c[0]); pos < total; {
		rest := c[pos:total]
		if len(rest) < 2 || rest[0] < 2 || int(rest[0]) > len(rest) {
			return 0, fmt.Errorf("byte %d: no descriptor fits", at+pos)
		}
		if err := conf.take(rest[:rest[0]]); err != nil {
			return 0, fmt.Errorf("byte %d: %w", at+pos, err)
		}
		pos += int(rest[0])
	}
	if short {
		return 0, fmt.Errorf("byte %d: the configuration goes on beyond the end", at+total)
	}
	return total, nil
}

// take adds one descriptor to what is known. It has as many bytes as it says.
func (c *Configuration) take(b []byte) error {
	short := func(want int) error {
		if len(b) < want {
			return fmt.Errorf("a descriptor of type %#x with %d bytes, not %d", b[1], len(b), want)
		}
		return nil
	}
	var last *Interface
	if n := len(c.Interfaces); n > 0 {
		last = &c.Interfaces[n-1]
	}
	switch b[1] {
	case typeInterface:
		if err := short(lenInterface); err != nil {
			return err
		}
		c.Interfaces = append(c.Interfaces, Interface{Number: b[2], Alternate: b[3], Class: b[5], SubClass: b[6], Protocol: b[7], Name: b[8]})
	case typeAssociation:
		if err := short(lenAssociation); err != nil {
			return err
		}
		c.Associations = append(c.Associations, Association{First: b[2], Count: b[3], Class: b[4], SubClass: b[5], Protocol: b[6], Name: b[7]})
	case typeEndpoint:
		if err := short(lenEndpoint); err != nil {
			return err
		}
		if last == nil {
			return fmt.Errorf("an endpoint before any interface")
		}
		last.Endpoints = append(last.Endpoints, Endpoint{
			Address: b[2], Kind: Kind(b[3] & 3),
			MaxPacket: int(binary.LittleEndian.Uint16(b[4:]) & 0x7ff), // the rest is for high-bandwidth endpoints
			Interval:  b[6],
		})
	case typeHID:
		// The same number means other things in other classes.
		if last == nil || last.Class != 3 || len(b) < lenHID {
			return nil
		}
		h := &HID{Version: BCD(binary.LittleEndian.Uint16(b[2:])), Country: b[4]}
		for i := 6; i+3 <= len(b) && i < 6+3*int(b[5]); i += 3 {
			if b[i] == 0x22 { // a report descriptor
				h.ReportDescriptor = int(binary.LittleEndian.Uint16(b[i+1:]))
			}
		}
		last.HID = h
	}
	return nil
}
