package render

import (
	"encoding/hex"
	"strings"

	"farhand/provision/preseed"
)

// IwdDir is where iwd keeps its networks.
const IwdDir = "/var/lib/iwd"

// Wifi configures iwd (iwd.config(5), iwd.network(5)): addresses are
// systemd-networkd's, and power saving is off, since it makes links of Pis
// flaky. Without a country there is no network: the radio may not send.
func Wifi(s preseed.Settings) []File {
	main := "[General]\nEnableNetworkConfiguration=false\n"
	if s.Country != "" {
		main += "Country=" + s.Country + "\n"
	}
	main += "\n[DriverQuirks]\nPowerSaveDisable=*\n\n[Scan]\nDisablePeriodicScan=false\n"
	files := []File{{Path: Dir + "/iwd/main.conf", Data: []byte(main), Mode: 0o644}}
	if s.Country != "" {
		for _, w := range s.Networks() {
			files = append(files, knownNetwork(w))
		}
	}
	return files
}

// knownNetwork is iwd's file of a network.
func knownNetwork(w preseed.Wifi) File {
	var b strings.Builder
	suffix := ".psk"
	switch {
	case w.PSK != "":
		b.WriteString("[Security]\nPreSharedKey=" + w.PSK + "\n\n")
	case w.Passphrase != "":
		b.WriteString("[Security]\nPassphrase=" + escape(w.Passphrase) + "\n\n")
	default:
		suffix = ".open"
	}
	b.WriteString("[Settings]\nAutoConnect=true\n")
	if w.Hidden {
		b.WriteString("Hidden=true\n")
	}
	return File{Path: IwdDir + "/" + iwdName(w.SSID) + suffix, Data: []byte(b.String()), Mode: 0o600}
}

// iwdName is a network's name in the name of its file: as it is if it only has
// letters, digits, spaces, '-' and '_', else "=" and its bytes in hex
// (iwd.network(5)).
func iwdName(ssid []byte) string {
	for _, c := range ssid {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == ' ', c == '-', c == '_':
		default:
			return "=" + hex.EncodeToString(ssid)
		}
	}
	return string(ssid)
}

// escape writes a value of iwd's settings files, which drop spaces around it
// and read a backslash as the beginning of an escape.
func escape(s string) string {
	s = strings.ReplaceAll(s, `\`, `\\`)
	inner := strings.Trim(s, " ")
	lead := len(s) - len(strings.TrimLeft(s, " "))
	return strings.Repeat(`\s`, lead) + inner + strings.Repeat(`\s`, len(s)-lead-len(inner))
}
