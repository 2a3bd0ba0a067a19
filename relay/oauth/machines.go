package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"farhand/relay/access"
	"farhand/relay/store"
	"farhand/wire"
)

// machine is a paired machine. What it reports by itself is in records of its
// own, so that a reconnect never competes with a change of the approval.
type machine struct {
	ID         string       `json:"id"`
	Name       string       `json:"name"`
	Display    string       `json:"display,omitempty"`
	Board      string       `json:"board,omitempty"`
	Approval   wire.Ceiling `json:"approval"`
	ApprovedAt time.Time    `json:"approved_at"`
}

// seen is what a machine last said about itself.
type seen struct {
	At      time.Time  `json:"at"`
	Hello   wire.Hello `json:"hello"`
	Started time.Time  `json:"started,omitzero"` // the first HELLO with this boot id
}

func machineKey(owner, id string) string { return store.Key("o", owner, "machine", id) }
func seenKey(owner, id string) string    { return store.Key("o", owner, "seen", id) }
func anchorKey(owner, id string) string  { return store.Key("o", owner, "anchor", id) }

// admit makes an approval hold for a machine, unless a later one does already.
// It is safe to do twice. A new approval is a new beginning: the machine may
// have a new card with a new audit log, so what was known of the old one goes.
func (s *Server) admit(ctx context.Context, owner, id string, grant approved) (machine, error) {
	was, err := load[machine](ctx, s.store, machineKey(owner, id))
	known := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return machine{}, err
	}
	if known && !grant.At.After(was.value.ApprovedAt) {
		return was.value, nil
	}
	name := grant.Name
	switch {
	case name != "":
	case known:
		name = was.value.Name
	default:
		name = nameOf(grant.Display, id)
	}
	if name, err = s.freeName(ctx, owner, name, id); err != nil {
		return machine{}, err
	}
	if err := s.store.Delete(ctx, anchorKey(owner, id), 0); err != nil {
		return machine{}, err
	}
	m, err := change(ctx, s.store, machineKey(owner, id), func(r *stored[machine]) error {
		if r.revision != 0 && !grant.At.After(r.value.ApprovedAt) {
			return errUnchanged
		}
		r.value = machine{ID: id, Name: name, Display: grant.Display, Board: grant.Board,
			Approval: grant.Ceiling, ApprovedAt: grant.At}
		return nil
	})
	if err != nil {
		return machine{}, err
	}
	if known {
		if was.value.Name != m.Name {
			if err := s.dropName(ctx, owner, was.value.Name, id); err != nil {
				return machine{}, err
			}
		}
		s.sockets().ApprovalChanged(ctx, owner, id)
	}
	return m, nil
}

// approvalTime is the time of an approval made now: later than the one that
// holds, even if the relay's clock was set back since.
func (s *Server) approvalTime(ctx context.Context, owner, id string) (time.Time, error) {
	at := now()
	if id == "" {
		return at, nil
	}
	m, err := load[machine](ctx, s.store, machineKey(owner, id))
	if errors.Is(err, store.ErrNotFound) {
		return at, nil
	}
	return after(m.value.ApprovedAt, at), err
}

// after is at, or just after last if that isn't earlier.
func after(last, at time.Time) time.Time {
	if at.After(last) {
		return at
	}
	return last.Add(time.Nanosecond)
}

// setApproval changes what an owner allows on a machine: only if its approval is
// of this revision, unless that is empty. It returns once the change counts on
// every live session.
func (s *Server) setApproval(ctx context.Context, who Event, id string, c wire.Ceiling, only string) error {
	who.Op, who.Machine = OpApprovalChanged, id
	if err := s.intend(who); err != nil {
		return err
	}
	_, err := change(ctx, s.store, machineKey(who.Owner, id), func(r *stored[machine]) error {
		if r.revision == 0 {
			return access.ErrNotFound
		}
		if is := revision(r.value.ApprovedAt); only != "" && only != is {
			e := apiErrorf(http.StatusPreconditionFailed, codeConflict, "the approval was changed meanwhile: look at it again")
			e.fail.With("revision", is)
			return e
		}
		r.value.Approval, r.value.ApprovedAt = c, after(r.value.ApprovedAt, now())
		return nil
	})
	if err != nil {
		return err
	}
	s.sockets().ApprovalChanged(ctx, who.Owner, id)
	return nil
}

