package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"farhand/client"
	"farhand/daemon"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// Where the platform offers no device authorisation the daemon says so: in the
// foreground by its exit status, under a service manager by staying up.
func TestLoginNeeded(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.bench()
	b.startDaemon()
	if code := b.daemon.exit(); code != 77 || !strings.Contains(b.daemon.out.String(), "farhandd login") {
		t.Errorf("in the foreground it ends with %d:\n%s", code, b.daemon.out.tail(1000))
	}

	manager := notifySocket(t, b)
	b.startDaemon("NOTIFY_SOCKET=" + manager.path)
	manager.await(t, "READY=1")
	manager.await(t, "STATUS=login_needed")
	s := b.awaitState(daemon.StateLoginNeeded)
	if !strings.Contains(s.Detail, "farhandd login") {
		t.Errorf("status says %q", s.Detail)
	}
	doctor := b.farhandd("", "doctor")
	if doctor.code != 1 || !strings.Contains(doctor.stdout, "login needed") || !strings.Contains(doctor.stdout, "farhandd login") {
		t.Errorf("doctor gives %d\n%s", doctor.code, doctor.stdout)
	}
	// Tokens that come over the local socket are used at once.
	r := b.farhandd("{}", "login", "--tokens", "-")
	if r.code == 0 {
		t.Errorf("an empty login is taken: %+v", r)
	}
	if got := b.mustd(c.file(), "login", "--tokens", "-"); !strings.Contains(got, "connects now") {
		t.Errorf("login says %q", got)
	}
	c.Next()
	b.awaitState(daemon.StateOnline)
	manager.await(t, "STATUS=online")
	info, err := os.Stat(filepath.Join(b.stateDir(), "tokens.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the tokens are kept with %v, %v", info, err)
	}
	b.daemon.stop()
	manager.await(t, "STOPPING=1")
	b.audited()
}

// audited checks the daemon's log alone.
func (b *bench) audited() {
	b.t.Helper()
	if r := b.farhandd("", "audit", "verify"); r.code != 0 {
		b.t.Errorf("farhandd audit verify gives %+v", r)
	}
}

// notifier is a service manager's socket, sd_notify(3).
type notifier struct {
	path string
	said *transcript
}

func notifySocket(t *testing.T, b *bench) *notifier {
	t.Helper()
	n := &notifier{path: filepath.Join(b.dir, "notify"), said: newTranscript()}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: n.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			k, err := conn.Read(buf)
			if err != nil {
				return
			}
			fmt.Fprintf(n.said, "%s\n", buf[:k])
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return n
}

func (n *notifier) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, "a notification of "+text, func() error {
		if said := n.said.String(); !strings.Contains(said, text) {
			return errors.New(said)
		}
		return nil
	})
}

// Trouble of the network and of the platform is no answer: the daemon goes on
// trying, and pairs when the platform is there.
func TestKeepsTrying(t *testing.T) {
	t.Parallel()
	b := bareBench(t) // nothing listens at its address
	b.startDaemon()
	s := b.awaitState(daemon.StatePairing)
	if s.Pairing != nil {
		t.Errorf("status says %+v", s)
	}
	b.daemon.await(0, "connection refused")
	eventually(t, "the reason to be told", func() error { // to whoever stands beside it
		if s := b.awaitState(daemon.StatePairing); !strings.Contains(s.Detail, "trying again: ") || !strings.Contains(s.Detail, "connection refused") {
			return fmt.Errorf("status says %q", s.Detail)
		}
		return nil
	})
	doctor := b.farhandd("", "doctor")
	if doctor.code != 1 || !strings.Contains(doctor.stdout, "start the relay") {
		t.Errorf("doctor gives %d\n%s", doctor.code, doctor.stdout)
	}
	b.startRelay()
	b.signIn("--setup", b.relay.await(0, `setup token: (\S+)`)[1])
	first := b.daemon.await(0, `farhand approve ([A-Z]{4}-[A-Z]{4})`)

	// A code that was shown stays good over the end of both.
	b.daemon.kill()
	b.relay.kill()
	b.startRelay()
	b.startDaemon()
	if second := b.daemon.await(0, `farhand approve ([A-Z]{4}-[A-Z]{4})`); second[1] != first[1] {
		t.Errorf("after a restart another code is shown: %s, then %s", first[1], second[1])
	}
	b.approve(0, "files,shell")
	b.daemon.await(0, `^Online`)
	b.owner.must("exec", "--", "true")
	b.wholeAudit()
}

