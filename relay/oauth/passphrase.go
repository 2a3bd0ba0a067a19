package oauth

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// Limits of a passphrase. The upper one keeps a login from costing more than
// its hash.
const (
	minPassphrase = 12   // characters
	maxPassphrase = 1024 // bytes
)

// Argon2 is what hashing one passphrase costs.
type Argon2 struct {
	Time    uint32 // passes
	Memory  uint32 // KiB
	Threads uint8
}

// defaultArgon2 is the second recommended option of RFC 9106, section 4:
// Argon2id with 3 passes over 64 MiB in 4 lanes, for hosts without gigabytes to
// spare. Salt and tag have the lengths given there, 16 and 32 bytes.
var defaultArgon2 = Argon2{Time: 3, Memory: 64 << 10, Threads: 4}

const (
	saltSize = 16
	tagSize  = 32
	// atOnce hashes run together: 128 MiB at most, on any host.
	atOnce = 2
	// maxWaiting logins wait for their turn; more are sent away.
	maxWaiting = 16
)

var (
	errBusy       = errors.New("too many logins at once")
	errPassphrase = fmt.Errorf("a passphrase has at least %d characters and at most %d bytes", minPassphrase, maxPassphrase)
)

// hasher hashes passphrases, a few at a time.
type hasher struct {
	cost    Argon2
	turns   chan struct{}
	waiting chan struct{}
}

func newHasher(cost Argon2) *hasher {
	if cost == (Argon2{}) {
		cost = defaultArgon2
	}
	return &hasher{cost: cost, turns: make(chan struct{}, atOnce), waiting: make(chan struct{}, maxWaiting)}
}

func checkPassphrase(p string) error {
	if utf8.RuneCountInString(p) < minPassphrase || len(p) > maxPassphrase || !utf8.ValidString(p) {
		return errPassphrase
	}
	return nil
}

// hash makes the text that is kept, in the PHC string format.
func (h *hasher) hash(ctx context.Context, passphrase string) (string, error) {
	salt := randomBytes(saltSize)
	tag, err := h.derive(ctx, passphrase, salt, h.cost)
	if err != nil {
		return "", err
	}
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.cost.Memory, h.cost.Time, h.cost.Threads,
		enc.EncodeToString(salt), enc.EncodeToString(tag)), nil
}

// verify says whether the passphrase is the one of kept. An empty kept (an
// account that doesn't exist) costs the same and is never right.
func (h *hasher) verify(ctx context.Context, passphrase, kept string) (bool, error) {
	cost, salt, want := h.cost, make([]byte, saltSize), make([]byte, tagSize)
	if kept != "" {
		var err error
		if cost, salt, want, err = parseHash(kept); err != nil {
			return false, err
		}
	}
	got, err := h.derive(ctx, passphrase, salt, cost)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(got, want) == 1 && kept != "", nil
}

func (h *hasher) derive(ctx context.Context, passphrase string, salt []byte, cost Argon2) ([]byte, error) {
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return nil, errBusy
	}
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return argon2.IDKey([]byte(passphrase), salt, cost.Time, cost.Memory, cost.Threads, tagSize), nil
}

func parseHash(kept string) (cost Argon2, salt, tag []byte, err error) {
	bad := func() (Argon2, []byte, []byte, error) {
		return Argon2{}, nil, nil, errors.New("a passphrase hash in the store can't be read")
	}
	parts := strings.Split(kept, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return bad()
	}
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &cost.Memory, &cost.Time, &cost.Threads); err != nil || n != 3 ||
		cost.Memory == 0 || cost.Memory > 1<<20 || cost.Time == 0 || cost.Time > 64 || cost.Threads == 0 {
		return bad()
	}
	enc := base64.RawStdEncoding.Strict()
	if salt, err = enc.DecodeString(parts[4]); err != nil || len(salt) < 8 {
		return bad()
	}
	if tag, err = enc.DecodeString(parts[5]); err != nil || len(tag) != tagSize {
		return bad()
	}
	return cost, salt, tag, nil
}
