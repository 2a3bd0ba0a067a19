package serialio_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/device/simsysfs"
	"farhand/serialio"
)

func bridge(path string, num int, vid, pid, serial string, ifaces ...simsysfs.Interface) simsysfs.USB {
	return simsysfs.USB{Path: path, Num: num, VID: vid, PID: pid, Class: "00", Serial: serial, Product: "bridge", Interfaces: ifaces}
}

func usbSerial(driver string, ttys ...string) simsysfs.Interface {
	return simsysfs.Interface{Class: "ff", Driver: driver, TTYs: ttys}
}

func acm(tty string) simsysfs.Interface {
	return simsysfs.Interface{Class: "02", Driver: "cdc_acm", TTYs: []string{tty}, CDC: true}
}

var data = simsysfs.Interface{Class: "0a", Driver: "cdc_acm"}

// TestIDs is the golden list of what ports are called.
func TestIDs(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(*simsysfs.Tree)
		want  map[string]string // node -> id
	}{
		{"a serial number", func(x *simsysfs.Tree) {
			x.AddUSB(bridge("1-1.1", 3, "2341", "0043", "95530343834351A0B091", acm("ttyACM0"), data))
		}, map[string]string{"ttyACM0": "serial:usb-2341:0043-95530343834351A0B091"}},

		{"no serial number", func(x *simsysfs.Tree) {
			x.AddUSB(bridge("1-1.2", 4, "1a86", "7523", "", usbSerial("ch341", "ttyUSB0")))
		}, map[string]string{"ttyUSB0": "serial:usb-1a86:7523@1-1.2:1.0"}},

		{"two identical CH340", func(x *simsysfs.Tree) {
			x.AddUSB(bridge("1-1.2", 4, "1a86", "7523", "", usbSerial("ch341", "ttyUSB0")))
			x.AddUSB(bridge("1-1.3", 5, "1a86", "7523", "", usbSerial("ch341", "ttyUSB1")))
		}, map[string]string{"ttyUSB0": "serial:usb-1a86:7523@1-1.2:1.0", "ttyUSB1": "serial:usb-1a86:7523@1-1.3:1.0"}},

		{"two units with one serial number", func(x *simsysfs.Tree) {
			x.AddUSB(bridge("1-1.2", 4, "10c4", "ea60", "A1B2", usbSerial("cp210x", "ttyUSB0")))
			x.AddUSB(bridge("1-1.3", 5, "10c4", "ea60", "A1B2", usbSerial("cp210x", "ttyUSB1")))
			x.AddUSB(bridge("1-1.4", 6, "0403", "6001", "A1B2", usbSerial("ftdi_sio", "ttyUSB2")))
		}, map[string]string{
			"ttyUSB0": "serial:usb-10c4:ea60@1-1.2:1.0", "ttyUSB1": "serial:usb-10c4:ea60@1-1.3:1.0",
			"ttyUSB2": "serial:usb-0403:6001-A1B2", // another model: no clash
		}},

		{"zeros, one character, a maker's default", func(x *simsysfs.Tree) {
			x.AddUSB(bridge("1-1.1", 3, "2e8a", "000a", "000000000000", acm("ttyACM0"), data))
			x.AddUSB(bridge("1-1.2", 4, "2e8a", "000a", "FFFFFFFF", acm("ttyACM1"), data))
			x.AddUSB(bridge("1-1.3", 5, "10c4", "ea60", "0001", usbSerial("cp210x", "ttyUSB0")))
			x.AddUSB(bridge("1-1.4", 6, "1234", "5678", "0123456789ABCDEF", usbSerial("generic", "ttyUSB1")))
		}, map[string]string{
			"ttyACM0": "serial:usb-2e8a:000a@1-1.1:1.0", "ttyACM1": "serial:usb-2e8a:000a@1-1.2:1.0",
			"ttyUSB0": "serial:usb-10c4:ea60@1-1.3:1.0", "ttyUSB1": "serial:usb-1234:5678@1-1.4:1.0",
		}},

		{"padded with NULs, and characters that break ids", func(x *simsysfs.Tree) {
			x.AddUSB(bridge("1-1.1", 3, "0403", "6001", "DG1D1249\x00\x00\x00junk", usbSerial("ftdi_sio", "ttyUSB0")))
			x.AddUSB(bridge("1-1.2", 4, "0403", "6001", "<a b>/\u202eü\x07", usbSerial("ftdi_sio", "ttyUSB1")))
		}, map[string]string{"ttyUSB0": "serial:usb-0403:6001-DG1D1249", "ttyUSB1": "serial:usb-0403:6001-a%20b%2F%C3%BC"}},

		{"several ports on one interface", func(x *simsysfs.Tree) {
			x.AddUSB(bridge("1-1.4", 6, "9710", "7840", "", usbSerial("mos7840", "ttyUSB0", "ttyUSB1", "ttyUSB2")))
			x.AddUSB(bridge("1-1.3", 5, "9710", "7840", "MX42", usbSerial("mos7840", "ttyUSB3", "ttyUSB4")))
		}, map[string]string{
			"ttyUSB0": "serial:usb-9710:7840@1-1.4:1.0", "ttyUSB1": "serial:usb-9710:7840@1-1.4:1.0-port1", "ttyUSB2": "serial:usb-9710:7840@1-1.4:1.0-port2",
			"ttyUSB3": "serial:usb-9710:7840-MX42", "ttyUSB4": "serial:usb-9710:7840-MX42-port1",
		}},

		{"several interfaces", func(x *simsysfs.Tree) {
			x.AddUSB(bridge("1-1.2", 4, "0403", "6011", "FT4X", usbSerial("ftdi_sio", "ttyUSB0"), usbSerial("ftdi_sio", "ttyUSB1")))
			x.AddUSB(bridge("1-1.3", 5, "0483", "374b", "066DFF", simsysfs.Interface{Class: "ff"}, simsysfs.Interface{Class: "08", Driver: "usb-storage"}, acm("ttyACM0"), data))
			x.AddUSB(bridge("1-1.4", 6, "0403", "6010", "", usbSerial("ftdi_sio", "ttyUSB2"), usbSerial("ftdi_sio", "ttyUSB3")))
		}, map[string]string{
			"ttyUSB0": "serial:usb-0403:6011-FT4X", "ttyUSB1": "serial:usb-0403:6011-FT4X:1.1",
			"ttyACM0": "serial:usb-0483:374b-066DFF:1.2",
			"ttyUSB2": "serial:usb-0403:6010@1-1.4:1.0", "ttyUSB3": "serial:usb-0403:6010@1-1.4:1.1",
		}},

		{"on the board", func(x *simsysfs.Tree) {
			x.AddUART("ttyAMA0", "fe201000.serial", "uart-pl011", "/soc/serial@7e201000", "serial1")
			x.AddUART("ttyAMA2", "fe201800.serial", "uart-pl011", "/soc/serial@7e201800", "") // numbered as found
			x.AddUART("ttyS7", "serial8250", "serial8250", "", "")
		}, map[string]string{"ttyAMA0": "serial:ttyAMA0", "ttyAMA2": "serial:fe201800.serial", "ttyS7": "serial:ttyS7"}},

		{"what is no port", func(x *simsysfs.Tree) {
			x.Dir("devices/virtual/tty/tty0", nil)
			x.Link("class/tty/tty0", "devices/virtual/tty/tty0")
			x.Dir("devices/platform/serial8250", nil)
			x.AddTTY("ttyS1", "devices/platform/serial8250", map[string]string{"type": "0"})
			x.Link("class/tty/ttyGONE", "devices/gone")
		}, map[string]string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := simsysfs.New(t.TempDir())
			c.build(x)
			if err := x.Err(); err != nil {
				t.Fatal(err)
			}
			reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: serialio.Driver{FS: x.FS}}}})
			if err := reg.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, d := range reg.List() {
				desc, err := reg.Resolve(d.Port)
				if err != nil || desc.Node != x.FS.Node(d.Port[len("/dev/"):]) {
					t.Errorf("%s resolves to %+v, %v", d.Port, desc, err)
				}
				got[d.Port[len("/dev/"):]] = d.ID
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("ids (-want +got):\n%s", diff)
			}
			if p := reg.Problems(); len(p) > 0 {
				t.Errorf("problems: %v", p)
			}
		})
	}
}

