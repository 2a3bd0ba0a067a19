package e2e

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"farhand/client"
	"farhand/daemon"
	"farhand/wire"
)

// bench is a relay, a daemon beside it and their owner, each with directories of
// its own.
type bench struct {
	t      *testing.T
	dir    string // everything below lies in it
	name   string // of the machine
	url    string // of the relay, where it listens:
	listen string

	relay, daemon *process
	roots         []string
	config        []string // TOML lines of the daemon, after the usual ones
	tables        string   // TOML tables of the daemon
	environ       []string // of the daemon, besides
	relayFlags    []string
	owner         operator
}

// everything is what a daemon on this bench can be allowed.
const everything = "files,shell,hardware_serial,hardware_usb,hardware_gpio,hardware_i2c,hardware_spi,hardware_printer"

// newBench starts a relay and signs its owner in by the command.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := bareBench(t)
	b.startRelay()
	setup := b.relay.await(0, `setup token: (\S+)`)
	b.signIn("--setup", setup[1])
	return b
}

// bareBench has directories and nothing that runs.
func bareBench(t *testing.T) *bench {
	t.Helper()
	// Not t.TempDir: the path of a Unix socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "fh-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	listen := address(t)
	b := &bench{t: t, dir: dir, name: "bench", url: "http://" + listen, listen: listen, tables: "[shell]\nenabled = true\n[limits]\nmax_commands_per_minute = 100000\n"}
	b.owner, b.roots = b.operator("owner"), []string{b.root()}
	for _, d := range []string{b.root(), filepath.Join(dir, "here"), filepath.Join(dir, "home")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// address is a free port of loopback, outside of what the kernel gives to
// connections, so that it is still free when a killed relay comes back.
func address(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := 20000 + mathrand.N(12000)
		if _, taken := ports.LoadOrStore(port, true); taken {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// ports are those that address has handed out.
var ports sync.Map

func (b *bench) root() string     { return filepath.Join(b.dir, "work") }
func (b *bench) here() string     { return filepath.Join(b.dir, "here") } // where commands run
func (b *bench) stateDir() string { return filepath.Join(b.dir, "state") }
func (b *bench) relayDir() string { return filepath.Join(b.dir, "relay") }
func (b *bench) toml() string     { return filepath.Join(b.dir, "farhandd.toml") }

// env is the environment of our programs: ours, without what would configure
// them behind our back.
func (b *bench) env(extra ...string) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "FARHAND_") && !strings.HasPrefix(name, "XDG_") &&
			!slices.Contains([]string{"NOTIFY_SOCKET", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "HOME", "WATCHDOG_USEC"}, name) {
			env = append(env, pair)
		}
	}
	return append(append(env, "HOME="+filepath.Join(b.dir, "home")), extra...)
}

func (b *bench) startRelay() {
	b.t.Helper()
	b.relay = start(b.t, "relay", b.env(), append([]string{program("farhand-relay"), "run", "--listen", b.listen, "--data-dir", b.relayDir()}, b.relayFlags...)...)
}

// signIn logs the owner in, or sets the account up.
func (b *bench) signIn(more ...string) {
	b.t.Helper()
	file := filepath.Join(b.dir, "passphrase")
	if _, err := os.Stat(file); err != nil {
		b.write(file, rand.Text()+"\n")
	}
	b.owner.must(append([]string{"login", b.url, "--name", "ann", "--passphrase-file", file}, more...)...)
}

// write writes a file that only we read.
func (b *bench) write(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(name string) []byte {
	b.t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return content
}

// configure writes the daemon's configuration.
func (b *bench) configure() {
	b.t.Helper()
	lines := append([]string{
		fmt.Sprintf("platform_url = %q", b.url),
		fmt.Sprintf("state_dir = %q", b.stateDir()),
		fmt.Sprintf("roots = [%s]", quoted(b.roots)),
		fmt.Sprintf("display_name = %q", b.name),
		"sim = true",
	}, b.config...)
	b.write(b.toml(), strings.Join(lines, "\n")+"\n"+b.tables)
}

func (b *bench) startDaemon(env ...string) {
	b.t.Helper()
	if _, err := os.Stat(b.toml()); err != nil {
		b.configure()
	}
	b.daemon = start(b.t, "daemon", b.env(append(env, b.environ...)...), program("farhandd"), "run", "--config", b.toml())
}

// pair starts the daemon and lets it in by the code that it shows.
func (b *bench) pair(allow string, more ...string) {
	b.t.Helper()
	b.startDaemon()
	b.approve(0, allow, more...)
	b.daemon.await(0, `^Online`)
}

// approve approves the code that the daemon shows from a line of its output on.
func (b *bench) approve(from int, allow string, more ...string) {
	b.t.Helper()
	code := b.daemon.await(from, `farhand approve ([A-Z]{4}-[A-Z]{4})`)
	b.owner.must(append([]string{"approve", code[1], "--yes", "--name", "bench", "--allow", allow}, more...)...)
}

// claim lets the daemon in by a claim key, which needs no waiting, and starts it.
func (b *bench) claim(allow string, more ...string) {
	b.t.Helper()
	b.config = append(b.config, fmt.Sprintf("machine_id = %q", b.machineID()))
	b.configure()
	made := parse[client.IssuedClaim](b.t, b.owner.must(append([]string{"claim", "create", "--json", "--name", b.name, "--allow", allow}, more...)...))
	answer, status := b.token(url.Values{
		"grant_type": {"urn:farhand:params:oauth:grant-type:claim"}, "claim_key": {made.ClaimKey},
		"client_id": {"autogpt-local-executor"}, "machine_id": {b.machineID()}, "display_name": {b.name},
	})
	if status != http.StatusOK {
		b.t.Fatalf("the claim key is answered with %d %s", status, answer)
	}
	b.mustd(string(answer), "login", "--tokens", "-")
	b.startDaemon()
	b.daemon.await(0, `^Online`)
}

// another is one more machine at the same relay, let in by a claim key.
func (b *bench) another(name, allow string) *bench {
	b.t.Helper()
	dir := filepath.Join(b.dir, name)
	o := &bench{t: b.t, dir: dir, name: name, url: b.url, listen: b.listen, tables: b.tables, owner: b.owner}
	o.roots = []string{o.root()}
	for _, d := range []string{dir, o.root(), o.here(), filepath.Join(dir, "home")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			b.t.Fatal(err)
		}
	}
	o.claim(allow)
	return o
}

// claimWithRoots does so with other roots than the one.
func (b *bench) claimWithRoots(allow string, roots ...string) {
	b.t.Helper()
	b.roots = roots
	b.claim(allow)
}

func quoted(list []string) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = strconv.Quote(s)
	}
	return strings.Join(parts, ", ")
}

