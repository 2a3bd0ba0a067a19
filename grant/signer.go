package grant

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"farhand/wire"
)

// keyMark derives the signing key from the audit key; version is the format.
// Both are those of the Python shim, whose grants stay valid with its key.
const (
	keyMark = "autogpt-root-grant-v1"
	version = "v1"
)

// Claims is what a grant says.
type Claims struct {
	AllowedRoot string  `json:"allowed_root"`
	Fingerprint string  `json:"fingerprint"`
	IssuedAt    float64 `json:"issued_at"` // seconds since the epoch; for people, never checked
	MachineID   string  `json:"machine_id"`
	Revision    int     `json:"revision"`
	SessionID   string  `json:"session_id"`
}

// Signer signs and verifies grants. It is safe for concurrent use.
type Signer struct{ key []byte }

// NewSigner derives the signing key from the audit key.
func NewSigner(auditKey []byte) *Signer {
	return &Signer{mac(auditKey, keyMark)}
}

func mac(key []byte, msg string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(msg))
	return m.Sum(nil)
}

// Sign is the grant for c: "v1.", the claims and their HMAC-SHA256, both in
// base64url without padding.
func (s *Signer) Sign(c Claims) string {
	body := base64.RawURLEncoding.EncodeToString(c.json())
	return version + "." + body + "." + s.seal(body)
}

func (s *Signer) seal(body string) string {
	return base64.RawURLEncoding.EncodeToString(mac(s.key, body))
}

var fingerprintForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Verify checks signature and form and returns what the grant says. Anything
// else than a grant of this key is ROOT_GRANT_INVALID. Whether the claims hold
// (session, machine, directory, revision) is for the caller to see.
func (s *Signer) Verify(grant string) (Claims, error) {
	var c Claims
	if len(grant) > wire.MaxGrant {
		return c, invalid("it is too long")
	}
	v, rest, _ := strings.Cut(grant, ".")
	body, seal, ok := strings.Cut(rest, ".")
	if !ok || v != version {
		return c, invalid("it has not the form of one")
	}
	if !hmac.Equal([]byte(seal), []byte(s.seal(body))) {
		return c, invalid("it was not signed here")
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return c, invalid("it has not the form of one")
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return Claims{}, invalid("its claims can't be read")
	}
	if c.Revision < 1 || c.SessionID == "" || c.AllowedRoot == "" || !fingerprintForm.MatchString(c.Fingerprint) {
		return Claims{}, invalid("its claims are not complete")
	}
	return c, nil
}

func invalid(why string) *wire.Error {
	return wire.Errorf(wire.RootGrantInvalid, "the root grant is not valid: %s", why)
}

// json is the claims with sorted keys, no spaces and all but ASCII escaped.
func (c Claims) json() []byte {
	b := append([]byte(`{"allowed_root":`), asciiJSON(c.AllowedRoot)...)
	b = append(b, `,"fingerprint":`...)
	b = append(b, asciiJSON(c.Fingerprint)...)
	b = append(b, `,"issued_at":`...)
	b = strconv.AppendFloat(b, c.IssuedAt, 'f', -1, 64)
	if c.IssuedAt == float64(int64(c.IssuedAt)) {
		b = append(b, ".0"...) // as Python prints a whole float
	}
	b = append(b, `,"machine_id":`...)
	b = append(b, asciiJSON(c.MachineID)...)
	b = fmt.Appendf(b, `,"revision":%d,"session_id":%s}`, c.Revision, asciiJSON(c.SessionID))
	return b
}

// asciiJSON is s as a JSON string in which everything outside printable ASCII is
// escaped, and of that only the quote and the backslash: the form of Python's
// encoder, on which the fingerprint depends.
func asciiJSON(s string) string {
	b := []byte{'"'}
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			r = 0xDC00 + rune(s[i]) // as Python decodes a broken file name
		}
		i += size
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			if k := strings.IndexRune("\b\f\n\r\t", r); k >= 0 {
				b = append(b, '\\', "bfnrt"[k])
			} else {
				b = fmt.Appendf(b, `\u%04x`, r)
			}
		}
	}
	return string(append(b, '"'))
}
