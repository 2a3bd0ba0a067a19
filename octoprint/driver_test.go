package octoprint_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/device/simsysfs"
	"farhand/octoprint"
	"farhand/wire"
)

func fixture(t testing.TB) *simsysfs.Tree {
	x := simsysfs.New(t.TempDir())
	x.AddUSB(simsysfs.USB{Path: "1-1.3", Num: 5, VID: "04f9", PID: "2042", Class: "00", Serial: "000M6Z401370", Manufacturer: "Brother", Product: "QL-700",
		Interfaces: []simsysfs.Interface{{Class: "07", Driver: "usblp", LP: "lp0"}}})
	x.AddUSB(simsysfs.USB{Path: "1-1.4", Num: 6, VID: "04b8", PID: "0005", Class: "00", Manufacturer: "EPSON", Product: "USB Printer",
		Interfaces: []simsysfs.Interface{{Class: "ff"}, {Class: "07", Driver: "usblp", LP: "lp1"}}})
	x.Dir("devices/virtual/usbmisc/hiddev0", nil)
	x.Link("class/usbmisc/hiddev0", "devices/virtual/usbmisc/hiddev0")
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestList(t *testing.T) {
	x := fixture(t)
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: octoprint.Driver{FS: x.FS}}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []wire.HardwareDevice{
		{Type: "printer", ID: "printer:usb-04b8:0005@1-1.4:1.1", Desc: "EPSON USB Printer", Port: "/dev/usb/lp1", VID: "04b8", PID: "0005",
			Manufacturer: "EPSON", Product: "USB Printer", Driver: "usblp",
			Aliases: []string{"/dev/usb/lp1", "printer:04b8:0005", "printer:lp1"}, Reason: device.NoDriverYet, Generation: 1},
		{Type: "printer", ID: "printer:usb-04f9:2042-000M6Z401370", Desc: "Brother QL-700", Port: "/dev/usb/lp0", VID: "04f9", PID: "2042",
			Manufacturer: "Brother", Product: "QL-700", SerialNumber: "000M6Z401370", Driver: "usblp",
			Aliases: []string{"/dev/usb/lp0", "printer:04f9:2042", "printer:lp0", "printer:usb-04f9:2042@1-1.3"}, Reason: device.NoDriverYet, Generation: 1},
	}
	if diff := cmp.Diff(want, reg.List()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		x := fixture(t)
		return devicetest.Bench{Family: device.Family{Driver: octoprint.Driver{FS: x.FS}}, DevRoot: x.FS.DevRoot}
	})
}
