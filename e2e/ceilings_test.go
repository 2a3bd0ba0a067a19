package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/client"
	"farhand/wire"
)

// refuses checks that a command is refused by the ceiling of that name.
func (o operator) refuses(ceiling string, code wire.Code, args ...string) {
	o.b.t.Helper()
	exit := 1
	if args[0] == "exec" {
		exit = 255
	}
	if e := o.fails(exit, code, args...); e.Details["ceiling"] != ceiling {
		o.b.t.Errorf("farhand %q is refused with details %v, want the ceiling %s", args, e.Details, ceiling)
	}
}

const (
	psu  = "serial:sim-scpi"
	echo = "serial:sim-echo"
)

// What the device's own configuration doesn't allow, nobody gets.
func TestCeilingConfig(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables = "[hardware]\nallow = [\"serial:sim-[es]*\"]\ndeny = [\"serial:sim-echo\"]\n"
	b.claim(everything)
	b.owner.refuses("config", wire.CapabilityNotGranted, "exec", "--", "true")
	b.sdkApproval(wire.Ceiling{Capabilities: &[]wire.Capability{wire.HardwareSerial}})
	b.owner.refuses("config", wire.CapabilityNotGranted, "exec", "--", "true") // before the approval, which refuses it too
	b.owner.fails(1, wire.HardwareNotFound, "serial", "read", echo)
	b.owner.must("serial", "write", psu, `*CLS\n`)
	list := parse[wire.HardwareListResponse](t, b.owner.must("devices", "--json"))
	if len(list.Devices) != 1 || list.Devices[0].ID != psu {
		t.Errorf("devices lists %+v", list.Devices)
	}
}

