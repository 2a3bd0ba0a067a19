package cli_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"farhand/cmd/farhand/cli"
	"farhand/internal/leak"
	"farhand/relay"
	"farhand/relay/oauth"
)

// TestWithARelay takes an owner through the management of a real relay, over TLS
// with a CA of its own: what the scripts believe of its API is true.
func TestWithARelay(t *testing.T) {
	leak.Check(t)
	r, pin := startRelay(t)
	home := t.TempDir()
	farhand := func(stdin string, args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{Args: args, Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Home: home})
		return code, stdout.String(), stderr.String()
	}
	want := func(code int, text, stdin string, args ...string) string {
		t.Helper()
		got, out, err := farhand(stdin, args...)
		if got != code || !strings.Contains(out+err, text) {
			t.Fatalf("farhand %s: exit code %d, want %d with %q:\n%s%s", strings.Join(args, " "), got, code, text, out, err)
		}
		return strings.TrimSpace(out)
	}
	const passphrase = "correct horse battery"
	setup := []string{"login", r.URL(), "--setup", r.FirstSetup().Link, "--name", "ann", "--passphrase-file", "-"}
	want(69, "RELAY_UNTRUSTED", passphrase, setup...)
	want(69, "compare the pin", passphrase, append(slices.Clone(setup), "--ca-sha256", strings.Repeat("0", 64))...)
	elsewhere := append(slices.Clone(setup), "--ca-sha256", pin)
	elsewhere[1] = strings.Replace(r.URL(), "localhost", "127.0.0.1", 1)
	want(69, "use a name that the certificate is for", passphrase, elsewhere...)
	setup = append(setup, "--ca-sha256", pin)
	setup[1] = strings.TrimPrefix(r.URL(), "https://") // a pin says that it is https
	want(1, "12", "short", setup...)
	want(0, "as ann", passphrase, setup...)
	want(77, "farhand-relay owner add NAME", passphrase, setup...) // once
	want(77, "AUTH_FAILED", "wrong passphrase", "login", r.URL(), "--name", "ann", "--passphrase-file", "-")
	want(0, "as ann", passphrase, "login", r.URL(), "--name", "ann", "--passphrase-file", "-")
	want(0, "the owner's own login", "", "whoami")
	want(0, "No machine is paired yet", "", "machines")

	code := ask(t, r.URL(), "m-1")
	want(1, "NOT_FOUND", "", "approve", "BCDF-BCDF")
	want(0, "bench is let in", "", "approve", strings.ToLower(code), "--name", "bench")
	want(0, "files, hardware_serial", "", "machines", "bench")
	// The same machine again, or another one that calls itself the same.
	code = ask(t, r.URL(), "m-1")
	want(0, "the machine id of bench, which isn't connected (last seen never), and takes its place", "", "approve", code)
	want(0, "offline", "", "machines", "m-")
	want(1, "MACHINE_NOT_ATTACHED", "", "machines", "other")
	want(255, "MACHINE_UNREACHABLE", "", "exec", "--", "true")
	want(69, "MACHINE_UNREACHABLE", "", "ls", "bench:/data")
	want(69, "MACHINE_UNREACHABLE", "", "audit", "verify")
	want(0, "was turned away", "", "approve", ask(t, r.URL(), "m-2"), "--deny")

	token := want(0, "It is shown this once", "", "token", "create", "--name", "ci", "--machine", "bench", "--capability", "files",
		"--device", "serial:*", "--root", "/data", "--expires", "30d")
	want(0, "files; devices serial:*; roots /data", "", "token", "list")
	other := t.TempDir() + "/other.json"
	want(0, "with a token of ann", token+"\n", "--config", other, "login", r.URL(), "--token-file", "-", "--ca-sha256", pin)
	want(0, "in 30 days", "", "--config", other, "whoami")
	want(77, "LOGIN_REQUIRED", "", "--config", other, "token", "list")
	var list struct{ Tokens, Logins []struct{ ID string } }
	if err := json.Unmarshal([]byte(want(0, "ci", "", "token", "list", "--json")), &list); err != nil || len(list.Tokens) != 1 || len(list.Logins) == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	want(0, "", "", "token", "revoke", list.Tokens[0].ID)
	want(77, "AUTH_FAILED", "", "--config", other, "whoami")
	want(0, "Logged out", "", "--config", other, "logout")

	want(0, "It is shown this once", "", "claim", "create", "--allow", "files", "--name", "greenhouse", "--expires", "1d")
	out := want(0, "greenhouse", "", "claim", "list")
	lines := strings.Split(out, "\n")
	want(0, "", "", "claim", "revoke", strings.Fields(lines[len(lines)-1])[0])
	want(0, "There are no sessions", "", "sessions")
	want(1, "SESSION_NOT_FOUND", "", "sessions", "close", "nope")
	want(0, "bench is shut out", "", "revoke", "bench")
	want(0, "No machine is paired yet", "", "machines")
	want(0, "Logged out", "", "logout")
	want(77, "not logged in", "", "machines")
}

// startRelay runs a relay with a certificate of its own until the test ends.
func startRelay(t *testing.T) (*relay.Relay, string) {
	t.Helper()
	dir := t.TempDir()
	pin, err := relay.Init(dir, []string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(t.Context(), relay.Config{
		Listener: listener, DataDir: dir, Log: slog.New(slog.DiscardHandler),
		Passphrases: oauth.Argon2{Time: 1, Memory: 64, Threads: 1}, // cheap: not what is tested here
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	return r, pin
}

// ask asks to be paired, as a machine does, and returns the user code.
func ask(t *testing.T, base, machine string) string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the pin is the command's to check
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).PostForm(base+"/api/oauth/device_authorization", url.Values{
		"client_id": {"autogpt-local-executor"}, "scope": {"USE_TOOLS"}, "machine_id": {machine}, "display_name": {machine},
		"capabilities": {"files shell hardware_serial"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		UserCode string `json:"user_code"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.UserCode == "" {
		t.Fatalf("device_authorization: %s, %+v, %v", resp.Status, answer, err)
	}
	return answer.UserCode
}
