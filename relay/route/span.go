package route

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"farhand/relay/access"
	"farhand/wire"
)

// A session that spans machines is one that others joined: its id stands for a
// session on each of them, with a record, a root and a data socket of its own, all
// of one holder. The machine that it began on is the first. Which machine a
// request of it is for, its target_machine says, or the router decides.

// maxSpan is how many machines one session spans at most.
const maxSpan = 16

// key tells the records of one session apart. No session's id has an "@" in it.
func (r record) key() string {
	if r.Joined {
		return memberKey(r.ID, r.Machine)
	}
	return r.ID
}

func memberKey(id, machine string) string { return id + "@" + machine }

// sessionOn is the part of a session that is on a machine.
func (s *Server) sessionOn(ctx context.Context, owner, id, machine string) (*session, error) {
	ses, err := s.session(ctx, owner, id)
	if err != nil || ses.rec.Machine == machine {
		return ses, err
	}
	return s.session(ctx, owner, memberKey(id, machine))
}

// parts are what a session consists of, the first one first.
func (s *Server) parts(ctx context.Context, first *session) ([]*session, error) {
	if !first.rec.Span {
		return []*session{first}, nil
	}
	first.mu.Lock()
	joined, reread := first.joined, first.reread
	first.mu.Unlock()
	if joined == nil {
		records, err := s.listRecords(ctx, first.rec.Owner)
		if err != nil {
			return nil, err
		}
		joined = []*session{}
		for _, r := range records {
			if r.Joined && r.ID == first.rec.ID && r.Holder == first.rec.Holder {
				joined = append(joined, s.adopt(r))
			}
		}
		slices.SortStableFunc(joined, func(a, b *session) int { return a.rec.Created.Compare(b.rec.Created) })
		first.mu.Lock()
		if first.joined == nil && first.reread == reread { // nobody was faster, and it is no older than it may be
			first.joined = joined
		}
		first.mu.Unlock()
	}
	return append([]*session{first}, joined...), nil
}

// join adds a part to a session, or with false takes it out. What isn't read yet
// is read with it.
func (ses *session) join(part *session, in bool) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	ses.reread++
	if ses.joined == nil {
		return
	}
	ses.joined = slices.DeleteFunc(slices.Clone(ses.joined), func(x *session) bool { return x.rec.Machine == part.rec.Machine })
	if in {
		ses.joined = append(ses.joined, part)
	}
}

// joinable finds the session that a holder wants to add a machine to.
func (s *Server) joinable(ctx context.Context, op access.Operator, id string) (*session, error) {
	if !isSessionID(id) {
		return nil, noSession(id)
	}
	first, err := s.session(ctx, op.Owner, id)
	switch {
	case errors.Is(err, errNoSession) || err == nil && first.rec.Holder != op.Holder:
		return nil, noSession(id)
	case err != nil:
		return nil, err
	case !first.rec.Span:
		return nil, wire.Errorf(wire.InvalidArgument, "the session was made for one machine: open one with span").With("field", "session_id")
	}
	return first, nil
}

// openJoined opens the part of a session that is on want's machine, or makes it.
func (s *Server) openJoined(ctx context.Context, m *machine, first *session, want record) (*session, bool, error) {
	parts, err := s.parts(ctx, first)
	if err != nil {
		return nil, false, err
	}
	if i := slices.IndexFunc(parts, func(p *session) bool { return p.rec.Machine == want.Machine }); i >= 0 {
		part := parts[i]
		if part.rec.Root != want.Root {
			return nil, false, wire.Errorf(wire.SessionAlreadyActive, "the session is on this machine already, in %s", part.rec.Root).With("allowed_root", part.rec.Root)
		}
		err := part.ensure(ctx)
		if err == nil {
			return part, false, nil
		}
		if !lost(err) || part == first {
			return nil, false, err
		}
		if err := s.end(ctx, part); err != nil {
			return nil, false, err
		}
	} else if len(parts) >= maxSpan {
		return nil, false, wire.Errorf(wire.InvalidArgument, "a session spans %d machines at most", maxSpan).With("field", "session_id")
	}
	want.ID, want.Joined = first.rec.ID, true
	ses, err := s.make(ctx, m, want)
	if err == nil {
		first.join(ses, true)
	}
	return ses, err == nil, err
}

// pick chooses the part of a session that a request goes to: the one that it
// names; else, of those whose machine is there and may do it, the owner's default
// machine, or one after the other.
func (op *operator) pick(env wire.Envelope, method wire.Method, first *session) (*session, *wire.Error) {
	s := op.srv
	parts, err := s.parts(s.ctx, first)
	var all []access.Machine
	if err == nil {
		all, err = s.authority.Machines(s.ctx, op.who.Owner)
	}
	if err != nil {
		s.log.Error("machines of a session not read", "error", err)
		return nil, wire.Errorf(wire.InternalError, "try again later")
	}
	// The machines that the operator may use among those of the session, in its order.
	var members []access.Machine
	for _, p := range parts {
		if i := slices.IndexFunc(all, func(m access.Machine) bool { return m.ID == p.rec.Machine }); i >= 0 && op.who.MayUse(p.rec.Machine) {
			members = append(members, all[i])
		}
	}
	on := func(m access.Machine) *session {
		return parts[slices.IndexFunc(parts, func(p *session) bool { return p.rec.Machine == m.ID })]
	}
	if env.TargetMachine != "" {
		m, err := access.Resolve(members, env.TargetMachine)
		if errors.Is(err, wire.MachineNotAttached) {
			return nil, wire.Errorf(wire.MachineNotAttached, "the session is on no machine %q", cut(env.TargetMachine, wire.MaxMachineID)).
				With("machine", cut(env.TargetMachine, wire.MaxMachineID))
		}
		if err != nil {
			return nil, wire.AsError(err)
		}
		return on(m), nil
	}
	var able []*session
	refused := wire.Errorf(wire.MachineUnreachable, "none of the session's %d machines is connected", len(members))
	for _, m := range members {
		part := on(m)
		part.machine.learn(m)
		if !s.Online(m.Owner, m.ID) {
			if len(members) == 1 {
				refused = part.machine.unreachable()
			}
			continue
		}
		no := part.machine.about(part.ceilings().check(method.Capability))
		if !has(part.offers(m), method.Capability) {
			no = part.machine.notOffered(method)
		}
		if no != nil {
			refused = no
			continue
		}
		if m.Default {
			return part, nil
		}
		able = append(able, part)
	}
	if len(able) == 0 {
		return nil, refused
	}
	turn := first.turn.Add(1) - 1
	return able[int(turn%uint64(len(able)))], nil
}

// offers is what the part's machine offers, as its socket here or its last HELLO
// says.
func (ses *session) offers(m access.Machine) wire.Capabilities {
	if d := cmp.Or(ses.lane.device(), ses.machine.online()); d != nil {
		return d.offered
	}
	if h := ses.machine.srv.Hello(m.Owner, m.ID); h != nil {
		return h.Capabilities
	}
	if m.Hello != nil {
		return m.Hello.Capabilities
	}
	return nil
}

// reread has the parts of a session read again when they are wanted: another
// instance may have changed them.
func (s *Server) reread(owner, key string) {
	id, _, part := strings.Cut(key, "@")
	if !part {
		return
	}
	s.mu.Lock()
	first := s.sessions[sessionRef{owner, id}]
	s.mu.Unlock()
	if first != nil {
		first.mu.Lock()
		first.joined, first.reread = nil, first.reread+1
		first.mu.Unlock()
	}
}
