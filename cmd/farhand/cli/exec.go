package cli

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

type execFlags struct {
	root, cwd string
	timeout   string
	env       []string
	stdin     bool

	all   bool
	group string
}

func (a *app) exec() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [MACHINE] -- ARGV...",
		Short: "Run a command on a machine",
		Long: `exec runs a command on a machine, without a shell in between, and exits as it does;
see farhand help exit-codes. It may run for as long as it likes, unless --timeout says
otherwise, also to a machine that doesn't answer, and its output comes as it is written,
also over a link that is lost for a while. Its standard input is empty, or this one's
with --stdin. Ctrl-C ends it.

With --json there is one document when it has ended; then it has the time and the
output that the machine allows one command.

It starts in the first directory that the machine offers, or in --root. It is not
confined to it: whoever may run commands may do what the daemon's user may.

With --all or --group it runs on several machines side by side, 32 at most at a time,
with the time and the output that each allows one command. When it has ended somewhere,
its output comes with the machine's name before each line, and at the end a summary on
standard error; with --json one line for each machine instead. exec gives 0 if it
succeeded everywhere, else the greatest of the codes: 255 if it couldn't be run on one
of them.`,
		Example: `  farhand exec pi -- uname -a
  farhand exec pi --timeout 5m --root /data/work -- make test
  tar c src | farhand exec pi --stdin -- tar x
  farhand exec -- sh -c 'df -h | grep data'
  farhand exec --group garden -- uptime`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runExec(cmd, args, f) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return a.completeMachine("")(cmd, args, typed)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.root, "root", "", "start in this `DIRECTORY`, which the machine must offer")
	flags.StringVar(&f.cwd, "cwd", "", "start in this `DIRECTORY` below the root")
	flags.StringVar(&f.timeout, "timeout", "", "end the command after this `DURATION`, such as 90s or 5m; seconds without a unit (default: none, with --json the machine's own)")
	flags.BoolVarP(&f.stdin, "stdin", "i", false, "hand on standard input")
	flags.BoolVar(&f.all, "all", false, "run it on every machine")
	flags.StringVar(&f.group, "group", "", "run it on every machine with this `LABEL`")
	cmd.MarkFlagsMutuallyExclusive("all", "group")
	cmd.MarkFlagsMutuallyExclusive("all", "stdin")
	cmd.MarkFlagsMutuallyExclusive("group", "stdin")
	a.completeGroup(cmd, "group")
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
	case dash > 0 && (f.all || f.group != ""):
		return usage("--all and --group say which machines: none stands before --")
	case len(args) == dash:
		return usage("there is no command after --")
	case a.json && f.stdin:
		return usage("--stdin is for a command whose output comes as it is written: not with --json")
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
	if f.all || f.group != "" {
		return a.execMany(ctx, c, request, f)
	}
	machine, err := a.machine(ctx, c, first(args[:dash]...))
	if err != nil {
		return err
	}
	s, err := openFor(ctx, c, request, client.Place{Machine: machine, Root: f.root})
	if err != nil {
		return err
	}
	if !a.json {
		err := a.stream(ctx, s, request, f.stdin)
		if noTerminals(err) && !f.stdin {
			err = a.execWhole(ctx, s, request)
		}
		return err
	}
	return a.execWhole(ctx, s, request)
}

// openFor opens a session for a command.
func openFor(ctx context.Context, c *client.Client, r wire.ExecuteCommand, at client.Place) (s *client.Session, err error) {
	err = answered(ctx, r, func(ctx context.Context) (err error) {
		s, err = c.Open(ctx, at)
		return err
	})
	return s, err
}

// execWhole runs a command whose output comes at its end.
func (a *app) execWhole(ctx context.Context, s *client.Session, request wire.ExecuteCommand) error {
	result, err := s.Exec(ctx, request)
	if err != nil {
		return err
	}
	return a.finishExec(result)
}

// noTerminals says that the machine, or the relay, knows commands alone.
func noTerminals(err error) bool {
	var e *wire.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code == wire.FeatureNotSupported || e.Code == wire.CapabilityNotGranted && e.Details["required_capability"] == string(wire.Terminal)
}

// stream runs a command whose output comes as it is written.
func (a *app) stream(ctx context.Context, s *client.Session, r wire.ExecuteCommand, stdin bool) error {
	pty, begun := false, time.Now()
	var t *client.Terminal
	err := answered(ctx, r, func(ctx context.Context) (err error) {
		t, err = s.OpenTerminal(ctx, wire.TerminalOpen{Argv: r.Argv, Cwd: r.Cwd, Env: r.Env, PTY: &pty})
		return err
	})
	if err != nil {
		return err
	}
	bounded, cancel := within(ctx, r, 0) // its time begins with it
	defer cancel()
	if !stdin {
		if err := t.CloseInput(bounded); err != nil && bounded.Err() == nil {
			return errors.Join(err, a.abort(ctx, t))
		}
	}
	end, err := a.follows(bounded, t, stdin)
	if err == nil {
		t.Detach()
		return terminalEnded(end)
	}
	gaveUp := bounded.Err() != nil
	if closed := a.abort(ctx, t); closed != nil && gaveUp {
		a.note("The machine could not be told to end the command (%s); farhand terminals shows it.", clean(closed.Error()))
	}
	if gaveUp && ctx.Err() == nil {
		took := time.Since(begun)
		return wire.Errorf(wire.CommandTimeout, "the command did not end within its time and was ended after %s", took.Round(time.Millisecond)).
			With("duration_seconds", took.Seconds())
	}
	return err
}

// within is ctx for as long as a command may take, and so much more.
func within(ctx context.Context, r wire.ExecuteCommand, more time.Duration) (context.Context, context.CancelFunc) {
	if r.TimeoutSeconds == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(*r.TimeoutSeconds*float64(time.Second))+more)
}

// answered asks a machine for something on a command's behalf. One that doesn't
// answer in the command's time, and a moment more, isn't waited for any longer.
func answered(ctx context.Context, r wire.ExecuteCommand, ask func(context.Context) error) error {
	bounded, cancel := within(ctx, r, client.ExecGrace)
	defer cancel()
	err := ask(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return wire.Errorf(wire.CommandTimeout, "the machine did not answer within the command's time and %s more", client.ExecGrace).With("unanswered", true)
	}
	return err
}

// abort ends a command that isn't waited for any more.
func (a *app) abort(ctx context.Context, t *client.Terminal) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	return t.Close(bounded)
}

// follows copies what a command writes until it ends, and what it reads.
func (a *app) follows(ctx context.Context, t *client.Terminal, stdin bool) (wire.StreamEnd, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel(nil)
	if stdin {
		tasks.Go(func() {
			if err := a.typeAll(ctx, t, -1); err != nil {
				cancel(err)
			}
		})
	}
	return a.pumpTerminal(ctx, t, screen{}, new(modes))
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
	env, err := environment(f.env)
	r.Env = env
	return r, err
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
	if err := timedOut(r); err != nil {
		return err
	}
	if code != exitOK {
		return exitStatus(code)
	}
	return nil
}

// timedOut is the failure that a command ran out of time; nil if it didn't.
func timedOut(r wire.CommandResult) error {
	if !r.TimedOut {
		return nil
	}
	took := time.Duration(r.DurationSeconds * float64(time.Second)).Round(time.Millisecond)
	return wire.Errorf(wire.CommandTimeout, "the command did not end within its time and was ended after %s", took).
		With("duration_seconds", r.DurationSeconds)
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
