package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"farhand/relay/store"
)

const (
	loginLife = 30 * 24 * time.Hour // an operator's command
	pageLife  = 15 * time.Minute    // a browser
	setupLife = 7 * 24 * time.Hour  // a setup token made by hand
)

// account is an owner. Its key is the name in lower case.
type account struct {
	Owner   string    `json:"owner"`
	Name    string    `json:"name"`
	Hash    string    `json:"hash"`
	Created time.Time `json:"created"`
}

func accountKey(name string) string { return store.Key("account", strings.ToLower(name)) }

// setup is a one-time permission to make an account.
type setup struct {
	Token   secretHash `json:"token"`
	Name    string     `json:"name,omitempty"` // empty: free to choose
	First   bool       `json:"first,omitempty"`
	Reset   bool       `json:"reset,omitempty"` // a new passphrase for an account that exists
	Expires time.Time  `json:"expires,omitzero"`
}

// Setup is a setup token in clear, shown once.
type Setup struct {
	Token   string    `json:"setup_token"`
	Link    string    `json:"setup_link"`
	Expires time.Time `json:"expires_at,omitzero"`
}

// Failures of accounts.
var (
	errCredentials = errors.New("name or passphrase is wrong")
	errSetupToken  = errors.New("this setup token is unknown, expired or was used")
	errAccountName = errors.New("an account name has letters, digits and \"._-\", at most 64, and begins with a letter or digit")
	// ErrAccountExists is AddOwner's for a name that is taken.
	ErrAccountExists = errors.New("an account of this name exists")
	// ErrNoAccount is ResetOwner's for a name that isn't there.
	ErrNoAccount = errors.New("no account of this name")
)

// FirstSetup makes a new setup token if there is no account yet, and takes back
// the one from the last start. False if there is one.
func (s *Server) FirstSetup(ctx context.Context) (Setup, bool, error) {
	accounts, err := s.store.List(ctx, store.Prefix("account"))
	if err != nil || len(accounts) > 0 {
		return Setup{}, false, err
	}
	entries, err := s.store.List(ctx, store.Prefix("setup"))
	if err != nil {
		return Setup{}, false, err
	}
	for _, e := range entries {
		r, err := load[setup](ctx, s.store, e.Key)
		if err != nil || !r.value.First {
			continue
		}
		if err := s.store.Delete(ctx, e.Key, 0); err != nil {
			return Setup{}, false, err
		}
	}
	out, err := s.newSetup(ctx, setup{First: true})
	return out, err == nil, err
}

// AddOwner makes a setup token for one more owner. ErrAccountExists if the
// name is taken.
func (s *Server) AddOwner(ctx context.Context, name string) (Setup, error) {
	if !validName(name) {
		return Setup{}, errAccountName
	}
	switch _, err := s.store.Get(ctx, accountKey(name)); {
	case err == nil:
		return Setup{}, fmt.Errorf("%s: %w", name, ErrAccountExists)
	case !errors.Is(err, store.ErrNotFound):
		return Setup{}, err
	}
	return s.newSetup(ctx, setup{Name: name, Expires: now().Add(setupLife)})
}

// ResetOwner makes a setup token that gives an owner a new passphrase.
// ErrNoAccount if there is no such owner.
func (s *Server) ResetOwner(ctx context.Context, name string) (Setup, error) {
	a, err := load[account](ctx, s.store, accountKey(name))
	if errors.Is(err, store.ErrNotFound) {
		return Setup{}, fmt.Errorf("%s: %w", name, ErrNoAccount)
	}
	if err != nil {
		return Setup{}, err
	}
	return s.newSetup(ctx, setup{Name: a.value.Name, Reset: true, Expires: now().Add(setupLife)})
}

func (s *Server) newSetup(ctx context.Context, rec setup) (Setup, error) {
	id := newID()
	text := mint(prefixSetup, ref{id: id}, setupSize)
	rec.Token = hashSecret(text)
	if err := s.intend(Event{Op: OpSetupMinted, Subject: rec.Name}); err != nil {
		return Setup{}, err
	}
	if err := create(ctx, s.store, store.Key("setup", id), rec, rec.Expires); err != nil {
		return Setup{}, err
	}
	return Setup{text, s.public + "/setup?token=" + url.QueryEscape(text), rec.Expires}, nil
}

// findSetup returns the record of a setup token; errSetupToken.
func (s *Server) findSetup(ctx context.Context, text string) (key string, r stored[setup], err error) {
	open, ok := parse(text, prefixSetup, 0, setupSize)
	if !ok {
		return "", r, errSetupToken
	}
	key = store.Key("setup", open.id)
	r, err = load[setup](ctx, s.store, key)
	if errors.Is(err, store.ErrNotFound) || (err == nil && !r.value.Token.matches(text)) {
		return "", r, errSetupToken
	}
	return key, r, err
}

