package oauth

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/relay/access"
	"farhand/relay/store"
	"farhand/wire"
)

func (f *fixture) ownerID(login string) string {
	f.t.Helper()
	op, err := f.s.Operator(f.t.Context(), login)
	if err != nil {
		f.t.Fatal(err)
	}
	return op.Owner
}

// TestDaemonStarted: field case 86, a daemon that was restarted is told from a
// link that was lost, by its boot id.
func TestDaemonStarted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		login := f.owner("ann")
		owner := f.ownerID(login)
		f.paired(login, "pi-1")
		began := time.Now()
		for _, c := range []struct {
			boot    string
			started time.Duration // after the beginning
		}{
			{"one", 0}, {"one", 0}, {"two", 2 * time.Minute}, {"two", 2 * time.Minute}, {"", 4 * time.Minute},
		} {
			if err := f.s.Seen(t.Context(), owner, "pi-1", wire.Hello{MachineID: "pi-1", BootID: c.boot}); err != nil {
				t.Fatal(err)
			}
			a := f.want(f.do(request{method: "GET", path: "/api/machines/pi-1", bearer: login}), 200)
			at, err := time.Parse(time.RFC3339, a.str("daemon_started"))
			if err != nil || !at.Equal(began.Add(c.started)) || c.boot != "" && a.str("boot_id") != c.boot {
				t.Errorf("after %s, boot id %q: %s", time.Since(began), c.boot, a.body)
			}
			pass(time.Minute)
		}
	})
}

// What a machine tells of its network is for its owner alone.
func TestMachineFacts(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	f.paired(login, "pi-1")
	f.paired(login, "online")
	get := func(machine, bearer string) string {
		return f.want(f.do(request{method: "GET", path: "/api/machines/" + machine, bearer: bearer}), 200).body
	}
	if body := get("online", login); !strings.Contains(body, `"facts":{"clock_state":"synchronised","addresses":["192.0.2.7"]}`) {
		t.Errorf("%s", body)
	}
	if body := get("pi-1", login); strings.Contains(body, "facts") {
		t.Errorf("offline: %s", body)
	}
	for _, limits := range []string{`{}`, `{"capabilities":["files"]}`} {
		token := f.want(f.do(request{method: "POST", path: "/api/tokens", bearer: login, json: json.RawMessage(limits)}), 200).str("token")
		if body := get("online", token); strings.Contains(body, "192.0.2.7") {
			t.Errorf("a token with %s reads %s", limits, body)
		}
	}
}

