package render

import (
	"fmt"
	"slices"
	"strings"

	"farhand/provision/preseed"
	"farhand/wire"
)

// ConfigFile is the daemon's configuration.
const ConfigFile = Dir + "/config.toml"

// DefaultRoot is what files reach unless the owner says otherwise.
const DefaultRoot = "/data/work"

// PrivateRoot is what of the data partition the daemon's user alone may enter: what
// is private below it is made.
const PrivateRoot = "/data/private"

// daemon writes the daemon's configuration. Its bounds are the device's own
// ceiling: what isn't in it, no approval can give.
func (r *Result) daemon(in Input) {
	f := in.Settings.Farhand
	var b strings.Builder
	b.WriteString("# Written at every boot from what the card was given.\n")
	text := func(key, v string) {
		if v != "" {
			fmt.Fprintf(&b, "%s = %s\n", key, quote(v))
		}
	}
	list := func(key string, items []string) {
		quoted := make([]string, len(items))
		for i, s := range items {
			quoted[i] = quote(s)
		}
		fmt.Fprintf(&b, "%s = [%s]\n", key, strings.Join(quoted, ", "))
	}
	text("platform_url", f.Relay)
	text("display_name", f.Name)
	text("state_dir", in.StateDir)
	text("claim_key_file", in.ClaimKeyFile)
	roots := f.Roots
	if roots == nil {
		roots = []string{DefaultRoot}
	}
	if !offers(f, wire.Files) {
		roots = []string{}
	}
	list("roots", roots)
	if f.CASHA256 != "" {
		b.WriteString("\n[tls]\n")
		text("pin_sha256", f.CASHA256)
	}
	fmt.Fprintf(&b, "\n[shell]\nenabled = %t\n", f.Shell && offers(f, wire.Shell))
	if len(f.Private) > 0 {
		b.WriteString("\n[privacy]\n")
		list("private", f.Private)
		fmt.Fprintf(&b, "release = %t\n", f.Release)
		if f.AnswerChars > 0 {
			fmt.Fprintf(&b, "answer_chars = %d\n", f.AnswerChars)
		}
	}
	if len(f.ForwardAllow) > 0 && offers(f, wire.Forward) {
		b.WriteString("\n[forward]\n")
		list("allow", f.ForwardAllow)
	}
	families := families(f)
	fmt.Fprintf(&b, "\n[hardware]\nenabled = %t\n", len(families) > 0)
	if f.Capabilities != nil && len(families) > 0 {
		list("allow", families)
	}
	fmt.Fprintf(&b, "\n[llm]\nenabled = %t\n", f.Capabilities != nil && offers(f, wire.LocalLLM))
	fmt.Fprintf(&b, "\n[observe]\nenabled = %t\n", offers(f, wire.Observe))
	r.add(File{Path: ConfigFile, Data: []byte(b.String()), Mode: 0o640, Group: FarhandID})
}

// offers says whether a capability is among those that the card allows.
func offers(f preseed.Farhand, c wire.Capability) bool {
	return f.Capabilities == nil || slices.Contains(f.Capabilities, string(c))
}

// families are patterns of the ids of the devices whose capability is allowed.
func families(f preseed.Farhand) []string {
	var all []string
	for _, family := range []struct {
		capability wire.Capability
		pattern    string
	}{
		{wire.HardwareGPIO, "gpio:*"}, {wire.HardwareI2C, "i2c:*"}, {wire.HardwarePrinter, "printer:*"},
		{wire.HardwareSerial, "serial:*"}, {wire.HardwareSPI, "spi:*"}, {wire.HardwareUSB, "usb:*"},
	} {
		if offers(f, family.capability) {
			all = append(all, family.pattern)
		}
	}
	return all
}

// quote writes a basic string of TOML; control characters are in no setting.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