// setUp spends a setup token on an account.
func (s *Server) setUp(ctx context.Context, text, name, passphrase, address string) (account, error) {
	key, r, err := s.findSetup(ctx, text)
	if err != nil {
		if errors.Is(err, errSetupToken) {
			s.record(Event{Op: OpOwnerSetup, Address: address, Refused: true, Reason: "setup token"})
		}
		return account{}, err
	}
	if name == "" {
		name = r.value.Name
	}
	if !validName(name) || (r.value.Name != "" && !strings.EqualFold(name, r.value.Name)) {
		return account{}, errAccountName
	}
	if err := checkPassphrase(passphrase); err != nil {
		return account{}, err
	}
	old, err := load[account](ctx, s.store, accountKey(name))
	switch {
	case err == nil && !r.value.Reset:
		return account{}, ErrAccountExists
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return account{}, err
	case err != nil && r.value.Reset:
		return account{}, errSetupToken // the account is gone
	}
	hash, err := s.hasher.hash(ctx, passphrase)
	if err != nil {
		return account{}, err
	}
	if err := s.intend(Event{Op: OpOwnerSetup, Subject: name, Address: address}); err != nil {
		return account{}, err
	}
	// The token goes first: should the relay die right here, the operator of
	// the host makes another, but no token ever works twice.
	if err := s.store.Delete(ctx, key, r.revision); err != nil {
		if errors.Is(err, store.ErrConflict) {
			return account{}, errSetupToken
		}
		return account{}, err
	}
	if r.value.Reset {
		return s.newPassphrase(ctx, old.value, hash)
	}
	a := account{Owner: newOwner(), Name: name, Hash: hash, Created: now()}
	err = create(ctx, s.store, accountKey(name), a, time.Time{})
	if errors.Is(err, store.ErrExists) {
		err = ErrAccountExists
	}
	return a, err
}

func (s *Server) newPassphrase(ctx context.Context, a account, hash string) (account, error) {
	a, err := change(ctx, s.store, accountKey(a.Name), func(r *stored[account]) error {
		if r.revision == 0 {
			return errSetupToken
		}
		r.value.Hash = hash
		return nil
	})
	if err != nil {
		return account{}, err
	}
	// Whoever knew the old passphrase is out.
	for _, kind := range []string{kindLogin, kindPage} {
		ops, err := list[operator](ctx, s.store, store.Prefix("o", a.Owner, kind))
		if err != nil {
			return account{}, err
		}
		for _, op := range ops {
			if err := s.dropOperator(ctx, kind, op.Owner, op.ID); err != nil {
				return account{}, err
			}
		}
	}
	return a, nil
}

// logIn checks a passphrase, within the limits on failures. errCredentials, a
// *waitError or errBusy.
func (s *Server) logIn(ctx context.Context, r *http.Request, name, passphrase string) (account, error) {
	who := "no account"
	if validName(name) { // which also bounds what is remembered of it
		who = "account " + strings.ToLower(name)
	}
	done, wait := s.attempts.begin(who, "address "+clientAddress(r))
	if wait > 0 {
		return account{}, &waitError{wait, "too many failed logins"}
	}
	result := undecided
	defer func() { done(result) }()
	var acc stored[account]
	if validName(name) {
		var err error
		acc, err = load[account](ctx, s.store, accountKey(name))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return account{}, err
		}
	}
	if len(passphrase) > maxPassphrase {
		passphrase = "" // can't be right, and must not cost more
	}
	right, err := s.hasher.verify(ctx, passphrase, acc.value.Hash)
	if err != nil {
		return account{}, err
	}
	if !right {
		result = failed
		// The name only if it is one: people type passphrases into the wrong field.
		s.record(Event{Op: OpLogin, Owner: acc.value.Owner, Subject: acc.value.Name,
			Address: shownAddress(r), Refused: true})
		return account{}, errCredentials
	}
	if err := s.intend(Event{Op: OpLogin, Owner: acc.value.Owner, Subject: acc.value.Name, Address: shownAddress(r)}); err != nil {
		return account{}, err
	}
	result = succeeded
	return acc.value, nil
}

// Owners are the names of the accounts.
func (s *Server) Owners(ctx context.Context) ([]string, error) {
	accounts, err := list[account](ctx, s.store, store.Prefix("account"))
	names := make([]string, len(accounts))
	for i, a := range accounts {
		names[i] = a.Name
	}
	return names, err
}