// Answers that say nothing about what is offered are none.
func TestPlatformInTrouble(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.answers(http.StatusServiceUnavailable)
	b := c.bench()
	b.startDaemon()
	eventually(t, "a second attempt", func() error {
		if n := c.requests(); n < 2 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	if !b.daemon.running() {
		t.Fatalf("the daemon has ended: %s", b.daemon.cmd.ProcessState)
	}
	b.awaitState(daemon.StatePairing)
	c.answers(0) // now there is an answer: 404
	if code := b.daemon.exit(); code != 77 {
		t.Errorf("it ends with %d", code)
	}

	// With a login, trouble is waited out as well.
	c.answers(http.StatusBadGateway)
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	b.daemon.await(0, "502")
	b.awaitState(daemon.StateConnecting)
	c.answers(0)
	b.mustd("", "resume") // at once, rather than in a while
	c.Next()
	b.awaitState(daemon.StateOnline)
}

// A relay that stops and comes back finds its machines again.
func TestRelayRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	b.owner.must("exec", "--", "true")
	s, err := b.sdk().Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	before := parse[client.Machine](t, b.owner.must("machines", "bench", "--json"))
	from := b.daemon.out.len()
	b.relay.stop()
	b.startRelay()
	b.daemon.await(from, `^Online`)
	// Field case 86: a lost link isn't a daemon that was restarted.
	after := parse[client.Machine](t, b.owner.must("machines", "bench", "--json"))
	if after.BootID != before.BootID || before.BootID == "" || !after.DaemonStarted.Equal(before.DaemonStarted) {
		t.Errorf("boot id %q since %s, before %q since %s", after.BootID, after.DaemonStarted, before.BootID, before.DaemonStarted)
	}
	if r, err := s.Exec(t.Context(), wire.ExecuteCommand{Argv: []string{"echo", "again"}}); err != nil || r.Stdout != "again\n" {
		t.Errorf("after the restart: %+v, %v", r, err)
	}
	var reasons []any
	for _, x := range b.records() {
		if x.Op == "WS_DISCONNECTED" {
			reasons = append(reasons, x.Details["reason"])
		}
	}
	if len(reasons) == 0 || reasons[0] != "ws_closed_1012_service_restart" {
		t.Errorf("the record says %v", reasons)
	}
	b.owner.must("audit", "verify")
}

// One daemon a state directory.
func TestOneDaemon(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	r := b.farhandd("", "run")
	if pid := fmt.Sprint(b.daemon.cmd.Process.Pid); r.code != 1 || !strings.Contains(r.stderr, pid) {
		t.Errorf("a second daemon gives %+v, want 1 and the process %s", r, pid)
	}
	if r := b.farhandd("", "logout"); r.code != 1 {
		t.Errorf("logout beside a daemon gives %+v", r)
	}
	b.owner.must("ls")
	b.daemon.stop()
	b.mustd("", "logout")
	if r := b.farhandd("", "status"); r.code != 1 || !strings.Contains(r.stderr, "no daemon") {
		t.Errorf("status without a daemon gives %+v", r)
	}
	if r := b.farhandd("", "resume"); r.code != 1 {
		t.Errorf("resume without a daemon gives %+v", r)
	}
	// Logged out at the relay too: the machine has to be let in again.
	b.startDaemon()
	b.daemon.await(0, `farhand approve`)
}

// SIGTERM, SIGINT and a terminal that hangs up end everything, what runs
// included, and are recorded.
func TestStop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables = strings.Replace(b.tables, "[limits]\n", "[limits]\ncommand_timeout_seconds = 600\n", 1)
	b.claim("files,shell")
	s, err := b.sdk().Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		command := b.runLong(s, fmt.Sprintf("pid-%d", i))
		begin := time.Now()
		b.daemon.signal(sig)
		if code := b.daemon.exit(); code != 0 {
			t.Errorf("%s ends it with %s", sig, b.daemon.cmd.ProcessState)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s took %s", sig, took)
		}
		if err := command.end(t); err == nil {
			t.Errorf("the command ended with %+v", command.result)
		}
		all := b.records()
		if last := all[len(all)-1]; last.Op != "SHIM_STOP" || last.Details["reason"] != "signal" {
			t.Errorf("the last record is %+v", last)
		}
		b.wholeAudit()
		b.startDaemon()
		b.daemon.await(0, `^Online`)
	}
	if left, err := filepath.Glob(filepath.Join(b.stateDir(), "sim", "*")); err != nil || len(left) == 0 {
		t.Errorf("the simulated bench isn't there: %v", err)
	}
	b.daemon.stop()
	for _, name := range []string{"sim", "farhandd.sock"} {
		if _, err := os.Stat(filepath.Join(b.stateDir(), name)); err == nil {
			t.Errorf("%s is left in the state directory", name)
		}
	}
}