func TestAliases(t *testing.T) {
	x := simsysfs.New(t.TempDir())
	x.AddUSB(bridge("1-1.2", 4, "0403", "6011", "FT4X", usbSerial("ftdi_sio", "ttyUSB0"), usbSerial("ftdi_sio", "ttyUSB1")))
	x.AddUART("ttyAMA0", "fe201000.serial", "uart-pl011", "/soc/serial@7e201000", "serial1")
	x.NodeLink("serial/by-id/usb-FTDI_Quad_FT4X-if01-port0", "../../ttyUSB1")
	x.NodeLink("serial0", "ttyAMA0")
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: serialio.Driver{FS: x.FS}}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for alias, want := range map[string]string{
		"/dev/ttyUSB0":                                    "serial:usb-0403:6011-FT4X",
		"serial:usb-0403:6011-FT4X":                       "serial:usb-0403:6011-FT4X", // also the board as a whole; the id wins
		"serial:usb-0403:6011@1-1.2:1.1":                  "serial:usb-0403:6011-FT4X:1.1",
		"serial:ttyUSB1":                                  "serial:usb-0403:6011-FT4X:1.1",
		"/dev/serial/by-id/usb-FTDI_Quad_FT4X-if01-port0": "serial:usb-0403:6011-FT4X:1.1",
		"/dev/serial0":                                    "serial:ttyAMA0",
		"serial:fe201000.serial":                          "serial:ttyAMA0",
	} {
		if d, err := reg.Resolve(alias); err != nil || d.ID != want {
			t.Errorf("%s is %s, %v, want %s", alias, d.ID, err, want)
		}
	}
}

