package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"farhand/client"
	"farhand/daemon"
	"farhand/wire"
)

// ran is a line of exec --all --json.
type ran struct {
	Name   string              `json:"name"`
	Result *wire.CommandResult `json:"result"`
	Error  *wire.Error         `json:"error"`
}

// runs are the lines, by machine.
func runs(t *testing.T, text string) map[string]ran {
	t.Helper()
	all := make(map[string]ran)
	for line := range strings.Lines(text) {
		r := parse[ran](t, line)
		all[r.Name] = r
	}
	return all
}

// Several machines: labels, groups, the one that is meant where none is named, and
// a command on all of them.
func TestManyMachines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pi, shed := b.another("pi", "files,shell"), b.another("shed", "files,shell")
	b.another("attic", "files") // no commands there
	one := b.owner

	// Without a default machine a name is needed.
	if e := one.fails(255, wire.MachineAmbiguous, "exec", "--", "true"); len(e.Details["candidates"].([]any)) != 3 {
		t.Errorf("%+v", e)
	}
	one.fails(1, wire.MachineNotAttached, "ls", "nowhere:.")
	one.must("default", "shed")
	if text := one.must("exec", "--", "pwd"); strings.TrimSpace(text) != shed.root() {
		t.Errorf("without a name it ran in %q", text)
	}
	if text := one.must("exec", "pi", "--", "pwd"); strings.TrimSpace(text) != pi.root() {
		t.Errorf("with a name it ran in %q", text)
	}
	if text := one.must("default"); text != "shed\n" {
		t.Errorf("the default is %q", text)
	}
	agent := b.with(b.newToken("agent", "--machine", "pi"))
	if text := agent.must("exec", "--", "pwd"); strings.TrimSpace(text) != pi.root() {
		t.Errorf("a token that doesn't cover the default machine ran in %q", text)
	}
	agent.fails(77, "LOGIN_REQUIRED", "default", "pi")
	agent.fails(77, "LOGIN_REQUIRED", "label", "pi", "mine")

	one.must("label", "pi", "garden", "rack=1")
	one.must("label", "shed", "garden")
	if text := one.must("label", "pi"); text != "garden\nrack=1\n" {
		t.Errorf("pi has %q", text)
	}
	one.fails(1, wire.InvalidArgument, "label", "pi", "two words")
	groups := parse[struct {
		Groups []struct {
			Name     string
			Machines []string
			Online   int
		}
	}](t, one.must("groups", "--json")).Groups
	if len(groups) != 2 || groups[0].Name != "garden" || !slices.Equal(groups[0].Machines, []string{"pi", "shed"}) || groups[0].Online != 2 {
		t.Errorf("the groups are %+v", groups)
	}

	r := one.run("exec", "--group", "garden", "--", "sh", "-c", "echo here; echo there >&2")
	if r.code != 0 || !strings.Contains(r.stdout, "pi: here\n") || !strings.Contains(r.stdout, "shed: here\n") ||
		!strings.Contains(r.stderr, "pi: there\n") || !strings.Contains(r.stderr, "2 of 2 succeeded") {
		t.Errorf("%+v", r)
	}
	// Each in its own place, with its own code; one may not, and one has gone.
	shed.write(filepath.Join(shed.root(), "here"), "")
	r = one.run("--json", "exec", "--all", "--", "sh", "-c", "test -e here || exit 3")
	if all := runs(t, r.stdout); r.code != 255 || len(all) != 3 || all["pi"].Result.ExitCode != 3 || all["shed"].Result.ExitCode != 0 ||
		all["attic"].Error == nil || all["attic"].Error.Code != wire.CapabilityNotGranted {
		t.Errorf("%d %+v", r.code, all)
	}
	if r := one.run("exec", "--group", "garden", "--", "sh", "-c", "test -e here || exit 3"); r.code != 3 {
		t.Errorf("the greatest code is given: %+v", r)
	}
	if r := one.run("exec", "--group", "none", "--", "true"); r.code != 255 || !strings.Contains(r.stderr, "garden") {
		t.Errorf("%+v", r)
	}
	if r := one.run("exec", "--all", "pi", "--", "true"); r.code != 255 {
		t.Errorf("a machine beside --all: %+v", r)
	}
	pi.daemon.stop()
	eventually(t, "pi offline", func() error {
		if m, err := b.sdk().Machine(t.Context(), "pi"); err != nil || m.Online {
			return fmt.Errorf("it is %+v, %v", m.Online, err)
		}
		return nil
	})
	r = one.run("--json", "exec", "--group", "garden", "--", "true")
	if all := runs(t, r.stdout); r.code != 255 || all["pi"].Error == nil || all["pi"].Error.Code != wire.MachineUnreachable || all["shed"].Result == nil {
		t.Errorf("%d %+v", r.code, all)
	}

	// What is forgotten leaves nothing behind.
	one.must("revoke", "shed", "--yes")
	if text := one.must("default"); text != "" {
		t.Errorf("the default is still %q", text)
	}
	one.must("default", "pi")
	one.must("default", "--clear")
	one.fails(255, wire.MachineAmbiguous, "exec", "--", "true")
}

// One session over two machines: each request and each stream on its own, also
// after the relay was started anew, and one end.
func TestSessionSpansMachines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pi, shed := b.another("pi", "shell,hardware_serial"), b.another("shed", "shell,hardware_serial")
	ctx, c := t.Context(), b.sdk()
	first, err := c.Open(ctx, client.Place{Machine: "pi", Span: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Open(ctx, client.Place{Machine: "shed", Joins: first})
	if err != nil {
		t.Fatal(err)
	}
	if first.Info().ID != second.Info().ID || second.Info().MachineName != "shed" {
		t.Errorf("%+v and %+v", first.Info(), second.Info())
	}
	where := func(s *client.Session) string {
		t.Helper()
		r, err := s.Exec(ctx, wire.ExecuteCommand{Argv: []string{"pwd"}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(r.Stdout)
	}
	check := func() {
		t.Helper()
		for range 3 {
			if a, b := where(first), where(second); a != pi.root() || b != shed.root() {
				t.Errorf("they ran in %s and %s", a, b)
			}
		}
	}
	check()
	parts := []*client.Session{first, second}
	var streams []*client.Stream
	for _, s := range parts {
		st, _, err := s.SerialWatch(ctx, echo, wire.SerialWatch{Credit: 1 << 10})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	var want, got [2][]byte
	say := func() { // several windows of credit
		t.Helper()
		for n := range 40 {
			for i, s := range parts {
				text := fmt.Sprintf("%s %d %s\n", s.Info().MachineName, n, strings.Repeat("x", 100))
				if _, err := s.SerialWrite(ctx, echo, wire.SerialWrite{Data: []byte(text)}, false); err != nil {
					t.Fatal(err)
				}
				want[i] = append(want[i], text...)
			}
		}
		for i := range parts {
			if got[i], _ = upTo(t, streams[i], got[i], len(want[i])); string(got[i]) != string(want[i]) {
				t.Fatalf("%s: %d bytes came, and not those that were sent", parts[i].Info().MachineName, len(got[i]))
			}
		}
	}
	say()
	b.relay.stop()
	b.startRelay()
	check()
	say()
	if err := first.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*bench{pi, shed} {
		eventually(t, "the session's end on "+d.name, func() error {
			if s := parse[daemon.Status](t, d.mustd("", "status", "--json")); len(s.Sessions) != 0 {
				return fmt.Errorf("it has %+v", s.Sessions)
			}
			return nil
		})
	}
}
