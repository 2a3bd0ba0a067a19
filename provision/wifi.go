package provision

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"farhand/provision/preseed"
	"farhand/provision/render"
	"farhand/provision/request"
)

// rfkill are the switches of the machine's radios (Linux,
// Documentation/ABI/stable/sysfs-class-rfkill).
func (s *System) rfkill() []string {
	var all []string
	dirs, _ := filepath.Glob(s.path("/sys/class/rfkill/rfkill*")) // the pattern is fine
	for _, dir := range dirs {
		if b, err := readLimited(filepath.Join(dir, "type"), 64); err == nil && trim(b) == "wlan" {
			all = append(all, dir)
		}
	}
	return all
}

// radio lets the radio send if its country is known, and keeps it from sending
// otherwise (field case 82).
func (s *System) radio(settings preseed.Settings) error {
	block := "0"
	if settings.Country == "" {
		block = "1"
	}
	var errs []error
	for _, dir := range s.rfkill() {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "soft"), []byte(block), 0o644))
	}
	return errors.Join(errs...)
}

// wifi is what the radio was told, and whether it may send.
func (s *System) wifi(settings preseed.Settings) request.WifiFacts {
	f := request.WifiFacts{Country: settings.Country, State: request.WifiOff}
	if radios, _ := filepath.Glob(s.path("/sys/class/ieee80211/*")); len(radios) == 0 {
		f.State = request.WifiNone
		return f
	}
	w := settings.Wifi
	if w == nil {
		return f
	}
	f.SSIDHex = hex.EncodeToString(w.SSID)
	switch {
	case settings.Country == "":
		f.State = request.WifiNoCountry
	case s.blocked():
		f.State = request.WifiBlocked
	case w.PSK == "" && w.Passphrase == "":
		f.State = request.WifiOpen
	default:
		f.State = request.WifiReady
	}
	return f
}

// blocked says whether a switch keeps the radio from sending.
func (s *System) blocked() bool {
	for _, dir := range s.rfkill() {
		for _, name := range []string{"hard", "soft"} {
			if b, err := readLimited(filepath.Join(dir, name), 64); err == nil && trim(b) == "1" {
				return true
			}
		}
	}
	return false
}

// rejoin has the radio know another network than at the start. iwd reads the
// country at its own start alone.
func (s *System) rejoin(ctx context.Context, settings preseed.Settings) error {
	var errs []error
	for _, pattern := range []string{"*.psk", "*.open"} {
		old, _ := filepath.Glob(s.path(render.IwdDir, pattern)) // the pattern is fine
		for _, path := range old {
			errs = append(errs, os.Remove(path))
		}
	}
	for _, f := range render.Wifi(settings) {
		errs = append(errs, s.tree().Replace(f))
	}
	errs = append(errs, s.radio(settings), s.run(ctx, "systemctl", "restart", "iwd.service"))
	return errors.Join(errs...)
}
