package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/relay/oauth"
)

// selfEnv makes the test binary the program itself, for tests that kill it.
const selfEnv = "FARHAND_RELAY_TEST_SELF"

func TestMain(m *testing.M) {
	if os.Getenv(selfEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

// output is written by the program and read by the test.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
	new chan struct{}
}

func newOutput() *output { return &output{new: make(chan struct{}, 1)} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.new <- struct{}{}:
	default:
	}
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// find waits until the pattern matches and returns its group.
func (o *output) find(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		if m := re.FindStringSubmatch(o.String()); m != nil {
			return m[1]
		}
		select {
		case <-o.new:
		case <-deadline.C:
			t.Fatalf("no %s in:\n%s", pattern, o.String())
		}
	}
}

// invoke runs the program in-process to its end.
func invoke(t *testing.T, environ map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), env{args: args, getenv: func(k string) string { return environ[k] }, stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args   []string
		env    map[string]string
		code   int
		stderr string
	}{
		{args: []string{"nonsense"}, code: exitUsage, stderr: "nonsense"},
		{args: []string{"owner", "nonsense"}, code: exitUsage, stderr: "nonsense"},
		{args: []string{"owner", "add", "--data-dir", dir}, code: exitUsage, stderr: "owner add NAME"},
		{args: []string{"owner"}, code: exitOK},
		{args: []string{}, code: exitOK},
		{args: []string{"run", "--nonsense"}, code: exitUsage, stderr: "--nonsense"},
		{args: []string{"run", "extra", "--data-dir", dir}, code: exitUsage},
		{args: []string{"init", "--data-dir", dir}, code: exitUsage, stderr: "--name"},
		{args: []string{"init", "--data-dir", dir, "--name", "a b"}, code: exitConfig},
		{args: []string{"run"}, code: exitUsage, stderr: "--data-dir"},
		{args: []string{"run", "--data-dir", dir, "--listen", "0.0.0.0:0"}, code: exitConfig, stderr: "init --name"},
		{args: []string{"run", "--data-dir", dir, "--trusted-proxies", "x"}, code: exitUsage},
		{args: []string{"run", "--data-dir", dir, "--public-url", "http://relay.test"}, code: exitConfig},
		{args: []string{"run"}, env: map[string]string{"FARHAND_RELAY_DATA_DIR": dir, "FARHAND_RELAY_LISTEN": "0.0.0.0:0"}, code: exitConfig},
		{args: []string{"run", "--data-dir", dir}, env: map[string]string{"FARHAND_RELAY_VERBOSE": "perhaps"}, code: exitConfig, stderr: "FARHAND_RELAY_VERBOSE"},
		{args: []string{"owner", "add", "bob", "--data-dir", filepath.Join(dir, "none")}, code: exitFailed, stderr: "no relay has run"},
	} {
		code, _, stderr := invoke(t, c.env, c.args...)
		if code != c.code || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%v: exit %d, want %d: %s", c.args, code, c.code, stderr)
		}
	}
	code, stdout, _ := invoke(t, nil, "version", "--json")
	if code != 0 || !strings.HasPrefix(stdout, `{"version":"`) {
		t.Errorf("%d %s", code, stdout)
	}
}

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "relay")
	code, stdout, stderr := invoke(t, map[string]string{"XDG_STATE_HOME": filepath.Dir(dir)}, "init", "--name", "relay.test", "--data-dir", dir)
	if code != 0 || !regexp.MustCompile(`^ca_sha256: [0-9a-f]{64}\n$`).MatchString(stdout) {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	code, again, _ := invoke(t, nil, "init", "--name", "relay.test", "--data-dir", dir, "--json")
	var v map[string]any
	if err := json.Unmarshal([]byte(again), &v); code != 0 || err != nil || "ca_sha256: "+v["ca_sha256"].(string)+"\n" != stdout {
		t.Fatalf("%d %s", code, again)
	}
}

