package usb_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/lab/guest"
	"farhand/usb"
	"farhand/usb/usbtest"
	"farhand/wire"
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

// TestLabRealController uses a controller that isn't made for tests (the
// emulator's xHCI) and a device with a protocol of its own: the FTDI adapter,
// taken from its driver.
func TestLabRealController(t *testing.T) {
	testenv.Lab(t)
	leak.Check(t)
	a := guest.FTDI(t, "LABFTDI")
	a.TTY() // the driver has bound
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: usb.Driver{}, Service: usb.NewService(usb.System{}, nil)}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := device.NewLeases(device.LeaseOptions{})
	defer leases.Close()
	disp := device.NewDispatcher(reg, leases, nil)
	do := func(op string, args any) any {
		t.Helper()
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		res, _, err := disp.Do(t.Context(), device.Caller{Session: "a"}, wire.HardwareOp{Device: "usb:0403:6001-LABFTDI", Op: op, Args: raw, Hold: op != wire.OpRelease})
		if err != nil {
			t.Fatalf("%s: %v %v", op, err, wire.AsError(err).Details)
		}
		return res.Result
	}
	// Requests of the chip (FTDI's AN232B-04 and its D2XX guide name them):
	// 9600 baud, 8N1.
	const toDevice = 0x40
	do(wire.OpUSBControl, wire.USBControl{RequestType: toDevice, Request: 3, Value: 0x4138})
	do(wire.OpUSBControl, wire.USBControl{RequestType: toDevice, Request: 4, Value: 8})
	if err := a.Far.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}

	sent := []byte("from the host")
	if r := do(wire.OpUSBSend, wire.USBSend{Data: sent, DetachKernelDriver: true}).(wire.USBTransferred); r.BytesTransferred != len(sent) {
		t.Errorf("sent %d bytes, timed out: %v", r.BytesTransferred, r.TimedOut)
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(a.Far, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the far end got %q, %v", got, err)
	}

	if _, err := a.Far.Write([]byte("from the far end")); err != nil {
		t.Fatal(err)
	}
	var line []byte
	for end := time.Now().Add(time.Minute); len(line) < 16 && time.Now().Before(end); {
		// Every packet begins with two bytes of status.
		second := 1.0
		r := do(wire.OpUSBReceive, wire.USBReceive{Size: 64, TimeoutSeconds: &second}).(wire.USBTransferred)
		if len(r.Data) > 2 {
			line = append(line, r.Data[2:]...)
		}
	}
	if string(line) != "from the far end" {
		t.Errorf("received %q", line)
	}
	do(wire.OpRelease, nil)
	a.TTY() // the driver has it back
}
