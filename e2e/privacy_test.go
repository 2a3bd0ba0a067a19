package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"farhand/client"
	"farhand/daemon"
	"farhand/internal/testenv"
	"farhand/llm/llmtest"
	"farhand/wire"
)

// patient stands in private files and must come out of them by a model alone.
const patient = "Erika Mustermann"

// private puts private files below the root.
func private(b *bench) {
	b.t.Helper()
	for path, content := range map[string]string{
		"vault/people-of-erika.csv": "name,age\n" + patient + ",67\nMax Muster,61\n", "vault/blob": "\x00\x01" + patient, "public.txt": "public",
	} {
		name := filepath.Join(b.root(), path)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			b.t.Fatal(err)
		}
		b.write(name, content)
	}
}

// What an owner marked private is worked on where it lies: an agent sees what it
// is like, and what the machine's own model says.
func TestPrivacy(t *testing.T) {
	t.Parallel()
	server := llmtest.Start(t, "tiny:1b", "echo:1b", "quote:1b", "cloud-big:1b")
	b := newBench(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\ncontext_tokens = 2048\n[privacy]\nprivate = [%q]\nanswer_chars = 100\n[forward]\nallow = [\"127.0.0.1:*\"]\n",
		server.URL, filepath.Join(b.root(), "vault"))
	private(b)
	b.claim("files,local_llm,forward,observe,shell")
	own := b.owner
	const csv = "bench:vault/people-of-erika.csv"

	own.fails(1, wire.PrivacyModeBlocked, "cat", csv)
	own.fails(1, wire.PrivacyModeBlocked, "get", csv, b.here())
	own.fails(1, wire.PrivacyModeBlocked, "mv", csv, "bench:elsewhere")
	own.fails(255, wire.CapabilityNotGranted, "exec", "bench", "--", "cat", "vault/blob")
	own.fails(1, wire.PrivacyModeBlocked, "logs", "bench")
	if got := own.must("cat", "bench:public.txt"); got != "public" {
		t.Errorf("what is public holds %q", got)
	}
	list := own.must("ls", "bench:vault")
	if strings.Contains(list, "erika") || strings.Count(list, "private-") != 2 {
		t.Errorf("the list is %q", list)
	}

	stub := func(path string) wire.FileStub {
		t.Helper()
		return parse[struct{ Stubs []wire.FileStub }](t, own.must("stub", path, "--json")).Stubs[0]
	}
	s := stub(csv)
	if p := s.SchemaPreview; s.SizeBytes != 43 || s.MIMEType != "text/csv" || p == nil || p.Table == nil || p.Table.Rows != 2 || p.Table.Width != 2 || !strings.Contains(s.Path, "/vault/private-") {
		t.Errorf("the stub is %+v, %+v", s, p)
	}
	if again := stub("bench:" + s.Path); again.HMAC != s.HMAC || again.StubID == s.StubID {
		t.Errorf("by its alias the stub is %+v", again)
	}
	if got := own.must("stub", csv); !strings.Contains(got, "csv, 2 rows of 2 columns") || strings.Contains(got, "erika") {
		t.Errorf("a stub is shown as %q", got)
	}
	own.fails(1, wire.InternalError, "stub", "bench:public.txt")

	alias := strings.TrimPrefix(s.Path, b.root()+"/")
	if got := own.must("ask", "bench", "--file", "vault/people-of-erika.csv", "--", "How", "many?"); got != llmtest.Sentence+"\n" {
		t.Errorf("the model says %q", got)
	}
	r := parse[wire.LLMTurnResponse](t, own.must("ask", "bench", "--file", alias, "--model", "echo:1b", "--json", "--", "repeat"))
	if !r.Truncated || len([]rune(r.Output)) != 100 || r.FinishReason != "length" || r.Model != "echo:1b" {
		t.Errorf("an answer that is too long is %+v", r)
	}
	if r := own.feed("Who?", "ask", "bench", "--file", alias, "--model", "tiny:1b"); r.code != 0 || r.stdout != llmtest.Sentence+"\n" {
		t.Errorf("a question from a pipe: %+v", r)
	}
	for what, e := range map[string]result{
		"an error that quotes": own.run("ask", "bench", "--file", alias, "--model", "quote:1b", "--", "x"),
		"a model elsewhere":    own.run("ask", "bench", "--file", alias, "--model", "cloud-big:1b", "--", "x"),
		"what is no text":      own.run("ask", "bench", "--file", "vault/blob", "--", "x"),
		"too little room":      own.run("ask", "bench", "--file", alias, "--max-tokens", "2040", "--", "x"),
	} {
		if e.code != 1 || strings.Contains(e.stdout+e.stderr, patient) || strings.Contains(e.stdout+e.stderr, "erika") {
			t.Errorf("%s: %+v", what, e)
		}
	}

	// A stub is of one session and one state.
	sdk := b.sdk()
	ses, err := sdk.Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	if !ses.Privacy() {
		t.Errorf("the session has %v", ses.Info().Capabilities)
	}
	x, err := ses.ReadStub(t.Context(), "vault/people-of-erika.csv")
	if err != nil {
		t.Fatal(err)
	}
	turn := wire.LLMTurn{Model: "tiny:1b", Task: "x", StubRefs: []string{x.StubID}}
	if _, err := ses.Turn(t.Context(), turn, nil); err != nil {
		t.Errorf("a turn: %v", err)
	}
	agent, err := b.sdkWith(b.newToken("agent", "--capability", "files,local_llm")).Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Turn(t.Context(), turn, nil); wire.CodeOf(err) != wire.StubStale {
		t.Errorf("another's stub: %v", err)
	}
	b.write(filepath.Join(b.root(), "vault/people-of-erika.csv"), "name,age\n"+patient+",68\n")
	if _, err := ses.Turn(t.Context(), turn, nil); wire.CodeOf(err) != wire.StubStale {
		t.Errorf("a stub of what changed: %v", err)
	}
	files, err := b.sdkWith(b.newToken("files", "--capability", "files")).Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	y, err := files.ReadStub(t.Context(), "vault/people-of-erika.csv")
	if err != nil {
		t.Fatal(err)
	}
	turn.StubRefs = []string{y.StubID}
	if _, err := files.Turn(t.Context(), turn, nil); wire.CodeOf(err) != wire.CapabilityNotGranted {
		t.Errorf("a turn without the model being allowed: %v", err)
	}
	conn, err := ses.Dial(t.Context(), "127.0.0.1", l.Addr().(*net.TCPAddr).Port)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if wire.CodeOf(err) != wire.PrivacyModeBlocked {
		t.Errorf("forwarding to this machine: %v", err)
	}

	status := parse[daemon.Status](t, b.mustd("", "status", "--json"))
	if status.Privacy == nil || status.Privacy.Rules != 1 || !strings.Contains(status.Privacy.Commands, "the user that reads it") {
		t.Errorf("status %+v", status.Privacy)
	}
	if got := b.farhandd("", "doctor"); !strings.Contains(got.stdout, "privacy") {
		t.Errorf("the doctor says %s", got.stdout)
	}
	log := string(b.read(b.stateDir() + "/audit.log"))
	for _, want := range []string{`"FILE_READ_STUB"`, `"LOCAL_LLM_TURN"`, x.StubID, x.HMAC} {
		if !strings.Contains(log, want) {
			t.Errorf("%s is not on the record", want)
		}
	}
	for _, never := range []string{patient, "erika", "How many?"} {
		if strings.Contains(log, never) {
			t.Errorf("%q is on the record", never)
		}
	}
}

// An owner may want to see what leaves.
func TestReleaseOfAnswers(t *testing.T) {
	t.Parallel()
	server := llmtest.Start(t, "tiny:1b")
	b := newBench(t)
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n[privacy]\nprivate = [%q]\nrelease = true\nrelease_timeout_seconds = 300\n", server.URL, filepath.Join(b.root(), "vault"))
	private(b)
	b.claim("files,local_llm")
	waiting := func() daemon.Answer {
		t.Helper()
		var a daemon.Answer
		eventually(t, "an answer that waits", func() error {
			all := parse[[]daemon.Answer](t, b.mustd("", "release", "--json"))
			if len(all) != 1 {
				return fmt.Errorf("%d answers wait", len(all))
			}
			a = all[0]
			return nil
		})
		return a
	}
	if got := b.mustd("", "release"); !strings.Contains(got, "No answer waits") {
		t.Errorf("at first: %s", got)
	}
	ask := b.owner.start("ask", "bench", "--file", "vault/people-of-erika.csv", "--", "Who?")
	a := waiting()
	if a.Text != llmtest.Sentence || a.Model != "tiny:1b" {
		t.Errorf("%+v waits", a)
	}
	if got := b.mustd("", "release"); !strings.Contains(got, llmtest.Sentence) || !strings.Contains(got, a.ID) {
		t.Errorf("shown as %s", got)
	}
	if r := b.farhandd("", "release", "00000000"); r.code != 1 {
		t.Errorf("another's id: %+v", r)
	}
	b.mustd("", "release", a.ID)
	if code := ask.exit(); code != 0 || !strings.Contains(ask.out.tail(1000), llmtest.Sentence) {
		t.Errorf("let go, it ends with %d: %s", code, ask.out.tail(1000))
	}
	ask = b.owner.start("ask", "bench", "--file", "vault/people-of-erika.csv", "--", "Who?")
	b.mustd("", "release", "--refuse", waiting().ID)
	if code, out := ask.exit(), ask.out.tail(1000); code != 1 || !strings.Contains(out, string(wire.AnswerNotReleased)) || strings.Contains(out, "tiny") {
		t.Errorf("refused, it ends with %d: %s", code, out)
	}
	// Who doesn't wait any longer takes the answer along.
	ask = b.owner.start("ask", "bench", "--file", "vault/people-of-erika.csv", "--", "Who?")
	waiting()
	ask.signal(syscall.SIGINT)
	ask.exit()
	eventually(t, "the answer that nobody wants", func() error {
		if all := parse[[]daemon.Answer](t, b.mustd("", "release", "--json")); len(all) != 0 {
			return fmt.Errorf("%d wait", len(all))
		}
		return nil
	})
	b.wholeAudit()
}

// Commands run beside what is private only if they surely can't read it.
func TestCommandsBesidePrivacy(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root", os.Getuid() == 0, "programs of another user are started")
	setpriv, err := exec.LookPath("setpriv")
	testenv.Need(t, "setpriv", err == nil, "a helper that gets no rights is started by setpriv")
	b := newBench(t)
	public, err := os.MkdirTemp("", "fh-helper-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(public) })
	b.copyProgram("farhandd", public)
	for name, mode := range map[string]os.FileMode{public: 0o777, filepath.Join(public, "farhandd"): 0o755, b.dir: 0o755, b.root(): 0o777} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	private(b)
	vault, socket := filepath.Join(b.root(), "vault"), filepath.Join(public, "exec.sock")
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	start := func(argv ...string) *process {
		t.Helper()
		_ = os.Remove(socket)
		argv = append(argv, filepath.Join(public, "farhandd"), "exec-helper", "--for", "root", "--socket", socket)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		p := launch(t, "helper", cmd, []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "USER=nobody"})
		eventually(t, "the helper", func() error { _, err := os.Stat(socket); return err })
		return p
	}
	loose := start()
	b.tables = fmt.Sprintf("[shell]\nenabled = true\nhelper = %q\n[limits]\nmax_commands_per_minute = 100000\n[privacy]\nprivate = [%q]\n", socket, vault)
	b.claim("files,shell")
	sdk := b.sdk()
	command := func() error {
		ses, err := sdk.Open(t.Context(), client.Place{Machine: "bench"})
		if err != nil {
			return err
		}
		script := "cat vault/blob; true"
		got, err := ses.Exec(t.Context(), wire.ExecuteCommand{Command: &script})
		if err == nil && strings.Contains(got.Stdout, patient) {
			t.Errorf("a command read it: %+v", got)
		}
		return err
	}
	reason := func() string {
		s := parse[daemon.Status](t, b.mustd("", "status", "--json"))
		return s.Privacy.Commands
	}
	if why := reason(); !strings.Contains(why, "become root") {
		t.Errorf("with a helper that isn't confined: %q", why)
	}
	if err := command(); wire.CodeOf(err) != wire.CapabilityNotGranted {
		t.Errorf("a command beside it: %v", err)
	}
	loose.kill()
	start(setpriv, "--no-new-privs")
	if why := reason(); !strings.Contains(why, "others can write in "+b.root()) {
		t.Errorf("in a directory of everybody: %q", why)
	}
	chmod(b.root(), 0o777|os.ModeSticky)
	if why := reason(); why != "" {
		t.Errorf("sealed: %q", why)
	}
	b.daemon.stop()
	b.startDaemon() // says anew what it offers
	eventually(t, "a command that can't read it", command)
	chmod(vault, 0o755) // the daemon closes it again
	if err := command(); err != nil {
		t.Errorf("mended: %v", err)
	}
	if info, err := os.Stat(vault); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	endsWhatRuns := func(what string, unseal func()) (after time.Duration) {
		t.Helper()
		ses, err := sdk.Open(t.Context(), client.Place{Machine: "bench"})
		if err != nil {
			t.Fatal(err)
		}
		const script = "echo $$; echo begun; exec sleep 300"
		term, err := ses.OpenTerminal(t.Context(), wire.TerminalOpen{Argv: []string{"sh", "-c", script}})
		shown := view(t, term, err)
		pid, _, _ := strings.Cut(shown.until("its begin", func(out string, _ *wire.StreamEnd) bool { return strings.Contains(out, "begun") }), "\r")
		file := filepath.Join(public, "pid-of-"+strings.ReplaceAll(what, " ", "-"))
		executed := make(chan error, 1)
		go func() {
			_, err := ses.Exec(t.Context(), wire.ExecuteCommand{Argv: []string{"sh", "-c", "echo $$ >" + file + "; exec sleep 300"}})
			executed <- err
		}()
		eventually(t, "a command that runs", func() error {
			if text, err := os.ReadFile(file); len(text) == 0 {
				return fmt.Errorf("not yet: %v", err)
			}
			return nil
		})
		begin := time.Now()
		unseal()
		err = <-executed
		after = time.Since(begin)
		if e := wire.AsError(err); e.Code != wire.PrivacyModeBlocked || e.Details["reason"] != "not_sealed" {
			t.Errorf("%s: a command that ran ends with %v", what, e)
		}
		if _, end := shown.ends(); end.Reason != "grant_revoked" {
			t.Errorf("%s: a terminal ends with %+v", what, end)
		}
		gone(t, pid)
		gone(t, strings.TrimSpace(string(b.read(file))))
		chmod(b.root(), 0o777|os.ModeSticky)
		eventually(t, "commands, sealed again", command)
		term, err = ses.AttachTerminal(t.Context(), term.ID(), &wire.TerminalOffsets{})
		if out, _ := view(t, term, err).ends(); out != "" {
			t.Errorf("%s: what a terminal wrote is still there: %q", what, out)
		}
		return after
	}
	// Nobody asks for anything meanwhile, so it is found out by itself. That it isn't
	// only because the daemon looks now and then (each 15 s) shows the second time,
	// which is just after it did.
	endsWhatRuns("no longer sealed", func() { chmod(b.root(), 0o777) })
	if took := endsWhatRuns("once more", func() { chmod(b.root(), 0o777) }); took > 10*time.Second {
		t.Errorf("what runs is ended after %v", took)
	}
	// What the daemon closes again was open to what ran.
	endsWhatRuns("mended", func() {
		chmod(vault, 0o755)
		if why := reason(); why != "" {
			t.Errorf("mended: %q", why)
		}
	})

	chmod(b.root(), 0o777)
	err = command()
	if e := wire.AsError(err); e.Code != wire.PrivacyModeBlocked || e.Details["reason"] != "not_sealed" || e.Details["path"] != vault {
		t.Errorf("no longer sealed: %v", err)
	}
}