func TestMachineAPI(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	owner := f.ownerID(login)
	acc, _ := f.paired(login, "pi-1")
	f.paired(login, "online")
	hello := wire.Hello{ShimVersion: "1.2", Platform: "linux", Arch: "arm64", DisplayName: "Bench", MachineID: "pi-1",
		Capabilities: wire.Capabilities{"files"}, HardwareDevices: []wire.HardwareDevice{{Type: "gpio", ID: "gpio:x"}}}
	if err := f.s.Seen(t.Context(), owner, "pi-1", hello); err != nil {
		t.Fatal(err)
	}
	if err := f.s.Seen(t.Context(), owner, "nobody", hello); !errors.Is(err, access.ErrNotFound) {
		t.Fatalf("%v", err)
	}
	get := func(path string) answer { return f.do(request{method: "GET", path: path, bearer: login}) }
	a := f.want(get("/api/machines/bench-pi"), 200)
	if a.str("shim_version") != "1.2" || a.str("arch") != "arm64" || a.str("display_name") != "Bench" || a.str("last_seen") == "" ||
		!strings.Contains(a.body, `"devices":[{"type":"gpio"`) || a.json["online"] != false {
		t.Fatalf("%s", a.body)
	}
	// It was there until it left, however long that is after its HELLO.
	before, err := f.s.Machine(t.Context(), owner, "pi-1")
	if err := errors.Join(err, f.s.Left(t.Context(), owner, "pi-1"), f.s.Left(t.Context(), owner, "nobody")); err != nil {
		t.Fatal(err)
	}
	if after, err := f.s.Machine(t.Context(), owner, "pi-1"); err != nil || !after.LastSeen.After(before.LastSeen) || !after.Started.Equal(before.Started) {
		t.Fatalf("%v, then %v, %v", before.LastSeen, after.LastSeen, err)
	}
	// The second machine of the same make has a name of its own.
	if a = f.want(get("/api/machines/online"), 200); a.str("name") != "bench-pi-2" || a.json["online"] != true {
		t.Fatalf("%s", a.body)
	}
	f.sockets.hello = &hello
	if a = f.want(get("/api/machines/online"), 200); a.str("arch") != "arm64" || a.str("last_seen") == "" {
		t.Fatalf("a HELLO that is not kept yet: %s", a.body)
	}
	// A token sees the devices that it reaches, the owner all.
	hello.HardwareDevices = append(hello.HardwareDevices, wire.HardwareDevice{Type: "gpio", ID: "gpio:y"}, wire.HardwareDevice{Type: "serial", ID: "serial:x"})
	for limits, want := range map[string]string{
		`{}`:                                 "gpio:x gpio:y serial:x",
		`{"capabilities":["hardware_gpio"]}`: "gpio:x gpio:y",
		`{"devices":[{"pattern":"*:x"}]}`:    "gpio:x serial:x",
		`{"capabilities":["files"]}`:         "",
		`{"devices":[]}`:                     "",
	} {
		bounded := f.want(f.do(request{method: "POST", path: "/api/tokens", bearer: login, json: json.RawMessage(limits)}), 200).str("token")
		var got struct {
			Devices []struct{ ID string }
		}
		a := f.want(f.do(request{method: "GET", path: "/api/machines/online", bearer: bounded}), 200)
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Fatal(err)
		}
		ids := []string{}
		for _, d := range got.Devices {
			ids = append(ids, d.ID)
		}
		if strings.Join(ids, " ") != want {
			t.Errorf("%s sees %v, want %s", limits, ids, want)
		}
	}
	f.sockets.hello = nil
	f.apiError(get("/api/machines/bench"), 409, "MACHINE_AMBIGUOUS")
	if a = get("/api/machines/bench"); !strings.Contains(a.body, `"candidates":["bench-pi","bench-pi-2"]`) {
		t.Fatalf("%s", a.body)
	}
	f.apiError(get("/api/machines/zzz"), 404, "MACHINE_NOT_ATTACHED")
	f.apiError(get("/api/machines/%3Cb%3E%00"), 404, "MACHINE_NOT_ATTACHED")

	put := func(body any) answer {
		return f.do(request{method: "PUT", path: "/api/machines/pi-1/approval", bearer: login, json: body})
	}
	f.sockets.take()
	a = f.want(put(map[string]any{"capabilities": []string{"shell", "directory_browse"}}), 200)
	if !strings.Contains(a.body, `"approval":{"capabilities":["shell"]}`) {
		t.Fatalf("%s", a.body)
	}
	if calls := f.sockets.take(); !slices.Equal(calls, []string{"approval pi-1"}) {
		t.Fatalf("%v", calls)
	}
	f.apiError(put(map[string]any{"capabilities": []string{"root"}}), 400, "INVALID_ARGUMENT")
	f.apiError(put(map[string]any{"devices": slices.Repeat([]any{map[string]any{"pattern": "x"}}, maxDeviceGrants+1)}), 400, "INVALID_ARGUMENT")

	// An owner's approval wins over what came before it: fetching the tokens
	// again doesn't bring the old one back.
	if _, err := f.s.admit(t.Context(), owner, "pi-1", approved{}); err != nil {
		t.Fatal(err)
	}
	if m, err := f.s.Machine(t.Context(), owner, "pi-1"); err != nil || (*m.Approval.Capabilities)[0] != "shell" {
		t.Fatalf("%+v, %v", m, err)
	}

	dev, err := f.s.Device(t.Context(), acc)
	if err != nil {
		t.Fatal(err)
	}
	f.sockets.take()
	f.want(f.do(request{method: "DELETE", path: "/api/machines/pi-1", bearer: login}), 200)
	if calls := f.sockets.take(); !slices.Contains(calls, "family "+dev.Family) || !slices.Contains(calls, "machine pi-1") {
		t.Fatalf("%v", calls)
	}
	if f.alive(acc) {
		t.Fatal("a removed machine's token lives")
	}
	f.apiError(get("/api/machines/pi-1"), 404, "MACHINE_NOT_ATTACHED")
	user, _ := f.ask("pi-9") // the name is free again
	if a = f.want(f.approve(login, user, "name", "bench-pi"), 200); a.str("name") != "bench-pi" {
		t.Fatalf("%s", a.body)
	}
}

