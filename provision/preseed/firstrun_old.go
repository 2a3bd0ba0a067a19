package preseed

import (
	"encoding/hex"
	"strings"

	"farhand/internal/lazyregexp"
)

var (
	chpasswd  = lazyregexp.New(`^echo\s+"\$FIRSTUSER:"?'?(\$[^'"|]+)['"]?\s*\|\s*chpasswd -e$`)
	zoneFile  = lazyregexp.New(`^echo\s+"?([A-Za-z0-9_+/-]+)"?\s*>\s*/etc/timezone$`)
	nameFile  = lazyregexp.New(`^echo\s+"?([A-Za-z0-9-]+)"?\s*>\s*/etc/hostname$`)
	keyboard  = lazyregexp.New(`^XKBLAYOUT="?([a-z][a-z0-9_-]*)"?$`)
	netSSID   = lazyregexp.New(`^ssid=(?:"(.*)"|([0-9A-Fa-f]+))$`)
	netPSK    = lazyregexp.New(`^psk="?(.*?)"?$`)
	netCode   = lazyregexp.New(`^country=(\w+)$`)
	renaming  = lazyregexp.New(`^usermod\s+-l\s+"([a-z_][a-z0-9_-]*)"`)
	enableSSH = lazyregexp.New(`^systemctl\s+enable\s+ssh$`)
)

// oldCommand takes a line of the parts for systems without the helpers.
func (f *firstrun) oldCommand(w []string, line string) {
	line = strings.TrimSpace(line)
	if m := chpasswd.FindStringSubmatch(line); m != nil {
		f.old.hash = m[1]
	}
	if m := zoneFile.FindStringSubmatch(line); m != nil {
		f.old.timezone = m[1]
	}
	if m := nameFile.FindStringSubmatch(line); m != nil {
		f.old.hostname = m[1]
	}
	if m := renaming.FindStringSubmatch(line); m != nil {
		f.old.user = m[1]
	}
	if enableSSH.MatchString(line) {
		f.old.ssh = true
	}
	if len(w) > 1 && w[0] == "echo" && w[1] == "PasswordAuthentication no" {
		f.old.passwordOff = true
	}
}

// document takes the text of a file that the script writes.
func (f *firstrun) document(command string, lines []string) {
	switch {
	case strings.Contains(command, "wpa_supplicant.conf"):
		for _, line := range lines {
			f.supplicant(strings.TrimSpace(line))
		}
	case strings.Contains(command, "/etc/default/keyboard"):
		for _, line := range lines {
			if m := keyboard.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				f.old.keymap = m[1]
			}
		}
	default:
		f.report.add("file", Ignored, "it would write a file of its own")
	}
}

func (f *firstrun) supplicant(line string) {
	if m := netSSID.FindStringSubmatch(line); m != nil {
		f.old.ssid = []byte(m[1])
		if m[2] != "" {
			f.old.ssid, _ = hex.DecodeString(m[2]) // odd: no name, and refused as such
		}
	}
	if m := netPSK.FindStringSubmatch(line); m != nil {
		f.old.psk = m[1]
	}
	if m := netCode.FindStringSubmatch(line); m != nil {
		f.old.country = m[1]
	}
	if line == "scan_ssid=1" {
		f.old.hidden = true
	}
}

// older applies what only the old commands said: a script of Imager 1.6 has no
// others.
func (f *firstrun) older() {
	o := f.old
	if o.hostname != "" {
		f.helperOnce("hostname", "set_hostname", o.hostname)
	}
	if o.timezone != "" {
		f.helperOnce("timezone", "set_timezone", o.timezone)
	}
	if o.keymap != "" {
		f.helperOnce("keymap", "set_keymap", o.keymap)
	}
	if o.hash != "" {
		if o.user == "" {
			o.user = "pi" // the account that it doesn't rename
		}
		f.account(o.user, o.hash)
	}
	if o.ssid != nil && f.once("wlan") {
		f.network(Wifi{Hidden: o.hidden}, o.ssid, o.psk, o.country)
	}
	if o.ssh && f.once("ssh") {
		f.settings.SSH.Enabled, f.settings.SSH.PasswordLogin = true, !o.passwordOff
		note := ""
		if o.passwordOff {
			note = "its keys aren't read from this form; write it with a current Imager"
		}
		f.apply("ssh", note, nil)
	}
}

func (f *firstrun) helperOnce(item, verb, arg string) {
	if !f.seen[item] {
		f.helper(verb, []string{arg})
	}
}
