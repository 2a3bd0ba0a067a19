package usb_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/device/simsysfs"
	"farhand/usb"
	"farhand/wire"
)

func fixture(t testing.TB) *simsysfs.Tree {
	x := simsysfs.New(t.TempDir())
	x.AddUSB(simsysfs.USB{Path: "1-1", Num: 2, VID: "2109", PID: "3431", Class: "09", Product: "USB2.0 Hub",
		Interfaces: []simsysfs.Interface{{Class: "09", Driver: "hub"}}})
	x.AddUSB(simsysfs.USB{Path: "1-1.1", Num: 3, VID: "2341", PID: "0043", Class: "02", Serial: "95530",
		Manufacturer: "Arduino (www.arduino.cc)", Product: "Arduino Uno",
		Interfaces: []simsysfs.Interface{{Class: "02", Driver: "cdc_acm"}, {Class: "0a", Driver: "cdc_acm"}}})
	// No strings at all, as 1a56:dd01 has them: indexes that can't be read.
	x.AddUSB(simsysfs.USB{Path: "1-1.2", Num: 4, VID: "1A56", PID: "DD01", Class: "00",
		Interfaces: []simsysfs.Interface{{Class: "03", Driver: "usbhid"}, {Class: "03"}}})
	x.AddUSB(simsysfs.USB{Path: "1-1.3", Num: 15, VID: "1a86", PID: "7523", Class: "ff", Manufacturer: "QinHeng", Product: "USB <Serial>"})
	x.AddUSB(simsysfs.USB{Path: "1-1.4", Num: 16, VID: "1a86", PID: "7523", Class: "ff", Manufacturer: "QinHeng"})
	x.Dir("devices/broken", map[string]string{"idVendor": "zz"})
	x.Link("bus/usb/devices/2-1", "devices/broken")
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestList(t *testing.T) {
	x := fixture(t)
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: usb.Driver{FS: x.FS}}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []wire.HardwareDevice{
		{Type: "usb", ID: "usb:1a56:dd01@1-1.2", Desc: "USB device 1a56:dd01", VID: "1a56", PID: "dd01", DeviceClass: "03", Driver: "usbhid",
			Aliases: []string{"/dev/bus/usb/001/004", "usb:1a56:dd01"}, Reason: device.NoDriverYet, Generation: 1},
		{Type: "usb", ID: "usb:1a86:7523@1-1.3", Desc: "QinHeng USB Serial", VID: "1a86", PID: "7523", Manufacturer: "QinHeng", Product: "USB Serial", DeviceClass: "ff",
			Aliases: []string{"/dev/bus/usb/001/015", "usb:1a86:7523"}, Reason: device.NoDriverYet, Generation: 1},
		{Type: "usb", ID: "usb:1a86:7523@1-1.4", Desc: "QinHeng device 1a86:7523", VID: "1a86", PID: "7523", Manufacturer: "QinHeng", DeviceClass: "ff",
			Aliases: []string{"/dev/bus/usb/001/016", "usb:1a86:7523"}, Reason: device.NoDriverYet, Generation: 1},
		{Type: "usb", ID: "usb:2341:0043-95530", Desc: "Arduino Uno", VID: "2341", PID: "0043", Manufacturer: "Arduino (www.arduino.cc)", Product: "Arduino Uno",
			SerialNumber: "95530", DeviceClass: "02", Driver: "cdc_acm",
			Aliases: []string{"/dev/bus/usb/001/003", "usb:2341:0043", "usb:2341:0043@1-1.1"}, Reason: device.NoDriverYet, Generation: 1},
	}
	if diff := cmp.Diff(want, reg.List()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err := reg.Resolve("usb:1a86:7523")
	if e := wire.AsError(err); e.Code != wire.HardwareAmbiguous || !cmp.Equal(e.Details["candidates"], []string{"usb:1a86:7523@1-1.3", "usb:1a86:7523@1-1.4"}) {
		t.Errorf("an ambiguous name answers %v %v", err, e.Details)
	}
	if d, err := reg.Resolve("usb:2341:0043"); err != nil || d.ID != "usb:2341:0043-95530" || d.Node != x.FS.Node("bus/usb/001/003") {
		t.Errorf("usb:2341:0043 is %+v, %v", d, err)
	}
}

// TestReplug plugs the same device into the same socket between two looks: only
// its number on the bus has changed.
func TestReplug(t *testing.T) {
	x := simsysfs.New(t.TempDir())
	u := simsysfs.USB{Path: "1-1.1", Num: 3, VID: "2341", PID: "0043", Class: "02", Serial: "95530"}
	x.AddUSB(u)
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: usb.Driver{FS: x.FS}}}})
	generation := func(want int) {
		t.Helper()
		if err := errors.Join(x.Err(), reg.Refresh(t.Context())); err != nil {
			t.Fatal(err)
		}
		d, err := reg.Resolve("usb:2341:0043-95530")
		if err != nil || d.Generation != want {
			t.Errorf("generation %d, %v, want %d", d.Generation, err, want)
		}
	}
	generation(1)
	generation(1)
	x.Remove(x.FS.Dir(u.Dir()))
	u.Num = 9
	x.AddUSB(u)
	generation(2)
	x.Remove(x.FS.Dir(u.Dir()))
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	u.Path, u.Num = "1-1.4", 10 // another socket: the serial number still says which it is
	x.AddUSB(u)
	generation(3)
}

