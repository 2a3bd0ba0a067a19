package wire_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"farhand/wire"
)

// TestCeilingNull: an absent list allows all; a list that is null, which is what
// a nil slice becomes on its way, allows nothing.
func TestCeilingNull(t *testing.T) {
	var none []wire.Capability
	b, err := json.Marshal(wire.GrantSet{Approval: &wire.Ceiling{Capabilities: &none}})
	if err != nil {
		t.Fatal(err)
	}
	var set wire.GrantSet
	if err := json.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	if a := set.Approval; a == nil || a.Capabilities == nil || len(*a.Capabilities) != 0 {
		t.Errorf("%s decodes as %+v", b, set.Approval)
	}
	if a := set.Approval; a.Devices != nil || a.Roots != nil || set.Token != nil {
		t.Errorf("%s decodes as %+v", b, set)
	}
	for _, text := range []string{`{"devices":null}`, `{"roots":null}`, `{"capabilities":null}`} {
		var c wire.Ceiling
		if err := json.Unmarshal([]byte(text), &c); err != nil || c == (wire.Ceiling{}) {
			t.Errorf("%s decodes as %+v, %v", text, c, err)
		}
	}
	var c wire.Ceiling
	for _, text := range []string{`{}`, `null`, `{"capabilities":["files"],"more":null}`} {
		if err := json.Unmarshal([]byte(text), &c); err != nil || c.Roots != nil || c.Devices != nil {
			t.Errorf("%s decodes as %+v, %v", text, c, err)
		}
	}
	for _, text := range []string{`7`, `{"roots":7}`, `{"capabilities":{}}`} {
		if json.Unmarshal([]byte(text), &c) == nil {
			t.Errorf("%s was taken", text)
		}
	}
	var g wire.DeviceGrant
	if err := json.Unmarshal([]byte(`{"pattern":"serial:*","ops":null,"more":null}`), &g); err != nil || g.Ops == nil || len(*g.Ops) != 0 || g.Lines != nil {
		t.Errorf("ops that are null decode as %+v, %v", g, err)
	}
	if err := json.Unmarshal([]byte(`{"pattern":"serial:*","lines":null}`), &g); err != nil || g.Lines == nil || len(*g.Lines) != 0 {
		t.Errorf("lines that are null decode as %+v, %v", g, err)
	}
	if json.Unmarshal([]byte(`{"pattern":"serial:*","ops":7}`), &g) == nil {
		t.Error("ops that are a number were taken")
	}
}

func TestParseDeviceGrant(t *testing.T) {
	list := func(s ...string) *[]string { return &s }
	for text, want := range map[string]wire.DeviceGrant{
		"serial:*": {Pattern: "serial:*"},
		" gpio:* ; lines=GPIO17, pin 11 ;ops=gpio_get,": {Pattern: "gpio:*", Lines: list("GPIO17", "pin 11"), Ops: list("GPIO_GET")},
		"usb:*;ops=": {Pattern: "usb:*", Ops: &[]string{}},
	} {
		if got, err := wire.ParseDeviceGrant(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ";lines=1", "gpio:*;", "gpio:*;line=1", "gpio:*;17"} {
		if got, err := wire.ParseDeviceGrant(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