func TestAvailable(t *testing.T) {
	x := simsysfs.New(t.TempDir())
	x.AddUSB(bridge("1-1.2", 4, "0403", "6001", "A", usbSerial("ftdi_sio", "ttyUSB0")))
	x.AddUSB(bridge("1-1.3", 5, "0403", "6001", "B", usbSerial("ftdi_sio", "ttyUSB1")))
	x.AddUART("ttyAMA0", "fe201000.serial", "uart-pl011", "/soc/serial@7e201000", "serial1")
	x.Dir("devices/platform/soc/fe201000.serial/fe201000.serial:0/fe201000.serial:0.0/tty/ttyAMA0", map[string]string{"console": "Y"})
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(x.FS.Node("ttyUSB1")); err != nil {
		t.Fatal(err)
	}
	all, err := serialio.Driver{FS: x.FS}.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if want := d.Port == "/dev/ttyUSB0"; d.Available != want || want != (d.Reason == "") {
			t.Errorf("%s: available %v, reason %q", d.Port, d.Available, d.Reason)
		}
	}
}

// TestDriverOnFixture is for what the suite asks of nodes that nobody opens.
func TestDriverOnFixture(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		x := simsysfs.New(t.TempDir())
		x.AddUSB(bridge("1-1.2", 4, "0403", "6001", "A", usbSerial("ftdi_sio", "ttyUSB0")))
		x.AddUART("ttyAMA0", "fe201000.serial", "uart-pl011", "/soc/serial@7e201000", "serial1")
		if err := x.Err(); err != nil {
			t.Fatal(err)
		}
		return devicetest.Bench{Family: device.Family{Driver: serialio.Driver{FS: x.FS}}, DevRoot: x.FS.DevRoot}
	})
}
