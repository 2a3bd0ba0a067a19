package route

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"farhand/relay/access"
	"farhand/relay/limit"
	"farhand/wire"
)

// acts of an owner as GET /api/audit gives them: "op phase-or-outcome".
func (b *bench) actsOf(token string) []string {
	b.t.Helper()
	status, out := b.api("GET", "/api/audit?limit=1000", token, nil)
	if status != 200 {
		b.t.Fatalf("GET /api/audit: %d %v", status, out)
	}
	var list []string
	for _, r := range out["records"].([]any) {
		r := r.(map[string]any)
		details, result := r["details"].(map[string]any), r["result"].(map[string]any)
		how := "done"
		switch {
		case details["phase"] == "intent":
			how = "intent"
		case result["ok"] != true:
			how = fmt.Sprint(result["error_code"])
		}
		if details["holder"] == nil || details["machine_id"] == nil && how == "done" {
			continue // the log's own
		}
		list = append(list, fmt.Sprint(r["op"], " ", how))
	}
	return list
}

// What an operator asks for is recorded before it is passed on if it changes
// something, and when it has its answer, with who and how and never what.
func TestActs(t *testing.T) {
	b := start(t)
	b.withActs()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Name: "ada", Holder: "hold_agent"}
	b.auth.operators["other"] = access.Operator{Owner: "own_2", Name: "eve", Holder: "h2", Login: true, Manage: true}
	b.restart()
	r := b.robot(wire.Files, wire.Shell)
	passed := make(chan []string, 4)
	r.onData = func(p *peer, env wire.Envelope) {
		if env.Type == wire.TFileWrite {
			passed <- b.actsOf(opTok)
		}
		echo(p, env)
	}
	r.connect()
	id := b.openSession("agent", map[string]any{"machine": "lab"})
	op := b.operator("agent")
	op.request(id, "w", wire.TFileWrite, map[string]any{"path": "hush-hush", "content": "secret"})
	op.want(wire.TAck)
	if before := recv(t, passed); before[len(before)-1] != "FILE_WRITE intent" {
		t.Fatalf("recorded when the device had it: %v", before)
	}
	op.request(id, "s", wire.TFileStat, map[string]any{"path": "hush-hush"})
	op.want(wire.TFileStatResponse)
	op.request(id, "x", wire.THardwareOp, map[string]any{})
	op.wantError("x")
	op.request(id, "y", "secret-type", map[string]any{})
	op.wantError("y")
	want := []string{"SESSION_OPEN intent", "SESSION_OPEN done", "FILE_WRITE intent", "FILE_WRITE done", "FILE_STAT done",
		"HARDWARE_OP CAPABILITY_NOT_GRANTED", "UNKNOWN FEATURE_NOT_SUPPORTED"}
	until(t, "what was asked is recorded", func() bool { return len(b.actsOf(opTok)) >= len(want) })
	// How one ended may stand behind the beginning of the next: the answer doesn't
	// wait for it.
	got := slices.Sorted(slices.Values(b.actsOf(opTok)))
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Fatalf("recorded\n%v, want\n%v", got, want)
	}
	if _, out := b.api("GET", "/api/audit", opTok, nil); strings.Contains(fmt.Sprint(out), "hush") || strings.Contains(fmt.Sprint(out), "secret") {
		t.Fatalf("contents are recorded: %v", out)
	}
	// The owner's own login reads, and only its own.
	if status, code := b.apiCode("GET", "/api/audit", "agent", nil); status != 403 || code != codeLoginRequired {
		t.Fatalf("a token reads: %d %s", status, code)
	}
	if got := b.actsOf("other"); len(got) != 0 {
		t.Fatalf("another owner reads %v", got)
	}
	if status, out := b.api("GET", "/api/audit/verify", opTok, nil); status != 200 || out["ok"] != true || out["records"].(float64) < 7 {
		t.Fatalf("verify: %d %v", status, out)
	}
	for _, bad := range []string{"0", "x", "1001"} {
		if status, _ := b.apiCode("GET", "/api/audit?limit="+bad, opTok, nil); status != 400 {
			t.Fatalf("limit %s: %d", bad, status)
		}
	}
}

// What can't be recorded isn't passed on.
func TestActsFail(t *testing.T) {
	b := start(t)
	b.withActs()
	b.restart()
	r := b.robot(wire.Files)
	r.connect()
	id := b.openSession(opTok, map[string]any{"machine": "lab"})
	if err := b.acts.Close(); err != nil {
		t.Fatal(err)
	}
	passed := make(chan string, 4)
	r.onData = func(p *peer, env wire.Envelope) { passed <- string(env.Type); echo(p, env) }
	op := b.operator(opTok)
	op.request(id, "w", wire.TFileWrite, map[string]any{"path": "x"})
	if e := op.wantError("w"); e.Code != wire.InternalError {
		t.Fatalf("got %v", e)
	}
	op.request(id, "s", wire.TFileStat, map[string]any{"path": "x"})
	op.want(wire.TFileStatResponse)
	if got := recv(t, passed); got != string(wire.TFileStat) {
		t.Fatalf("%s was passed on", got)
	}
}

// Of several instances each records what came to it, and any tells all of it.
func TestClusterActs(t *testing.T) {
	all := startCluster(t, 3)
	for _, b := range all {
		b.withActs()
		b.restart()
	}
	all[0].robot(wire.Files).connect()
	settled(t, all, all[0])
	for _, b := range all {
		id := b.openSession(opTok, map[string]any{"machine": "lab"})
		op := b.operator(opTok)
		op.request(id, "w", wire.TFileWrite, map[string]any{"path": "x"})
		op.want(wire.TAck)
	}
	for _, b := range all {
		until(t, "the acts of all instances are told", func() bool {
			var writes []string
			for _, a := range b.actsOf(opTok) {
				if strings.HasPrefix(a, "FILE_WRITE") {
					writes = append(writes, a)
				}
			}
			return strings.Count(fmt.Sprint(writes), "FILE_WRITE intent") == len(all) && strings.Count(fmt.Sprint(writes), "FILE_WRITE done") == len(all)
		})
		if status, out := b.api("GET", "/api/audit/verify", opTok, nil); status != 200 || out["ok"] != true {
			t.Fatalf("verify: %d %v", status, out)
		}
	}
}

// A request that is one too many is recorded as refused.
func TestActsOfRefused(t *testing.T) {
	b := start(t)
	b.limits = limit.New(limit.Rates{Requests: 0.1}) // one at once
	b.withActs()
	b.restart()
	b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": "lab"})
	op := b.operator(opTok)
	op.request(id, "1", wire.TFileStat, map[string]any{"path": "x"})
	op.want(wire.TFileStatResponse)
	op.request(id, "2", wire.TFileWrite, map[string]any{"path": "x"})
	op.wantError("2")
	until(t, "it is recorded", func() bool {
		return slices.Contains(b.actsOf(opTok), "FILE_WRITE RATE_LIMITED")
	})
}
