package cli

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

type execFlags struct {
	root, cwd string
	timeout   string
	env       []string
}

func (a *app) exec() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [MACHINE] -- ARGV...",
		Short: "Run a command on a machine",
		Long: `exec runs a command on a machine, without a shell in between, and exits as it does;
see farhand help exit-codes. Its standard input is empty. Output comes when the
command has ended.

It starts in the first directory that the machine offers, or in --root. It is not
confined to it: whoever may run commands may do what the daemon's user may.`,
		Example: `  farhand exec pi -- uname -a
  farhand exec pi --timeout 5m --root /data/work -- make test
  farhand exec -- sh -c 'df -h | grep data'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runExec(cmd, args, f) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return a.completeMachine("")(cmd, args, typed)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.root, "root", "", "start in this `DIRECTORY`, which the machine must offer")
	flags.StringVar(&f.cwd, "cwd", "", "start in this `DIRECTORY` below the root")
	flags.StringVar(&f.timeout, "timeout", "", "end the command after this `DURATION`, such as 90s or 5m; seconds without a unit (default: the machine's own)")
	flags.StringArrayVar(&f.env, "env", nil, "set `NAME=VALUE` for the command; may be repeated")
	return cmd
}

func (a *app) runExec(cmd *cobra.Command, args []string, f execFlags) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0:
		return usage("the command stands after --: farhand exec MACHINE -- ARGV...")
	case dash > 1:
		return usage("one machine at most stands before --")
	case len(args) == dash:
		return usage("there is no command after --")
	}
	request, err := f.request(args[dash:])
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	machine, err := a.machine(ctx, c, first(args[:dash]...))
	if err != nil {
		return err
	}
	s, err := c.Open(ctx, client.Place{Machine: machine, Root: f.root})
	if err != nil {
		return err
	}
	result, err := s.Exec(ctx, request)
	if err != nil {
		return err
	}
	return a.finishExec(result)
}

func (f execFlags) request(argv []string) (wire.ExecuteCommand, error) {
	r := wire.ExecuteCommand{Argv: argv}
	if f.cwd != "" {
		r.Cwd = &f.cwd
	}
	if f.timeout != "" {
		d, err := duration(f.timeout)
		if err != nil || d <= 0 {
			return r, usage("--timeout %q is not a duration such as 90s or 5m", f.timeout)
		}
		seconds := d.Seconds()
		r.TimeoutSeconds = &seconds
	}
	for _, pair := range f.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return r, usage("--env %q is not NAME=VALUE", pair)
		}
		if r.Env == nil {
			r.Env = make(map[string]string)
		}
		r.Env[name] = value
	}
	return r, nil
}

// finishExec prints what the command wrote and exits as it did.
func (a *app) finishExec(r wire.CommandResult) error {
	code := exitCode(r)
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		if _, err := io.WriteString(a.env.Stdout, r.Stdout); err != nil {
			return err
		}
		if _, err := io.WriteString(a.env.Stderr, r.Stderr); err != nil {
			return err
		}
	}
	if r.TimedOut {
		took := time.Duration(r.DurationSeconds * float64(time.Second)).Round(time.Millisecond)
		return wire.Errorf(wire.CommandTimeout, "the command did not end within its time and was ended after %s", took).
			With("duration_seconds", r.DurationSeconds)
	}
	if code != exitOK {
		return exitStatus(code)
	}
	return nil
}

// exitCode is a remote result as an exit code of ours.
func exitCode(r wire.CommandResult) int {
	switch {
	case r.TimedOut:
		return exitExec
	case r.ExitCode < 0: // -signo
		return 128 + min(-r.ExitCode, 127)
	default:
		return r.ExitCode & 0xff
	}
}
