package preseed

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"farhand/wire"
)

// Networks are the Wi-Fi networks, the first one first.
func (s Settings) Networks() []Wifi {
	if s.Wifi == nil {
		return s.MoreWifi
	}
	return append([]Wifi{*s.Wifi}, s.MoreWifi...)
}

// Changed is s as its owner wants it from now on. The error names the field that
// is wrong, and never has what stood in it.
func (s Settings) Changed(c wire.SettingsChange) (Settings, error) {
	for _, step := range []func(*Settings, wire.SettingsChange) error{changeNames, changeWifi, changeSSH} {
		if err := step(&s, c); err != nil {
			return Settings{}, err
		}
	}
	return s, nil
}

// change sets a field that may be emptied.
func change(field string, to *string, from *string, check func(string) (string, error)) error {
	if from == nil {
		return nil
	}
	v := *from
	if v != "" {
		var err error
		if v, err = check(v); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	*to = v
	return nil
}

// quiet drops the note of a check.
func quiet(check func(string) (string, string, error)) func(string) (string, error) {
	return func(s string) (string, error) {
		v, _, err := check(s)
		return v, err
	}
}

func changeNames(s *Settings, c wire.SettingsChange) error {
	return errors.Join(
		change("hostname", &s.Hostname, c.Hostname, quiet(hostname)),
		change("name", &s.Farhand.Name, c.Name, name),
		change("timezone", &s.Timezone, c.Timezone, timezone),
	)
}

func changeWifi(s *Settings, c wire.SettingsChange) error {
	if c.WifiRescue != nil {
		s.Farhand.WifiRescue = *c.WifiRescue
	}
	if err := change("wifi_country", &s.Country, c.WifiCountry, NewCountry); err != nil {
		return err
	}
	networks := slices.Clone(s.Networks())
	find := func(ssid []byte) int {
		return slices.IndexFunc(networks, func(w Wifi) bool { return string(w.SSID) == string(ssid) })
	}
	for _, text := range c.WifiRemove {
		name, err := ParseSSID(text)
		if err != nil {
			return fmt.Errorf("wifi_remove: %w", err)
		}
		i := find(name)
		if i < 0 {
			return fmt.Errorf("wifi_remove: there is no network %s", SSIDText(name))
		}
		networks = slices.Delete(networks, i, i+1)
	}
	for _, n := range c.WifiAdd {
		w, err := newWifi(n)
		if err != nil {
			return fmt.Errorf("wifi_add: %w", err)
		}
		if i := find(w.SSID); i >= 0 {
			networks[i] = w
		} else {
			networks = append(networks, w)
		}
	}
	switch {
	case len(networks) > wire.MaxWifiNetworks:
		return fmt.Errorf("wifi_add: more than %d networks; remove one", wire.MaxWifiNetworks)
	case len(c.WifiAdd) > 0 && s.Country == "":
		return errors.New("wifi_add: the radio may not send before its country is known; give wifi_country")
	}
	s.Wifi, s.MoreWifi = nil, nil
	if len(networks) > 0 {
		s.Wifi, s.MoreWifi = &networks[0], networks[1:]
	}
	return nil
}

func newWifi(n wire.NewWifi) (Wifi, error) {
	name, err := ParseSSID(n.SSID)
	if err != nil {
		return Wifi{}, err
	}
	w := Wifi{SSID: name, Hidden: n.Hidden}
	if n.Password != "" {
		if w.Passphrase, w.PSK, _, err = wifiSecret(n.Password, name); err != nil {
			return Wifi{}, err
		}
	}
	return w, nil
}

func changeSSH(s *Settings, c wire.SettingsChange) error {
	keys := slices.Clone(s.SSH.AuthorizedKeys)
	for _, fingerprint := range c.SSHRemove {
		i := slices.IndexFunc(keys, func(line string) bool { return PublicKey(line).Fingerprint == fingerprint })
		if i < 0 {
			return errors.New("ssh_remove: there is no key of this fingerprint")
		}
		keys = slices.Delete(keys, i, i+1)
	}
	for _, text := range c.SSHAdd {
		line, _, err := authorizedKey(text)
		if err != nil {
			return fmt.Errorf("ssh_add: %w", err)
		}
		if len(line) > wire.MaxSSHKey {
			return fmt.Errorf("ssh_add: a key is longer than %d bytes", wire.MaxSSHKey)
		}
		if !keyType(strings.Fields(line)[0]) {
			return errors.New("ssh_add: a key is given without options")
		}
		fingerprint := PublicKey(line).Fingerprint
		keys = slices.DeleteFunc(keys, func(k string) bool { return PublicKey(k).Fingerprint == fingerprint })
		keys = append(keys, line)
	}
	if len(keys) > wire.MaxSSHKeys && len(c.SSHAdd) > 0 {
		return fmt.Errorf("ssh_add: more than %d keys; remove one", wire.MaxSSHKeys)
	}
	if c.SSHEnabled != nil {
		s.SSH.Enabled = *c.SSHEnabled
	}
	if (c.SSHEnabled != nil && *c.SSHEnabled || len(c.SSHAdd) > 0) && s.User == nil {
		return errors.New("ssh_enabled: the card named no user who could log in; flash it with one")
	}
	s.SSH.AuthorizedKeys = keys
	return nil
}

// PublicKey is what may be shown of a line of authorized_keys.
func PublicKey(line string) wire.SSHKey {
	fields := strings.Fields(line)
	for i := 0; i+1 < len(fields); i++ {
		if !keyType(fields[i]) {
			continue
		}
		blob, err := base64.StdEncoding.DecodeString(fields[i+1])
		if err != nil {
			break
		}
		sum := sha256.Sum256(blob)
		return wire.SSHKey{
			Type: fields[i], Fingerprint: "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:]),
			Comment: wire.Clean(strings.Join(fields[i+2:], " "), maxComment),
		}
	}
	return wire.SSHKey{}
}

// maxComment bounds what is told of a key's comment, in characters.
const maxComment = 64
