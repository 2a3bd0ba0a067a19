package preseed

import (
	"errors"
	"slices"
	"strings"

	"farhand/internal/lazyregexp"
)

// parseFirstrun reads what Raspberry Pi Imager 1 does to an image that it takes
// for Raspberry Pi OS: a script, and kernel arguments that run it. The script is
// never run; the commands that a stock Imager writes are recognised, and what
// else it would do is told.
func parseFirstrun(s *Settings, script, cmdline []byte) []Item {
	r := report{file: FirstrunFile}
	if c := regulatoryDomain.FindSubmatch(cmdline); c != nil {
		code, _, err := country(string(c[1]))
		if err == nil {
			s.Country = code
		}
		r.outcome("country of cmdline.txt", "", err)
	}
	if script == nil {
		return r.items
	}
	content, err := plain(script)
	if err != nil {
		r.add("", Refused, err.Error())
		return r.items
	}
	f := firstrun{settings: s, report: &r, seen: make(map[string]bool)}
	f.read(strings.Split(content, "\n"))
	f.older()
	if len(r.items) == 0 {
		r.add("", Ignored, "nothing in it that Raspberry Pi Imager writes")
	}
	return r.items
}

// regulatoryDomain is the kernel argument that carries a country.
var regulatoryDomain = lazyregexp.New(`(?:^|\s)cfg80211\.ieee80211_regdom=(\w{1,8})(?:\s|$)`)

// firstrun reads a script.
type firstrun struct {
	settings *Settings
	report   *report
	seen     map[string]bool // what a command of the current Imagers said

	old firstrunOld
}

// firstrunOld is what the commands for systems without Raspberry Pi's helpers
// say, with which every setting is repeated.
type firstrunOld struct {
	hostname, hash, user, keymap, timezone string
	ssh, passwordOff                       bool
	ssid                                   []byte
	psk, country                           string
	hidden                                 bool
}

func (f *firstrun) once(item string) bool {
	first := !f.seen[item]
	f.seen[item] = true
	return first
}

func (f *firstrun) apply(item, note string, err error) {
	f.report.outcome(item, note, err)
}

const (
	maxLines = 2000
	maxLine  = 32 << 10
)

func (f *firstrun) read(lines []string) {
	for i := 0; i < len(lines) && i < maxLines; i++ {
		line := lines[i]
		if len(line) > maxLine {
			continue
		}
		if end, ok := heredoc(line); ok {
			stop := slices.Index(lines[i+1:], end)
			if stop < 0 {
				stop = len(lines) - i - 1
			}
			f.document(line, lines[i+1:i+1+stop])
			i += stop
			continue
		}
		f.command(words(line), line)
	}
}

var heredocStart = lazyregexp.New(`^<<-?\s*'?"?([A-Za-z_]{1,32})`)

// heredoc is the line that ends the text which this one begins. What stands in
// quotes begins none: it may be a password with << in it.
func heredoc(line string) (end string, ok bool) {
	at := redirection(line)
	m := heredocStart.FindStringSubmatch(line[at:])
	if m == nil {
		return "", false
	}
	return m[1], true
}

// command takes a line that a stock script may hold.
func (f *firstrun) command(w []string, line string) {
	if len(w) >= 2 && strings.HasSuffix(w[0], "/imager_custom") {
		f.helper(w[1], w[2:])
		return
	}
	if len(w) == 3 && strings.HasSuffix(w[0], "/userconf") {
		f.account(w[1], w[2])
		return
	}
	f.oldCommand(w, line)
}

// helper is a call of Raspberry Pi OS's helper.
func (f *firstrun) helper(verb string, args []string) {
	switch verb {
	case "set_hostname":
		if len(args) == 1 && f.once("hostname") {
			name, note, err := hostname(args[0])
			if err == nil {
				f.settings.Hostname = name
			}
			f.apply("hostname", note, err)
		}
	case "enable_ssh":
		if f.once("ssh") {
			f.enableSSH(args)
		}
	case "set_wlan":
		f.wlan(args)
	case "set_keymap":
		if len(args) == 1 && f.once("keymap") {
			k, err := keymap(args[0])
			f.settings.Keymap = k
			f.apply("keymap", "kept, but nobody logs in at a keyboard", err)
		}
	case "set_timezone":
		if len(args) == 1 && f.once("timezone") {
			z, err := timezone(args[0])
			f.settings.Timezone = z
			f.apply("timezone", "", err)
		}
	default:
		f.report.add(verbName(verb), Ignored, "this image knows no such setting")
	}
}

var verbForm = lazyregexp.New(`^[a-z_]{1,32}$`)

// verbName keeps whatever stands in the place of a verb out of the report.
func verbName(verb string) string {
	if verbForm.MatchString(verb) {
		return verb
	}
	return "command"
}

// enableSSH has -k and the keys, or nothing: then one logs in by password.
func (f *firstrun) enableSSH(args []string) {
	f.settings.SSH.Enabled = true
	if len(args) == 0 || args[0] != "-k" {
		f.settings.SSH.PasswordLogin = true
		f.apply("ssh", "", nil)
		return
	}
	p := imager{settings: f.settings}
	var lines []string
	for _, a := range args[1:] { // several keys may stand in one argument
		for line := range strings.Lines(a) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	note, err := p.keys(value{kind: aList, list: lines})
	f.apply("ssh", note, err)
}

func (f *firstrun) account(name, hash string) {
	if !f.once("user") {
		return
	}
	name, err := user(name)
	if err == nil && !crypted.MatchString(hash) {
		err = errors.New("the password isn't a hash of crypt(5) that this system checks")
	}
	if err == nil {
		f.settings.User = &User{Name: name, PasswordHash: hash, Groups: []string{"sudo"}}
	}
	f.apply("user", "", err)
}

// wlan has [-h] SSID [PSK] [COUNTRY].
func (f *firstrun) wlan(args []string) {
	w := Wifi{}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && len(args[0]) == 2 {
		w.Hidden = w.Hidden || args[0] == "-h"
		args = args[1:]
	}
	if len(args) == 0 || !f.once("wlan") {
		return
	}
	var psk, code string
	if len(args) > 1 {
		psk = args[1]
	}
	if len(args) > 2 {
		code = args[2]
	}
	f.network(w, []byte(args[0]), psk, code)
}

func (f *firstrun) network(w Wifi, name []byte, psk, code string) {
	if code != "" {
		c, note, err := country(code)
		if err == nil {
			f.settings.Country = c
		}
		f.apply("wlan country", note, err)
	}
	var note string
	var err error
	if w.SSID, err = ssid(name); err == nil && psk != "" {
		w.Passphrase, w.PSK, note, err = wifiSecret(psk, name)
	}
	if err == nil {
		f.settings.Wifi = &w
	}
	f.apply("wlan", note, err)
}
