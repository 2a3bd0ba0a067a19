package usb_test

import (
	"os"
	"testing"

	"farhand/device"
	"farhand/internal/testenv"
	"farhand/lab/guest"
	"farhand/usb"
	"farhand/usb/usbtest"
)

// reports is a HID report descriptor (HID 1.11, 6.2.2) of input and output
// reports of eight bytes, without numbers, on a page of the maker's own.
var reports = []byte{
	0x06, 0x00, 0xff, // usage page: vendor defined
	0x09, 0x01, // usage 1
	0xa1, 0x01, // collection: application
	0x15, 0x00, 0x26, 0xff, 0x00, // logical 0 to 255
	0x75, 0x08, 0x95, 0x08, // 8 fields of 8 bits
	0x09, 0x02, 0x81, 0x02, // input: data, variable
	0x09, 0x03, 0x91, 0x02, // output: data, variable
	0xc0,
}

// gadget is a device of the guest's kernel with all that the suite wants.
func gadget(t testing.TB) (*guest.USB, device.Family, string) {
	u := guest.Gadget(t, guest.ID(0x1209, 0x0001), guest.SerialNumber("LAB0001"),
		guest.Loopback(), guest.HID(reports, 8), guest.ACM())
	// The far end is there when the drivers have bound: the suite begins with
	// them.
	u.HostNode("tty")
	u.HostNode("hidraw")
	return u, device.Family{Driver: usb.Driver{}, Service: usb.NewService(usb.System{}, nil)}, "usb:1209:0001-LAB0001"
}

func TestLabDevice(t *testing.T) {
	testenv.Lab(t)
	usbtest.Run(t, func(t testing.TB) usbtest.Bench {
		u, family, id := gadget(t)
		return usbtest.Bench{
			Family: family, ID: id,
			Report: func(data []byte) {
				f, err := os.OpenFile(u.HIDNode(0), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if _, err := f.Write(data); err != nil {
					t.Error(err)
				}
			},
			Unplug: u.Unplug, Replug: u.Plug,
		}
	})
}
