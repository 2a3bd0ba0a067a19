package mcp

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"farhand/wire"
)

func commandTools() []tool {
	return []tool{
		define("run_command", "Run a command",
			"Runs a command on the machine to its end and returns its output and exit code. A command that fails is a result, not an error: look at exit_code. It is ended after timeout_seconds, and when the call is cancelled.",
			destroys, wire.Shell, runCommand).openWorld(),
	}
}

type commandAsked struct {
	onMachine
	Argv           []string          `json:"argv,omitempty" jsonschema:"the program and its arguments, run without a shell: [\"ls\", \"-l\", \"my file\"]" length:"1..4096"`
	Command        string            `json:"command,omitempty" jsonschema:"in place of argv: a line for the shell, with pipes and globs"`
	Cwd            string            `json:"cwd,omitempty" jsonschema:"directory to run in, absolute or relative to the first root; default: the first root"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" jsonschema:"seconds after which it is ended; the machine's own limit may be lower; default 30" range:"0.1..3600"`
	Env            map[string]string `json:"env,omitempty" jsonschema:"variables to add to the environment"`
	MaxOutputBytes int               `json:"max_output_bytes,omitempty" jsonschema:"of stdout and of stderr, the middle is left out beyond so many bytes" default:"65536" range:"1024..1048576"`
}

type commandDone struct {
	ExitCode        int     `json:"exit_code" jsonschema:"0 is success; -1 it ran out of time; -N it was ended by signal N"`
	Stdout          string  `json:"stdout"`
	Stderr          string  `json:"stderr"`
	TimedOut        bool    `json:"timed_out"`
	DurationSeconds float64 `json:"duration_seconds"`
	Truncated       bool    `json:"truncated" jsonschema:"something of the output is left out"`
}

func runCommand(ctx context.Context, c *call, in commandAsked) (commandDone, string, error) {
	q := wire.ExecuteCommand{Argv: in.Argv, Env: in.Env, Cwd: optional(in.Cwd), Command: optional(in.Command), TimeoutSeconds: seconds(in.TimeoutSeconds)}
	if (len(in.Argv) > 0) == (in.Command != "") {
		return commandDone{}, "", wire.Errorf(wire.InvalidArgument, "give argv or command, one of the two")
	}
	ses, err := c.at(ctx, in.Machine, in.Cwd)
	if err != nil {
		return commandDone{}, "", err
	}
	res, err := ses.Exec(ctx, q)
	if err != nil {
		return commandDone{}, "", err
	}
	out := commandDone{ExitCode: res.ExitCode, TimedOut: res.TimedOut, DurationSeconds: res.DurationSeconds}
	var cut [2]bool
	out.Stdout, cut[0] = shorten(res.Stdout, in.MaxOutputBytes)
	out.Stderr, cut[1] = shorten(res.Stderr, in.MaxOutputBytes)
	out.Truncated = res.OutputTruncated || cut[0] || cut[1]
	return out, out.text(), nil
}

// text is what a person would see at a terminal.
func (r commandDone) text() string {
	var b strings.Builder
	b.WriteString(r.Stdout)
	if r.Stderr != "" {
		if r.Stdout != "" && !strings.HasSuffix(r.Stdout, "\n") {
			b.WriteByte('\n')
		}
		b.WriteString("[stderr]\n" + r.Stderr)
	}
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	switch {
	case r.TimedOut:
		fmt.Fprintf(&b, "[ran out of time after %.1f s]", r.DurationSeconds)
	default:
		fmt.Fprintf(&b, "[exit code %d]", r.ExitCode)
	}
	return b.String()
}

// shorten leaves the middle of a text out that is longer than most bytes: what
// matters stands at its beginning and at its end.
func shorten(text string, most int) (string, bool) {
	if len(text) <= most {
		return text, false
	}
	head, tail := most/2, len(text)-most/2
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", text[:head], tail-head, text[tail:]), true
}
