package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"farhand/client"
	"farhand/client/clienttest"
	"farhand/cmd/farhand/cli"
	"farhand/wire"
)

// The scripts run the command in this process against a scripted relay. Beside
// the commands of testscript they have:
//
//	farhand ARGS...      run it; "! farhand" if it must fail
//	code N               the exit code was N
//	feed FILE            what the next farhand reads from standard input
//	relay WHAT ...       change or look at the relay, see relayCommand
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			r := clienttest.New(t)
			r.Device.Exec = remoteCommand
			env.Values[stateKey{}] = &state{relay: r}
			env.Vars = append(env.Vars, "URL="+r.URL, "HOST="+strings.TrimPrefix(r.URL, "http://"),
				"TOKEN="+clienttest.OwnerToken, "SERIAL="+clienttest.SerialID, "MACHINE_ID="+clienttest.MachineID)
			if filepath.Base(env.WorkDir) != "script-login" { // the others start signed in
				env.Vars = append(env.Vars, "FARHAND_URL="+r.URL, "FARHAND_TOKEN="+clienttest.OwnerToken)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"farhand": farhandCommand, "code": codeCommand, "feed": feedCommand, "relay": relayCommand,
		},
	})
}

type stateKey struct{}

// state is what one script has.
type state struct {
	relay *clienttest.Relay
	bench *bench
	code  int
	stdin string
}

func of(ts *testscript.TestScript) *state { return ts.Value(stateKey{}).(*state) }

func farhandCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	s.code = cli.Run(context.Background(), cli.Env{
		Args: args, Stdin: strings.NewReader(s.stdin), Stdout: ts.Stdout(), Stderr: ts.Stderr(),
		Getenv: ts.Getenv, Home: ts.MkAbs("."),
		Now: func() time.Time { return clienttest.Epoch().Add(2 * time.Hour) },
	})
	s.stdin = ""
	if failed := s.code != 0; failed != neg {
		ts.Fatalf("farhand %s: exit code %d", strings.Join(args, " "), s.code)
	}
}

func codeCommand(ts *testscript.TestScript, _ bool, args []string) {
	if want, err := strconv.Atoi(args[0]); err != nil || of(ts).code != want {
		ts.Fatalf("exit code was %d, want %s", of(ts).code, args[0])
	}
}

func feedCommand(ts *testscript.TestScript, _ bool, args []string) {
	of(ts).stdin = ts.ReadFile(args[0])
}

func relayCommand(ts *testscript.TestScript, neg bool, args []string) {
	r := of(ts).relay
	switch what := args[0]; what {
	case "offline":
		r.Change(func() { r.Machines[0].Online = false })
	case "online":
		r.Change(func() { r.Machines[0].Online = true })
	case "paired": // what asks has the id of this machine
		r.Change(func() {
			p := r.Approvals[clienttest.UserCode]
			p.Paired = &client.Paired{Name: "oven", Approved: clienttest.Epoch(), Online: args[1] == "online", LastSeen: clienttest.Epoch()}
			r.Approvals[clienttest.UserCode] = p
		})
	case "second": // another machine
		r.Change(func() { r.Machines = append(r.Machines, client.Machine{ID: "0000-second", Name: "pi2", Online: true}) })
	case "empty":
		r.Change(func() { r.Machines = nil })
	case "broken-log":
		r.Change(func() {
			r.Audit = client.AuditReport{Seq: 40, HMAC: "ab", Problems: []string{"record 12: hmac_mismatch"}, Anchor: &wire.Anchor{Seq: 41}}
		})
	case "bench": // something of every family is wired to the machine
		of(ts).bench = newBench(r)
	case "fails": // OP CODE MESSAGE [KEY=VALUE...]: that operation of the bench
		e := wire.Errorf(wire.Code(args[2]), "%s", args[3])
		for _, pair := range args[4:] {
			key, value, _ := strings.Cut(pair, "=")
			e.With(key, value)
		}
		b := of(ts).bench
		b.mu.Lock()
		b.fail[args[1]] = *e
		b.mu.Unlock()
	case "streams-end": // REASON: the bench's streams end after what they have
		b := of(ts).bench
		b.mu.Lock()
		b.end = args[1]
		b.mu.Unlock()
	case "grants": // JSON
		r.Change(func() { ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &r.Grants)) })
	case "refuse": // STATUS CODE MESSAGE
		status, err := strconv.Atoi(args[1])
		ts.Check(err)
		e := wire.Errorf(wire.Code(args[2]), "%s", args[3])
		r.Change(func() { r.Refuse = func(*http.Request) (int, *wire.Error) { return status, e } })
	case "answer": // CODE MESSAGE [KEY=VALUE...]: to every request
		e := wire.Errorf(wire.Code(args[1]), "%s", args[2])
		for _, pair := range args[3:] {
			key, value, _ := strings.Cut(pair, "=")
			e.With(key, value)
		}
		r.Change(func() { r.Handle = func(wire.Envelope) (wire.Type, any, error) { return "", nil, e } })
	case "file": // PATH LOCAL: the machine has that file
		r.Device.Set(args[1], []byte(ts.ReadFile(args[2])))
	case "has": // PATH LOCAL: the machine has exactly that file; with !, none
		got, ok := r.Device.Get(args[1])
		if neg && !ok {
			return
		}
		if neg || string(got) != ts.ReadFile(args[2]) {
			ts.Fatalf("the machine's %s is %q, %t", args[1], got, ok)
		}
	case "body": // CALL: print the last body of that call
		io.WriteString(ts.Stdout(), r.Body(strings.Join(args[1:], " "))+"\n")
	case "calls":
		io.WriteString(ts.Stdout(), strings.Join(r.Calls(), "\n")+"\n")
	default:
		ts.Fatalf("relay %s: unknown", what)
	}
}

// remoteCommand stands for the shell of the machine.
func remoteCommand(cmd wire.ExecuteCommand) (wire.CommandResult, error) {
	out := wire.CommandResult{DurationSeconds: 0.25}
	switch cmd.Argv[0] {
	case "echo":
		out.Stdout = strings.Join(cmd.Argv[1:], " ") + "\n"
	case "warn":
		out.Stdout, out.Stderr = "out\n", "err\n"
	case "exit":
		out.ExitCode, _ = strconv.Atoi(cmd.Argv[1])
	case "sleep":
		out.TimedOut, out.ExitCode, out.Stdout = true, -1, "so far\n"
	case "env":
		for k, v := range cmd.Env {
			out.Stdout += k + "=" + v + "\n"
		}
		if cmd.Cwd != nil {
			out.Stdout += "cwd " + *cmd.Cwd + "\n"
		}
		if cmd.TimeoutSeconds != nil {
			out.Stdout += "timeout " + strconv.FormatFloat(*cmd.TimeoutSeconds, 'f', -1, 64) + "\n"
		}
	default:
		return out, wire.Errorf(wire.ShellNotAvailable, "there is no %s", cmd.Argv[0]).With("requested_shell", cmd.Argv[0])
	}
	return out, nil
}
