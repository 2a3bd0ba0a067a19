package request

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"farhand/wire"
)

func (p Pairing) check() error {
	for name, text := range map[string]string{
		"verification_uri": p.VerificationURI, "user_code": p.UserCode,
	} {
		if text == "" {
			return errorf(Malformed, "%s is missing", name)
		}
	}
	return bounded(p.VerificationURI, p.VerificationURIComplete, p.UserCode, p.Relay, p.Name, p.Note)
}

func (s Status) check() error {
	if s.State == "" {
		return errorf(Malformed, "state is missing")
	}
	if len(s.Addresses) > MaxAddresses || len(s.Devices) > MaxDevices {
		return errorf(Malformed, "more than %d addresses or %d devices", MaxAddresses, MaxDevices)
	}
	if err := bounded(s.State, s.Detail, s.Name, s.MDNSName, s.Relay, s.ClockState, s.Wifi); err != nil {
		return err
	}
	if err := within(MaxAddress, s.Addresses...); err != nil {
		return err
	}
	for _, d := range s.Devices {
		if err := within(MaxDevice, d.ID, d.Desc); err != nil {
			return err
		}
	}
	return nil
}

// checkChange bounds a change; what stands in it is checked by whoever knows what
// there is.
func checkChange(c wire.SettingsChange) error {
	if len(c.WifiAdd) > wire.MaxWifiNetworks || len(c.WifiRemove) > wire.MaxWifiNetworks || len(c.SSHAdd) > wire.MaxSSHKeys || len(c.SSHRemove) > wire.MaxSSHKeys {
		return errorf(Malformed, "more than %d networks or %d keys", wire.MaxWifiNetworks, wire.MaxSSHKeys)
	}
	if len(c.Fields()) == 0 {
		return errorf(Malformed, "nothing to change")
	}
	return nil
}

func (r InstallOllama) check() error {
	if len(r.SHA256) != 64 || strings.Trim(r.SHA256, "0123456789abcdef") != "" {
		return errorf(Malformed, "sha256 isn't 64 lower-case hex digits")
	}
	return nil
}

func bounded(texts ...string) error { return within(MaxText, texts...) }

func within(most int, texts ...string) error {
	for _, t := range texts {
		if len(t) > most {
			return errorf(Malformed, "a text is longer than %d bytes", most)
		}
	}
	return nil
}

// Clip is p with its texts cut to what a request may carry. What must not be
// cut, the addresses and the code, stays as it is.
func (p Pairing) Clip() Pairing {
	p.Name, p.Relay, p.Note = clip(p.Name, MaxText), clip(p.Relay, MaxText), clip(p.Note, MaxText)
	return p
}

// Clip is s within the bounds of a request: long texts cut, and what is beyond
// the first MaxAddresses and MaxDevices left out.
func (s Status) Clip() Status {
	for _, text := range []*string{&s.State, &s.Detail, &s.Name, &s.MDNSName, &s.Relay, &s.ClockState, &s.Wifi} {
		*text = clip(*text, MaxText)
	}
	addresses := s.Addresses[:min(len(s.Addresses), MaxAddresses)]
	s.Addresses = make([]string, len(addresses))
	for i, a := range addresses {
		s.Addresses[i] = clip(a, MaxAddress)
	}
	devices := s.Devices[:min(len(s.Devices), MaxDevices)]
	s.Devices = make([]Device, len(devices))
	for i, d := range devices {
		s.Devices[i] = Device{ID: clip(d.ID, MaxDevice), Desc: clip(d.Desc, MaxDevice)}
	}
	return s
}

// clip cuts at a character's border, and drops what is no UTF-8 and what JSON
// would write in six bytes.
func clip(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
