package oauth

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"farhand/relay/access"
	"farhand/relay/store"
)

// AgentScope is what agents ask for, and agentPath the resource that their tokens
// are for (RFC 8707): the relay's MCP endpoint and nothing else of it.
const (
	AgentScope = "mcp"
	agentPath  = "/mcp"
)

// kindAgent is the kind of an agent's record, as it stands in keys and holders.
const kindAgent = "agent"

// agent is what an owner let a program have: its tokens, which rotate as a
// device's do, and its ceilings. Its record lies apart from devices' families, so
// that a token of one is never found where the other's is asked for.
type agent struct {
	family
	Name     string    `json:"name"` // what the program calls itself
	Account  string    `json:"account"`
	Machines *[]string `json:"machines,omitempty"` // ids; nil: all, also later ones
	Ends     time.Time `json:"ends,omitzero"`      // zero: never
}

func agentKey(owner, id string) string { return store.Key("o", owner, kindAgent, id) }

// recordExpires is when the record may be forgotten.
func (a *agent) recordExpires() time.Time {
	at := a.family.recordExpires()
	if !a.Ends.IsZero() && a.Ends.Before(at) {
		return a.Ends
	}
	return at
}

// ended says whether nothing of it holds any more.
func (a *agent) ended(now time.Time) bool {
	return a.Revoked != nil || !a.Ends.IsZero() && !now.Before(a.Ends)
}

// operator is what the rest of the relay knows of it.
func (a *agent) operator() access.Operator {
	ceiling := a.Grant.Ceiling
	return access.Operator{
		Owner: a.Owner, Name: a.Account, Holder: holder(kindAgent, a.ID),
		Expires: a.Ends, Machines: a.Machines, Ceiling: &ceiling,
	}
}

// newAgent issues the first tokens of an agent in one step with making its record.
// store.ErrExists, wrapped, if there is one.
func (s *Server) newAgent(ctx context.Context, a agent) (issued, error) {
	a.Created = now()
	out := a.issue(1, randomBytes(lineageSize), a.Created)
	return out, create(ctx, s.store, agentKey(a.Owner, a.ID), a, a.recordExpires())
}

// changeAgent changes an agent's record and forgets what was cached of it.
// store.ErrNotFound, wrapped, if there is none.
func (s *Server) changeAgent(ctx context.Context, owner, id string, f func(*agent) error) (agent, error) {
	a, err := change(ctx, s.store, agentKey(owner, id), func(r *stored[agent]) error {
		if r.revision == 0 {
			return store.ErrNotFound
		}
		if err := f(&r.value); err != nil {
			return err
		}
		r.expires = r.value.recordExpires()
		return nil
	})
	s.cache.forget(owner, id)
	return a, err
}

