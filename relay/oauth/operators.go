package oauth

import (
	"context"
	"errors"
	"strings"
	"time"

	"farhand/relay/access"
	"farhand/relay/store"
	"farhand/wire"
)

// The kinds of operator credentials, as they stand in keys and holders.
const (
	kindLogin = "login"
	kindToken = "token"
	kindPage  = "page"
)

var kindPrefix = map[string]string{kindLogin: prefixLogin, kindToken: prefixToken, kindPage: prefixPage}

// operator is a login, an operator token or a browser's login.
type operator struct {
	ID       string        `json:"id"`
	Owner    string        `json:"owner"`
	Account  string        `json:"account"` // the owner's name
	Secret   secretHash    `json:"secret"`
	Created  time.Time     `json:"created"`
	Expires  time.Time     `json:"expires,omitzero"`
	Name     string        `json:"name,omitempty"` // tokens: the owner's name for it
	Machines *[]string     `json:"machines,omitempty"`
	Ceiling  *wire.Ceiling `json:"ceiling,omitempty"`
}

func operatorKey(kind, owner, id string) string { return store.Key("o", owner, kind, id) }

// holder is the opaque id under which the rest of the relay knows a credential.
func holder(kind, id string) string { return kind + "-" + id }

// newOperator mints a credential and returns its text, which is shown once.
func (s *Server) newOperator(ctx context.Context, kind string, op operator) (string, operator, error) {
	op.ID, op.Created = newID(), now()
	text := mint(kindPrefix[kind], ref{op.Owner, op.ID}, secretSize)
	op.Secret = hashSecret(text)
	err := create(ctx, s.store, operatorKey(kind, op.Owner, op.ID), op, op.Expires)
	return text, op, err
}

// dropOperator ends a credential, and with it what it opened.
func (s *Server) dropOperator(ctx context.Context, kind, owner, id string) error {
	err := s.store.Delete(ctx, operatorKey(kind, owner, id), 0)
	s.cache.forget(owner, id)
	if err != nil {
		return err
	}
	if kind != kindPage {
		s.sockets().RevokeHolder(owner, holder(kind, id))
	}
	return nil
}

// findOperator looks a credential up. access.ErrUnauthorized.
func (s *Server) findOperator(ctx context.Context, kind, text string) (operator, error) {
	open, ok := parse(text, kindPrefix[kind], ownerSize, secretSize)
	if !ok {
		return operator{}, access.ErrUnauthorized
	}
	r, err := load[operator](ctx, s.store, operatorKey(kind, open.owner, open.id))
	if errors.Is(err, store.ErrNotFound) {
		return operator{}, access.ErrUnauthorized
	}
	if err != nil {
		return operator{}, err
	}
	op := r.value
	if !op.Secret.matches(text) || (!op.Expires.IsZero() && !now().Before(op.Expires)) {
		return operator{}, access.ErrUnauthorized
	}
	return op, nil
}

// Operator implements access.Authority.
func (s *Server) Operator(ctx context.Context, bearer string) (access.Operator, error) {
	kind := kindToken
	if strings.HasPrefix(bearer, prefixLogin) {
		kind = kindLogin
	}
	h := hashSecret(bearer)
	if c, ok := s.cache.get(h); ok && c.operator.Holder != "" {
		return c.operator, nil
	}
	begun := s.cache.begin()
	if strings.HasPrefix(bearer, prefixInner) {
		a, err := s.findInner(ctx, bearer)
		if err != nil {
			return access.Operator{}, err
		}
		out := a.operator()
		s.cache.put(begun, a.Owner, a.ID, h, cached{expires: a.Ends, operator: out})
		return out, nil
	}
	op, err := s.findOperator(ctx, kind, bearer)
	if err != nil {
		return access.Operator{}, err
	}
	out := access.Operator{
		Owner:   op.Owner,
		Name:    op.Account,
		Holder:  holder(kind, op.ID),
		Login:   kind == kindLogin,
		Manage:  kind == kindLogin,
		Expires: op.Expires,
	}
	if kind == kindToken {
		out.Machines, out.Ceiling = op.Machines, op.Ceiling
		if out.Ceiling == nil {
			out.Ceiling = &wire.Ceiling{}
		}
	}
	s.cache.put(begun, op.Owner, op.ID, h, cached{expires: op.Expires, operator: out})
	return out, nil
}

// Device implements access.Authority. The first success of a pair is what
// spends the refresh token before it, durably, before the caller hears of it.
func (s *Server) Device(ctx context.Context, bearer string) (access.Device, error) {
	open, ok := parse(bearer, prefixAccess, ownerSize, secretSize)
	if !ok {
		return access.Device{}, access.ErrUnauthorized
	}
	h := hashSecret(bearer)
	if c, ok := s.cache.get(h); ok && c.device.Family != "" {
		return c.device, nil
	}
	begun := s.cache.begin()
	r, err := load[family](ctx, s.store, familyKey(open.owner, open.id))
	if errors.Is(err, store.ErrNotFound) {
		return access.Device{}, access.ErrUnauthorized
	}
	if err != nil {
		return access.Device{}, err
	}
	fam := r.value
	p, current := fam.holds(bearer, now())
	if p == nil {
		return access.Device{}, access.ErrUnauthorized
	}
	if current && !p.Used {
		fam, err = s.changeFamily(ctx, open.owner, open.id, func(f *family) error {
			p, current := f.holds(bearer, now())
			if p == nil {
				return access.ErrUnauthorized
			}
			if !current || p.Used {
				return errUnchanged
			}
			p.Used = true
			return nil
		})
		if errors.Is(err, store.ErrNotFound) {
			err = access.ErrUnauthorized
		}
		if err != nil {
			return access.Device{}, err
		}
		begun = s.cache.begin()
		// Read again what is to be remembered: the change is older than begun.
		if r, err = load[family](ctx, s.store, familyKey(open.owner, open.id)); err != nil {
			return access.Device{}, err
		}
		fam = r.value
		if p, _ = fam.holds(bearer, now()); p == nil {
			return access.Device{}, access.ErrUnauthorized
		}
	}
	d := access.Device{Owner: fam.Owner, MachineID: fam.MachineID, Family: fam.ID,
		ClientID: fam.ClientID, Expires: p.AccessExpires}
	s.cache.put(begun, fam.Owner, fam.ID, h, cached{expires: d.Expires, device: d})
	return d, nil
}
