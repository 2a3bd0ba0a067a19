package device

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"farhand/wire"
)

// Clean is wire.Clean for what a device reports about itself: cut at the first
// NUL, since some instruments pad with them, and at wire.MaxDeviceString
// characters.
func Clean(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return wire.Clean(s, wire.MaxDeviceString)
}

// maxIDPart bounds what one string of a device adds to an id. Real serial
// numbers have up to 32 characters (udev cuts nothing, but USB descriptors end
// at 126).
const maxIDPart = 64

// IDPart makes a cleaned string fit to stand in an id: letters, digits, ".",
// "_" and "-" stay, every other byte becomes %XX. What would be longer than 64
// characters ends in a hash of the whole instead.
func IDPart(s string) string {
	s = Clean(s)
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	part := b.String()
	if len(part) <= maxIDPart {
		return part
	}
	sum := sha256.Sum256([]byte(s))
	return part[:maxIDPart-17] + "-" + hex.EncodeToString(sum[:8])
}

// UsableSerial says whether a serial number tells one device from another:
// not empty, not one character over and over (00000000, FFFF), and none of the
// values that makers leave in every unit.
func UsableSerial(s string) bool {
	s = strings.ToLower(Clean(s))
	if s == "" || !utf8.ValidString(s) {
		return false
	}
	if strings.Trim(s, s[:1]) == "" {
		return false
	}
	return !slices.Contains(dummySerials(), s)
}

// dummySerials are serial numbers that say nothing, in lower case: defaults of
// bridge chips (CP210x leave the factory with 0001), of example firmware, of
// counterfeit FTDI parts (a50285bi), and what vendors write into the field.
func dummySerials() []string {
	return []string{
		"0001", "00000001", "000000000001", "1234", "12345", "123456", "1234567", "12345678", "123456789",
		"0123456789", "1234567890", "0123456789ab", "0123456789abcdef", "123456789abc", "123456789abcdef",
		"abcdef", "abcdefgh", "deadbeef", "a50285bi", "default", "none", "n/a", "na", "null", "unknown", "serial",
		"serialnumber", "serial number", "sn", "s/n", "to be filled by o.e.m.", "not specified", "test", "demo",
	}
}