func TestRun(t *testing.T) {
	leak.Check(t)
	dir := filepath.Join(t.TempDir(), "relay")
	for _, asJSON := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		out, errs, ended := newOutput(), newOutput(), make(chan int, 1)
		args := []string{"run", "--data-dir", dir, "--listen", "127.0.0.1:0"}
		if asJSON {
			args = append(args, "--json")
		}
		go func() {
			ended <- run(ctx, env{args: args, getenv: func(string) string { return "" }, stdout: out, stderr: errs})
		}()
		token := out.find(t, `(fh_su_[A-Za-z0-9_-]+)`)
		if strings.Contains(errs.String(), token) {
			t.Error("the setup token is in the log")
		}
		code, stdout, stderr := invoke(t, nil, "owner", "add", "bob", "--data-dir", dir)
		if code != 0 || !strings.Contains(stdout, "setup token: fh_su_") {
			t.Fatalf("%d %s %s", code, stdout, stderr)
		}
		cancel()
		if code := <-ended; code != exitOK {
			t.Fatalf("exit %d: %s", code, errs.String())
		}
		if first, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n"); asJSON != json.Valid([]byte(first)) {
			t.Errorf("the log begins %s", first)
		}
	}
	code, stdout, stderr := invoke(t, nil, "audit", "verify", "--data-dir", dir)
	if code != 0 || !strings.HasSuffix(stdout, " records\n") {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	if code, stdout, _ = invoke(t, nil, "owner", "list", "--data-dir", dir, "--json"); code != 0 || stdout != "{\"owners\":[]}\n" {
		t.Fatalf("%d %s", code, stdout)
	}
}

// process is the program in a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
}

func startProcess(t *testing.T, dir string) (*process, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "run", "--data-dir", dir, "--listen", "127.0.0.1:0", "--json")
	cmd.Env = append(os.Environ(), selfEnv+"=1")
	cmd.Stderr = io.Discard
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the relay says nothing: %v", err)
	}
	var said struct {
		URL   string `json:"url"`
		Token string `json:"setup_token"`
	}
	if err := json.Unmarshal(line, &said); err != nil {
		t.Fatal(err)
	}
	return &process{t, cmd, said.URL}, said.Token
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// call is one call; an error means that the relay is gone.
func (p *process) call(method, path, bearer string, in any) (int, map[string]any, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, bytes.NewReader(raw))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	var out map[string]any
	err = json.NewDecoder(resp.Body).Decode(&out)
	return resp.StatusCode, out, err
}

func (p *process) must(method, path, bearer string, in any) map[string]any {
	p.t.Helper()
	status, out, err := p.call(method, path, bearer, in)
	if err != nil || status != 200 {
		p.t.Fatalf("%s %s: %d %v %v", method, path, status, out, err)
	}
	return out
}

func (p *process) pair(login, machine string) string {
	p.t.Helper()
	resp, err := http.PostForm(p.url+"/api/oauth/device_authorization", url.Values{"client_id": {oauth.ClientID}, "machine_id": {machine}})
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var asked map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&asked); err != nil {
		p.t.Fatal(err)
	}
	p.must("POST", "/api/approvals/"+asked["user_code"].(string), login, map[string]any{"decision": "approve", "capabilities": []string{"files"}})
	return p.must("POST", "/api/oauth/token", "", map[string]any{"grant_type": "urn:ietf:params:oauth:grant-type:device_code",
		"client_id": oauth.ClientID, "device_code": asked["device_code"]})["refresh_token"].(string)
}

// TestKill kills the relay at random moments while devices refresh their tokens:
// what a device was given last still lets it in, whatever it was doing.
func TestKill(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	p, setup := startProcess(t, dir)
	login := p.must("POST", "/api/setup", "", map[string]string{"setup_token": setup, "name": "ann", "passphrase": "correct horse battery"})["token"].(string)
	const devices, rounds = 3, 6
	tokens := make([]string, devices)
	for i := range tokens {
		tokens[i] = p.pair(login, fmt.Sprint("pi-", i))
	}
	for round := range rounds {
		var wg sync.WaitGroup
		var mu sync.Mutex
		left := 1 + rnd.IntN(40) // refreshes until the kill
		for i := range tokens {
			wg.Go(func() {
				for {
					status, out, err := p.call("POST", "/api/oauth/token", "", map[string]any{"grant_type": "refresh_token",
						"client_id": oauth.ClientID, "refresh_token": tokens[i]})
					if err != nil {
						return // killed; whether the token was spent nobody knows
					}
					if status != 200 {
						t.Errorf("round %d, device %d: %d %v", round, i, status, out)
						return
					}
					tokens[i] = out["refresh_token"].(string)
					mu.Lock()
					left--
					now := left == 0
					mu.Unlock()
					if now {
						p.cmd.Process.Kill()
					}
				}
			})
		}
		wg.Wait()
		p.kill()
		if t.Failed() {
			return
		}
		p, _ = startProcess(t, dir)
		p.must("GET", "/api/whoami", login, nil)
		for i := range tokens {
			tokens[i] = p.must("POST", "/api/oauth/token", "", map[string]any{"grant_type": "refresh_token",
				"client_id": oauth.ClientID, "refresh_token": tokens[i]})["refresh_token"].(string)
		}
	}
	p.kill()
	code, stdout, stderr := invoke(t, nil, "audit", "verify", "--data-dir", dir)
	if code != 0 {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
}
