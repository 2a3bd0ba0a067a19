package route

import (
	"fmt"
	"testing"

	"farhand/relay/access"
	"farhand/wire"
)

// spanned is a session over three machines: lab and shed take files, and loft
// commands alone.
func spanned(t *testing.T) (b *bench, id string, robots map[string]*robot) {
	b = start(t)
	robots = map[string]*robot{"lab": b.robot(wire.Files), "shed": b.another("shed", wire.Files), "loft": b.another("loft", wire.Shell)}
	for name, r := range robots {
		r.onData = func(p *peer, env wire.Envelope) {
			m, _ := wire.MethodOf(env.Type)
			p.send(wire.Message{Type: m.Response, ID: env.ID, Payload: map[string]any{"path": name}})
		}
		r.connect()
	}
	id = b.openSession(opTok, map[string]any{"machine": "lab", "span": true})
	for _, name := range []string{"shed", "loft"} {
		status, out := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": name, "session_id": id})
		if status != 200 || out["session_id"] != id || out["machine_name"] != name || out["created"] != true {
			t.Fatalf("%s: %d %v", name, status, out)
		}
	}
	return b, id, robots
}

// stat asks for something that lab and shed can, and says who answered.
func (p *peer) stat(session, id, target string) string {
	p.t.Helper()
	p.send(wire.Message{Type: wire.TFileStat, ID: id, SessionID: session, TargetMachine: target, Payload: wire.FileStat{Path: "x"}})
	env := p.want(wire.TFileStatResponse)
	var s struct{ Path string }
	if err := wire.Decode(env.Payload, &s); err != nil || env.ID != id || env.SessionID != session {
		p.t.Errorf("%+v, %v", env, err)
	}
	if want := map[string]string{"lab": machID, "shed": "shed-id", "loft": "loft-id"}[s.Path]; env.TargetMachine != want {
		p.t.Errorf("%s answers as %q, want %q", s.Path, env.TargetMachine, want)
	}
	return s.Path
}

// The router's precedence: the machine that is named, then those that may do it,
// of them the owner's default, then one after the other.
func TestRouter(t *testing.T) {
	b, id, robots := spanned(t)
	op := b.operator(opTok)
	for i, c := range []struct{ target, want string }{{"shed", "shed"}, {"lab", "lab"}, {"sh", "shed"}, {"shed-id", "shed"}, {machID, "lab"}} {
		if got := op.stat(id, fmt.Sprint("named", i), c.target); got != c.want {
			t.Errorf("%s went to %s", c.target, got)
		}
	}
	// loft can't: the other two take turns.
	turns := map[string]int{}
	for i := range 6 {
		turns[op.stat(id, fmt.Sprint("turn", i), "")]++
	}
	if turns["lab"] != 3 || turns["shed"] != 3 {
		t.Errorf("turns: %v", turns)
	}
	// What only one can goes there.
	op.send(wire.Message{Type: wire.TExecuteCommand, ID: "c", SessionID: id, Payload: wire.ExecuteCommand{Argv: []string{"true"}}})
	if env := op.want(wire.TCommandResult); env.TargetMachine != "loft-id" {
		t.Errorf("a command went to %q", env.TargetMachine)
	}
	b.auth.mu.Lock()
	m := b.auth.machines["shed-id"]
	m.Default = true
	b.auth.machines["shed-id"] = m
	b.auth.mu.Unlock()
	for i := range 3 {
		if got := op.stat(id, fmt.Sprint("default", i), ""); got != "shed" {
			t.Errorf("the default machine is shed, and it went to %s", got)
		}
	}
	if got := op.stat(id, "over", "lab"); got != "lab" {
		t.Errorf("a name counts over the default: %s", got)
	}

	// Never a substitute.
	b.another("barn", wire.Files).connect()
	for target, code := range map[string]wire.Code{"barn": wire.MachineNotAttached, "nowhere": wire.MachineNotAttached, "l": wire.MachineAmbiguous} {
		op.send(wire.Message{Type: wire.TFileStat, ID: "no" + target, SessionID: id, TargetMachine: target, Payload: wire.FileStat{Path: "x"}})
		if e := op.wantError("no" + target); e.Code != code || code == wire.MachineAmbiguous && len(e.Details["candidates"].([]any)) != 2 {
			t.Errorf("%s: %+v", target, e)
		}
	}
	// A machine that has gone is named in vain, and not chosen.
	robots["shed"].stop()
	until(t, "shed is offline", func() bool { return !b.srv.Online(owner, "shed-id") })
	if got := op.stat(id, "rest", ""); got != "lab" {
		t.Errorf("it went to %s", got)
	}
	op.send(wire.Message{Type: wire.TFileStat, ID: "gone", SessionID: id, TargetMachine: "shed", Payload: wire.FileStat{Path: "x"}})
	if e := op.wantError("gone"); e.Code != wire.MachineUnreachable {
		t.Errorf("%+v", e)
	}
}

