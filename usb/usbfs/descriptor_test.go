package usbfs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/usb/usbfs"
)

// keyboard is a device like a composite one with a keyboard: a configuration
// with an association of two CDC interfaces, and a HID interface.
var (
	deviceBytes = []byte{18, 1, 0x00, 0x02, 0xef, 2, 1, 64, 0x41, 0x23, 0x43, 0x00, 0x34, 0x12, 1, 2, 3, 1}
	configBytes = []byte{
		9, 2, 84, 0, 3, 1, 4, 0xe0, 50, // 100 mA, self-powered, wakes up
		8, 11, 0, 2, 2, 2, 1, 5, // association
		9, 4, 0, 0, 1, 2, 2, 1, 6, // interface 0
		5, 0x24, 0, 0x10, 1, // CDC header
		7, 5, 0x82, 3, 16, 0, 10, // interrupt in
		9, 4, 1, 0, 1, 0x0a, 0, 0, 0, // interface 1
		7, 5, 0x03, 2, 0x00, 0x02, 0, // bulk out, 512
		9, 4, 2, 0, 1, 3, 1, 1, 0, // interface 2
		9, 0x21, 0x11, 1, 33, 1, 0x22, 63, 0, // HID
		9, 5, 0x84, 0x03, 0x08, 0x08, 1, 0, 0, // nine bytes, as audio's; bits 11 and 12 set
	}
)

func withLength(device, config []byte) []byte {
	c := slices.Clone(config)
	c[2], c[3] = byte(len(c)), byte(len(c)>>8)
	return append(slices.Clone(device), c...)
}

func TestParse(t *testing.T) {
	got, err := usbfs.Parse(withLength(deviceBytes, configBytes))
	if err != nil {
		t.Fatal(err)
	}
	want := usbfs.Device{
		USB: 0x0200, Release: 0x1234, Class: 0xef, SubClass: 2, Protocol: 1, MaxPacket0: 64,
		VendorID: 0x2341, ProductID: 0x0043, Manufacturer: 1, Product: 2, Serial: 3,
		Configurations: []usbfs.Configuration{{
			Value: 1, Name: 4, SelfPowered: true, RemoteWakeup: true, MaxPowerMA: 100,
			Associations: []usbfs.Association{{First: 0, Count: 2, Class: 2, SubClass: 2, Protocol: 1, Name: 5}},
			Interfaces: []usbfs.Interface{
				{Number: 0, Class: 2, SubClass: 2, Protocol: 1, Name: 6, Endpoints: []usbfs.Endpoint{{Address: 0x82, Kind: usbfs.Interrupt, MaxPacket: 16, Interval: 10}}},
				{Number: 1, Class: 0x0a, Endpoints: []usbfs.Endpoint{{Address: 0x03, Kind: usbfs.Bulk, MaxPacket: 512}}},
				{Number: 2, Class: 3, SubClass: 1, Protocol: 1, HID: &usbfs.HID{Version: 0x0111, Country: 33, ReportDescriptor: 63},
					Endpoints: []usbfs.Endpoint{{Address: 0x84, Kind: usbfs.Interrupt, MaxPacket: 8, Interval: 1}}},
			},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := got.Release.String() + " " + got.USB.String(); s != "12.34 2.00" {
		t.Errorf("the releases are %s", s)
	}
}

func TestParseSuperSpeed(t *testing.T) {
	d := slices.Clone(deviceBytes)
	d[3], d[7] = 3, 9 // USB 3.0: 2^9 bytes
	got, err := usbfs.Parse(withLength(d, configBytes))
	if err != nil || got.MaxPacket0 != 512 || got.Configurations[0].MaxPowerMA != 400 {
		t.Errorf("%+v, %v", got, err)
	}
}

// What comes before the damage is told.
func TestParseDamaged(t *testing.T) {
	whole := withLength(deviceBytes, configBytes)
	change := func(at int, b byte) []byte {
		c := slices.Clone(whole)
		c[at] = b
		return c
	}
	for _, c := range []struct {
		name       string
		b          []byte
		err        string
		interfaces int
	}{
		{"nothing", nil, "byte 0", 0},
		{"a device descriptor cut short", whole[:17], "byte 0", 0},
		{"no device descriptor", whole[18:], "byte 0", 0},
		{"no configuration", change(19, 7), "byte 18", 0},
		{"a configuration of no length", change(20, 3), "byte 18", 0},
		{"cut in an interface", whole[:18+20], "byte 35", 0},
		{"cut after an interface", whole[:18+26], "byte 44: the configuration goes on", 1},
		{"a descriptor of no length", change(18+26, 0), "byte 44", 1},
		{"a descriptor longer than all", change(18+26, 255), "byte 44", 1},
		{"an endpoint too short", change(18+31, 6), "byte 49", 1},
		{"an endpoint without interface", change(18+17+1, 0x24), "byte 49: an endpoint before", 0},
	} {
		got, err := usbfs.Parse(c.b)
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %s", c.name, err, c.err)
			continue
		}
		n := 0
		for _, conf := range got.Configurations {
			n += len(conf.Interfaces)
		}
		if n != c.interfaces {
			t.Errorf("%s: %d interfaces, want %d", c.name, n, c.interfaces)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(withLength(deviceBytes, configBytes))
	f.Add(deviceBytes)
	f.Add(append(withLength(deviceBytes, configBytes), withLength(nil, configBytes)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := usbfs.Parse(b)
		n := 0
		for _, c := range d.Configurations {
			n += 9
			for _, i := range c.Interfaces {
				n += 9 + 7*len(i.Endpoints)
			}
			n += 8 * len(c.Associations)
		}
		if n > len(b) {
			t.Errorf("%d bytes make descriptors of %d", len(b), n)
		}
		if err == nil && len(b) < 18 {
			t.Errorf("%d bytes are a device", len(b))
		}
	})
}
