package preseed

import (
	"errors"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"farhand/forward"
	"farhand/internal/lazyregexp"
	"farhand/internal/pathglob"
	"farhand/provision/hardware"
	"farhand/wire"
)

// parseFarhand reads farhand.toml.
func parseFarhand(s *Settings, b []byte) []Item {
	r := report{file: FarhandFile}
	content, err := plain(b)
	if err != nil {
		r.add("", Refused, err.Error())
		s.Farhand.closeIfMeant(&r, string(b), nil)
		return r.items
	}
	table := farhandTable(&s.Farhand)
	apply(&r, read(content), table, func(key string) {
		r.add(key, Refused, "no such key"+nearest(key, table))
	})
	f := &s.Farhand
	if f.Capabilities != nil && slices.Contains(f.Capabilities, string(wire.Shell)) && !f.Shell {
		r.add("capabilities", Changed, "commands stay off: they need shell = true, too")
	}
	if len(f.ForwardAllow) > 0 && f.Capabilities != nil && !slices.Contains(f.Capabilities, string(wire.Forward)) {
		r.add("forward.allow", Changed, "nothing is forwarded: capabilities have no forward")
	}
	if slices.Contains(f.Capabilities, string(wire.LLMManage)) && !slices.Contains(f.Capabilities, string(wire.LocalLLM)) {
		r.add("capabilities", Changed, "models can't be managed: llm_manage needs local_llm, too")
	}
	f.closeIfMeant(&r, content, table)
	return r.items
}

// allFiles is the entry that makes all files private.
const allFiles = "/**"

// closeIfMeant makes everything private if the card's owner wanted something to be,
// and not all of that was understood.
func (f *Farhand) closeIfMeant(r *report, content string, table map[string]setter) {
	if !strings.Contains(strings.ToLower(content), "privacy") {
		return
	}
	meant := len(r.items) == maxItems
	for _, i := range r.items {
		key := strings.TrimPrefix(strings.TrimPrefix(i.Item, r.file), " ")
		_, known := table[key]
		meant = meant || i.Outcome == Refused && (!known || strings.HasPrefix(key, "privacy."))
	}
	if meant {
		f.Private = []string{allFiles}
		r.add("privacy", Changed, "everything is private, until what the card says about privacy can be understood")
	}
}

// setPrivate takes all entries, or none: one that is left out would be open.
func (f *Farhand) setPrivate(v value) (note string, err error) {
	for _, entry := range v.list {
		path, options, _ := strings.Cut(entry, ";")
		if _, err := pathglob.Parse(path, ""); err != nil {
			return "", errors.New("an entry is an absolute path with *, ?, [...] or **, and ;schema=named or ;names=shown behind it")
		}
		for option := range strings.SplitSeq(options, ";") {
			if option != "" && option != "schema=named" && option != "names=shown" {
				return "", errors.New("behind an entry may stand ;schema=named and ;names=shown")
			}
		}
	}
	if len(v.list) > maxTargets {
		return "", errors.New("there may be 64 entries")
	}
	f.Private = v.list
	return "", nil
}

func (f *Farhand) setAnswerChars(v value) (note string, err error) {
	n, err := strconv.Atoi(v.text)
	if err != nil || n < 1 || n > 65536 {
		return "", errors.New("must lie between 1 and 65536")
	}
	f.AnswerChars = n
	return "", nil
}

func farhandTable(f *Farhand) map[string]setter {
	t := map[string]setter{
		"relay":                  noted(&f.Relay, relay),
		"ca_sha256":              stored(&f.CASHA256, fingerprint),
		"claim_key":              noted(&f.ClaimKey, claimKey),
		"name":                   stored(&f.Name, name),
		"roots":                  {aList, f.setRoots},
		"capabilities":           {aList, f.setCapabilities},
		"shell":                  flag(func(b bool) { f.Shell = b }),
		"forward.allow":          {aList, f.setForwardAllow},
		"privacy.private":        {aList, f.setPrivate},
		"privacy.answer_chars":   {aNumber, f.setAnswerChars},
		"privacy.release":        flag(func(b bool) { f.Release = b }),
		"sudo.operator":          flag(func(b bool) { f.OperatorSudo = b }),
		"wifi.rescue":            flag(func(b bool) { f.WifiRescue = b }),
		"wifi.rescue_passphrase": noted(&f.RescuePassphrase, rescuePassphrase),
	}
	for _, bus := range hardware.Buses() {
		t["buses."+bus.Name] = flag(func(b bool) {
			if f.Buses == nil {
				f.Buses = make(map[string]bool)
			}
			f.Buses[bus.Name] = b
		})
	}
	return t
}

// nearest names a key that only differs in its table or in case.
func nearest(key string, table map[string]setter) string {
	last := key[strings.LastIndexByte(key, '.')+1:]
	for _, known := range slices.Sorted(func(yield func(string) bool) {
		for k := range table {
			if !yield(k) {
				return
			}
		}
	}) {
		if strings.EqualFold(known, key) || strings.EqualFold(known[strings.LastIndexByte(known, '.')+1:], last) {
			return "; did you mean " + known + "?"
		}
	}
	return ""
}

