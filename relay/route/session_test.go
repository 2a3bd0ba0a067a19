package route

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/relay/access"
	"farhand/wire"
)

func TestOpenSession(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files, wire.Shell, wire.HardwareSerial).connect()
	r.roots = []string{homeDir, "/srv"}
	status, out := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": "LAB"})
	if status != 200 || out["created"] != true || out["root"] != homeDir || out["machine_id"] != machID || out["machine_name"] != "lab" {
		t.Fatalf("%d %v", status, out)
	}
	if fmt.Sprint(out["roots"]) != "[map[name:pi path:/home/pi] map[name:srv path:/srv]]" {
		t.Errorf("roots %v", out["roots"])
	}
	if fmt.Sprint(out["capabilities"]) != "[files shell hardware_serial]" {
		t.Errorf("capabilities %v", out["capabilities"])
	}
	id := out["session_id"]
	_, again := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID, "root": homeDir + "/"})
	if again["session_id"] != id || again["created"] != false {
		t.Errorf("not reused: %v", again)
	}
	_, narrow := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID, "capabilities": []string{"files"}})
	if narrow["session_id"] == id || fmt.Sprint(narrow["capabilities"]) != "[files]" {
		t.Errorf("a session with a ceiling of its own: %v", narrow)
	}
	_, deep := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID, "root": homeDir + "/a/deep"})
	if deep["root"] != homeDir+"/a/deep" || deep["session_id"] == id {
		t.Errorf("%v", deep)
	}
	_, second := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID, "root": homeDir + "/b"})
	if second["root"] != homeDir+"/b" {
		t.Errorf("the second page: %v", second)
	}
	_, list := b.api("GET", "/api/sessions", opTok, nil)
	sessions := list["sessions"].([]any)
	if len(sessions) != 4 {
		t.Fatalf("%d sessions", len(sessions))
	}
	for _, s := range sessions {
		s := s.(map[string]any)
		if s["live"] != true || s["machine_name"] != "lab" || s["holder"] != holder {
			t.Errorf("%v", s)
		}
	}
	if status, _ := b.api("DELETE", "/api/sessions/"+id.(string), opTok, nil); status != 200 {
		t.Errorf("DELETE: %d", status)
	}
	r.await("detach " + id.(string))
	if status, code := b.apiCode("DELETE", "/api/sessions/"+id.(string), opTok, nil); status != 404 || code != wire.SessionNotFound {
		t.Errorf("DELETE twice: %d %s", status, code)
	}
}