// What the owner approved for the machine bounds the owner too.
func TestCeilingApproval(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := filepath.Join(b.root(), "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(b.root(), "outer"), "outer")
	b.write(filepath.Join(sub, "inner"), "inner")
	b.roots = []string{b.root(), sub}
	b.claim("files,hardware_serial", "--device", psu, "--root", sub)
	b.owner.refuses("approval", wire.CapabilityNotGranted, "exec", "--", "true")
	b.owner.refuses("approval", wire.HardwareNotGranted, "serial", "read", echo)
	b.owner.must("serial", "write", psu, `*CLS\n`)
	list := parse[wire.HardwareListResponse](t, b.owner.must("devices", "--json"))
	if len(list.Devices) != 1 || list.Devices[0].ID != psu {
		t.Errorf("devices lists %+v", list.Devices)
	}
	if got := b.owner.must("ls"); got != "inner\n" {
		t.Errorf("ls of the first root that is allowed says %q", got)
	}
	b.owner.refuses("approval", wire.PathOutsideAllowedRoot, "exec", "--root", b.root(), "--", "true")
	b.owner.fails(1, wire.PathOutsideAllowedRoot, "cat", "bench:"+filepath.Join(b.root(), "outer"))
	m := parse[client.Machine](t, b.owner.must("machines", "bench", "--json"))
	if got := fmt.Sprintf("%v %v %v", *m.Approval.Capabilities, *m.Approval.Roots, *m.Approval.Devices); got != fmt.Sprintf("[files hardware_serial] [%s] [{%s <nil> <nil>}]", sub, psu) {
		t.Errorf("the approval is %s", got)
	}
}

// A token gives what it carries and no more.
func TestCeilingToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := filepath.Join(b.root(), "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(b.root(), "outer"), "outer")
	b.write(filepath.Join(sub, "inner"), "inner")
	b.roots = []string{b.root(), sub}
	b.claim("files,shell,hardware_serial")

	t.Run("capability", func(t *testing.T) {
		agent := b.with(b.newToken("files", "--capability", "files"))
		agent.refuses("token", wire.CapabilityNotGranted, "exec", "--", "true")
		agent.refuses("token", wire.CapabilityNotGranted, "serial", "read", psu)
		agent.refuses("token", wire.CapabilityNotGranted, "devices")
		if got := agent.must("cat", ":outer"); got != "outer" {
			t.Errorf("cat says %q", got)
		}
		agent = b.with(b.newToken("exec", "--capability", "shell"))
		agent.must("exec", "--", "true")
		agent.refuses("token", wire.CapabilityNotGranted, "cat", ":outer")
		agent = b.with(b.newToken("nothing", "--capability", ""))
		agent.refuses("token", wire.CapabilityNotGranted, "exec", "--", "true")
		agent.refuses("token", wire.CapabilityNotGranted, "ls")
	})
	t.Run("device", func(t *testing.T) {
		agent := b.with(b.newToken("psu", "--device", "serial:*-scpi"))
		agent.must("serial", "write", psu, `*CLS\n`)
		agent.refuses("token", wire.HardwareNotGranted, "serial", "write", echo, "x")
		b.with(b.newToken("none", "--device", "")).refuses("token", wire.HardwareNotGranted, "serial", "read", psu)
	})
	t.Run("root", func(t *testing.T) {
		agent := b.with(b.newToken("sub", "--root", sub))
		if got := agent.must("ls"); got != "inner\n" {
			t.Errorf("ls says %q", got)
		}
		agent.must("rm", "-f", "bench:"+filepath.Join(sub, "nothing"))
		agent.refuses("token", wire.PathOutsideAllowedRoot, "exec", "--root", b.root(), "--", "true")
		agent.fails(1, wire.PathOutsideAllowedRoot, "cat", "bench:"+filepath.Join(b.root(), "outer"))
		agent.fails(1, wire.PathOutsideAllowedRoot, "cat", ":../outer")
	})
	t.Run("machine", func(t *testing.T) {
		agent := b.with(b.newToken("here", "--machine", "bench"))
		agent.must("exec", "--", "true")
		// --machine "" names none.
		agent = b.with(b.newToken("nowhere", "--machine", ""))
		agent.fails(255, wire.MachineNotAttached, "exec", "bench", "--", "true")
		if got := parse[struct{ Machines []client.Machine }](t, agent.must("machines", "--json")); len(got.Machines) != 0 {
			t.Errorf("machines says %+v", got)
		}
	})
	t.Run("expiry", func(t *testing.T) {
		agent := b.with(b.newToken("soon", "--expires", "10s"))
		agent.must("exec", "--", "true")
		eventually(t, "the end of a token", func() error {
			if r := agent.run("ls"); r.code != 77 || !strings.Contains(r.stderr, "AUTH_FAILED") {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	})
	t.Run("management", func(t *testing.T) {
		agent := b.with(b.newToken("all"))
		for _, args := range [][]string{
			{"token", "create"}, {"token", "list"}, {"claim", "create", "--allow", "files"}, {"claim", "list"}, {"revoke", "bench"}, {"approve", "BCDF-GHJK", "--yes"},
		} {
			agent.fails(77, "LOGIN_REQUIRED", args...)
		}
		me := parse[client.Identity](t, agent.must("whoami", "--json"))
		if me.Login || me.Owner.Name != "ann" {
			t.Errorf("whoami says %+v", me)
		}
		agent.must("exec", "--", "true")
	})
	t.Run("as login", func(t *testing.T) {
		agent := b.operator("agent")
		b.write(filepath.Join(b.dir, "agent.token"), b.newToken("kept", "--capability", "files")+"\n")
		agent.must("login", b.url, "--token-file", filepath.Join(b.dir, "agent.token"))
		if got := agent.must("cat", ":outer"); got != "outer" {
			t.Errorf("cat says %q", got)
		}
		agent.refuses("token", wire.CapabilityNotGranted, "exec", "--", "true")
	})
	t.Run("session", func(t *testing.T) {
		c := b.sdkWith(b.newToken("asks for less"))
		s, err := c.Open(t.Context(), client.Place{Machine: "bench", Capabilities: []wire.Capability{wire.Files, wire.HardwareSerial}, Devices: []wire.DeviceGrant{{Pattern: psu}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Exec(t.Context(), wire.ExecuteCommand{Argv: []string{"true"}})
		wantCeiling(t, err, "session")
		_, err = s.SerialRead(t.Context(), echo, wire.SerialRead{}, false)
		wantRefusal(t, err, wire.HardwareNotGranted, "session")
		if _, err := s.Stat(t.Context(), "outer", true); err != nil {
			t.Error(err)
		}
	})
	t.Run("lowest", func(t *testing.T) {
		agent := b.with(b.newToken("llm", "--capability", "files,hardware_gpio"))
		agent.refuses("token", wire.CapabilityNotGranted, "exec", "--", "true")
		b.sdkApproval(wire.Ceiling{Capabilities: &[]wire.Capability{wire.Files}})
		agent.refuses("approval", wire.CapabilityNotGranted, "exec", "--", "true")
	})
}

func wantCeiling(t *testing.T, err error, ceiling string) {
	t.Helper()
	wantRefusal(t, err, wire.CapabilityNotGranted, ceiling)
}

func wantRefusal(t *testing.T, err error, code wire.Code, ceiling string) {
	t.Helper()
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != code || e.Details["ceiling"] != ceiling {
		t.Errorf("got %v, want %s by the ceiling %s", err, code, ceiling)
	}
}

// sdkApproval has the owner change what the machine is allowed.
func (b *bench) sdkApproval(c wire.Ceiling) {
	b.t.Helper()
	if err := b.sdk().SetApproval(b.t.Context(), "bench", c); err != nil {
		b.t.Fatal(err)
	}
}

// running is a command that runs on the machine until something ends it.
type running struct {
	pid    string
	ended  chan error
	result wire.CommandResult
}

// runLong starts a command that would run for minutes.
func (b *bench) runLong(s *client.Session, name string) *running {
	b.t.Helper()
	file := filepath.Join(b.root(), name)
	r := &running{ended: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	go func() {
		defer cancel()
		var err error
		r.result, err = s.Exec(ctx, wire.ExecuteCommand{Argv: []string{"sh", "-c", `echo $$ > "$0.new"; mv "$0.new" "$0"; sleep 300; sleep 300`, file}, TimeoutSeconds: new(600.0)})
		r.ended <- err
	}()
	b.t.Cleanup(func() {
		cancel()
		if r.pid != "" {
			gone(b.t, r.pid)
		}
	})
	eventually(b.t, "the start of a command", func() error {
		text, err := os.ReadFile(file)
		r.pid = strings.TrimSpace(string(text))
		return err
	})
	return r
}

func (r *running) end(t *testing.T) error {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-r.ended:
		gone(t, r.pid)
		return err
	case <-timer.C:
		t.Fatal("the command goes on")
		return nil
	}
}

// A token that is revoked ends what it does at that moment.
func TestTokenRevoke(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables = strings.Replace(b.tables, "[limits]\n", "[limits]\ncommand_timeout_seconds = 600\n", 1)
	b.claim("files,shell")
	made := parse[client.IssuedToken](t, b.owner.must("token", "create", "--json"))
	c := b.sdkWith(made.Token)
	s, err := c.Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	command := b.runLong(s, "pid")
	b.owner.must("token", "revoke", made.ID)
	if err := command.end(t); err == nil {
		t.Errorf("the command ended with %+v", command.result)
	}
	if _, err := s.Stat(t.Context(), ".", true); !errors.Is(err, wire.AuthFailed) {
		t.Errorf("afterwards: %v", err)
	}
	b.with(made.Token).fails(77, wire.AuthFailed, "ls")
	for _, x := range parse[client.TokenList](t, b.owner.must("token", "list", "--json")).Tokens {
		if x.ID == made.ID {
			t.Error("it is still listed")
		}
	}
	b.owner.must("exec", "--", "true")
}

// A changed approval holds at once, for what runs too.
func TestApprovalChange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables = strings.Replace(b.tables, "[limits]\n", "[limits]\ncommand_timeout_seconds = 600\n", 1)
	b.claim("files,shell,hardware_serial")
	c := b.sdk()
	s, err := c.Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	command := b.runLong(s, "pid")
	if _, err := s.SerialWrite(t.Context(), psu, wire.SerialWrite{Data: []byte("*CLS\n")}, true); err != nil {
		t.Fatal(err)
	}
	b.sdkApproval(wire.Ceiling{Capabilities: &[]wire.Capability{wire.Files, wire.HardwareSerial}, Devices: &[]wire.DeviceGrant{{Pattern: echo}}})
	wantCeiling(t, command.end(t), "approval")
	_, err = s.Exec(t.Context(), wire.ExecuteCommand{Argv: []string{"true"}})
	wantCeiling(t, err, "approval")
	_, err = s.SerialRead(t.Context(), psu, wire.SerialRead{}, false)
	wantRefusal(t, err, wire.HardwareNotGranted, "approval")
	if _, err := s.Stat(t.Context(), ".", true); err != nil {
		t.Errorf("files are still allowed: %v", err)
	}

	b.sdkApproval(wire.Ceiling{Capabilities: &[]wire.Capability{wire.Files, wire.Shell, wire.HardwareSerial}})
	eventually(t, "a command that is allowed again", func() error {
		_, err := s.Exec(t.Context(), wire.ExecuteCommand{Argv: []string{"true"}})
		return err
	})
	// The lease that was held has ended: another holder gets the device.
	agent := b.with(b.newToken("agent"))
	agent.must("serial", "write", psu, `*CLS\n`)
	if id := s.Info().ID; !strings.Contains(b.owner.must("sessions", "--json"), id) {
		t.Errorf("the session %s is gone", id)
	}
	var reasons []string
	for _, x := range b.records() {
		if x.Op == "EXECUTE_COMMAND" && x.Result.ErrorCode != nil {
			reasons = append(reasons, *x.Result.ErrorCode)
		}
	}
	if len(reasons) == 0 || reasons[0] != string(wire.CapabilityNotGranted) {
		t.Errorf("the record has the command end with %v", reasons)
	}
	b.wholeAudit()
}

// A machine that is revoked forgets its login and asks to be paired again.
func TestRevokeMachine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables = strings.Replace(b.tables, "[limits]\n", "[limits]\ncommand_timeout_seconds = 600\n", 1)
	b.claim("files,shell")
	s, err := b.sdk().Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	command := b.runLong(s, "pid")
	kept := parse[map[string]string](t, string(b.read(filepath.Join(b.stateDir(), "tokens.json"))))
	from := b.daemon.out.len()
	b.owner.must("revoke", "bench", "--yes")
	if err := command.end(t); err == nil {
		t.Errorf("the command ended with %+v", command.result)
	}
	if got := parse[struct{ Machines []client.Machine }](t, b.owner.must("machines", "--json")); len(got.Machines) != 0 {
		t.Errorf("machines says %+v", got)
	}
	b.owner.fails(255, wire.MachineNotAttached, "exec", "--", "true")
	b.daemon.await(from, `farhand approve ([A-Z]{4}-[A-Z]{4})`)
	if left := string(b.read(filepath.Join(b.stateDir(), "tokens.json"))); strings.Contains(left, "access_token\"") || strings.Contains(left, kept["refresh_token"]) {
		t.Error("the tokens were kept")
	}
	answer, status := b.token(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {kept["refresh_token"]}, "client_id": {"autogpt-local-executor"}})
	if status != http.StatusBadRequest || !strings.Contains(string(answer), "invalid_grant") {
		t.Errorf("the refresh token is answered with %d %s", status, answer)
	}
	state := parse[struct {
		State   string
		Pairing struct {
			Code string `json:"user_code"`
		}
	}](t, b.mustd("", "status", "--json"))
	if state.State != "pairing" || len(state.Pairing.Code) != 9 {
		t.Errorf("status says %+v", state)
	}

	b.approve(from, "files,shell")
	b.daemon.await(from, `^Online`)
	b.owner.must("exec", "--", "true")
	if _, err := s.Stat(t.Context(), ".", true); err != nil {
		t.Errorf("paired again, a session that was lost isn't made anew: %v", err)
	}
	b.wholeAudit()
}

// A claim key lets one machine in, once, within what was fixed at its making.
func TestClaims(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	redeem := func(key, machine string) (string, int) {
		t.Helper()
		answer, status := b.token(url.Values{
			"grant_type": {"urn:farhand:params:oauth:grant-type:claim"}, "claim_key": {key},
			"client_id": {"autogpt-local-executor"}, "machine_id": {machine}, "display_name": {machine},
		})
		return string(answer), status
	}
	create := func(more ...string) client.IssuedClaim {
		t.Helper()
		return parse[client.IssuedClaim](t, b.owner.must(append([]string{"claim", "create", "--json", "--allow", "files"}, more...)...))
	}
	refused := func(what, key string) {
		t.Helper()
		if answer, status := redeem(key, "other"); status != http.StatusBadRequest || !strings.Contains(answer, `"invalid_grant"`) {
			t.Errorf("%s is answered with %d %s", what, status, answer)
		}
	}

	first := create("--name", "first")
	if life := time.Until(first.ExpiresAt); life < 6*24*time.Hour || life > 7*24*time.Hour {
		t.Errorf("it lives for %s, want 7 days", life)
	}
	answer, status := redeem(first.ClaimKey, "machine-1")
	got := parse[struct {
		Access  string `json:"access_token"`
		Type    string `json:"token_type"`
		Seconds int    `json:"expires_in"`
		Refresh string `json:"refresh_token"`
		Until   string `json:"access_token_expires_at"`
	}](t, answer)
	if status != http.StatusOK || got.Access == "" || got.Refresh == "" || got.Type != "Bearer" || got.Seconds <= 0 || got.Until == "" {
		t.Errorf("the key is answered with %d %s", status, answer)
	}
	refused("the same key again", first.ClaimKey)

	revoked := create()
	b.owner.must("claim", "revoke", revoked.ID)
	refused("a revoked key", revoked.ClaimKey)
	refused("another key", revoked.ClaimKey[:len(revoked.ClaimKey)-4]+"AAAA")
	short := create("--expires", "1s")
	eventually(t, "the end of a key", func() error {
		if time.Now().Before(short.ExpiresAt) {
			return errors.New("it lives")
		}
		return nil
	})
	refused("an expired key", short.ClaimKey)

	claims := parse[struct{ Claims []client.Claim }](t, b.owner.must("claim", "list", "--json")).Claims
	used := 0
	for _, c := range claims {
		if c.ID == first.ID && !c.UsedAt.IsZero() && c.MachineID == "machine-1" {
			used++
		}
	}
	if used != 1 {
		t.Errorf("claim list says %+v", claims)
	}
	m := parse[client.Machine](t, b.owner.must("machines", "first", "--json"))
	if m.ID != "machine-1" || m.Online || fmt.Sprint(*m.Approval.Capabilities) != "[files]" {
		t.Errorf("the machine is %+v", m)
	}
	if text := b.relay.out.String(); strings.Contains(text, first.ClaimKey) || strings.Contains(text, got.Access) || strings.Contains(text, got.Refresh) {
		t.Error("the relay's log has a secret")
	}
}

// Sessions are listed, reused and ended, with what runs in them.
func TestSessions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables = strings.Replace(b.tables, "[limits]\n", "[limits]\ncommand_timeout_seconds = 600\n", 1)
	b.claim("files,shell")
	list := func() []client.SessionInfo {
		t.Helper()
		return parse[struct{ Sessions []client.SessionInfo }](t, b.owner.must("sessions", "--json")).Sessions
	}
	b.owner.must("ls")
	b.owner.must("exec", "--", "true")
	all := list()
	if len(all) != 1 || all[0].Root != b.root() || all[0].MachineName != "bench" || !all[0].Live {
		t.Fatalf("sessions says %+v", all)
	}
	s, err := b.sdk().Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	if o := s.Info(); o.ID != all[0].ID || o.Created || !o.Capabilities.Has(wire.Shell) || len(o.Roots) != 1 {
		t.Errorf("the session is not reused: %+v", o)
	}
	command := b.runLong(s, "pid")
	b.owner.must("sessions", "close", all[0].ID)
	if err := command.end(t); err == nil {
		t.Errorf("the command ended with %+v", command.result)
	}
	b.owner.fails(1, wire.SessionNotFound, "sessions", "close", all[0].ID)
	if all := list(); len(all) != 0 {
		t.Errorf("afterwards sessions says %+v", all)
	}
	// An open session of the SDK is made anew.
	if _, err := s.Stat(t.Context(), ".", true); err != nil || s.Info().ID == all[0].ID {
		t.Errorf("after the end of session %s the next is %s, %v", all[0].ID, s.Info().ID, err)
	}
	ops := make(map[string]int)
	for _, x := range b.records() {
		ops[x.Op]++
	}
	if ops["SESSION_ALLOWED_ROOT_SET"] != 2 || ops["DETACH_SESSION"] != 1 {
		t.Errorf("the record has %v", ops)
	}
}
