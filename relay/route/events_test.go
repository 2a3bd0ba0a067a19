package route

import (
	"testing"

	"farhand/relay/access"
	"farhand/relay/events"
	"farhand/wire"
)

func TestSeenBy(t *testing.T) {
	gpio, serial := &wire.HardwareDevice{Type: "gpio", ID: "gpio:x"}, &wire.HardwareDevice{Type: "serial", ID: "serial:x"}
	mine := []string{"m"}
	token := access.Operator{Machines: &mine, Ceiling: &wire.Ceiling{
		Capabilities: &[]wire.Capability{wire.HardwareGPIO}, Devices: &[]wire.DeviceGrant{{Pattern: "gpio:*"}},
	}}
	for _, c := range []struct {
		e    events.Event
		sees bool
	}{
		{events.Event{Type: events.MachineOnline, Machine: "m"}, true},
		{events.Event{Type: events.GrantsChanged, Machine: "m", Holder: "h", Address: "a", Subject: "s"}, true},
		{events.Event{Type: events.MachineOnline, Machine: "other"}, false},
		{events.Event{Type: events.DeviceAdded, Machine: "m", Device: gpio}, true},
		{events.Event{Type: events.DeviceAdded, Machine: "m", Device: serial}, false},
		{events.Event{Type: events.DeviceAdded, Machine: "m"}, false},
		{events.Event{Type: events.TokenCreated}, false},
		{events.Event{Type: events.MachinePaired, Machine: "m"}, false},
		{events.Event{Type: "something new", Machine: "m"}, false},
	} {
		got, sees := seenBy(token, c.e)
		if sees != c.sees || got.Holder != "" && sees || got.Address != "" && sees || got.Subject != "" && sees {
			t.Errorf("%+v: %v, %+v", c.e, sees, got)
		}
		if _, sees := seenBy(access.Operator{Login: true}, c.e); !sees {
			t.Errorf("the owner doesn't see %+v", c.e)
		}
	}
}
