package oauth

import (
	"context"
	"errors"
	"net/http"
	"time"

	"farhand/relay/store"
	"farhand/wire"
)

// Lives of a claim key. The longest is not over what a family's record is kept,
// which is what makes a key work once.
const (
	claimLife    = 7 * 24 * time.Hour
	maxClaimLife = refreshLife
	// claimAgain is how long the machine that redeemed a key may do so again
	// while nobody has used what it got: the answer may be lost, or the power, as
	// long as it isn't on the card.
	claimAgain = time.Hour
)

// claim is a key that lets one machine in without anybody at a screen.
type claim struct {
	ID      string       `json:"id"`
	Key     secretHash   `json:"key"`
	Name    string       `json:"machine_name,omitempty"`
	Ceiling wire.Ceiling `json:"ceiling"`
	Family  string       `json:"family"` // what it becomes
	Created time.Time    `json:"created"`
	Expires time.Time    `json:"expires"`

	UsedAt  *time.Time `json:"used_at,omitempty"`
	UsedBy  string     `json:"used_by,omitempty"` // the machine
	Address string     `json:"address,omitempty"`
}

func claimKey(owner, id string) string { return store.Key("o", owner, "claim", id) }

func (s *Server) newClaim(ctx context.Context, who Event, c claim) (string, claim, error) {
	who.Op = OpClaimCreated
	c.ID, c.Family, c.Created = newID(), newID(), now()
	who.Subject = c.ID
	if err := s.intend(who); err != nil {
		return "", claim{}, err
	}
	text := mint(prefixClaim, ref{who.Owner, c.ID}, claimSize)
	c.Key = hashSecret(text)
	err := create(ctx, s.store, claimKey(who.Owner, c.ID), c, c.Expires)
	return text, c, err
}

// redeemClaim turns a claim key into a family, once. The same machine gets its
// first pair anew for a while, as long as it wasn't used.
func (s *Server) redeemClaim(r *http.Request, p map[string]string) (issued, error) {
	ctx := r.Context()
	text, id := p["claim_key"], p["machine_id"]
	switch {
	case text == "":
		return issued{}, invalidRequest("claim_key is missing")
	case !validMachineID(id):
		return issued{}, invalidRequest("machine_id is missing or malformed")
	}
	open, ok := parse(text, prefixClaim, ownerSize, claimSize)
	if !ok {
		return issued{}, errInvalidGrant
	}
	c, err := s.claimOf(ctx, open, text)
	if err != nil {
		return issued{}, err
	}
	// Claims and families both outlive this check; making the family is what
	// spends the key.
	if c.UsedAt != nil && c.UsedBy != id || c.UsedAt == nil && !now().Before(c.Expires) {
		return issued{}, errInvalidGrant
	}
	if c.UsedAt != nil {
		return s.claimedAgain(ctx, open, c)
	}
	at, err := s.approvalTime(ctx, open.owner, id)
	if err != nil {
		return issued{}, err
	}
	grant := approved{Name: c.Name, Display: wire.Clean(p["display_name"], wire.MaxDisplayName),
		Board: wire.Clean(p["board"], wire.MaxDeviceString), Ceiling: c.Ceiling, At: at}
	who := Event{Op: OpClaimRedeemed, Owner: open.owner, Machine: id, Subject: c.ID, Family: c.Family, Address: shownAddress(r)}
	if err := s.intend(who); err != nil {
		return issued{}, err
	}
	out, err := s.newFamily(ctx, family{ID: c.Family, Owner: open.owner, ClientID: p["client_id"], MachineID: id,
		Source: grantClaim, Grant: grant})
	if errors.Is(err, store.ErrExists) {
		return issued{}, errInvalidGrant
	}
	if err != nil {
		return issued{}, err
	}
	if err := s.settleClaim(ctx, open, grant, id, who.Address); err != nil {
		// The key is spent, but the tokens must not live beside a claim that
		// was revoked meanwhile or a machine that couldn't be remembered.
		return issued{}, errors.Join(err, s.revokeFamily(ctx, open.owner, c.Family, "the claim couldn't be completed"))
	}
	return out, nil
}

// claimedAgain replaces the pair that a claim became.
func (s *Server) claimedAgain(ctx context.Context, open ref, c claim) (issued, error) {
	if now().After(c.UsedAt.Add(claimAgain)) {
		return issued{}, errInvalidGrant
	}
	var out issued
	_, err := s.changeFamily(ctx, open.owner, c.Family, func(f *family) (err error) {
		out, err = f.reissue(now())
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return issued{}, errInvalidGrant
	}
	if err != nil {
		return issued{}, err
	}
	s.record(Event{Op: OpTokensIssued, Owner: open.owner, Machine: c.UsedBy, Family: c.Family, Reason: "claim key, again: the answer was lost"})
	return out, nil
}

func (s *Server) claimOf(ctx context.Context, open ref, text string) (claim, error) {
	r, err := load[claim](ctx, s.store, claimKey(open.owner, open.id))
	if errors.Is(err, store.ErrNotFound) || (err == nil && !r.value.Key.matches(text)) {
		return claim{}, errInvalidGrant
	}
	return r.value, err
}

// settleClaim marks the claim used and remembers the machine. errInvalidGrant
// if the claim was revoked meanwhile.
func (s *Server) settleClaim(ctx context.Context, open ref, grant approved, machineID, address string) error {
	_, err := change(ctx, s.store, claimKey(open.owner, open.id), func(r *stored[claim]) error {
		if r.revision == 0 {
			return errInvalidGrant
		}
		at := grant.At
		r.value.UsedAt, r.value.UsedBy, r.value.Address = &at, machineID, address
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.admit(ctx, open.owner, machineID, grant)
	return err
}