// nohup farhandd run goes on when its terminal hangs up. The commands that it runs are
// no worse off for that.
func TestNohup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	b.daemon.stop()
	b.daemon = start(t, "daemon", b.env(), "sh", "-c", `trap "" HUP; exec "$@"`, "sh", program("farhandd"), "run", "--config", b.toml())
	b.daemon.await(0, `^Online`)
	b.daemon.signal(syscall.SIGHUP)
	if r := b.owner.run("exec", "--", "sh", "-c", "kill -HUP $$"); r.code != 128+int(syscall.SIGHUP) {
		t.Errorf("a command that is hung up gives %+v", r)
	}
	b.daemon.stop()
}

// What the running daemon says about itself.
func TestStatusAndDoctor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,shell")
	b.owner.must("ls")
	s := b.awaitState(daemon.StateOnline)
	if s.PID != b.daemon.cmd.Process.Pid || s.MachineID != b.machineID() || s.DisplayName != "bench" || s.Platform != b.url ||
		len(s.Roots) != 1 || s.Roots[0] != b.root() || len(s.Sessions) != 1 || !s.Sessions[0].Live || s.Sessions[0].Root != b.root() ||
		s.ConnectionID == "" || s.Audit.Seq == 0 || !s.Granted.Has(wire.Files) || len(s.Warnings) == 0 || !strings.Contains(s.Warnings[0], "shell") {
		t.Errorf("status says %+v", s)
	}
	if text := b.mustd("", "status"); !strings.Contains(text, "online") || !strings.Contains(text, b.machineID()) {
		t.Errorf("status says\n%s", text)
	}
	doctor := b.farhandd("", "doctor", "--json")
	found := parse[struct{ Findings []daemon.Finding }](t, doctor.stdout)
	levels := make(map[string]daemon.Level)
	for _, f := range found.Findings {
		levels[f.About] = f.Level
	}
	for _, about := range []string{"configuration", "daemon", "state", "clock", "network", "token", "roots"} {
		if levels[about] != daemon.OK {
			t.Errorf("the doctor finds %s for %s: %+v", levels[about], about, found.Findings)
		}
	}
	if doctor.code != 0 || levels["shell"] != daemon.Warn {
		t.Errorf("doctor gives %d: %+v", doctor.code, found.Findings)
	}
	if info, err := os.Stat(filepath.Join(b.stateDir(), "farhandd.sock")); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	// The log tells nothing of secrets and contents.
	b.owner.must("put", "-p", b.relayFile("a secret content"), ":x")
	out := b.daemon.out.String()
	kept := parse[map[string]string](t, string(b.read(filepath.Join(b.stateDir(), "tokens.json"))))
	for _, secret := range []string{kept["access_token"], kept["refresh_token"], "a secret content"} {
		if strings.Contains(out, secret) || strings.Contains(b.relay.out.String(), secret) {
			t.Error("a log has a secret")
		}
	}
	if tail := b.mustd("", "audit", "tail", "-n", "2"); strings.Count(tail, "\n") != 2 || !strings.Contains(tail, "TRANSFER_OPEN") {
		t.Errorf("audit tail says %q", tail)
	}
	export := b.mustd("", "audit", "export", "-o", "-")
	if !strings.HasPrefix(export, "PK") {
		t.Errorf("the export begins with %.10q", export)
	}
	// What is changed in the log shows.
	log := filepath.Join(b.stateDir(), "audit.log")
	b.daemon.stop()
	text := b.read(log)
	b.write(log, string(bytes.Replace(text, []byte(`"path"`), []byte(`"Path"`), 1)))
	if r := b.farhandd("", "audit", "verify"); r.code != 1 || !strings.Contains(r.stdout, "BROKEN") {
		t.Errorf("verify of a changed log gives %+v", r)
	}
	b.write(log, string(text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]))
	if r := b.farhandd("", "audit", "verify"); r.code != 1 {
		t.Errorf("verify of a log that was cut gives %+v", r)
	}
}

