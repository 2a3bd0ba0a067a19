package shell

import (
	"cmp"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"farhand/wire"
)

// start begins a command on pipes and returns the read end of its output.
func (b *bench) start(cmd wire.ExecuteCommand, terminal bool) (Process, *os.File, Trace, error) {
	b.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { r.Close() })
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.t.Fatal(err)
	}
	defer null.Close()
	p, trace, err := b.Begin(b.t.Context(), cmd, b.at, Files{Stdin: null, Stdout: w, Stderr: w, Terminal: terminal})
	return p, r, trace, err
}

// What begins is under the rules of what is executed, but may go on.
func TestBegin(t *testing.T) {
	b := newBench(t, "none", Config{PerMinute: 3, Environ: append(os.Environ(), "FARHAND_SECRET=x")})
	cmd := line("pwd; echo $MINE; env | grep -c FARHAND; exit 3")
	cmd.Env = map[string]string{"MINE": "yes"}
	p, r, trace, err := b.start(cmd, false)
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if want := b.dir + "\nyes\n0\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
	<-p.Exited()
	if st, err := p.Reap(); err != nil || st.Code != 3 || trace.Shell != "bash" || !strings.Contains(strings.Join(trace.EnvKeys, " "), "MINE") {
		t.Errorf("%+v, %v, %+v", st, err, trace)
	}
	for name, c := range map[string]struct {
		cmd      wire.ExecuteCommand
		terminal bool
		code     wire.Code
	}{
		"nothing, without a terminal": {wire.ExecuteCommand{}, false, wire.InternalError},
		"a shell that isn't one":      {wire.ExecuteCommand{Shell: "teapot"}, true, wire.InternalError},
		"a shell of another system":   {wire.ExecuteCommand{Shell: "cmd"}, true, wire.ShellNotAvailable},
		"bad variables":               {wire.ExecuteCommand{Argv: []string{"true"}, Env: map[string]string{"a=b": ""}}, true, wire.InternalError},
	} {
		if _, _, _, err := b.start(c.cmd, c.terminal); wire.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What isn't there counts as started; the fourth in a minute is one too many.
	if _, _, _, err := b.start(argv("no-such-program-here"), false); !errors.Is(err, wire.ShellNotAvailable) {
		t.Error(err)
	}
	p, _, _, err = b.start(argv("true"), false)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	p.Reap()
	if _, _, _, err := b.start(argv("true"), false); !errors.Is(err, wire.ShimOverloaded) {
		t.Errorf("the fourth: %v", err)
	}
}

// A shell to type into that isn't there is no panic.
func TestBeginWithoutShells(t *testing.T) {
	b := newBench(t, "none", Config{Environ: []string{"PATH=" + t.TempDir()}})
	for _, name := range []string{"", "zsh", "pwsh"} {
		_, _, _, err := b.start(wire.ExecuteCommand{Shell: name}, true)
		if e := wire.AsError(err); e.Code != wire.ShellNotAvailable || e.Details["requested_shell"] != cmp.Or(name, "auto") {
			t.Errorf("%q: %v %v", name, err, e.Details)
		}
	}
}
