package preseed

import "fmt"

// NewWifi makes a network out of what a person entered: its name, its password
// or its key of 64 hex digits, nothing for a network without encryption. Line
// ends that came with it are dropped.
func NewWifi(name []byte, secret string, hidden bool) (Wifi, error) {
	name, err := ssid(name)
	if err != nil {
		return Wifi{}, err
	}
	w := Wifi{SSID: name, Hidden: hidden}
	if unwrap(secret) == "" {
		return w, nil
	}
	w.Passphrase, w.PSK, _, err = wifiSecret(secret, name)
	return w, err
}

// NewCountry is a country's code (ISO 3166-1 alpha-2), in upper case. A code that
// no country has is an error here, where somebody is there to give another.
func NewCountry(s string) (string, error) {
	code, _, err := country(s)
	if err == nil && !isCountry(code) {
		return "", fmt.Errorf("no country has the code %s", code)
	}
	return code, err
}

// NewHostname is a host name as the machine will have it: in lower case, without
// .local.
func NewHostname(s string) (string, error) {
	name, _, err := hostname(s)
	return name, err
}