// A log that was cut while nobody looked is found out by the relay.
func TestAuditAnchor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	b.owner.must("ls")
	b.owner.must("audit", "verify")
	b.daemon.stop()
	old := make(map[string][]byte)
	for _, name := range []string{"audit.log", "audit.head"} {
		old[name] = b.read(filepath.Join(b.stateDir(), name))
	}
	b.startDaemon()
	b.daemon.await(0, `^Online`)
	for range 5 {
		b.owner.must("ls")
	}
	anchor := b.awaitAnchor()
	b.daemon.stop()
	for name, content := range old { // a disk put back to what it was
		b.write(filepath.Join(b.stateDir(), name), string(content))
	}
	b.audited()
	b.startDaemon()
	b.daemon.await(0, `^Online`)
	r := b.owner.run("audit", "verify")
	if r.code != 1 || !strings.Contains(r.stdout, "not ok") {
		t.Errorf("with a log that was rolled back behind record %d, audit verify gives %+v", anchor, r)
	}
}

// awaitAnchor is the highest record that the relay has seen.
func (b *bench) awaitAnchor() int64 {
	b.t.Helper()
	var seq int64
	eventually(b.t, "an anchor", func() error {
		report := parse[struct {
			Anchor *wire.Anchor
		}](b.t, b.owner.must("audit", "verify", "--json"))
		if report.Anchor == nil {
			return errors.New("none")
		}
		seq = report.Anchor.Seq
		return nil
	})
	return seq
}

// relayFile is a file here with a content.
func (b *bench) relayFile(content string) string {
	b.t.Helper()
	name := filepath.Join(b.here(), "content")
	b.write(name, content)
	return name
}