// A session that spans machines is one to its holder: it outlives a restart of the
// relay, ends as a whole, and is nobody else's.
func TestSpanIsOneSession(t *testing.T) {
	b, id, robots := spanned(t)
	if got := b.openSession(opTok, map[string]any{"machine": "lab"}); got == id {
		t.Error("a session for one machine is one that spans several")
	}
	if _, out := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": "shed", "session_id": id}); out["created"] != false {
		t.Errorf("joined twice: %v", out)
	}
	plain := b.openSession(opTok, map[string]any{"machine": "shed"})
	if status, code := b.apiCode("POST", "/api/sessions", opTok, map[string]any{"machine": "lab", "session_id": plain}); status != 400 || code != wire.InvalidArgument {
		t.Errorf("joining a session of one machine: %d %s", status, code)
	}
	b.auth.mu.Lock()
	b.auth.operators["other"] = access.Operator{Owner: owner, Holder: "t_other", Ceiling: &wire.Ceiling{}}
	b.auth.mu.Unlock()
	if status, code := b.apiCode("POST", "/api/sessions", "other", map[string]any{"machine": "lab", "session_id": id}); status != 404 || code != wire.SessionNotFound {
		t.Errorf("joining somebody else's: %d %s", status, code)
	}
	b.restart()
	for _, r := range robots {
		r.stop()
		r.dropData(id)
		r.connect()
	}
	op := b.operator(opTok)
	if a, c := op.stat(id, "1", "shed"), op.stat(id, "2", "lab"); a != "shed" || c != "lab" {
		t.Errorf("after a restart: %s and %s", a, c)
	}
	if status, _ := b.api("DELETE", "/api/sessions/"+id, opTok, nil); status != 200 {
		t.Fatalf("not ended: %d", status)
	}
	for name, r := range robots {
		r.await("detach " + id)
		r.mu.Lock()
		if r.bound[id].SessionID != "" {
			t.Errorf("%s still has it", name)
		}
		r.mu.Unlock()
	}
	records, err := b.srv.listRecords(t.Context(), owner)
	if err != nil || len(records) != 2 {
		t.Errorf("left: %+v, %v", records, err)
	}
}