var addressForm = lazyregexp.New(`^[!-~]{1,512}$`)

// relay checks a relay's base URL. Plain http is for loopback alone, and no
// relay runs on the appliance itself.
func relay(s string) (clean, note string, err error) {
	clean = strings.TrimRight(strings.TrimSpace(s), "/")
	if rest, ok := strings.CutPrefix(clean, "wss://"); ok {
		clean = "https://" + rest
	}
	u, err := url.Parse(clean)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !addressForm.MatchString(clean) {
		return "", "", errors.New("a relay's address is https://HOST[:PORT]")
	}
	if clean != s {
		note = "read as https, without what stands around it"
	}
	return clean, note, nil
}

var sha256Hex = lazyregexp.New(`^[0-9a-f]{64}$`)

func fingerprint(s string) (string, error) {
	clean := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), ":", ""))
	if !sha256Hex.MatchString(clean) {
		return "", errors.New("a SHA-256 has 64 hex digits")
	}
	return clean, nil
}

var claimKeyForm = lazyregexp.New(`^[!-~]{16,256}$`)

func claimKey(s string) (clean, note string, err error) {
	clean = strings.TrimSpace(unwrap(s))
	if !claimKeyForm.MatchString(clean) {
		return "", "", errors.New("not a claim key; the screen will show a code instead")
	}
	if clean != s {
		note = joinedNote
	}
	return clean, note, nil
}

func name(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > 128 || s != strings.ToValidUTF8(s, "") || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", errors.New("a name has 1 to 128 bytes and no control characters")
	}
	return s, nil
}

// systemDirs hold what files can never reach; the daemon refuses to start with a
// root in one of them.
func systemDir(dir string) bool {
	for _, sys := range []string{"/proc", "/sys", "/dev", "/run", "/boot", "/data/farhand", "/data/system"} {
		if dir == sys || strings.HasPrefix(dir, sys+"/") {
			return true
		}
	}
	return false
}

func (f *Farhand) setRoots(v value) (note string, err error) {
	roots := []string{}
	for _, dir := range v.list {
		if !path.IsAbs(dir) || len(dir) > 1024 || !utf8.ValidString(dir) || strings.ContainsFunc(dir, unicode.IsControl) || systemDir(path.Clean(dir)) {
			note = "without those that are no absolute path or belong to the system"
			continue
		}
		roots = append(roots, path.Clean(dir))
	}
	if len(roots) == 0 && len(v.list) > 0 {
		return "", errors.New("a root is an absolute path outside of the system's own directories; /data/work stays")
	}
	f.Roots = roots
	return note, nil
}

// maxTargets bounds what may be forwarded to, in entries.
const maxTargets = 64

// setForwardAllow keeps the targets that the daemon takes, which would refuse to
// start with another.
func (f *Farhand) setForwardAllow(v value) (note string, err error) {
	f.ForwardAllow = []string{}
	for _, target := range v.list {
		target = strings.TrimSpace(target)
		if _, err := forward.ParseAllow([]string{target}); err != nil || len(f.ForwardAllow) == maxTargets {
			note = "without those that are no HOST:PORT, such as 127.0.0.1:80 or 192.168.1.0/24:8000-8010, or are too many"
			continue
		}
		f.ForwardAllow = append(f.ForwardAllow, target)
	}
	if len(f.ForwardAllow) == 0 && len(v.list) > 0 {
		f.ForwardAllow = nil
		return "", errors.New("a target is HOST:PORT, such as 127.0.0.1:80 or 192.168.1.0/24:8000-8010; nothing is forwarded")
	}
	return note, nil
}

// setCapabilities keeps the known ones. None of them left is a list all the
// same: whoever wrote a list wanted less than everything.
func (f *Farhand) setCapabilities(v value) (note string, err error) {
	f.Capabilities = []string{}
	for _, c := range v.list {
		if !slices.Contains(capabilities(), wire.Capability(c)) {
			note = "without those that this device doesn't have"
			continue
		}
		f.Capabilities = append(f.Capabilities, c)
	}
	return note, nil
}

// capabilities are those that an owner decides on.
func capabilities() []wire.Capability {
	return []wire.Capability{
		wire.DirectoryBrowse, wire.Files, wire.Shell, wire.LocalLLM, wire.LLMManage,
		wire.HardwareGPIO, wire.HardwareSerial, wire.HardwareUSB, wire.HardwareI2C, wire.HardwareSPI, wire.HardwarePrinter, wire.Observe, wire.Forward,
	}
}

// RescueLength is how many characters the rescue network's passphrase has.
const RescueLength = 12

var rescueForm = lazyregexp.New(`^[0-9A-Za-z-]{8,63}$`)

func rescuePassphrase(s string) (clean, note string, err error) {
	clean = strings.TrimSpace(unwrap(s))
	if !rescueForm.MatchString(clean) {
		return "", "", errors.New("letters, digits and hyphens, 8 to 63 of them; a new one is made")
	}
	if clean != s {
		note = joinedNote
	}
	return clean, note, nil
}