func TestOpenSessionFailures(t *testing.T) {
	b := start(t)
	b.auth.mu.Lock()
	b.auth.machines["pi-10"] = access.Machine{ID: "pi-10", Owner: owner, Name: "shed"}
	b.auth.operators["bounded"] = access.Operator{Owner: owner, Holder: "hold_b", Machines: &[]string{machID},
		Ceiling: &wire.Ceiling{Roots: &[]string{homeDir + "/a"}}}
	b.auth.operators["nothing"] = access.Operator{Owner: owner, Holder: "hold_n", Machines: &[]string{}, Ceiling: &wire.Ceiling{}}
	b.auth.mu.Unlock()
	if status, code := b.apiCode("POST", "/api/sessions", opTok, map[string]any{"machine": machID}); status != 503 || code != wire.MachineUnreachable {
		t.Errorf("offline: %d %s", status, code)
	}
	r := b.robot(wire.Files).connect()
	for name, c := range map[string]struct {
		token  string
		body   any
		status int
		code   wire.Code
	}{
		"no token":          {"", map[string]any{"machine": machID}, 401, wire.AuthFailed},
		"unknown token":     {"x", map[string]any{"machine": machID}, 401, wire.AuthFailed},
		"unknown machine":   {opTok, map[string]any{"machine": "mars"}, 404, wire.MachineNotAttached},
		"ambiguous":         {opTok, map[string]any{"machine": "pi"}, 409, wire.MachineAmbiguous},
		"token's machines":  {"bounded", map[string]any{"machine": "shed"}, 404, wire.MachineNotAttached},
		"no machines":       {"nothing", map[string]any{"machine": machID}, 404, wire.MachineNotAttached},
		"relative root":     {opTok, map[string]any{"machine": machID, "root": "a"}, 400, wire.InvalidArgument},
		"outside":           {opTok, map[string]any{"machine": machID, "root": "/etc"}, 403, wire.PathOutsideAllowedRoot},
		"sibling prefix":    {opTok, map[string]any{"machine": machID, "root": homeDir + "x"}, 403, wire.PathOutsideAllowedRoot},
		"dots":              {opTok, map[string]any{"machine": machID, "root": homeDir + "/a/../../../etc"}, 403, wire.PathOutsideAllowedRoot},
		"missing":           {opTok, map[string]any{"machine": machID, "root": homeDir + "/none"}, 404, wire.PathNotFound},
		"token's roots":     {"bounded", map[string]any{"machine": machID, "root": homeDir + "/b"}, 403, wire.PathOutsideAllowedRoot},
		"body not JSON":     {opTok, "text", 400, wire.InvalidArgument},
		"body of no object": {opTok, []int{1}, 400, wire.InvalidArgument},
		"body too long":     {opTok, map[string]any{"machine": strings.Repeat("x", maxBody)}, 400, wire.InvalidArgument},
	} {
		if status, code := b.apiCode("POST", "/api/sessions", c.token, c.body); status != c.status || code != c.code {
			t.Errorf("%s: %d %s, want %d %s", name, status, code, c.status, c.code)
		}
	}
	// The default root of a bounded token is the one that it may use.
	if _, out := b.api("POST", "/api/sessions", "bounded", map[string]any{"machine": "lab"}); out["root"] != homeDir+"/a" {
		t.Errorf("default root of a bounded token: %v", out)
	}
	if _, out := b.api("GET", "/api/machines/lab/roots", "bounded", nil); fmt.Sprint(out["roots"]) != "[map[name:a path:/home/pi/a]]" {
		t.Errorf("roots: %v", out)
	}
	_ = r
}

func TestFailedOpeningLeavesNothing(t *testing.T) {
	tim := quick()
	tim.dataSocket = 100 * time.Millisecond
	b := startWith(t, tim)
	r := b.robot(wire.Files).connect()
	for name, spoil := range map[string]func(p *peer, env wire.Envelope) bool{
		"no data socket": nil,
		"activation refused": func(p *peer, env wire.Envelope) bool {
			if env.Type != wire.TActivateSession {
				return false
			}
			p.send(wire.Message{Type: wire.TError, ID: env.ID, Payload: wire.Errorf(wire.RootGrantInvalid, "no")})
			return true
		},
		"another root attached": func(p *peer, env wire.Envelope) bool {
			if env.Type != wire.TAttachSession {
				return false
			}
			var q wire.AttachSession
			_ = wire.Decode(env.Payload, &q)
			p.send(wire.Message{Type: wire.TSessionAttached, ID: env.ID, Payload: wire.SessionBinding{SessionID: q.SessionID,
				AllowedRoot: "/", Fingerprint: strings.Repeat("0", 64), Revision: 1, RootGrant: "g"}})
			return true
		},
		"another session activated": func(p *peer, env wire.Envelope) bool {
			if env.Type != wire.TActivateSession {
				return false
			}
			p.send(wire.Message{Type: wire.TSessionActivated, ID: env.ID, Payload: wire.SessionBinding{SessionID: "x",
				AllowedRoot: homeDir, Fingerprint: strings.Repeat("0f", 32), Revision: 1}})
			return true
		},
	} {
		r.mu.Lock()
		r.onControl, r.noData = spoil, true
		r.mu.Unlock()
		if status, out := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID}); status == 200 {
			t.Errorf("%s: %v", name, out)
		}
		r.mu.Lock()
		left := len(r.bound)
		r.mu.Unlock()
		if left != 0 {
			t.Errorf("%s: the device still holds %d bindings", name, left)
		}
		if _, out := b.api("GET", "/api/sessions", opTok, nil); len(out["sessions"].([]any)) != 0 {
			t.Errorf("%s: %v", name, out)
		}
	}
}

