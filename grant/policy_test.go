package grant

import (
	"testing"

	"farhand/wire"
)

func caps(c ...wire.Capability) *[]wire.Capability { return &c }
func roots(r ...string) *[]string                  { return &r }
func devices(d ...wire.DeviceGrant) *[]wire.DeviceGrant {
	return &d
}

func TestCapability(t *testing.T) {
	only := func(c ...wire.Capability) *wire.Ceiling {
		if c == nil {
			c = []wire.Capability{}
		}
		return &wire.Ceiling{Capabilities: caps(c...)}
	}
	for name, c := range map[string]struct {
		policy Policy
		want   string // the ceiling that refuses shell
	}{
		"no ceilings":     {Policy{}, ""},
		"all hold it":     {Policy{Config: *only(wire.Shell), Set: wire.GrantSet{Approval: only(wire.Shell, wire.Files), Token: only(wire.Shell), Session: only(wire.Shell)}}, ""},
		"absent is all":   {Policy{Set: wire.GrantSet{Approval: &wire.Ceiling{}, Token: &wire.Ceiling{Roots: roots("/x")}}}, ""},
		"config":          {Policy{Config: *only(wire.Files)}, CeilingConfig},
		"empty is none":   {Policy{Set: wire.GrantSet{Approval: only()}}, CeilingApproval},
		"token":           {Policy{Set: wire.GrantSet{Approval: only(wire.Shell), Token: only(wire.Files)}}, CeilingToken},
		"session":         {Policy{Set: wire.GrantSet{Token: only(wire.Shell), Session: only()}}, CeilingSession},
		"first one named": {Policy{Config: *only(), Set: wire.GrantSet{Approval: only(), Token: only(), Session: only()}}, CeilingConfig},
		"then the second": {Policy{Config: *only(wire.Shell), Set: wire.GrantSet{Approval: only(), Token: only(), Session: only()}}, CeilingApproval},
	} {
		check(t, name, c.policy.Capability(wire.Shell), wire.CapabilityNotGranted, c.want, map[string]any{
			"capability": "shell", "required_capability": "shell",
		})
	}
}

func TestDevice(t *testing.T) {
	ops := func(o ...string) *[]string { return &o }
	granted := func(d ...wire.DeviceGrant) Policy {
		return Policy{Set: wire.GrantSet{Token: &wire.Ceiling{Devices: devices(d...)}}}
	}
	for name, c := range map[string]struct {
		policy   Policy
		id, op   string
		refused  bool
		noDetail bool
	}{
		"nothing said":        {Policy{}, "serial:x", "SERIAL_READ", false, false},
		"glob fits":           {granted(wire.DeviceGrant{Pattern: "serial:usb-2341:*"}), "serial:usb-2341:0043-1", "SERIAL_READ", false, false},
		"glob doesn't":        {granted(wire.DeviceGrant{Pattern: "serial:usb-2341:*"}), "serial:usb-1a86:7523", "SERIAL_READ", true, false},
		"case counts":         {granted(wire.DeviceGrant{Pattern: "SERIAL:*"}), "serial:x", "SERIAL_READ", true, false},
		"op named":            {granted(wire.DeviceGrant{Pattern: "*", Ops: ops("SERIAL_READ")}), "serial:x", "SERIAL_READ", false, false},
		"ops by pattern":      {granted(wire.DeviceGrant{Pattern: "*", Ops: ops("I2C_*", "SERIAL_R*")}), "serial:x", "SERIAL_READ", false, false},
		"not by the pattern":  {granted(wire.DeviceGrant{Pattern: "*", Ops: ops("SERIAL_R*")}), "serial:x", "SERIAL_WRITE", true, false},
		"op not named":        {granted(wire.DeviceGrant{Pattern: "*", Ops: ops("SERIAL_READ")}), "serial:x", "SERIAL_WRITE", true, false},
		"no op named at all":  {granted(wire.DeviceGrant{Pattern: "*", Ops: ops()}), "serial:x", "SERIAL_READ", true, false},
		"seen all the same":   {granted(wire.DeviceGrant{Pattern: "*", Ops: ops()}), "serial:x", "", false, false},
		"not even seen":       {granted(), "serial:x", "", true, true},
		"second grant fits":   {granted(wire.DeviceGrant{Pattern: "gpio:*"}, wire.DeviceGrant{Pattern: "serial:*"}), "serial:x", "SERIAL_READ", false, false},
		"grants don't mix":    {granted(wire.DeviceGrant{Pattern: "serial:*", Ops: ops("A")}, wire.DeviceGrant{Pattern: "gpio:*", Ops: ops("B")}), "serial:x", "B", true, false},
		"release is free":     {granted(), "serial:x", wire.OpRelease, false, false},
		"release, named none": {granted(wire.DeviceGrant{Pattern: "*", Ops: ops()}), "serial:x", wire.OpRelease, false, false},
	} {
		want := map[string]any{"device": c.id}
		if !c.noDetail {
			want["op"] = c.op
		}
		ceiling := ""
		if c.refused {
			ceiling = CeilingToken
		}
		check(t, name, c.policy.Device(c.id, c.op), wire.HardwareNotGranted, ceiling, want)
	}
}

func TestRoot(t *testing.T) {
	for _, c := range []struct {
		roots   *[]string
		path    string
		refused bool
	}{
		{nil, "/anything", false},
		{roots(), "/anything", true},
		{roots("/data/work"), "/data/work", false},
		{roots("/data/work/"), "/data/work", false},
		{roots("/data/work"), "/data/work/a/b", false},
		{roots("/data/work"), "/data/workshop", true},
		{roots("/data/work"), "/data", true},
		{roots("/data/work"), "/data/work/../x", true},
		{roots("/"), "/data", false},
		{roots(""), "/data", true},
		{roots("data"), "/data", true},
		{roots("/a", "/b"), "/b/c", false},
	} {
		p := Policy{Set: wire.GrantSet{Session: &wire.Ceiling{Roots: c.roots}}}
		ceiling := ""
		if c.refused {
			ceiling = CeilingSession
		}
		check(t, c.path, p.Root(c.path), wire.PathOutsideAllowedRoot, ceiling, nil)
	}
}

func check(t *testing.T, name string, err error, code wire.Code, ceiling string, details map[string]any) {
	t.Helper()
	if ceiling == "" {
		if err != nil {
			t.Errorf("%s: refused: %v", name, err)
		}
		return
	}
	if wire.CodeOf(err) != code {
		t.Errorf("%s: %v, want %s by %s", name, err, code, ceiling)
		return
	}
	got := wire.AsError(err).Details
	if got["ceiling"] != ceiling {
		t.Errorf("%s: refused by %v, want %s", name, got["ceiling"], ceiling)
	}
	for k, v := range details {
		if got[k] != v {
			t.Errorf("%s: details.%s is %v, want %v", name, k, got[k], v)
		}
	}
}
