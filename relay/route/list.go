package route

import (
	"context"
	"errors"
	"sync"
	"time"

	"farhand/relay/access"
	"farhand/wire"
)

// listMachines answers MACHINE_LIST_REQUEST: the machines of the session that it
// names, or all that the operator may use. Each that is online is asked, and for
// the others stands what they said last.
func (op *operator) listMachines(env wire.Envelope) {
	s := op.srv
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.timing.control)
		defer cancel()
		list, err := op.machineList(ctx, env.SessionID)
		if err != nil {
			op.settle(env, nil, result{err: wire.AsError(err)})
			return
		}
		op.mu.Lock()
		delete(op.waiting, requestRef{env.SessionID, env.ID})
		op.mu.Unlock()
		op.say(env, wire.Message{Type: wire.TMachineListResponse, Payload: list})
	})
}

func (op *operator) machineList(ctx context.Context, id string) (wire.MachineList, error) {
	all, err := op.listed(ctx, id)
	if err != nil {
		return wire.MachineList{}, err
	}
	list := wire.MachineList{Machines: make([]wire.ListedMachine, len(all))}
	var asking sync.WaitGroup
	for i, rec := range all {
		asking.Go(func() { list.Machines[i] = op.snapshot(ctx, rec) })
	}
	asking.Wait()
	return list, nil
}

// listed are the machines of a session, or without one all of the operator's.
func (op *operator) listed(ctx context.Context, id string) ([]access.Machine, error) {
	s := op.srv
	all, err := s.authority.Machines(ctx, op.who.Owner)
	if err != nil {
		return nil, err
	}
	in := func(string) bool { return true }
	if id != "" {
		if !isSessionID(id) {
			return nil, noSession(id)
		}
		first, err := s.session(ctx, op.who.Owner, id)
		if errors.Is(err, errNoSession) || err == nil && first.rec.Holder != op.who.Holder {
			return nil, noSession(id)
		}
		if err != nil {
			return nil, err
		}
		parts, err := s.parts(ctx, first)
		if err != nil {
			return nil, err
		}
		on := make(map[string]bool, len(parts))
		for _, p := range parts {
			on[p.rec.Machine] = true
		}
		in = func(machine string) bool { return on[machine] }
	}
	mine := []access.Machine{}
	for _, m := range all {
		if op.who.MayUse(m.ID) && in(m.ID) {
			mine = append(mine, m)
		}
	}
	return mine, nil
}

// snapshot is how a machine is: as it says now, if it is asked and answers, or as
// its last HELLO said.
func (op *operator) snapshot(ctx context.Context, rec access.Machine) wire.ListedMachine {
	out := wire.ListedMachine{Name: rec.Name, Online: op.srv.Online(rec.Owner, rec.ID)}
	out.MachineID = rec.ID
	heard := rec.LastSeen
	h := rec.Hello
	if fresh := op.srv.Hello(rec.Owner, rec.ID); fresh != nil {
		h = fresh
	}
	if h != nil {
		out.Hostname, out.Platform, out.Arch = h.DisplayName, h.Platform, h.Arch
		out.Capabilities, out.HardwareDevices = h.Capabilities, h.HardwareDevices
	}
	if out.Online {
		heard = time.Now()
		m := op.srv.machine(rec.Owner, rec.ID)
		if d := m.online(); d != nil && d.granted.Has(wire.Machines) {
			var now wire.MachineSnapshot
			body, err := m.call(ctx, wire.TMachineListRequest, wire.MachineListRequest{}, op.srv.timing.control)
			if err == nil && wire.Decode(body, &now) == nil && now.MachineID == rec.ID {
				out.MachineSnapshot = now
			}
		}
	}
	if !heard.IsZero() {
		at := float64(heard.UnixMilli()) / 1000
		out.LastActive = &at
	}
	devices := []wire.HardwareDevice{}
	for _, d := range out.HardwareDevices {
		if c := op.who.Ceiling; c == nil || visibleTo(c, d) {
			devices = append(devices, d)
		}
	}
	out.HardwareDevices = devices
	out.Capabilities = append(wire.Capabilities{}, out.Capabilities...)
	return out
}
