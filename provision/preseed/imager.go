package preseed

import (
	"encoding/hex"
	"errors"
	"strings"

	"farhand/internal/shacrypt"
)

// parsePreseed reads rpi-preseed.toml (Raspberry Pi Imager,
// doc/os_customisation_formats.md).
func parsePreseed(s *Settings, b []byte) []Item {
	r := report{file: PreseedFile}
	content, err := plain(b)
	if err != nil {
		r.add("", Refused, err.Error())
		return r.items
	}
	p := imager{settings: s}
	apply(&r, read(content), p.table(), func(key string) {
		r.add(key, Ignored, p.ignored(key))
	})
	p.finish(&r)
	return r.items
}

// imager collects what several keys say together.
type imager struct {
	settings *Settings

	user              User
	password          string
	passwordEncrypted *bool

	ssid            []byte
	wifiPassword    string
	wifiKey         bool
	wifiPasswordSet bool
	hidden          bool
}

func (p *imager) table() map[string]setter {
	s := p.settings
	return map[string]setter{
		"config_version":  text(p.version),
		"system.hostname": noted(&s.Hostname, hostname),
		"user.name":       stored(&p.user.Name, user),
		"user.password":   text(p.userPassword),
		"user.groups":     {aList, p.groups},
		"user.password_encrypted": flag(func(b bool) {
			p.passwordEncrypted = &b
		}),
		"user.passwordless_sudo":      flag(func(b bool) { p.user.PasswordlessSudo = b }),
		"ssh.enabled":                 flag(func(b bool) { s.SSH.Enabled = b }),
		"ssh.password_authentication": flag(func(b bool) { s.SSH.PasswordLogin = b }),
		"ssh.authorized_keys":         {aList, p.keys},
		"wlan.ssid":                   text(p.name),
		"wlan.ssid_hex":               text(p.nameHex),
		"wlan.password":               text(p.networkPassword),
		"wlan.password_encrypted":     flag(func(b bool) { p.wifiKey = b }),
		"wlan.hidden":                 flag(func(b bool) { p.hidden = b }),
		"wlan.country":                noted(&s.Country, country),
		"locale.keymap":               text(p.keymap),
		"locale.timezone":             stored(&s.Timezone, timezone),
		"interfaces.i2c":              flag(func(b bool) { s.Interfaces.I2C = &b }),
		"interfaces.spi":              flag(func(b bool) { s.Interfaces.SPI = &b }),
		"interfaces.onewire":          flag(func(b bool) { s.Interfaces.OneWire = &b }),
		"interfaces.serial":           text(p.serial),
	}
}

// ignored says why a key does nothing here.
func (p *imager) ignored(key string) string {
	switch {
	case strings.HasPrefix(key, "connect."):
		return "Raspberry Pi Connect isn't part of this image"
	case key == "interfaces.usb_gadget":
		return "this image is no USB gadget"
	}
	return "this image knows no such setting"
}

func (p *imager) version(s string) (string, error) {
	if !strings.HasPrefix(s, "1.") && s != "1" {
		return "made for version 1.0; the rest is read as such", nil
	}
	return "", nil
}

func (p *imager) userPassword(s string) (string, error) {
	p.password = unwrap(s)
	switch {
	case p.password == "":
		return "", errors.New("an empty password; logging in by password stays off")
	case len(p.password) > 512:
		p.password = ""
		return "", errors.New("longer than 512 bytes")
	case p.password != s:
		return joinedNote, nil
	}
	return "", nil
}

func (p *imager) groups(v value) (note string, err error) {
	for _, name := range v.list {
		g, err := group(name)
		if err != nil {
			note = "without those groups whose rights are the system's own"
			continue
		}
		p.user.Groups = append(p.user.Groups, g)
	}
	return note, nil
}

func (p *imager) keys(v value) (note string, err error) {
	var keys []string
	for _, k := range v.list {
		line, _, problem := authorizedKey(k)
		if problem != nil {
			note, err = "without the keys that can't be read: "+problem.Error(), problem
			continue
		}
		keys = append(keys, line)
	}
	p.settings.SSH.AuthorizedKeys = keys
	if len(keys) > 0 {
		err = nil
	}
	return note, err
}

func (p *imager) name(s string) (string, error) {
	b, err := ssid([]byte(s))
	if err == nil && p.ssid == nil {
		p.ssid = b
	}
	return "", err
}

// nameHex is the name in hex, which counts over the one in text.
func (p *imager) nameHex(s string) (string, error) {
	b, err := hex.DecodeString(strings.TrimSpace(s))
	if err != nil {
		return "", errors.New("not hex digits, two for each byte")
	}
	if b, err = ssid(b); err == nil {
		p.ssid = b
	}
	return "", err
}

// networkPassword is checked when the network's name is known.
func (p *imager) networkPassword(s string) (string, error) {
	p.wifiPassword, p.wifiPasswordSet = s, unwrap(s) != ""
	if unwrap(s) != s {
		return joinedNote, nil
	}
	return "", nil
}

func (p *imager) keymap(s string) (string, error) {
	k, err := keymap(s)
	p.settings.Keymap = k
	if err == nil {
		return "kept, but nobody logs in at a keyboard", nil
	}
	return "", err
}

func (p *imager) serial(s string) (string, error) {
	switch s {
	case SerialDefault, SerialConsole:
	case SerialHardware, SerialConsoleHardware:
		p.settings.Interfaces.Serial = s
		return "the header's first serial port keeps the console, which shows the pairing code; [buses] of farhand.toml has further ports", nil
	default:
		return "", errors.New("must be default, console, hardware or console_hardware")
	}
	p.settings.Interfaces.Serial = s
	return "", nil
}

// finish puts together what several keys said.
func (p *imager) finish(r *report) {
	if p.user.Name != "" {
		p.user.PasswordHash = p.hash(r)
		p.settings.User = &p.user
	} else if p.password != "" || p.user.Groups != nil {
		r.add("user", Refused, "there is no user without a name")
	}
	if p.ssid != nil {
		p.network(r)
	} else if p.wifiPasswordSet {
		r.add("wlan", Refused, "there is no network without a name")
	}
}

func (p *imager) hash(r *report) string {
	isHash := crypted.MatchString(p.password)
	switch {
	case p.password == "":
		return ""
	case p.passwordEncrypted != nil && *p.passwordEncrypted && !isHash:
		r.add("user.password", Refused, "not a hash of crypt(5) that this system checks; logging in by password stays off")
		return ""
	case isHash && (p.passwordEncrypted == nil || *p.passwordEncrypted):
		return p.password
	}
	return shacrypt.Hash(p.password)
}

func (p *imager) network(r *report) {
	w := Wifi{SSID: p.ssid, Hidden: p.hidden}
	if p.wifiPasswordSet {
		var note string
		var err error
		w.Passphrase, w.PSK, note, err = wifiSecret(p.wifiPassword, p.ssid)
		if err == nil && p.wifiKey && w.PSK == "" {
			err = errors.New("said to be a key, but it isn't 64 hex digits")
		}
		if err != nil {
			r.add("wlan", Refused, err.Error())
			return
		}
		if note != "" && note != joinedNote {
			r.add("wlan.password", Changed, note)
		}
	}
	p.settings.Wifi = &w
}