// removeMachine revokes everything that a machine has and forgets it. It may
// be repeated after a failure.
func (s *Server) removeMachine(ctx context.Context, who Event, m access.Machine) error {
	who.Op, who.Machine = OpMachineRemoved, m.ID
	if err := s.intend(who); err != nil {
		return err
	}
	if err := s.withdraw(ctx, who.Owner, m.ID); err != nil {
		return err
	}
	families, err := list[family](ctx, s.store, store.Prefix("o", who.Owner, "family"))
	if err != nil {
		return err
	}
	for _, f := range families {
		if f.MachineID != m.ID || f.Revoked != nil {
			continue
		}
		if err := s.revokeFamily(ctx, who.Owner, f.ID, "the owner removed the machine"); err != nil {
			return err
		}
	}
	s.sockets().RevokeMachine(who.Owner, m.ID)
	if err := s.forgetLabels(ctx, who.Owner, m.ID); err != nil {
		return err
	}
	for _, key := range []string{seenKey(who.Owner, m.ID), anchorKey(who.Owner, m.ID), machineKey(who.Owner, m.ID)} {
		if err := s.store.Delete(ctx, key, 0); err != nil {
			return err
		}
	}
	return s.dropName(ctx, who.Owner, m.Name, m.ID)
}

// withdraw denies what was approved for a machine and not fetched yet.
func (s *Server) withdraw(ctx context.Context, owner, machineID string) error {
	waiting, err := list[pending](ctx, s.store, store.Prefix("pending"))
	if err != nil {
		return err
	}
	theirs := func(p pending) bool {
		return p.State == stateApproved && p.Owner == owner && p.MachineID == machineID
	}
	for _, p := range waiting {
		if !theirs(p) {
			continue
		}
		_, err := change(ctx, s.store, pendingKey(p.CodeMAC[:2*idSize]), func(r *stored[pending]) error {
			if r.revision == 0 || !theirs(r.value) {
				return errUnchanged
			}
			r.value.State = stateDenied
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Machine implements access.Authority.
func (s *Server) Machine(ctx context.Context, owner, id string) (access.Machine, error) {
	m, err := load[machine](ctx, s.store, machineKey(owner, id))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		return access.Machine{}, access.ErrNotFound
	}
	if err != nil {
		return access.Machine{}, err
	}
	out := m.value.public(owner)
	preferred, err := s.defaultOf(ctx, owner)
	if err != nil {
		return access.Machine{}, err
	}
	out.Default = id == preferred
	if out.Labels, err = s.labelsOf(ctx, owner, id); err != nil {
		return access.Machine{}, err
	}
	last, err := load[seen](ctx, s.store, seenKey(owner, id))
	switch {
	case err == nil:
		out.LastSeen, out.Hello, out.Started = last.value.At, &last.value.Hello, last.value.Started
	case !errors.Is(err, store.ErrNotFound):
		return access.Machine{}, err
	}
	anchor, err := load[wire.Anchor](ctx, s.store, anchorKey(owner, id))
	switch {
	case err == nil:
		out.Anchor = &anchor.value
	case !errors.Is(err, store.ErrNotFound):
		return access.Machine{}, err
	}
	return out, nil
}

// Machines implements access.Authority. The machines come in the order of
// their ids.
func (s *Server) Machines(ctx context.Context, owner string) ([]access.Machine, error) {
	ms, err := list[machine](ctx, s.store, store.Prefix("o", owner, "machine"))
	if err != nil {
		return nil, err
	}
	lasts, err := byKey[seen](ctx, s.store, store.Prefix("o", owner, "seen"))
	if err != nil {
		return nil, err
	}
	anchors, err := byKey[wire.Anchor](ctx, s.store, store.Prefix("o", owner, "anchor"))
	if err != nil {
		return nil, err
	}
	labelled, err := byKey[labelSet](ctx, s.store, store.Prefix("o", owner, "labels"))
	if err != nil {
		return nil, err
	}
	preferred, err := s.defaultOf(ctx, owner)
	if err != nil {
		return nil, err
	}
	out := make([]access.Machine, len(ms))
	for i, m := range ms {
		out[i] = m.public(owner)
		out[i].Default = m.ID == preferred
		if l, ok := labelled[labelsKey(owner, m.ID)]; ok {
			out[i].Labels = l.Labels
		}
		if last, ok := lasts[seenKey(owner, m.ID)]; ok {
			out[i].LastSeen, out[i].Hello, out[i].Started = last.At, &last.Hello, last.Started
		}
		if anchor, ok := anchors[anchorKey(owner, m.ID)]; ok {
			out[i].Anchor = anchor
		}
	}
	return out, nil
}

func (m machine) public(owner string) access.Machine {
	return access.Machine{ID: m.ID, Owner: owner, Name: m.Name, Board: m.Board,
		Approval: m.Approval, ApprovedAt: m.ApprovedAt}
}

// Bind implements access.Authority.
func (s *Server) Bind(ctx context.Context, d access.Device, machineID string) error {
	if !validMachineID(machineID) {
		return access.ErrUnauthorized
	}
	bound := false
	fam, err := s.changeFamily(ctx, d.Owner, d.Family, func(f *family) error {
		bound = false
		switch {
		case f.Revoked != nil:
			return access.ErrUnauthorized
		case f.MachineID == machineID:
			return errUnchanged
		case f.MachineID != "":
			return access.ErrUnauthorized
		}
		if elsewhere, err := s.belongsElsewhere(ctx, d.Owner, machineID); err != nil || elsewhere {
			return errors.Join(err, access.ErrUnauthorized)
		}
		f.MachineID, bound = machineID, true
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return access.ErrUnauthorized
	}
	if err != nil {
		return err
	}
	if bound {
		s.record(Event{Op: OpMachineBound, Owner: d.Owner, Machine: machineID, Family: d.Family})
	}
	_, err = s.admit(ctx, d.Owner, machineID, fam.Grant)
	return err
}

// belongsElsewhere says whether another owner has the machine.
func (s *Server) belongsElsewhere(ctx context.Context, owner, machineID string) (bool, error) {
	accounts, err := list[account](ctx, s.store, store.Prefix("account"))
	if err != nil {
		return false, err
	}
	for _, a := range accounts {
		if a.Owner == owner {
			continue
		}
		_, err := s.store.Get(ctx, machineKey(a.Owner, machineID))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

// Seen implements access.Authority.
func (s *Server) Seen(ctx context.Context, owner, machineID string, hello wire.Hello) error {
	if _, err := s.store.Get(ctx, machineKey(owner, machineID)); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return access.ErrNotFound
		}
		return err
	}
	_, err := change(ctx, s.store, seenKey(owner, machineID), func(r *stored[seen]) error {
		at := now()
		started := r.value.Started
		if started.IsZero() || hello.BootID == "" || hello.BootID != r.value.Hello.BootID {
			started = at
		}
		r.value = seen{At: at, Hello: hello, Started: started}
		return nil
	})
	return err
}

// Left implements access.Authority.
func (s *Server) Left(ctx context.Context, owner, machineID string) error {
	_, err := change(ctx, s.store, seenKey(owner, machineID), func(r *stored[seen]) error {
		if r.revision == 0 { // it never said HELLO, or was shut out
			return errUnchanged
		}
		r.value.At = now()
		return nil
	})
	return err
}

// Anchored implements access.Authority.
func (s *Server) Anchored(ctx context.Context, owner, machineID string, a wire.Anchor) (wire.Anchor, error) {
	highest, err := change(ctx, s.store, anchorKey(owner, machineID), func(r *stored[wire.Anchor]) error {
		if r.revision != 0 && a.Seq <= r.value.Seq {
			return errUnchanged
		}
		r.value = a
		return nil
	})
	if err != nil {
		return wire.Anchor{}, err
	}
	if a.Seq == highest.Seq && a.HMAC != highest.HMAC {
		s.record(Event{Op: OpAnchorDiffers, Owner: owner, Machine: machineID, Refused: true})
		return highest, fmt.Errorf("audit record %d of machine %s has another hmac than before", a.Seq, machineID)
	}
	return highest, nil
}