// machineID is what a daemon calls itself that was let in by a claim key.
func (b *bench) machineID() string { return "machine-of-" + filepath.Base(b.dir) }

// token asks the relay's token endpoint.
func (b *bench) token(form url.Values) ([]byte, int) {
	b.t.Helper()
	resp, err := http.PostForm(b.url+"/api/oauth/token", form)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return body, resp.StatusCode
}

// farhandd runs the daemon's own command with its configuration.
func (b *bench) farhandd(stdin string, args ...string) result {
	b.t.Helper()
	return runProgram(b.t, b.env(), stdin, b.here(), append([]string{program("farhandd"), "--config", b.toml()}, args...)...)
}

func (b *bench) mustd(stdin string, args ...string) string {
	b.t.Helper()
	r := b.farhandd(stdin, args...)
	if r.code != 0 {
		b.t.Fatalf("farhandd %q gives %d\n%s%s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// awaitState waits until the daemon says that it is in a state.
func (b *bench) awaitState(want daemon.State) daemon.Status {
	b.t.Helper()
	var got daemon.Status
	eventually(b.t, "the state "+string(want), func() error {
		r := b.farhandd("", "status", "--json")
		if r.code != 0 {
			return fmt.Errorf("status gives %+v", r)
		}
		if got = parse[daemon.Status](b.t, r.stdout); got.State != want {
			return fmt.Errorf("it is %s: %s", got.State, got.Detail)
		}
		return nil
	})
	return got
}

// operator is somebody with the farhand command and a configuration of his own.
type operator struct {
	b   *bench
	env []string
}

func (b *bench) operator(name string, env ...string) operator {
	dir := filepath.Join(b.dir, name)
	return operator{b, append([]string{"XDG_CONFIG_HOME=" + dir, "FARHAND_CONFIG_DIR=" + filepath.Join(dir, "farhand")}, env...)}
}

// with is an operator who has only this token.
func (b *bench) with(token string) operator {
	return b.operator("nobody", "FARHAND_URL="+b.url, "FARHAND_TOKEN="+token)
}

func (o operator) run(args ...string) result {
	o.b.t.Helper()
	return o.feed("", args...)
}

// feed runs the command with something on its standard input.
func (o operator) feed(stdin string, args ...string) result {
	o.b.t.Helper()
	return runProgram(o.b.t, o.b.env(o.env...), stdin, o.b.here(), append([]string{program("farhand")}, args...)...)
}

// start runs a command that goes on.
func (o operator) start(args ...string) *process {
	o.b.t.Helper()
	return start(o.b.t, "farhand "+args[0], o.b.env(o.env...), append([]string{program("farhand")}, args...)...)
}

// must is what a command prints that has to succeed.
func (o operator) must(args ...string) string {
	o.b.t.Helper()
	r := o.run(args...)
	if r.code != 0 {
		o.b.t.Fatalf("farhand %q gives %d\n%s%s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// fails runs a command that has to fail with an exit status and a code.
func (o operator) fails(exit int, code wire.Code, args ...string) wire.Error {
	o.b.t.Helper()
	r := o.run(append([]string{"--json"}, args...)...)
	var answer struct {
		Error wire.Error `json:"error"`
	}
	err := json.Unmarshal([]byte(r.stderr), &answer)
	if err != nil || r.code != exit || answer.Error.Code != code {
		o.b.t.Errorf("farhand %q gives %d with %q and prints %q, want %d with %s (%v)", args, r.code, r.stderr, r.stdout, exit, code, err)
	}
	return answer.Error
}

// secret is the token that the owner's login left in the configuration.
func (o operator) secret() string {
	o.b.t.Helper()
	var kept struct {
		Token string `json:"token"`
	}
	names, err := filepath.Glob(filepath.Join(o.b.dir, "owner", "farhand", "*.json"))
	if err != nil || len(names) != 1 {
		o.b.t.Fatalf("the login is kept in %q (%v)", names, err)
	}
	kept = parse[struct {
		Token string `json:"token"`
	}](o.b.t, string(o.b.read(names[0])))
	return kept.Token
}

// newToken has the owner make a token.
func (b *bench) newToken(name string, limits ...string) string {
	b.t.Helper()
	return parse[client.IssuedToken](b.t, b.owner.must(append([]string{"token", "create", "--json", "--name", name}, limits...)...)).Token
}

// sdk is a client of the relay with the owner's login.
func (b *bench) sdk() *client.Client {
	b.t.Helper()
	return b.sdkWith(b.owner.secret())
}

func (b *bench) sdkWith(token string) *client.Client {
	b.t.Helper()
	c, err := client.New(client.Config{URL: b.url, Token: token})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return c
}

// place is where sessions are opened.
func (b *bench) place() client.Place { return client.Place{Machine: "bench"} }

// parse reads JSON that a program printed.
func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

// record is one line of the audit log.
type record struct {
	Seq       int64          `json:"seq"`
	SessionID string         `json:"session_id"`
	MachineID string         `json:"machine_id"`
	RequestID *string        `json:"request_id"`
	Op        string         `json:"op"`
	Details   map[string]any `json:"details"`
	Result    struct {
		OK        bool    `json:"ok"`
		ErrorCode *string `json:"error_code"`
		ExitCode  *int    `json:"exit_code"`
	} `json:"result"`
}

// records is the daemon's audit log.
func (b *bench) records() []record {
	b.t.Helper()
	return readRecords(b.t, filepath.Join(b.stateDir(), "audit.log"))
}

func readRecords(t *testing.T, name string) []record {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// Of a line that is being written, a reader may see the beginning.
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	var all []record
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		all = append(all, parse[record](t, lines.Text()))
	}
	return all
}

// wholeAudit checks the daemon's log and the relay's by their programs.
func (b *bench) wholeAudit() {
	b.t.Helper()
	if r := b.farhandd("", "audit", "verify"); r.code != 0 {
		b.t.Errorf("farhandd audit verify gives %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := b.relayctl("audit", "verify"); r.code != 0 {
		b.t.Errorf("farhand-relay audit verify gives %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// relayctl runs the relay's own command with its data directory.
func (b *bench) relayctl(args ...string) result {
	b.t.Helper()
	return runProgram(b.t, b.env(), "", b.here(), append([]string{program("farhand-relay"), "--data-dir", b.relayDir()}, args...)...)
}
