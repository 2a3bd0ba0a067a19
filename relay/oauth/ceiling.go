package oauth

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"farhand/wire"
)

// Limits of a ceiling: far over what a person writes, and bounded because every
// HELLO_ACK carries it.
const (
	maxCapabilities = 64
	maxDeviceGrants = 256
	maxPattern      = 256 // characters
	maxRoots        = 64
	maxOps          = 128
)

// known are the capabilities that an owner is asked about when the machine
// didn't say what it offers.
var known = []wire.Capability{
	wire.Files, wire.HardwareSerial, wire.HardwareUSB, wire.HardwareGPIO, wire.HardwareI2C, wire.HardwareSPI,
	wire.HardwarePrinter, wire.LocalLLM, wire.LLMManage, wire.Shell, wire.Observe, wire.Forward,
}

// plumbing are capabilities that no ceiling names; in a list they mean nothing.
var plumbing = []wire.Capability{
	wire.Cancel,
	wire.DirectoryBrowse, wire.Grants, wire.AuditAnchor, wire.Streams, wire.Terminal, wire.LocalLLMExtended, wire.MachineFactsCapability, wire.Machines, wire.SettingsCapability,
	wire.Transfer, wire.Privacy,
}

// wants reads the capabilities that a device says it offers; those an owner
// doesn't decide on are left out.
func wants(list string) []wire.Capability {
	out := []wire.Capability{}
	for name := range strings.FieldsSeq(list) {
		c := wire.Capability(name)
		if len(name) <= 64 && validCapability(c) && !slices.Contains(out, c) && len(out) < maxCapabilities {
			out = append(out, c)
		}
	}
	return out
}

func validCapability(c wire.Capability) bool {
	for _, r := range c {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' {
			return false
		}
	}
	return c.Approvable()
}

// checkCeiling puts a ceiling in order, or says what is wrong with it.
func checkCeiling(c wire.Ceiling) (wire.Ceiling, error) {
	if c.Capabilities != nil {
		out := []wire.Capability{}
		for _, one := range *c.Capabilities {
			if slices.Contains(plumbing, one) || slices.Contains(out, one) {
				continue
			}
			if len(one) > 64 || !validCapability(one) {
				return c, badArgument("%q is no capability that can be allowed", wire.Clean(string(one), 64))
			}
			out = append(out, one)
		}
		if len(out) > maxCapabilities {
			return c, badArgument("more than %d capabilities", maxCapabilities)
		}
		c.Capabilities = &out
	}
	if c.Devices != nil {
		if *c.Devices == nil {
			c.Devices = &[]wire.DeviceGrant{}
		}
		if len(*c.Devices) > maxDeviceGrants {
			return c, badArgument("more than %d device patterns", maxDeviceGrants)
		}
		for _, d := range *c.Devices {
			if !validText(d.Pattern, maxPattern) || !validList(d.Lines) || !validList(d.Ops) {
				return c, badArgument("a device pattern, its lines or its ops are malformed")
			}
		}
	}
	if c.Roots != nil {
		if len(*c.Roots) > maxRoots {
			return c, badArgument("more than %d roots", maxRoots)
		}
		out := []string{}
		for _, root := range *c.Roots {
			if !validText(root, wire.MaxAllowedRoot) || !path.IsAbs(root) {
				return c, badArgument("a root must be an absolute path")
			}
			out = append(out, path.Clean(root))
		}
		c.Roots = &out
	}
	return c, nil
}

func validText(s string, limit int) bool {
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > limit {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func validList(l *[]string) bool {
	if l == nil {
		return true
	}
	return len(*l) <= maxOps && !slices.ContainsFunc(*l, func(s string) bool { return !validText(s, maxPattern) })
}

// expiry is a time in a request: RFC 3339, or a duration from now ("720h").
type expiry struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler. The error is an *apiError.
func (e *expiry) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return badArgument("expires must be a time (RFC 3339) or a duration (like 720h)")
	}
	if text == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, derr := time.ParseDuration(text)
		if derr != nil {
			return badArgument("expires must be a time (RFC 3339) or a duration (like 720h)")
		}
		at = now().Add(d)
	}
	// Records keep times as nanoseconds since 1970 in 64 bits.
	if !at.After(now()) || at.Year() > 2200 {
		return badArgument("expires lies in the past or too far ahead")
	}
	e.Time = at.UTC().Round(0)
	return nil
}