func TestRestoredWhenIdleReaped(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	op := b.operator(opTok)
	for i := range 3 {
		r.await("data")
		r.dropData(id)
		r.await("data closed 1006")
		until(t, "gone", func() bool { return b.srv.sessions[sessionRef{owner, id}].conn() == nil })
		// Several at once bring it back once.
		for k := range 5 {
			op.request(id, fmt.Sprint(i, "-", k), wire.TFileStat, wire.Empty{})
		}
		for k := range 5 {
			if env := op.want(wire.TFileStatResponse); env.ID != fmt.Sprint(i, "-", k) {
				t.Errorf("out of order: %s", env.ID)
			}
		}
	}
	restores := 0
	for _, x := range r.seen {
		if x == wire.TRestoreSession {
			restores++
		}
	}
	if restores != 3 {
		t.Errorf("%d restores, want 3", restores)
	}
}

func TestSessionsSurviveARestart(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID, "root": homeDir + "/a"})
	b.restart()
	r.await("control closed 1012")
	r.await("data closed 1012")
	r.mu.Lock()
	clear(r.data)
	r.mu.Unlock()
	r.connect()
	op := b.operator(opTok)
	op.request(id, "1", wire.TFileStat, wire.Empty{})
	op.want(wire.TFileStatResponse)
	_, again := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID, "root": homeDir + "/a"})
	if again["session_id"] != id || again["created"] != false {
		t.Errorf("%v", again)
	}
}

func TestSessionThatCannotComeBack(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	r.await("data")
	r.mu.Lock()
	delete(r.bound, id) // the device has another mind now
	r.mu.Unlock()
	r.dropData(id)
	r.await("data closed 1006")
	op := b.operator(opTok)
	op.request(id, "1", wire.TFileStat, wire.Empty{})
	if e := op.wantError("1"); e.Code != wire.RootGrantInvalid {
		t.Errorf("%v", e)
	}
	_, out := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID})
	if out["session_id"] == id || out["created"] != true {
		t.Errorf("%v", out)
	}
}

func TestRestoredBindingMustBeIdentical(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	r.await("data")
	r.onControl = func(p *peer, env wire.Envelope) bool {
		if env.Type != wire.TRestoreSession {
			return false
		}
		r.mu.Lock()
		bind := r.bound[id]
		r.mu.Unlock()
		bind.Revision = 2
		p.send(wire.Message{Type: wire.TSessionRestored, ID: env.ID, Payload: bind})
		return true
	}
	r.dropData(id)
	r.await("data closed 1006")
	op := b.operator(opTok)
	op.request(id, "1", wire.TFileStat, wire.Empty{})
	if e := op.wantError("1"); e.Code != wire.RootGrantInvalid {
		t.Errorf("%v", e)
	}
}

func TestConcurrentOpeningsMakeOneSession(t *testing.T) {
	b := start(t)
	b.robot(wire.Files).connect()
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			_, out := b.api("POST", "/api/sessions", opTok, map[string]any{"machine": machID})
			ids[i], _ = out["session_id"].(string)
		})
	}
	wg.Wait()
	slices.Sort(ids)
	if got := slices.Compact(ids); len(got) != 1 || got[0] == "" {
		t.Errorf("%v", got)
	}
}

func TestBrowseReferencePushedOut(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	once := true
	r.onControl = func(p *peer, env wire.Envelope) bool {
		if env.Type != wire.TAttachSession || !once {
			return false
		}
		once = false
		p.send(wire.Message{Type: wire.TError, ID: env.ID, Payload: wire.Errorf(wire.DirectoryReferenceInvalid, "gone")})
		return true
	}
	b.openSession(opTok, map[string]any{"machine": machID})
}