// TestNoNodes is a machine that shows its devices and has no /dev/bus/usb, as
// containers do.
func TestNoNodes(t *testing.T) {
	x := fixture(t)
	if err := os.RemoveAll(x.FS.Node("bus")); err != nil {
		t.Fatal(err)
	}
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: usb.Driver{FS: x.FS}, Service: usb.NewService(usb.System{}, nil)}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := device.NewLeases(device.LeaseOptions{})
	defer leases.Close()
	_, _, err := device.NewDispatcher(reg, leases, nil).Do(t.Context(), device.Caller{Session: "a"}, wire.HardwareOp{Device: "usb:2341:0043-95530", Op: wire.OpUSBSend})
	if e := wire.AsError(err); e.Code != wire.HardwareOpenFailed || !strings.Contains(e.Message, "there is no device node") {
		t.Errorf("it answers %v", err)
	}
}

// TestNodeIsNone is a node that is something else, as the bench's sysfs has it.
func TestNodeIsNone(t *testing.T) {
	x := fixture(t)
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: usb.Driver{FS: x.FS}}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := reg.Resolve("usb:2341:0043-95530")
	if err != nil {
		t.Fatal(err)
	}
	if h, err := (usb.System{}).Open(d); err == nil {
		h.Close()
		t.Error("a plain file is opened as a USB device")
	}
	if err := os.Remove(d.Node); err != nil {
		t.Fatal(err)
	}
	if _, err := (usb.System{}).Open(d); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a node that is gone answers %v", err)
	}
}

// TestLook reads what sysfs has of a device, whole or not.
func TestLook(t *testing.T) {
	x := fixture(t)
	dir := simsysfs.USB{Path: "1-1.1"}.Dir()
	x.Dir(dir, map[string]string{"bConfigurationValue": "1", "speed": "12", "configuration": "one"})
	x.Dir(dir+"/1-1.1:1.0", map[string]string{"bInterfaceNumber": "00", "bAlternateSetting": " 1", "interface": "first"})
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: usb.Driver{FS: x.FS}}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := reg.Resolve("usb:2341:0043-95530")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (usb.System{}).Look(d); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without descriptors it answers %v", err)
	}
	if err := os.WriteFile(filepath.Join(d.SysPath, "descriptors"), []byte{18, 1, 0}, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (usb.System{}).Look(d)
	if err != nil {
		t.Fatal(err)
	}
	want := usb.Look{
		Descriptors: []byte{18, 1, 0}, Active: 1, SpeedMbps: 12,
		Manufacturer: "Arduino (www.arduino.cc)", Product: "Arduino Uno", Serial: "95530", Configuration: "one",
		Interfaces: map[int]usb.LookInterface{0: {Driver: "cdc_acm", Name: "first", Alternate: 1}, 1: {Driver: "cdc_acm"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		x := fixture(t)
		return devicetest.Bench{Family: device.Family{Driver: usb.Driver{FS: x.FS}}, DevRoot: x.FS.DevRoot}
	})
}
