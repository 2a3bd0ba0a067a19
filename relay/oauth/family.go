package oauth

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"farhand/relay/store"
	"farhand/wire"
)

// Lives of a device's tokens. Source: the AutoGPT platform's, which devices
// are built for.
const (
	accessLife  = time.Hour
	refreshLife = 30 * 24 * time.Hour
	// familyKept is how long the record outlives the last refresh token, so
	// that what it was redeemed from stays spent.
	familyKept = 24 * time.Hour
)

// family is the tokens of one device: one record, so that spending a token and
// issuing the next is one step.
type family struct {
	ID        string    `json:"id"`
	Owner     string    `json:"owner"`
	ClientID  string    `json:"client_id"`
	MachineID string    `json:"machine_id,omitempty"` // empty until bound
	Source    string    `json:"source"`               // the grant type it came from
	Created   time.Time `json:"created"`
	Grant     approved  `json:"grant"` // what was approved with it

	Lineage  secretHash `json:"lineage"` // of the secret that its refresh tokens share
	Current  pair       `json:"current"`
	Previous *pair      `json:"previous,omitempty"`

	Revoked    *time.Time `json:"revoked,omitempty"`
	RevokedFor string     `json:"revoked_for,omitempty"`
}

// approved is what an owner decided for a machine, and when. A later decision
// replaces an earlier one, never the reverse.
type approved struct {
	Name    string       `json:"name,omitempty"` // empty: made from the display name
	Display string       `json:"display,omitempty"`
	Board   string       `json:"board,omitempty"`
	Ceiling wire.Ceiling `json:"ceiling"`
	At      time.Time    `json:"at"`
}

// pair is an access token with its refresh token.
type pair struct {
	Generation     uint32     `json:"generation"`
	Access         secretHash `json:"access,omitempty"` // empty: revoked alone
	AccessExpires  time.Time  `json:"access_expires"`
	Refresh        secretHash `json:"refresh"`
	RefreshExpires time.Time  `json:"refresh_expires"`
	Used           bool       `json:"used,omitempty"`
}

// issued is a new pair in clear, on its way to the device.
type issued struct {
	access, refresh               string
	accessExpires, refreshExpires time.Time
}

// issue makes the pair of a generation and puts it into f as the current one.
func (f *family) issue(generation uint32, lineage []byte, now time.Time) issued {
	where := ref{f.Owner, f.ID}
	out := issued{
		access:         mint(prefixAccess, where, secretSize),
		refresh:        mintRefresh(refresh{where, lineage, generation}),
		accessExpires:  now.Add(accessLife),
		refreshExpires: now.Add(refreshLife),
	}
	f.Lineage = hashLineage(lineage)
	f.Current = pair{
		Generation:     generation,
		Access:         hashSecret(out.access),
		AccessExpires:  out.accessExpires,
		Refresh:        hashSecret(out.refresh),
		RefreshExpires: out.refreshExpires,
	}
	return out
}

func hashLineage(lineage []byte) secretHash { return hashSecret(hex.EncodeToString(lineage)) }

// recordExpires is when the record may be forgotten.
func (f *family) recordExpires() time.Time { return f.Current.RefreshExpires.Add(familyKept) }

// errReplay says that a spent token came back: the family has to end.
var errReplay = errors.New("a refresh token that was spent came back")

// rotate spends the refresh token text and issues the pair after it, by the
// rules in the package comment. errInvalidGrant, or errReplay if the family
// has to be revoked.
func (f *family) rotate(text string, open refresh, now time.Time) (issued, error) {
	if f.Revoked != nil {
		return issued{}, errInvalidGrant
	}
	previous := f.Previous
	switch {
	case f.Current.Refresh.matches(text):
		if !now.Before(f.Current.RefreshExpires) {
			return issued{}, errInvalidGrant
		}
		spent := f.Current
		spent.Used = true
		f.Previous = &spent
		return f.issue(spent.Generation+1, open.lineage, now), nil
	case previous != nil && previous.Refresh.matches(text) && !f.Current.Used:
		if !now.Before(previous.RefreshExpires) {
			return issued{}, errInvalidGrant
		}
		return f.issue(previous.Generation+1, open.lineage, now), nil
	case !f.Lineage.matches(hex.EncodeToString(open.lineage)):
		return issued{}, errInvalidGrant // never issued here
	case open.generation == f.Current.Generation && !f.Current.Used:
		return issued{}, errInvalidGrant // replaced before anybody used it
	}
	return issued{}, errReplay
}

// reissue replaces the first pair as long as nobody used it: for a device code
// whose answer was lost.
func (f *family) reissue(now time.Time) (issued, error) {
	if f.Revoked != nil || f.Previous != nil || f.Current.Used {
		return issued{}, errInvalidGrant
	}
	return f.issue(f.Current.Generation, randomBytes(lineageSize), now), nil
}

// holds says which of the pairs the access token belongs to, and whether that
// is the current one; nil if it isn't valid at this time.
func (f *family) holds(access string, now time.Time) (p *pair, current bool) {
	if f.Revoked != nil {
		return nil, false
	}
	for _, p := range []*pair{&f.Current, f.Previous} {
		if p != nil && p.Access.matches(access) && now.Before(p.AccessExpires) {
			return p, p == &f.Current
		}
	}
	return nil, false
}

func (f *family) revoke(why string, now time.Time) {
	f.Revoked, f.RevokedFor = &now, why
	f.Current.Access, f.Current.Refresh, f.Previous = "", "", nil
}

func familyKey(owner, id string) string { return store.Key("o", owner, "family", id) }

// newFamily issues the first pair of a family that doesn't exist yet, in one
// step with making its record. store.ErrExists, wrapped, if it does.
func (s *Server) newFamily(ctx context.Context, f family) (issued, error) {
	f.Created = now()
	out := f.issue(1, randomBytes(lineageSize), f.Created)
	if err := create(ctx, s.store, familyKey(f.Owner, f.ID), f, f.recordExpires()); err != nil {
		return issued{}, err
	}
	return out, nil
}

// changeFamily changes a family's record and forgets what was cached of it.
// store.ErrNotFound, wrapped, if there is none.
func (s *Server) changeFamily(ctx context.Context, owner, id string, f func(*family) error) (family, error) {
	fam, err := change(ctx, s.store, familyKey(owner, id), func(r *stored[family]) error {
		if r.revision == 0 {
			return store.ErrNotFound
		}
		if err := f(&r.value); err != nil {
			return err
		}
		// A revoked family stays as long as it would have lived.
		if at := r.value.recordExpires(); at.After(r.expires) {
			r.expires = at
		}
		return nil
	})
	s.cache.forget(owner, id)
	return fam, err
}

// revokeFamily ends a family and its sockets. One that is gone or ended
// already is no error.
func (s *Server) revokeFamily(ctx context.Context, owner, id, why string) error {
	ended := false
	fam, err := s.changeFamily(ctx, owner, id, func(f *family) error {
		ended = f.Revoked == nil
		if !ended {
			return errUnchanged
		}
		f.revoke(why, now())
		return nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	if ended {
		s.record(Event{Op: OpFamilyRevoked, Owner: owner, Machine: fam.MachineID, Family: id, Reason: why})
	}
	s.sockets().RevokeFamily(owner, id)
	return nil
}