// Approved, removed before the device fetched its tokens: it gets none.
func TestRemoveBeforeFetch(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	user, device := f.ask("pi-1")
	f.want(f.approve(login, user), 200)
	f.want(f.do(request{method: "DELETE", path: "/api/machines/pi-1", bearer: login}), 200)
	f.oauthError(f.poll(device), "access_denied")
	// Fetched, removed, fetched again.
	user, device = f.ask("pi-1")
	f.want(f.approve(login, user), 200)
	f.want(f.poll(device), 200)
	f.want(f.do(request{method: "DELETE", path: "/api/machines/pi-1", bearer: login}), 200)
	f.oauthError(f.poll(device), "access_denied")
}

func TestReapproval(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	owner := f.ownerID(login)
	f.paired(login, "pi-1")
	if _, err := f.s.Anchored(t.Context(), owner, "pi-1", wire.Anchor{Seq: 100, HMAC: "old"}); err != nil {
		t.Fatal(err)
	}
	f.sockets.take()
	user, device := f.ask("pi-1", "board", "Another Board")
	f.want(f.approve(login, user, "capabilities", []string{"shell"}, "name", "renamed"), 200)
	f.want(f.poll(device), 200)
	if calls := f.sockets.take(); !slices.Equal(calls, []string{"approval pi-1"}) {
		t.Fatalf("%v", calls)
	}
	m, err := f.s.Machine(t.Context(), owner, "pi-1")
	if err != nil || m.Name != "renamed" || m.Board != "Another Board" || (*m.Approval.Capabilities)[0] != "shell" || m.Anchor != nil {
		t.Fatalf("%+v, %v", m, err)
	}
	f.paired(login, "pi-2") // "bench-pi" was given back
	if m, err = f.s.Machine(t.Context(), owner, "pi-2"); err != nil || m.Name != "bench-pi" {
		t.Fatalf("%+v, %v", m, err)
	}
}

// An approval holds although the relay's clock was set back since the last one.
func TestClockSetBack(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	owner := f.ownerID(login)
	f.paired(login, "pi-1")
	ahead := now().Add(1000 * time.Hour)
	if _, err := f.s.admit(t.Context(), owner, "pi-1", approved{At: ahead, Ceiling: wire.Ceiling{Capabilities: &[]wire.Capability{}}}); err != nil {
		t.Fatal(err)
	}
	for i, do := range []func(){
		func() {
			user, device := f.ask("pi-1")
			f.want(f.approve(login, user, "capabilities", []string{"files"}), 200)
			f.want(f.poll(device), 200)
		},
		func() {
			f.want(f.do(request{method: "PUT", path: "/api/machines/pi-1/approval", bearer: login, json: map[string]any{"capabilities": []string{"files", "shell"}}}), 200)
		},
		func() {
			a := f.want(f.do(request{method: "POST", path: "/api/claims", bearer: login, json: map[string]any{"capabilities": []string{}}}), 200)
			f.want(f.token("grant_type", grantClaim, "claim_key", a.str("claim_key"), "machine_id", "pi-1"), 200)
		},
	} {
		do()
		m, err := f.s.Machine(t.Context(), owner, "pi-1")
		if want := []int{1, 2, 0}[i]; err != nil || len(*m.Approval.Capabilities) != want || m.ApprovedAt.Before(ahead) {
			t.Fatalf("%d: %+v, %v", i, m, err)
		}
	}
}

func TestNameTakenByAPI(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	user, _ := f.ask("pi-1")
	f.want(f.approve(login, user, "name", "bench"), 200)
	user, _ = f.ask("pi-2")
	f.apiError(f.approve(login, user, "name", "Bench"), 409, "CONFLICT")
	f.apiError(f.approve(login, user, "name", "a/b"), 400, "INVALID_ARGUMENT")
	f.apiError(f.do(request{method: "POST", path: "/api/approvals/" + user, bearer: login, json: map[string]string{"decision": "approve"}}), 400, "INVALID_ARGUMENT")
	f.want(f.approve(login, user, "name", "attic"), 200)
	bob := f.owner("bob") // names are each owner's own
	user, _ = f.ask("pi-3")
	f.want(f.approve(bob, user, "name", "bench"), 200)
}

