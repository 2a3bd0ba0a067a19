package preseed

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Preseed is s as rpi-preseed.toml, without what farhand.toml says. A section
// that says nothing isn't there.
func (s Settings) Preseed() []byte {
	w := writer{}
	w.text("config_version", "1.0")
	if s.Hostname != "" {
		w.table("system")
		w.text("hostname", s.Hostname)
	}
	if u := s.User; u != nil {
		w.table("user")
		w.text("name", u.Name)
		if u.PasswordHash != "" {
			w.text("password", u.PasswordHash)
			w.flag("password_encrypted", true)
		}
		if u.Groups != nil {
			w.list("groups", u.Groups)
		}
		w.flag("passwordless_sudo", u.PasswordlessSudo)
	}
	if s.SSH.Enabled || s.SSH.AuthorizedKeys != nil {
		w.table("ssh")
		w.flag("enabled", s.SSH.Enabled)
		w.flag("password_authentication", s.SSH.PasswordLogin)
		if s.SSH.AuthorizedKeys != nil {
			w.list("authorized_keys", s.SSH.AuthorizedKeys)
		}
	}
	s.network(&w)
	if s.Keymap != "" || s.Timezone != "" {
		w.table("locale")
		w.optional("keymap", s.Keymap)
		w.optional("timezone", s.Timezone)
	}
	s.Interfaces.write(&w)
	return w.bytes()
}

func (s Settings) network(w *writer) {
	if s.Wifi == nil && s.Country == "" {
		return
	}
	w.table("wlan")
	if n := s.Wifi; n != nil {
		if isPlain(n.SSID) {
			w.text("ssid", string(n.SSID))
		} else {
			w.text("ssid_hex", hex.EncodeToString(n.SSID))
		}
		if n.PSK != "" {
			w.text("password", n.PSK)
			w.flag("password_encrypted", true)
		} else {
			w.optional("password", n.Passphrase)
		}
		w.flag("hidden", n.Hidden)
	}
	w.optional("country", s.Country)
}

func (i Interfaces) write(w *writer) {
	if i == (Interfaces{}) {
		return
	}
	w.table("interfaces")
	for _, one := range []struct {
		key  string
		flag *bool
	}{{"i2c", i.I2C}, {"spi", i.SPI}, {"onewire", i.OneWire}} {
		if one.flag != nil {
			w.flag(one.key, *one.flag)
		}
	}
	w.optional("serial", i.Serial)
}

// TOML is f as farhand.toml.
func (f Farhand) TOML() []byte {
	w := writer{}
	w.optional("relay", f.Relay)
	w.optional("ca_sha256", f.CASHA256)
	w.optional("claim_key", f.ClaimKey)
	w.optional("name", f.Name)
	if f.Roots != nil {
		w.list("roots", f.Roots)
	}
	if f.Capabilities != nil {
		w.list("capabilities", f.Capabilities)
	}
	w.flag("shell", f.Shell)
	if f.Private != nil || f.AnswerChars != 0 || f.Release {
		w.table("privacy")
		if f.Private != nil {
			w.list("private", f.Private)
		}
		if f.AnswerChars != 0 {
			fmt.Fprintf(&w.b, "answer_chars = %d\n", f.AnswerChars)
		}
		if f.Release {
			w.flag("release", true)
		}
	}
	if f.ForwardAllow != nil {
		w.table("forward")
		w.list("allow", f.ForwardAllow)
	}
	if f.OperatorSudo {
		w.table("sudo")
		w.flag("operator", true)
	}
	if f.WifiRescue || f.RescuePassphrase != "" {
		w.table("wifi")
		w.flag("rescue", f.WifiRescue)
		w.optional("rescue_passphrase", f.RescuePassphrase)
	}
	if len(f.Buses) > 0 {
		w.table("buses")
		for _, name := range slices.Sorted(maps.Keys(f.Buses)) {
			w.flag(name, f.Buses[name])
		}
	}
	return w.bytes()
}

// isPlain says whether a name can stand in the file as text.
func isPlain(b []byte) bool {
	s := string(b)
	return s == strings.ToValidUTF8(s, "") && !strings.ContainsFunc(s, unicode.IsControl)
}

// writer writes the TOML that these files are written in: one key a line, the
// escapes \\ and \" alone.
type writer struct{ b strings.Builder }

func (w *writer) bytes() []byte { return []byte(w.b.String()) }

func (w *writer) table(name string) { fmt.Fprintf(&w.b, "\n[%s]\n", name) }

func (w *writer) text(key, s string) { fmt.Fprintf(&w.b, "%s = %s\n", key, quote(s)) }

func (w *writer) optional(key, s string) {
	if s != "" {
		w.text(key, s)
	}
}

func (w *writer) flag(key string, b bool) { fmt.Fprintf(&w.b, "%s = %s\n", key, strconv.FormatBool(b)) }

func (w *writer) list(key string, items []string) {
	fmt.Fprintf(&w.b, "%s = [", key)
	for i, s := range items {
		if i > 0 {
			w.b.WriteString(", ")
		}
		w.b.WriteString(quote(s))
	}
	w.b.WriteString("]\n")
}

// quote leaves out control characters, which the dialect can't carry and no
// setting holds.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsControl(r):
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