// The platform may tell the daemon not to come back: it halts, answers its local
// socket, and comes back when it is told to.
func TestHalt(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	for _, x := range []struct {
		name string
		end  func(s *shimtest.Socket)
	}{
		{"4427", func(s *shimtest.Socket) { s.Close(4427, "taken over") }},
		{"4426", func(s *shimtest.Socket) { s.Close(4426, "version") }},
		{"4429", func(s *shimtest.Socket) { s.Close(4429, "shutdown") }},
		{"another shim", func(s *shimtest.Socket) { s.Revoke("another_shim_connected"); s.Ended() }},
		{"platform shutdown", func(s *shimtest.Socket) { s.Revoke("platform_shutdown"); s.Ended() }},
	} {
		x.end(c.Next())
		s := b.awaitState(daemon.StateHalted)
		if !strings.Contains(s.Detail, "farhandd resume") {
			t.Errorf("%s: status says %q", x.name, s.Detail)
		}
		if d := b.farhandd("", "doctor"); d.code != 1 || !strings.Contains(d.stdout, "farhandd resume") {
			t.Errorf("%s: doctor gives %d\n%s", x.name, d.code, d.stdout)
		}
		dials := len(c.Dials())
		b.mustd("", "resume")
		b.awaitState(daemon.StateOnline)
		if n := len(c.Dials()) - dials; n != 1 {
			t.Errorf("%s: it dialled %d times after resume", x.name, n)
		}
	}
	// A version that it doesn't speak, in the handshake.
	s := c.Next()
	c.Script(func() {
		c.Ack = func(_ *shimtest.Socket, ack map[string]any) bool { ack["protocol_version"] = "2.0"; return true }
	})
	s.Drop()
	if code, reason := c.Next().Ended(); code != 4426 || len(reason) > 123 || !json.Valid([]byte(reason)) {
		t.Errorf("it closes with %d %q", code, reason)
	}
	b.awaitState(daemon.StateHalted)
	c.Script(func() { c.Ack = nil })
	b.mustd("", "resume")
	c.Next()
	// A restart is another way to be told.
	b.awaitState(daemon.StateOnline)
	b.daemon.stop()
	b.startDaemon()
	s = c.Next()

	// Revoked, with no way to pair: in the foreground that is the end.
	s.Revoke("user_revoked")
	if code := b.daemon.exit(); code != 77 {
		t.Errorf("revoked, it ends with %d", code)
	}
	if left := string(b.read(filepath.Join(b.stateDir(), "tokens.json"))); strings.Contains(left, "agpt_") {
		t.Error("the tokens were kept")
	}
	b.audited()
}

// Tokens are renewed once for all sockets, and the new ones are on the disk
// before they are used.
func TestTokenRefresh(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	p := b.on(c)
	for i := range 3 {
		p.open(fmt.Sprintf("session-%d", i))
	}
	c.Script(func() {
		c.Upgrade = func(r *http.Request) int {
			if !c.holds(r.Header.Get("Authorization")) {
				return http.StatusUnauthorized
			}
			kept, err := os.ReadFile(filepath.Join(b.stateDir(), "tokens.json"))
			if err != nil || !strings.Contains(string(kept), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
				t.Errorf("a token is used that isn't on the disk: %v", err)
			}
			return 0
		}
	})
	c.expire()
	for _, s := range p.sockets() { // at the end of the token's time
		s.Close(4401, "expired")
	}
	for range 4 {
		c.Next()
	}
	if n, spent := c.count(); n != 1 || spent != 0 {
		t.Errorf("%d refreshes, %d with a spent token; want one for four sockets", n, spent)
	}
	b.awaitState(daemon.StateOnline)
	b.daemon.stop()
	// And after the end of a daemon that was not told of it.
	c.expire()
	b.startDaemon()
	c.Next()
	if n, spent := c.count(); n != 2 || spent != 0 {
		t.Errorf("%d refreshes, %d with a spent token", n, spent)
	}
}

// Login without device authorisation: a page in any browser, and the address at
// which it ends pasted back.
func TestPasteLogin(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.bench()
	p, stdin := startWithInput(t, "login", b.env(), program("farhandd"), "--config", b.toml(), "login")
	shown := p.await(0, `(http://127\.0\.0\.1:\d+/auth/authorize\?\S+)`)
	page, err := url.Parse(shown[1])
	if err != nil {
		t.Fatal(err)
	}
	q := page.Query()
	if q.Get("response_type") != "code" || q.Get("client_id") != "autogpt-local-executor" || q.Get("scope") != "USE_TOOLS" ||
		q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 32 {
		t.Errorf("it asks to open %s", page)
	}
	c.mu.Lock()
	c.challenge = q.Get("code_challenge")
	c.mu.Unlock()
	back := q.Get("redirect_uri") + "?" + url.Values{"code": {"the-code"}, "state": {q.Get("state")}}.Encode()
	fmt.Fprintln(stdin, back)
	if code := p.exit(); code != 0 {
		t.Fatalf("login ends with %d:\n%s", code, p.out.tail(1000))
	}
	b.startDaemon()
	c.Next()
	b.awaitState(daemon.StateOnline)

	// With a state that is another's.
	b.daemon.stop()
	p, stdin = startWithInput(t, "login", b.env(), program("farhandd"), "--config", b.toml(), "login")
	p.await(0, `/auth/authorize\?`)
	fmt.Fprintln(stdin, strings.Replace(back, "state=", "state=x", 1))
	if code := p.exit(); code == 0 {
		t.Error("an address with a foreign state is taken")
	}
}