func TestBindElsewhere(t *testing.T) {
	f := open(t)
	ann, bob := f.owner("ann"), f.owner("bob")
	f.paired(ann, "pi-1")
	user, device := f.ask("") // tells no machine id
	f.want(f.approve(bob, user, "name", "mine"), 200)
	a := f.want(f.poll(device), 200)
	d, err := f.s.Device(t.Context(), a.str("access_token"))
	if err != nil || d.MachineID != "" {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, id := range []string{"pi-1", "", "a b", strings.Repeat("x", 129)} {
		if err := f.s.Bind(t.Context(), d, id); !errors.Is(err, access.ErrUnauthorized) {
			t.Fatalf("Bind(%.10q): %v", id, err)
		}
	}
	var wg sync.WaitGroup
	bound := make(chan string, 8)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		wg.Go(func() {
			if f.s.Bind(t.Context(), d, id) == nil {
				bound <- id
			}
		})
	}
	wg.Wait()
	if len(bound) != 1 {
		t.Fatalf("%d binds won", len(bound))
	}
	id := <-bound
	if d, err = f.s.Device(t.Context(), a.str("access_token")); err != nil || d.MachineID != id {
		t.Fatalf("%+v, %v", d, err)
	}
	ms, err := f.s.Machines(t.Context(), d.Owner)
	if err != nil || len(ms) != 1 || ms[0].ID != id || ms[0].Name != "mine" {
		t.Fatalf("%+v, %v", ms, err)
	}
}

func TestAnchors(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	owner := f.ownerID(login)
	f.paired(login, "pi-1")
	for _, c := range []struct {
		in   wire.Anchor
		want int64
		ok   bool
	}{
		{wire.Anchor{Seq: 5, HMAC: "e"}, 5, true},
		{wire.Anchor{Seq: 5, HMAC: "e"}, 5, true},
		{wire.Anchor{Seq: 3, HMAC: "c"}, 5, true},
		{wire.Anchor{Seq: 5, HMAC: "x"}, 5, false},
		{wire.Anchor{Seq: 9, HMAC: "i"}, 9, true},
	} {
		got, err := f.s.Anchored(t.Context(), owner, "pi-1", c.in)
		if got.Seq != c.want || (err == nil) != c.ok {
			t.Errorf("Anchored(%+v) = %+v, %v", c.in, got, err)
		}
	}
	m, err := f.s.Machine(t.Context(), owner, "pi-1")
	if err != nil || m.Anchor == nil || *m.Anchor != (wire.Anchor{Seq: 9, HMAC: "i"}) {
		t.Fatalf("%+v, %v", m, err)
	}
	if len(f.recorded(OpAnchorDiffers)) != 1 {
		t.Fatal("the difference isn't in the audit log")
	}
}

// What another relay on the same store does is heard of.
func TestCacheHearsOthers(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	acc, refresh := f.paired(login, "pi-1")
	other, err := New(t.Context(), Config{Store: f.store, PublicURL: publicURL, Passphrases: cheap, Log: f.s.log})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 3 {
		if !f.alive(acc) {
			t.Fatal("refused")
		}
	}
	open, _ := parseRefresh(refresh)
	if err := other.revokeFamily(t.Context(), open.owner, open.id, "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other relay's revocation is heard of", func() bool { return !f.alive(acc) })
}

// A look-up that began before a revocation must not be remembered after it.
func TestCacheRace(t *testing.T) {
	f := open(t)
	login := f.owner("ann")
	for range 20 {
		acc, refresh := f.paired(login, "pi-1")
		open, _ := parseRefresh(refresh)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					f.alive(acc)
				}
			})
		}
		wg.Go(func() {
			if err := f.s.revokeFamily(t.Context(), open.owner, open.id, "test"); err != nil {
				t.Error(err)
			}
			if f.alive(acc) {
				t.Error("alive after its revocation")
			}
		})
		wg.Wait()
		if f.alive(acc) {
			t.Fatal("remembered after its revocation")
		}
	}
}

func TestNameOf(t *testing.T) {
	for display, want := range map[string]string{
		"Bench Pi": "bench-pi", "  Küche  (links) ": "küche-links", "": "machine-0123456789ab", "---": "machine-0123456789ab",
		"a/b:c": "a-b-c", strings.Repeat("x", 200): strings.Repeat("x", maxName-4),
	} {
		got := nameOf(display, "0123456789abcdef")
		if got != want || !validName(got) {
			t.Errorf("nameOf(%.20q) = %q, want %q", display, got, want)
		}
	}
	for _, id := range []string{"a", "A:::::::::::::b", "0.-_", strings.Repeat("9", 128)} {
		if got := nameOf("", id); !validName(got) {
			t.Errorf("nameOf of id %q = %q", id, got)
		}
	}
}

var _ store.Store = (*faulty)(nil)

// BenchmarkDevice is what a connecting device costs the authority.
func BenchmarkDevice(b *testing.B) {
	f := open(b)
	access, _ := f.paired(f.owner("ann"), "pi-1")
	for name, forget := range map[string]bool{"cached": false, "stored": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if forget {
					f.s.cache.disable()
				}
				if !f.alive(access) {
					b.Fatal("refused")
				}
			}
		})
	}
}
