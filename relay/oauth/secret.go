package oauth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Sizes in bytes. 256 random bits make a token, 160 a claim key (the relay's
// API says so), 128 an id that must not collide.
const (
	ownerSize   = 8
	idSize      = 16
	secretSize  = 32
	lineageSize = 16
	claimSize   = 20
	setupSize   = 20
)

// Prefixes say what a secret is, to people and to scanners that look for leaked
// ones.
const (
	prefixAccess  = "fh_at_" // a device's access token
	prefixRefresh = "fh_rt_" // a device's refresh token
	prefixDevice  = "fh_dc_" // a device code
	prefixCode    = "fh_ac_" // an authorisation code
	prefixClaim   = "fh_ck_" // a claim key
	prefixLogin   = "fh_lg_" // an operator's login
	prefixToken   = "fh_op_" // an operator's token
	prefixPage    = "fh_pg_" // a browser's login
	prefixSetup   = "fh_su_" // a setup token
	prefixClient  = "fh_cl_" // a registered client's id, which is no secret
	prefixInner   = "fh_in_" // an agent's, within the relay alone
)

// secretHash is how a secret is kept: lower-case hex SHA-256 of its text.
type secretHash string

func hashSecret(text string) secretHash {
	sum := sha256.Sum256([]byte(text))
	return secretHash(hex.EncodeToString(sum[:]))
}

// matches compares in constant time; an empty hash matches nothing.
func (h secretHash) matches(text string) bool {
	return h != "" && subtle.ConstantTimeCompare([]byte(h), []byte(hashSecret(text))) == 1
}

// ref is what a secret says openly about itself: where its record is.
type ref struct {
	owner string // hex; empty for secrets that belong to no owner yet
	id    string // hex
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand)
	return b
}

func newID() string    { return hex.EncodeToString(randomBytes(idSize)) }
func newOwner() string { return hex.EncodeToString(randomBytes(ownerSize)) }

// mint makes the text of a secret whose record is r.
func mint(prefix string, r ref, size int) string {
	return join(prefix, unhex(r.owner), unhex(r.id), randomBytes(size))
}

func join(prefix string, parts ...[]byte) string {
	return prefix + base64.RawURLEncoding.EncodeToString(bytes.Join(parts, nil))
}

// parse finds the record of a secret made by mint with the same sizes; false if
// the text isn't one. It says nothing about its being valid.
func parse(text, prefix string, ownerLen, secretLen int) (ref, bool) {
	raw, ok := decode(text, prefix, ownerLen+idSize+secretLen)
	if !ok {
		return ref{}, false
	}
	return ref{hex.EncodeToString(raw[:ownerLen]), hex.EncodeToString(raw[ownerLen : ownerLen+idSize])}, true
}

// decode accepts exactly one text for one secret: no padding, no line ends, no
// stray bits at the end.
func decode(text, prefix string, size int) ([]byte, bool) {
	body, ok := strings.CutPrefix(text, prefix)
	if !ok || len(body) != base64.RawURLEncoding.EncodedLen(size) || strings.ContainsAny(body, "\r\n") {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || len(raw) != size {
		return nil, false
	}
	return raw, true
}

// refresh is the open content of a refresh token.
type refresh struct {
	ref
	lineage    []byte // shared by all refresh tokens of a family, unknown to anybody else
	generation uint32
}

const refreshSize = ownerSize + idSize + lineageSize + 4 + secretSize

func mintRefresh(r refresh) string {
	gen := binary.BigEndian.AppendUint32(nil, r.generation)
	return join(prefixRefresh, unhex(r.owner), unhex(r.id), r.lineage, gen, randomBytes(secretSize))
}

func parseRefresh(text string) (refresh, bool) {
	raw, ok := decode(text, prefixRefresh, refreshSize)
	if !ok {
		return refresh{}, false
	}
	take := func(n int) []byte {
		part := raw[:n]
		raw = raw[n:]
		return part
	}
	return refresh{
		ref:        ref{hex.EncodeToString(take(ownerSize)), hex.EncodeToString(take(idSize))},
		lineage:    take(lineageSize),
		generation: binary.BigEndian.Uint32(take(4)),
	}, true
}

// unhex is for ids of ours, which are hex by construction.
func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic("oauth: an id of the relay isn't hex: " + s)
	}
	return b
}

// keyed is an HMAC-SHA256 under the relay's own secret over labelled parts.
func keyed(key []byte, label string, parts ...string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		m.Write(n[:])
		m.Write([]byte(p))
	}
	return m.Sum(nil)
}
