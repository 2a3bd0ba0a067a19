package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"farhand/internal/atomicfile"
)

// Names in the state directory, and of the systemd credential.
const (
	tokensName  = "tokens.json"
	pendingName = "pairing.json"
	seedName    = "farhand-tokens"
)

const maxFile = 64 << 10 // bytes of a file that is read here

// Store keeps tokens and a pending authorisation in files that the daemon alone
// may read, each replaced as a whole. Both are bound to the platform that they
// come from: tokens of one are never sent to another. Only one process may use a
// state directory; the lock on it is the daemon's business.
type Store struct {
	dir         string
	issuer      string
	credentials string
	machine     string // empty: any
}

// NewStore keeps the tokens of the platform at issuer (Provider.Base) in dir.
// credentials is $CREDENTIALS_DIRECTORY or empty: a credential farhand-tokens in
// it is used as long as the platform hasn't given newer tokens.
func NewStore(dir, issuer, credentials string) *Store {
	return &Store{dir: dir, issuer: issuer, credentials: credentials}
}

// ForMachine binds what is stored from now on to this machine's id: a login that
// came with a cloned card is another machine's, and there is none then. What was
// stored without an id counts as this machine's. Call it before anything else.
func (s *Store) ForMachine(id string) *Store {
	s.machine = id
	return s
}

// foreign says whether what was stored for machine is none of ours.
func (s *Store) foreign(machine string) bool {
	return machine != "" && s.machine != "" && machine != s.machine
}

// tokensFile is Tokens on the disk. Without tokens it says that a login was
// dropped, so that the credential it came from isn't tried again.
type tokensFile struct {
	AccessToken  string `json:"access_token,omitempty"`
	RefreshToken string `json:"refresh_token,omitempty"`
	ExpiresAt    moment `json:"access_token_expires_at,omitempty"`
	Issuer       string `json:"issuer,omitempty"`
	MachineID    string `json:"machine_id,omitempty"`  // whose tokens they are
	Seed         string `json:"seed_sha256,omitempty"` // of the credential that was there
}

// moment is a date-time as it stands in a file, where tools also write seconds
// since the epoch.
type moment string

func (m *moment) UnmarshalJSON(b []byte) error {
	var seconds float64
	if json.Unmarshal(b, &seconds) == nil && seconds > 0 && seconds < 1<<40 {
		*m = moment(time.UnixMilli(int64(seconds * 1000)).UTC().Format(time.RFC3339Nano))
		return nil
	}
	return json.Unmarshal(b, (*string)(m))
}

// ParseTokens reads {"access_token", "refresh_token", "access_token_expires_at"};
// other keys are ignored. Its errors quote nothing.
func ParseTokens(data []byte) (Tokens, error) {
	t, _, err := parseTokens(data)
	return t, err
}

func parseTokens(data []byte) (Tokens, tokensFile, error) {
	var f tokensFile
	if err := json.Unmarshal(data, &f); err != nil {
		return Tokens{}, f, errors.New("malformed JSON")
	}
	t := Tokens{AccessToken: f.AccessToken, RefreshToken: f.RefreshToken}
	if f.ExpiresAt != "" {
		if t.Expires = parseTime(string(f.ExpiresAt)); t.Expires.IsZero() {
			return Tokens{}, f, errors.New("access_token_expires_at is no date-time")
		}
	}
	return t, f, t.check()
}

// Load is the stored login, or that of the credential. ErrLoginNeeded means
// that there is none for this platform. A file that can't be read or understood
// is another error, and is never replaced on its own.
func (s *Store) Load() (Tokens, error) {
	path := filepath.Join(s.dir, tokensName)
	data, err := atomicfile.Read(path, maxFile)
	var stored tokensFile
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return Tokens{}, err
	default:
		if err := keepPrivate(path); err != nil {
			return Tokens{}, err
		}
		var t Tokens
		t, stored, err = parseTokens(data)
		switch {
		case err != nil && stored.AccessToken == "" && json.Valid(data):
			// dropped
		case err != nil:
			return Tokens{}, fmt.Errorf("%s: %w", path, err)
		case stored.Issuer != s.issuer && stored.Issuer != "":
			// another platform's
		case s.foreign(stored.MachineID):
			// those of the board that the card was in
		default:
			return t, nil
		}
	}
	seed, hash, err := s.seed()
	if err != nil {
		return Tokens{}, err
	}
	if seed == nil || hash == stored.Seed {
		return Tokens{}, ErrLoginNeeded
	}
	t, err := ParseTokens(seed)
	if err != nil {
		return Tokens{}, fmt.Errorf("credential %s: %w", seedName, err)
	}
	return t, nil
}

// Save replaces the stored login; nil means that it is on the disk.
func (s *Store) Save(t Tokens) error {
	if err := t.check(); err != nil {
		return fmt.Errorf("save tokens: %w", err)
	}
	f := tokensFile{AccessToken: t.AccessToken, RefreshToken: t.RefreshToken}
	if !t.Expires.IsZero() {
		f.ExpiresAt = moment(t.Expires.UTC().Round(time.Millisecond).Format(time.RFC3339Nano))
	}
	return s.write(f)
}

// Drop forgets the login, also the one in the credential.
func (s *Store) Drop() error { return s.write(tokensFile{}) }

func (s *Store) write(f tokensFile) error {
	f.Issuer, f.MachineID = s.issuer, s.machine
	_, hash, err := s.seed()
	if err != nil {
		return err
	}
	f.Seed = hash
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("save tokens: %w", err)
	}
	return atomicfile.Write(filepath.Join(s.dir, tokensName), append(data, '\n'), 0o600)
}

// seed is the credential and its hash, nil if there is none.
func (s *Store) seed() ([]byte, string, error) {
	if s.credentials == "" {
		return nil, "", nil
	}
	data, err := atomicfile.Read(filepath.Join(s.credentials, seedName), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(bytes.TrimSpace(data))
	return data, hex.EncodeToString(sum[:]), nil
}

// SavePending keeps an authorisation over a restart.
func (s *Store) SavePending(p Pending) error {
	data, err := p.encode(s.issuer, s.machine)
	if err != nil {
		return fmt.Errorf("save authorisation: %w", err)
	}
	return atomicfile.Write(filepath.Join(s.dir, pendingName), append(data, '\n'), 0o600)
}

// LoadPending is the stored authorisation, if there is one for this platform
// that hasn't expired. With an error there is none either.
func (s *Store) LoadPending() (Pending, bool, error) {
	path := filepath.Join(s.dir, pendingName)
	data, err := atomicfile.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Pending{}, false, nil
	}
	if err != nil {
		return Pending{}, false, err
	}
	p, from, err := decodePending(data)
	if err != nil {
		return Pending{}, false, fmt.Errorf("%s: %w", path, err)
	}
	if from.Issuer != s.issuer || s.foreign(from.MachineID) || !time.Now().Before(p.Expires) {
		return Pending{}, false, nil
	}
	return p, true, nil
}

// ClearPending forgets the authorisation.
func (s *Store) ClearPending() error {
	err := os.Remove(filepath.Join(s.dir, pendingName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// keepPrivate takes the file away from everybody else.
func keepPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(path, 0o600)
	}
	return nil
}