// What is wrong with a configuration is told with 78, before anything is done.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	b.configure()
	good := string(b.read(b.toml()))
	refused := func(what string, r result, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if r.code != 78 || !strings.Contains(r.stderr, text) {
				t.Errorf("%s gives %+v, want 78 with %q", what, r, text)
			}
		}
	}
	run := func(env []string, args ...string) result {
		t.Helper()
		return runProgram(t, b.env(env...), "", b.here(), append([]string{program("farhandd"), "--config", b.toml(), "run"}, args...)...)
	}
	for line, texts := range map[string][]string{
		"plattform_url = \"x\"": {"plattform_url", "platform_url"},
		"[limits]\nmax_concurent = 3\n": {
			"limits.max_concurent", "limits.max_concurrent"},
		"[limits]\nmax_concurrent = 0\n":      {"limits.max_concurrent"},
		"[limits]\nmax_concurrent = \"no\"\n": {"limits.max_concurrent"},
		"this is no TOML":                     {"farhandd.toml"},
	} {
		b.write(b.toml(), line+"\n")
		refused(line, run(nil), texts...)
	}
	b.write(b.toml(), good)
	refused("an unknown variable", run([]string{"FARHAND_LIMITS_MAX_CONCURENT=3"}), "FARHAND_LIMITS_MAX_CONCURENT", "FARHAND_LIMITS_MAX_CONCURRENT")
	refused("a bad flag", run(nil, "--limits-max-concurrent", "none"), "limits.max_concurrent")
	refused("a root in the state directory", run(nil, "--roots", filepath.Join(b.stateDir(), "missing")), b.stateDir())
	if r := run(nil, "--no-such-flag"); r.code != 2 {
		t.Errorf("an unknown flag gives %+v", r)
	}
	if r := runProgram(t, b.env(), "", b.here(), program("farhandd"), "--config", filepath.Join(b.dir, "none.toml"), "run"); r.code != 78 {
		t.Errorf("a missing file gives %+v", r)
	}

	// Environment over file, flags over both.
	c := newCloud(t)
	b.url = c.url
	b.configure()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon("FARHAND_DISPLAY_NAME=from the environment")
	if name := c.Next().Hello.DisplayName; name != "from the environment" {
		t.Errorf("HELLO has the name %q", name)
	}
	b.daemon.stop()
	p := start(t, "daemon", b.env("FARHAND_DISPLAY_NAME=from the environment"), program("farhandd"), "run", "--config", b.toml(), "--display-name", "from a flag", "--shell-enabled=false")
	s := c.Next()
	if s.Hello.DisplayName != "from a flag" || s.Hello.Capabilities.Has(wire.Shell) {
		t.Errorf("HELLO has the name %q and %v", s.Hello.DisplayName, s.Hello.Capabilities)
	}
	p.stop()
}

// A root that a command removed is said to be gone, and the rest goes on.
func TestARootIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gone := filepath.Join(b.dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	b.claimWithRoots("files", b.root(), gone)
	b.owner.must("ls", ":"+gone)
	b.daemon.stop()
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	b.startDaemon()
	s := b.awaitState(daemon.StateOnline)
	if !slices.Equal(s.Roots, []string{b.root()}) || !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, gone) }) {
		t.Errorf("status says %+v", s)
	}
	b.owner.must("ls")
	if r := b.farhandd("", "doctor"); r.code != 1 || !strings.Contains(r.stdout, gone) {
		t.Errorf("the doctor says %+v", r)
	}
}
