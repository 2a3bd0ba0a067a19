package route

import (
	"testing"

	"farhand/relay/access"
	"farhand/wire"
)

// Settings are asked for and changed for the owner's own login alone, and the
// device is told for whom.
func TestSettings(t *testing.T) {
	b := start(t)
	r := b.robot(wire.SettingsCapability, wire.Files)
	asked := make(chan wire.Caller, 8)
	r.onControl = func(p *peer, env wire.Envelope) bool {
		var q wire.SettingsSet
		if env.Type != wire.TSettingsGet && env.Type != wire.TSettingsSet {
			return false
		}
		_ = wire.Decode(env.Payload, &q)
		asked <- q.Caller
		s := wire.Settings{Hostname: "shed"}
		if q.Change.Hostname != nil {
			s.Hostname = *q.Change.Hostname
		}
		p.send(wire.Message{Type: wire.TSettings, ID: env.ID, Payload: s})
		return true
	}
	r.connect()
	const path = "/api/machines/lab/settings"
	if status, out := b.api("GET", path, opTok, nil); status != 200 || out["hostname"] != "shed" {
		t.Errorf("%d %v", status, out)
	}
	if c := recv(t, asked); c.Owner != owner || c.Holder != holder || !c.OwnLogin {
		t.Errorf("asked for %+v", c)
	}
	if status, out := b.api("PATCH", path, opTok, map[string]any{"hostname": "barn"}); status != 200 || out["hostname"] != "barn" {
		t.Errorf("%d %v", status, out)
	}
	recv(t, asked)

	b.auth.mu.Lock()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Holder: "t_agent", Ceiling: &wire.Ceiling{}}
	b.auth.mu.Unlock()
	for _, method := range []string{"GET", "PATCH"} {
		if status, code := b.apiCode(method, path, "agent", map[string]any{"hostname": "mine"}); status != 403 || code != codeLoginRequired {
			t.Errorf("%s with a token: %d %s", method, status, code)
		}
	}
	// Nor does an operator's own frame get there, whoever it says it is.
	op := b.operator(opTok)
	op.send(wire.Message{Type: wire.TSettingsSet, ID: "1", TargetMachine: "lab", Payload: wire.SettingsSet{Caller: wire.Caller{Owner: owner, Holder: holder, OwnLogin: true}}})
	if e := op.wantError("1"); e.Code != wire.FeatureNotSupported {
		t.Errorf("%+v", e)
	}
	if len(asked) > 0 {
		t.Errorf("the device was asked for %+v", <-asked)
	}
}