// The list is of the session's machines, or of all that a token may use, as they
// say now and, where they are offline, as they said last.
func TestMachineList(t *testing.T) {
	b := start(t)
	lab := b.robot(wire.Files, wire.Machines)
	lab.onControl = func(p *peer, env wire.Envelope) bool {
		if env.Type != wire.TMachineListRequest {
			return false
		}
		p.send(wire.Message{Type: wire.TMachineListResponse, ID: env.ID, Payload: wire.MachineSnapshot{MachineID: machID, Hostname: "as it says now",
			HardwareDevices: []wire.HardwareDevice{{Type: "gpio", ID: "gpio:x"}, {Type: "i2c", ID: "i2c:1"}}}})
		return true
	}
	lab.connect()
	b.another("shed", wire.Files).connect() // can't be asked
	b.another("barn")                       // was never there
	id := b.openSession(opTok, map[string]any{"machine": "lab", "span": true})
	op := b.operator(opTok)
	list := func(p *peer, session, id string) map[string]wire.ListedMachine {
		t.Helper()
		p.request(session, id, wire.TMachineListRequest, struct{}{})
		env := p.want(wire.TMachineListResponse)
		var l wire.MachineList
		if err := wire.Decode(env.Payload, &l); err != nil || env.ID != id || env.SessionID != session {
			t.Fatalf("%+v, %v", env, err)
		}
		byName := make(map[string]wire.ListedMachine)
		for _, m := range l.Machines {
			byName[m.Name] = m
		}
		return byName
	}
	all := list(op, "", "1")
	if len(all) != 3 || all["lab"].Hostname != "as it says now" || !all["lab"].Online || all["lab"].LastActive == nil ||
		!all["shed"].Online || all["barn"].Online || all["barn"].LastActive != nil {
		t.Errorf("%+v", all)
	}
	if in := list(op, id, "2"); len(in) != 1 || in["lab"].MachineID != machID {
		t.Errorf("in the session: %+v", in)
	}
	b.auth.mu.Lock()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Holder: "t_agent", Machines: &[]string{machID},
		Ceiling: &wire.Ceiling{Devices: &[]wire.DeviceGrant{{Pattern: "gpio:*"}}}}
	b.auth.mu.Unlock()
	agent := b.operator("agent")
	if mine := list(agent, "", "1"); len(mine) != 1 || len(mine["lab"].HardwareDevices) != 1 {
		t.Errorf("a token sees %+v", mine)
	}
	agent.request(id, "2", wire.TMachineListRequest, struct{}{})
	if e := agent.wantError("2"); e.Code != wire.SessionNotFound {
		t.Errorf("%+v", e)
	}
}

// A session may span machines of several instances, and each instance routes alike,
// also what joined elsewhere.
func TestSpanAcrossInstances(t *testing.T) {
	all := startCluster(t, 3)
	for i, name := range []string{"lab", "shed"} {
		r := all[i].robot(wire.Files)
		if name == "shed" {
			r = all[i].another(name, wire.Files)
		}
		r.onData = func(p *peer, env wire.Envelope) {
			p.send(wire.Message{Type: wire.TFileStatResponse, ID: env.ID, Payload: map[string]any{"path": name}})
		}
		r.connect()
	}
	for _, b := range all {
		until(t, "both are known", func() bool { return b.srv.Online(owner, machID) && b.srv.Online(owner, "shed-id") })
	}
	id := all[2].openSession(opTok, map[string]any{"machine": "lab", "span": true})
	ops := make([]*peer, len(all))
	for i, b := range all {
		ops[i] = b.operator(opTok)
		if got := ops[i].stat(id, "alone", ""); got != "lab" { // so that each has read what the session consists of
			t.Errorf("instance %d: %s", i, got)
		}
	}
	if status, out := all[0].api("POST", "/api/sessions", opTok, map[string]any{"machine": "shed", "session_id": id}); status != 200 || out["created"] != true {
		t.Fatalf("%d %v", status, out)
	}
	for i, b := range all {
		until(t, "the part is known", func() bool {
			first, err := b.srv.session(t.Context(), owner, id)
			if err != nil {
				return false
			}
			parts, err := b.srv.parts(t.Context(), first)
			return err == nil && len(parts) == 2
		})
		if a, c := ops[i].stat(id, "1", "lab"), ops[i].stat(id, "2", "shed"); a != "lab" || c != "shed" {
			t.Errorf("instance %d: %s and %s", i, a, c)
		}
		turns := map[string]int{}
		for n := range 4 {
			turns[ops[i].stat(id, fmt.Sprint("turn", n), "")]++
		}
		if turns["lab"] != 2 || turns["shed"] != 2 {
			t.Errorf("instance %d: turns %v", i, turns)
		}
	}
	if status, _ := all[2].api("DELETE", "/api/sessions/"+id, opTok, nil); status != 200 {
		t.Errorf("not ended: %d", status)
	}
	for _, b := range all {
		until(t, "it is gone", func() bool {
			_, err := b.srv.session(t.Context(), owner, id)
			return err != nil
		})
	}
}
