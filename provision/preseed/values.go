package preseed

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"farhand/internal/lazyregexp"
)

// Each check returns the value as it will be used and, if that isn't the letter
// of what was asked for, a note.

var label = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// hostname checks a host name of one label (RFC 1123, section 2.1).
func hostname(s string) (name, note string, err error) {
	name = strings.ToLower(strings.TrimSpace(s))
	name = strings.TrimSuffix(name, ".local")
	if !label.MatchString(name) {
		return "", "", errors.New("a host name has 1 to 63 letters, digits and hyphens, no hyphen first or last, and no dot")
	}
	if name == "localhost" {
		return "", "", errors.New("localhost is every machine's name")
	}
	if name != s {
		note = "in lower case, without .local"
	}
	return name, note, nil
}

var userName = lazyregexp.New(`^[a-z_][a-z0-9_-]{0,30}$`)

// reserved are users and groups of the image that must stay what they are.
func reserved(name string) bool {
	switch name {
	case "root", "farhand", "operator", "work", "nobody", "nogroup", "sudo", "adm", "daemon", "bin", "sys", "users":
		return true
	}
	return strings.HasPrefix(name, "systemd-")
}

// user checks the name of a person's account (systemd's USER_NAMES, the strict
// form).
func user(s string) (string, error) {
	if !userName.MatchString(s) {
		return "", errors.New("a user's name has 1 to 31 lower-case letters, digits, '_' and '-', a letter or '_' first")
	}
	if reserved(s) {
		return "", errors.New("the system has a user or group of this name; take another")
	}
	return s, nil
}

// crypted are the forms of crypt(5) that the image's libcrypt checks. DES isn't
// among them.
var crypted = lazyregexp.New(`^\$(1|5|6|7|y|gy|2[abxy])\$[./0-9A-Za-z$=,*-]{8,384}$`)

func group(s string) (string, error) {
	if !userName.MatchString(s) {
		return "", errors.New("not the name of a group")
	}
	switch s {
	case "farhand", "operator", "root", "shadow", "disk", "kmem":
		return "", errors.New("this group's rights are the system's own")
	}
	return s, nil
}

// keyTypes are the public keys that OpenSSH still takes.
func keyType(s string) bool {
	switch s {
	case "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
		"sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com":
		return true
	}
	return false
}

// authorizedKey checks a line of authorized_keys (sshd(8)): options, a type, the
// key in base64, whose first field is its type again, and a comment.
func authorizedKey(s string) (line, note string, err error) {
	line = strings.TrimSpace(unwrap(s))
	if line != s {
		note = "without line ends"
	}
	if len(line) > 16<<10 || !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
		return "", "", errors.New("not a line of authorized_keys")
	}
	fields := strings.Fields(line)
	for i := 0; i+1 < len(fields); i++ {
		if keyType(fields[i]) {
			if !isKeyBlob(fields[i], fields[i+1]) {
				return "", "", errors.New("the key is cut off or damaged")
			}
			return line, note, nil
		}
	}
	return "", "", errors.New("not a public key: it begins with ssh-ed25519, ssh-rsa or the like")
}

// isKeyBlob says whether text is a key of that type (RFC 4253, section 6.6).
func isKeyBlob(typ, text string) bool {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) < 4 {
		return false
	}
	n := binary.BigEndian.Uint32(b)
	return uint64(len(b)) > 4+uint64(n) && string(b[4:4+n]) == typ
}

// ssid checks a network's name: any 1 to 32 bytes (IEEE 802.11, 9.4.2.2).
func ssid(b []byte) ([]byte, error) {
	if len(b) == 0 || len(b) > 32 {
		return nil, errors.New("a network's name has 1 to 32 bytes")
	}
	return b, nil
}

var rawKey = lazyregexp.New(`^[0-9A-Fa-f]{64}$`)

// wifiSecret tells a raw key from a passphrase: exactly 64 hex digits are a key
// (IEEE 802.11, J.4.1, whose passphrases end at 63 characters). A passphrase
// with characters beyond ASCII is turned into the key, since the supplicant
// takes ASCII alone.
func wifiSecret(s string, name []byte) (passphrase, psk, note string, err error) {
	clean := unwrap(s)
	if clean != s {
		note = joinedNote
	}
	switch {
	case rawKey.MatchString(clean):
		return "", strings.ToLower(clean), note, nil
	case len(clean) < 8 || len(clean) > 63:
		return "", "", "", errors.New("a Wi-Fi password has 8 to 63 characters, or is a key of 64 hex digits")
	case strings.ContainsFunc(clean, unicode.IsControl):
		return "", "", "", errors.New("a Wi-Fi password has no control characters")
	case strings.ContainsFunc(clean, func(r rune) bool { return r > unicode.MaxASCII }):
		psk, err := deriveKey(clean, name)
		return "", psk, "WPA2 only, since the password goes beyond ASCII", err
	}
	return clean, "", note, nil
}

var countryCode = lazyregexp.New(`^[A-Z]{2}$`)

// countries are the codes of ISO 3166-1 alpha-2, and Kosovo's.
const countries = " AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ" +
	" CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR" +
	" GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP" +
	" KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ" +
	" NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW" +
	" SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ" +
	" UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW "

func isCountry(code string) bool { return strings.Contains(countries, " "+code+" ") }

// country checks an ISO 3166-1 alpha-2 code. One that no country has is kept: the
// radio may send then what is allowed everywhere, and a machine that is far from
// its owner is reached.
func country(s string) (code, note string, err error) {
	code = strings.ToUpper(strings.TrimSpace(s))
	if !countryCode.MatchString(code) {
		return "", "", errors.New("a country is two letters, as DE or GB")
	}
	switch {
	case code == "UK":
		return "GB", "the United Kingdom's code is GB", nil
	case code == "EL":
		return "GR", "the code of Greece is GR", nil
	case !isCountry(code):
		note = "no country has this code: the radio keeps to what is allowed everywhere, 2.4 GHz up to channel 11"
	case code != s:
		note = "in upper case"
	}
	return code, note, nil
}

var keymapName = lazyregexp.New(`^[a-z][a-z0-9_-]{0,31}$`)

func keymap(s string) (string, error) {
	if !keymapName.MatchString(s) {
		return "", errors.New("not the name of a keyboard layout, as de or us")
	}
	return s, nil
}

var zoneName = lazyregexp.New(`^[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}$`)

func timezone(s string) (string, error) {
	if !zoneName.MatchString(s) {
		return "", errors.New("not the name of a time zone, as Europe/Berlin")
	}
	return s, nil
}

// SSIDText is a network's name for people: as it is if it is printable UTF-8,
// else in hex. A text that ParseSSID would take for hex is in hex, too.
func SSIDText(b []byte) string {
	s := string(b)
	if s == strings.ToValidUTF8(s, "") && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		if _, isHex := hexSSID(s); !isHex {
			return s
		}
	}
	return fmt.Sprintf("0x%s", hex.EncodeToString(b))
}

// ParseSSID reads what SSIDText writes, and any other text.
func ParseSSID(text string) ([]byte, error) {
	if b, ok := hexSSID(text); ok {
		return ssid(b)
	}
	return ssid([]byte(text))
}

func hexSSID(text string) ([]byte, bool) {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok {
		return nil, false
	}
	b, err := hex.DecodeString(digits)
	return b, err == nil && len(b) > 0 // 0x alone is a name like any other
}