func TestSessionsOfOthers(t *testing.T) {
	b := start(t)
	b.auth.mu.Lock()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Holder: "hold_agent", Ceiling: &wire.Ceiling{}}
	b.auth.operators["stranger"] = access.Operator{Owner: "own_2", Holder: "hold_s", Login: true}
	b.auth.mu.Unlock()
	b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	agents := b.openSession("agent", map[string]any{"machine": machID})
	for _, token := range []string{"agent", "stranger"} {
		op := b.operator(token)
		op.request(id, "1", wire.TFileStat, wire.Empty{})
		if e := op.wantError("1"); e.Code != wire.SessionNotFound {
			t.Errorf("%s: %v", token, e.Code)
		}
		if status, _ := b.api("DELETE", "/api/sessions/"+id, token, nil); status != 404 {
			t.Errorf("%s deletes: %d", token, status)
		}
	}
	count := func(token string) int {
		_, out := b.api("GET", "/api/sessions", token, nil)
		return len(out["sessions"].([]any))
	}
	if count(opTok) != 2 || count("agent") != 1 || count("stranger") != 0 {
		t.Errorf("%d %d %d", count(opTok), count("agent"), count("stranger"))
	}
	// The owner's own login sees all and may end them.
	if status, _ := b.api("DELETE", "/api/sessions/"+agents, opTok, nil); status != 200 {
		t.Errorf("%d", status)
	}
}

func TestGrantsReachTheDevice(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files, wire.Shell, wire.Grants).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	r.await("data")
	caps := []wire.Capability{wire.Files}
	b.auth.approve(wire.Ceiling{Capabilities: &caps})
	b.srv.ApprovalChanged(t.Context(), owner, machID)
	for range 2 {
		select {
		case g := <-r.grants:
			if g.Owner != owner || g.Approval == nil || len(*g.Approval.Capabilities) != 1 {
				t.Errorf("%+v", g)
			}
		case <-time.After(time.Minute):
			t.Fatal("no GRANTS_UPDATE")
		}
	}
	op := b.operator(opTok)
	op.request(id, "1", wire.TExecuteCommand, map[string]any{"argv": []string{"true"}})
	if e := op.wantError("1"); e.Code != wire.CapabilityNotGranted || e.Details["ceiling"] != "approval" || e.Details["capability"] != "shell" {
		t.Errorf("%+v", e)
	}
	op.request(id, "2", wire.TFileStat, wire.Empty{})
	op.want(wire.TFileStatResponse)
}

func TestGrantsNotAcknowledged(t *testing.T) {
	tim := quick()
	tim.control = 200 * time.Millisecond
	b := startWith(t, tim)
	r := b.robot(wire.Files, wire.Grants).connect()
	r.onControl = func(_ *peer, env wire.Envelope) bool { return env.Type == wire.TGrantsUpdate }
	b.srv.ApprovalChanged(t.Context(), owner, machID)
	r.await("control closed 1012")
}

func TestApprovalChangeWithoutGrants(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	b.srv.ApprovalChanged(t.Context(), owner, machID)
	r.await("control closed 1012") // so that it makes a new handshake
}

// What a machine tells of itself is kept while it is online, cleaned, and only
// from the socket that may tell it.
func TestFacts(t *testing.T) {
	b := start(t)
	r := b.robot(wire.MachineFactsCapability).connect()
	r.control.send(wire.Message{Type: wire.TStatus, ID: "s1", Payload: wire.Status{MaxConcurrent: 4,
		Facts: &wire.MachineFacts{ClockState: "saved", MDNSName: "pi\x1b[2J.local", Addresses: slices.Repeat([]string{"192.0.2.7"}, 100)}}})
	until(t, "the facts", func() bool { return b.srv.Facts(owner, machID) != nil })
	if f := b.srv.Facts(owner, machID); f.ClockState != "saved" || f.MDNSName != "pi[2J.local" || len(f.Addresses) != 16 {
		t.Errorf("%+v", f)
	}
	if b.srv.Facts(owner, "nobody") != nil {
		t.Error("a machine that isn't there told something")
	}
	r.control.ws.Close()
	until(t, "the facts", func() bool { return b.srv.Facts(owner, machID) == nil })
}

