package uevent

import (
	"strings"
	"testing"
)

const plugged = "add@/devices/pci0000:00/0000:01:00.0/usb1/1-1/1-1.2/1-1.2:1.0/ttyUSB0/tty/ttyUSB0\x00" +
	"ACTION=add\x00DEVPATH=/devices/pci0000:00/0000:01:00.0/usb1/1-1/1-1.2/1-1.2:1.0/ttyUSB0/tty/ttyUSB0\x00" +
	"SUBSYSTEM=tty\x00MAJOR=188\x00MINOR=0\x00DEVNAME=ttyUSB0\x00SEQNUM=3021\x00"

func TestParse(t *testing.T) {
	const path = "/devices/pci0000:00/0000:01:00.0/usb1/1-1/1-1.2/1-1.2:1.0/ttyUSB0/tty/ttyUSB0"
	for _, c := range []struct {
		name, msg string
		want      Event
		bad       bool
	}{
		{"a plug", plugged, Event{"add", path, "tty", "ttyUSB0"}, false},
		{"no variables", "remove@/devices/x", Event{Action: "remove", DevPath: "/devices/x"}, false},
		{"an @ in the path", "add@/devices/a@b\x00SUBSYSTEM=usb\x00", Event{"add", "/devices/a@b", "usb", ""}, false},
		{"a variable without a value", "add@/x\x00SUBSYSTEM\x00=\x00", Event{Action: "add", DevPath: "/x"}, false},
		{"what udev sends", "libudev\x00\xfe\xed\xca\xfe", Event{}, true},
		{"nothing", "", Event{}, true},
		{"no action", "@/x", Event{}, true},
		{"no path", "add@", Event{}, true},
	} {
		got, err := Parse([]byte(c.msg))
		if (err != nil) != c.bad || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(plugged))
	f.Add([]byte("remove@/devices/x"))
	f.Add([]byte("libudev\x00\xfe\xed\xca\xfe"))
	f.Add([]byte("@\x00="))
	f.Fuzz(func(t *testing.T, msg []byte) {
		e, err := Parse(msg)
		if err != nil {
			if e != (Event{}) {
				t.Errorf("an event beside an error: %+v", e)
			}
			return
		}
		for _, s := range []string{e.Action, e.DevPath, e.Subsystem, e.DevName} {
			if strings.Contains(s, "\x00") || !strings.Contains(string(msg), s) {
				t.Errorf("%q is not from the message", s)
			}
		}
	})
}