// revokeAgent ends an agent with what it opened. One that is gone is no error.
func (s *Server) revokeAgent(ctx context.Context, owner, id, why string) error {
	ended := false
	_, err := s.changeAgent(ctx, owner, id, func(a *agent) error {
		if ended = a.Revoked == nil; !ended {
			return errUnchanged
		}
		a.revoke(why, now())
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if ended {
		s.record(Event{Op: OpFamilyRevoked, Owner: owner, Holder: holder(kindAgent, id), Family: id, Reason: why})
	}
	s.sockets().RevokeHolder(owner, holder(kindAgent, id))
	return nil
}

// agentsOf are those that an owner has let in and that haven't ended.
func (s *Server) agentsOf(ctx context.Context, owner string) ([]agent, error) {
	all, err := list[agent](ctx, s.store, store.Prefix("o", owner, kindAgent))
	return slices.DeleteFunc(all, func(a agent) bool { return a.ended(now()) }), err
}

// agentOf finds the agent that an access token is of, and spends the token that it
// was refreshed from. access.ErrUnauthorized.
func (s *Server) agentOf(ctx context.Context, bearer string) (agent, error) {
	open, ok := parse(bearer, prefixAccess, ownerSize, secretSize)
	if !ok {
		return agent{}, access.ErrUnauthorized
	}
	r, err := load[agent](ctx, s.store, agentKey(open.owner, open.id))
	if errors.Is(err, store.ErrNotFound) {
		return agent{}, access.ErrUnauthorized
	}
	if err != nil {
		return agent{}, err
	}
	a := r.value
	p, current := a.holds(bearer, now())
	if p == nil || a.ended(now()) {
		return agent{}, access.ErrUnauthorized
	}
	if !current || p.Used {
		return a, nil
	}
	a, err = s.changeAgent(ctx, open.owner, open.id, func(a *agent) error {
		p, current := a.holds(bearer, now())
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
	return a, err
}

// Agent introspects a token that is for the MCP endpoint. Beside whom it stands for
// it gives the token that the relay's own API takes for them: it is good in this
// process alone, or in those that share the store, never leaves them, and lasts as long as what the owner allowed, while
// access tokens come and go. access.ErrUnauthorized.
func (s *Server) Agent(ctx context.Context, bearer string) (who access.Operator, inner string, err error) {
	a, err := s.agentOf(ctx, bearer)
	if err != nil {
		return access.Operator{}, "", err
	}
	return a.operator(), s.innerToken(ref{a.Owner, a.ID}), nil
}

func (s *Server) innerToken(r ref) string {
	mac := keyed(s.inner, "inner", r.owner, r.id)
	return join(prefixInner, unhex(r.owner), unhex(r.id), mac)
}

// findInner looks up whom an inner token stands for. access.ErrUnauthorized.
func (s *Server) findInner(ctx context.Context, text string) (agent, error) {
	open, ok := parse(text, prefixInner, ownerSize, secretSize)
	if !ok || !hashSecret(s.innerToken(open)).matches(text) {
		return agent{}, access.ErrUnauthorized
	}
	r, err := load[agent](ctx, s.store, agentKey(open.owner, open.id))
	if errors.Is(err, store.ErrNotFound) || err == nil && r.value.ended(now()) {
		return agent{}, access.ErrUnauthorized
	}
	return r.value, err
}

// refreshAgent is redeemRefresh for an agent's token.
func (s *Server) refreshAgent(ctx context.Context, p map[string]string, open refresh) (issued, error) {
	var out issued
	_, err := s.changeAgent(ctx, open.owner, open.id, func(a *agent) error {
		if a.ClientID != p["client_id"] || a.ended(now()) {
			return errInvalidGrant
		}
		var err error
		if out, err = a.rotate(p["refresh_token"], open, now()); err != nil {
			return err
		}
		out.bound(a.Ends)
		return nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return issued{}, errInvalidGrant
	case errors.Is(err, errReplay):
		if err := s.revokeAgent(ctx, open.owner, open.id, "a spent refresh token came back"); err != nil {
			return issued{}, err
		}
		return issued{}, errInvalidGrant
	}
	return out, err
}

// bound is how long tokens really last whose grant ends before them.
func (i *issued) bound(ends time.Time) {
	for _, at := range []*time.Time{&i.accessExpires, &i.refreshExpires} {
		if !ends.IsZero() && ends.Before(*at) {
			*at = ends
		}
	}
}

// redeemAgentCode issues the tokens of an authorisation code that was for an agent.
func (s *Server) redeemAgentCode(ctx context.Context, owner string, c authCode) (issued, error) {
	out, err := s.newAgent(ctx, agent{
		family: family{ID: c.Family, Owner: owner, ClientID: c.ClientID, Source: grantCode, Grant: c.Grant},
		Name:   c.Agent.Name, Account: c.Agent.Account, Machines: c.Agent.Machines, Ends: c.Agent.Ends,
	})
	if errors.Is(err, store.ErrExists) { // the same code twice: two parties hold it
		if err := s.revokeAgent(ctx, owner, c.Family, "an authorisation code came back"); err != nil {
			return issued{}, err
		}
		return issued{}, errInvalidGrant
	}
	if err != nil {
		return issued{}, err
	}
	out.bound(c.Agent.Ends)
	s.record(Event{Op: OpTokensIssued, Owner: owner, Holder: holder(kindAgent, c.Family), Subject: c.Agent.Name, Reason: "authorisation code"})
	return out, nil
}

// revokeAgentByRefresh is revokeByRefresh for an agent's token.
func (s *Server) revokeAgentByRefresh(ctx context.Context, text string, open refresh) error {
	r, err := load[agent](ctx, s.store, agentKey(open.owner, open.id))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	a := r.value
	if !a.Current.Refresh.matches(text) && !a.Lineage.matches(hex.EncodeToString(open.lineage)) {
		return nil
	}
	return s.revokeAgent(ctx, open.owner, open.id, "revoked by the agent")
}

// revokeAgentAccess ends an access token of an agent, and with it what is open by
// it: the next refresh begins anew.
func (s *Server) revokeAgentAccess(ctx context.Context, text string, open ref) error {
	found := false
	_, err := s.changeAgent(ctx, open.owner, open.id, func(a *agent) error {
		p, _ := a.holds(text, now())
		if found = p != nil; !found {
			return errUnchanged
		}
		p.Access, p.Used = "", true
		return nil
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && !found {
		return nil
	}
	if err != nil {
		return err
	}
	s.record(Event{Op: OpTokenRevoked, Owner: open.owner, Subject: holder(kindAgent, open.id), Reason: "an access token, by the agent"})
	s.sockets().RevokeHolder(open.owner, holder(kindAgent, open.id))
	return nil
}