func TestAuditAnchors(t *testing.T) {
	b := start(t)
	r := b.robot(wire.AuditAnchor).connect()
	status := func(seq int64, hmac string) {
		r.control.send(wire.Message{Type: wire.TStatus, ID: fmt.Sprint("s", seq), Payload: wire.Status{MaxConcurrent: 4,
			AuditAnchor: &wire.Anchor{Seq: seq, HMAC: hmac}}})
	}
	status(7, "aa")
	if a := recv(t, b.auth.anchored); a.Seq != 7 {
		t.Fatalf("%+v", a)
	}
	var verdict wire.AuditVerifyResponse
	r.mu.Lock()
	r.onControl = func(p *peer, env wire.Envelope) bool {
		if env.Type != wire.TAuditVerifyRequest {
			return false
		}
		p.send(wire.Message{Type: wire.TAuditVerifyResponse, ID: env.ID, Payload: verdict})
		return true
	}
	r.mu.Unlock()
	for _, c := range []struct {
		name   string
		v      wire.AuditVerifyResponse
		ok     bool
		anchor float64
	}{
		{"behind", wire.AuditVerifyResponse{OK: true, Seq: 6, HMAC: "99"}, false, 7},
		{"another", wire.AuditVerifyResponse{OK: true, Seq: 7, HMAC: "bb"}, false, 7},
		{"same", wire.AuditVerifyResponse{OK: true, Seq: 7, HMAC: "aa"}, true, 7},
		{"broken", wire.AuditVerifyResponse{OK: false, Seq: 9, HMAC: "cc", Problems: []string{"record 3"}}, false, 7},
		{"ahead", wire.AuditVerifyResponse{OK: true, Seq: 9, HMAC: "cc"}, true, 9},
	} {
		verdict = c.v
		status, out := b.api("POST", "/api/machines/lab/audit/verify", opTok, nil)
		anchor, _ := out["anchor"].(map[string]any)
		if status != 200 || out["ok"] != c.ok || anchor["seq"] != c.anchor || (!c.ok && len(out["problems"].([]any)) == 0) {
			t.Errorf("%s: %d %v", c.name, status, out)
		}
	}
}

func TestVerifyWithoutAnchors(t *testing.T) {
	b := start(t)
	b.robot(wire.Files).connect()
	if status, code := b.apiCode("POST", "/api/machines/lab/audit/verify", opTok, nil); status != 501 || code != wire.FeatureNotSupported {
		t.Errorf("%d %s", status, code)
	}
}

// A device takes eight live sessions. The ninth closes the one used longest ago,
// which comes back when it is wanted.
func TestNinthSession(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	r.tree[homeDir] = []string{"0", "1", "2", "3", "4", "5", "6", "7", "8"}
	r.onControl = func(p *peer, env wire.Envelope) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if t := env.Type; t != wire.TActivateSession && t != wire.TRestoreSession || len(r.data) < maxLive {
			return false
		}
		p.send(wire.Message{Type: wire.TError, ID: env.ID, Payload: wire.Errorf(wire.InternalError, "too many live sessions")})
		return true
	}
	ids := make([]string, maxLive+1)
	for i := range ids {
		ids[i] = b.openSession(opTok, map[string]any{"machine": machID, "root": fmt.Sprint(homeDir, "/", i)})
		b.srv.sessions[sessionRef{owner, ids[i]}].used.Store(int64(i))
		r.await("data")
	}
	r.await("detach " + ids[0])
	r.mu.Lock() // the robot forgets a binding with DETACH, a real device goes by the grant
	r.bound[ids[0]] = b.srv.sessions[sessionRef{owner, ids[0]}].rec.binding()
	r.mu.Unlock()
	op := b.operator(opTok)
	op.request(ids[0], "1", wire.TFileStat, wire.Empty{})
	op.want(wire.TFileStatResponse)
	r.await("detach " + ids[1])
}

func TestSessionsOfOneHolderAreBounded(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	base := record{Owner: owner, Holder: holder, Machine: machID, Root: homeDir, Fingerprint: strings.Repeat("0f", 32), Revision: 1, Grant: "g",
		Session: &wire.Ceiling{}}
	for i := range maxHolderSessions {
		rec := base
		rec.ID = fmt.Sprintf("old-%02d", i)
		rec.LastUsed = time.Unix(int64(1000-i), 0)
		if err := b.srv.createRecord(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	b.openSession(opTok, map[string]any{"machine": machID})
	r.await(fmt.Sprintf("detach old-%02d", maxHolderSessions-1))
	if _, out := b.api("GET", "/api/sessions", opTok, nil); len(out["sessions"].([]any)) != maxHolderSessions {
		t.Errorf("%d sessions", len(out["sessions"].([]any)))
	}
}

// What waits when the approval narrows is not sent any more.
func TestApprovalNarrowsWhileWaiting(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files, wire.Shell, wire.Grants).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	r.await("data")
	arrived := make(chan wire.Envelope, 8)
	r.onData = func(_ *peer, env wire.Envelope) { arrived <- env }
	r.mu.Lock()
	data := r.data[id]
	r.mu.Unlock()
	data.send(wire.Message{Type: wire.TStatus, ID: "s", Payload: wire.Status{MaxConcurrent: 1}})
	until(t, "told", func() bool { return b.srv.sessions[sessionRef{owner, id}].lane.known() == 1 })
	op := b.operator(opTok)
	op.request(id, "first", wire.TFileStat, wire.Empty{})
	first := recv(t, arrived)
	op.request(id, "second", wire.TExecuteCommand, wire.Empty{})
	op.send(wire.Message{Type: wire.TPing, ID: "p"})
	op.want(wire.TPong)
	caps := []wire.Capability{wire.Files}
	b.auth.approve(wire.Ceiling{Capabilities: &caps})
	b.srv.ApprovalChanged(t.Context(), owner, machID)
	recv(t, r.grants)
	recv(t, r.grants)
	echo(data, first)
	got := map[string]wire.Type{}
	for range 2 {
		env, _, err := op.next()
		if err != nil {
			t.Fatal(err)
		}
		got[env.ID] = env.Type
	}
	if got["first"] != wire.TFileStatResponse || got["second"] != wire.TError || len(arrived) != 0 {
		t.Errorf("%v, %d more arrived", got, len(arrived))
	}
}

// What an operator is told to choose from is what he may choose.
func TestVisibleRoots(t *testing.T) {
	offered := []root{{"pi", "/home/pi"}, {"srv", "/srv"}}
	of := func(roots ...string) *wire.Ceiling { return &wire.Ceiling{Roots: &roots} }
	for name, c := range map[string]struct {
		lim  ceilings
		want []root
	}{
		"no bound":        {ceilings{approval: &wire.Ceiling{}}, offered},
		"nothing":         {ceilings{token: of()}, []root{}},
		"a root":          {ceilings{token: of("/srv")}, []root{{"srv", "/srv"}}},
		"above all":       {ceilings{token: of("/")}, offered},
		"below":           {ceilings{token: of("/home/pi/a/", "/home/pi/b")}, []root{{"a", "/home/pi/a"}, {"b", "/home/pi/b"}}},
		"elsewhere":       {ceilings{token: of("/home/pip", "/etc")}, []root{}},
		"the lower wins":  {ceilings{approval: of("/home/pi/a"), token: of("/home/pi")}, []root{{"a", "/home/pi/a"}}},
		"each once":       {ceilings{approval: of("/home/pi/a", "/home/pi/a")}, []root{{"a", "/home/pi/a"}}},
		"with nothing in": {ceilings{approval: of("/home/pi/a"), token: of("/home/pi/b")}, []root{}},
	} {
		got := visible(offered, c.lim)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for _, r := range got {
			if err := c.lim.checkRoot(r.Path); err != nil {
				t.Errorf("%s: %s is listed and refused: %v", name, r.Path, err)
			}
		}
	}
}

// What fails inside the relay is told apart from what a machine answers.
func TestRelayFailure(t *testing.T) {
	w := httptest.NewRecorder()
	(&Server{log: slog.New(slog.DiscardHandler)}).replyError(w, errors.New("disk on fire"))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"UNAVAILABLE"`) || strings.Contains(w.Body.String(), "fire") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
